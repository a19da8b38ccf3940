// RUN: populus-opt %s -p poplar-map | filecheck %s

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
