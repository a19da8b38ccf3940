// RUN: populus-opt %s -p "poprand-to-poplar{target=gc200 tiles=4}" | filecheck %s

// An element's number is its position in all of y, and so its value does not depend on how the family is cut.
func.func @main(%seed : tensor<2xui32>) -> tensor<8x6xf32> {
  %y = poprand.random %seed {distribution = "uniform", a = 0.0 : f32, b = 1.0 : f32, stream = 0 : i64, shape = array<i64: 8, 6>, element = f32} : (tensor<2xui32>) -> tensor<8x6xf32>
  func.return %y : tensor<8x6xf32>
}

// CHECK:      poplar.family @random {{{.*}}stream = 0 : i64} for (d0 = 8 in 4, d1 = 6 by 2) on (d0)
// CHECK-NEXT:   in seed = %seed[*]
// CHECK-NEXT:   out y = {{.*}}[d0, d1]
