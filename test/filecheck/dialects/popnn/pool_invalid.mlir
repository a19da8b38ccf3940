// RUN: not populus-opt %s 2>&1 | filecheck %s

// CHECK: pool_invalid.mlir:5:3: popnn.pool: 'median' is not one of max, average, sum
func.func @main(%x: tensor<1x1x4xf32>) {
  %y = popnn.pool %x {kind = "median", kernel = array<i64: 2>, strides = array<i64: 1>, pads = array<i64: 0, 0>, dilations = array<i64: 1>} : (tensor<1x1x4xf32>) -> tensor<1x1x3xf32>
  func.return
}
