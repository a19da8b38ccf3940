// RUN: populus-opt %s -p "popart-fuse{patterns=CastOfWiderCast}" --split-input-file | filecheck %s

// There and back, and on to a third type. The cast in between has another reader, which keeps it.
func.func @main(%x : tensor<4xf16>) -> (tensor<4xf16>, tensor<4xf64>, tensor<4xf32>) {
  %wide = popart.cast %x {to = f32} : (tensor<4xf16>) -> tensor<4xf32>
  %back = popart.cast %wide {to = f16} : (tensor<4xf32>) -> tensor<4xf16>
  %wider = popart.cast %wide {to = f64} : (tensor<4xf32>) -> tensor<4xf64>
  func.return %back, %wider, %wide : tensor<4xf16>, tensor<4xf64>, tensor<4xf32>
}

// CHECK:      %wide = popart.cast %x
// CHECK-NEXT: %wider = popart.cast %x {to = f64} : (tensor<4xf16>) -> tensor<4xf64>
// CHECK-NEXT: func.return %x, %wider, %wide

// -----

// Through a type that does not hold every value: f16 rounds, bf16 has fewer digits than f16, f32 has too few for i32, i8 has no 200.
func.func @main(%x : tensor<4xf32>, %h : tensor<4xf16>, %i : tensor<4xi32>, %u : tensor<4xui8>) -> (tensor<4xf32>, tensor<4xf16>, tensor<4xi32>, tensor<4xui8>) {
  %a = popart.cast %x {to = f16} : (tensor<4xf32>) -> tensor<4xf16>
  %b = popart.cast %a {to = f32} : (tensor<4xf16>) -> tensor<4xf32>
  %c = popart.cast %h {to = bf16} : (tensor<4xf16>) -> tensor<4xbf16>
  %d = popart.cast %c {to = f16} : (tensor<4xbf16>) -> tensor<4xf16>
  %e = popart.cast %i {to = f32} : (tensor<4xi32>) -> tensor<4xf32>
  %f = popart.cast %e {to = i32} : (tensor<4xf32>) -> tensor<4xi32>
  %g = popart.cast %u {to = i8} : (tensor<4xui8>) -> tensor<4xi8>
  %k = popart.cast %g {to = ui8} : (tensor<4xi8>) -> tensor<4xui8>
  func.return %b, %d, %f, %k : tensor<4xf32>, tensor<4xf16>, tensor<4xi32>, tensor<4xui8>
}

// CHECK: func.return %b, %d, %f, %k
