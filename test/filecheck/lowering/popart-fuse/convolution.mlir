// RUN: populus-opt %s -p "popart-fuse{patterns=PadIntoConv,BatchNormIntoConv,FactorIntoConv,TermIntoConv,FactorIntoBatchNorm,TermIntoBatchNorm}" --split-input-file | filecheck %s
// RUN: populus-opt %s -p "popart-fuse{exact=true}" --split-input-file | filecheck %s --check-prefix EXACT

// scale 2 / sqrt(4) = 1 and 3 / sqrt(1) = 3 on the channels; bias 1 - 2 * 1 = -1 and 0 - 0 * 3 = 0, and the convolution's own 5 and 1.
func.func @main(%x : tensor<1x1x4xf32>) -> tensor<1x2x4xf32> {
  %w = data.constant dense<[[[7.0]], [[1.0]]]> : tensor<2x1x1xf32>
  %b = data.constant dense<[5.0, 1.0]> : tensor<2xf32>
  %scale = data.constant dense<[2.0, 3.0]> : tensor<2xf32>
  %bias = data.constant dense<[1.0, 0.0]> : tensor<2xf32>
  %mean = data.constant dense<[2.0, 0.0]> : tensor<2xf32>
  %variance = data.constant dense<[4.0, 1.0]> : tensor<2xf32>
  %c = popart.conv %x, %w, %b {strides = array<i64: 1>, pads = array<i64: 0, 0>, dilations = array<i64: 1>} : (tensor<1x1x4xf32>, tensor<2x1x1xf32>, tensor<2xf32>) -> tensor<1x2x4xf32> loc("conv")
  %n = popart.batch_norm %c, %scale, %bias, %mean, %variance {epsilon = 0.0 : f32} : (tensor<1x2x4xf32>, tensor<2xf32>, tensor<2xf32>, tensor<2xf32>, tensor<2xf32>) -> tensor<1x2x4xf32>
  func.return %n : tensor<1x2x4xf32>
}

// CHECK-DAG:  data.constant dense<{{\[\[\[}}7.000000e+00]], {{\[\[}}3.000000e+00]]]>
// CHECK-DAG:  data.constant dense<[4.000000e+00, 3.000000e+00]>
// CHECK:      %[[C:.*]] = popart.conv %x
// CHECK-NEXT: func.return %[[C]]
// EXACT: popart.batch_norm

// -----

// The convolution's result is read elsewhere, or returned; its weights come from outside: everything stays.
func.func @main(%x : tensor<1x1x4xf32>, %v : tensor<1x1x1xf32>) -> (tensor<1x1x4xf32>, tensor<1x1x4xf32>, tensor<1x1x4xf32>) {
  %w = data.constant dense<[[[7.0]]]> : tensor<1x1x1xf32>
  %one = data.constant dense<1.0> : tensor<1xf32>
  %two = data.constant dense<2.0> : tensor<f32>
  %c = popart.conv %x, %w {strides = array<i64: 1>, pads = array<i64: 0, 0>, dilations = array<i64: 1>} : (tensor<1x1x4xf32>, tensor<1x1x1xf32>) -> tensor<1x1x4xf32>
  %n = popart.batch_norm %c, %one, %one, %one, %one : (tensor<1x1x4xf32>, tensor<1xf32>, tensor<1xf32>, tensor<1xf32>, tensor<1xf32>) -> tensor<1x1x4xf32>
  %d = popart.conv %x, %v {strides = array<i64: 1>, pads = array<i64: 0, 0>, dilations = array<i64: 1>} : (tensor<1x1x4xf32>, tensor<1x1x1xf32>) -> tensor<1x1x4xf32>
  %m = popart.mul %d, %two : (tensor<1x1x4xf32>, tensor<f32>) -> tensor<1x1x4xf32>
  func.return %c, %n, %m : tensor<1x1x4xf32>, tensor<1x1x4xf32>, tensor<1x1x4xf32>
}

// CHECK: popart.batch_norm %c
// CHECK: popart.mul %d, %two

// -----

