// RUN: populus-opt --verify-diagnostics --split-input-file %s | filecheck %s

// An op of dense tensors refuses a sparse value.
// CHECK: popart.sparse
func.func @main(%numbers: tensor<4xi64>, %rows: tensor<4x3xf32>) -> tensor<4x3xf32> {
  %s = sparse.rows %numbers, %rows {size = 6 : i64} : (tensor<4xi64>, tensor<4x3xf32>) -> !popart.sparse<4, tensor<6x3xf32>>
  %y = "popart.relu"(%s) : (!popart.sparse<4, tensor<6x3xf32>>) -> !popart.sparse<4, tensor<6x3xf32>>
  func.return %rows : tensor<4x3xf32>
}
