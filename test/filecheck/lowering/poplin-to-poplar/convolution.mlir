// RUN: populus-opt %s -p "poplin-to-poplar{target=gc200 tiles=16}" --split-input-file | filecheck %s

// The window of an output row is an access with stride, dilation and padding; padding is what overhangs.
func.func @main(%x : tensor<2x16x9x9xf32>, %w : tensor<32x16x3x3xf32>) -> tensor<2x32x5x4xf32> {
  %y = poplin.convolution %x, %w {strides = array<i64: 2, 2>, pads = array<i64: 2, 1, 1, 0>, dilations = array<i64: 1, 1>, groups = 1 : i64} : (tensor<2x16x9x9xf32>, tensor<32x16x3x3xf32>) -> tensor<2x32x5x4xf32>
  func.return %y : tensor<2x32x5x4xf32>
}

// CHECK: poplar.family @conv for (b = 2{{.*}}, oc = 32{{.*}}, ic = 16{{.*}}, o0 = 5{{.*}}, o1 = 4{{.*}}, k0 = 3{{.*}}, k1 = 3)
// CHECK:   in x = %x[b, ic, o0 * 2 + k0 - 2, o1 * 2 + k1 - 1]
// CHECK:   in w = %w[oc, ic, k0, k1]

// -----

// Groups are an axis of their own: operands and result are seen with the group split off their channels.
func.func @main(%x : tensor<1x8x6xf32>, %w : tensor<8x1x3xf32>) -> tensor<1x8x4xf32> {
  %y = poplin.convolution %x, %w {strides = array<i64: 1>, pads = array<i64: 0, 0>, dilations = array<i64: 1>, groups = 8 : i64} : (tensor<1x8x6xf32>, tensor<8x1x3xf32>) -> tensor<1x8x4xf32>
  func.return %y : tensor<1x8x4xf32>
}

// CHECK: [[X:%.*]] = poplar.reshape %x : !poplar.tensor<1x8x6xf32> -> !poplar.tensor<1x8x1x6xf32>
// CHECK: [[W:%.*]] = poplar.reshape %w : !poplar.tensor<8x1x3xf32> -> !poplar.tensor<8x1x1x3xf32>
// CHECK: poplar.family @conv for (b = 1, g = 8 in 8, oc = 1{{.*}}, ic = 1{{.*}}, o0 = 4{{.*}}, k0 = 3)
// CHECK:   in x = [[X]][b, g, ic, o0 + k0]
// CHECK:   in w = [[W]][g, oc, ic, k0]
