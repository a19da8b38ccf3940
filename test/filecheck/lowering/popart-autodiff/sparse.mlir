// RUN: populus-opt %s -p 'popart-autodiff{sparse=w loss=y},popart-optimize{optimizer=sgd}' | filecheck %s
// RUN: not populus-opt %s -p 'popart-autodiff{sparse=x loss=y}' 2>&1 | filecheck %s --check-prefix=READ

// READ: 'x' is read by popart.mul too, not only looked up by rows, so its gradient is not sparse

// Gradients of the three rows, those of one number summed, and only these rows written.
// CHECK: output_names = ["y", "Updated___w"]
func.func @main(%x: tensor<3x4xf32>, %i: tensor<3xi64>, %w: tensor<100x4xf32>) -> tensor<f32>
    attributes {input_names = ["x", "i", "w"], output_names = ["y"]} {
  %a = popart.gather %w, %i {axis = 0 : i64} : (tensor<100x4xf32>, tensor<3xi64>) -> tensor<3x4xf32>
  %b = popart.mul %a, %x : (tensor<3x4xf32>, tensor<3x4xf32>) -> tensor<3x4xf32>
  %y = popart.reduce_sum %b {axes = array<i64: 0, 1>} : (tensor<3x4xf32>) -> tensor<f32>
  // CHECK: %[[AT:.*]] = popops.map <select(add(_1, 100), _1, lt(_1, 0))>(%i)
  // Where the first row of each number is: no matrix of rows by rows, whose zeros would spread an infinite row.
  // CHECK: %[[FIRST:.*]] = popops.multi_update %{{.*}} {op = "min"} : (tensor<101xi32>, tensor<3xi64>, tensor<3xi32>) -> tensor<101xi32>
  // CHECK: %[[PLACE:.*]] = popops.multi_slice %[[FIRST]]
  // CHECK: %[[SUMS:.*]] = popops.multi_update %{{.*}}, %[[PLACE]], %{{.*}} {op = "add"} : (tensor<3x4xf32>
  // CHECK: %[[G:.*]] = popops.multi_slice %[[SUMS]], %[[PLACE]]
  // CHECK: %[[ROWS:.*]] = popops.multi_slice %w, %[[AT]]
  // CHECK: %[[NEW:.*]] = train.sgd %[[ROWS]], %[[G]], %rate, %decay
  // CHECK: popops.multi_update %w, %[[AT]], %[[NEW]] {op = "set"}
  func.return %y : tensor<f32>
}
