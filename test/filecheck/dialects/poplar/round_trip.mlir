// RUN: populus-opt %s --verify-each | populus-opt -f mlir --verify-each | filecheck %s

// Every op and attribute of the dialect, printed as it is written.

// CHECK: poplar.graph @memory target <gc200, tiles = 16> {
poplar.graph @memory target <gc200, tiles = 16> {
  // CHECK-NEXT: %x = poplar.var "x" on [1, 64 in 8 by 8, 58] order [1] start 3 at 1024 : !poplar.tensor<1x64x58xf32>
  %x = poplar.var "x" on [1, 64 in 8 by 8, 58] order [1] start 3 at 1024 : !poplar.tensor<1x64x58xf32>
  // CHECK-NEXT: %h = poplar.var "half way" : !poplar.tensor<8x6xf16>
  %h = poplar.var "half way" : !poplar.tensor<8x6xf16>
  // CHECK-NEXT: %b = poplar.const "b" dense<1.000000e+00> : tensor<6xf16> on [6] : !poplar.tensor<6xf16>
  %b = poplar.const "b" dense<1.0> : tensor<6xf16> on [6] : !poplar.tensor<6xf16>
  // CHECK-NEXT: %0 = poplar.slice %h[0:8, 5:-1:-2] : !poplar.tensor<8x6xf16> -> !poplar.tensor<8x3xf16>
  %0 = poplar.slice %h[0:8, 5:-1:-2] : !poplar.tensor<8x6xf16> -> !poplar.tensor<8x3xf16>
  // CHECK-NEXT: %1 = poplar.reshape %h : !poplar.tensor<8x6xf16> -> !poplar.tensor<48xf16>
  %1 = poplar.reshape %h : !poplar.tensor<8x6xf16> -> !poplar.tensor<48xf16>
  // CHECK-NEXT: %2 = poplar.dim_shuffle %h [1, 0] : !poplar.tensor<8x6xf16> -> !poplar.tensor<6x8xf16>
  %2 = poplar.dim_shuffle %h [1, 0] : !poplar.tensor<8x6xf16> -> !poplar.tensor<6x8xf16>
  // CHECK-NEXT: %3 = poplar.broadcast %b : !poplar.tensor<6xf16> -> !poplar.tensor<8x6xf16>
  %3 = poplar.broadcast %b : !poplar.tensor<6xf16> -> !poplar.tensor<8x6xf16>
  // CHECK-NEXT: poplar.copy %3 to %h : !poplar.tensor<8x6xf16>
  poplar.copy %3 to %h : !poplar.tensor<8x6xf16>
  // CHECK-NEXT: %l = poplar.var "l" : !poplar.tensor<8x3xf16>
  %l = poplar.var "l" : !poplar.tensor<8x3xf16>
  // CHECK-NEXT: %m = poplar.var "m" : !poplar.tensor<8x3xf16>
  %m = poplar.var "m" : !poplar.tensor<8x3xf16>
  // CHECK-NEXT: poplar.copy %0 to %l under 1 : !poplar.tensor<8x3xf16>
  poplar.copy %0 to %l under 1 : !poplar.tensor<8x3xf16>
  // CHECK-NEXT: poplar.copy %0 to %m : !poplar.tensor<8x3xf16>
  poplar.copy %0 to %m : !poplar.tensor<8x3xf16>
  // CHECK-NEXT: }
}

