// RUN: populus-opt %s -p "popart-fuse{patterns=DequantizeLater,QuantizedAgain,QuantizeSooner}" --split-input-file | filecheck %s
// RUN: populus-opt %s -p "popart-fuse{exact=true}" --split-input-file | filecheck %s

// The largest of each window is found among the integers, and quantizing by the same scale gives them back.
func.func @main(%x : tensor<1x2x4x4xui8>) -> tensor<1x2x2x2xui8> {
  %s = data.constant dense<0.1> : tensor<f32>
  %z = data.constant dense<7> : tensor<ui8>
  %f = popart.dequantize %x, %s, %z : (tensor<1x2x4x4xui8>, tensor<f32>, tensor<ui8>) -> tensor<1x2x4x4xf32>
  %p = popart.max_pool %f {kernel = array<i64: 2, 2>, strides = array<i64: 2, 2>, pads = array<i64: 0, 0, 0, 0>, dilations = array<i64: 1, 1>} : (tensor<1x2x4x4xf32>) -> tensor<1x2x2x2xf32>
  %q = popart.quantize %p, %s, %z : (tensor<1x2x2x2xf32>, tensor<f32>, tensor<ui8>) -> tensor<1x2x2x2xui8>
  func.return %q : tensor<1x2x2x2xui8>
}

// CHECK-NOT: popart.{{de|}}quantize
// CHECK:     %[[P:[a-z0-9]+]] = popart.max_pool %x
// CHECK:     func.return %[[P]]

// -----

// A concatenation is quantized part by part.
func.func @main(%x : tensor<2x3xf32>, %y : tensor<2x4xf32>) -> tensor<2x7xui8> {
  %s = data.constant dense<0.1> : tensor<f32>
  %z = data.constant dense<7> : tensor<ui8>
  %c = popart.concat %x, %y {axis = 1 : i64} : (tensor<2x3xf32>, tensor<2x4xf32>) -> tensor<2x7xf32>
  %q = popart.quantize %c, %s, %z : (tensor<2x7xf32>, tensor<f32>, tensor<ui8>) -> tensor<2x7xui8>
  func.return %q : tensor<2x7xui8>
}

// CHECK:      popart.quantize %x
// CHECK-NEXT: popart.quantize %y
// CHECK-NEXT: popart.concat

// -----

// Another zero point is no return to the integers, and a negative scale turns their order.
func.func @main(%x : tensor<1x2x4x4xui8>) -> (tensor<1x2x4x4xui8>, tensor<1x2x2x2xf32>) {
  %s = data.constant dense<0.1> : tensor<f32>
  %t = data.constant dense<-0.1> : tensor<f32>
  %z = data.constant dense<7> : tensor<ui8>
  %o = data.constant dense<8> : tensor<ui8>
  %f = popart.dequantize %x, %s, %z : (tensor<1x2x4x4xui8>, tensor<f32>, tensor<ui8>) -> tensor<1x2x4x4xf32>
  %q = popart.quantize %f, %s, %o : (tensor<1x2x4x4xf32>, tensor<f32>, tensor<ui8>) -> tensor<1x2x4x4xui8>
  %g = popart.dequantize %x, %t, %z : (tensor<1x2x4x4xui8>, tensor<f32>, tensor<ui8>) -> tensor<1x2x4x4xf32>
  %p = popart.max_pool %g {kernel = array<i64: 2, 2>, strides = array<i64: 2, 2>, pads = array<i64: 0, 0, 0, 0>, dilations = array<i64: 1, 1>} : (tensor<1x2x4x4xf32>) -> tensor<1x2x2x2xf32>
  func.return %q, %p : tensor<1x2x4x4xui8>, tensor<1x2x2x2xf32>
}

// CHECK:      %f = popart.dequantize %x
// CHECK-NEXT: %q = popart.quantize %f
// CHECK-NEXT: %g = popart.dequantize %x
// CHECK-NEXT: %p = popart.max_pool %g
