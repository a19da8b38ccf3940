// RUN: populus-opt %s -p 'popart-tensor-parallel{parts=2 part=1}' | filecheck %s

// A norm of matrices that are cut has its part of a scale that differs from one to the next.
// CHECK: func.func @main
// CHECK: popart.matmul %{{.*}} : (tensor<2x3x7xf32>, tensor<2x7x5xf32>) -> tensor<2x3x5xf32>
// CHECK: %[[S:.*]] = popart.slice %s {begins = array<i64: 2, 0, 0>, ends = array<i64: 4, 3, 5>
// CHECK: popart.layer_norm %{{.*}}, %[[S]] {axis = 2 : i64{{.*}} : (tensor<2x3x5xf32>, tensor<2x3x5xf32>) -> tensor<2x3x5xf32>
func.func @main(%x: tensor<4x3x7xf32>) -> tensor<4x3x5xf32> attributes {input_names = ["x"], output_names = ["y"]} {
  %w = data.constant dense<1.0> : tensor<4x7x5xf32>
  %s = data.constant dense<2.0> : tensor<4x3x5xf32>
  %a = popart.matmul %x, %w : (tensor<4x3x7xf32>, tensor<4x7x5xf32>) -> tensor<4x3x5xf32>
  %n = popart.layer_norm %a, %s {axis = 2 : i64} : (tensor<4x3x5xf32>, tensor<4x3x5xf32>) -> tensor<4x3x5xf32>
  %y = popart.relu %n : tensor<4x3x5xf32>
  func.return %y : tensor<4x3x5xf32>
}
