// RUN: populus-opt %s -p "popart-fuse{patterns=ViewSimplify,TransposeToIdentityOrReshape,OpToIdentity}" --split-input-file | filecheck %s

// Reshapes and transposes of each other are one; the first one is read elsewhere too, so it stays.
func.func @main(%x : tensor<2x3xf32>) -> (tensor<6x1xf32>, tensor<2x3xf32>, tensor<6xf32>) {
  %a = popart.reshape %x {shape = array<i64: 6>} : (tensor<2x3xf32>) -> tensor<6xf32>
  %b = popart.reshape %a {shape = array<i64: 6, 1>} : (tensor<6xf32>) -> tensor<6x1xf32>
  %c = popart.transpose %x {permutation = array<i64: 1, 0>} : (tensor<2x3xf32>) -> tensor<3x2xf32>
  %d = popart.transpose %c {permutation = array<i64: 1, 0>} : (tensor<3x2xf32>) -> tensor<2x3xf32>
  func.return %b, %d, %a : tensor<6x1xf32>, tensor<2x3xf32>, tensor<6xf32>
}

// CHECK:      %a = popart.reshape %x
// CHECK-NEXT: %b = popart.reshape %x
// CHECK-NEXT: func.return %b, %x, %a

// -----

// Dimension i of the result is dimension q[p[i]] of x. A transpose that moves only a 1 is a reshape.
func.func @main(%x : tensor<2x3x4xf32>, %z : tensor<1x3x4xf32>) -> (tensor<4x2x3xf32>, tensor<3x1x4xf32>) {
  %a = popart.transpose %x {permutation = array<i64: 1, 2, 0>} : (tensor<2x3x4xf32>) -> tensor<3x4x2xf32>
  %b = popart.transpose %a {permutation = array<i64: 1, 2, 0>} : (tensor<3x4x2xf32>) -> tensor<4x2x3xf32>
  %c = popart.transpose %z {permutation = array<i64: 1, 0, 2>} : (tensor<1x3x4xf32>) -> tensor<3x1x4xf32>
  func.return %b, %c : tensor<4x2x3xf32>, tensor<3x1x4xf32>
}

// CHECK: popart.transpose %x {permutation = array<i64: 2, 0, 1>}
// CHECK: popart.reshape %z {shape = array<i64: 3, 1, 4>}

// -----

// A reshape of a transpose is neither.
func.func @main(%x : tensor<2x3xf32>) -> tensor<6xf32> {
  %a = popart.transpose %x {permutation = array<i64: 1, 0>} : (tensor<2x3xf32>) -> tensor<3x2xf32>
  %b = popart.reshape %a {shape = array<i64: 6>} : (tensor<3x2xf32>) -> tensor<6xf32>
  func.return %b : tensor<6xf32>
}

// CHECK: popart.transpose
// CHECK: popart.reshape

// -----

// Of three dimensions, the order of two permutations matters.
func.func @main(%x : tensor<2x3x4xf32>) -> tensor<3x2x4xf32> {
  %a = popart.transpose %x {permutation = array<i64: 1, 2, 0>} : (tensor<2x3x4xf32>) -> tensor<3x4x2xf32>
  %b = popart.transpose %a {permutation = array<i64: 0, 2, 1>} : (tensor<3x4x2xf32>) -> tensor<3x2x4xf32>
  func.return %b : tensor<3x2x4xf32>
}

// CHECK:      %b = popart.transpose %x {permutation = array<i64: 1, 0, 2>}
// CHECK-NEXT: func.return %b
