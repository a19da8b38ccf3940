// RUN: populus-opt %s | populus-opt | filecheck %s

// CHECK: func.func @main(%numbers: tensor<4xi64>, %rows: tensor<4x3xf32>) -> tensor<6x3xf32>
func.func @main(%numbers: tensor<4xi64>, %rows: tensor<4x3xf32>) -> tensor<6x3xf32> {
  // CHECK-NEXT: %s = sparse.rows %numbers, %rows {size = 6 : i64} : (tensor<4xi64>, tensor<4x3xf32>) -> !popart.sparse<4, tensor<6x3xf32>>
  %s = sparse.rows %numbers, %rows {size = 6 : i64} : (tensor<4xi64>, tensor<4x3xf32>) -> !popart.sparse<4, tensor<6x3xf32>>
  // CHECK-NEXT: %m = sparse.merge %s : (!popart.sparse<4, tensor<6x3xf32>>) -> !popart.sparse<4, tensor<6x3xf32>>
  %m = sparse.merge %s : (!popart.sparse<4, tensor<6x3xf32>>) -> !popart.sparse<4, tensor<6x3xf32>>
  // CHECK-NEXT: %n, %r = sparse.parts %m : (!popart.sparse<4, tensor<6x3xf32>>) -> (tensor<4xi64>, tensor<4x3xf32>)
  %n, %r = sparse.parts %m : (!popart.sparse<4, tensor<6x3xf32>>) -> (tensor<4xi64>, tensor<4x3xf32>)
  // CHECK-NEXT: %d = sparse.dense %m : (!popart.sparse<4, tensor<6x3xf32>>) -> tensor<6x3xf32>
  %d = sparse.dense %m : (!popart.sparse<4, tensor<6x3xf32>>) -> tensor<6x3xf32>
  func.return %d : tensor<6x3xf32>
}
