// RUN: populus-opt %s -p 'popart-autodiff{wrt=x loss=y recompute=2}' | filecheck %s

// The first of two parts is computed again before its gradients; the second is kept.
func.func @main(%x: tensor<4xf32>) -> tensor<f32> attributes {input_names = ["x"], output_names = ["y"]} {
  // CHECK: %a = popart.exp %x
  %a = popart.exp %x : tensor<4xf32>
  %b = popart.exp %a : tensor<4xf32>
  %c = popart.exp %b : tensor<4xf32>
  %y = popart.reduce_sum %c {axes = array<i64: 0>} : (tensor<4xf32>) -> tensor<f32>
  // CHECK: popops.map <mul({{.*}})>(%c,
  // CHECK: %[[A:.*]] = popart.exp %x
  // CHECK: %[[B:.*]] = popart.exp %[[A]]
  // CHECK: popops.map <mul({{.*}})>(%[[B]],
  // CHECK: popops.map <mul({{.*}})>(%[[A]],
  func.return %y : tensor<f32>
}
