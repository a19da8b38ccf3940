// RUN: populus-opt %s -p "popart-inplace" --split-input-file --verify-each | filecheck %s

// CHECK-NOT: inplace

// What the caller owns: an argument, a constant.
func.func @main(%x : tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>) {
  %k = data.constant dense<[1.0, 2.0, 3.0, 4.0]> : tensor<4xf32>
  %y = popart.exp %x : tensor<4xf32>
  %z = popart.neg %k : tensor<4xf32>
  func.return %y, %z : tensor<4xf32>, tensor<4xf32>
}

// -----

// What is returned.
func.func @main(%x : tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>) {
  %a = popart.exp %x : tensor<4xf32>
  %y = popart.neg %a : tensor<4xf32>
  func.return %a, %y : tensor<4xf32>, tensor<4xf32>
}

// -----

// A view of an argument; what a view shows that is read later, or returned.
func.func @main(%x : tensor<2x2xf32>) -> (tensor<4xf32>, tensor<2x2xf32>, tensor<4xf32>, tensor<2x2xf32>) {
  %v = popart.reshape %x {shape = array<i64: 4>} : (tensor<2x2xf32>) -> tensor<4xf32>
  %y = popart.exp %v : tensor<4xf32>
  %a = popart.softmax %x {axis = 1 : i64} : (tensor<2x2xf32>) -> tensor<2x2xf32>
  %w = popart.reshape %a {shape = array<i64: 4>} : (tensor<2x2xf32>) -> tensor<4xf32>
  %b = popart.neg %a : tensor<2x2xf32>
  %m = popart.matmul %x, %x : (tensor<2x2xf32>, tensor<2x2xf32>) -> tensor<2x2xf32>
  %t = popart.transpose %m {permutation = array<i64: 1, 0>} : (tensor<2x2xf32>) -> tensor<2x2xf32>
  %d = popart.sub %m, %t : (tensor<2x2xf32>, tensor<2x2xf32>) -> tensor<2x2xf32>
  func.return %y, %b, %w, %d : tensor<4xf32>, tensor<2x2xf32>, tensor<4xf32>, tensor<2x2xf32>
}

// -----

// An element that stands for several; a smaller operand that is stretched; another element type.
func.func @main(%x : tensor<1x4xf32>) -> (tensor<2x4xf32>, tensor<2x4xf32>, tensor<1x4xi1>) {
  %m = popart.softmax %x {axis = 1 : i64} : (tensor<1x4xf32>) -> tensor<1x4xf32>
  %e = popart.expand %m {shape = array<i64: 2, 4>} : (tensor<1x4xf32>) -> tensor<2x4xf32>
  %y = popart.exp %e : tensor<2x4xf32>
  %k = data.constant dense<1.0> : tensor<2x4xf32>
  %n = popart.softmax %x {axis = 0 : i64} : (tensor<1x4xf32>) -> tensor<1x4xf32>
  %z = popart.add %n, %k : (tensor<1x4xf32>, tensor<2x4xf32>) -> tensor<2x4xf32>
  %o = popart.softmax %x {axis = 1 : i64} : (tensor<1x4xf32>) -> tensor<1x4xf32>
  %c = popart.is_nan %o : (tensor<1x4xf32>) -> tensor<1x4xi1>
  func.return %y, %z, %c : tensor<2x4xf32>, tensor<2x4xf32>, tensor<1x4xi1>
}

// -----

// What a region has from outside: the next iteration finds it again. What a branch reads later, or a call.
func.func private @f(%x : tensor<4xf32>) -> tensor<4xf32> {
  func.return %x : tensor<4xf32>
}
func.func @main(%x : tensor<4xf32>, %c : tensor<i1>) -> (tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>) {
  %a = popart.softmax %x {axis = 0 : i64} : (tensor<4xf32>) -> tensor<4xf32>
  %h = popart.loop(%x) {trips = 3 : i64} : (tensor<4xf32>) -> tensor<4xf32> do {
  ^bb0(%i: tensor<i32>, %s: tensor<4xf32>):
    %n = popart.neg %a : tensor<4xf32>
    popart.yield %n : tensor<4xf32>
  }
  %b = popart.softmax %x {axis = 0 : i64} : (tensor<4xf32>) -> tensor<4xf32>
  %d = popart.neg %b : tensor<4xf32>
  %y = popart.if %c then { popart.yield %b : tensor<4xf32> } else { popart.yield %x : tensor<4xf32> } : tensor<i1> -> tensor<4xf32>
  %e = popart.softmax %x {axis = 0 : i64} : (tensor<4xf32>) -> tensor<4xf32>
  %g = popart.abs %e : tensor<4xf32>
  %z = func.call @f(%e) : (tensor<4xf32>) -> tensor<4xf32>
  func.return %h, %d, %y, %z : tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>
}
