// RUN: populus-opt %s | filecheck %s
// RUN: populus-opt %s | populus-opt | filecheck %s
// RUN: populus-opt %s --print-debuginfo | filecheck %s --check-prefix LOCATED

// CHECK: func.func @main(%x: tensor<4xf32>) -> tensor<4xf32>
// CHECK: %k = data.constant dense<5.000000e-01> : tensor<f32>
func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
  %k = data.constant dense<0.5> : tensor<f32> loc("half")
  func.return %x : tensor<4xf32>
}
// LOCATED: data.constant dense<5.000000e-01> : tensor<f32> loc("half")