// A factor and a term of each channel behind a convolution, with weights from outside for the term.
func.func @main(%x : tensor<1x1x4xf32>, %v : tensor<2x1x1xf32>) -> (tensor<1x2x4xf32>, tensor<1x2x4xf32>) {
  %w = data.constant dense<[[[1.0]], [[2.0]]]> : tensor<2x1x1xf32>
  %k = data.constant dense<[[10.0], [100.0]]> : tensor<2x1xf32>
  %c = popart.conv %x, %w {strides = array<i64: 1>, pads = array<i64: 0, 0>, dilations = array<i64: 1>} : (tensor<1x1x4xf32>, tensor<2x1x1xf32>) -> tensor<1x2x4xf32>
  %m = popart.mul %k, %c : (tensor<2x1xf32>, tensor<1x2x4xf32>) -> tensor<1x2x4xf32>
  %d = popart.conv %x, %v {strides = array<i64: 1>, pads = array<i64: 0, 0>, dilations = array<i64: 1>} : (tensor<1x1x4xf32>, tensor<2x1x1xf32>) -> tensor<1x2x4xf32>
  %s = popart.sub %d, %k : (tensor<1x2x4xf32>, tensor<2x1xf32>) -> tensor<1x2x4xf32>
  func.return %m, %s : tensor<1x2x4xf32>, tensor<1x2x4xf32>
}

// CHECK-DAG: %[[W:.*]] = data.constant dense<{{\[\[\[}}1.000000e+01]], {{\[\[}}2.000000e+02]]]>
// CHECK-DAG: %[[B:.*]] = data.constant dense<[-1.000000e+01, -1.000000e+02]>
// CHECK-DAG: %m = popart.conv %x, %[[W]]
// CHECK-DAG: %s = popart.conv %x, %v, %[[B]]

// -----

// A factor of each position, one that makes the result larger, a division by 0, the other side of a subtraction: they stay.
func.func @main(%x : tensor<1x1x4xf32>) -> (tensor<1x1x4xf32>, tensor<2x1x4xf32>, tensor<1x1x4xf32>, tensor<1x1x4xf32>) {
  %w = data.constant dense<[[[1.0]]]> : tensor<1x1x1xf32>
  %k = data.constant dense<[1.0, 2.0, 3.0, 4.0]> : tensor<4xf32>
  %t = data.constant dense<2.0> : tensor<2x1x1xf32>
  %z = data.constant dense<0.0> : tensor<f32>
  %c = popart.conv %x, %w {strides = array<i64: 1>, pads = array<i64: 0, 0>, dilations = array<i64: 1>} : (tensor<1x1x4xf32>, tensor<1x1x1xf32>) -> tensor<1x1x4xf32>
  %p = popart.mul %c, %k : (tensor<1x1x4xf32>, tensor<4xf32>) -> tensor<1x1x4xf32>
  %d = popart.conv %x, %w {strides = array<i64: 1>, pads = array<i64: 0, 0>, dilations = array<i64: 1>} : (tensor<1x1x4xf32>, tensor<1x1x1xf32>) -> tensor<1x1x4xf32>
  %q = popart.mul %d, %t : (tensor<1x1x4xf32>, tensor<2x1x1xf32>) -> tensor<2x1x4xf32>
  %e = popart.conv %x, %w {strides = array<i64: 1>, pads = array<i64: 0, 0>, dilations = array<i64: 1>} : (tensor<1x1x4xf32>, tensor<1x1x1xf32>) -> tensor<1x1x4xf32>
  %r = popart.div %e, %z : (tensor<1x1x4xf32>, tensor<f32>) -> tensor<1x1x4xf32>
  %f = popart.conv %x, %w {strides = array<i64: 1>, pads = array<i64: 0, 0>, dilations = array<i64: 1>} : (tensor<1x1x4xf32>, tensor<1x1x1xf32>) -> tensor<1x1x4xf32>
  %s = popart.sub %z, %f : (tensor<f32>, tensor<1x1x4xf32>) -> tensor<1x1x4xf32>
  func.return %p, %q, %r, %s : tensor<1x1x4xf32>, tensor<2x1x4xf32>, tensor<1x1x4xf32>, tensor<1x1x4xf32>
}

// CHECK: popart.mul %c, %k
// CHECK: popart.mul %d, %t
// CHECK: popart.div %e
// CHECK: popart.sub %z, %f

// -----

// Groups of a transposed convolution: factors 1 and 2 for the first group's channels, 3 and 4 for the second's.
func.func @main(%x : tensor<1x2x1xf32>) -> tensor<1x4x1xf32> {
  %w = data.constant dense<[[[1.0], [1.0]], [[1.0], [1.0]]]> : tensor<2x2x1xf32>
  %k = data.constant dense<[[1.0], [2.0], [3.0], [4.0]]> : tensor<4x1xf32>
  %c = popart.conv_transpose %x, %w {strides = array<i64: 1>, pads = array<i64: 0, 0>, dilations = array<i64: 1>, group = 2 : i64, output_padding = array<i64: 0>} : (tensor<1x2x1xf32>, tensor<2x2x1xf32>) -> tensor<1x4x1xf32>
  %m = popart.mul %c, %k : (tensor<1x4x1xf32>, tensor<4x1xf32>) -> tensor<1x4x1xf32>
  func.return %m : tensor<1x4x1xf32>
}

