// RUN: populus-opt %s -p "popart-fuse{patterns=OpToIdentity}" --split-input-file | filecheck %s
// RUN: populus-opt %s -p "popart-fuse{without=OpToIdentity,FoldConstants}" --split-input-file | filecheck %s --check-prefix OFF

// Each op gives what it was given. (Where the constant gives the shape, or 0 is added, -0 would become 0: those stay.)
func.func @main(%x : tensor<2x3xf32>) -> tensor<2x3xf32> {
  %one = data.constant dense<1.0> : tensor<f32>
  %nothing = data.constant dense<-0.0> : tensor<f32>
  %zero = data.constant dense<0.0> : tensor<f32>
  %a = popart.mul %x, %one : (tensor<2x3xf32>, tensor<f32>) -> tensor<2x3xf32>
  %b = popart.mul %one, %a : (tensor<f32>, tensor<2x3xf32>) -> tensor<2x3xf32>
  %c = popart.add %b, %nothing : (tensor<2x3xf32>, tensor<f32>) -> tensor<2x3xf32>
  %d = popart.sub %c, %zero : (tensor<2x3xf32>, tensor<f32>) -> tensor<2x3xf32>
  %e = popart.div %d, %one : (tensor<2x3xf32>, tensor<f32>) -> tensor<2x3xf32>
  %f = popart.pow %e, %one : (tensor<2x3xf32>, tensor<f32>) -> tensor<2x3xf32>
  %g = popart.cast %f {to = f32} : (tensor<2x3xf32>) -> tensor<2x3xf32>
  %h = popart.reshape %g {shape = array<i64: 2, 3>} : (tensor<2x3xf32>) -> tensor<2x3xf32>
  %i = popart.transpose %h {permutation = array<i64: 0, 1>} : (tensor<2x3xf32>) -> tensor<2x3xf32>
  %j = popart.expand %i {shape = array<i64: 1, 3>} : (tensor<2x3xf32>) -> tensor<2x3xf32>
  %k = popart.slice %j {begins = array<i64: 0, 0>, ends = array<i64: 2, 3>, steps = array<i64: 1, 1>} : (tensor<2x3xf32>) -> tensor<2x3xf32>
  %l = popart.pad %k {lower = array<i64: 0, 0>, upper = array<i64: 0, 0>} : (tensor<2x3xf32>) -> tensor<2x3xf32>
  %m = popart.concat %l {axis = 1 : i64} : (tensor<2x3xf32>) -> tensor<2x3xf32>
  %n = popart.tile %m {repeats = array<i64: 1, 1>} : (tensor<2x3xf32>) -> tensor<2x3xf32>
  %y = popart.reduce_max %n {axes = array<i64>} : (tensor<2x3xf32>) -> tensor<2x3xf32>
  func.return %y : tensor<2x3xf32>
}

// CHECK-LABEL: func.func @main
// CHECK-NOT:   popart
// CHECK:       func.return %x
// OFF: popart.mul
// OFF: popart.reduce_max

// -----

// 0 of the other sign, a swapped division and subtraction, a larger shape, a turned slice, squares: these do something.
func.func @main(%x : tensor<4xf32>, %i : tensor<4xi32>) -> (tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<2x4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xi32>) {
  %one = data.constant dense<1.0> : tensor<f32>
  %ones = data.constant dense<1.0> : tensor<2x1xf32>
  %zero = data.constant dense<0.0> : tensor<f32>
  %none = data.constant dense<0> : tensor<i32>
  %a = popart.add %x, %zero : (tensor<4xf32>, tensor<f32>) -> tensor<4xf32>
  %b = popart.sub %zero, %x : (tensor<f32>, tensor<4xf32>) -> tensor<4xf32>
  %c = popart.div %one, %x : (tensor<f32>, tensor<4xf32>) -> tensor<4xf32>
  %d = popart.mul %x, %ones : (tensor<4xf32>, tensor<2x1xf32>) -> tensor<2x4xf32>
  %e = popart.slice %x {begins = array<i64: 3>, ends = array<i64: -1>, steps = array<i64: -1>} : (tensor<4xf32>) -> tensor<4xf32>
  %f = popart.reduce_sum_square %x {axes = array<i64>} : (tensor<4xf32>) -> tensor<4xf32>
  %g = popart.add %i, %none : (tensor<4xi32>, tensor<i32>) -> tensor<4xi32>
  func.return %a, %b, %c, %d, %e, %f, %g : tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<2x4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xi32>
}

// CHECK: popart.add
// CHECK: popart.sub
// CHECK: popart.div
// CHECK: popart.mul
// CHECK: popart.slice
// CHECK: popart.reduce_sum_square
// CHECK: func.return {{.*}}, %i :

// -----

// Of two parts, one has elements. A pool of single elements.
func.func @main(%x : tensor<1x2x3xf32>, %e : tensor<1x0x3xf32>) -> (tensor<1x2x3xf32>, tensor<1x2x3xf32>) {
  %a = popart.concat %e, %x {axis = 1 : i64} : (tensor<1x0x3xf32>, tensor<1x2x3xf32>) -> tensor<1x2x3xf32>
  %b = popart.max_pool %x {kernel = array<i64: 1>, strides = array<i64: 1>, pads = array<i64: 0, 0>, dilations = array<i64: 1>} : (tensor<1x2x3xf32>) -> tensor<1x2x3xf32>
  func.return %a, %b : tensor<1x2x3xf32>, tensor<1x2x3xf32>
}

// CHECK: func.return %x, %x
