// RUN: populus-opt %s -p "poplin-to-poplar{target=gc200 tiles=64},poplar-map" | filecheck %s

// The weights of a function are constants in both calls: the parameter and its arguments lie on each tile that reads them.
// CHECK: poplar.param in {{.*}} on [1, 64, 64 in 4 by 16] order [16 copies, 2]
// CHECK: poplar.const {{.*}} on [1, 64, 64 in 4 by 16] order [16 copies, 2]
// CHECK: poplar.const {{.*}} on [1, 64, 64 in 4 by 16] order [16 copies, 2]
func.func private @f(%a : tensor<1x256x64xf32>, %w : tensor<1x64x64xf32>) -> tensor<1x256x64xf32> {
  %c = poplin.matmul %a, %w : (tensor<1x256x64xf32>, tensor<1x64x64xf32>) -> tensor<1x256x64xf32>
  func.return %c : tensor<1x256x64xf32>
}
func.func @main(%a : tensor<1x256x64xf32>) -> tensor<1x256x64xf32> {
  %u = data.constant dense<2.0> : tensor<1x64x64xf32>
  %v = data.constant dense<3.0> : tensor<1x64x64xf32>
  %c = func.call @f(%a, %u) : (tensor<1x256x64xf32>, tensor<1x64x64xf32>) -> tensor<1x256x64xf32>
  %d = func.call @f(%c, %v) : (tensor<1x256x64xf32>, tensor<1x64x64xf32>) -> tensor<1x256x64xf32>
  func.return %d : tensor<1x256x64xf32>
}
