// RUN: populus-opt %s --split-input-file --verify-diagnostics | filecheck %s
// Each part is read by itself; what is wrong in one is named with its line in the whole file, and the others go on.

// CHECK: func.func @first
func.func @first() {
  func.return
}

// -----

// CHECK: split.mlir:[[# @LINE + 1]]:1: data.constant: the value is tensor<f32>, the result tensor<2xf32>
%k = "data.constant"() <{value = dense<1.0> : tensor<f32>}> : () -> tensor<2xf32>

// -----

// CHECK: split.mlir:[[# @LINE + 1]]:1: there is no op 'data.nothing'
data.nothing

// -----

// CHECK: func.func @last
func.func @last() {
  func.return
}
