// RUN: populus-opt %s --split-input-file --load %S/blocked.py -p popart-select-kernels | filecheck %s
// RUN: populus-opt %s --split-input-file --load %S/blocked.py -p popart-select-kernels,popart-to-popops | filecheck %s --check-prefix=LOW

// Ops in branches and loops have kernels too. A value from outside is packed there, once.

// CHECK-LABEL: func.func @branch
// CHECK:       [[X:%[a-z0-9_]+]] = popart.pack %x
// CHECK-NEXT:  popart.if %c
// CHECK:         popart.kernel "blocked"([[X]])
// CHECK:         popart.kernel "blocked"
// CHECK:         popart.kernel "blocked"
// CHECK:         popart.unpack
// CHECK-NEXT:    popart.yield
// CHECK:         popart.yield %x
// LOW-LABEL:   func.func @branch
// LOW:         popops.if
// LOW:           popops.map <max(_1, 0)>({{.*}}) : (tensor<1x1x2x2x8xf32>) -> tensor<1x1x2x2x8xf32>
// LOW-NOT:     popart.
func.func @branch(%c: tensor<i1>, %x: tensor<1x3x2x2xf32>) -> tensor<1x3x2x2xf32> {
  %y = popart.if %c then {
    %a = popart.relu %x : tensor<1x3x2x2xf32>
    %b = popart.relu %a : tensor<1x3x2x2xf32>
    %d = popart.relu %b : tensor<1x3x2x2xf32>
    popart.yield %d : tensor<1x3x2x2xf32>
  } else {
    popart.yield %x : tensor<1x3x2x2xf32>
  } : tensor<i1> -> tensor<1x3x2x2xf32>
  func.return %y : tensor<1x3x2x2xf32>
}

// -----
// Two in a row save less than two reorders cost, but not in a loop that packs its operand once for five iterations.

// CHECK-LABEL: func.func @loop
// CHECK:       popart.relu %x
// CHECK-NEXT:  popart.relu
// CHECK:       popart.pack
// CHECK-NEXT:  popart.loop
// CHECK:         popart.kernel "blocked"
// CHECK:         popart.kernel "blocked"
// CHECK:         popart.unpack
func.func @loop(%x: tensor<1x3x2x2xf32>) -> tensor<1x3x2x2xf32> {
  %p = popart.relu %x : tensor<1x3x2x2xf32>
  %q = popart.relu %p : tensor<1x3x2x2xf32>
  %n = popart.abs %q : tensor<1x3x2x2xf32>
  %y = popart.loop(%n) {trips = 5 : i64} : (tensor<1x3x2x2xf32>) -> tensor<1x3x2x2xf32> do {
  ^bb0(%i: tensor<i32>, %s: tensor<1x3x2x2xf32>):
    %a = popart.relu %n : tensor<1x3x2x2xf32>
    %b = popart.relu %a : tensor<1x3x2x2xf32>
    %t = popart.add %s, %b : (tensor<1x3x2x2xf32>, tensor<1x3x2x2xf32>) -> tensor<1x3x2x2xf32>
    popart.yield %t : tensor<1x3x2x2xf32>
  }
  func.return %y : tensor<1x3x2x2xf32>
}
