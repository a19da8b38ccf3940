// RUN: populus-opt %s -p "popart-fuse{patterns=Softmax,LogOfSoftmax,LayerNorm,RmsNorm,NormScale,NormBias}" --split-input-file | filecheck %s
// RUN: populus-opt %s -p "popart-fuse{without=Softmax,LogOfSoftmax,LayerNorm,RmsNorm}" --split-input-file | filecheck %s --check-prefix OFF

// Softmax with and without the maxima, along another dimension, and its logarithm.
func.func @main(%x : tensor<2x3xf32>) -> (tensor<2x3xf32>, tensor<2x3xf32>) {
  %m = popart.reduce_max %x {axes = array<i64: 1>, keep = true} : (tensor<2x3xf32>) -> tensor<2x1xf32>
  %d = popart.sub %x, %m : (tensor<2x3xf32>, tensor<2x1xf32>) -> tensor<2x3xf32>
  %e = popart.exp %d : tensor<2x3xf32>
  %s = popart.reduce_sum %e {axes = array<i64: 1>, keep = true} : (tensor<2x3xf32>) -> tensor<2x1xf32>
  %y = popart.div %e, %s : (tensor<2x3xf32>, tensor<2x1xf32>) -> tensor<2x3xf32>
  %f = popart.exp %x : tensor<2x3xf32>
  %t = popart.reduce_sum %f {axes = array<i64: 0>, keep = true} : (tensor<2x3xf32>) -> tensor<1x3xf32>
  %p = popart.div %f, %t : (tensor<2x3xf32>, tensor<1x3xf32>) -> tensor<2x3xf32>
  %z = popart.log %p : tensor<2x3xf32>
  func.return %y, %z : tensor<2x3xf32>, tensor<2x3xf32>
}

// CHECK:      %y = popart.softmax %x {axis = 1 : i64}
// CHECK-NEXT: %z = popart.log_softmax %x {axis = 0 : i64}
// OFF: popart.reduce_max
// OFF: popart.reduce_sum

// -----

// The exponentials are returned; they are summed along another dimension; the sum is of something else; the softmax is read twice.
func.func @main(%x : tensor<3x3xf32>) -> (tensor<3x3xf32>, tensor<3x3xf32>, tensor<3x3xf32>, tensor<3x3xf32>, tensor<3x3xf32>) {
  %e = popart.exp %x : tensor<3x3xf32>
  %s = popart.reduce_sum %e {axes = array<i64: 1>, keep = true} : (tensor<3x3xf32>) -> tensor<3x1xf32>
  %a = popart.div %e, %s : (tensor<3x3xf32>, tensor<3x1xf32>) -> tensor<3x3xf32>
  %f = popart.exp %x : tensor<3x3xf32>
  %t = popart.reduce_sum %f {axes = array<i64: 1>} : (tensor<3x3xf32>) -> tensor<3xf32>
  %b = popart.div %f, %t : (tensor<3x3xf32>, tensor<3xf32>) -> tensor<3x3xf32>
  %g = popart.exp %x : tensor<3x3xf32>
  %u = popart.reduce_sum %x {axes = array<i64: 1>, keep = true} : (tensor<3x3xf32>) -> tensor<3x1xf32>
  %c = popart.div %g, %u : (tensor<3x3xf32>, tensor<3x1xf32>) -> tensor<3x3xf32>
  %p = popart.softmax %x {axis = 1 : i64} : (tensor<3x3xf32>) -> tensor<3x3xf32>
  %l = popart.log %p : tensor<3x3xf32>
  %q = popart.add %l, %p : (tensor<3x3xf32>, tensor<3x3xf32>) -> tensor<3x3xf32>
  func.return %e, %a, %b, %c, %q : tensor<3x3xf32>, tensor<3x3xf32>, tensor<3x3xf32>, tensor<3x3xf32>, tensor<3x3xf32>
}

// CHECK: %a = popart.div %e
// CHECK: %b = popart.div %f
// CHECK: %c = popart.div %g
// CHECK: %l = popart.log %p

// -----

