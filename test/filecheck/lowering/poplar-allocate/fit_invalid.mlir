// RUN: not populus-opt %s --split-input-file -p poplar-allocate 2>&1 | filecheck %s

// CHECK: the model needs 782 KiB on tile 0 at step 'w', 162 KiB more than the 620 KiB of gc200; largest: 'conv1/W' 782 KiB; use more of its 1,472 tiles
poplar.graph @main target <gc200, tiles = 4> {
  %w = poplar.const "conv1/W" dense<0.5> : tensor<800000xf32> on [800000 in 4] order [0] : !poplar.tensor<800000xf32>
  poplar.stream_out %w to "w" : !poplar.tensor<800000xf32>
}
