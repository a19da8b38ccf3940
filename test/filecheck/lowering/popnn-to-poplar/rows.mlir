// RUN: populus-opt %s -p "popnn-to-poplar{target=gc200 tiles=8}" --split-input-file | filecheck %s

// Each row stays whole on its tile.
func.func @main(%x : tensor<64x32xf32>) -> tensor<64x32xf32> {
  %y = popnn.softmax %x : (tensor<64x32xf32>) -> tensor<64x32xf32>
  func.return %y : tensor<64x32xf32>
}

// CHECK:      [[Y:%.*]] = poplar.var {{.*}} on [64 in 8, 32] order [0]
// CHECK:      poplar.family @softmax {log = false} for (d0 = 64 in 8, r = 32) on (d0)
// CHECK-NEXT:   in x = %x[d0, r]
// CHECK-NEXT:   out y = [[Y]][d0, r]

// -----

// One long row: it is cut, in maps and reductions that popops-to-poplar shares out.
func.func @main(%x : tensor<1x100000xf32>) -> tensor<1x100000xf32> {
  %y = popnn.softmax %x : (tensor<1x100000xf32>) -> tensor<1x100000xf32>
  func.return %y : tensor<1x100000xf32>
}

// CHECK-NOT: @softmax
// CHECK:     popops.reduce {{.*}} {op = "max", dims = array<i64: 1>}
// CHECK:     popops.map <exp(sub(_1, _2))>
// CHECK:     popops.reduce {{.*}} {op = "add", dims = array<i64: 1>}
// CHECK:     popops.map <divide(exp(sub(_1, _2)), _3)>

// -----

func.func @main(%x : tensor<64x32xf32>) -> tensor<64x32xf32> {
  %y = popnn.whiten %x {epsilon = 0.5 : f32} : (tensor<64x32xf32>) -> tensor<64x32xf32>
  func.return %y : tensor<64x32xf32>
}

// CHECK: poplar.family @whiten {epsilon = 5.000000e-01 : f32} for (d0 = 64 in 8, r = 32) on (d0)