// CHECK: poplar.graph @compute target <host> {
poplar.graph @compute target <host> {
  %image = poplar.var "x" : !poplar.tensor<1x64x58xf32>
  %w = poplar.var "w" : !poplar.tensor<64x64x3xf32>
  %p = poplar.var "p" : !poplar.tensor<2x1x64x29xf32>
  %y = poplar.var "y" : !poplar.tensor<1x64x29xf32>
  // CHECK: poplar.execute "conv" {
  // CHECK-NEXT: poplar.family @conv for (b = 1, oc = 64 in 4 by 8, ic = 64 in 2, o0 = 29, k0 = 3) on (oc, ic) start 5
  // CHECK-NEXT:   in x = %image[b, ic, o0 * 2 + k0 - 1] : !poplar.tensor<1x64x58xf32>
  // CHECK-NEXT:   in w = %w[oc, ic, k0] : !poplar.tensor<64x64x3xf32>
  // CHECK-NEXT:   out y = %p[at ic, b, oc, o0] : !poplar.tensor<2x1x64x29xf32>
  // CHECK-NEXT: }
  poplar.execute "conv" {
    poplar.family @conv for (b = 1, oc = 64 in 4 by 8, ic = 64 in 2, o0 = 29, k0 = 3) on (oc, ic) start 5
      in x = %image[b, ic, o0 * 2 + k0 - 1] : !poplar.tensor<1x64x58xf32>
      in w = %w[oc, ic, k0] : !poplar.tensor<64x64x3xf32>
      out y = %p[at ic, b, oc, o0] : !poplar.tensor<2x1x64x29xf32>
  }
  %low = poplar.slice %y[0:1, 0:32, 0:29] : !poplar.tensor<1x64x29xf32> -> !poplar.tensor<1x32x29xf32>
  %high = poplar.slice %y[0:1, 32:64, 0:29] : !poplar.tensor<1x64x29xf32> -> !poplar.tensor<1x32x29xf32>
  // CHECK: poplar.execute "two families" {
  // CHECK-NEXT: poplar.family @map {expr = #expr.fn<max(_1, mul(_2, 2.0))>} for (d0 = 1, d1 = 32 in 16, d2 = 29) on (d1)
  // CHECK-NEXT:   inout x1 = %high[d0, d1, d2] : !poplar.tensor<1x32x29xf32>
  // CHECK-NEXT:   in x2 = %w[3, 1, 0] : !poplar.tensor<64x64x3xf32>
  // CHECK-NEXT: poplar.family @fill {value = 0.000000e+00 : f32} for (d0 = 1, d1 = 32, d2 = 29)
  // CHECK-NEXT:   out y = %low[d0, d1, d2] : !poplar.tensor<1x32x29xf32>
  poplar.execute "two families" {
    poplar.family @map {expr = #expr.fn<max(_1, mul(_2, 2.0))>} for (d0 = 1, d1 = 32 in 16, d2 = 29) on (d1)
      inout x1 = %high[d0, d1, d2] : !poplar.tensor<1x32x29xf32>
      in x2 = %w[3, 1, 0] : !poplar.tensor<64x64x3xf32>
    poplar.family @fill {value = 0.0 : f32} for (d0 = 1, d1 = 32, d2 = 29)
      out y = %low[d0, d1, d2] : !poplar.tensor<1x32x29xf32>
  }
  // CHECK:      poplar.family @iota {start = 0 : i64, step = 1 : i64} for (d0 = 40 in 5 by 8) on (d0)
  // CHECK-NEXT:   out y = %i[d0] : !poplar.tensor<40xi32>
  %i = poplar.var "i" : !poplar.tensor<40xi32>
  poplar.execute "iota" {
    poplar.family @iota {start = 0 : i64, step = 1 : i64} for (d0 = 40 in 5 by 8) on (d0)
      out y = %i[d0] : !poplar.tensor<40xi32>
  }
}

// CHECK: poplar.graph @control target <gc2> {
poplar.graph @control target <gc2> {
  %v = poplar.var "x" : !poplar.tensor<4xf32>
  %c = poplar.var "p" : !poplar.tensor<i1>
  %s = poplar.var "s" : !poplar.tensor<1xi32>
  // CHECK: poplar.stream_in "input" to %v : !poplar.tensor<4xf32>
  poplar.stream_in "input" to %v : !poplar.tensor<4xf32>
  // CHECK-NEXT: poplar.sequence "group" {
  // CHECK-NEXT:   poplar.repeat 10 {
  // CHECK-NEXT:     poplar.call @f
  // CHECK-NEXT:   }
  // CHECK-NEXT: }
  poplar.sequence "group" {
    poplar.repeat 10 {
      poplar.call @f
    }
  }
  // CHECK: poplar.while %c : !poplar.tensor<i1> before {
  // CHECK: } do {
  // CHECK:   poplar.call @f
  // CHECK: }
  poplar.while %c : !poplar.tensor<i1> before {} do { poplar.call @f }
  // CHECK: poplar.if %c : !poplar.tensor<i1> {
  // CHECK:   poplar.call @f
  // CHECK: } else {
  // CHECK: }
  poplar.if %c : !poplar.tensor<i1> { poplar.call @f } else {}
  // CHECK: poplar.switch %s : !poplar.tensor<1xi32> case 3 {
  // CHECK:   poplar.call @f
  // CHECK: } case -4 {
  // CHECK: } default {
  // CHECK: }
  poplar.switch %s : !poplar.tensor<1xi32> case 3 { poplar.call @f } case -4 {} default {}
  // CHECK: poplar.func @f {
  // CHECK: }
  poplar.func @f {}
  // CHECK: poplar.func @g {
  // CHECK-NEXT: %{{.*}} = poplar.param in "a" on [4 in 2] order [0] at 64 : !poplar.tensor<4xf32>
  // CHECK-NEXT: %{{.*}} = poplar.param inout "b" : !poplar.tensor<4xf32>
  // CHECK-NEXT: %{{.*}} = poplar.param out "c" : !poplar.tensor<i1>
  poplar.func @g {
    %a = poplar.param in "a" on [4 in 2] order [0] at 64 : !poplar.tensor<4xf32>
    %b = poplar.param inout "b" : !poplar.tensor<4xf32>
    %c2 = poplar.param out "c" : !poplar.tensor<i1>
  }
  %w = poplar.var "w" : !poplar.tensor<4xf32>
  // CHECK: poplar.call @g(%v, %{{.*}}, %c) : !poplar.tensor<4xf32>, !poplar.tensor<4xf32>, !poplar.tensor<i1>
  poplar.call @g(%v, %w, %c) : !poplar.tensor<4xf32>, !poplar.tensor<4xf32>, !poplar.tensor<i1>
  // CHECK: poplar.host_call "unique"(%v, %v) inputs 1 : !poplar.tensor<4xf32>, !poplar.tensor<4xf32>
  poplar.host_call "unique"(%v, %v) inputs 1 : !poplar.tensor<4xf32>, !poplar.tensor<4xf32>
  // CHECK-NEXT: poplar.host_call "close"(%v) inputs 1 params {rtol = 5.000000e-01 : f64} : !poplar.tensor<4xf32>
  poplar.host_call "close"(%v) inputs 1 params {rtol = 0.5 : f64} : !poplar.tensor<4xf32>
  // CHECK: poplar.stream_out %v to "output" : !poplar.tensor<4xf32>
  poplar.stream_out %v to "output" : !poplar.tensor<4xf32>
}
