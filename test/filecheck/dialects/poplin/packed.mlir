// RUN: populus-opt %s | populus-opt | filecheck %s

// Weights of 4 bits: two blocks of 32 elements for each of 6 columns.
func.func @main(%x: tensor<3x40xf32>, %q: tensor<6x2x16xui8>, %s: tensor<6x2xf32>, %z: tensor<6x2xui8>) {
  // CHECK: %y = poplin.packed_matmul %x, %q, %s, %z {{.*}}(tensor<3x40xf32>, tensor<6x2x16xui8>, tensor<6x2xf32>, tensor<6x2xui8>) -> tensor<3x6xf32>
  %y = poplin.packed_matmul %x, %q, %s, %z {bits = 4 : i64} : (tensor<3x40xf32>, tensor<6x2x16xui8>, tensor<6x2xf32>, tensor<6x2xui8>) -> tensor<3x6xf32>
  func.return
}
