// RUN: populus-opt %s -p popart-to-popops | filecheck %s
// RUN: populus-opt %s -p popart-to-popops --print-debuginfo | filecheck %s --check-prefix LOC

func.func @main(%x: tensor<2x3xf32>, %v: tensor<3xf32>, %n: tensor<3xi32>) -> (tensor<2x3xf32>, tensor<3xi32>, tensor<3xf16>) {
  // A formula is one map, with the op's numbers in it and its name on its value.
  // CHECK: %leaky = popops.map <select(_1, mul(0.5, _1), gte(_1, 0))>(%x) : (tensor<2x3xf32>) -> tensor<2x3xf32>
  // LOC: %leaky = popops.map {{.*}} loc("net/leaky")
  %leaky = popart.leaky_relu %x {alpha = 0.5 : f32} : tensor<2x3xf32> loc("net/leaky")
  // CHECK-NEXT: %sum = popops.map <add(_1, _2)>(%leaky, %v)
  %sum = popart.add %leaky, %v : (tensor<2x3xf32>, tensor<3xf32>) -> tensor<2x3xf32>
  // The remainder with the sign of the divisor comes from the one with the sign of the dividend.
  // CHECK-NEXT: popops.map <select(add(rem(_1, _2), _2), rem(_1, _2), and(not(equal(rem(_1, _2), 0)), xor(lt(rem(_1, _2), 0), lt(_2, 0))))>
  %mod = popart.mod %n, %n : (tensor<3xi32>, tensor<3xi32>) -> tensor<3xi32>
  // CHECK-NEXT: %half = popops.map <cast(_1, f16)>(%v)
  %half = popart.cast %v {to = f16} : (tensor<3xf32>) -> tensor<3xf16>
  // CHECK-NEXT: func.return %sum, %mod, %half
  func.return %sum, %mod, %half : tensor<2x3xf32>, tensor<3xi32>, tensor<3xf16>
}
