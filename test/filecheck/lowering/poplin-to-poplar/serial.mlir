// RUN: populus-opt %s -p "poplin-to-poplar{target=\"gc200, tile_bytes=28672\" tiles=4}" --split-input-file | filecheck %s
// RUN: populus-opt %s -p "poplin-to-poplar{target=\"gc200, tile_bytes=28672\" tiles=4 serial=false}" --split-input-file | filecheck %s --check-prefix OFF

// What needs more of a tile than there is runs in steps, each with its part of the weights.
// CHECK: poplar.const {{.*}}.0" {{.*}}tensor<1x64x128xf32>
// CHECK: @matmul
// CHECK: poplar.const {{.*}}.384" {{.*}}tensor<1x64x128xf32>
// CHECK: @matmul
// CHECK: popops.concat {{.*}} {dim = 2 : i64}
// OFF: poplar.const {{.*}}tensor<1x64x512xf32>
// OFF: @matmul {{.*}}for ({{.*}} n = 512 {{.*}})
func.func @main(%a : tensor<1x16x64xf32>) -> tensor<1x16x512xf32> {
  %b = data.constant dense<2.0> : tensor<1x64x512xf32>
  %c = poplin.matmul %a, %b : (tensor<1x16x64xf32>, tensor<1x64x512xf32>) -> tensor<1x16x512xf32>
  func.return %c : tensor<1x16x512xf32>
}

// -----

// What has room does not.
// CHECK: @matmul
// CHECK-NOT: @matmul
// CHECK-NOT: popops.concat
func.func @main(%a : tensor<1x16x64xf32>) -> tensor<1x16x32xf32> {
  %b = data.constant dense<2.0> : tensor<1x64x32xf32>
  %c = poplin.matmul %a, %b : (tensor<1x16x64xf32>, tensor<1x64x32xf32>) -> tensor<1x16x32xf32>
  func.return %c : tensor<1x16x32xf32>
}

// -----

// With many rows and few columns the steps are over rows, and read one copy of the weights.
// CHECK: poplar.const {{.*}} on {{.*}} copies{{.*}}tensor<1x32x32xf32>
// CHECK: popops.slice {{.*}}begins = array<i64: 0, 0, 0>, ends = array<i64: 1, 128, 32>
// CHECK: @matmul
// CHECK: popops.slice {{.*}}begins = array<i64: 0, 128, 0>
// CHECK: @matmul
// CHECK-NOT: poplar.const
// CHECK: popops.concat {{.*}} {dim = 1 : i64}
func.func @main(%a : tensor<1x512x32xf32>) -> tensor<1x512x32xf32> {
  %b = data.constant dense<2.0> : tensor<1x32x32xf32>
  %c = poplin.matmul %a, %b : (tensor<1x512x32xf32>, tensor<1x32x32xf32>) -> tensor<1x512x32xf32>
  func.return %c : tensor<1x512x32xf32>
}
