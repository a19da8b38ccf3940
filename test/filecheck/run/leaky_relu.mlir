// RUN: populus run %s --level popart
// RUN: populus run %s --level popops
// RUN: populus run %s --target gc200 --tiles 4
// RUN: populus run %s --target gc200 --tiles 4 --engine strict

// The slope is alpha below zero; zero itself is not below.
func.func @main() {
  %x = data.constant dense<[-2.0, -0.5, 0.0, 3.0]> : tensor<4xf32>
  %y = popart.leaky_relu %x {alpha = 5.000000e-01 : f32} : tensor<4xf32>
  check.close %y, dense<[-1.0, -0.25, 0.0, 3.0]> : tensor<4xf32>
  func.return
}
