// RUN: populus-opt %s -p 'popart-autodiff{wrt=x,w loss=y},popart-accumulate{steps=4 reduction=add wide=false weights=w kept=w}' | filecheck %s
// RUN: not populus-opt %s -p 'popart-autodiff{wrt=w loss=y},popart-accumulate{steps=2 reduction=max}' 2>&1 | filecheck %s --check-prefix=KIND

// KIND: reduction = max; one of mean, add is expected

// The gradient of w is summed in its own type, and that of one run stays a result; x has no sum.
// CHECK: func.func @main(%x: tensor<4xf16>, %w: tensor<4xf16>, %sum: tensor<4xf16>)
// CHECK-SAME: output_names = ["y", "Gradient___x", "Gradient___w", "Accl___w"]
func.func @main(%x: tensor<4xf16>, %w: tensor<4xf16>) -> tensor<f16> attributes {input_names = ["x", "w"], output_names = ["y"]} {
  %a = popart.mul %x, %w : (tensor<4xf16>, tensor<4xf16>) -> tensor<4xf16>
  %y = popart.reduce_sum %a {axes = array<i64: 0>} : (tensor<4xf16>) -> tensor<f16>
  // CHECK: popops.map <add(_1, _2)>(%sum, %{{.*}})
  func.return %y : tensor<f16>
}
