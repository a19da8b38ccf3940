// RUN: populus-opt %s | populus-opt | filecheck %s

// An op in a kernel: operands and results as the kernel has them, the op itself on planar tensors.

// CHECK-LABEL: func.func @main
func.func @main(%x: tensor<1x3x2xf32>) -> tensor<1x3x2xf32> {
  // CHECK: %p = popart.pack %x : (tensor<1x3x2xf32>) -> tensor<1x1x2x8xf32>
  %p = popart.pack %x : (tensor<1x3x2xf32>) -> tensor<1x1x2x8xf32>
  // CHECK-NEXT: %q = popart.pack %x {layout = #popart.layout<blocked 2 at 2>} : (tensor<1x3x2xf32>) -> tensor<1x3x1x2xf32>
  %q = popart.pack %x {layout = #popart.layout<blocked 2 at 2>} : (tensor<1x3x2xf32>) -> tensor<1x3x1x2xf32>
  // CHECK-NEXT: %y = popart.kernel "blocked"(%p) {inputs = [#popart.layout<blocked 8 at 1>], outputs = [#popart.layout<planar>]} :
  // CHECK-SAME: (tensor<1x1x2x8xf32>) -> tensor<1x3x2xf32> {
  %y = popart.kernel "blocked" (%p) {inputs = [#popart.layout<blocked 8 at 1>], outputs = [#popart.layout<planar>]}
         : (tensor<1x1x2x8xf32>) -> tensor<1x3x2xf32> {
  ^bb0(%a: tensor<1x3x2xf32>):
    // CHECK: popart.relu %a : tensor<1x3x2xf32>
    %r = popart.relu %a : tensor<1x3x2xf32>
    popart.yield %r : tensor<1x3x2xf32>
  }
  // CHECK: popart.unpack %p {extent = 3 : i64}
  %u = popart.unpack %p {extent = 3 : i64} : (tensor<1x1x2x8xf32>) -> tensor<1x3x2xf32>
  func.return %y : tensor<1x3x2xf32>
}
