// RUN: populus-opt %s -p popart-bucket | filecheck %s
// RUN: populus-opt %s -p 'popart-bucket{bytes=64}' | filecheck %s --check-prefix=SMALL
// RUN: populus-opt %s -p 'popart-bucket{bytes=0}' | filecheck %s --check-prefix=NONE
// RUN: not populus-opt %s -p 'popart-bucket{bytes=-1}' 2>&1 | filecheck %s --check-prefix=LESS

// LESS: bytes = -1; at least 0 is expected

// Two sums become one, before the first op that reads one; a maximum is another kind.
// CHECK: %[[A:.*]] = popops.reshape %a {shape = array<i64: 12>}
// CHECK: %[[AB:.*]] = popops.concat %[[A]], %b {dim = 0 : i64} : (tensor<12xf32>, tensor<4xf32>) -> tensor<16xf32>
// CHECK: %[[SUM:.*]] = popart.all_reduce %[[AB]] {size = 2 : i64} : (tensor<16xf32>)
// CHECK: popops.slice %[[SUM]] {begins = array<i64: 0>, ends = array<i64: 12>
// CHECK: popops.slice %[[SUM]] {begins = array<i64: 12>, ends = array<i64: 16>
// CHECK: popops.map
// CHECK: popart.all_reduce %b {size = 2 : i64, reduction = "max"} : (tensor<4xf32>)

// Scatters are joined by columns, so that a member's rows are its parts of all; and so are the rows that a gather gives.
// CHECK: popops.concat %{{.*}}, %{{.*}} {dim = 1 : i64} : (tensor<2x6xf32>, tensor<2x2xf32>) -> tensor<2x8xf32>
// CHECK: popart.reduce_scatter %{{.*}} {size = 2 : i64} : (tensor<2x8xf32>) -> tensor<1x8xf32>
// CHECK: popart.all_gather %{{.*}} {size = 2 : i64} : (tensor<16xf32>) -> tensor<2x16xf32>

// The two operands are 64 bytes together; a third would be too many.
// SMALL: popops.concat %{{.*}}, %b {dim = 0 : i64} : (tensor<12xf32>, tensor<4xf32>)

// NONE-NOT: popops.concat
func.func @main(%a: tensor<4x3xf32>, %b: tensor<4xf32>) -> (tensor<4x3xf32>, tensor<4xf32>, tensor<4xf32>, tensor<2x3xf32>, tensor<2xf32>, tensor<2x4x3xf32>, tensor<2x4xf32>) {
  %0 = popart.all_reduce %a {size = 2 : i64} : (tensor<4x3xf32>) -> tensor<4x3xf32>
  %1 = popart.all_reduce %b {size = 2 : i64} : (tensor<4xf32>) -> tensor<4xf32>
  %2 = popops.map <neg(_1)>(%0) : (tensor<4x3xf32>) -> tensor<4x3xf32>
  %3 = popart.all_reduce %b {size = 2 : i64, reduction = "max"} : (tensor<4xf32>) -> tensor<4xf32>
  %4 = popart.reduce_scatter %a {size = 2 : i64} : (tensor<4x3xf32>) -> tensor<2x3xf32>
  %5 = popart.reduce_scatter %b {size = 2 : i64} : (tensor<4xf32>) -> tensor<2xf32>
  %6 = popart.all_gather %a {size = 2 : i64} : (tensor<4x3xf32>) -> tensor<2x4x3xf32>
  %7 = popart.all_gather %b {size = 2 : i64} : (tensor<4xf32>) -> tensor<2x4xf32>
  func.return %2, %1, %3, %4, %5, %6, %7 : tensor<4x3xf32>, tensor<4xf32>, tensor<4xf32>, tensor<2x3xf32>, tensor<2xf32>, tensor<2x4x3xf32>, tensor<2x4xf32>
}
