// RUN: not populus-opt %s 2>&1 | filecheck %s

// CHECK: reduction_invalid.mlir:5:3: gcl.all_reduce: replicas reduce f32 not by 'and'; booleans are for 'and' and 'or', and these for booleans
func.func @main(%x: tensor<3x2xf32>) {
  %y = gcl.all_reduce %x {reduction = "and", stride = 1 : i64, size = 2 : i64} : (tensor<3x2xf32>) -> tensor<3x2xf32>
  func.return
}
