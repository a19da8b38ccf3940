// RUN: not populus-opt %s 2>&1 | filecheck %s

// CHECK: value_invalid.mlir:5:3: data.constant: {{.*}}neither dense nor stored
func.func @main() {
  %y = data.constant "text" : tensor<2xf32>
  func.return
}
