// RUN: populus-opt %s -p "popart-inplace" --split-input-file --verify-each | filecheck %s
// RUN: populus-opt %s -p "popart-inplace{never=add,leaky_relu}" --split-input-file | filecheck %s --check-prefix=NEVER

// The first of two operands that may be overwritten; the one that a product made, whichever it is, even seen through a view.
func.func @main(%x : tensor<4x4xf32>) -> tensor<16xf32> {
  %a = popart.exp %x : tensor<4x4xf32>
  %b = popart.abs %x : tensor<4x4xf32>
  // CHECK: %c = popart.add %a, %b {inplace = 0 : i64}
  // NEVER: %c = popart.add %a, %b {inplace = -1 : i64}
  %c = popart.add %a, %b : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
  %m = popart.matmul %x, %x : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
  %r = popart.reshape %m {shape = array<i64: 16>} : (tensor<4x4xf32>) -> tensor<16xf32>
  %s = popart.reshape %c {shape = array<i64: 16>} : (tensor<4x4xf32>) -> tensor<16xf32>
  // CHECK: %d = popart.mul %s, %r {inplace = 1 : i64}
  %d = popart.mul %s, %r : (tensor<16xf32>, tensor<16xf32>) -> tensor<16xf32>
  // CHECK: %y = popart.leaky_relu %d {{.*}}inplace = 0 : i64
  // NEVER: %y = popart.leaky_relu %d {{.*}}inplace = -1 : i64
  %y = popart.leaky_relu %d {alpha = 0.1 : f32} : tensor<16xf32>
  func.return %y : tensor<16xf32>
}

// -----

// What is read later is not overwritten: by the op itself twice it may be, by another op behind it not; the last reader may.
func.func @main(%x : tensor<4xf32>) -> tensor<4xf32> {
  %a = popart.exp %x : tensor<4xf32>
  // CHECK: %b = popart.mul %a, %a : (
  // CHECK: %c = popart.add %b, %a {inplace = 0 : i64}
  %b = popart.mul %a, %a : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  %c = popart.add %b, %a : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  // CHECK: popart.mul %c, %c {inplace = 0 : i64}
  %d = popart.mul %c, %c : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  func.return %d : tensor<4xf32>
}
