// RUN: populus run %s --level popart
// RUN: populus run %s --level popops
// RUN: populus run %s --target gc200 --tiles 4
// RUN: populus run %s --target gc200 --tiles 4 --engine strict

// A row and a column meet in a matrix.
func.func @main() {
  %row = data.constant dense<[[1.0, 2.0, 3.0]]> : tensor<1x3xf32>
  %column = data.constant dense<[[10.0], [20.0]]> : tensor<2x1xf32>
  %y = popart.add %row, %column : (tensor<1x3xf32>, tensor<2x1xf32>) -> tensor<2x3xf32>
  check.close %y, dense<[[11.0, 12.0, 13.0], [21.0, 22.0, 23.0]]> : tensor<2x3xf32>
  func.return
}
