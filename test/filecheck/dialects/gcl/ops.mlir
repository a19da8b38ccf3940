// RUN: populus-opt %s | populus-opt | filecheck %s

// Ops of groups of replicas.
func.func @main(%x: tensor<4x3xf32>, %m: tensor<2xi1>) {
  // CHECK: %s = gcl.all_reduce %x {reduction = "add", size = 4 : i64} : (tensor<4x3xf32>) -> tensor<4x3xf32>
  %s = gcl.all_reduce %x {reduction = "add", stride = 1 : i64, size = 4 : i64} : (tensor<4x3xf32>) -> tensor<4x3xf32>
  // CHECK: %o = gcl.all_reduce %m {reduction = "or", size = 2 : i64} : (tensor<2xi1>) -> tensor<2xi1>
  %o = gcl.all_reduce %m {reduction = "or", stride = 1 : i64, size = 2 : i64} : (tensor<2xi1>) -> tensor<2xi1>
  // CHECK: %g = gcl.all_gather %x {stride = 2 : i64, size = 2 : i64} : (tensor<4x3xf32>) -> tensor<2x4x3xf32>
  %g = gcl.all_gather %x {stride = 2 : i64, size = 2 : i64} : (tensor<4x3xf32>) -> tensor<2x4x3xf32>
  // CHECK: %r = gcl.reduce_scatter %x {reduction = "local", size = 2 : i64} : (tensor<4x3xf32>) -> tensor<2x3xf32>
  %r = gcl.reduce_scatter %x {reduction = "local", stride = 1 : i64, size = 2 : i64} : (tensor<4x3xf32>) -> tensor<2x3xf32>
  // CHECK: %b = gcl.broadcast %x {root = 1 : i64, size = 2 : i64} : (tensor<4x3xf32>) -> tensor<4x3xf32>
  %b = gcl.broadcast %x {root = 1 : i64, stride = 1 : i64, size = 2 : i64} : (tensor<4x3xf32>) -> tensor<4x3xf32>
  // CHECK: %a = gcl.all_to_all %x {size = 4 : i64} : (tensor<4x3xf32>) -> tensor<4x3xf32>
  %a = gcl.all_to_all %x {stride = 1 : i64, size = 4 : i64} : (tensor<4x3xf32>) -> tensor<4x3xf32>
  // CHECK: %h = gcl.barrier %x {size = 4 : i64} : (tensor<4x3xf32>) -> tensor<4x3xf32>
  %h = gcl.barrier %x {stride = 1 : i64, size = 4 : i64} : (tensor<4x3xf32>) -> tensor<4x3xf32>
  // CHECK: %k = gcl.replica_index {size = 4 : i64} : tensor<i32>
  %k = gcl.replica_index {stride = 1 : i64, size = 4 : i64} : tensor<i32>
  // CHECK: %t = gcl.send %x, %k {offset = 1 : i64, tag = 3 : i64} : (tensor<4x3xf32>, tensor<i32>) -> tensor<i32>
  %t = gcl.send %x, %k {offset = 1 : i64, tag = 3 : i64} : (tensor<4x3xf32>, tensor<i32>) -> tensor<i32>
  // CHECK: %c = gcl.receive %t {offset = -1 : i64, tag = 3 : i64, shape = array<i64: 4, 3>, element = f32} : (tensor<i32>) -> tensor<4x3xf32>
  %c = gcl.receive %t {offset = -1 : i64, tag = 3 : i64, shape = array<i64: 4, 3>, element = f32} : (tensor<i32>) -> tensor<4x3xf32>
  func.return
}
