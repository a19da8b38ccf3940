// RUN: populus-opt %s -p "popops-to-poplar{target=gc200 tiles=4}" --split-input-file | filecheck %s

// The input belongs to the caller: the first map makes a variable, the second works on it in place.
func.func @main(%x : tensor<16x4xf32>, %b : tensor<4xf32>) -> tensor<16x4xf32> {
  %y = popops.map <exp(_1)>(%x) : (tensor<16x4xf32>) -> tensor<16x4xf32>
  %z = popops.map <add(_1, _2)>(%y, %b) : (tensor<16x4xf32>, tensor<4xf32>) -> tensor<16x4xf32>
  func.return %z : tensor<16x4xf32>
}

// CHECK:      [[Y:%.*]] = poplar.var {{.*}} on [16 in 4, 4 by 2] order [0]
// CHECK:      poplar.family @map {expr = #expr.fn<exp(_1)>} for (d0 = 16 in 4, d1 = 4 by 2) on (d0)
// CHECK-NEXT:   in x1 = %x[d0, d1]
// CHECK-NEXT:   out y = [[Y]][d0, d1]
// CHECK:      [[B:%.*]] = poplar.reshape %b
// CHECK:      poplar.family @map {expr = #expr.fn<add(_1, _2)>} for (d0 = 16 in 4, d1 = 4) on (d0)
// CHECK-NEXT:   inout x1 = [[Y]][d0, d1]
// CHECK-NEXT:   in x2 = [[B]][0, d1]

// -----

// %y is read once more after the second map, which therefore leaves it alone; the third is its last reader.
func.func @main(%x : tensor<8xf32>) -> tensor<8xf32> {
  %y = popops.map <exp(_1)>(%x) : (tensor<8xf32>) -> tensor<8xf32>
  %z = popops.map <log(_1)>(%y) : (tensor<8xf32>) -> tensor<8xf32>
  %s = popops.map <add(_1, _2)>(%y, %z) : (tensor<8xf32>, tensor<8xf32>) -> tensor<8xf32>
  func.return %s : tensor<8xf32>
}

// CHECK:      in x1 = [[Y:%.*]][d0]
// CHECK-NEXT: out y = [[Z:%.*]][d0]
// CHECK:      in x1 = [[Z]][d0]
// CHECK-NEXT: out y = [[L:%.*]][d0]
// CHECK:      inout x1 = [[Z]][d0]
// CHECK-NEXT: in x2 = [[L]][d0]

// -----

// A result of the model is never overwritten, not even by a later map of it.
func.func @main(%x : tensor<8xf32>) -> (tensor<8xf32>, tensor<8xf32>) {
  %y = popops.map <exp(_1)>(%x) : (tensor<8xf32>) -> tensor<8xf32>
  %z = popops.map <neg(_1)>(%y) : (tensor<8xf32>) -> tensor<8xf32>
  func.return %y, %z : tensor<8xf32>, tensor<8xf32>
}

// CHECK:      poplar.family @map {expr = #expr.fn<neg(_1)>}
// CHECK-NEXT:   in x1
// CHECK-NEXT:   out y

// -----

// A matrix and its transpose are one variable, of which a vertex reads what another would overwrite.
func.func @main(%x : tensor<4x4xf32>) -> tensor<4x4xf32> {
  %y = popops.map <exp(_1)>(%x) : (tensor<4x4xf32>) -> tensor<4x4xf32>
  %t = popops.dim_shuffle %y {permutation = array<i64: 1, 0>} : (tensor<4x4xf32>) -> tensor<4x4xf32>
  %s = popops.map <add(_1, _2)>(%y, %t) : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
  func.return %s : tensor<4x4xf32>
}

// CHECK:      poplar.family @map {expr = #expr.fn<add(_1, _2)>}
// CHECK-NEXT:   in x1
// CHECK-NEXT:   in x2
// CHECK-NEXT:   out y
