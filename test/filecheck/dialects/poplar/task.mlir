// RUN: populus-opt %s | populus-opt - | filecheck %s

// A task prints as it is read: its steps in order, and the accesses of their families.
poplar.graph @main target <host, tiles = 4> {
  %x = poplar.var "x" on [1, 3, 8 in 4, 8] order [2] : !poplar.tensor<1x3x8x8xf32>
  %w = poplar.var "w" on [4, 3, 3, 3] : !poplar.tensor<4x3x3x3xf32>
  %y = poplar.var "y" on [1, 4, 8 in 4, 8] order [2] : !poplar.tensor<1x4x8x8xf32>
  poplar.stream_in "x" to %x : !poplar.tensor<1x3x8x8xf32>
  poplar.stream_in "w" to %w : !poplar.tensor<4x3x3x3xf32>
  poplar.task "conv" {
    poplar.execute "conv" {
      poplar.family @conv for (b = 1, oc = 4, ic = 3, o0 = 8 in 4, o1 = 8, k0 = 3, k1 = 3) on (o0)
        in x = %x[b, ic, o0 + k0 - 1, o1 + k1 - 1] : !poplar.tensor<1x3x8x8xf32>
        in w = %w[oc, ic, k0, k1] : !poplar.tensor<4x3x3x3xf32>
        out y = %y[b, oc, o0, o1] : !poplar.tensor<1x4x8x8xf32>
      poplar.family @map {expr = #expr.fn<max(_1, 0)>} for (d0 = 1, d1 = 4, d2 = 8 in 4, d3 = 8) on (d2)
        inout x1 = %y[d0, d1, d2, d3] : !poplar.tensor<1x4x8x8xf32>
    }
  }
  poplar.stream_out %y to "y" : !poplar.tensor<1x4x8x8xf32>
}

// CHECK: poplar.task "conv" {
// CHECK-NEXT: poplar.execute "conv" {
// CHECK-NEXT: poplar.family @conv for (b = 1, oc = 4, ic = 3, o0 = 8 in 4, o1 = 8, k0 = 3, k1 = 3) on (o0)
// CHECK: poplar.family @map {expr = #expr.fn<max(_1, 0)>}
// CHECK-NEXT: inout x1 = %y[d0, d1, d2, d3]
