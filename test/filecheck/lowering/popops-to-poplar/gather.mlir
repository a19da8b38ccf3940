// RUN: populus-opt %s -p "popops-to-poplar{target=gc200 tiles=4}" --split-input-file | filecheck %s

// A tile that picks rows has the whole sliced dimension of its columns.
func.func @main(%table : tensor<100x8xf32>, %i : tensor<4xi64>) -> tensor<4x8xf32> {
  %y = popops.multi_slice %table, %i {dim = 0 : i64} : (tensor<100x8xf32>, tensor<4xi64>) -> tensor<4x8xf32>
  func.return %y : tensor<4x8xf32>
}

// CHECK:      poplar.family @multi_slice for (d0 = 4 in 4, d1 = 8 by 2) on (d0)
// CHECK-NEXT:   in table = %table[*, d1]
// CHECK-NEXT:   in indices = %i[d0]
// CHECK-NEXT:   out y = {{.*}}[d0, d1]

// -----

func.func @main() -> tensor<5xi32> {
  %y = popops.iota {count = 5 : i64, start = 2 : i64, step = 3 : i64, element = i32} : tensor<5xi32>
  func.return %y : tensor<5xi32>
}

// CHECK: poplar.family @iota {start = 2 : i64, step = 3 : i64} for (d0 = 5 in 3 by 2) on (d0)
