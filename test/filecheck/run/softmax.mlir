// RUN: populus run %s --level popart
// RUN: populus run %s --level popops
// RUN: populus run %s --target gc200 --tiles 4
// RUN: populus run %s --target gc200 --tiles 4 --engine strict

// Equal logits share alike, however large; minus infinity gets nothing.
func.func @main() {
  %x = data.constant dense<[[1000.0, 1000.0, -1.0e30, 1000.0]]> : tensor<1x4xf32>
  %y = popart.softmax %x {axis = 1 : i64} : (tensor<1x4xf32>) -> tensor<1x4xf32>
  check.close %y, dense<[[0.33333333, 0.33333333, 0.0, 0.33333333]]> : tensor<1x4xf32>
  func.return
}
