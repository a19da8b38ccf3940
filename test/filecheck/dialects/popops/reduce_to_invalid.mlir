// RUN: not populus-opt %s 2>&1 | filecheck %s

// CHECK: reduce_to_invalid.mlir:5:3: popops.reduce: to = f16 of f32; a wider float than that of x is expected
func.func @main(%x: tensor<2xf32>) {
  %y = popops.reduce %x {op = "add", dims = array<i64: 0>, to = f16} : (tensor<2xf32>) -> tensor<f16>
  func.return
}
