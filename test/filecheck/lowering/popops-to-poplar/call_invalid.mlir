// RUN: not populus-opt %s -p "popops-to-poplar" 2>&1 | filecheck %s

// CHECK: call_invalid.mlir:5:3: @g calls itself, which tiles have no stack for (in popops-to-poplar)
func.func private @f(%x : tensor<2xf32>) -> tensor<2xf32> {
  %y = func.call @g(%x) : (tensor<2xf32>) -> tensor<2xf32>
  func.return %y : tensor<2xf32>
}
func.func private @g(%x : tensor<2xf32>) -> tensor<2xf32> {
  %y = func.call @f(%x) : (tensor<2xf32>) -> tensor<2xf32>
  func.return %y : tensor<2xf32>
}
func.func @main(%x : tensor<2xf32>) -> tensor<2xf32> {
  %y = func.call @g(%x) : (tensor<2xf32>) -> tensor<2xf32>
  func.return %y : tensor<2xf32>
}
