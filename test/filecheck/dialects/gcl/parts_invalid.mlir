// RUN: not populus-opt %s 2>&1 | filecheck %s

// CHECK: parts_invalid.mlir:5:3: gcl.reduce_scatter: dimension 0 of [3, 2] cannot be dealt to 2 replicas in equal parts
func.func @main(%x: tensor<3x2xf32>) {
  %y = gcl.reduce_scatter %x {reduction = "add", stride = 1 : i64, size = 2 : i64} : (tensor<3x2xf32>) -> tensor<2x2xf32>
  func.return
}