// CHECK: data.constant dense<{{\[\[\[}}1.000000e+00], [2.000000e+00]], {{\[\[}}3.000000e+00], [4.000000e+00]]]>
// CHECK-NOT: popart.mul

// -----

// Gemm with its weights transposed; MatMul takes a factor, a term stays behind it.
func.func @main(%x : tensor<1x2xf32>) -> (tensor<1x2xf32>, tensor<1x2xf32>) {
  %w = data.constant dense<[[1.0, 2.0], [3.0, 4.0]]> : tensor<2x2xf32>
  %k = data.constant dense<[10.0, 100.0]> : tensor<2xf32>
  %g = popart.gemm %x, %w {trans_b = true} : (tensor<1x2xf32>, tensor<2x2xf32>) -> tensor<1x2xf32>
  %p = popart.mul %g, %k : (tensor<1x2xf32>, tensor<2xf32>) -> tensor<1x2xf32>
  %q = popart.add %p, %k : (tensor<1x2xf32>, tensor<2xf32>) -> tensor<1x2xf32>
  %m = popart.matmul %x, %w : (tensor<1x2xf32>, tensor<2x2xf32>) -> tensor<1x2xf32>
  %r = popart.mul %m, %k : (tensor<1x2xf32>, tensor<2xf32>) -> tensor<1x2xf32>
  %s = popart.add %r, %k : (tensor<1x2xf32>, tensor<2xf32>) -> tensor<1x2xf32>
  func.return %q, %s : tensor<1x2xf32>, tensor<1x2xf32>
}

// CHECK-DAG: %[[G:.*]] = data.constant dense<{{\[\[}}1.000000e+01, 2.000000e+01], [3.000000e+02, 4.000000e+02]]>
// CHECK-DAG: %[[M:.*]] = data.constant dense<{{\[\[}}1.000000e+01, 2.000000e+02], [3.000000e+01, 4.000000e+02]]>
// CHECK-DAG: popart.gemm %x, %[[G]], %{{.*}} {{.*}}trans_b = true
// CHECK-DAG: popart.matmul %x, %[[M]]
// CHECK:     popart.add

// -----

// A bias of fewer elements than the factor becomes one of as many.
func.func @main(%x : tensor<1x2xf32>) -> tensor<1x2xf32> {
  %w = data.constant dense<[[1.0, 2.0], [3.0, 4.0]]> : tensor<2x2xf32>
  %b = data.constant dense<[5.0]> : tensor<1xf32>
  %k = data.constant dense<[10.0, 100.0]> : tensor<2xf32>
  %g = popart.gemm %x, %w, %b : (tensor<1x2xf32>, tensor<2x2xf32>, tensor<1xf32>) -> tensor<1x2xf32>
  %p = popart.mul %g, %k : (tensor<1x2xf32>, tensor<2xf32>) -> tensor<1x2xf32>
  func.return %p : tensor<1x2xf32>
}

// CHECK:     data.constant dense<[5.000000e+01, 5.000000e+02]>
// CHECK-NOT: popart.mul

// -----

