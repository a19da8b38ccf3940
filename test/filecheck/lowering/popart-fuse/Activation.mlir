// RUN: populus-opt %s -p "popart-fuse{patterns=Activation}" --split-input-file | filecheck %s
// RUN: populus-opt %s -p "popart-fuse{without=Activation}" --split-input-file | filecheck %s --check-prefix OFF

// gelu as PyTorch exports it, and with the half in front.
func.func @main(%x : tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>) {
  %r = data.constant dense<1.41421354> : tensor<f32>
  %s = data.constant dense<0.707106769> : tensor<f32>
  %one = data.constant dense<1.0> : tensor<f32>
  %half = data.constant dense<0.5> : tensor<f32>
  %a = popart.div %x, %r : (tensor<4xf32>, tensor<f32>) -> tensor<4xf32>
  %b = popart.erf %a : tensor<4xf32>
  %c = popart.add %b, %one : (tensor<4xf32>, tensor<f32>) -> tensor<4xf32>
  %d = popart.mul %x, %c : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  %y = popart.mul %d, %half : (tensor<4xf32>, tensor<f32>) -> tensor<4xf32>
  %e = popart.mul %half, %y : (tensor<f32>, tensor<4xf32>) -> tensor<4xf32>
  %f = popart.mul %y, %s : (tensor<4xf32>, tensor<f32>) -> tensor<4xf32>
  %g = popart.erf %f : tensor<4xf32>
  %h = popart.add %one, %g : (tensor<f32>, tensor<4xf32>) -> tensor<4xf32>
  %z = popart.mul %h, %e : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  func.return %y, %z : tensor<4xf32>, tensor<4xf32>
}

// CHECK:      %y = popart.gelu %x : tensor<4xf32>
// CHECK-NEXT: %z = popart.gelu %y : tensor<4xf32>
// OFF: popart.erf

// -----

// By tanh: with a power, and with x pulled out of the sum.
func.func @main(%x : tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>) {
  %three = data.constant dense<3.0> : tensor<f32>
  %k = data.constant dense<0.044715> : tensor<f32>
  %r = data.constant dense<0.797884583> : tensor<f32>
  %one = data.constant dense<1.0> : tensor<f32>
  %half = data.constant dense<0.5> : tensor<f32>
  %a = popart.pow %x, %three : (tensor<4xf32>, tensor<f32>) -> tensor<4xf32>
  %b = popart.mul %a, %k : (tensor<4xf32>, tensor<f32>) -> tensor<4xf32>
  %c = popart.add %x, %b : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  %d = popart.mul %c, %r : (tensor<4xf32>, tensor<f32>) -> tensor<4xf32>
  %e = popart.tanh %d : tensor<4xf32>
  %f = popart.add %e, %one : (tensor<4xf32>, tensor<f32>) -> tensor<4xf32>
  %g = popart.mul %x, %half : (tensor<4xf32>, tensor<f32>) -> tensor<4xf32>
  %y = popart.mul %g, %f : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  %h = popart.mul %y, %k : (tensor<4xf32>, tensor<f32>) -> tensor<4xf32>
  %i = popart.mul %h, %y : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  %j = popart.add %i, %one : (tensor<4xf32>, tensor<f32>) -> tensor<4xf32>
  %l = popart.mul %y, %r : (tensor<4xf32>, tensor<f32>) -> tensor<4xf32>
  %m = popart.mul %l, %j : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  %n = popart.tanh %m : tensor<4xf32>
  %o = popart.add %n, %one : (tensor<4xf32>, tensor<f32>) -> tensor<4xf32>
  %p = popart.mul %y, %o : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  %z = popart.mul %p, %half : (tensor<4xf32>, tensor<f32>) -> tensor<4xf32>
  func.return %y, %z : tensor<4xf32>, tensor<4xf32>
}

// CHECK:      %y = popart.gelu %x {tanh = true} : tensor<4xf32>
// CHECK-NEXT: %z = popart.gelu %y {tanh = true} : tensor<4xf32>

// -----

