// RUN: populus-opt %s -p popart-fuse | filecheck %s

// Of these weights only the hash is known: what would have to look at them stays as it is.
func.func @main(%x : tensor<1x1x4xf32>) -> (tensor<1x128x4xf32>, tensor<128x1x1xf32>) {
  %w = data.constant #data.stored<"00112233445566aa"> : tensor<128x1x1xf32>
  %two = data.constant dense<2.0> : tensor<f32>
  %c = popart.conv %x, %w {strides = array<i64: 1>, pads = array<i64: 0, 0>, dilations = array<i64: 1>} : (tensor<1x1x4xf32>, tensor<128x1x1xf32>) -> tensor<1x128x4xf32>
  %y = popart.mul %c, %two : (tensor<1x128x4xf32>, tensor<f32>) -> tensor<1x128x4xf32>
  %n = popart.neg %w : tensor<128x1x1xf32>
  func.return %y, %n : tensor<1x128x4xf32>, tensor<128x1x1xf32>
}

// CHECK: popart.conv %x, %w
// CHECK: popart.mul %c, %two
// CHECK: popart.neg %w
