// RUN: populus run %s --level popart
// RUN: populus run %s --level popops
// RUN: populus run %s --target gc200 --tiles 4
// RUN: populus run %s --target gc200 --tiles 4 --engine strict

// Padding is never the largest, and does not count in a mean.
func.func @main() {
  %x = data.constant dense<[[[-4.0, -2.0, -3.0, -1.0]]]> : tensor<1x1x4xf32>
  %max = popart.max_pool %x {kernel = array<i64: 2>, strides = array<i64: 2>, pads = array<i64: 1, 1>, dilations = array<i64: 1>} : (tensor<1x1x4xf32>) -> tensor<1x1x3xf32>
  check.close %max, dense<[[[-4.0, -2.0, -1.0]]]> : tensor<1x1x3xf32>
  %mean = popart.average_pool %x {kernel = array<i64: 2>, strides = array<i64: 2>, pads = array<i64: 1, 1>, dilations = array<i64: 1>} : (tensor<1x1x4xf32>) -> tensor<1x1x3xf32>
  check.close %mean, dense<[[[-4.0, -2.5, -1.0]]]> : tensor<1x1x3xf32>
  func.return
}
