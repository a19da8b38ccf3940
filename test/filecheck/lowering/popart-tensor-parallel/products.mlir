// RUN: populus-opt %s -p 'popart-tensor-parallel{parts=2 part=1}' | filecheck %s
// RUN: not populus-opt %s -p 'popart-tensor-parallel{parts=5}' 2>&1 | filecheck %s --check-prefix=UNEVEN
// RUN: not populus-opt %s -p 'popart-tensor-parallel{parts=2 part=2}' 2>&1 | filecheck %s --check-prefix=NONE

// The first product is cut by columns and the second along its sum, so the chips meet once. Each has its part of both weights.
// CHECK: func.func @main(%x: tensor<4x8xf32>) -> tensor<4x8xf32>
// CHECK: %[[W:.*]] = popart.slice %w {begins = array<i64: 0, 8>, ends = array<i64: 8, 16>
// CHECK: %[[A:.*]] = popart.matmul %x, %[[W]] : (tensor<4x8xf32>, tensor<8x8xf32>) -> tensor<4x8xf32>
// CHECK: %[[B:.*]] = popart.relu %[[A]] : tensor<4x8xf32>
// CHECK: %[[V:.*]] = popart.slice %v {begins = array<i64: 8, 0>, ends = array<i64: 16, 8>
// CHECK: %[[Y:.*]] = popart.matmul %[[B]], %[[V]]
// CHECK: popart.all_reduce %[[Y]] {size = 2 : i64}
// CHECK-NOT: popart.all_gather

// UNEVEN: no product can be cut into 5 equal parts; take fewer chips
// NONE: part = 2 of parts = 2; a part is from 0 to 1
func.func @main(%x: tensor<4x8xf32>) -> tensor<4x8xf32> attributes {input_names = ["x"], output_names = ["y"]} {
  %w = data.constant dense<1.0> : tensor<8x16xf32>
  %v = data.constant dense<2.0> : tensor<16x8xf32>
  %a = popart.matmul %x, %w : (tensor<4x8xf32>, tensor<8x16xf32>) -> tensor<4x16xf32>
  %b = popart.relu %a : tensor<4x16xf32>
  %y = popart.matmul %b, %v : (tensor<4x16xf32>, tensor<16x8xf32>) -> tensor<4x8xf32>
  func.return %y : tensor<4x8xf32>
}
