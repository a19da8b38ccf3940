// RUN: not populus-opt %s -p onnx-to-popart 2>&1 | filecheck %s

// CHECK: 'norm': BatchNormalization-15: it computes the statistics of its batch (training mode), which is not supported; export the model for inference
func.func @main(%x: tensor<1x2x3xf32>, %s: tensor<2xf32>) -> tensor<1x2x3xf32> {
  %y = onnx.BatchNormalization_15(%x, %s, %s, %s, %s) {training_mode = 1 : i64}
    : (tensor<1x2x3xf32>, tensor<2xf32>, tensor<2xf32>, tensor<2xf32>, tensor<2xf32>) -> tensor<1x2x3xf32> loc("norm")
  func.return %y : tensor<1x2x3xf32>
}
