// RUN: populus run %s --level popart
// RUN: populus run %s --level popops
// RUN: populus run %s --target gc200 --tiles 4
// RUN: populus run %s --target gc200 --tiles 4 --engine strict
// RUN: populus run %s --target gc200 --tiles 4 --engine native

// A function of x, w gives relu(x w) and its transpose; the second call's argument is the first's second result, seen transposed.
func.func @main() {
  %x = data.constant dense<[[1.0, -2.0], [3.0, 4.0]]> : tensor<2x2xf32>
  %w1 = data.constant dense<[[1.0, 0.0], [0.0, 2.0]]> : tensor<2x2xf32>
  %w2 = data.constant dense<[[0.0, 1.0], [-1.0, 0.0]]> : tensor<2x2xf32>
  %y1, %t1 = func.call @layer(%x, %w1) : (tensor<2x2xf32>, tensor<2x2xf32>) -> (tensor<2x2xf32>, tensor<2x2xf32>)
  check.close %y1, dense<[[1.0, 0.0], [3.0, 8.0]]> : tensor<2x2xf32>
  check.close %t1, dense<[[1.0, 3.0], [0.0, 8.0]]> : tensor<2x2xf32>
  %s = popart.transpose %t1 {permutation = array<i64: 1, 0>} : (tensor<2x2xf32>) -> tensor<2x2xf32>
  %y2, %t2 = func.call @layer(%s, %w2) : (tensor<2x2xf32>, tensor<2x2xf32>) -> (tensor<2x2xf32>, tensor<2x2xf32>)
  check.close %y1, dense<[[1.0, 0.0], [3.0, 8.0]]> : tensor<2x2xf32>
  check.close %y2, dense<[[0.0, 1.0], [0.0, 3.0]]> : tensor<2x2xf32>
  check.close %t2, dense<[[0.0, 0.0], [1.0, 3.0]]> : tensor<2x2xf32>
  func.return
}

func.func private @layer(%x: tensor<2x2xf32>, %w: tensor<2x2xf32>) -> (tensor<2x2xf32>, tensor<2x2xf32>) {
  %m = popart.matmul %x, %w : (tensor<2x2xf32>, tensor<2x2xf32>) -> tensor<2x2xf32>
  %y = func.call @positive(%m) : (tensor<2x2xf32>) -> tensor<2x2xf32>
  %t = popart.transpose %y {permutation = array<i64: 1, 0>} : (tensor<2x2xf32>) -> tensor<2x2xf32>
  func.return %y, %t : tensor<2x2xf32>, tensor<2x2xf32>
}

func.func private @positive(%x: tensor<2x2xf32>) -> tensor<2x2xf32> {
  %y = popart.relu %x : tensor<2x2xf32>
  func.return %y : tensor<2x2xf32>
}
