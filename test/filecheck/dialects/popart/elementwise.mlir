// RUN: populus-opt %s | populus-opt | filecheck %s

// An op that keeps the type of its operand names it once.
func.func @main(%x: tensor<2x4xf32>, %v: tensor<4xf32>, %n: tensor<4xi32>, %p: tensor<4xi1>) {
  // CHECK: %abs = popart.abs %x : tensor<2x4xf32>
  %abs = popart.abs %x : tensor<2x4xf32>
  // CHECK-NEXT: %acos = popart.acos %x : tensor<2x4xf32>
  %acos = popart.acos %x : tensor<2x4xf32>
  // CHECK-NEXT: %acosh = popart.acosh %x : tensor<2x4xf32>
  %acosh = popart.acosh %x : tensor<2x4xf32>
  // CHECK-NEXT: %asin = popart.asin %x : tensor<2x4xf32>
  %asin = popart.asin %x : tensor<2x4xf32>
  // CHECK-NEXT: %asinh = popart.asinh %x : tensor<2x4xf32>
  %asinh = popart.asinh %x : tensor<2x4xf32>
  // CHECK-NEXT: %atan = popart.atan %x : tensor<2x4xf32>
  %atan = popart.atan %x : tensor<2x4xf32>
  // CHECK-NEXT: %atanh = popart.atanh %x : tensor<2x4xf32>
  %atanh = popart.atanh %x : tensor<2x4xf32>
  // CHECK-NEXT: %ceil = popart.ceil %x : tensor<2x4xf32>
  %ceil = popart.ceil %x : tensor<2x4xf32>
  // CHECK-NEXT: %cos = popart.cos %x : tensor<2x4xf32>
  %cos = popart.cos %x : tensor<2x4xf32>
  // CHECK-NEXT: %cosh = popart.cosh %x : tensor<2x4xf32>
  %cosh = popart.cosh %x : tensor<2x4xf32>
  // CHECK-NEXT: %detach = popart.detach %x : tensor<2x4xf32>
  %detach = popart.detach %x : tensor<2x4xf32>
  // CHECK-NEXT: %erf = popart.erf %x : tensor<2x4xf32>
  %erf = popart.erf %x : tensor<2x4xf32>
  // CHECK-NEXT: %exp = popart.exp %x : tensor<2x4xf32>
  %exp = popart.exp %x : tensor<2x4xf32>
  // CHECK-NEXT: %expm1 = popart.expm1 %x : tensor<2x4xf32>
  %expm1 = popart.expm1 %x : tensor<2x4xf32>
  // CHECK-NEXT: %floor = popart.floor %x : tensor<2x4xf32>
  %floor = popart.floor %x : tensor<2x4xf32>
  // CHECK-NEXT: %log = popart.log %x : tensor<2x4xf32>
  %log = popart.log %x : tensor<2x4xf32>
  // CHECK-NEXT: %log1p = popart.log1p %x : tensor<2x4xf32>
  %log1p = popart.log1p %x : tensor<2x4xf32>
  // CHECK-NEXT: %neg = popart.neg %x : tensor<2x4xf32>
  %neg = popart.neg %x : tensor<2x4xf32>
  // CHECK-NEXT: %reciprocal = popart.reciprocal %x : tensor<2x4xf32>
  %reciprocal = popart.reciprocal %x : tensor<2x4xf32>
  // CHECK-NEXT: %round = popart.round %x : tensor<2x4xf32>
  %round = popart.round %x : tensor<2x4xf32>
  // CHECK-NEXT: %sign = popart.sign %x : tensor<2x4xf32>
  %sign = popart.sign %x : tensor<2x4xf32>
  // CHECK-NEXT: %sin = popart.sin %x : tensor<2x4xf32>
  %sin = popart.sin %x : tensor<2x4xf32>
  // CHECK-NEXT: %sinh = popart.sinh %x : tensor<2x4xf32>
  %sinh = popart.sinh %x : tensor<2x4xf32>
  // CHECK-NEXT: %sqrt = popart.sqrt %x : tensor<2x4xf32>
  %sqrt = popart.sqrt %x : tensor<2x4xf32>
  // CHECK-NEXT: %tan = popart.tan %x : tensor<2x4xf32>
  %tan = popart.tan %x : tensor<2x4xf32>
  // CHECK-NEXT: %celu = popart.celu %x : tensor<2x4xf32>
  %celu = popart.celu %x : tensor<2x4xf32>
  // CHECK-NEXT: %elu = popart.elu %x : tensor<2x4xf32>
  %elu = popart.elu %x : tensor<2x4xf32>
  // CHECK-NEXT: %gelu = popart.gelu %x : tensor<2x4xf32>
  %gelu = popart.gelu %x : tensor<2x4xf32>
  // CHECK-NEXT: %hard_sigmoid = popart.hard_sigmoid %x : tensor<2x4xf32>
  %hard_sigmoid = popart.hard_sigmoid %x : tensor<2x4xf32>
  // CHECK-NEXT: %hard_swish = popart.hard_swish %x : tensor<2x4xf32>
  %hard_swish = popart.hard_swish %x : tensor<2x4xf32>
  // CHECK-NEXT: %leaky_relu = popart.leaky_relu %x : tensor<2x4xf32>
  %leaky_relu = popart.leaky_relu %x : tensor<2x4xf32>
  // CHECK-NEXT: %mish = popart.mish %x : tensor<2x4xf32>
  %mish = popart.mish %x : tensor<2x4xf32>
  // CHECK-NEXT: %relu = popart.relu %x : tensor<2x4xf32>
  %relu = popart.relu %x : tensor<2x4xf32>
  // CHECK-NEXT: %selu = popart.selu %x : tensor<2x4xf32>
  %selu = popart.selu %x : tensor<2x4xf32>
  // CHECK-NEXT: %shrink = popart.shrink %x : tensor<2x4xf32>
  %shrink = popart.shrink %x : tensor<2x4xf32>
  // CHECK-NEXT: %sigmoid = popart.sigmoid %x : tensor<2x4xf32>
  %sigmoid = popart.sigmoid %x : tensor<2x4xf32>
  // CHECK-NEXT: %softplus = popart.softplus %x : tensor<2x4xf32>
  %softplus = popart.softplus %x : tensor<2x4xf32>
  // CHECK-NEXT: %softsign = popart.softsign %x : tensor<2x4xf32>
  %softsign = popart.softsign %x : tensor<2x4xf32>
  // CHECK-NEXT: %swish = popart.swish %x : tensor<2x4xf32>
  %swish = popart.swish %x : tensor<2x4xf32>
  // CHECK-NEXT: %tanh = popart.tanh %x : tensor<2x4xf32>
  %tanh = popart.tanh %x : tensor<2x4xf32>
  // CHECK-NEXT: %thresholded_relu = popart.thresholded_relu %x : tensor<2x4xf32>
  %thresholded_relu = popart.thresholded_relu %x : tensor<2x4xf32>
  // CHECK-NEXT: %not = popart.not %p : tensor<4xi1>
  %not = popart.not %p : tensor<4xi1>
  // CHECK-NEXT: %bitwise_not = popart.bitwise_not %n : tensor<4xi32>
  %bitwise_not = popart.bitwise_not %n : tensor<4xi32>
  // Properties at their defaults are not printed.
  // CHECK-NEXT: %leaky = popart.leaky_relu %x {alpha = 5.000000e-01 : f32} : tensor<2x4xf32>
  %leaky = popart.leaky_relu %x {alpha = 5.000000e-01 : f32} : tensor<2x4xf32>
  // CHECK-NEXT: %gelu_tanh = popart.gelu %x {tanh = true} : tensor<2x4xf32>
  %gelu_tanh = popart.gelu %x {tanh = true} : tensor<2x4xf32>
  // CHECK-NEXT: %is_nan = popart.is_nan %x : (tensor<2x4xf32>) -> tensor<2x4xi1>
  %is_nan = popart.is_nan %x : (tensor<2x4xf32>) -> tensor<2x4xi1>
  // CHECK-NEXT: %is_inf = popart.is_inf %x {detect_negative = false} : (tensor<2x4xf32>) -> tensor<2x4xi1>
  %is_inf = popart.is_inf %x {detect_negative = false} : (tensor<2x4xf32>) -> tensor<2x4xi1>
  // CHECK-NEXT: %cast = popart.cast %x {to = f16} : (tensor<2x4xf32>) -> tensor<2x4xf16>
  %cast = popart.cast %x {to = f16} : (tensor<2x4xf32>) -> tensor<2x4xf16>
  // CHECK-NEXT: %add = popart.add %x, %v : (tensor<2x4xf32>, tensor<4xf32>) -> tensor<2x4xf32>
  %add = popart.add %x, %v : (tensor<2x4xf32>, tensor<4xf32>) -> tensor<2x4xf32>
  // CHECK-NEXT: %less = popart.less %x, %v : (tensor<2x4xf32>, tensor<4xf32>) -> tensor<2x4xi1>
  %less = popart.less %x, %v : (tensor<2x4xf32>, tensor<4xf32>) -> tensor<2x4xi1>
  // CHECK-NEXT: %mod = popart.mod %n, %n {fmod = true} : (tensor<4xi32>, tensor<4xi32>) -> tensor<4xi32>
  %mod = popart.mod %n, %n {fmod = true} : (tensor<4xi32>, tensor<4xi32>) -> tensor<4xi32>
  // CHECK-NEXT: %where = popart.where %p, %x, %v : (tensor<4xi1>, tensor<2x4xf32>, tensor<4xf32>) -> tensor<2x4xf32>
  %where = popart.where %p, %x, %v : (tensor<4xi1>, tensor<2x4xf32>, tensor<4xf32>) -> tensor<2x4xf32>
  func.return
}
