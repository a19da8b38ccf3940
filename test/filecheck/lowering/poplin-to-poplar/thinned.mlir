// RUN: populus-opt %s -p "poplin-to-poplar{target=gc200 tiles=4}" | filecheck %s

// A kernel of one element with stride 2 reads every second element: the others do not move.
func.func @main(%x : tensor<1x8x7x7xf32>, %w : tensor<8x8x1x1xf32>) -> tensor<1x8x4x4xf32> {
  %y = poplin.convolution %x, %w {strides = array<i64: 2, 2>, pads = array<i64: 0, 0, 0, 0>, dilations = array<i64: 1, 1>, groups = 1 : i64} : (tensor<1x8x7x7xf32>, tensor<8x8x1x1xf32>) -> tensor<1x8x4x4xf32>
  func.return %y : tensor<1x8x4x4xf32>
}

// CHECK: [[X:%.*]] = poplar.slice %x[0:1, 0:8, 0:7:2, 0:7:2] : !poplar.tensor<1x8x7x7xf32> -> !poplar.tensor<1x8x4x4xf32>
// CHECK: poplar.family @conv for
// CHECK:   in x = [[X]][b, ic, o0 + k0, o1 + k1]
