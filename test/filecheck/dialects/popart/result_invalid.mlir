// RUN: not populus-opt %s 2>&1 | filecheck %s

// CHECK: result_invalid.mlir:5:3: popart.reduce_sum: the result is tensor<2x1xf32>; operands and attributes give tensor<2xf32>
func.func @main(%x: tensor<2x3xf32>) {
  %y = popart.reduce_sum %x {axes = array<i64: 1>} : (tensor<2x3xf32>) -> tensor<2x1xf32>
  func.return
}
