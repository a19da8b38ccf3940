// RUN: populus-opt %s -p "popart-fuse{patterns=FoldConstants}" --split-input-file | filecheck %s
// RUN: populus-opt %s -p "popart-fuse{exact=true}" --split-input-file | filecheck %s --check-prefix EXACT

// What constants alone decide is a constant; a chain of such ops too, and library calls.
func.func @main(%x : tensor<2xf32>) -> tensor<2xf32> {
  %a = data.constant dense<[1.0, 4.0]> : tensor<2xf32>
  %b = popart.sqrt %a : tensor<2xf32>
  %c = popops.map <add(_1, _2)>(%a, %b) : (tensor<2xf32>, tensor<2xf32>) -> tensor<2xf32>
  %y = popart.mul %x, %c : (tensor<2xf32>, tensor<2xf32>) -> tensor<2xf32>
  func.return %y : tensor<2xf32>
}

// CHECK:      %c = data.constant dense<[2.000000e+00, 6.000000e+00]>
// CHECK-NEXT: popart.mul %x, %c
// EXACT: popart.sqrt

// -----

// Random numbers are drawn when running; 4 MiB are computed, not stored.
func.func @main() -> (tensor<4xf32>, tensor<1048576xf32>) {
  %s = data.constant dense<[1, 2]> : tensor<2xui32>
  %r = popart.random %s {distribution = "uniform", shape = array<i64: 4>} : (tensor<2xui32>) -> tensor<4xf32>
  %x = data.constant dense<[1.0, 2.0]> : tensor<2xf32>
  %t = popart.tile %x {repeats = array<i64: 524288>} : (tensor<2xf32>) -> tensor<1048576xf32>
  func.return %r, %t : tensor<4xf32>, tensor<1048576xf32>
}

// CHECK: popart.random
// CHECK: popart.tile

// -----

// Equal elements are stored once, whatever their number.
func.func @main() -> tensor<1048576xf32> {
  %x = data.constant dense<2.0> : tensor<1xf32>
  %t = popart.expand %x {shape = array<i64: 1048576>} : (tensor<1xf32>) -> tensor<1048576xf32>
  func.return %t : tensor<1048576xf32>
}

// CHECK: data.constant dense<2.000000e+00> : tensor<1048576xf32>
