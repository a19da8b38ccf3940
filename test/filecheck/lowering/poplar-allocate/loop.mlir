// RUN: populus-opt %s -p poplar-allocate | filecheck %s

// What a loop reads from before it stays through all of its rounds, though its last reader stands early in the body.

poplar.graph @main target <gc200, tiles = 4> {
  // CHECK: poplar.var "before" on [16 in 4] order [0] at 0
  %before = poplar.var "before" on [16 in 4] order [0] : !poplar.tensor<16xf32>
  // CHECK: poplar.var "b" on [16 in 4] order [0] at 16
  %b = poplar.var "b" on [16 in 4] order [0] : !poplar.tensor<16xf32>
  // CHECK: poplar.var "c" on [16 in 4] order [0] at 32
  %c = poplar.var "c" on [16 in 4] order [0] : !poplar.tensor<16xf32>
  poplar.stream_in "before" to %before : !poplar.tensor<16xf32>
  poplar.repeat 10 {
    poplar.execute "b" {
      poplar.family @map {expr = #expr.fn<mul(_1, 2.0)>} for (i = 16 in 4) on (i)
        in x1 = %before[i] : !poplar.tensor<16xf32>
        out y = %b[i] : !poplar.tensor<16xf32>
    }
    poplar.execute "c" {
      poplar.family @map {expr = #expr.fn<mul(_1, 2.0)>} for (i = 16 in 4) on (i)
        in x1 = %b[i] : !poplar.tensor<16xf32>
        out y = %c[i] : !poplar.tensor<16xf32>
    }
  }
  poplar.stream_out %c to "c" : !poplar.tensor<16xf32>
}
