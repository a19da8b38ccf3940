// RUN: populus-opt %s -p "popops-to-poplar{target=gc200 tiles=4}" --split-input-file | filecheck %s

// The parts of a concatenation are made where they are wanted: no copy.
func.func @main(%a : tensor<2x3xf32>, %b : tensor<2x5xf32>) -> tensor<2x8xf32> {
  %x = popops.map <exp(_1)>(%a) : (tensor<2x3xf32>) -> tensor<2x3xf32>
  %y = popops.map <log(_1)>(%b) : (tensor<2x5xf32>) -> tensor<2x5xf32>
  %c = popops.concat %x, %y {dim = 1 : i64} : (tensor<2x3xf32>, tensor<2x5xf32>) -> tensor<2x8xf32>
  func.return %c : tensor<2x8xf32>
}

// CHECK-NOT: poplar.copy
// CHECK:     [[C:%.*]] = poplar.var {{.*}} : !poplar.tensor<2x8xf32>
// CHECK:     [[X:%.*]] = poplar.slice [[C]][0:2, 0:3]
// CHECK:     out y = [[X]][d0, d1]
// CHECK:     [[Y:%.*]] = poplar.slice [[C]][0:2, 3:8]
// CHECK:     out y = [[Y]][d0, d1]

// -----

// One value in two concatenations has one home; the second holds a copy.
func.func @main(%a : tensor<4xf32>) -> (tensor<8xf32>, tensor<8xf32>) {
  %x = popops.map <exp(_1)>(%a) : (tensor<4xf32>) -> tensor<4xf32>
  %c = popops.concat %x, %a {dim = 0 : i64} : (tensor<4xf32>, tensor<4xf32>) -> tensor<8xf32>
  %d = popops.concat %a, %x {dim = 0 : i64} : (tensor<4xf32>, tensor<4xf32>) -> tensor<8xf32>
  func.return %c, %d : tensor<8xf32>, tensor<8xf32>
}

// CHECK-COUNT-3: poplar.copy
// CHECK-NOT:     poplar.copy

// -----

// No strides show a transposed matrix as a vector, so the map writes its result transposed.
func.func @main(%a : tensor<2x3xf32>) -> tensor<6xf32> {
  %x = popops.map <exp(_1)>(%a) : (tensor<2x3xf32>) -> tensor<2x3xf32>
  %t = popops.dim_shuffle %x {permutation = array<i64: 1, 0>} : (tensor<2x3xf32>) -> tensor<3x2xf32>
  %v = popops.reshape %t {shape = array<i64: 6>} : (tensor<3x2xf32>) -> tensor<6xf32>
  func.return %v : tensor<6xf32>
}

// CHECK-NOT: poplar.copy
// CHECK:     [[V:%.*]] = poplar.var {{.*}} : !poplar.tensor<6xf32>
// CHECK:     [[M:%.*]] = poplar.reshape [[V]] : !poplar.tensor<6xf32> -> !poplar.tensor<3x2xf32>
// CHECK:     [[X:%.*]] = poplar.dim_shuffle [[M]] [1, 0]
// CHECK:     out y = [[X]][d0, d1]
// CHECK:     poplar.stream_out [[V]]

// -----

// The same of an input, which stays as the host gave it: a copy.
func.func @main(%a : tensor<2x3xf32>) -> tensor<6xf32> {
  %t = popops.dim_shuffle %a {permutation = array<i64: 1, 0>} : (tensor<2x3xf32>) -> tensor<3x2xf32>
  %v = popops.reshape %t {shape = array<i64: 6>} : (tensor<3x2xf32>) -> tensor<6xf32>
  func.return %v : tensor<6xf32>
}

// CHECK: poplar.copy

// -----

func.func @main(%x : tensor<2xf32>) -> tensor<5xf32> {
  %zero = data.constant dense<0.0> : tensor<f32>
  %y = popops.pad %x, %zero {lower = array<i64: 1>, upper = array<i64: 1>, interior = array<i64: 1>} : (tensor<2xf32>, tensor<f32>) -> tensor<5xf32>
  func.return %y : tensor<5xf32>
}

// CHECK: poplar.family @fill {value = 0.000000e+00 : f32}
// CHECK: poplar.slice {{.*}}[1:4:2]
// CHECK: poplar.copy

// -----

// Parts of one shape and one layout keep it: the result shows a variable with a whole dimension of parts.
func.func @main(%a : tensor<2x8xf32>, %b : tensor<2x8xf32>) -> tensor<2x16xf32> {
  %x = popops.map <exp(_1)>(%a) : (tensor<2x8xf32>) -> tensor<2x8xf32>
  %y = popops.map <log(_1)>(%b) : (tensor<2x8xf32>) -> tensor<2x8xf32>
  %c = popops.concat %x, %y {dim = 1 : i64} : (tensor<2x8xf32>, tensor<2x8xf32>) -> tensor<2x16xf32>
  func.return %c : tensor<2x16xf32>
}

// CHECK-NOT: poplar.copy
// CHECK:     [[C:%.*]] = poplar.var {{.*}} on [2 in 2, 2, 8 in 2 by 2] order [0, 2] : !poplar.tensor<2x2x8xf32>
// CHECK:     poplar.slice [[C]][0:2, 0:1, 0:8]
// CHECK:     poplar.slice [[C]][0:2, 1:2, 0:8]
// CHECK-NOT: poplar.copy
// CHECK:     poplar.reshape [[C]] : !poplar.tensor<2x2x8xf32> -> !poplar.tensor<2x16xf32>
