// RUN: populus-opt %s -p "popart-fuse{patterns=MergeMatMuls,FactorIntoWeights}" --split-input-file | filecheck %s
// RUN: populus-opt %s -p "popart-fuse{without=MergeMatMuls,FactorIntoWeights,FactorIntoConv}" --split-input-file | filecheck %s --check-prefix OFF

// Queries, keys and values of one input: one product and one sum, cut in three.
func.func @main(%x : tensor<2x2xf32>) -> (tensor<2x2xf32>, tensor<2x1xf32>) {
  %wq = data.constant dense<[[1.0, 2.0], [3.0, 4.0]]> : tensor<2x2xf32>
  %wk = data.constant dense<[[5.0], [6.0]]> : tensor<2x1xf32>
  %bq = data.constant dense<[7.0, 8.0]> : tensor<2xf32>
  %bk = data.constant dense<[9.0]> : tensor<1xf32>
  %q = popart.matmul %x, %wq : (tensor<2x2xf32>, tensor<2x2xf32>) -> tensor<2x2xf32>
  %qb = popart.add %q, %bq : (tensor<2x2xf32>, tensor<2xf32>) -> tensor<2x2xf32>
  %k = popart.matmul %x, %wk : (tensor<2x2xf32>, tensor<2x1xf32>) -> tensor<2x1xf32>
  %kb = popart.add %bk, %k : (tensor<1xf32>, tensor<2x1xf32>) -> tensor<2x1xf32>
  func.return %qb, %kb : tensor<2x2xf32>, tensor<2x1xf32>
}

// CHECK:      %[[W:.*]] = data.constant dense<{{\[\[}}1.000000e+00, 2.000000e+00, 5.000000e+00], [3.000000e+00, 4.000000e+00, 6.000000e+00]]>
// CHECK-NEXT: %[[P:.*]] = popart.matmul %x, %[[W]]
// CHECK-NEXT: %[[B:.*]] = data.constant dense<[7.000000e+00, 8.000000e+00, 9.000000e+00]>
// CHECK-NEXT: %[[S:.*]] = popart.add %[[P]], %[[B]]
// CHECK-NEXT: %qb = popart.slice %[[S]] {begins = array<i64: 0, 0>, ends = array<i64: 2, 2>
// CHECK-NEXT: %kb = popart.slice %[[S]] {begins = array<i64: 0, 2>, ends = array<i64: 2, 3>
// CHECK-NEXT: func.return %qb, %kb
// OFF: popart.matmul
// OFF: popart.matmul

// -----

// One product is returned itself: the products are one, the sum stays with its piece. One with weights from outside is not among them.
func.func @main(%x : tensor<1x2xf32>, %v : tensor<2x1xf32>) -> (tensor<1x1xf32>, tensor<1x1xf32>, tensor<1x1xf32>) {
  %w = data.constant dense<[[5.0], [6.0]]> : tensor<2x1xf32>
  %u = data.constant dense<[[7.0], [8.0]]> : tensor<2x1xf32>
  %b = data.constant dense<[9.0]> : tensor<1xf32>
  %p = popart.matmul %x, %v : (tensor<1x2xf32>, tensor<2x1xf32>) -> tensor<1x1xf32>
  %q = popart.matmul %x, %w : (tensor<1x2xf32>, tensor<2x1xf32>) -> tensor<1x1xf32>
  %k = popart.matmul %x, %u : (tensor<1x2xf32>, tensor<2x1xf32>) -> tensor<1x1xf32>
  %s = popart.add %k, %b : (tensor<1x1xf32>, tensor<1xf32>) -> tensor<1x1xf32>
  func.return %p, %q, %s : tensor<1x1xf32>, tensor<1x1xf32>, tensor<1x1xf32>
}

// CHECK: %p = popart.matmul %x, %v
// CHECK: popart.matmul %x
// CHECK: %q = popart.slice
// CHECK: %k = popart.slice
// CHECK: %s = popart.add %k, %b

// -----

// The constant on the left; the matrix multiplied with itself; a batch of matrices: nothing in common.
func.func @main(%x : tensor<2x2xf32>) -> (tensor<2x2xf32>, tensor<2x2xf32>, tensor<1x2x2xf32>) {
  %w = data.constant dense<[[1.0, 2.0], [3.0, 4.0]]> : tensor<2x2xf32>
  %u = data.constant dense<[[[1.0, 2.0], [3.0, 5.0]]]> : tensor<1x2x2xf32>
  %a = popart.matmul %w, %x : (tensor<2x2xf32>, tensor<2x2xf32>) -> tensor<2x2xf32>
  %b = popart.matmul %x, %x : (tensor<2x2xf32>, tensor<2x2xf32>) -> tensor<2x2xf32>
  %c = popart.matmul %x, %u : (tensor<2x2xf32>, tensor<1x2x2xf32>) -> tensor<1x2x2xf32>
  func.return %a, %b, %c : tensor<2x2xf32>, tensor<2x2xf32>, tensor<1x2x2xf32>
}

// CHECK: popart.matmul %w, %x
// CHECK: popart.matmul %x, %x
// CHECK: popart.matmul %x, %u

// -----

