// RUN: populus-opt %s | populus-opt | filecheck %s

// Numbers of a seed and a stream.
func.func @main(%seed: tensor<2xui32>) {
  // CHECK: %u = poprand.random %seed {distribution = "uniform", a = 0.000000e+00 : f32, b = 1.000000e+00 : f32, stream = 3 : i64, shape = array<i64: 2, 2>, element = f16} : (tensor<2xui32>) -> tensor<2x2xf16>
  %u = poprand.random %seed {distribution = "uniform", a = 0.000000e+00 : f32, b = 1.000000e+00 : f32, stream = 3 : i64, shape = array<i64: 2, 2>, element = f16} : (tensor<2xui32>) -> tensor<2x2xf16>
  func.return
}
