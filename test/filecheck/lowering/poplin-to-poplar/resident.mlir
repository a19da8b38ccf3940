// RUN: populus-opt %s -p "poplin-to-poplar{target=gc200 tiles=64},poplar-map" --split-input-file | filecheck %s
// RUN: populus-opt %s -p "poplin-to-poplar{target=gc200 tiles=64 resident=0.0},poplar-map" --split-input-file | filecheck %s --check-prefix OFF

// Constant weights lie on each tile that reads them: the cuts of the rows are copies of them. They stream through the
// units, so their columns are cut between vectors.
// CHECK: poplar.const {{.*}} on [1, 64, 64 in 2 by 2] order [32 copies, 2]
// CHECK: @matmul {swapped = true} for (k = 64 by 8, g = 1, m = 256 in 32, n = 64 in 2 by 2) on (m, n)
// OFF: poplar.const
// OFF-NOT: copies
func.func @main(%a : tensor<1x256x64xf32>) -> tensor<1x256x64xf32> {
  %b = data.constant dense<2.0> : tensor<1x64x64xf32>
  %c = poplin.matmul %a, %b : (tensor<1x256x64xf32>, tensor<1x64x64xf32>) -> tensor<1x256x64xf32>
  func.return %c : tensor<1x256x64xf32>
}

// -----

// Products that differ in their rows alone share them, and have one plan.
// CHECK: poplar.const {{.*}} on [1, 64, 64 in 2 by 2] order [32 copies, 2]
// CHECK: @matmul {swapped = true} for (k = 64 by 8, g = 1, m = 256 in 32, n = 64 in 2 by 2) on (m, n)
// CHECK: @matmul {swapped = true} for (k = 64 by 8, g = 1, m = 128 in 32, n = 64 in 2 by 2) on (m, n)
func.func @main(%a : tensor<1x256x64xf32>, %a2 : tensor<1x128x64xf32>) -> (tensor<1x256x64xf32>, tensor<1x128x64xf32>) {
  %b = data.constant dense<2.0> : tensor<1x64x64xf32>
  %c = poplin.matmul %a, %b : (tensor<1x256x64xf32>, tensor<1x64x64xf32>) -> tensor<1x256x64xf32>
  %d = poplin.matmul %a2, %b : (tensor<1x128x64xf32>, tensor<1x64x64xf32>) -> tensor<1x128x64xf32>
  func.return %c, %d : tensor<1x256x64xf32>, tensor<1x128x64xf32>
}

// -----

// Not where another step reads them,
// CHECK: poplar.const
// CHECK-NOT: copies
func.func @main(%a : tensor<1x256x64xf32>) -> (tensor<1x256x64xf32>, tensor<1x64x64xf32>) {
  %b = data.constant dense<2.0> : tensor<1x64x64xf32>
  %c = poplin.matmul %a, %b : (tensor<1x256x64xf32>, tensor<1x64x64xf32>) -> tensor<1x256x64xf32>
  %d = poplin.matmul %b, %b : (tensor<1x64x64xf32>, tensor<1x64x64xf32>) -> tensor<1x64x64xf32>
  func.return %c, %d : tensor<1x256x64xf32>, tensor<1x64x64xf32>
}

// -----

// nor where the program may write them,
// CHECK: poplar.var "b"
// CHECK-NOT: copies
func.func @main(%a : tensor<1x256x64xf32>, %b : tensor<1x64x64xf32>) -> tensor<1x256x64xf32> {
  %c = poplin.matmul %a, %b : (tensor<1x256x64xf32>, tensor<1x64x64xf32>) -> tensor<1x256x64xf32>
  func.return %c : tensor<1x256x64xf32>
}
