// RUN: populus-opt %s -p "popart-fuse{patterns=TransposeThroughElementwise,FoldConstants}" --split-input-file | filecheck %s

// Channels last and back: what is done between is done as they were; the constant is turned too, the scalar is not.
func.func @main(%x : tensor<1x2x3xf32>) -> tensor<1x2x3xf32> {
  %k = data.constant dense<[1.0, 2.0]> : tensor<2xf32>
  %half = data.constant dense<0.5> : tensor<f32>
  %a = popart.transpose %x {permutation = array<i64: 0, 2, 1>} : (tensor<1x2x3xf32>) -> tensor<1x3x2xf32> loc("last")
  %b = popart.add %a, %k : (tensor<1x3x2xf32>, tensor<2xf32>) -> tensor<1x3x2xf32> loc("add")
  %c = popart.mul %b, %half : (tensor<1x3x2xf32>, tensor<f32>) -> tensor<1x3x2xf32>
  %d = popart.relu %c : tensor<1x3x2xf32>
  %y = popart.transpose %d {permutation = array<i64: 0, 2, 1>} : (tensor<1x3x2xf32>) -> tensor<1x2x3xf32>
  func.return %y : tensor<1x2x3xf32>
}

// CHECK-DAG:  %[[K:.*]] = data.constant dense<{{.*}}> : tensor<1x2x1xf32>
// CHECK-DAG:  %half = data.constant
// CHECK:      %[[A:.*]] = popart.add %x, %[[K]] : (tensor<1x2x3xf32>, tensor<1x2x1xf32>) -> tensor<1x2x3xf32>
// CHECK-NEXT: %[[M:.*]] = popart.mul %[[A]], %half
// CHECK-NEXT: %[[R:.*]] = popart.relu %[[M]]
// CHECK-NEXT: func.return %[[R]]

// -----

// What is between has another reader, is returned, or has an operand that would have to be turned: nothing moves.
func.func @main(%x : tensor<2x3xf32>, %z : tensor<3x2xf32>) -> (tensor<2x3xf32>, tensor<3x2xf32>, tensor<2x3xf32>) {
  %a = popart.transpose %x {permutation = array<i64: 1, 0>} : (tensor<2x3xf32>) -> tensor<3x2xf32>
  %b = popart.relu %a : tensor<3x2xf32>
  %c = popart.transpose %b {permutation = array<i64: 1, 0>} : (tensor<3x2xf32>) -> tensor<2x3xf32>
  %d = popart.add %a, %z : (tensor<3x2xf32>, tensor<3x2xf32>) -> tensor<3x2xf32>
  %e = popart.transpose %d {permutation = array<i64: 1, 0>} : (tensor<3x2xf32>) -> tensor<2x3xf32>
  func.return %c, %b, %e : tensor<2x3xf32>, tensor<3x2xf32>, tensor<2x3xf32>
}

// CHECK: popart.transpose %x
// CHECK: popart.transpose %b
// CHECK: popart.transpose %d

// -----

// Two transposed operands; one of them is read elsewhere, where it stays.
func.func @main(%x : tensor<2x3xf32>, %z : tensor<2x3xf32>) -> (tensor<2x3xf32>, tensor<3x2xf32>) {
  %a = popart.transpose %x {permutation = array<i64: 1, 0>} : (tensor<2x3xf32>) -> tensor<3x2xf32>
  %b = popart.transpose %z {permutation = array<i64: 1, 0>} : (tensor<2x3xf32>) -> tensor<3x2xf32>
  %c = popart.sub %a, %b : (tensor<3x2xf32>, tensor<3x2xf32>) -> tensor<3x2xf32>
  %d = popart.transpose %c {permutation = array<i64: 1, 0>} : (tensor<3x2xf32>) -> tensor<2x3xf32>
  func.return %d, %b : tensor<2x3xf32>, tensor<3x2xf32>
}

// CHECK:      %b = popart.transpose %z
// CHECK-NEXT: popart.sub %x, %z
