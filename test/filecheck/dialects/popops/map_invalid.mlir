// RUN: not populus-opt %s 2>&1 | filecheck %s

// CHECK: map_invalid.mlir:5:3: popops.map: operand _2 is not read by add(_1, 1)
func.func @main(%x: tensor<2xf32>) {
  %y = popops.map <add(_1, 1)>(%x, %x) : (tensor<2xf32>, tensor<2xf32>) -> tensor<2xf32>
  func.return
}
