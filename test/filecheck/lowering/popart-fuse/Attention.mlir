// RUN: populus-opt %s -p "popart-fuse{patterns=Attention,TransposeToIdentityOrReshape}" --split-input-file | filecheck %s
// RUN: populus-opt %s -p "popart-fuse{without=Attention}" --split-input-file | filecheck %s --check-prefix OFF

// Scaled and masked, the keys transposed: the transposes cancel.
func.func @main(%q : tensor<2x3x4xf32>, %k : tensor<2x5x4xf32>, %v : tensor<2x5x6xf32>, %mask : tensor<3x5xf32>) -> tensor<2x3x6xf32> {
  %two = data.constant dense<2.0> : tensor<f32>
  %kt = popart.transpose %k {permutation = array<i64: 0, 2, 1>} : (tensor<2x5x4xf32>) -> tensor<2x4x5xf32>
  %s = popart.matmul %q, %kt : (tensor<2x3x4xf32>, tensor<2x4x5xf32>) -> tensor<2x3x5xf32>
  %t = popart.div %s, %two : (tensor<2x3x5xf32>, tensor<f32>) -> tensor<2x3x5xf32>
  %u = popart.add %mask, %t : (tensor<3x5xf32>, tensor<2x3x5xf32>) -> tensor<2x3x5xf32>
  %p = popart.softmax %u {axis = 2 : i64} : (tensor<2x3x5xf32>) -> tensor<2x3x5xf32>
  %y = popart.matmul %p, %v : (tensor<2x3x5xf32>, tensor<2x5x6xf32>) -> tensor<2x3x6xf32>
  func.return %y : tensor<2x3x6xf32>
}

// CHECK:      func.func
// CHECK-NOT:  popart.transpose
// CHECK:      %y = popart.attention %q, %k, %v, %mask {scale = 5.000000e-01 : f32}
// CHECK-NEXT: func.return %y
// OFF: popart.softmax

// -----

// Neither scaled nor masked; keys that were never transposed are now.
func.func @main(%q : tensor<3x4xf32>, %kt : tensor<4x5xf32>, %v : tensor<5x6xf32>) -> tensor<3x6xf32> {
  %s = popart.matmul %q, %kt : (tensor<3x4xf32>, tensor<4x5xf32>) -> tensor<3x5xf32>
  %p = popart.softmax %s {axis = 1 : i64} : (tensor<3x5xf32>) -> tensor<3x5xf32>
  %y = popart.matmul %p, %v : (tensor<3x5xf32>, tensor<5x6xf32>) -> tensor<3x6xf32>
  func.return %y : tensor<3x6xf32>
}

// CHECK:      %[[K:.*]] = popart.transpose %kt
// CHECK-NEXT: popart.attention %q, %[[K]], %v : (

// -----

// The weights are returned; the softmax is along another dimension; values of fewer batches; a factor of each score.
func.func @main(%q : tensor<2x3x4xf32>, %kt : tensor<2x4x3xf32>, %v : tensor<2x3x6xf32>, %one : tensor<1x3x6xf32>, %f : tensor<3xf32>) -> (tensor<2x3x6xf32>, tensor<2x3x3xf32>, tensor<2x3x6xf32>, tensor<2x3x6xf32>, tensor<2x3x6xf32>) {
  %s = popart.matmul %q, %kt : (tensor<2x3x4xf32>, tensor<2x4x3xf32>) -> tensor<2x3x3xf32>
  %p = popart.softmax %s {axis = 2 : i64} : (tensor<2x3x3xf32>) -> tensor<2x3x3xf32>
  %a = popart.matmul %p, %v : (tensor<2x3x3xf32>, tensor<2x3x6xf32>) -> tensor<2x3x6xf32>
  %s1 = popart.matmul %q, %kt : (tensor<2x3x4xf32>, tensor<2x4x3xf32>) -> tensor<2x3x3xf32>
  %p1 = popart.softmax %s1 {axis = 1 : i64} : (tensor<2x3x3xf32>) -> tensor<2x3x3xf32>
  %b = popart.matmul %p1, %v : (tensor<2x3x3xf32>, tensor<2x3x6xf32>) -> tensor<2x3x6xf32>
  %s2 = popart.matmul %q, %kt : (tensor<2x3x4xf32>, tensor<2x4x3xf32>) -> tensor<2x3x3xf32>
  %p2 = popart.softmax %s2 {axis = 2 : i64} : (tensor<2x3x3xf32>) -> tensor<2x3x3xf32>
  %c = popart.matmul %p2, %one : (tensor<2x3x3xf32>, tensor<1x3x6xf32>) -> tensor<2x3x6xf32>
  %s3 = popart.matmul %q, %kt : (tensor<2x3x4xf32>, tensor<2x4x3xf32>) -> tensor<2x3x3xf32>
  %t3 = popart.mul %s3, %f : (tensor<2x3x3xf32>, tensor<3xf32>) -> tensor<2x3x3xf32>
  %p3 = popart.softmax %t3 {axis = 2 : i64} : (tensor<2x3x3xf32>) -> tensor<2x3x3xf32>
  %d = popart.matmul %p3, %v : (tensor<2x3x3xf32>, tensor<2x3x6xf32>) -> tensor<2x3x6xf32>
  func.return %a, %p, %b, %c, %d : tensor<2x3x6xf32>, tensor<2x3x3xf32>, tensor<2x3x6xf32>, tensor<2x3x6xf32>, tensor<2x3x6xf32>
}

// CHECK-NOT: popart.attention
// CHECK: func.return

// -----

// A mask that makes more scores than there were.
func.func @main(%q : tensor<1x3x4xf32>, %kt : tensor<1x4x3xf32>, %v : tensor<2x3x6xf32>, %mask : tensor<2x1x3xf32>) -> tensor<2x3x6xf32> {
  %s = popart.matmul %q, %kt : (tensor<1x3x4xf32>, tensor<1x4x3xf32>) -> tensor<1x3x3xf32>
  %t = popart.add %s, %mask : (tensor<1x3x3xf32>, tensor<2x1x3xf32>) -> tensor<2x3x3xf32>
  %p = popart.softmax %t {axis = 2 : i64} : (tensor<2x3x3xf32>) -> tensor<2x3x3xf32>
  %y = popart.matmul %p, %v : (tensor<2x3x3xf32>, tensor<2x3x6xf32>) -> tensor<2x3x6xf32>
  func.return %y : tensor<2x3x6xf32>
}

// CHECK: popart.softmax
