// RUN: populus-opt %s -p "popops-to-poplar{target=gc200 tiles=4}" | filecheck %s

// The transposed result cannot make %x live elsewhere: the vector of %x has no strides there, so the result is a copy.
func.func @main(%a : tensor<2x3xf32>) -> (tensor<6xf32>, tensor<6xf32>) {
  %x = popops.map <exp(_1)>(%a) : (tensor<2x3xf32>) -> tensor<2x3xf32>
  %v = popops.reshape %x {shape = array<i64: 6>} : (tensor<2x3xf32>) -> tensor<6xf32>
  %t = popops.dim_shuffle %x {permutation = array<i64: 1, 0>} : (tensor<2x3xf32>) -> tensor<3x2xf32>
  %w = popops.reshape %t {shape = array<i64: 6>} : (tensor<3x2xf32>) -> tensor<6xf32>
  func.return %v, %w : tensor<6xf32>, tensor<6xf32>
}

// CHECK: poplar.reshape {{.*}} : !poplar.tensor<2x3xf32> -> !poplar.tensor<6xf32>
// CHECK: poplar.copy
