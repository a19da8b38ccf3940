// RUN: populus-opt %s -p popart-seed | filecheck %s

// CHECK: func.func @main(%x: tensor<4xf32>, %seed: tensor<2xui32>)
// CHECK-SAME: input_names = ["x", "Seed"]
func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> attributes {input_names = ["x"], output_names = ["y"]} {
  // CHECK: %[[OWN:.*]] = data.constant
  %own = data.constant dense<[7, 0]> : tensor<2xui32>
  // CHECK-NEXT: %[[MIXED:.*]] = popart.bitwise_xor %[[OWN]], %seed
  // CHECK-NEXT: popart.random %[[MIXED]]
  %r = popart.random %own {distribution = "uniform", shape = array<i64: 4>} : (tensor<2xui32>) -> tensor<4xf32>
  %y = popart.add %x, %r : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  func.return %y : tensor<4xf32>
}
