// RUN: populus-opt %s | populus-opt | filecheck %s

// Ops that are not element-wise: every property is a number, nothing is a tensor that a shape depends on.
func.func @main(%x: tensor<1x4x6x6xf32>, %w: tensor<4x2x3x3xf32>, %b: tensor<4xf32>, %i: tensor<2xi64>, %value: tensor<f32>, %m: tensor<3x4xf32>, %seed: tensor<2xui32>) {
  // CHECK: %sum = popart.reduce_sum %x {axes = array<i64: 2, 3>, keep = true} : (tensor<1x4x6x6xf32>) -> tensor<1x4x1x1xf32>
  %sum = popart.reduce_sum %x {axes = array<i64: 2, 3>, keep = true} : (tensor<1x4x6x6xf32>) -> tensor<1x4x1x1xf32>
  // CHECK-NEXT: %mean = popart.reduce_mean %x {axes = array<i64: 2, 3>} : (tensor<1x4x6x6xf32>) -> tensor<1x4xf32>
  %mean = popart.reduce_mean %x {axes = array<i64: 2, 3>} : (tensor<1x4x6x6xf32>) -> tensor<1x4xf32>
  // CHECK-NEXT: %flat = popart.reshape %x {shape = array<i64: 4, 36>} : (tensor<1x4x6x6xf32>) -> tensor<4x36xf32>
  %flat = popart.reshape %x {shape = array<i64: 4, 36>} : (tensor<1x4x6x6xf32>) -> tensor<4x36xf32>
  // CHECK-NEXT: %turned = popart.transpose %m {permutation = array<i64: 1, 0>} : (tensor<3x4xf32>) -> tensor<4x3xf32>
  %turned = popart.transpose %m {permutation = array<i64: 1, 0>} : (tensor<3x4xf32>) -> tensor<4x3xf32>
  // CHECK-NEXT: %wide = popart.expand %b {shape = array<i64: 2, 1>} : (tensor<4xf32>) -> tensor<2x4xf32>
  %wide = popart.expand %b {shape = array<i64: 2, 1>} : (tensor<4xf32>) -> tensor<2x4xf32>
  // CHECK-NEXT: %both = popart.concat %m, %m {axis = 0 : i64} : (tensor<3x4xf32>, tensor<3x4xf32>) -> tensor<6x4xf32>
  %both = popart.concat %m, %m {axis = 0 : i64} : (tensor<3x4xf32>, tensor<3x4xf32>) -> tensor<6x4xf32>
  // CHECK-NEXT: %part = popart.slice %m {begins = array<i64: 2, 0>, ends = array<i64: -1, 4>, steps = array<i64: -1, 3>} : (tensor<3x4xf32>) -> tensor<3x2xf32>
  %part = popart.slice %m {begins = array<i64: 2, 0>, ends = array<i64: -1, 4>, steps = array<i64: -1, 3>} : (tensor<3x4xf32>) -> tensor<3x2xf32>
  // CHECK-NEXT: %padded = popart.pad %b, %value {lower = array<i64: 1>, upper = array<i64: -2>} : (tensor<4xf32>, tensor<f32>) -> tensor<3xf32>
  %padded = popart.pad %b, %value {lower = array<i64: 1>, upper = array<i64: -2>} : (tensor<4xf32>, tensor<f32>) -> tensor<3xf32>
  // CHECK-NEXT: %mirrored = popart.pad %b {lower = array<i64: 1>, upper = array<i64: 2>, mode = "reflect"} : (tensor<4xf32>) -> tensor<7xf32>
  %mirrored = popart.pad %b {lower = array<i64: 1>, upper = array<i64: 2>, mode = "reflect"} : (tensor<4xf32>) -> tensor<7xf32>
  // CHECK-NEXT: %tiled = popart.tile %b {repeats = array<i64: 3>} : (tensor<4xf32>) -> tensor<12xf32>
  %tiled = popart.tile %b {repeats = array<i64: 3>} : (tensor<4xf32>) -> tensor<12xf32>
  // CHECK-NEXT: %rows = popart.gather %m, %i {axis = 1 : i64} : (tensor<3x4xf32>, tensor<2xi64>) -> tensor<3x2xf32>
  %rows = popart.gather %m, %i {axis = 1 : i64} : (tensor<3x4xf32>, tensor<2xi64>) -> tensor<3x2xf32>
  // CHECK-NEXT: %product = popart.matmul %m, %b : (tensor<3x4xf32>, tensor<4xf32>) -> tensor<3xf32>
  %product = popart.matmul %m, %b : (tensor<3x4xf32>, tensor<4xf32>) -> tensor<3xf32>
  // CHECK-NEXT: %gemm = popart.gemm %m, %m, %value {alpha = 5.000000e-01 : f32, trans_b = true} : (tensor<3x4xf32>, tensor<3x4xf32>, tensor<f32>) -> tensor<3x3xf32>
  %gemm = popart.gemm %m, %m, %value {alpha = 5.000000e-01 : f32, trans_b = true} : (tensor<3x4xf32>, tensor<3x4xf32>, tensor<f32>) -> tensor<3x3xf32>
  // CHECK-NEXT: %conv = popart.conv %x, %w, %b {strides = array<i64: 2, 2>, pads = array<i64: 1, 1, 1, 1>, dilations = array<i64: 1, 1>, group = 2 : i64} : (tensor<1x4x6x6xf32>, tensor<4x2x3x3xf32>, tensor<4xf32>) -> tensor<1x4x3x3xf32>
  %conv = popart.conv %x, %w, %b {strides = array<i64: 2, 2>, pads = array<i64: 1, 1, 1, 1>, dilations = array<i64: 1, 1>, group = 2 : i64} : (tensor<1x4x6x6xf32>, tensor<4x2x3x3xf32>, tensor<4xf32>) -> tensor<1x4x3x3xf32>
  // CHECK-NEXT: %up = popart.conv_transpose %x, %w {strides = array<i64: 2, 2>, pads = array<i64: 1, 1, 1, 1>, dilations = array<i64: 1, 1>, output_padding = array<i64: 1, 1>} : (tensor<1x4x6x6xf32>, tensor<4x2x3x3xf32>) -> tensor<1x2x12x12xf32>
  %up = popart.conv_transpose %x, %w {strides = array<i64: 2, 2>, pads = array<i64: 1, 1, 1, 1>, dilations = array<i64: 1, 1>, output_padding = array<i64: 1, 1>} : (tensor<1x4x6x6xf32>, tensor<4x2x3x3xf32>) -> tensor<1x2x12x12xf32>
  // CHECK-NEXT: %max = popart.max_pool %x {kernel = array<i64: 3, 3>, strides = array<i64: 2, 2>, pads = array<i64: 0, 0, 0, 0>, dilations = array<i64: 1, 1>, ceil = true} : (tensor<1x4x6x6xf32>) -> tensor<1x4x3x3xf32>
  %max = popart.max_pool %x {kernel = array<i64: 3, 3>, strides = array<i64: 2, 2>, pads = array<i64: 0, 0, 0, 0>, dilations = array<i64: 1, 1>, ceil = true} : (tensor<1x4x6x6xf32>) -> tensor<1x4x3x3xf32>
  // CHECK-NEXT: %average = popart.average_pool %x {kernel = array<i64: 2, 2>, strides = array<i64: 2, 2>, pads = array<i64: 0, 0, 0, 0>, dilations = array<i64: 1, 1>} : (tensor<1x4x6x6xf32>) -> tensor<1x4x3x3xf32>
  %average = popart.average_pool %x {kernel = array<i64: 2, 2>, strides = array<i64: 2, 2>, pads = array<i64: 0, 0, 0, 0>, dilations = array<i64: 1, 1>} : (tensor<1x4x6x6xf32>) -> tensor<1x4x3x3xf32>
  // CHECK-NEXT: %lrn = popart.lrn %x {size = 3 : i64, bias = 2.000000e+00 : f32} : (tensor<1x4x6x6xf32>) -> tensor<1x4x6x6xf32>
  %lrn = popart.lrn %x {size = 3 : i64, bias = 2.000000e+00 : f32} : (tensor<1x4x6x6xf32>) -> tensor<1x4x6x6xf32>
  // CHECK-NEXT: %batch = popart.batch_norm %x, %b, %b, %b, %b : (tensor<1x4x6x6xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>) -> tensor<1x4x6x6xf32>
  %batch = popart.batch_norm %x, %b, %b, %b, %b : (tensor<1x4x6x6xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>) -> tensor<1x4x6x6xf32>
  // CHECK-NEXT: %instance = popart.instance_norm %x, %b, %b : (tensor<1x4x6x6xf32>, tensor<4xf32>, tensor<4xf32>) -> tensor<1x4x6x6xf32>
  %instance = popart.instance_norm %x, %b, %b : (tensor<1x4x6x6xf32>, tensor<4xf32>, tensor<4xf32>) -> tensor<1x4x6x6xf32>
  // CHECK-NEXT: %group = popart.group_norm %x, %b, %b {groups = 2 : i64} : (tensor<1x4x6x6xf32>, tensor<4xf32>, tensor<4xf32>) -> tensor<1x4x6x6xf32>
  %group = popart.group_norm %x, %b, %b {groups = 2 : i64} : (tensor<1x4x6x6xf32>, tensor<4xf32>, tensor<4xf32>) -> tensor<1x4x6x6xf32>
  // CHECK-NEXT: %layer = popart.layer_norm %m, %b {axis = 1 : i64} : (tensor<3x4xf32>, tensor<4xf32>) -> tensor<3x4xf32>
  %layer = popart.layer_norm %m, %b {axis = 1 : i64} : (tensor<3x4xf32>, tensor<4xf32>) -> tensor<3x4xf32>
  // CHECK-NEXT: %soft = popart.softmax %m {axis = 0 : i64} : (tensor<3x4xf32>) -> tensor<3x4xf32>
  %soft = popart.softmax %m {axis = 0 : i64} : (tensor<3x4xf32>) -> tensor<3x4xf32>
  // CHECK-NEXT: %logsoft = popart.log_softmax %m {axis = 1 : i64} : (tensor<3x4xf32>) -> tensor<3x4xf32>
  %logsoft = popart.log_softmax %m {axis = 1 : i64} : (tensor<3x4xf32>) -> tensor<3x4xf32>
  // CHECK-NEXT: %noise = popart.random %seed {distribution = "normal", shape = array<i64: 2, 3>} : (tensor<2xui32>) -> tensor<2x3xf32>
  %noise = popart.random %seed {distribution = "normal", shape = array<i64: 2, 3>} : (tensor<2xui32>) -> tensor<2x3xf32>
  func.return
}
