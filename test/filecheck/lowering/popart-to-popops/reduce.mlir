// RUN: populus-opt %s -p popart-to-popops | filecheck %s

func.func @main(%x: tensor<2x4xf32>, %h: tensor<2x4xf16>, %p: tensor<2x4xi1>) -> (tensor<2x1xf32>, tensor<2xf16>, tensor<2xi1>, tensor<2x4xf32>) {
  // CHECK: %{{.*}} = popops.reduce %x {op = "add", dims = array<i64: 1>} : (tensor<2x4xf32>) -> tensor<2xf32>
  // CHECK-NEXT: popops.map <divide(_1, 4)>
  // CHECK-NEXT: %mean = popops.reshape {{.*}} -> tensor<2x1xf32>
  %mean = popart.reduce_mean %x {axes = array<i64: 1>, keep = true} : (tensor<2x4xf32>) -> tensor<2x1xf32>
  // A sum of squares of f16 would overflow; the root need not.
  // CHECK-NEXT: popops.reduce %h {op = "square_add", dims = array<i64: 1>, to = f32} : (tensor<2x4xf16>) -> tensor<2xf32>
  // CHECK-NEXT: %length = popops.map <cast(sqrt(_1), f16)>
  %length = popart.reduce_l2 %h {axes = array<i64: 1>} : (tensor<2x4xf16>) -> tensor<2xf16>
  // CHECK-NEXT: %any = popops.reduce %p {op = "or", dims = array<i64: 1>}
  %any = popart.reduce_max %p {axes = array<i64: 1>} : (tensor<2x4xi1>) -> tensor<2xi1>
  // Over no dimension, nothing is left but the formula.
  // CHECK-NEXT: %size = popops.map <abs(_1)>(%x)
  %size = popart.reduce_l1 %x {axes = array<i64>} : (tensor<2x4xf32>) -> tensor<2x4xf32>
  func.return %mean, %length, %any, %size : tensor<2x1xf32>, tensor<2xf16>, tensor<2xi1>, tensor<2x4xf32>
}
