// RUN: populus-opt %s -p "popart-autodiff{outputs=y wrt=w}" | filecheck %s

// Of a convolution with stride 2, the last row and column of x reach no window: the weights' gradient crops them.
func.func @main(%x: tensor<2x3x8x8xf32>, %w: tensor<4x3x1x1xf32>) -> tensor<2x4x4x4xf32>
    attributes {input_names = ["x", "w"], output_names = ["y"]} {
  %y = popart.conv %x, %w {strides = array<i64: 2, 2>, pads = array<i64: 0, 0, 0, 0>, dilations = array<i64: 1, 1>} : (tensor<2x3x8x8xf32>, tensor<4x3x1x1xf32>) -> tensor<2x4x4x4xf32>
  func.return %y : tensor<2x4x4x4xf32>
}

// CHECK: %[[x:[0-9a-z]+]] = popops.slice {{.*}} ends = array<i64: 3, 2, 7, 7>
// CHECK: poplin.convolution {{.*}} dilations = array<i64: 2, 2>{{.*}} -> tensor<3x4x1x1xf32>
