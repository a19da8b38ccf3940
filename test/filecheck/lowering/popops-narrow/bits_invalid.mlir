// RUN: not populus-opt %s -p "popops-narrow{target=gc200}" 2>&1 | filecheck %s
// RUN: populus-opt %s -p "popops-narrow" | filecheck %s --check-prefix HOST

// CHECK: bits of elements are taken, which narrower types do not have: bits(_1, i64)
// HOST: bits(_1, i64)
func.func @main(%x : tensor<2xf64>) -> tensor<2xi64> {
  %y = popops.map <bits(_1, i64)>(%x) : (tensor<2xf64>) -> tensor<2xi64>
  func.return %y : tensor<2xi64>
}
