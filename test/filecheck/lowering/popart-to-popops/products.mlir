// RUN: populus-opt %s -p popart-to-popops | filecheck %s

func.func @main(%a: tensor<2x3x4xf32>, %b: tensor<4x5xf32>, %v: tensor<4xf32>, %m: tensor<3x4xf32>, %x: tensor<1x2x5xf32>, %w: tensor<2x3x2xf32>, %bias: tensor<3xf32>) -> (tensor<2x3x5xf32>, tensor<f32>, tensor<5x3xf32>, tensor<1x3x10xf32>, tensor<1x3x11xf32>) {
  // One matrix for the whole batch: the batch is more rows.
  // CHECK: popops.reshape %a {shape = array<i64: 1, 6, 4>}
  // CHECK-NEXT: popops.reshape %b {shape = array<i64: 1, 4, 5>}
  // CHECK-NEXT: poplin.matmul {{.*}} -> tensor<1x6x5xf32>
  // CHECK-NEXT: %rows = popops.reshape {{.*}} -> tensor<2x3x5xf32>
  %rows = popart.matmul %a, %b : (tensor<2x3x4xf32>, tensor<4x5xf32>) -> tensor<2x3x5xf32>
  // CHECK: poplin.matmul {{.*}} : (tensor<1x1x4xf32>, tensor<1x4x1xf32>) -> tensor<1x1x1xf32>
  // CHECK-NEXT: %dot = popops.reshape {{.*}} -> tensor<f32>
  %dot = popart.matmul %v, %v : (tensor<4xf32>, tensor<4xf32>) -> tensor<f32>
  // A scale of 1 is not there.
  // CHECK: popops.dim_shuffle %b {permutation = array<i64: 1, 0>}
  // CHECK-NEXT: popops.dim_shuffle %m {permutation = array<i64: 1, 0>}
  // CHECK: %gemm = popops.map <add(mul(_1, 0.5), _2)>({{.*}}, %bias)
  %gemm = popart.gemm %b, %m, %bias {alpha = 0.5 : f32, trans_a = true, trans_b = true} : (tensor<4x5xf32>, tensor<3x4xf32>, tensor<3xf32>) -> tensor<5x3xf32>
  // The transpose of a convolution: outputs at each place modulo the stride are channels, which are put side by side.
  // CHECK: popops.reshape %w {shape = array<i64: 2, 3, 1, 2>}
  // CHECK-NEXT: popops.dim_shuffle {{.*}} {permutation = array<i64: 1, 3, 0, 2>}
  // CHECK-NEXT: popops.reshape {{.*}} {shape = array<i64: 6, 2, 1>}
  // CHECK-NEXT: poplin.convolution %x, {{.*}} {strides = array<i64: 1>, pads = array<i64: 0, 0>, dilations = array<i64: 1>, groups = 1 : i64} : (tensor<1x2x5xf32>, tensor<6x2x1xf32>) -> tensor<1x6x5xf32>
  // CHECK-NEXT: popops.reshape {{.*}} {shape = array<i64: 1, 3, 2, 5>}
  // CHECK-NEXT: popops.dim_shuffle {{.*}} {permutation = array<i64: 0, 1, 3, 2>}
  // CHECK-NEXT: popops.reshape {{.*}} {shape = array<i64: 1, 3, 10>}
  // CHECK-NEXT: popops.reshape %bias {shape = array<i64: 1, 3, 1>}
  // CHECK-NEXT: %up = popops.map <add(_1, _2)>
  %up = popart.conv_transpose %x, %w, %bias {strides = array<i64: 2>, pads = array<i64: 0, 0>, dilations = array<i64: 1>, output_padding = array<i64: 0>} : (tensor<1x2x5xf32>, tensor<2x3x2xf32>, tensor<3xf32>) -> tensor<1x3x10xf32>
  // With dilations: zeros between the elements of x, the kernel backwards, stride 1.
  // CHECK: popops.pad %x, {{.*}} {lower = array<i64: 0, 0, 2>, upper = array<i64: 0, 0, 2>, interior = array<i64: 0, 0, 1>}
  // CHECK-NEXT: popops.slice %w {begins = array<i64: 0, 0, 1>, ends = array<i64: 2, 3, -1>, steps = array<i64: 1, 1, -1>}
  // CHECK: %spread = poplin.convolution {{.*}} {strides = array<i64: 1>, pads = array<i64: 0, 0>, dilations = array<i64: 2>, groups = 1 : i64}
  %spread = popart.conv_transpose %x, %w {strides = array<i64: 2>, pads = array<i64: 0, 0>, dilations = array<i64: 2>, output_padding = array<i64: 0>} : (tensor<1x2x5xf32>, tensor<2x3x2xf32>) -> tensor<1x3x11xf32>
  func.return %rows, %dot, %gemm, %up, %spread : tensor<2x3x5xf32>, tensor<f32>, tensor<5x3xf32>, tensor<1x3x10xf32>, tensor<1x3x11xf32>
}
