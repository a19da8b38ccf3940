// RUN: populus run %s --level popart
// RUN: populus run %s --level popops
// RUN: populus run %s --target gc200 --tiles 4
// RUN: populus run %s --target gc200 --tiles 4 --engine strict

// A 2x2 kernel of ones adds four neighbours; with a pad of one behind, fewer at the edges.
func.func @main() {
  %x = data.constant dense<[[[[1.0, 2.0, 3.0], [4.0, 5.0, 6.0], [7.0, 8.0, 9.0]]]]> : tensor<1x1x3x3xf32>
  %w = data.constant dense<1.0> : tensor<1x1x2x2xf32>
  %b = data.constant dense<0.5> : tensor<1xf32>
  %y = popart.conv %x, %w, %b {strides = array<i64: 1, 1>, pads = array<i64: 0, 0, 1, 1>, dilations = array<i64: 1, 1>, group = 1 : i64} : (tensor<1x1x3x3xf32>, tensor<1x1x2x2xf32>, tensor<1xf32>) -> tensor<1x1x3x3xf32>
  check.close %y, dense<[[[[12.5, 16.5, 9.5], [24.5, 28.5, 15.5], [15.5, 17.5, 9.5]]]]> : tensor<1x1x3x3xf32>
  func.return
}
