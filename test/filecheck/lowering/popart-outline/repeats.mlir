// RUN: populus-opt %s -p "popart-outline" --split-input-file --verify-each | filecheck %s

// Two blocks of one slope are a function of x and w, a third of another slope is left. The constant that both read is inside.
func.func @main(%x : tensor<4x4xf32>, %w1 : tensor<4x4xf32>, %w2 : tensor<4x4xf32>) -> tensor<4x4xf32> {
  %b = data.constant dense<[1.0, 2.0, 3.0, 4.0]> : tensor<4xf32>
  %m1 = popart.matmul %x, %w1 : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32> loc("first")
  %a1 = popart.add %m1, %b : (tensor<4x4xf32>, tensor<4xf32>) -> tensor<4x4xf32>
  %y1 = popart.leaky_relu %a1 {alpha = 0.1 : f32} : tensor<4x4xf32>
  %m2 = popart.matmul %y1, %w2 : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32> loc("second")
  %a2 = popart.add %m2, %b : (tensor<4x4xf32>, tensor<4xf32>) -> tensor<4x4xf32>
  %y2 = popart.leaky_relu %a2 {alpha = 0.1 : f32} : tensor<4x4xf32>
  %t = popart.transpose %y2 {permutation = array<i64: 1, 0>} : (tensor<4x4xf32>) -> tensor<4x4xf32>
  %y3 = popart.leaky_relu %t {alpha = 0.2 : f32} : tensor<4x4xf32>
  func.return %y3 : tensor<4x4xf32>
}

// CHECK:      func.func @main
// CHECK:        %y1 = func.call @subgraph_0(%x, %w1)
// CHECK-NEXT:   %y2 = func.call @subgraph_0(%y1, %w2)
// CHECK:        popart.leaky_relu %t {alpha = 2.000000e-01 : f32}
// CHECK:      func.func private @subgraph_0(%x: tensor<4x4xf32>, %w1: tensor<4x4xf32>) -> tensor<4x4xf32> {
// CHECK-NEXT:   %b = data.constant
// CHECK-NEXT:   [[M:%.*]] = popart.matmul %x, %w1
// CHECK-NEXT:   [[A:%.*]] = popart.add [[M]], %b
// CHECK-NEXT:   [[Y:%.*]] = popart.leaky_relu [[A]] {alpha = 1.000000e-01 : f32}
// CHECK-NEXT:   func.return [[Y]]

// -----

// Constants that differ are arguments; what one of the occurrences returns too is a result of all.
func.func @main(%x : tensor<4x4xf32>) -> (tensor<4x4xf32>, tensor<4x4xf32>) {
  %w1 = data.constant dense<1.0> : tensor<4x4xf32>
  %w2 = data.constant dense<2.0> : tensor<4x4xf32>
  %m1 = popart.matmul %x, %w1 : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
  %y1 = popart.relu %m1 : tensor<4x4xf32>
  %m2 = popart.matmul %y1, %w2 : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
  %y2 = popart.relu %m2 : tensor<4x4xf32>
  func.return %m2, %y2 : tensor<4x4xf32>, tensor<4x4xf32>
}

// CHECK:      %m1, %y1 = func.call @subgraph_0(%x, %w1)
// CHECK-NEXT: %m2, %y2 = func.call @subgraph_0(%y1, %w2)
// CHECK-NEXT: func.return %m2, %y2
// CHECK:      func.func private @subgraph_0
// CHECK-NOT:    data.constant

// -----

// Four in a row are one that is called four times, not two that are called twice.
func.func @main(%x : tensor<4x4xf32>, %w : tensor<4x4xf32>) -> tensor<4x4xf32> {
  %m1 = popart.matmul %x, %w : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
  %y1 = popart.relu %m1 : tensor<4x4xf32>
  %m2 = popart.matmul %y1, %w : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
  %y2 = popart.relu %m2 : tensor<4x4xf32>
  %m3 = popart.matmul %y2, %w : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
  %y3 = popart.relu %m3 : tensor<4x4xf32>
  %m4 = popart.matmul %y3, %w : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
  %y4 = popart.relu %m4 : tensor<4x4xf32>
  func.return %y4 : tensor<4x4xf32>
}

// CHECK-COUNT-4: func.call @subgraph_0(%{{.*}}, %w)
// CHECK-NOT:     @subgraph_1

// -----

// Each operand from another place is an argument of its own, even if one occurrence gives the same value for both.
func.func @main(%x : tensor<4x4xf32>, %w : tensor<4x4xf32>) -> tensor<4x4xf32> {
  %m1 = popart.matmul %x, %x : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
  %y1 = popart.softmax %m1 {axis = 1 : i64} : (tensor<4x4xf32>) -> tensor<4x4xf32>
  %m2 = popart.matmul %y1, %w : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
  %y2 = popart.softmax %m2 {axis = 1 : i64} : (tensor<4x4xf32>) -> tensor<4x4xf32>
  func.return %y2 : tensor<4x4xf32>
}

// CHECK:      %y1 = func.call @subgraph_0(%x, %x)
// CHECK-NEXT: %y2 = func.call @subgraph_0(%y1, %w)