// Maxima along another dimension than the sums: the softmax is that of the differences.
func.func @main(%x : tensor<3x3xf32>) -> tensor<3x3xf32> {
  %m = popart.reduce_max %x {axes = array<i64: 0>, keep = true} : (tensor<3x3xf32>) -> tensor<1x3xf32>
  %d = popart.sub %x, %m : (tensor<3x3xf32>, tensor<1x3xf32>) -> tensor<3x3xf32>
  %e = popart.exp %d : tensor<3x3xf32>
  %s = popart.reduce_sum %e {axes = array<i64: 1>, keep = true} : (tensor<3x3xf32>) -> tensor<3x1xf32>
  %y = popart.div %e, %s : (tensor<3x3xf32>, tensor<3x1xf32>) -> tensor<3x3xf32>
  func.return %y : tensor<3x3xf32>
}

// CHECK: popart.softmax %d {axis = 1 : i64}

// -----

// Layer norm as PyTorch exports it, with scale and bias.
func.func @main(%x : tensor<2x4xf32>) -> tensor<2x4xf32> {
  %two = data.constant dense<2.0> : tensor<f32>
  %epsilon = data.constant dense<0.5> : tensor<f32>
  %scale = data.constant dense<[1.0, 2.0, 3.0, 4.0]> : tensor<4xf32>
  %bias = data.constant dense<[4.0, 3.0, 2.0, 1.0]> : tensor<4xf32>
  %m = popart.reduce_mean %x {axes = array<i64: 1>, keep = true} : (tensor<2x4xf32>) -> tensor<2x1xf32>
  %d = popart.sub %x, %m : (tensor<2x4xf32>, tensor<2x1xf32>) -> tensor<2x4xf32>
  %p = popart.pow %d, %two : (tensor<2x4xf32>, tensor<f32>) -> tensor<2x4xf32>
  %v = popart.reduce_mean %p {axes = array<i64: 1>, keep = true} : (tensor<2x4xf32>) -> tensor<2x1xf32>
  %a = popart.add %v, %epsilon : (tensor<2x1xf32>, tensor<f32>) -> tensor<2x1xf32>
  %s = popart.sqrt %a : tensor<2x1xf32>
  %n = popart.div %d, %s : (tensor<2x4xf32>, tensor<2x1xf32>) -> tensor<2x4xf32>
  %w = popart.mul %n, %scale : (tensor<2x4xf32>, tensor<4xf32>) -> tensor<2x4xf32>
  %y = popart.add %w, %bias : (tensor<2x4xf32>, tensor<4xf32>) -> tensor<2x4xf32>
  func.return %y : tensor<2x4xf32>
}

// CHECK:      %bias = data.constant
// CHECK-NEXT: %y = popart.layer_norm %x, %scale, %bias {axis = 1 : i64, epsilon = 5.000000e-01 : f32}
// CHECK-NEXT: func.return %y

// -----

// And as TensorFlow does: the variance from the squares, scale and reciprocal first, the means in the bias.
func.func @main(%x : tensor<2x4xf32>) -> tensor<2x4xf32> {
  %one = data.constant dense<1.0> : tensor<f32>
  %epsilon = data.constant dense<0.5> : tensor<f32>
  %scale = data.constant dense<[1.0, 2.0, 3.0, 4.0]> : tensor<4xf32>
  %bias = data.constant dense<[4.0, 3.0, 2.0, 1.0]> : tensor<4xf32>
  %m = popart.reduce_mean %x {axes = array<i64: 1>, keep = true} : (tensor<2x4xf32>) -> tensor<2x1xf32>
  %p = popart.mul %x, %x : (tensor<2x4xf32>, tensor<2x4xf32>) -> tensor<2x4xf32>
  %q = popart.reduce_mean %p {axes = array<i64: 1>, keep = true} : (tensor<2x4xf32>) -> tensor<2x1xf32>
  %mm = popart.mul %m, %m : (tensor<2x1xf32>, tensor<2x1xf32>) -> tensor<2x1xf32>
  %v = popart.sub %q, %mm : (tensor<2x1xf32>, tensor<2x1xf32>) -> tensor<2x1xf32>
  %a = popart.add %v, %epsilon : (tensor<2x1xf32>, tensor<f32>) -> tensor<2x1xf32>
  %s = popart.sqrt %a : tensor<2x1xf32>
  %i = popart.div %one, %s : (tensor<f32>, tensor<2x1xf32>) -> tensor<2x1xf32>
  %k = popart.mul %i, %scale : (tensor<2x1xf32>, tensor<4xf32>) -> tensor<2x4xf32>
  %xk = popart.mul %x, %k : (tensor<2x4xf32>, tensor<2x4xf32>) -> tensor<2x4xf32>
  %mk = popart.mul %m, %k : (tensor<2x1xf32>, tensor<2x4xf32>) -> tensor<2x4xf32>
  %t = popart.sub %bias, %mk : (tensor<4xf32>, tensor<2x4xf32>) -> tensor<2x4xf32>
  %y = popart.add %xk, %t : (tensor<2x4xf32>, tensor<2x4xf32>) -> tensor<2x4xf32>
  func.return %y : tensor<2x4xf32>
}

