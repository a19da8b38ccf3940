// RUN: not populus-opt %s 2>&1 | filecheck %s

// CHECK: pad_invalid.mlir:5:3: popops.pad: a pad is negative; slice instead
func.func @main(%x: tensor<2xf32>, %z: tensor<f32>) {
  %y = popops.pad %x, %z {lower = array<i64: -1>, upper = array<i64: 0>, interior = array<i64: 0>} : (tensor<2xf32>, tensor<f32>) -> tensor<1xf32>
  func.return
}
