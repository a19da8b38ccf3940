// RUN: populus-opt %s -p popops-fuse --split-input-file | filecheck %s
// RUN: populus-opt %s -p "popops-fuse{literals=false}" --split-input-file | filecheck %s --check-prefix KEPT

// A chain becomes one map; the constant becomes a literal.
func.func @main(%x : tensor<4xf32>, %y : tensor<4xf32>) -> tensor<4xf32> {
  %half = data.constant dense<0.5> : tensor<f32>
  %a = popops.map <mul(_1, _2)>(%x, %half) : (tensor<4xf32>, tensor<f32>) -> tensor<4xf32>
  %b = popops.map <add(_1, _2)>(%a, %y) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  func.return %b : tensor<4xf32>
}

// CHECK-NOT: data.constant
// CHECK: popops.map <add(mul(_2, 0.5), _1)>(%y, %x) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
// KEPT: popops.map <add(mul(_2, _3), _1)>(%y, %x, %half)

// -----

// Two uses: the map would be computed twice, so it stays.
func.func @main(%x : tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>) {
  %a = popops.map <exp(_1)>(%x) : (tensor<4xf32>) -> tensor<4xf32>
  %b = popops.map <add(_1, 1.0)>(%a) : (tensor<4xf32>) -> tensor<4xf32>
  %c = popops.map <mul(_1, 2.0)>(%a) : (tensor<4xf32>) -> tensor<4xf32>
  func.return %b, %c : tensor<4xf32>, tensor<4xf32>
}

// CHECK: popops.map <exp(_1)>
// CHECK: popops.map <add(_1, 1.0)>
// CHECK: popops.map <mul(_1, 2.0)>

// -----

// Returned: it is a result of its own.
func.func @main(%x : tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>) {
  %a = popops.map <exp(_1)>(%x) : (tensor<4xf32>) -> tensor<4xf32>
  %b = popops.map <add(_1, 1.0)>(%a) : (tensor<4xf32>) -> tensor<4xf32>
  func.return %a, %b : tensor<4xf32>, tensor<4xf32>
}

// CHECK: popops.map <exp(_1)>
// CHECK: popops.map <add(_1, 1.0)>

// -----

// A small operand that is stretched: merging would compute it once per row, so it stays.
func.func @main(%x : tensor<8x4xf32>, %b : tensor<4xf32>) -> tensor<8x4xf32> {
  %a = popops.map <exp(_1)>(%b) : (tensor<4xf32>) -> tensor<4xf32>
  %y = popops.map <add(_1, _2)>(%x, %a) : (tensor<8x4xf32>, tensor<4xf32>) -> tensor<8x4xf32>
  func.return %y : tensor<8x4xf32>
}

// CHECK: popops.map <exp(_1)>
// CHECK: popops.map <add(_1, _2)>

// -----

// The constant gives the result its shape, so it stays an operand.
func.func @main(%x : tensor<1xf32>) -> tensor<4xf32> {
  %one = data.constant dense<1.0> : tensor<4xf32>
  %y = popops.map <add(_1, _2)>(%x, %one) : (tensor<1xf32>, tensor<4xf32>) -> tensor<4xf32>
  func.return %y : tensor<4xf32>
}

// CHECK: popops.map <add(_1, _2)>(%x, %one)

// -----

// Only the reshape reads the constant: it is stored in its new shape.
func.func @main(%x : tensor<1x2x3xf32>) -> tensor<1x2x3xf32> {
  %b = data.constant dense<[1.0, 2.0]> : tensor<2xf32>
  %r = popops.reshape %b {shape = array<i64: 1, 2, 1>} : (tensor<2xf32>) -> tensor<1x2x1xf32>
  %y = popops.map <add(_1, _2)>(%x, %r) : (tensor<1x2x3xf32>, tensor<1x2x1xf32>) -> tensor<1x2x3xf32>
  func.return %y : tensor<1x2x3xf32>
}

// CHECK:      %b = data.constant dense<{{.*}}> : tensor<1x2x1xf32>
// CHECK-NEXT: popops.map <add(_1, _2)>(%x, %b)

// -----

// A stretched operand is read as it was, if another operand has the result's shape.
func.func @main(%x : tensor<4x3xf32>, %c : tensor<1x3xf32>) -> (tensor<4x3xf32>, tensor<4x3xf32>) {
  %wide = popops.broadcast %c {shape = array<i64: 4, 3>} : (tensor<1x3xf32>) -> tensor<4x3xf32>
  %y = popops.map <add(_1, _2)>(%x, %wide) : (tensor<4x3xf32>, tensor<4x3xf32>) -> tensor<4x3xf32>
  %s = popops.broadcast %c {shape = array<i64: 4, 3>} : (tensor<1x3xf32>) -> tensor<4x3xf32>
  %z = popops.map <exp(_1)>(%s) : (tensor<4x3xf32>) -> tensor<4x3xf32>
  func.return %y, %z : tensor<4x3xf32>, tensor<4x3xf32>
}

// CHECK: popops.map <add(_1, _2)>(%x, %c) : (tensor<4x3xf32>, tensor<1x3xf32>) -> tensor<4x3xf32>
// CHECK-NEXT: %s = popops.broadcast %c
// CHECK-NEXT: popops.map <exp(_1)>(%s)

// -----

// Halves that several maps and reductions read as floats: each reads the halves, and no floats are kept.
func.func @halves(%x : tensor<8x4xf16>, %m : tensor<4xf32>) -> (tensor<4xf32>, tensor<8x4xf32>, tensor<8x4xf32>) {
  %wide = popops.map <cast(_1, f32)>(%x) : (tensor<8x4xf16>) -> tensor<8x4xf32>
  %s = popops.reduce %wide {op = "add", dims = array<i64: 0>} : (tensor<8x4xf32>) -> tensor<4xf32>
  %a = popops.map <sub(_1, _2)>(%wide, %m) : (tensor<8x4xf32>, tensor<4xf32>) -> tensor<8x4xf32>
  %b = popops.map <mul(_1, _1)>(%wide) : (tensor<8x4xf32>) -> tensor<8x4xf32>
  func.return %s, %a, %b : tensor<4xf32>, tensor<8x4xf32>, tensor<8x4xf32>
}

// CHECK-LABEL: func.func @halves
// CHECK-NOT: popops.map <cast(_1, f32)>
// CHECK: popops.reduce %x {{.*}}to = f32
// CHECK: popops.map <sub(cast(_2, f32), _1)>(%m, %x)
// CHECK: popops.map <mul(cast(_1, f32), cast(_1, f32))>(%x)

// -----

// A product reads them as floats too, so they are there.
func.func @product(%x : tensor<8x4xf16>, %w : tensor<1x4x3xf32>) -> (tensor<4xf32>, tensor<1x8x3xf32>) {
  %wide = popops.map <cast(_1, f32)>(%x) : (tensor<8x4xf16>) -> tensor<8x4xf32>
  %s = popops.reduce %wide {op = "add", dims = array<i64: 0>} : (tensor<8x4xf32>) -> tensor<4xf32>
  %r = popops.reshape %wide {shape = array<i64: 1, 8, 4>} : (tensor<8x4xf32>) -> tensor<1x8x4xf32>
  %y = poplin.matmul %r, %w : (tensor<1x8x4xf32>, tensor<1x4x3xf32>) -> tensor<1x8x3xf32>
  func.return %s, %y : tensor<4xf32>, tensor<1x8x3xf32>
}

// CHECK-LABEL: func.func @product
// CHECK: %wide = popops.map <cast(_1, f32)>(%x)
// CHECK: popops.reduce %wide
