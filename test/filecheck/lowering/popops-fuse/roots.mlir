// RUN: populus-opt %s -p popops-fuse --split-input-file | filecheck %s
// RUN: populus-opt %s -p "popops-fuse{roots=false}" --split-input-file | filecheck %s --check-prefix KEPT

// The base is at least 2, as it has a sum of squares: a local response normalisation.
func.func @main(%x : tensor<1x1x8x36xf32>) -> tensor<1x1x8x36xf32> {
  %s = popnn.pool %x {kind = "square_sum", kernel = array<i64: 5, 1>, strides = array<i64: 1, 1>, pads = array<i64: 2, 0, 2, 0>, dilations = array<i64: 1, 1>} : (tensor<1x1x8x36xf32>) -> tensor<1x1x8x36xf32>
  %y = popops.map <mul(_1, pow(add(2.0, mul(0.5, _2)), -0.75))>(%x, %s) : (tensor<1x1x8x36xf32>, tensor<1x1x8x36xf32>) -> tensor<1x1x8x36xf32>
  func.return %y : tensor<1x1x8x36xf32>
}

// CHECK: popops.map <mul(_1, mul(rsqrt(add(2.0, mul(0.5, _2))), sqrt(rsqrt(add(2.0, mul(0.5, _2))))))>(%x, %s)
// KEPT: popops.map <mul(_1, pow(add(2.0, mul(0.5, _2)), -0.75))>(%x, %s)

// -----

// A base of unknown sign stays: the power of minus infinity is infinity, and a root of it is not a number.
func.func @main(%x : tensor<4xf32>) -> tensor<4xf32> {
  %y = popops.map <pow(_1, 0.75)>(%x) : (tensor<4xf32>) -> tensor<4xf32>
  func.return %y : tensor<4xf32>
}

// CHECK: popops.map <pow(_1, 0.75)>(%x)

// -----

// Powers that are no quarters stay.
func.func @main(%x : tensor<4xf32>) -> tensor<4xf32> {
  %y = popops.map <pow(square(_1), 0.7)>(%x) : (tensor<4xf32>) -> tensor<4xf32>
  func.return %y : tensor<4xf32>
}

// CHECK: popops.map <pow(square(_1), 0.7)>(%x)

// -----

// So do those of halves, whose every step rounds.
func.func @main(%x : tensor<4xf16>) -> tensor<4xf16> {
  %y = popops.map <pow(square(_1), 0.75)>(%x) : (tensor<4xf16>) -> tensor<4xf16>
  func.return %y : tensor<4xf16>
}

// CHECK: popops.map <pow(square(_1), 0.75)>(%x)

// -----

// Whole powers of any float are products, whose results the powers are.
func.func @main(%x : tensor<4xf32>) -> tensor<4xf32> {
  %y = popops.map <add(pow(_1, 2.0), pow(_1, 4.0))>(%x) : (tensor<4xf32>) -> tensor<4xf32>
  func.return %y : tensor<4xf32>
}

// CHECK: popops.map <add(square(_1), pow(_1, 4.0))>(%x)
// KEPT: popops.map <add(pow(_1, 2.0), pow(_1, 4.0))>(%x)
