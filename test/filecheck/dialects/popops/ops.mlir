// RUN: populus-opt %s | populus-opt | filecheck %s

// Library calls read back as they print.
func.func @main(%x: tensor<2x3xf32>, %v: tensor<3xf32>, %i: tensor<4xi64>, %zero: tensor<f32>) {
  // CHECK: %map = popops.map <select(_1, mul(_2, 0.5), gte(_1, -0.0))>(%x, %v) : (tensor<2x3xf32>, tensor<3xf32>) -> tensor<2x3xf32>
  %map = popops.map <select(_1, mul(_2, 0.5), gte(_1, -0.0))>(%x, %v) : (tensor<2x3xf32>, tensor<3xf32>) -> tensor<2x3xf32>
  // CHECK-NEXT: %sum = popops.reduce %x {op = "add", dims = array<i64: 1>} : (tensor<2x3xf32>) -> tensor<2xf32>
  %sum = popops.reduce %x {op = "add", dims = array<i64: 1>} : (tensor<2x3xf32>) -> tensor<2xf32>
  // CHECK-NEXT: %double = popops.reduce %x {op = "add", dims = array<i64: 1>, to = f64} : (tensor<2x3xf32>) -> tensor<2xf64>
  %double = popops.reduce %x {op = "add", dims = array<i64: 1>, to = f64} : (tensor<2x3xf32>) -> tensor<2xf64>
  // CHECK-NEXT: %flat = popops.reshape %x {shape = array<i64: 6>} : (tensor<2x3xf32>) -> tensor<6xf32>
  %flat = popops.reshape %x {shape = array<i64: 6>} : (tensor<2x3xf32>) -> tensor<6xf32>
  // CHECK-NEXT: %turned = popops.dim_shuffle %x {permutation = array<i64: 1, 0>} : (tensor<2x3xf32>) -> tensor<3x2xf32>
  %turned = popops.dim_shuffle %x {permutation = array<i64: 1, 0>} : (tensor<2x3xf32>) -> tensor<3x2xf32>
  // CHECK-NEXT: %wide = popops.broadcast %v {shape = array<i64: 2, 3>} : (tensor<3xf32>) -> tensor<2x3xf32>
  %wide = popops.broadcast %v {shape = array<i64: 2, 3>} : (tensor<3xf32>) -> tensor<2x3xf32>
  // CHECK-NEXT: %back = popops.slice %x {begins = array<i64: 0, 2>, ends = array<i64: 1, -1>, steps = array<i64: 1, -2>} : (tensor<2x3xf32>) -> tensor<1x2xf32>
  %back = popops.slice %x {begins = array<i64: 0, 2>, ends = array<i64: 1, -1>, steps = array<i64: 1, -2>} : (tensor<2x3xf32>) -> tensor<1x2xf32>
  // CHECK-NEXT: %both = popops.concat %x, %wide {dim = 0 : i64} : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<4x3xf32>
  %both = popops.concat %x, %wide {dim = 0 : i64} : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<4x3xf32>
  // CHECK-NEXT: %padded = popops.pad %v, %zero {lower = array<i64: 1>, upper = array<i64: 0>, interior = array<i64: 2>} : (tensor<3xf32>, tensor<f32>) -> tensor<8xf32>
  %padded = popops.pad %v, %zero {lower = array<i64: 1>, upper = array<i64: 0>, interior = array<i64: 2>} : (tensor<3xf32>, tensor<f32>) -> tensor<8xf32>
  // CHECK-NEXT: %rows = popops.multi_slice %x, %i {dim = 1 : i64} : (tensor<2x3xf32>, tensor<4xi64>) -> tensor<2x4xf32>
  %rows = popops.multi_slice %x, %i {dim = 1 : i64} : (tensor<2x3xf32>, tensor<4xi64>) -> tensor<2x4xf32>
  // CHECK-NEXT: %count = popops.iota {count = 5 : i64, start = 1 : i64, step = 2 : i64, element = i32} : tensor<5xi32>
  %count = popops.iota {count = 5 : i64, start = 1 : i64, step = 2 : i64, element = i32} : tensor<5xi32>
  func.return
}
