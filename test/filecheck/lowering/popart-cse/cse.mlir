// RUN: populus-opt %s -p popart-cse --split-input-file | filecheck %s
// RUN: populus-opt %s -p popart-cse --split-input-file --print-debuginfo | filecheck %s --check-prefix PLACE

// Equal constants are one, and then what reads them.
func.func @main(%x : tensor<4xf32>) -> tensor<4xf32> {
  %one = data.constant dense<1.0> : tensor<f32>
  %uno = data.constant dense<1.0> : tensor<f32>
  %a = popart.add %x, %one : (tensor<4xf32>, tensor<f32>) -> tensor<4xf32> loc("first")
  %b = popart.add %x, %uno : (tensor<4xf32>, tensor<f32>) -> tensor<4xf32> loc("second")
  %y = popart.mul %a, %b : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  func.return %y : tensor<4xf32>
}

// CHECK:      %one = data.constant
// CHECK-NEXT: %a = popart.add %x, %one
// CHECK-NEXT: popart.mul %a, %a
// PLACE: popart.add {{.*}} loc(fused["second", "first"])

// -----

// Returned twice: one value is.
func.func @main(%x : tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>) {
  %a = popart.exp %x : tensor<4xf32>
  %b = popart.exp %x : tensor<4xf32>
  func.return %a, %b : tensor<4xf32>, tensor<4xf32>
}

// CHECK:      %a = popart.exp %x
// CHECK-NEXT: func.return %a, %a

// -----

// Another attribute, another order of operands, -0 and 0: not the same.
func.func @main(%x : tensor<2x2xf32>, %z : tensor<2x2xf32>) -> (tensor<2xf32>, tensor<2xf32>, tensor<2x2xf32>, tensor<2x2xf32>) {
  %a = popart.reduce_sum %x {axes = array<i64: 0>} : (tensor<2x2xf32>) -> tensor<2xf32>
  %b = popart.reduce_sum %x {axes = array<i64: 1>} : (tensor<2x2xf32>) -> tensor<2xf32>
  %p = data.constant dense<0.0> : tensor<f32>
  %n = data.constant dense<-0.0> : tensor<f32>
  %c = popart.max %x, %p : (tensor<2x2xf32>, tensor<f32>) -> tensor<2x2xf32>
  %d = popart.max %z, %n : (tensor<2x2xf32>, tensor<f32>) -> tensor<2x2xf32>
  func.return %a, %b, %c, %d : tensor<2xf32>, tensor<2xf32>, tensor<2x2xf32>, tensor<2x2xf32>
}

// CHECK: popart.reduce_sum
// CHECK: popart.reduce_sum
// CHECK: data.constant
// CHECK: data.constant
// CHECK: popart.max
// CHECK: popart.max

// -----

// Of one seed, streams differ, and then so do the numbers.
func.func @main(%s : tensor<2xui32>) -> (tensor<4xf32>, tensor<4xf32>, tensor<4xf32>) {
  %a = popart.random %s {distribution = "uniform", b = 1.0 : f32, stream = 1 : i64, shape = array<i64: 4>} : (tensor<2xui32>) -> tensor<4xf32>
  %b = popart.random %s {distribution = "uniform", b = 1.0 : f32, stream = 2 : i64, shape = array<i64: 4>} : (tensor<2xui32>) -> tensor<4xf32>
  %c = popart.random %s {distribution = "uniform", b = 1.0 : f32, stream = 1 : i64, shape = array<i64: 4>} : (tensor<2xui32>) -> tensor<4xf32>
  func.return %a, %b, %c : tensor<4xf32>, tensor<4xf32>, tensor<4xf32>
}

// CHECK:      %a = popart.random
// CHECK-NEXT: %b = popart.random
// CHECK-NEXT: func.return %a, %b, %a

// -----

// Two functions, two blocks: each keeps its own.
func.func @other(%x : tensor<4xf32>) -> tensor<4xf32> {
  %a = popart.exp %x : tensor<4xf32>
  func.return %a : tensor<4xf32>
}
func.func @main(%x : tensor<4xf32>) -> tensor<4xf32> {
  %a = popart.exp %x : tensor<4xf32>
  func.return %a : tensor<4xf32>
}

// CHECK: popart.exp
// CHECK: popart.exp

// -----

// The operands of one are those of the other, in another order.
func.func @main(%x : tensor<4xf32>, %z : tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>) {
  %a = popart.sub %x, %z : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  %b = popart.sub %z, %x : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  func.return %a, %b : tensor<4xf32>, tensor<4xf32>
}

// CHECK:      %a = popart.sub %x, %z
// CHECK-NEXT: %b = popart.sub %z, %x
// CHECK-NEXT: func.return %a, %b

// -----

// A call is not known to be without effects.
func.func @main(%x : tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>) {
  %a = func.call @f(%x) : (tensor<4xf32>) -> tensor<4xf32>
  %b = func.call @f(%x) : (tensor<4xf32>) -> tensor<4xf32>
  func.return %a, %b : tensor<4xf32>, tensor<4xf32>
}

func.func private @f(%x : tensor<4xf32>) -> tensor<4xf32> {
  func.return %x : tensor<4xf32>
}

// CHECK:      %a = func.call @f(%x)
// CHECK-NEXT: %b = func.call @f(%x)
// CHECK-NEXT: func.return %a, %b
