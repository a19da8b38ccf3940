// RUN: not populus-opt %s 2>&1 | filecheck %s

// CHECK: seed_invalid.mlir:5:3: poprand.random: the seed is tensor<2xi32>, not tensor<2xui32>
func.func @main(%s: tensor<2xi32>) {
  %y = poprand.random %s {distribution = "uniform", a = 0.0 : f32, b = 1.0 : f32, stream = 0 : i64, shape = array<i64: 2>, element = f32} : (tensor<2xi32>) -> tensor<2xf32>
  func.return
}
