// RUN: not populus-opt %s 2>&1 | filecheck %s

// CHECK: type_invalid.mlir:5:15: operand is used with type tensor<2xf32>, but has been previously used or defined with type tensor<3xf32>
func.func @main(%x: tensor<3xf32>) {
  check.close %x, dense<0.0> : tensor<2xf32>
  func.return
}
