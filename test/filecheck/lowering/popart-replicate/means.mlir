// RUN: populus-opt %s -p 'popart-autodiff{wrt=w loss=loss},popart-replicate{replicas=4}' | filecheck %s
// RUN: populus-opt %s -p 'popart-autodiff{wrt=w loss=loss},popart-replicate{replicas=2 stride=2 reduction=add}' | filecheck %s --check-prefix=SUM
// RUN: populus-opt %s -p 'popart-autodiff{sparse=w loss=loss},popart-replicate{replicas=4}' | filecheck %s --check-prefix=ROWS
// RUN: not populus-opt %s -p 'popart-autodiff{wrt=w loss=loss},popart-replicate{replicas=2 reduction=max}' 2>&1 | filecheck %s --check-prefix=MAX
// RUN: not populus-opt %s -p 'popart-replicate{replicas=0}' 2>&1 | filecheck %s --check-prefix=NONE

// MAX: reduction = max; one of mean, add is expected
// NONE: replicas = 0, stride = 1; at least 1 is expected of both

// The loss and the gradient become means of the replicas, where each is made.
// CHECK: %[[LOSS:.*]] = popart.reduce_mean
// CHECK-NEXT: %[[ALL:.*]] = popart.all_reduce %[[LOSS]] {reduction = "mean", size = 4 : i64}
// CHECK: %[[GRADIENT:.*]] = popart.all_reduce %{{.*}} {reduction = "mean", size = 4 : i64} : (tensor<5x2xf32>)
// CHECK: func.return %[[ALL]], %[[GRADIENT]]

// A sum of gradients, over groups of every second replica; the loss stays a mean.
// SUM: popart.all_reduce %{{.*}} {reduction = "mean", size = 2 : i64, stride = 2 : i64} : (tensor<f32>)
// SUM: popart.all_reduce %{{.*}} {size = 2 : i64, stride = 2 : i64} : (tensor<5x2xf32>)

// The rows of all replicas follow each other, and their gradients are shares of a mean.
// ROWS: popart.all_gather %{{.*}} {size = 4 : i64} : (tensor<3x2xf32>) -> tensor<4x3x2xf32>
// ROWS: popops.map <mul(_1, 0.25)>(%{{.*}}) : (tensor<12x2xf32>)
// ROWS: popart.all_gather %{{.*}} {size = 4 : i64} : (tensor<3xi64>) -> tensor<4x3xi64>
func.func @main(%w: tensor<5x2xf32>, %i: tensor<3xi32>) -> tensor<f32> attributes {input_names = ["w", "i"], output_names = ["loss"]} {
  %rows = popart.gather %w, %i {axis = 0 : i64} : (tensor<5x2xf32>, tensor<3xi32>) -> tensor<3x2xf32>
  %loss = popart.reduce_mean %rows {axes = array<i64: 0, 1>} : (tensor<3x2xf32>) -> tensor<f32>
  func.return %loss : tensor<f32>
}