// CHECK:      %bias = data.constant
// CHECK-NEXT: %y = popart.layer_norm %x, %scale, %bias {axis = 1 : i64, epsilon = 5.000000e-01 : f32}
// CHECK-NEXT: func.return %y

// -----

// Means over the first dimension; the deviation is returned: no layer norm. Means over different dimensions: an RMS norm of the deviation.
func.func @main(%x : tensor<4x4xf32>) -> (tensor<4x4xf32>, tensor<4x4xf32>, tensor<4x4xf32>, tensor<4x4xf32>) {
  %m = popart.reduce_mean %x {axes = array<i64: 0>, keep = true} : (tensor<4x4xf32>) -> tensor<1x4xf32>
  %d = popart.sub %x, %m : (tensor<4x4xf32>, tensor<1x4xf32>) -> tensor<4x4xf32>
  %p = popart.mul %d, %d : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
  %v = popart.reduce_mean %p {axes = array<i64: 0>, keep = true} : (tensor<4x4xf32>) -> tensor<1x4xf32>
  %s = popart.sqrt %v : tensor<1x4xf32>
  %a = popart.div %d, %s : (tensor<4x4xf32>, tensor<1x4xf32>) -> tensor<4x4xf32>
  %m1 = popart.reduce_mean %x {axes = array<i64: 1>, keep = true} : (tensor<4x4xf32>) -> tensor<4x1xf32>
  %d1 = popart.sub %x, %m1 : (tensor<4x4xf32>, tensor<4x1xf32>) -> tensor<4x4xf32>
  %p1 = popart.mul %d1, %d1 : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
  %v1 = popart.reduce_mean %p1 {axes = array<i64: 0, 1>, keep = true} : (tensor<4x4xf32>) -> tensor<1x1xf32>
  %s1 = popart.sqrt %v1 : tensor<1x1xf32>
  %b = popart.div %d1, %s1 : (tensor<4x4xf32>, tensor<1x1xf32>) -> tensor<4x4xf32>
  %m2 = popart.reduce_mean %x {axes = array<i64: 1>, keep = true} : (tensor<4x4xf32>) -> tensor<4x1xf32>
  %d2 = popart.sub %x, %m2 : (tensor<4x4xf32>, tensor<4x1xf32>) -> tensor<4x4xf32>
  %p2 = popart.mul %d2, %d2 : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
  %v2 = popart.reduce_mean %p2 {axes = array<i64: 1>, keep = true} : (tensor<4x4xf32>) -> tensor<4x1xf32>
  %s2 = popart.sqrt %v2 : tensor<4x1xf32>
  %c = popart.div %d2, %s2 : (tensor<4x4xf32>, tensor<4x1xf32>) -> tensor<4x4xf32>
  func.return %a, %b, %c, %d2 : tensor<4x4xf32>, tensor<4x4xf32>, tensor<4x4xf32>, tensor<4x4xf32>
}

