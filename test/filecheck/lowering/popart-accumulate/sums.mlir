// RUN: populus-opt %s -p 'popart-autodiff{wrt=w loss=y},popart-accumulate{steps=4}' | filecheck %s
// RUN: not populus-opt %s -p popart-accumulate 2>&1 | filecheck %s --check-prefix=NONE
// RUN: not populus-opt %s -p 'popart-accumulate{steps=0}' 2>&1 | filecheck %s --check-prefix=STEPS

// NONE: no result is a gradient of an input; popart-autodiff comes before this pass
// STEPS: steps = 0; gradients of at least 1 batch are summed

// A gradient of 16 bits is summed in f32.
// CHECK: func.func @main(%x: tensor<4xf16>, %w: tensor<4xf16>, %sum: tensor<4xf32>) -> (tensor<f16>, tensor<4xf32>)
// CHECK-SAME: input_names = ["x", "w", "Accl___w"]
// CHECK-SAME: output_names = ["y", "Accl___w"]
func.func @main(%x: tensor<4xf16>, %w: tensor<4xf16>) -> tensor<f16> attributes {input_names = ["x", "w"], output_names = ["y"]} {
  %a = popart.mul %x, %w : (tensor<4xf16>, tensor<4xf16>) -> tensor<4xf16>
  %y = popart.reduce_sum %a {axes = array<i64: 0>} : (tensor<4xf16>) -> tensor<f16>
  // CHECK: popops.map <add(_1, mul(cast(_2, f32), 0.25))>(%sum, %{{.*}})
  func.return %y : tensor<f16>
}
