// RUN: populus-opt %s -p popart-to-popops | filecheck %s

func.func @main(%x: tensor<1x2x3xf32>, %v: tensor<2xf32>, %s: tensor<3xf32>) -> (tensor<1x2x3xf32>, tensor<1x2x3xf32>, tensor<1x2x3xf32>, tensor<1x2x3xf32>) {
  // With known statistics, one factor and one term for each channel: 2 / sqrt(4) and 1 - 3 * 1.
  %scale = data.constant dense<2.0> : tensor<2xf32>
  %bias = data.constant dense<1.0> : tensor<2xf32>
  %mean = data.constant dense<3.0> : tensor<2xf32>
  %variance = data.constant dense<4.0> : tensor<2xf32>
  // CHECK: data.constant dense<1.000000e+00> : tensor<2xf32>
  // CHECK: data.constant dense<-2.000000e+00> : tensor<2xf32>
  // CHECK: %known = popops.map <add(mul(_1, _2), _3)>(%x, {{.*}}) : (tensor<1x2x3xf32>, tensor<1x2x1xf32>, tensor<1x2x1xf32>)
  %known = popart.batch_norm %x, %scale, %bias, %mean, %variance {epsilon = 0.0 : f32} : (tensor<1x2x3xf32>, tensor<2xf32>, tensor<2xf32>, tensor<2xf32>, tensor<2xf32>) -> tensor<1x2x3xf32>
  // The factor is that of a channel.
  // CHECK: popops.map <divide(_1, sqrt(add(_2, 0.5)))>(%v, %v) : (tensor<2xf32>, tensor<2xf32>) -> tensor<2xf32>
  // CHECK: %open = popops.map <add(mul(sub(_1, _2), _3), _4)>(%x,
  %open = popart.batch_norm %x, %v, %v, %v, %v {epsilon = 0.5 : f32} : (tensor<1x2x3xf32>, tensor<2xf32>, tensor<2xf32>, tensor<2xf32>, tensor<2xf32>) -> tensor<1x2x3xf32>
  // CHECK: popops.reshape %x {shape = array<i64: 2, 3>}
  // CHECK-NEXT: popnn.whiten {{.*}} {epsilon = 5.000000e-01 : f32}
  // CHECK-NEXT: popops.reshape
  // CHECK-NEXT: %layer = popops.map <mul(_1, _2)>({{.*}}, %s)
  %layer = popart.layer_norm %x, %s {axis = 2 : i64, epsilon = 0.5 : f32} : (tensor<1x2x3xf32>, tensor<3xf32>) -> tensor<1x2x3xf32>
  // Softmax works along rows.
  // CHECK-NEXT: popops.dim_shuffle %x {permutation = array<i64: 0, 2, 1>}
  // CHECK-NEXT: popnn.softmax {{.*}} : (tensor<1x3x2xf32>) -> tensor<1x3x2xf32>
  // CHECK-NEXT: %soft = popops.dim_shuffle {{.*}} {permutation = array<i64: 0, 2, 1>}
  %soft = popart.softmax %x {axis = 1 : i64} : (tensor<1x2x3xf32>) -> tensor<1x2x3xf32>
  func.return %known, %open, %layer, %soft : tensor<1x2x3xf32>, tensor<1x2x3xf32>, tensor<1x2x3xf32>, tensor<1x2x3xf32>
}
