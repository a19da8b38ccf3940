// RUN: populus-opt %s -p "popnn-to-poplar{target=gc200}" --split-input-file | filecheck %s
// RUN: populus-opt %s -p "popnn-to-poplar{target=gc200 tiles=16}" --split-input-file | filecheck %s --check-prefix FEW

// Of 1,472 tiles, 8 would have a row each: cut, the rows take a seventh of the cycles. With 16 tiles they stay whole.
func.func @main(%x : tensor<8x8192xf32>) -> tensor<8x8192xf32> {
  %y = popnn.softmax %x : (tensor<8x8192xf32>) -> tensor<8x8192xf32>
  func.return %y : tensor<8x8192xf32>
}

// CHECK-NOT: @softmax
// CHECK:     popops.reduce {{.*}} {op = "max", dims = array<i64: 1>}
// CHECK:     popops.map <divide(exp(sub(_1, _2)), _3)>
// FEW:       poplar.family @softmax

// -----

// Short rows stay whole: six supersteps would take longer.
func.func @main(%x : tensor<128x128xf32>) -> tensor<128x128xf32> {
  %y = popnn.whiten %x {epsilon = 0.5 : f32} : (tensor<128x128xf32>) -> tensor<128x128xf32>
  func.return %y : tensor<128x128xf32>
}

// CHECK: poplar.family @whiten
// FEW:   poplar.family @whiten
