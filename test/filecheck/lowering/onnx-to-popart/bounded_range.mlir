// RUN: populus-opt %s -p 'onnx-infer-shapes{dims="seq=1..8"},onnx-to-popart' | filecheck %s

// The range of DynamicQuantizeLinear has 0, so zeros beyond the valid part serve its smallest and its largest element.
func.func @main(%x: tensor<?x4xf32>) -> (!onnx.unknown, !onnx.unknown, !onnx.unknown) attributes {input_names = ["x"], output_names = ["y", "s", "z"], dim_names = [["seq", ""]]} {
  %y, %s, %z = onnx.DynamicQuantizeLinear_11(%x) : (tensor<?x4xf32>) -> (!onnx.unknown, !onnx.unknown, !onnx.unknown)
  func.return %y, %s, %z : !onnx.unknown, !onnx.unknown, !onnx.unknown
}

// CHECK:     %[[MASKED:.*]] = popart.where %{{.*}}, %x, %{{.*}} : (tensor<8x1xi1>, tensor<8x4xf32>, tensor<f32>) -> tensor<8x4xf32>
// CHECK-NOT: -> tensor<8x4xf32>
// CHECK:     popart.reduce_min %[[MASKED]]
// CHECK-NOT: -> tensor<8x4xf32>
// CHECK:     popart.reduce_max %[[MASKED]]
// CHECK-NOT: popart.where {{.*}} -> tensor<8x4xf32>
// CHECK:     popart.div %[[MASKED]]
