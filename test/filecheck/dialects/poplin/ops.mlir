// RUN: populus-opt %s | populus-opt | filecheck %s

// Products in groups.
func.func @main(%a: tensor<2x3x4xf16>, %b: tensor<2x4x5xf16>, %x: tensor<1x4x9x9xf32>, %w: tensor<6x2x3x3xf32>) {
  // CHECK: %c = poplin.matmul %a, %b : (tensor<2x3x4xf16>, tensor<2x4x5xf16>) -> tensor<2x3x5xf16>
  %c = poplin.matmul %a, %b : (tensor<2x3x4xf16>, tensor<2x4x5xf16>) -> tensor<2x3x5xf16>
  // CHECK-NEXT: %y = poplin.convolution %x, %w {strides = array<i64: 2, 1>, pads = array<i64: 1, 0, 1, 0>, dilations = array<i64: 1, 2>, groups = 2 : i64} : (tensor<1x4x9x9xf32>, tensor<6x2x3x3xf32>) -> tensor<1x6x5x5xf32>
  %y = poplin.convolution %x, %w {strides = array<i64: 2, 1>, pads = array<i64: 1, 0, 1, 0>, dilations = array<i64: 1, 2>, groups = 2 : i64} : (tensor<1x4x9x9xf32>, tensor<6x2x3x3xf32>) -> tensor<1x6x5x5xf32>
  func.return
}
