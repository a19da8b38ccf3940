// RUN: not populus-opt %s 2>&1 | filecheck %s

// CHECK: rows_invalid.mlir:5:3: popnn.softmax: tensor<f32> has no rows of floats
func.func @main(%x: tensor<f32>) {
  %y = popnn.softmax %x : (tensor<f32>) -> tensor<f32>
  func.return
}
