// RUN: not populus-opt %s 2>&1 | filecheck %s

// CHECK: reduce_invalid.mlir:5:3: popops.reduce: 'sum' is not one of add, mul
func.func @main(%x: tensor<2xf32>) {
  %y = popops.reduce %x {op = "sum", dims = array<i64: 0>} : (tensor<2xf32>) -> tensor<f32>
  func.return
}
