// RUN: populus-opt %s -p "poplin-to-poplar{target=host tiles=4}" --split-input-file | filecheck %s
// RUN: populus-opt %s -p "poplin-to-poplar{target=host tiles=4 winograd=4}" --split-input-file | filecheck %s --check-prefix=FOUR
// RUN: populus-opt %s -p "poplin-to-poplar{target=host tiles=4 winograd=0}" --split-input-file | filecheck %s --check-prefix=DIRECT

// A 3x3 convolution by a constant: rows of outputs are cut at multiples of the tile, and sums are whole.
func.func @main(%x : tensor<1x64x28x28xf32>) -> tensor<1x64x28x28xf32> {
  %w = data.constant dense<1.0> : tensor<64x64x3x3xf32>
  %y = poplin.convolution %x, %w {strides = array<i64: 1, 1>, pads = array<i64: 1, 1, 1, 1>, dilations = array<i64: 1, 1>, groups = 1 : i64} : (tensor<1x64x28x28xf32>, tensor<64x64x3x3xf32>) -> tensor<1x64x28x28xf32>
  func.return %y : tensor<1x64x28x28xf32>
}

// CHECK: poplar.family @winograd {tile = 2 : i64} for (b = 1{{.*}}, oc = 64{{.*}}, ic = 64{{.*}}, o0 = 28{{.*}}, o1 = 28{{.*}}, k0 = 3, k1 = 3)
// FOUR: poplar.family @winograd {tile = 4 : i64}
// DIRECT: poplar.family @conv

// -----

// Strides and weights that are no constant stay direct.
func.func @main(%x : tensor<1x64x28x28xf32>, %v : tensor<64x64x3x3xf32>) -> (tensor<1x64x14x14xf32>, tensor<1x64x28x28xf32>) {
  %w = data.constant dense<1.0> : tensor<64x64x3x3xf32>
  %y = poplin.convolution %x, %w {strides = array<i64: 2, 2>, pads = array<i64: 1, 1, 1, 1>, dilations = array<i64: 1, 1>, groups = 1 : i64} : (tensor<1x64x28x28xf32>, tensor<64x64x3x3xf32>) -> tensor<1x64x14x14xf32>
  %z = poplin.convolution %x, %v {strides = array<i64: 1, 1>, pads = array<i64: 1, 1, 1, 1>, dilations = array<i64: 1, 1>, groups = 1 : i64} : (tensor<1x64x28x28xf32>, tensor<64x64x3x3xf32>) -> tensor<1x64x28x28xf32>
  func.return %y, %z : tensor<1x64x14x14xf32>, tensor<1x64x28x28xf32>
}

// CHECK: poplar.family @conv
// CHECK: poplar.family @conv
