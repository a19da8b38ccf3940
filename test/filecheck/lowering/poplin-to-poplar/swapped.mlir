// RUN: populus-opt %s -p "poplin-to-poplar{target=gc200}" --split-input-file | filecheck %s

// Few rows and many weights: the rows are loaded into the matrix units, and the weights stream through them.
// CHECK: @matmul {swapped = true} for
func.func @main(%a : tensor<1x16x4096xf32>) -> tensor<1x16x4096xf32> {
  %b = data.constant dense<2.0> : tensor<1x4096x4096xf32>
  %c = poplin.matmul %a, %b : (tensor<1x16x4096xf32>, tensor<1x4096x4096xf32>) -> tensor<1x16x4096xf32>
  func.return %c : tensor<1x16x4096xf32>
}

// -----

// A kernel of several elements slides over rows, which must stream.
// CHECK: @conv for
func.func @main(%x : tensor<1x64x4x4xf32>, %w : tensor<64x64x3x3xf32>) -> tensor<1x64x2x2xf32> {
  %y = poplin.convolution %x, %w {strides = array<i64: 1, 1>, pads = array<i64: 0, 0, 0, 0>, dilations = array<i64: 1, 1>, groups = 1 : i64} : (tensor<1x64x4x4xf32>, tensor<64x64x3x3xf32>) -> tensor<1x64x2x2xf32>
  func.return %y : tensor<1x64x2x2xf32>
}