// CHECK: %a = popart.div %d
// CHECK: %b = popart.rms_norm %d1, %{{.*}} {axis = 0 : i64, epsilon = 0.0{{.*}}}
// CHECK: %c = popart.rms_norm %d2, %{{.*}} {axis = 1 : i64, epsilon = 0.0{{.*}}}
// CHECK: func.return %a, %b, %c, %d2

// -----

// RMS norm, with a power for the root, and a scale. A mean of cubes is none.
func.func @main(%x : tensor<2x4xf32>, %scale : tensor<4xf32>) -> (tensor<2x4xf32>, tensor<2x4xf32>) {
  %two = data.constant dense<2.0> : tensor<f32>
  %three = data.constant dense<3.0> : tensor<f32>
  %minus = data.constant dense<-0.5> : tensor<f32>
  %epsilon = data.constant dense<0.5> : tensor<f32>
  %p = popart.pow %x, %two : (tensor<2x4xf32>, tensor<f32>) -> tensor<2x4xf32>
  %v = popart.reduce_mean %p {axes = array<i64: 1>, keep = true} : (tensor<2x4xf32>) -> tensor<2x1xf32>
  %a = popart.add %v, %epsilon : (tensor<2x1xf32>, tensor<f32>) -> tensor<2x1xf32>
  %s = popart.pow %a, %minus : (tensor<2x1xf32>, tensor<f32>) -> tensor<2x1xf32>
  %n = popart.mul %x, %s : (tensor<2x4xf32>, tensor<2x1xf32>) -> tensor<2x4xf32>
  %y = popart.mul %scale, %n : (tensor<4xf32>, tensor<2x4xf32>) -> tensor<2x4xf32>
  %p1 = popart.pow %x, %three : (tensor<2x4xf32>, tensor<f32>) -> tensor<2x4xf32>
  %v1 = popart.reduce_mean %p1 {axes = array<i64: 1>, keep = true} : (tensor<2x4xf32>) -> tensor<2x1xf32>
  %s1 = popart.sqrt %v1 : tensor<2x1xf32>
  %z = popart.div %x, %s1 : (tensor<2x4xf32>, tensor<2x1xf32>) -> tensor<2x4xf32>
  func.return %y, %z : tensor<2x4xf32>, tensor<2x4xf32>
}

// CHECK: %y = popart.rms_norm %x, %scale {axis = 1 : i64, epsilon = 5.000000e-01 : f32}
// CHECK: %z = popart.div %x

// -----

// A factor behind a norm that has one, or that would stretch the result; a term behind a norm that is returned: they stay.
func.func @main(%x : tensor<2x4xf32>, %k : tensor<4xf32>, %r : tensor<2x1xf32>) -> (tensor<2x4xf32>, tensor<2x4xf32>, tensor<2x4xf32>, tensor<2x4xf32>) {
  %one = data.constant dense<1.0> : tensor<4xf32>
  %a = popart.layer_norm %x, %k {axis = 1 : i64} : (tensor<2x4xf32>, tensor<4xf32>) -> tensor<2x4xf32>
  %b = popart.mul %a, %k : (tensor<2x4xf32>, tensor<4xf32>) -> tensor<2x4xf32>
  %c = popart.layer_norm %x, %one {axis = 1 : i64} : (tensor<2x4xf32>, tensor<4xf32>) -> tensor<2x4xf32>
  %d = popart.mul %c, %r : (tensor<2x4xf32>, tensor<2x1xf32>) -> tensor<2x4xf32>
  %e = popart.layer_norm %x, %k {axis = 1 : i64} : (tensor<2x4xf32>, tensor<4xf32>) -> tensor<2x4xf32>
  %f = popart.add %e, %k : (tensor<2x4xf32>, tensor<4xf32>) -> tensor<2x4xf32>
  func.return %b, %d, %e, %f : tensor<2x4xf32>, tensor<2x4xf32>, tensor<2x4xf32>, tensor<2x4xf32>
}

// CHECK: popart.mul %a
// CHECK: popart.mul %c
// CHECK: popart.add %e
