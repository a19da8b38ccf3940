// RUN: not populus-opt %s 2>&1 | filecheck %s

// CHECK: broadcast_invalid.mlir:5:3: popart.add: shapes 2x3 and 2 do not broadcast: [2, 3] meet
func.func @main(%x: tensor<2x3xf32>, %v: tensor<2xf32>) {
  %y = popart.add %x, %v : (tensor<2x3xf32>, tensor<2xf32>) -> tensor<2x3xf32>
  func.return
}
