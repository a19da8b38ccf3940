// RUN: populus-opt %s -p "poplin-to-poplar{target=gc200 tiles=64 partials=f16}" --split-input-file | filecheck %s
// RUN: populus-opt %s -p "poplin-to-poplar{target=gc200 tiles=64}" --split-input-file | filecheck %s --check-prefix WIDE
// RUN: not populus-opt %s -p "poplin-to-poplar{target=gc200 partials=f61}" --split-input-file 2>&1 | filecheck %s --check-prefix WRONG
// WRONG: partials = f61; halves are summed in f32 or f16; did you mean 'f16'?

// Halves are summed as floats, on 8 out-channels at a time, or as halves, on 16; partial results of other tiles likewise.
// CHECK: poplar.var "{{.*}}.partials" {{.*}}xf16>
// CHECK: @matmul {partials = "f16"{{.*}}} for (k = 1024 in {{[0-9]+}} by 16, g = 1, m = 32, n = 32 {{.*}}by 16)
// WIDE: poplar.var "{{.*}}.partials" {{.*}}xf32>
// WIDE: @matmul {{.*}}for (k = 1024 in {{[0-9]+}} by 16, g = 1, m = 32, n = 32 {{.*}}by 8)
func.func @main(%a : tensor<1x32x1024xf16>, %b : tensor<1x1024x32xf16>) -> tensor<1x32x32xf16> {
  %c = poplin.matmul %a, %b : (tensor<1x32x1024xf16>, tensor<1x1024x32xf16>) -> tensor<1x32x32xf16>
  func.return %c : tensor<1x32x32xf16>
}

// -----

// Floats are summed as floats.
// CHECK: @matmul
// CHECK-NOT: partials
func.func @main(%a : tensor<1x8x8xf32>, %b : tensor<1x8x8xf32>) -> tensor<1x8x8xf32> {
  %c = poplin.matmul %a, %b : (tensor<1x8x8xf32>, tensor<1x8x8xf32>) -> tensor<1x8x8xf32>
  func.return %c : tensor<1x8x8xf32>
}
