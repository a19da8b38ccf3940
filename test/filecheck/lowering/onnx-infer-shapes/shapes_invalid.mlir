// RUN: not populus-opt %s -p onnx-infer-shapes 2>&1 | filecheck %s

// CHECK: 'sum': Add-14: {{.*}}; its inputs are tensor<2x3xf32>, tensor<4xf32>
func.func @main(%x: tensor<2x3xf32>, %w: tensor<4xf32>) -> !onnx.unknown {
  %y = onnx.Add_14(%x, %w) : (tensor<2x3xf32>, tensor<4xf32>) -> !onnx.unknown loc("sum")
  func.return %y : !onnx.unknown
}
