// RUN: populus-opt %s -p stablehlo-to-popart | filecheck %s

// A scan as JAX writes it: rows of %xs are read, rows of the last value are written, and no condition is computed.
func.func @main(%xs: tensor<6x4xf32>, %c: tensor<4xf32>) -> (tensor<4xf32>, tensor<6x4xf32>) {
  %zero = "stablehlo.constant"() <{value = dense<0> : tensor<i32>}> : () -> tensor<i32>
  %rows = "stablehlo.constant"() <{value = dense<0.0> : tensor<6x4xf32>}> : () -> tensor<6x4xf32>
  // CHECK-NOT: popart.less
  // CHECK: popart.loop(%c, %xs) {scanned = 1 : i64, trips = 6 : i64} : (tensor<4xf32>, tensor<6x4xf32>) -> (tensor<4xf32>, tensor<6x4xf32>)
  // CHECK-NOT: popart.gather
  // CHECK-NOT: popart.scatter
  %0:4 = "stablehlo.while"(%xs, %zero, %c, %rows) ({
  ^bb0(%x: tensor<6x4xf32>, %i: tensor<i32>, %v: tensor<4xf32>, %y: tensor<6x4xf32>):
    %n = "stablehlo.constant"() <{value = dense<6> : tensor<i32>}> : () -> tensor<i32>
    %go = "stablehlo.compare"(%i, %n) <{comparison_direction = #stablehlo<comparison_direction LT>}> : (tensor<i32>, tensor<i32>) -> tensor<i1>
    "stablehlo.return"(%go) : (tensor<i1>) -> ()
  }, {
  ^bb0(%x: tensor<6x4xf32>, %i: tensor<i32>, %v: tensor<4xf32>, %y: tensor<6x4xf32>):
    %z = "stablehlo.constant"() <{value = dense<0> : tensor<i32>}> : () -> tensor<i32>
    %r = "stablehlo.dynamic_slice"(%x, %i, %z) <{slice_sizes = array<i64: 1, 4>}> : (tensor<6x4xf32>, tensor<i32>, tensor<i32>) -> tensor<1x4xf32>
    %s = "stablehlo.reshape"(%r) : (tensor<1x4xf32>) -> tensor<4xf32>
    %w = "stablehlo.add"(%v, %s) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
    %u = "stablehlo.reshape"(%w) : (tensor<4xf32>) -> tensor<1x4xf32>
    %t = "stablehlo.dynamic_update_slice"(%y, %u, %i, %z) : (tensor<6x4xf32>, tensor<1x4xf32>, tensor<i32>, tensor<i32>) -> tensor<6x4xf32>
    %one = "stablehlo.constant"() <{value = dense<1> : tensor<i32>}> : () -> tensor<i32>
    %j = "stablehlo.add"(%i, %one) : (tensor<i32>, tensor<i32>) -> tensor<i32>
    "stablehlo.return"(%x, %j, %w, %t) : (tensor<6x4xf32>, tensor<i32>, tensor<4xf32>, tensor<6x4xf32>) -> ()
  }) : (tensor<6x4xf32>, tensor<i32>, tensor<4xf32>, tensor<6x4xf32>) -> (tensor<6x4xf32>, tensor<i32>, tensor<4xf32>, tensor<6x4xf32>)
  func.return %0#2, %0#3 : tensor<4xf32>, tensor<6x4xf32>
}
