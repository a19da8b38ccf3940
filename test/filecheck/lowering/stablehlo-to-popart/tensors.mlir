// RUN: populus-opt %s -p stablehlo-to-popart | filecheck %s

// One rule an op; the generic form is read without jaxlib.
func.func @main(%x: tensor<2x3xf32>, %w: tensor<3x4xf32>, %i: tensor<i32>) -> (tensor<4x2xf32>, tensor<1x3xf32>, tensor<2xf32>) {
  // CHECK: func.func @main(%x: tensor<2x3xf32>, %w: tensor<3x4xf32>, %i: tensor<i32>)
  // CHECK-SAME: input_names = ["x", "w", "i"]
  // CHECK: %d = popart.matmul %x, %w
  %d = "stablehlo.dot_general"(%x, %w) <{dot_dimension_numbers = #stablehlo.dot<lhs_contracting_dimensions = [1], rhs_contracting_dimensions = [0]>, precision_config = [#stablehlo<precision DEFAULT>, #stablehlo<precision HIGHEST>]}> : (tensor<2x3xf32>, tensor<3x4xf32>) -> tensor<2x4xf32>
  %z = "stablehlo.constant"() <{value = dense<0.0> : tensor<f32>}> : () -> tensor<f32>
  %b = "stablehlo.broadcast_in_dim"(%z) <{broadcast_dimensions = array<i64>}> : (tensor<f32>) -> tensor<2x4xf32>
  // CHECK: %r = popart.max %d, %b
  %r = "stablehlo.maximum"(%d, %b) : (tensor<2x4xf32>, tensor<2x4xf32>) -> tensor<2x4xf32>
  // CHECK: %t = popart.transpose %r {permutation = array<i64: 1, 0>}
  %t = "stablehlo.transpose"(%r) <{permutation = array<i64: 1, 0>}> : (tensor<2x4xf32>) -> tensor<4x2xf32>
  // A dynamic slice is a row of a table, at an index that is limited to be inside.
  // CHECK: popart.max
  // CHECK: popart.min
  // CHECK: popart.gather %x, {{.*}} {axis = 0 : i64}
  %k = "stablehlo.constant"() <{value = dense<0> : tensor<i32>}> : () -> tensor<i32>
  %s = "stablehlo.dynamic_slice"(%x, %i, %k) <{slice_sizes = array<i64: 1, 3>}> : (tensor<2x3xf32>, tensor<i32>, tensor<i32>) -> tensor<1x3xf32>
  // CHECK: %q = popart.reduce_sum %x {axes = array<i64: 1>}
  %q = "stablehlo.reduce"(%x, %z) <{dimensions = array<i64: 1>}> ({
  ^bb0(%l: tensor<f32>, %m: tensor<f32>):
    %a = "stablehlo.add"(%l, %m) : (tensor<f32>, tensor<f32>) -> tensor<f32>
    "stablehlo.return"(%a) : (tensor<f32>) -> ()
  }) : (tensor<2x3xf32>, tensor<f32>) -> tensor<2xf32>
  func.return %t, %s, %q : tensor<4x2xf32>, tensor<1x3xf32>, tensor<2xf32>
}
