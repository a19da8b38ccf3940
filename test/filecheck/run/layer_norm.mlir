// RUN: populus run %s --level popart
// RUN: populus run %s --level popops
// RUN: populus run %s --target gc200 --tiles 4
// RUN: populus run %s --target gc200 --tiles 4 --engine strict

// [1, 3] is one deviation below and above its mean of 2; scale 2, bias 10.
func.func @main() {
  %x = data.constant dense<[[1.0, 3.0], [-5.0, 5.0]]> : tensor<2x2xf32>
  %s = data.constant dense<2.0> : tensor<2xf32>
  %b = data.constant dense<10.0> : tensor<2xf32>
  %y = popart.layer_norm %x, %s, %b {axis = 1 : i64, epsilon = 0.000000e+00 : f32} : (tensor<2x2xf32>, tensor<2xf32>, tensor<2xf32>) -> tensor<2x2xf32>
  check.close %y, dense<[[8.0, 12.0], [8.0, 12.0]]> : tensor<2x2xf32>
  func.return
}
