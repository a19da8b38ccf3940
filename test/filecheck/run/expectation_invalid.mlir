// RUN: not populus run %s --level popart 2>&1 | filecheck %s
// RUN: not populus run %s --tiles 2 2>&1 | filecheck %s

// A check can fail, at every level.
func.func @main() {
  %x = data.constant dense<[1.0, 2.0]> : tensor<2xf32>
  %y = popart.exp %x : tensor<2xf32>
  // CHECK: check.close: 7.389{{.*}} was found at [1], 2.0 is expected within 1e-06 + 1e-05 of it; 1 of 2 elements differ
  check.close %y, dense<[2.7182817, 2.0]> : tensor<2xf32>
  func.return
}
