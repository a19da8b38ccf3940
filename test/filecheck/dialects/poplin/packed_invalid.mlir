// RUN: not populus-opt %s 2>&1 | filecheck %s

// CHECK: packed_invalid.mlir:5:3: poplin.packed_matmul: 3 blocks of 32 elements for 40 rows; 2 are expected
func.func @main(%x: tensor<3x40xf32>, %q: tensor<6x3x16xui8>, %s: tensor<6x3xf32>, %z: tensor<6x3xui8>) {
  %y = poplin.packed_matmul %x, %q, %s, %z {bits = 4 : i64} : (tensor<3x40xf32>, tensor<6x3x16xui8>, tensor<6x3xf32>, tensor<6x3xui8>) -> tensor<3x6xf32>
  func.return
}
