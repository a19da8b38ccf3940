// RUN: populus-opt %s -p poplar-allocate --print-debuginfo | filecheck %s

// One address for each variable on all of its tiles; what is not needed at once, or on no common tile, may share it.

// CHECK: poplar.graph @main
poplar.graph @main target <gc200, tiles = 4> {
  // CHECK-NEXT: %k = poplar.const "k" dense<2.000000e+00> : tensor<16xf32> on [16 in 4] order [0] at 0 : !poplar.tensor<16xf32> loc("weight")
  %k = poplar.const "k" dense<2.0> : tensor<16xf32> on [16 in 4] order [0] : !poplar.tensor<16xf32> loc("weight")
  // CHECK: poplar.var "a" on [16 in 4] order [0] at 16
  %a = poplar.var "a" on [16 in 4] order [0] : !poplar.tensor<16xf32>
  // CHECK: poplar.var "b" on [16 in 4] order [0] at 32
  %b = poplar.var "b" on [16 in 4] order [0] : !poplar.tensor<16xf32>
  // "a" is dead when "c" is born.
  // CHECK: poplar.var "c" on [16 in 4] order [0] at 16
  %c = poplar.var "c" on [16 in 4] order [0] : !poplar.tensor<16xf32>
  // On tiles of their own. A variable that no step touches gets no address.
  // CHECK: poplar.var "low" on [8 in 2] order [0] at 32
  %low = poplar.var "low" on [8 in 2] order [0] : !poplar.tensor<8xf32>
  // CHECK: poplar.var "high" on [8 in 2] order [0] start 2 at 32
  %high = poplar.var "high" on [8 in 2] order [0] start 2 : !poplar.tensor<8xf32>
  // CHECK: poplar.var "unused" on [8 in 2] order [0] :
  %unused = poplar.var "unused" on [8 in 2] order [0] : !poplar.tensor<8xf32>
  poplar.stream_in "a" to %a : !poplar.tensor<16xf32>
  poplar.execute "b" {
    poplar.family @map {expr = #expr.fn<mul(_1, _2)>} for (i = 16 in 4) on (i)
      in x1 = %a[i] : !poplar.tensor<16xf32>
      in x2 = %k[i] : !poplar.tensor<16xf32>
      out y = %b[i] : !poplar.tensor<16xf32>
  }
  poplar.execute "c" {
    poplar.family @map {expr = #expr.fn<mul(_1, _1)>} for (i = 16 in 4) on (i)
      in x1 = %b[i] : !poplar.tensor<16xf32>
      out y = %c[i] : !poplar.tensor<16xf32>
  }
  %c0 = poplar.slice %c[0:8] : !poplar.tensor<16xf32> -> !poplar.tensor<8xf32>
  %c1 = poplar.slice %c[8:16] : !poplar.tensor<16xf32> -> !poplar.tensor<8xf32>
  poplar.copy %c0 to %low : !poplar.tensor<8xf32>
  poplar.copy %c1 to %high : !poplar.tensor<8xf32>
  poplar.stream_out %low to "low" : !poplar.tensor<8xf32>
  poplar.stream_out %high to "high" : !poplar.tensor<8xf32>
}
