// RUN: populus-opt %s -p "popart-to-popops,popops-to-poplar{target=gc200 tiles=4}" --split-input-file | filecheck %s

// The mark says which operand is written over on tiles; without one it is the first; -1: none. It is followed through a view.
func.func @main(%x : tensor<8xf32>) -> (tensor<8xf32>, tensor<8xf32>, tensor<8xf32>) {
  %a = popart.exp %x : tensor<8xf32>
  %b = popart.abs %x : tensor<8xf32>
  // CHECK: expr = #expr.fn<add(_1, _2)>
  // CHECK-NEXT: in x1 =
  // CHECK-NEXT: inout x2 =
  %c = popart.add %a, %b {inplace = 1 : i64} : (tensor<8xf32>, tensor<8xf32>) -> tensor<8xf32>
  %d = popart.exp %x : tensor<8xf32>
  %e = popart.abs %x : tensor<8xf32>
  // CHECK: expr = #expr.fn<sub(_1, _2)>
  // CHECK-NEXT: inout x1 =
  // CHECK-NEXT: in x2 =
  %f = popart.sub %d, %e : (tensor<8xf32>, tensor<8xf32>) -> tensor<8xf32>
  %g = popart.exp %x : tensor<8xf32>
  // CHECK: expr = #expr.fn<neg(_1)>
  // CHECK-NEXT: in x1 =
  // CHECK-NEXT: out y =
  %h = popart.neg %g {inplace = -1 : i64} : tensor<8xf32>
  func.return %c, %f, %h : tensor<8xf32>, tensor<8xf32>, tensor<8xf32>
}

// -----

// A mark that memory forbids is not followed: the other operand is the last use of its variable.
func.func @main(%x : tensor<8xf32>) -> tensor<8xf32> {
  %b = popart.abs %x : tensor<8xf32>
  // CHECK: expr = #expr.fn<add(_1, _2)>
  // CHECK-NEXT: in x1 = %x
  // CHECK-NEXT: inout x2 =
  %c = popart.add %x, %b {inplace = 0 : i64} : (tensor<8xf32>, tensor<8xf32>) -> tensor<8xf32>
  func.return %c : tensor<8xf32>
}
