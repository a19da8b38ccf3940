// RUN: populus run %s --level popart
// RUN: populus run %s --level popops
// RUN: populus run %s --target gc200 --tiles 4
// RUN: populus run %s --target gc200 --tiles 4 --engine strict

// [1, 2] and [3, 4] against the unit matrix, times two.
func.func @main() {
  %a = data.constant dense<[[1.0, 2.0], [3.0, 4.0]]> : tensor<2x2xf32>
  %b = data.constant dense<[[2.0, 0.0], [0.0, 2.0]]> : tensor<2x2xf32>
  %y = popart.matmul %a, %b : (tensor<2x2xf32>, tensor<2x2xf32>) -> tensor<2x2xf32>
  check.close %y, dense<[[2.0, 4.0], [6.0, 8.0]]> : tensor<2x2xf32>
  func.return
}
