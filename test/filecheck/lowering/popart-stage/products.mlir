// RUN: populus-opt %s -p 'popart-stage{stages=2 stage=0 chips=3}' | filecheck %s --check-prefix=FIRST
// RUN: populus-opt %s -p 'popart-stage{stages=2 stage=1 chips=3}' | filecheck %s --check-prefix=LAST
// RUN: not populus-opt %s -p 'popart-stage{stages=3}' 2>&1 | filecheck %s --check-prefix=MANY
// RUN: not populus-opt %s -p 'popart-stage{stages=2 stage=2}' 2>&1 | filecheck %s --check-prefix=NONE

// A stage has its own constants, inputs and results. Of three chips for each stage, the next is three replicas further.
// FIRST: func.func @main(%x: tensor<4x8xf32>) -> tensor<i32>
// FIRST: %[[B:.*]] = popart.relu
// FIRST: gcl.send %[[B]], %{{.*}} {offset = 3 : i64, tag = 1 : i64}
// FIRST-NOT: popart.matmul

// LAST: func.func @main() -> tensor<4x8xf32>
// LAST: %[[B:.*]] = gcl.receive %{{.*}} {offset = -3 : i64, tag = 1 : i64, shape = array<i64: 4, 6>
// LAST: popart.matmul %[[B]], %v
// LAST-NOT: popart.matmul

// MANY: 3 stages are more than the model's 2 products and convolutions by weights
// NONE: stage = 2 of stages = 2, chips = 1; there is no such stage
func.func @main(%x: tensor<4x8xf32>) -> tensor<4x8xf32> attributes {input_names = ["x"], output_names = ["y"]} {
  %w = data.constant dense<1.0> : tensor<8x6xf32>
  %v = data.constant dense<2.0> : tensor<6x8xf32>
  %a = popart.matmul %x, %w : (tensor<4x8xf32>, tensor<8x6xf32>) -> tensor<4x6xf32>
  %b = popart.relu %a : tensor<4x6xf32>
  %y = popart.matmul %b, %v : (tensor<4x6xf32>, tensor<6x8xf32>) -> tensor<4x8xf32>
  func.return %y : tensor<4x8xf32>
}
