// RUN: populus-opt %s -p "popart-encode{weights=bfp4 target=n150}" --split-input-file | filecheck %s
// RUN: populus-opt %s -p "popart-encode{weights=bfp4 target=n150},popart-to-popops,popops-fuse,poplin-to-poplar{target=n150}" --split-input-file | filecheck %s --check-prefix TILES
// RUN: not populus-opt %s -p "popart-encode{weights=bfp4 target=gc200}" --split-input-file 2>&1 | filecheck %s --check-prefix LACKS

// LACKS: weight_format = bfp4: target gc200 has no such format; n150, p150 have it

// Magnitudes of 3 bits in units of 2: 4.5, 2.5 and 1.5 are ties, and go to 4, 2 and 2. -0.25 is 0, without a sign.
func.func @main(%x : tensor<2x1xf32>) -> tensor<2x4xf32> {
  %w = data.constant dense<[[9.0, 5.0, 3.0, -0.5]]> : tensor<1x4xf32>
  %y = popart.matmul %x, %w : (tensor<2x1xf32>, tensor<1x4xf32>) -> tensor<2x4xf32>
  func.return %y : tensor<2x4xf32>
}
// CHECK: data.constant dense<{{\[\[}}8.000000e+00, 4.000000e+00, 4.000000e+00, 0.000000e+00]]> : tensor<1x4xf32, #data.block<bfp4, 1>>
// TILES: poplar.const {{.*}} : !poplar.tensor<1x1x4xf32, bfp4>
// TILES: in b = {{.*}} : !poplar.tensor<1x1x4xf32, bfp4>

// -----

// A transposed matrix has its blocks down the columns.
func.func @main(%x : tensor<2x3xf32>) -> tensor<2x4xf32> {
  %w = data.constant dense<[[1.0, 2.0, 3.0], [4.0, 5.0, 6.0], [7.0, 8.0, 9.0], [10.0, 11.0, 12.0]]> : tensor<4x3xf32>
  %y = popart.gemm %x, %w {trans_b = true} : (tensor<2x3xf32>, tensor<4x3xf32>) -> tensor<2x4xf32>
  func.return %y : tensor<2x4xf32>
}
// CHECK: data.constant {{.*}} : tensor<4x3xf32, #data.block<bfp4, 0>>

// -----

// A constant that anything but a product reads stays.
func.func @main(%x : tensor<2x2xf32>) -> tensor<2x2xf32> {
  %w = data.constant dense<[[1.0, 2.0], [3.0, 4.0]]> : tensor<2x2xf32>
  %p = popart.matmul %x, %w : (tensor<2x2xf32>, tensor<2x2xf32>) -> tensor<2x2xf32>
  %y = popart.add %p, %w : (tensor<2x2xf32>, tensor<2x2xf32>) -> tensor<2x2xf32>
  func.return %y : tensor<2x2xf32>
}
// CHECK: data.constant dense<{{\[\[}}1.000000e+00, 2.000000e+00], [3.000000e+00, 4.000000e+00]]> : tensor<2x2xf32>