// The scale of the scores goes through product, transpose, reshape and sum into the weights of the queries.
func.func @main(%x : tensor<2x2xf32>, %k : tensor<2x2xf32>) -> tensor<2x2xf32> {
  %w = data.constant dense<[[1.0, 2.0], [3.0, 4.0]]> : tensor<2x2xf32>
  %b = data.constant dense<[5.0, 6.0]> : tensor<2xf32>
  %ten = data.constant dense<10.0> : tensor<f32>
  %q = popart.matmul %x, %w : (tensor<2x2xf32>, tensor<2x2xf32>) -> tensor<2x2xf32>
  %s = popart.add %q, %b : (tensor<2x2xf32>, tensor<2xf32>) -> tensor<2x2xf32>
  %t = popart.transpose %s {permutation = array<i64: 1, 0>} : (tensor<2x2xf32>) -> tensor<2x2xf32>
  %p = popart.matmul %t, %k : (tensor<2x2xf32>, tensor<2x2xf32>) -> tensor<2x2xf32>
  %y = popart.mul %p, %ten : (tensor<2x2xf32>, tensor<f32>) -> tensor<2x2xf32>
  func.return %y : tensor<2x2xf32>
}

// CHECK-DAG: %[[W:.*]] = data.constant dense<{{\[\[}}1.000000e+01, 2.000000e+01], [3.000000e+01, 4.000000e+01]]>
// CHECK-DAG: %[[B:.*]] = data.constant dense<[5.000000e+01, 6.000000e+01]>
// CHECK:     popart.transpose
// CHECK-NEXT: %[[Y:.*]] = popart.matmul
// CHECK-NEXT: func.return %[[Y]]
// OFF: popart.mul

// -----

// Read elsewhere too; through something that is not linear; from no constant; a factor of 0 or infinity: the factor stays.
func.func @main(%x : tensor<2x2xf32>, %z : tensor<2x2xf32>) -> (tensor<2x2xf32>, tensor<2x2xf32>, tensor<2x2xf32>, tensor<2x2xf32>, tensor<2x2xf32>) {
  %w = data.constant dense<[[1.0, 2.0], [3.0, 4.0]]> : tensor<2x2xf32>
  %ten = data.constant dense<10.0> : tensor<f32>
  %zero = data.constant dense<0.0> : tensor<f32>
  %a = popart.matmul %x, %w : (tensor<2x2xf32>, tensor<2x2xf32>) -> tensor<2x2xf32>
  %b = popart.mul %a, %ten : (tensor<2x2xf32>, tensor<f32>) -> tensor<2x2xf32>
  %c = popart.matmul %x, %w : (tensor<2x2xf32>, tensor<2x2xf32>) -> tensor<2x2xf32>
  %d = popart.exp %c : tensor<2x2xf32>
  %e = popart.mul %d, %ten : (tensor<2x2xf32>, tensor<f32>) -> tensor<2x2xf32>
  %f = popart.matmul %x, %z : (tensor<2x2xf32>, tensor<2x2xf32>) -> tensor<2x2xf32>
  %g = popart.mul %f, %ten : (tensor<2x2xf32>, tensor<f32>) -> tensor<2x2xf32>
  %h = popart.matmul %z, %w : (tensor<2x2xf32>, tensor<2x2xf32>) -> tensor<2x2xf32>
  %i = popart.div %h, %zero : (tensor<2x2xf32>, tensor<f32>) -> tensor<2x2xf32>
  func.return %a, %b, %e, %g, %i : tensor<2x2xf32>, tensor<2x2xf32>, tensor<2x2xf32>, tensor<2x2xf32>, tensor<2x2xf32>
}

// CHECK: popart.mul
// CHECK: popart.mul
// CHECK: popart.mul
// CHECK: popart.div

// -----

// The least weight becomes infinite, the greatest does, one is no number: the factor stays. At the edge of the type it goes in.
func.func @main(%x : tensor<2x2xf32>) -> (tensor<2x2xf32>, tensor<2x2xf32>, tensor<2x2xf32>, tensor<2x2xf32>) {
  %ten = data.constant dense<10.0> : tensor<f32>
  %low = data.constant dense<[[1.0, 2.0], [3.0, -1.0e+38]]> : tensor<2x2xf32>
  %high = data.constant dense<[[1.0e+38, 2.0], [3.0, 4.0]]> : tensor<2x2xf32>
  %none = data.constant dense<[[1.0, 0x7FC00000], [3.0, 4.0]]> : tensor<2x2xf32>
  %edge = data.constant dense<[[-3.0e+37, 2.0], [3.0, 3.0e+37]]> : tensor<2x2xf32>
  %a = popart.matmul %x, %low : (tensor<2x2xf32>, tensor<2x2xf32>) -> tensor<2x2xf32>
  %b = popart.mul %a, %ten : (tensor<2x2xf32>, tensor<f32>) -> tensor<2x2xf32>
  %c = popart.matmul %x, %high : (tensor<2x2xf32>, tensor<2x2xf32>) -> tensor<2x2xf32>
  %d = popart.mul %c, %ten : (tensor<2x2xf32>, tensor<f32>) -> tensor<2x2xf32>
  %e = popart.matmul %x, %none : (tensor<2x2xf32>, tensor<2x2xf32>) -> tensor<2x2xf32>
  %f = popart.mul %e, %ten : (tensor<2x2xf32>, tensor<f32>) -> tensor<2x2xf32>
  %g = popart.matmul %x, %edge : (tensor<2x2xf32>, tensor<2x2xf32>) -> tensor<2x2xf32>
  %h = popart.mul %g, %ten : (tensor<2x2xf32>, tensor<f32>) -> tensor<2x2xf32>
  func.return %b, %d, %f, %h : tensor<2x2xf32>, tensor<2x2xf32>, tensor<2x2xf32>, tensor<2x2xf32>
}

// CHECK:     popart.mul
// CHECK:     popart.mul
// CHECK:     popart.mul
// CHECK-NOT: popart.mul
// CHECK:     func.return
