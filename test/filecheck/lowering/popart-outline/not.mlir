// RUN: populus-opt %s -p "popart-outline" --split-input-file --verify-each | filecheck %s

// CHECK-NOT: func.call

// Once.
func.func @main(%x : tensor<4x4xf32>, %w : tensor<4x4xf32>) -> tensor<4x4xf32> {
  %m = popart.matmul %x, %w : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
  func.return %m : tensor<4x4xf32>
}

// -----

// A number in a formula is not the same.
func.func @main(%x : tensor<4x4xf32>) -> (tensor<4x4xf32>, tensor<4x4xf32>) {
  %a = data.constant dense<1.0> : tensor<f32>
  %b = data.constant dense<2.0> : tensor<f32>
  %y = popart.gemm %x, %x, %a {alpha = 1.0 : f32, beta = 1.0 : f32, trans_a = false, trans_b = false} : (tensor<4x4xf32>, tensor<4x4xf32>, tensor<f32>) -> tensor<4x4xf32>
  %z = popart.gemm %x, %y, %b {alpha = 1.0 : f32, beta = 1.0 : f32, trans_a = false, trans_b = false} : (tensor<4x4xf32>, tensor<4x4xf32>, tensor<f32>) -> tensor<4x4xf32>
  func.return %y, %z : tensor<4x4xf32>, tensor<4x4xf32>
}

// -----

// Nor are shapes.
func.func @main(%x : tensor<4x4xf32>, %w : tensor<4x8xf32>, %v : tensor<8x4xf32>) -> tensor<4x4xf32> {
  %a = popart.matmul %x, %w : (tensor<4x4xf32>, tensor<4x8xf32>) -> tensor<4x8xf32>
  %b = popart.matmul %a, %v : (tensor<4x8xf32>, tensor<8x4xf32>) -> tensor<4x4xf32>
  func.return %b : tensor<4x4xf32>
}

// -----

// Random numbers of two streams.
func.func @main(%seed : tensor<2xui32>) -> (tensor<64xf32>, tensor<64xf32>) {
  %a = popart.random %seed {distribution = "normal", a = 0.0 : f64, b = 1.0 : f64, stream = 0 : i64, shape = array<i64: 64>, element = f32} : (tensor<2xui32>) -> tensor<64xf32>
  %b = popart.random %seed {distribution = "normal", a = 0.0 : f64, b = 1.0 : f64, stream = 1 : i64, shape = array<i64: 64>, element = f32} : (tensor<2xui32>) -> tensor<64xf32>
  func.return %a, %b : tensor<64xf32>, tensor<64xf32>
}

// -----

// A few element-wise ops are not worth copying their operands for.
func.func @main(%x : tensor<64xf32>, %z : tensor<64xf32>) -> (tensor<64xf32>, tensor<64xf32>) {
  %a = popart.exp %x : tensor<64xf32>
  %b = popart.abs %a : tensor<64xf32>
  %c = popart.exp %z : tensor<64xf32>
  %d = popart.abs %c : tensor<64xf32>
  func.return %b, %d : tensor<64xf32>, tensor<64xf32>
}

// -----

// What nothing reads.
func.func @main(%x : tensor<4x4xf32>, %w : tensor<4x4xf32>) -> tensor<4x4xf32> {
  %a = popart.matmul %x, %w : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
  %b = popart.matmul %w, %x : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
  func.return %x : tensor<4x4xf32>
}
