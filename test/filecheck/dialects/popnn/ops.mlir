// RUN: populus-opt %s | populus-opt | filecheck %s

// A flag at its default (false) is not printed.
func.func @main(%x: tensor<1x2x5x6xf32>) {
  // CHECK: %m = popnn.pool %x {kind = "max", kernel = array<i64: 2, 2>, strides = array<i64: 2, 2>, pads = array<i64: 0, 0, 0, 0>, dilations = array<i64: 1, 1>, ceil = true} : (tensor<1x2x5x6xf32>) -> tensor<1x2x3x3xf32>
  %m = popnn.pool %x {kind = "max", kernel = array<i64: 2, 2>, strides = array<i64: 2, 2>, pads = array<i64: 0, 0, 0, 0>, dilations = array<i64: 1, 1>, ceil = true} : (tensor<1x2x5x6xf32>) -> tensor<1x2x3x3xf32>
  // CHECK-NEXT: %a = popnn.pool %x {kind = "average", kernel = array<i64: 3, 3>, strides = array<i64: 1, 1>, pads = array<i64: 1, 1, 1, 1>, dilations = array<i64: 1, 1>, count_padding = true} : (tensor<1x2x5x6xf32>) -> tensor<1x2x5x6xf32>
  %a = popnn.pool %x {kind = "average", kernel = array<i64: 3, 3>, strides = array<i64: 1, 1>, pads = array<i64: 1, 1, 1, 1>, dilations = array<i64: 1, 1>, count_padding = true} : (tensor<1x2x5x6xf32>) -> tensor<1x2x5x6xf32>
  // CHECK-NEXT: %s = popnn.softmax %x : (tensor<1x2x5x6xf32>) -> tensor<1x2x5x6xf32>
  %s = popnn.softmax %x : (tensor<1x2x5x6xf32>) -> tensor<1x2x5x6xf32>
  // CHECK-NEXT: %l = popnn.softmax %x {log = true} : (tensor<1x2x5x6xf32>) -> tensor<1x2x5x6xf32>
  %l = popnn.softmax %x {log = true} : (tensor<1x2x5x6xf32>) -> tensor<1x2x5x6xf32>
  // CHECK-NEXT: %w = popnn.whiten %x {epsilon = 2.500000e-01 : f32} : (tensor<1x2x5x6xf32>) -> tensor<1x2x5x6xf32>
  %w = popnn.whiten %x {epsilon = 2.500000e-01 : f32} : (tensor<1x2x5x6xf32>) -> tensor<1x2x5x6xf32>
  func.return
}
