// RUN: populus-opt %s -p poplar-map | filecheck %s

// Of several readers the one with the largest iteration space decides, if its tiles have parts of their own; else the next.

poplar.graph @main target <gc200, tiles = 8> {
  // CHECK: poplar.var "a" on [64 in 8, 32] order [0] : !poplar.tensor<64x32xf32>
  %a = poplar.var "a" : !poplar.tensor<64x32xf32>
  // CHECK: poplar.var "both" on [8 in 8] order [0] start 1 : !poplar.tensor<8xf32>
  %both = poplar.var "both" : !poplar.tensor<8xf32>
  %y = poplar.var "y" on [64 in 8, 32] order [0] : !poplar.tensor<64x32xf32>
  %s = poplar.var "s" on [32] : !poplar.tensor<32xf32>
  %v = poplar.var "v" on [8 in 8] order [0] : !poplar.tensor<8xf32>
  %m = poplar.var "m" on [8, 64 in 8] order [1] : !poplar.tensor<8x64xf32>
  poplar.execute "row sums" {
    poplar.family @reduce {op = "add"} for (r = 2, d0 = 32 in 4) on (d0)
      in x = %a[r, d0] : !poplar.tensor<64x32xf32>
      out y = %s[d0] : !poplar.tensor<32xf32>
  }
  poplar.execute "copy" {
    poplar.family @map {expr = #expr.fn<_1>} for (d0 = 64 in 8, d1 = 32) on (d0)
      in x1 = %a[d0, d1] : !poplar.tensor<64x32xf32>
      out y = %y[d0, d1] : !poplar.tensor<64x32xf32>
  }
  // Each vertex reads all of "both" here,
  %column = poplar.reshape %both : !poplar.tensor<8xf32> -> !poplar.tensor<8x1xf32>
  poplar.execute "matrix" {
    poplar.family @map {expr = #expr.fn<_1>} for (i = 8, j = 64 in 8) on (j)
      in x1 = %column[i, 0] : !poplar.tensor<8x1xf32>
      out y = %m[i, j] : !poplar.tensor<8x64xf32>
  }
  // and one element of it here.
  poplar.execute "vector" {
    poplar.family @map {expr = #expr.fn<_1>} for (i = 8 in 8) on (i) start 1
      in x1 = %both[i] : !poplar.tensor<8xf32>
      out y = %v[i] : !poplar.tensor<8xf32>
  }
}
