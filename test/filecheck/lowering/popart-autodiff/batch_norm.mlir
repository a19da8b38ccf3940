// RUN: populus-opt %s -p "popart-autodiff{loss=loss wrt=x,w}" | filecheck %s

// The gradient of a batch norm sums twice over the batch, and has roots and quotients of channels only. No copy of x in f32 is kept.
func.func @main(%x: tensor<4x3x5x5xf16>, %w: tensor<3xf16>, %b: tensor<3xf16>) -> tensor<f16>
    attributes {input_names = ["x", "w", "b"], output_names = ["loss"]} {
  %m = popart.reduce_mean %x {axes = array<i64: 0, 2, 3>} : (tensor<4x3x5x5xf16>) -> tensor<3xf16>
  %v = popart.batch_variance %x, %m : (tensor<4x3x5x5xf16>, tensor<3xf16>) -> tensor<3xf16>
  %y = popart.batch_norm %x, %w, %b, %m, %v : (tensor<4x3x5x5xf16>, tensor<3xf16>, tensor<3xf16>, tensor<3xf16>, tensor<3xf16>) -> tensor<4x3x5x5xf16>
  %loss = popart.reduce_sum_square %y {axes = array<i64: 0, 1, 2, 3>} : (tensor<4x3x5x5xf16>) -> tensor<f16>
  func.return %loss : tensor<f16>
}

// CHECK:      popart.batch_norm
// CHECK:      popops.map <mul(_1, rsqrt(add(_2, {{.*}}))>({{.*}}) : (tensor<3xf16>, tensor<3xf16>) -> tensor<3xf16>
// CHECK:      popops.map <rsqrt(add(_1, {{.*}}))>({{.*}}) : (tensor<3xf16>) -> tensor<3xf16>
// CHECK:      popops.reduce {{.*}} to = f32} : (tensor<4x3x5x5xf16>) -> tensor<3xf32>
// CHECK:      popops.map <mul(_4, mul(sub(_1, _2), _3))>
// CHECK-NEXT: popops.reduce {{.*}} to = f32} : (tensor<4x3x5x5xf16>) -> tensor<3xf32>
// CHECK-NOT:  sqrt
// CHECK-NOT:  popops.reduce
// CHECK-NOT:  4x3x5x5xf32
