// RUN: populus-opt %s -p poplar-map --print-debuginfo | filecheck %s
// RUN: populus-opt %s -p "poplar-map{shared=false}" --print-debuginfo | filecheck %s --check-prefix SPREAD

// A weight is cut as the family that reads it; what several tiles read is cut among them.

// CHECK: poplar.graph @main
poplar.graph @main target <gc200, tiles = 16> {
  // Eight tiles read the same half of x: each has an eighth of it.
  // CHECK-NEXT: poplar.var "x" on [1, 64 in 2, 58 in 8] order [2, 1] : !poplar.tensor<1x64x58xf32> loc("input")
  // SPREAD: poplar.var "x" on [1, 64 in 16, {{58.*}}] order [1] : !poplar.tensor<1x64x58xf32> loc("input")
  %x = poplar.var "x" : !poplar.tensor<1x64x58xf32> loc("input")
  // CHECK: poplar.const "w" dense<5.000000e-01> : tensor<64x64x3xf32> on [64 in 8 by 8, 64 in 2, 3] order [0, 1] : !poplar.tensor<64x64x3xf32>
  %w = poplar.const "w" dense<0.5> : tensor<64x64x3xf32> : !poplar.tensor<64x64x3xf32>
  // A part number: one partial result to a part.
  // CHECK: poplar.var "p" on [2 in 2, 1, 64 in 8 by 8, 56] order [2, 0] : !poplar.tensor<2x1x64x56xf32>
  %p = poplar.var "p" : !poplar.tensor<2x1x64x56xf32>
  // Seen transposed, then cut along what is its second dimension.
  // CHECK: poplar.const "t" {{.*}} on [56, 64 in 16] order [1] start 3 : !poplar.tensor<56x64xf32>
  %t = poplar.const "t" dense<0.5> : tensor<56x64xf32> : !poplar.tensor<56x64xf32>
  %tt = poplar.dim_shuffle %t [1, 0] : !poplar.tensor<56x64xf32> -> !poplar.tensor<64x56xf32>
  // A layout that is there stays.
  // CHECK: poplar.var "y" on [1, 64 in 4, 56] order [1] : !poplar.tensor<1x64x56xf32>
  %y = poplar.var "y" on [1, 64 in 4, 56] order [1] : !poplar.tensor<1x64x56xf32>
  // CHECK: poplar.execute "conv"
  poplar.execute "conv" {
    poplar.family @conv for (b = 1, oc = 64 in 8 by 8, ic = 64 in 2, o0 = 56, k0 = 3) on (oc, ic)
      in x = %x[b, ic, o0 + k0] : !poplar.tensor<1x64x58xf32>
      in w = %w[oc, ic, k0] : !poplar.tensor<64x64x3xf32>
      out y = %p[at ic, b, oc, o0] : !poplar.tensor<2x1x64x56xf32>
  }
  %r = poplar.reshape %y : !poplar.tensor<1x64x56xf32> -> !poplar.tensor<64x56xf32>
  poplar.execute "add" {
    poplar.family @map {expr = #expr.fn<add(_1, _2)>} for (d0 = 64 in 16, d1 = 56) on (d0) start 3
      inout x1 = %r[d0, d1] : !poplar.tensor<64x56xf32>
      in x2 = %tt[d0, d1] : !poplar.tensor<64x56xf32>
  }
}
