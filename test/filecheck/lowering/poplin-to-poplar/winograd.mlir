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

// A dilated one is two, of even and of odd rows of outputs, which read odd and even rows of inputs.
func.func @main(%x : tensor<1x64x28x28xf32>) -> tensor<1x64x26x28xf32> {
  %w = data.constant dense<1.0> : tensor<64x64x3x3xf32>
  %y = poplin.convolution %x, %w {strides = array<i64: 1, 1>, pads = array<i64: 1, 1, 1, 1>, dilations = array<i64: 2, 1>, groups = 1 : i64} : (tensor<1x64x28x28xf32>, tensor<64x64x3x3xf32>) -> tensor<1x64x26x28xf32>
  func.return %y : tensor<1x64x26x28xf32>
}

// CHECK:      %[[ODD:.*]] = poplar.slice %{{.*}}[0:1, 0:64, 1:28:2, 0:28]
// CHECK-NEXT: %[[TO_EVEN:.*]] = poplar.slice %[[Y:.*]][0:1, 0:64, 0:26:2, 0:28]
// CHECK:      poplar.family @winograd {tile = 2 : i64} for (b = 1{{.*}}, oc = 64{{.*}}, ic = 64{{.*}}, o0 = 13{{.*}}, o1 = 28
// CHECK-NEXT: in x = %[[ODD]][b, ic, o0 + k0 - 1, o1 + k1 - 1]
// CHECK:      out y = %[[TO_EVEN]][b, oc, o0, o1]
// CHECK:      %[[EVEN:.*]] = poplar.slice %{{.*}}[0:1, 0:64, 0:28:2, 0:28]
// CHECK-NEXT: %[[TO_ODD:.*]] = poplar.slice %[[Y]][0:1, 0:64, 1:26:2, 0:28]
// CHECK:      in x = %[[EVEN]][b, ic, o0 + k0, o1 + k1 - 1]
// CHECK:      out y = %[[TO_ODD]][b, oc, o0, o1]
// FOUR:       poplar.family @winograd {tile = 2 : i64}
// DIRECT:     poplar.family @conv

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