// A pad by zeros of the spatial dimensions is the convolution's; one by another value, of channels, or with another reader is not.
func.func @main(%x : tensor<1x1x4xf32>) -> (tensor<1x1x7xf32>, tensor<1x1x6xf32>, tensor<1x1x6xf32>, tensor<1x1x4xf32>) {
  %w = data.constant dense<[[[1.0]]]> : tensor<1x1x1xf32>
  %w2 = data.constant dense<[[[1.0], [1.0]]]> : tensor<1x2x1xf32>
  %one = data.constant dense<1.0> : tensor<f32>
  %p = popart.pad %x {lower = array<i64: 0, 0, 1>, upper = array<i64: 0, 0, 2>} : (tensor<1x1x4xf32>) -> tensor<1x1x7xf32>
  %a = popart.conv %p, %w {strides = array<i64: 1>, pads = array<i64: 0, 0>, dilations = array<i64: 1>} : (tensor<1x1x7xf32>, tensor<1x1x1xf32>) -> tensor<1x1x7xf32>
  %q = popart.pad %x, %one {lower = array<i64: 0, 0, 1>, upper = array<i64: 0, 0, 1>} : (tensor<1x1x4xf32>, tensor<f32>) -> tensor<1x1x6xf32>
  %b = popart.conv %q, %w {strides = array<i64: 1>, pads = array<i64: 0, 0>, dilations = array<i64: 1>} : (tensor<1x1x6xf32>, tensor<1x1x1xf32>) -> tensor<1x1x6xf32>
  %r = popart.pad %x {lower = array<i64: 0, 0, 1>, upper = array<i64: 0, 0, 1>} : (tensor<1x1x4xf32>) -> tensor<1x1x6xf32>
  %c = popart.conv %r, %w {strides = array<i64: 1>, pads = array<i64: 0, 0>, dilations = array<i64: 1>} : (tensor<1x1x6xf32>, tensor<1x1x1xf32>) -> tensor<1x1x6xf32>
  %y = popart.add %c, %r : (tensor<1x1x6xf32>, tensor<1x1x6xf32>) -> tensor<1x1x6xf32>
  %s = popart.pad %x {lower = array<i64: 0, 1, 0>, upper = array<i64: 0, 0, 0>} : (tensor<1x1x4xf32>) -> tensor<1x2x4xf32>
  %d = popart.conv %s, %w2 {strides = array<i64: 1>, pads = array<i64: 0, 0>, dilations = array<i64: 1>} : (tensor<1x2x4xf32>, tensor<1x2x1xf32>) -> tensor<1x1x4xf32>
  func.return %a, %b, %y, %d : tensor<1x1x7xf32>, tensor<1x1x6xf32>, tensor<1x1x6xf32>, tensor<1x1x4xf32>
}

// CHECK: %a = popart.conv %x, %w {{.*}}pads = array<i64: 1, 2>
// CHECK: %q = popart.pad
// CHECK: %r = popart.pad
// CHECK: %s = popart.pad

// -----

// Behind a batch norm whose input is no convolution: its own scale and bias.
func.func @main(%x : tensor<1x2x1xf32>) -> tensor<1x2x1xf32> {
  %one = data.constant dense<1.0> : tensor<2xf32>
  %v = data.constant dense<[1.0, 4.0]> : tensor<2xf32>
  %k = data.constant dense<[[2.0], [3.0]]> : tensor<2x1xf32>
  %n = popart.batch_norm %x, %one, %v, %v, %v {epsilon = 0.0 : f32} : (tensor<1x2x1xf32>, tensor<2xf32>, tensor<2xf32>, tensor<2xf32>, tensor<2xf32>) -> tensor<1x2x1xf32>
  %m = popart.mul %n, %k : (tensor<1x2x1xf32>, tensor<2x1xf32>) -> tensor<1x2x1xf32>
  %a = popart.add %m, %k : (tensor<1x2x1xf32>, tensor<2x1xf32>) -> tensor<1x2x1xf32>
  func.return %a : tensor<1x2x1xf32>
}

// CHECK-DAG: %[[S:.*]] = data.constant dense<[2.000000e+00, 3.000000e+00]>
// CHECK-DAG: %[[B:.*]] = data.constant dense<[4.000000e+00, 1.500000e+01]>
// CHECK:     popart.batch_norm %x, %[[S]], %[[B]], %v, %v
// CHECK-NOT: popart.mul

// -----

// Statistics of a wider type than what they normalise, behind a MatMul: the term that is left is of the narrow one.
func.func @main(%x : tensor<1x2xf16>) -> tensor<1x2xf16> {
  %w = data.constant dense<[[1.0, 2.0], [3.0, 4.0]]> : tensor<2x2xf16>
  %v = data.constant dense<[1.0, 4.0]> : tensor<2xf32>
  %m = popart.matmul %x, %w : (tensor<1x2xf16>, tensor<2x2xf16>) -> tensor<1x2xf16>
  %n = popart.batch_norm %m, %v, %v, %v, %v {epsilon = 0.0 : f32} : (tensor<1x2xf16>, tensor<2xf32>, tensor<2xf32>, tensor<2xf32>, tensor<2xf32>) -> tensor<1x2xf16>
  func.return %n : tensor<1x2xf16>
}

// CHECK: %[[T:.*]] = data.constant dense<[0.000000e+00, -4.000000e+00]> : tensor<2xf16>
// CHECK: popart.add %{{.*}}, %[[T]]
