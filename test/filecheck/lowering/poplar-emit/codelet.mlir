// RUN: populus-opt %s --load %S/codelets.py -p poplar-emit | filecheck %s

// Codelets in Python: one whose indices are all proved, and one that checks an index from memory. Both have the sizes of a vertex.

poplar.graph @main target <host, tiles = 2> {
  %x = poplar.var "x" on [4 in 2, 3] order [0] : !poplar.tensor<4x3xf32>
  %v = poplar.var "v" on [5] : !poplar.tensor<5xf32>
  %at = poplar.var "at" on [4 in 2] order [0] : !poplar.tensor<4xi32>
  %y = poplar.var "y" on [4 in 2] order [0] : !poplar.tensor<4xf32>
  %z = poplar.var "z" on [4 in 2] order [0] : !poplar.tensor<4xf32>
  poplar.execute "norm" {
    poplar.family @norm.aa765b89 for (row = 4 in 2, n = 3) on (row)
      in x = %x[row, n] : !poplar.tensor<4x3xf32>
      out y = %y[row] : !poplar.tensor<4xf32>
  }
  poplar.execute "pick" {
    poplar.family @pick.e2c815f3 for (n = 5, row = 4 in 2) on (row)
      in x = %v[n] : !poplar.tensor<5xf32>
      in at = %at[row] : !poplar.tensor<4xi32>
      out y = %z[row] : !poplar.tensor<4xf32>
  }
}

// CHECK-LABEL: func.func @norm_0(
// CHECK:      %total.float = memref.alloca() : memref<f32>
// CHECK:      scf.for [[R:%[0-9]+]] =
// CHECK:        scf.for [[K:%[0-9]+]] =
// CHECK:          memref.load {{.*}}[[[R]], [[K]]] : memref<2x3xf32>
// CHECK:        math.sqrt
// CHECK-NOT:  cf.

// CHECK:      func.func @pick_1({{.*}}: memref<5xf32>, {{.*}}: memref<2xi32>, {{.*}}: memref<2xf32>, %report: memref<3xindex>) -> i64
// CHECK:      [[FIVE:%[0-9]+]] = arith.constant 5 : index
// CHECK-NEXT: [[GOOD:%[0-9]+]] = arith.cmpi ult, [[AT:%[0-9]+]], [[FIVE]] : index
// CHECK-NEXT: cf.cond_br [[GOOD]], [[NEXT:\^bb[0-9]+]], [[BAD:\^bb[0-9]+]]
// CHECK-NEXT: [[NEXT]]:
// CHECK-NEXT: memref.load {{.*}}[[[AT]]] : memref<5xf32>
// CHECK:      [[BAD]]:
// CHECK:      memref.store [[AT]], %report
