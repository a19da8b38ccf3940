// RUN: populus-opt %s -p "popops-narrow{target=gc200}" | filecheck %s

// A sum in a wider type is one of the type itself where both are replaced by it.
func.func @main(%x: tensor<4xbf16>) -> tensor<f32> {
  %y = popops.reduce %x {op = "add", dims = array<i64: 0>, to = f32} : (tensor<4xbf16>) -> tensor<f32>
  func.return %y : tensor<f32>
}

// CHECK: popops.reduce %x {op = "add", dims = array<i64: 0>} : (tensor<4xf32>) -> tensor<f32>
