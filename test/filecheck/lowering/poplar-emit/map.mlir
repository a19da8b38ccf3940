// RUN: populus-opt %s -p poplar-emit | filecheck %s

// Two families of one formula have one function, beside the program; codelets of the library have none.

poplar.graph @main target <host, tiles = 2> {
  %x = poplar.var "x" on [4 in 2] order [0] : !poplar.tensor<4xf32>
  %y = poplar.var "y" on [4 in 2] order [0] : !poplar.tensor<4xf32>
  poplar.execute "twice" {
    poplar.family @map {expr = #expr.fn<mul(_1, 2.0)>} for (d0 = 4 in 2) on (d0)
      in x1 = %x[d0] : !poplar.tensor<4xf32>
      out y = %y[d0] : !poplar.tensor<4xf32>
  }
  poplar.execute "twice again" {
    poplar.family @map {expr = #expr.fn<mul(_1, 2.0)>} for (d0 = 4 in 2) on (d0)
      in x1 = %y[d0] : !poplar.tensor<4xf32>
      out y = %x[d0] : !poplar.tensor<4xf32>
  }
  poplar.execute "zero" {
    poplar.family @fill {value = 0.0 : f32} for (d0 = 4 in 2) on (d0)
      out y = %y[d0] : !poplar.tensor<4xf32>
  }
}

// CHECK: poplar.family @fill
// CHECK: func.func @map_0(%0: memref<?xf32>, %1: memref<?xf32>, {{.*}}: index, {{.*}}: index) attributes {families = 2 : i64} {
// CHECK: [[V:%[0-9]+]] = memref.load
// CHECK: [[C:%[0-9]+]] = arith.constant 2.000000e+00 : f32
// CHECK: [[M:%[0-9]+]] = arith.mulf [[V]], [[C]] : f32
// CHECK: memref.store [[M]]
// CHECK-NOT: func.func
