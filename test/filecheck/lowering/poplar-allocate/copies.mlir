// RUN: populus-opt %s -p poplar-allocate --split-input-file | filecheck %s

// A constant stays on the tiles that read it while there is room,
// CHECK: poplar.const "w" {{.*}} on [256 in 2] order [2 copies, 0] at 0
// CHECK: {peak_tile_bytes = 1024 : i64}
poplar.graph @main target <gc200, tiles = 4, tile_bytes = 8192> {
  %w = poplar.const "w" dense<2.0> : tensor<256xf32> on [256 in 2] order [2 copies, 0] : !poplar.tensor<256xf32>
  %y = poplar.var "y" on [2 in 2, 256 in 2] order [0, 1] : !poplar.tensor<2x256xf32>
  poplar.execute "e" {
    poplar.family @map {expr = #expr.fn<_1>} for (c = 2 in 2, i = 256 in 2) on (c, i)
      in x1 = %w[i] : !poplar.tensor<256xf32>
      out y = %y[c, i] : !poplar.tensor<2x256xf32>
  }
  poplar.stream_out %y to "y" : !poplar.tensor<2x256xf32>
}

// -----

// and is spread where there is none.
// CHECK: poplar.const "w" {{.*}} on [512 in 4 by 2] order [0]{{.*}} at 0
// CHECK: poplar.const "small" {{.*}} on [64] order [4 copies] at 
poplar.graph @main target <gc200, tiles = 4, tile_bytes = 7680> {
  %w = poplar.const "w" dense<2.0> : tensor<512xf32> on [512 in 1] order [4 copies] : !poplar.tensor<512xf32>
  %small = poplar.const "small" dense<2.0> : tensor<64xf32> on [64] order [4 copies] : !poplar.tensor<64xf32>
  %y = poplar.var "y" on [4 in 4, 512] order [0] : !poplar.tensor<4x512xf32>
  %z = poplar.var "z" on [4 in 4, 64] order [0] : !poplar.tensor<4x64xf32>
  poplar.stream_in "y" to %y : !poplar.tensor<4x512xf32>
  poplar.stream_out %y to "z" : !poplar.tensor<4x512xf32>
  poplar.execute "f" {
    poplar.family @map {expr = #expr.fn<_1>} for (c = 4 in 4, i = 64) on (c)
      in x1 = %small[i] : !poplar.tensor<64xf32>
      out y = %z[c, i] : !poplar.tensor<4x64xf32>
  }
  poplar.stream_out %w to "w" : !poplar.tensor<512xf32>
  poplar.stream_out %y to "y" : !poplar.tensor<4x512xf32>
}

// -----

// The smallest that suffices is spread, as what it frees is sent in each run.
// CHECK: poplar.const "w" {{.*}} on [512] order [4 copies] at 0
// CHECK: poplar.const "small" {{.*}} on [64 in 4 by 2] order [0]
poplar.graph @main target <gc200, tiles = 4, tile_bytes = 8320> {
  %w = poplar.const "w" dense<2.0> : tensor<512xf32> on [512] order [4 copies] : !poplar.tensor<512xf32>
  %small = poplar.const "small" dense<2.0> : tensor<64xf32> on [64] order [4 copies] : !poplar.tensor<64xf32>
  %y = poplar.var "y" on [4 in 4, 512] order [0] : !poplar.tensor<4x512xf32>
  %z = poplar.var "z" on [4 in 4, 64] order [0] : !poplar.tensor<4x64xf32>
  poplar.execute "f" {
    poplar.family @map {expr = #expr.fn<_1>} for (c = 4 in 4, i = 64) on (c)
      in x1 = %small[i] : !poplar.tensor<64xf32>
      out y = %z[c, i] : !poplar.tensor<4x64xf32>
  }
  poplar.stream_out %z to "z" : !poplar.tensor<4x64xf32>
  poplar.stream_in "y" to %y : !poplar.tensor<4x512xf32>
  poplar.stream_out %y to "y" : !poplar.tensor<4x512xf32>
  poplar.stream_out %w to "w" : !poplar.tensor<512xf32>
}
