// RUN: populus-opt %s | populus-opt | filecheck %s

// CHECK: func.func @main(%x: tensor<2xi32>) -> tensor<2xi32>
func.func @main(%x: tensor<2xi32>) -> tensor<2xi32> {
  // CHECK-NEXT: %y = host.call "text.normalize"(%x) params {case_change_action = "LOWER"} : (tensor<2xi32>) -> tensor<2xi32>
  %y = host.call "text.normalize"(%x) params {case_change_action = "LOWER"} : (tensor<2xi32>) -> tensor<2xi32>
  func.return %y : tensor<2xi32>
}
