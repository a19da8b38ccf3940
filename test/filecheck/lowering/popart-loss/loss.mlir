// RUN: populus-opt %s -p popart-loss | filecheck %s
// RUN: populus-opt %s -p 'popart-loss{loss=mean_squared_error}' | filecheck %s --check-prefix=SQUARE
// RUN: not populus-opt %s -p 'popart-loss{loss=crossentropy}' 2>&1 | filecheck %s --check-prefix=LOSS
// RUN: not populus-opt %s -p 'popart-loss{output=z}' 2>&1 | filecheck %s --check-prefix=OUTPUT
// RUN: not populus-opt %s -p 'popart-loss{axis=2}' 2>&1 | filecheck %s --check-prefix=AXIS

// LOSS: no loss 'crossentropy'; did you mean 'cross_entropy'?
// OUTPUT: there is no output 'z'; there are y
// AXIS: the output 'y' is tensor<2x3xf32> and has no dimension 2 of classes

// CHECK: func.func @main(%x: tensor<2x3xf32>, %labels: tensor<2xi32>)
// CHECK-SAME: input_names = ["x", "labels"], output_names = ["y", "losses", "loss"]
// SQUARE: func.func @main(%x: tensor<2x3xf32>, %labels: tensor<2x3xf32>)
func.func @main(%x: tensor<2x3xf32>) -> tensor<2x3xf32> attributes {input_names = ["x"], output_names = ["y"]} {
  %a = popart.neg %x : tensor<2x3xf32>
  // Cross entropy is of the logits, not of what the softmax makes of them.
  // CHECK: %[[EACH:.*]] = train.cross_entropy %a, %labels : (tensor<2x3xf32>, tensor<2xi32>) -> tensor<2xf32>
  // CHECK-NEXT: %[[MEAN:.*]] = popart.reduce_mean %[[EACH]] {axes = array<i64: 0>} : (tensor<2xf32>) -> tensor<f32>
  // CHECK-NEXT: func.return %y, %[[EACH]], %[[MEAN]]
  // SQUARE: train.squared_error %y, %labels
  %y = popart.softmax %a {axis = 1 : i64} : (tensor<2x3xf32>) -> tensor<2x3xf32>
  func.return %y : tensor<2x3xf32>
}
