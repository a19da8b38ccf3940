// RUN: not populus-opt %s 2>&1 | filecheck %s

// Library calls count dimensions from the front.
// CHECK: concat_invalid.mlir:6:3: popops.concat: there is no dimension -1 of 2, counted from the front
func.func @main(%x: tensor<4x5xf32>) -> tensor<4x10xf32> {
  %y = popops.concat %x, %x {dim = -1 : i64} : (tensor<4x5xf32>, tensor<4x5xf32>) -> tensor<4x10xf32>
  func.return %y : tensor<4x10xf32>
}
