// RUN: populus-opt %s -p "popops-to-poplar{target=gc200 tiles=16}" --split-input-file | filecheck %s

// As many outputs as tiles: rows stay whole.
func.func @main(%x : tensor<64x100xf32>) -> tensor<64xf32> {
  %y = popops.reduce %x {op = "max", dims = array<i64: 1>} : (tensor<64x100xf32>) -> tensor<64xf32>
  func.return %y : tensor<64xf32>
}

// CHECK:      poplar.family @reduce {op = "max"} for (d0 = 64 in 16 by 2, r0 = 100) on (d0)
// CHECK-NEXT:   in x = %x[d0, r0]

// -----

// One output: the row is cut, and squares are summed by adding.
func.func @main(%x : tensor<10000xf32>) -> tensor<f32> {
  %y = popops.reduce %x {op = "square_add", dims = array<i64: 0>} : (tensor<10000xf32>) -> tensor<f32>
  func.return %y : tensor<f32>
}

// CHECK: poplar.family @reduce {op = "square_add"} for (r0 = 10000 in 16) on (r0)
// CHECK:   out y = [[P:%.*]][at r0]
// CHECK: poplar.family @reduce {op = "add"}
// CHECK:   in x = [[P]][r0]