// swish, the quick gelu, hard_swish, mish, softplus.
func.func @main(%x : tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>) {
  %one = data.constant dense<1.0> : tensor<f32>
  %zero = data.constant dense<0.0> : tensor<f32>
  %three = data.constant dense<3.0> : tensor<f32>
  %six = data.constant dense<6.0> : tensor<f32>
  %q = data.constant dense<1.702> : tensor<f32>
  %a1 = popart.sigmoid %x : tensor<4xf32>
  %a = popart.mul %x, %a1 : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  %b1 = popart.neg %x : tensor<4xf32>
  %b2 = popart.exp %b1 : tensor<4xf32>
  %b3 = popart.add %b2, %one : (tensor<4xf32>, tensor<f32>) -> tensor<4xf32>
  %b = popart.div %x, %b3 : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  %c1 = popart.mul %x, %q : (tensor<4xf32>, tensor<f32>) -> tensor<4xf32>
  %c2 = popart.sigmoid %c1 : tensor<4xf32>
  %c = popart.mul %c2, %x : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  %d1 = popart.add %x, %three : (tensor<4xf32>, tensor<f32>) -> tensor<4xf32>
  %d2 = popart.max %d1, %zero : (tensor<4xf32>, tensor<f32>) -> tensor<4xf32>
  %d3 = popart.min %d2, %six : (tensor<4xf32>, tensor<f32>) -> tensor<4xf32>
  %d4 = popart.mul %x, %d3 : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  %d = popart.div %d4, %six : (tensor<4xf32>, tensor<f32>) -> tensor<4xf32>
  %e1 = popart.softplus %x : tensor<4xf32>
  %e2 = popart.tanh %e1 : tensor<4xf32>
  %e = popart.mul %x, %e2 : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  %f1 = popart.exp %x : tensor<4xf32>
  %f2 = popart.add %f1, %one : (tensor<4xf32>, tensor<f32>) -> tensor<4xf32>
  %f = popart.log %f2 : tensor<4xf32>
  func.return %a, %b, %c, %d, %e, %f : tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>
}

// CHECK: %a = popart.swish %x : tensor<4xf32>
// CHECK: %b = popart.swish %x : tensor<4xf32>
// CHECK: %c = popart.swish %x {alpha = 1.702{{.*}}} : tensor<4xf32>
// CHECK: %d = popart.hard_swish %x : tensor<4xf32>
// CHECK: %e = popart.mish %x : tensor<4xf32>
// CHECK: %f = popart.softplus %x : tensor<4xf32>

// -----

// A literal of 16 bits among floats of 32 is another function.
func.func @main(%x : tensor<4xf32>) -> tensor<4xf32> {
  %s = data.constant dense<0.70703125> : tensor<f32>
  %one = data.constant dense<1.0> : tensor<f32>
  %half = data.constant dense<0.5> : tensor<f32>
  %a = popart.mul %x, %s : (tensor<4xf32>, tensor<f32>) -> tensor<4xf32>
  %b = popart.erf %a : tensor<4xf32>
  %c = popart.add %b, %one : (tensor<4xf32>, tensor<f32>) -> tensor<4xf32>
  %d = popart.mul %x, %c : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  %y = popart.mul %d, %half : (tensor<4xf32>, tensor<f32>) -> tensor<4xf32>
  func.return %y : tensor<4xf32>
}

// CHECK: popart.erf

// -----

// What is between is returned; another literal; two different operands; integers.
func.func @main(%x : tensor<4xf32>, %z : tensor<4xf32>, %i : tensor<4xi32>) -> (tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xi32>) {
  %six = data.constant dense<6.0> : tensor<f32>
  %two = data.constant dense<2.0> : tensor<f32>
  %zero = data.constant dense<0.0> : tensor<f32>
  %a1 = popart.sigmoid %x : tensor<4xf32>
  %a = popart.mul %x, %a1 : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  %b1 = popart.add %x, %two : (tensor<4xf32>, tensor<f32>) -> tensor<4xf32>
  %b2 = popart.max %b1, %zero : (tensor<4xf32>, tensor<f32>) -> tensor<4xf32>
  %b3 = popart.min %b2, %six : (tensor<4xf32>, tensor<f32>) -> tensor<4xf32>
  %b = popart.mul %x, %b3 : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  %c1 = popart.sigmoid %x : tensor<4xf32>
  %c = popart.mul %z, %c1 : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  %d = popart.mul %i, %i : (tensor<4xi32>, tensor<4xi32>) -> tensor<4xi32>
  func.return %a, %a1, %b, %c, %d : tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xi32>
}

// CHECK: %a = popart.mul %x, %a1
// CHECK: %b = popart.mul %x, %b3
// CHECK: %c = popart.mul %z, %c1
// CHECK: %d = popart.mul %i, %i
