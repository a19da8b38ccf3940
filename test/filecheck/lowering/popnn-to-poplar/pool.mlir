// RUN: populus-opt %s -p "popnn-to-poplar{target=gc200 tiles=8}" | filecheck %s

// Channels are shared out first; the kernel is never cut.
func.func @main(%x : tensor<1x8x6x6xf32>) -> tensor<1x8x3x3xf32> {
  %y = popnn.pool %x {kind = "max", kernel = array<i64: 3, 3>, strides = array<i64: 2, 2>, pads = array<i64: 1, 1, 0, 0>, dilations = array<i64: 1, 1>} : (tensor<1x8x6x6xf32>) -> tensor<1x8x3x3xf32>
  func.return %y : tensor<1x8x3x3xf32>
}

// CHECK:      poplar.family @pool {kind = "max"{{.*}}} for (n = 1, c = 8 in 8, o0 = 3, o1 = 3{{.*}}, k0 = 3, k1 = 3) on (c)
// CHECK-NEXT:   in x = %x[n, c, o0 * 2 + k0 - 1, o1 * 2 + k1 - 1]
// CHECK-NEXT:   out y = {{.*}}[n, c, o0, o1]
