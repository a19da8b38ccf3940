// RUN: populus-opt %s -p onnx-infer-shapes | filecheck %s

// ONNX states no inference for these versions; torch writes the last line for a range.
// CHECK: func.func @main(%x: tensor<2x4x3xf32>, %s: tensor<4xf32>) -> (tensor<2x4x3xf32>, tensor<2x4x3xi1>, tensor<3xi64>)
func.func @main(%x: tensor<2x4x3xf32>, %s: tensor<4xf32>) -> (!onnx.unknown, !onnx.unknown, !onnx.unknown)
    attributes {input_names = ["x", "s"], output_names = ["y", "z", "r"]} {
  // CHECK: onnx.GroupNormalization_21{{.*}} -> tensor<2x4x3xf32>
  %g = onnx.GroupNormalization_21(%x, %s, %s) {num_groups = 2 : i64} : (tensor<2x4x3xf32>, tensor<4xf32>, tensor<4xf32>) -> !onnx.unknown
  // CHECK: onnx.Relu_1{{.*}} -> tensor<2x4x3xf32>
  %y = onnx.Relu_1(%g) : (!onnx.unknown) -> !onnx.unknown
  // CHECK: onnx.GreaterOrEqual_12{{.*}} -> tensor<2x4x3xi1>
  %z = onnx.GreaterOrEqual_12(%y, %x) : (!onnx.unknown, tensor<2x4x3xf32>) -> !onnx.unknown
  %zero = data.constant dense<0.0> : tensor<f32>
  %three = data.constant dense<3> : tensor<i64>
  %one = data.constant dense<1> : tensor<i64>
  %start = onnx.CastLike_15(%zero, %three) : (tensor<f32>, tensor<i64>) -> !onnx.unknown
  // CHECK: onnx.Range_11{{.*}} -> tensor<3xi64>
  %r = onnx.Range_11(%start, %three, %one) : (!onnx.unknown, tensor<i64>, tensor<i64>) -> !onnx.unknown
  func.return %y, %z, %r : !onnx.unknown, !onnx.unknown, !onnx.unknown
}
