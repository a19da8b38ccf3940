// RUN: populus-opt %s --load %S/blocked.py -p popart-select-kernels | filecheck %s
// RUN: populus-opt %s --load %S/blocked.py -p 'popart-select-kernels{force="relu:own"}' | filecheck %s --check-prefix=OWN
// RUN: populus-opt %s --load %S/blocked.py -p popart-select-kernels,popart-to-popops | filecheck %s --check-prefix=LOW

// Three in blocks save more than two reorders cost; what vetoed is left out; each says why.

// CHECK: func.func @main(%x: tensor<1x3x2x2xf32>)
// CHECK-NEXT: %0 = popart.pack %x : (tensor<1x3x2x2xf32>) -> tensor<1x1x2x2x8xf32>
// CHECK-NEXT: %a = popart.kernel "blocked"(%0) {inputs = [#popart.layout<blocked 8 at 1>], outputs = [#popart.layout<blocked 8 at 1>]
// CHECK-SAME: reason = "1.5 cycles in (blocked 8 at 1) -> (blocked 8 at 1); own (planar) -> (planar) 12"
// CHECK-NEXT: ^bb0
// CHECK-NEXT: popart.relu %1 : tensor<1x3x2x2xf32>
// CHECK-NEXT: popart.yield
// CHECK-NEXT: }
// CHECK-NEXT: %b = popart.kernel "blocked"(%a)
// CHECK: %c = popart.kernel "blocked"(%b)
// CHECK: [[Y:%[a-z0-9_]+]] = popart.unpack %c {extent = 3 : i64} : (tensor<1x1x2x2x8xf32>) -> tensor<1x3x2x2xf32>
// CHECK-NEXT: popart.abs [[Y]]
// OWN-NOT: popart.kernel
// LOW: popops.map <max(_1, 0)>({{.*}}) : (tensor<1x1x2x2x8xf32>) -> tensor<1x1x2x2x8xf32>
// LOW-NOT: popart.
func.func @main(%x: tensor<1x3x2x2xf32>) -> tensor<1x3x2x2xf32> {
  %a = popart.relu %x : tensor<1x3x2x2xf32>
  %b = popart.relu %a : tensor<1x3x2x2xf32>
  %c = popart.relu %b : tensor<1x3x2x2xf32>
  %d = popart.abs %c : tensor<1x3x2x2xf32>
  func.return %d : tensor<1x3x2x2xf32>
}
