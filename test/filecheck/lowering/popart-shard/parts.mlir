// RUN: populus-opt %s -p 'popart-replicate{replicas=4},popart-optimize{optimizer=momentum},popart-shard{replicas=4}' | filecheck %s
// RUN: populus-opt %s -p 'popart-replicate{replicas=4},popart-optimize{optimizer=momentum},popart-shard{replicas=4 weights=true}' | filecheck %s --check-prefix=WEIGHTS
// RUN: populus-opt %s -p 'popart-replicate{replicas=4},popart-optimize{optimizer=momentum},popart-shard{replicas=4 least=7}' | filecheck %s --check-prefix=LEAST
// RUN: populus-opt %s -p 'popart-replicate{replicas=4},popart-optimize{optimizer=sgd clip_norm=true},popart-shard{replicas=4}' | filecheck %s --check-prefix=NORM
// RUN: not populus-opt %s -p 'popart-shard{replicas=4}' 2>&1 | filecheck %s --check-prefix=NONE
// RUN: not populus-opt %s -p 'popart-optimize{optimizer=lamb},popart-shard{replicas=4}' 2>&1 | filecheck %s --check-prefix=LAMB

// NONE: no weight is updated; popart-optimize comes before this pass
// LAMB: lamb scales by the norm of a whole weight, so no replica can update a part; use adamw

// 6 elements are 4 parts of 2, the last of zeros. The state is a part, and the gradient is reduced to one.
// CHECK: func.func @main(%w: tensor<3x2xf32>, %g: tensor<3x2xf32>, {{.*}}, %velocity: tensor<2xf32>, %step: tensor<f32>) -> (tensor<3x2xf32>, tensor<2xf32>, tensor<f32>)
// CHECK: %[[G:.*]] = popart.reduce_scatter %{{.*}} {reduction = "mean", size = 4 : i64} : (tensor<8xf32>) -> tensor<2xf32>
// CHECK: %[[W:.*]] = popart.reduce_scatter %{{.*}} {reduction = "local", size = 4 : i64} : (tensor<8xf32>) -> tensor<2xf32>
// CHECK: %[[NEW:.*]], %[[V:.*]], %[[T:.*]] = train.momentum %[[W]], %[[G]], %velocity, %step
// CHECK: %[[ALL:.*]] = popart.all_gather %[[NEW]] {size = 4 : i64} : (tensor<2xf32>) -> tensor<4x2xf32>
// CHECK-NOT: popart.all_reduce

// A weight that is a part has nothing to gather but for readers, which there are none of here.
// WEIGHTS: func.func @main(%w: tensor<2xf32>, {{.*}}) -> (tensor<2xf32>, tensor<2xf32>, tensor<f32>)
// WEIGHTS-NOT: all_gather

// A small weight stays whole.
// LEAST: train.momentum %w, %{{.*}} : (tensor<3x2xf32>
// LEAST-NOT: scatter

// The norm of all gradients needs them whole, in the order of sums that it has without parts.
// NORM: %[[WHOLE:.*]] = popart.all_reduce %g
// NORM: popops.reduce %[[WHOLE]] {op = "square_add"
func.func @main(%w: tensor<3x2xf32>, %g: tensor<3x2xf32>) -> tensor<3x2xf32> attributes {input_names = ["w", "Gradient_of_w"], output_names = ["Gradient___w"]} {
  func.return %g : tensor<3x2xf32>
}
