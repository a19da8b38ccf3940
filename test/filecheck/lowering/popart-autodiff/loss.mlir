// RUN: populus-opt %s -p 'popart-autodiff{loss=loss wrt=w,unused,h}' | filecheck %s

// Of a loss the gradient is 1; a weight becomes an argument; a gradient has its tensor's type.
// CHECK: func.func @main(%x: tensor<2x3xf32>, %unused: tensor<4xf32>, %h: tensor<3xf16>, %w: tensor<3xf32>) -> (tensor<f32>, tensor<3xf32>, tensor<4xf32>, tensor<3xf16>)
// CHECK-SAME: output_names = ["loss", "Gradient___w", "Gradient___unused", "Gradient___h"]
func.func @main(%x: tensor<2x3xf32>, %unused: tensor<4xf32>, %h: tensor<3xf16>) -> tensor<f32> attributes {input_names = ["x", "unused", "h"], output_names = ["loss"]} {
  %w = data.constant dense<[1.0, 2.0, 3.0]> : tensor<3xf32> loc("w")
  // No gradient of x is asked for, so none is computed of this op.
  %q = popart.tan %x : tensor<2x3xf32> loc("before")
  %a = popart.mul %q, %w : (tensor<2x3xf32>, tensor<3xf32>) -> tensor<2x3xf32> loc("scale")
  %c = popart.cast %h {to = f32} : (tensor<3xf16>) -> tensor<3xf32> loc("wide")
  %b = popart.add %a, %c : (tensor<2x3xf32>, tensor<3xf32>) -> tensor<2x3xf32> loc("shift")
  %l = popart.reduce_sum %b {axes = array<i64: 0, 1>} : (tensor<2x3xf32>) -> tensor<f32> loc("sum")
  // CHECK: data.constant dense<1.000000e+00> : tensor<f32>
  // CHECK: popops.broadcast {{.*}} -> tensor<2x3xf32>
  // CHECK-NEXT: popops.reduce {{.*}} -> tensor<3xf32>
  // CHECK-NEXT: popops.map <cast(_1, f16)>
  // CHECK-NEXT: popops.map <mul(_2, _1)>(%q
  // CHECK-NEXT: popops.reduce
  // What the loss does not depend on has the gradient 0.
  // CHECK-NEXT: data.constant dense<0.000000e+00> : tensor<4xf32>
  // CHECK-NEXT: func.return
  func.return %l : tensor<f32>
}
