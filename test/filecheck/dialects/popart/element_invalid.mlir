// RUN: not populus-opt %s 2>&1 | filecheck %s

// CHECK: element_invalid.mlir:5:3: popart.tanh: tanh takes float elements, not i32
func.func @main(%n: tensor<2xi32>) {
  %y = popart.tanh %n : tensor<2xi32>
  func.return
}
