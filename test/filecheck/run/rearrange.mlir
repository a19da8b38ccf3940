// RUN: populus run %s --level popart
// RUN: populus run %s --level popops
// RUN: populus run %s --target gc200 --tiles 4
// RUN: populus run %s --target gc200 --tiles 4 --engine strict

// Transposed, cut, put together, padded, and picked by index: elements only move.
func.func @main() {
  %x = data.constant dense<[[1, 2, 3], [4, 5, 6]]> : tensor<2x3xi32>
  %t = popart.transpose %x {permutation = array<i64: 1, 0>} : (tensor<2x3xi32>) -> tensor<3x2xi32>
  check.close %t, dense<[[1, 4], [2, 5], [3, 6]]> : tensor<3x2xi32>
  %v = popart.reshape %t {shape = array<i64: 6>} : (tensor<3x2xi32>) -> tensor<6xi32>
  check.close %v, dense<[1, 4, 2, 5, 3, 6]> : tensor<6xi32>
  %back = popart.slice %v {begins = array<i64: 4>, ends = array<i64: -1>, steps = array<i64: -2>} : (tensor<6xi32>) -> tensor<3xi32>
  check.close %back, dense<[3, 2, 1]> : tensor<3xi32>
  %both = popart.concat %back, %v {axis = 0 : i64} : (tensor<3xi32>, tensor<6xi32>) -> tensor<9xi32>
  check.close %both, dense<[3, 2, 1, 1, 4, 2, 5, 3, 6]> : tensor<9xi32>
  %i = data.constant dense<[-1, 0]> : tensor<2xi64>
  %picked = popart.gather %x, %i {axis = 1 : i64} : (tensor<2x3xi32>, tensor<2xi64>) -> tensor<2x2xi32>
  check.close %picked, dense<[[3, 1], [6, 4]]> : tensor<2x2xi32>
  func.return
}
