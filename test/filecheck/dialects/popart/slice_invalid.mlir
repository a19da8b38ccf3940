// RUN: not populus-opt %s 2>&1 | filecheck %s

// CHECK: slice_invalid.mlir:5:3: popart.slice: [0:5:1] leaves a dimension of 4
func.func @main(%x: tensor<4xf32>) {
  %y = popart.slice %x {begins = array<i64: 0>, ends = array<i64: 5>, steps = array<i64: 1>} : (tensor<4xf32>) -> tensor<5xf32>
  func.return
}
