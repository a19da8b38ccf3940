// RUN: not populus-opt %s 2>&1 | filecheck %s

// CHECK: channels_invalid.mlir:5:3: popart.conv: w has 3 input channels, x has 4; group = 1 needs 1 times as many
func.func @main(%x: tensor<1x4x5x5xf32>, %w: tensor<2x3x3x3xf32>) {
  %y = popart.conv %x, %w {strides = array<i64: 1, 1>, pads = array<i64: 0, 0, 0, 0>, dilations = array<i64: 1, 1>, group = 1 : i64} : (tensor<1x4x5x5xf32>, tensor<2x3x3x3xf32>) -> tensor<1x2x3x3xf32>
  func.return
}
