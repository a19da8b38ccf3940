// RUN: populus-opt %s | populus-opt | filecheck %s

// Collectives are steps; the first views are inputs.

// CHECK: poplar.graph @main target <gc200, tiles = 4> {
poplar.graph @main target <gc200, tiles = 4> {
  %x = poplar.var "x" : !poplar.tensor<8x6xf32>
  %y = poplar.var "y" : !poplar.tensor<4x6xf32>
  %k = poplar.var "k" : !poplar.tensor<i32>
  // CHECK: poplar.collective "reduce_scatter"(%x, %y) inputs 1 params {reduction = "mean", stride = 1 : i64, size = 2 : i64} : !poplar.tensor<8x6xf32>, !poplar.tensor<4x6xf32>
  poplar.collective "reduce_scatter"(%x, %y) inputs 1 params {reduction = "mean", stride = 1 : i64, size = 2 : i64} : !poplar.tensor<8x6xf32>, !poplar.tensor<4x6xf32>
  // CHECK: poplar.collective "replica_index"(%k) inputs 0 params {stride = 1 : i64, size = 2 : i64} : !poplar.tensor<i32>
  poplar.collective "replica_index"(%k) inputs 0 params {stride = 1 : i64, size = 2 : i64} : !poplar.tensor<i32>
}
