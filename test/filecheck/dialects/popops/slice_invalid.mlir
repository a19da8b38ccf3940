// RUN: not populus-opt %s 2>&1 | filecheck %s

// CHECK: slice_invalid.mlir:5:3: popops.slice: 3 begins, 2 ends and 2 steps for the 2 dimensions of 4x5
func.func @main(%x: tensor<4x5xf32>) -> tensor<2x2xf32> {
  %y = popops.slice %x {begins = array<i64: 0, 0, 9>, ends = array<i64: 2, 2>, steps = array<i64: 1, 1>} : (tensor<4x5xf32>) -> tensor<2x2xf32>
  func.return %y : tensor<2x2xf32>
}
