// RUN: not populus-opt %s -p popart-to-popops 2>&1 | filecheck %s

// CHECK: 'net/pick': popart.gather: index 4 is outside dimension 0 of x, which has 4 elements
func.func @main(%x: tensor<4xf32>) -> tensor<2xf32> {
  %k = data.constant dense<[0, 4]> : tensor<2xi64>
  %y = popart.gather %x, %k {axis = 0 : i64} : (tensor<4xf32>, tensor<2xi64>) -> tensor<2xf32> loc("net/pick")
  func.return %y : tensor<2xf32>
}
