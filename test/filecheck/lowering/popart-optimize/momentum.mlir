// RUN: populus-opt %s -p 'popart-autodiff{wrt=w loss=y},popart-optimize{optimizer=momentum clip_norm=true}' | filecheck %s
// RUN: not populus-opt %s -p 'popart-autodiff{wrt=w loss=y},popart-optimize{optimizer=adamm}' 2>&1 | filecheck %s --check-prefix=UNKNOWN
// RUN: not populus-opt %s -p popart-optimize 2>&1 | filecheck %s --check-prefix=NONE

// UNKNOWN: no optimizer 'adamm'; did you mean 'adam
// NONE: no result is a gradient of an input; popart-autodiff comes before this pass

// CHECK: input_names = ["x", "w", "Hyper___rate", "Hyper___decay", "Hyper___momentum", "Hyper___damping", "Hyper___clip_norm", "State___w___velocity", "State___w___step"]
// CHECK-SAME: output_names = ["y", "Updated___w", "State___w___velocity", "State___w___step"]
func.func @main(%x: tensor<4xf32>, %w: tensor<4xf32>) -> tensor<f32> attributes {input_names = ["x", "w"], output_names = ["y"]} {
  %a = popart.mul %x, %w : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  %y = popart.reduce_sum %a {axes = array<i64: 0>} : (tensor<4xf32>) -> tensor<f32>
  // CHECK: %[[SQUARE:.*]] = popops.reduce %[[G:.*]] {op = "square_add", dims = array<i64: 0>}
  // CHECK-NEXT: %[[FACTOR:.*]] = popops.map <min(divide(_2, add(sqrt(_1), 1.0e-06)), 1)>(%[[SQUARE]], %clip_norm)
  // CHECK-NEXT: %[[CLIPPED:.*]] = popops.map <mul(_1, _2)>(%[[G]], %[[FACTOR]])
  // CHECK-NEXT: %[[W:.*]], %[[V:.*]], %[[T:.*]] = train.momentum %w, %[[CLIPPED]], %velocity, %step, %rate, %decay, %momentum, %damping
  // CHECK-NEXT: func.return %y, %[[W]], %[[V]], %[[T]]
  func.return %y : tensor<f32>
}
