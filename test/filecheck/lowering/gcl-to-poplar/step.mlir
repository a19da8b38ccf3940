// RUN: populus-opt %s -p "gcl-to-poplar{target=gc200 tiles=4}" | filecheck %s

// A collective is a step between those that compute, into a variable of its own.
func.func @main(%x : tensor<8x6xf32>) -> (tensor<4x6xf32>, tensor<i32>) {
  %y = gcl.reduce_scatter %x {reduction = "mean", stride = 1 : i64, size = 2 : i64} : (tensor<8x6xf32>) -> tensor<4x6xf32>
  %k = gcl.replica_index {stride = 1 : i64, size = 2 : i64} : tensor<i32>
  func.return %y, %k : tensor<4x6xf32>, tensor<i32>
}

// CHECK:      poplar.collective "reduce_scatter"(%x, [[Y:%.*]]) inputs 1 params {reduction = "mean", stride = 1 : i64, size = 2 : i64}
// CHECK:      poplar.collective "replica_index"([[K:%.*]]) inputs 0 params {stride = 1 : i64, size = 2 : i64}
