// RUN: populus-opt %s -p 'popart-autodiff{wrt=w,v loss=loss},popart-pipeline{stages=2 stage=0 micro_batches=3}' | filecheck %s
// RUN: populus-opt %s -p 'popart-autodiff{wrt=w,v loss=loss},popart-pipeline{stages=2 stage=1 micro_batches=3}' | filecheck %s --check-prefix=LAST
// RUN: populus-opt %s -p 'popart-autodiff{wrt=w,v loss=loss},popart-pipeline{micro_batches=2}' | filecheck %s --check-prefix=ONE
// RUN: not populus-opt %s -p 'popart-autodiff{wrt=w,v loss=loss},popart-pipeline{stages=3}' 2>&1 | filecheck %s --check-prefix=MANY
// RUN: not populus-opt %s -p 'popart-autodiff{wrt=w,v loss=loss},popart-pipeline{stages=2 cuts=away}' 2>&1 | filecheck %s --check-prefix=AWAY
// RUN: not populus-opt %s -p 'popart-autodiff{wrt=w,v loss=loss},popart-pipeline{stages=2 stage=2}' 2>&1 | filecheck %s --check-prefix=STAGE

// MANY: 3 stages are more than the model's 2 layers (ops with a matrix of weights)
// AWAY: there is no node 'away' to cut after
// STAGE: stages = 2, stage = 2, micro_batches = 1; no such stage

// The first stage has w alone. It is one micro-batch ahead; then a forward and a backward part by turns.
// CHECK: func.func @main(%x: tensor<12x3xf32>, %w: tensor<3x5xf32>) -> (tensor<f32>, tensor<3x5xf32>, tensor<i32>)
// CHECK-SAME: output_names = ["loss", "Gradient___w", "Sent"]
// CHECK: %[[T0:.*]] = popart.tanh
// CHECK: %[[S0:.*]] = gcl.send %[[T0]], %{{.*}} {offset = 1 : i64, tag = 1 : i64}
// CHECK: %[[S1:.*]] = gcl.send %{{.*}}, %[[S0]] {offset = 1 : i64, tag = 3 : i64}
// CHECK: gcl.receive %[[S1]] {offset = 1 : i64, tag = 2 : i64, shape = array<i64: 1, 4, 5>, element = f32}
// CHECK: %[[S2:.*]] = gcl.send %{{.*}}, %[[S1]] {offset = 1 : i64, tag = 5 : i64}
// CHECK: gcl.receive %[[S2]] {offset = 1 : i64, tag = 4 : i64
// CHECK: gcl.receive %[[S2]] {offset = 1 : i64, tag = 6 : i64
// CHECK: popart.all_reduce %{{.*}} {size = 2 : i64} : (tensor<f32>)
// CHECK: popops.map <mul(_1, 0.333{{.*}})>

// The last stage has the loss, and a backward part after each forward one.
// LAST: func.func @main(%x: tensor<12x3xf32>, %v: tensor<5x2xf32>)
// LAST: gcl.receive %{{.*}} {offset = -1 : i64, tag = 1 : i64, shape = array<i64: 4, 5>, element = f32}
// LAST: popart.reduce_mean
// LAST: %[[B0:.*]] = gcl.send %{{.*}} {offset = -1 : i64, tag = 2 : i64}
// LAST: gcl.receive %[[B0]] {offset = -1 : i64, tag = 3 : i64
// LAST: gcl.send %{{.*}}, %[[B0]] {offset = -1 : i64, tag = 4 : i64}

// One stage accumulates, and sends nothing.
// ONE: func.func @main(%x: tensor<8x3xf32>, %w: tensor<3x5xf32>, %v: tensor<5x2xf32>)
// ONE-NOT: gcl.
func.func @main(%x: tensor<4x3xf32>, %w: tensor<3x5xf32>, %v: tensor<5x2xf32>) -> tensor<f32> attributes {input_names = ["x", "w", "v"], output_names = ["loss"]} {
  %a = popart.matmul %x, %w : (tensor<4x3xf32>, tensor<3x5xf32>) -> tensor<4x5xf32>
  %t = popart.tanh %a : tensor<4x5xf32>
  %d = popart.matmul %t, %v : (tensor<4x5xf32>, tensor<5x2xf32>) -> tensor<4x2xf32>
  %y = popart.reduce_mean %d {axes = array<i64: 0, 1>} : (tensor<4x2xf32>) -> tensor<f32>
  func.return %y : tensor<f32>
}
