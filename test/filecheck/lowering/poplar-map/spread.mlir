// RUN: populus-opt %s -p poplar-map --split-input-file | filecheck %s

// What no family wants in parts is spread in grains of the data path; small things begin at a tile that their label gives.

poplar.graph @main target <gc200, tiles = 64> {
  // CHECK: poplar.var "large" on [64 in 64, 8 by 4] order [0] : !poplar.tensor<64x8xf16>
  %large = poplar.var "large" : !poplar.tensor<64x8xf16>
  // CHECK: poplar.const "one" {{.*}} on [] start 49 : !poplar.tensor<f32>
  %one = poplar.const "one" dense<1.0> : tensor<f32> : !poplar.tensor<f32>
  // CHECK: poplar.const "other" {{.*}} on [] start 32 : !poplar.tensor<f32>
  %other = poplar.const "other" dense<1.0> : tensor<f32> : !poplar.tensor<f32>
  poplar.stream_out %large to "y" : !poplar.tensor<64x8xf16>
}

// -----

// Each of the slices that steps read is spread, so that all tiles send at once.
poplar.graph @main target <gc200, tiles = 4> {
  // CHECK: poplar.var "rows" on [8, 16 in 4 by 4] order [1] : !poplar.tensor<8x16xf16>
  %x = poplar.var "rows" : !poplar.tensor<8x16xf16>
  poplar.stream_in "x" to %x : !poplar.tensor<8x16xf16>
  %0 = poplar.slice %x[0:4, 0:16] : !poplar.tensor<8x16xf16> -> !poplar.tensor<4x16xf16>
  poplar.stream_out %0 to "y" : !poplar.tensor<4x16xf16>
  %1 = poplar.slice %x[4:8, 0:16] : !poplar.tensor<8x16xf16> -> !poplar.tensor<4x16xf16>
  poplar.stream_out %1 to "z" : !poplar.tensor<4x16xf16>
}
