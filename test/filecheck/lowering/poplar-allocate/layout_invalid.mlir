// RUN: not populus-opt %s -p poplar-allocate 2>&1 | filecheck %s

// CHECK: layout_invalid.mlir:[[# @LINE + 2]]:3: 'w' is on no tile; poplar-map gives every variable a layout
poplar.graph @main target <gc200, tiles = 4> {
  %w = poplar.var "w" : !poplar.tensor<8xf32>
  poplar.stream_out %w to "w" : !poplar.tensor<8xf32>
}
