// RUN: not populus-opt %s 2>&1 | filecheck %s

// CHECK: matmul_invalid.mlir:5:3: poplin.matmul: 1x2x3 times 1x2x3; [g, m, k] times [g, k, n] is expected
func.func @main(%x: tensor<1x2x3xf32>) {
  %y = poplin.matmul %x, %x : (tensor<1x2x3xf32>, tensor<1x2x3xf32>) -> tensor<1x2x3xf32>
  func.return
}
