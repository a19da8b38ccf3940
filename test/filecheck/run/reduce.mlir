// RUN: populus run %s --level popart
// RUN: populus run %s --level popops
// RUN: populus run %s --target gc200 --tiles 4
// RUN: populus run %s --target gc200 --tiles 4 --engine strict

func.func @main() {
  %x = data.constant dense<[[1.0, 2.0, 3.0], [4.0, 5.0, 9.0]]> : tensor<2x3xf32>
  %mean = popart.reduce_mean %x {axes = array<i64: 1>, keep = true} : (tensor<2x3xf32>) -> tensor<2x1xf32>
  check.close %mean, dense<[[2.0], [6.0]]> : tensor<2x1xf32>
  %most = popart.reduce_max %x {axes = array<i64: 0>, keep = false} : (tensor<2x3xf32>) -> tensor<3xf32>
  check.close %most, dense<[4.0, 5.0, 9.0]> : tensor<3xf32>
  func.return
}
