// RUN: populus-opt %s -p 'onnx-infer-shapes{dims="seq=1..8"},onnx-to-popart' | filecheck %s

// The size of a bounded dimension is an argument, and softmax reads minus infinity beyond it.
func.func @main(%x: tensor<?x4xf32>) -> !onnx.unknown attributes {input_names = ["x"], output_names = ["y"], dim_names = [["seq", ""]]} {
  %y = onnx.Softmax_13(%x) {axis = 0 : i64} : (tensor<?x4xf32>) -> !onnx.unknown
  func.return %y : !onnx.unknown
}

// CHECK:      func.func @main(%x: tensor<8x4xf32>, %[[N:.*]]: tensor<i32>) -> tensor<8x4xf32>
// CHECK-SAME: input_names = ["x", "size.seq"]
// CHECK-SAME: argument_sizes = {{\[\[}}"seq", ""], []], result_sizes = {{\[\[}}"seq", ""]]
// CHECK:      %[[IN:.*]] = popart.less %{{.*}}, %[[N]] : (tensor<8xi32>, tensor<i32>) -> tensor<8xi1>
// CHECK:      %[[COLUMN:.*]] = popart.reshape %[[IN]]
// CHECK:      %[[MASKED:.*]] = popart.where %[[COLUMN]], %x, %{{.*}} : (tensor<8x1xi1>, tensor<8x4xf32>, tensor<f32>) -> tensor<8x4xf32>
// CHECK:      %y = popart.softmax %[[MASKED]] {axis = 0 : i64} : (tensor<8x4xf32>) -> tensor<8x4xf32>
