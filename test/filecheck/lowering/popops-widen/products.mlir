// RUN: populus-opt %s -p "popops-widen{halves=f32}" --split-input-file | filecheck %s
// RUN: populus-opt %s -p popops-widen --split-input-file | filecheck %s --check-prefix KEPT

// A product sums f32, and what was f16 is rounded to it.
func.func @main(%x : tensor<1x3x8xf16>, %w : tensor<1x8x4xf16>) -> tensor<1x3x4xf16> {
  %y = poplin.matmul %x, %w : (tensor<1x3x8xf16>, tensor<1x8x4xf16>) -> tensor<1x3x4xf16>
  %z = popops.map <mul(_1, _1)>(%y) : (tensor<1x3x4xf16>) -> tensor<1x3x4xf16>
  func.return %z : tensor<1x3x4xf16>
}

// CHECK: poplin.matmul %{{.*}}, %{{.*}} : (tensor<1x3x8xf32>, tensor<1x8x4xf32>) -> tensor<1x3x4xf32>
// CHECK: popops.map <cast(cast(_1, f16), f32)>
// CHECK: popops.map <cast(cast(mul(_1, _1), f16), f32)>
// CHECK: func.return %{{.*}} : tensor<1x3x4xf16>
// KEPT: poplin.matmul %x, %w : (tensor<1x3x8xf16>, tensor<1x8x4xf16>) -> tensor<1x3x4xf16>

// -----

// A softmax rounds its exponentials to halves, and so takes them.
func.func @main(%x : tensor<1x3x8xf16>, %w : tensor<1x8x4xf16>) -> tensor<1x3x4xf16> {
  %y = poplin.matmul %x, %w : (tensor<1x3x8xf16>, tensor<1x8x4xf16>) -> tensor<1x3x4xf16>
  %z = popnn.softmax %y : (tensor<1x3x4xf16>) -> tensor<1x3x4xf16>
  func.return %z : tensor<1x3x4xf16>
}

// CHECK: popnn.softmax %{{.*}} : (tensor<1x3x4xf16>) -> tensor<1x3x4xf16>
