// RUN: populus-opt %s -p "poplin-to-poplar{target=gc200 tiles=64},poplar-map" | filecheck %s

// The weights of a grouped convolution have a dimension of groups, so that each tile has its groups and channels.
// CHECK: poplar.const {{.*}} on [2 in 2, 32 in 2 by 16, 8, 1, 1] order [0, 16 copies, 1] : !poplar.tensor<2x32x8x1x1xf32>
// CHECK: in w = {{.*}}[g, oc, ic, k0, k1] : !poplar.tensor<2x32x8x1x1xf32>
func.func @main(%x : tensor<1x16x16x16xf32>) -> tensor<1x64x16x16xf32> {
  %w = data.constant dense<2.0> : tensor<64x8x1x1xf32>
  %y = poplin.convolution %x, %w {strides = array<i64: 1, 1>, pads = array<i64: 0, 0, 0, 0>, dilations = array<i64: 1, 1>, groups = 2 : i64} : (tensor<1x16x16x16xf32>, tensor<64x8x1x1xf32>) -> tensor<1x64x16x16xf32>
  func.return %y : tensor<1x64x16x16xf32>
}
