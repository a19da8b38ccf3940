// RUN: populus-opt %s -p poplar-fuse | filecheck %s
// RUN: populus-opt %s -p poplar-fuse,poplar-fuse | filecheck %s

// A product and the map on its sums are one task, in the execute that they share.

// CHECK-LABEL: poplar.graph @in_place
poplar.graph @in_place target <host, tiles = 4> {
  %a = poplar.var "a" : !poplar.tensor<1x8x16xf32>
  %w = poplar.var "w" : !poplar.tensor<1x16x4xf32>
  %c = poplar.var "c" : !poplar.tensor<1x8x4xf32>
  // CHECK: poplar.task "c" {
  // CHECK-NEXT: poplar.execute "c + relu" {
  // CHECK-NEXT: poplar.family @matmul
  // CHECK: poplar.family @map {expr = #expr.fn<max(_1, 0)>}
  // CHECK-NOT: poplar.execute
  poplar.execute "c + relu" {
    poplar.family @matmul for (k = 16, g = 1, m = 8 in 4, n = 4) on (m)
      in a = %a[g, m, k] : !poplar.tensor<1x8x16xf32>
      in b = %w[g, k, n] : !poplar.tensor<1x16x4xf32>
      out c = %c[g, m, n] : !poplar.tensor<1x8x4xf32>
    poplar.family @map {expr = #expr.fn<max(_1, 0)>} for (i = 1, j = 8 in 4, l = 4) on (j)
      inout x1 = %c[i, j, l] : !poplar.tensor<1x8x4xf32>
  }
}

// Slices of k, the sum of them, and the map: one task where the product was. What the map needs stands before it.

// CHECK-LABEL: poplar.graph @slices
poplar.graph @slices target <host, tiles = 4> {
  %a = poplar.var "a" : !poplar.tensor<1x8x16xf32>
  %w = poplar.var "w" : !poplar.tensor<1x16x4xf32>
  %p = poplar.var "p" : !poplar.tensor<2x1x8x4xf32>
  %c = poplar.var "c" : !poplar.tensor<1x8x4xf32>
  %z = poplar.var "z" : !poplar.tensor<8xf32>
  // CHECK: poplar.var "y"
  // CHECK: poplar.task "c" {
  // CHECK-NEXT: poplar.execute "p" {
  // CHECK: poplar.execute "c" {
  // CHECK-NEXT: poplar.family @reduce
  // CHECK: poplar.execute "y" {
  // CHECK-NEXT: poplar.family @map
  // CHECK: poplar.execute "z" {
  poplar.execute "p" {
    poplar.family @matmul for (k = 16 in 2, g = 1, m = 8, n = 4) on (k)
      in a = %a[g, m, k] : !poplar.tensor<1x8x16xf32>
      in b = %w[g, k, n] : !poplar.tensor<1x16x4xf32>
      out c = %p[at k, g, m, n] : !poplar.tensor<2x1x8x4xf32>
  }
  poplar.execute "c" {
    poplar.family @reduce {op = "add"} for (r = 2, a0 = 1, a1 = 8 in 2, a2 = 4) on (a1)
      in x = %p[r, a0, a1, a2] : !poplar.tensor<2x1x8x4xf32>
      out y = %c[a0, a1, a2] : !poplar.tensor<1x8x4xf32>
  }
  poplar.execute "z" {
    poplar.family @fill {value = 1.0 : f32} for (i = 8) out y = %z[i] : !poplar.tensor<8xf32>
  }
  %y = poplar.var "y" : !poplar.tensor<1x8x4xf32>
  poplar.execute "y" {
    poplar.family @map {expr = #expr.fn<tanh(_1)>} for (i = 1, j = 8 in 4, l = 4) on (j)
      in x1 = %c[i, j, l] : !poplar.tensor<1x8x4xf32>
      out y = %y[i, j, l] : !poplar.tensor<1x8x4xf32>
  }
}

// The product waits where a step between makes another operand of the map. Other families of its execute stay.

// CHECK-LABEL: poplar.graph @late
poplar.graph @late target <host, tiles = 8> {
  %a = poplar.var "a" : !poplar.tensor<1x8x16xf32>
  %w = poplar.var "w" : !poplar.tensor<1x16x4xf32>
  %c = poplar.var "c" : !poplar.tensor<1x8x4xf32>
  %z = poplar.var "z" : !poplar.tensor<1x8x4xf32>
  %o = poplar.var "o" : !poplar.tensor<8xf32>
  // CHECK: poplar.execute "c + o" {
  // CHECK-NEXT: poplar.family @fill
  // CHECK: poplar.execute "z" {
  // CHECK: poplar.task "c" {
  // CHECK-NEXT: poplar.execute "c" {
  // CHECK-NEXT: poplar.family @matmul
  // CHECK: poplar.execute "y" {
  // CHECK-NEXT: poplar.family @map
  poplar.execute "c + o" {
    poplar.family @matmul for (k = 16, g = 1, m = 8 in 4, n = 4) on (m)
      in a = %a[g, m, k] : !poplar.tensor<1x8x16xf32>
      in b = %w[g, k, n] : !poplar.tensor<1x16x4xf32>
      out c = %c[g, m, n] : !poplar.tensor<1x8x4xf32>
    poplar.family @fill {value = 2.0 : f32} for (i = 8 in 4) on (i) start 4 out y = %o[i] : !poplar.tensor<8xf32>
  }
  poplar.execute "z" {
    poplar.family @fill {value = 1.0 : f32} for (i = 1, j = 8, l = 4) out y = %z[i, j, l] : !poplar.tensor<1x8x4xf32>
  }
  poplar.execute "y" {
    poplar.family @map {expr = #expr.fn<add(_1, _2)>} for (i = 1, j = 8 in 4, l = 4) on (j)
      inout x1 = %c[i, j, l] : !poplar.tensor<1x8x4xf32>
      in x2 = %z[i, j, l] : !poplar.tensor<1x8x4xf32>
  }
}

// Two products whose maps are in one execute with them: each task has its own, and nothing is left.

// CHECK-LABEL: poplar.graph @neighbours
poplar.graph @neighbours target <host, tiles = 8> {
  %a = poplar.var "a" : !poplar.tensor<1x8x16xf32>
  %w = poplar.var "w" : !poplar.tensor<1x16x4xf32>
  %c = poplar.var "c" : !poplar.tensor<1x8x4xf32>
  %d = poplar.var "d" : !poplar.tensor<1x8x4xf32>
  // CHECK: poplar.task "c" {
  // CHECK-NEXT: poplar.execute "c" {
  // CHECK-NEXT: poplar.family @matmul
  // CHECK: poplar.family @map {expr = #expr.fn<max(_1, 0)>}
  // CHECK: poplar.task "d" {
  // CHECK-NEXT: poplar.execute "d" {
  // CHECK-NEXT: poplar.family @matmul
  // CHECK: poplar.family @map {expr = #expr.fn<min(_1, 0)>}
  // CHECK-NOT: poplar.execute
  poplar.execute "c + 3 more" {
    poplar.family @matmul for (k = 16, g = 1, m = 8 in 4, n = 4) on (m)
      in a = %a[g, m, k] : !poplar.tensor<1x8x16xf32>
      in b = %w[g, k, n] : !poplar.tensor<1x16x4xf32>
      out c = %c[g, m, n] : !poplar.tensor<1x8x4xf32>
    poplar.family @matmul for (k = 16, g = 1, m = 8 in 4, n = 4) on (m)
      in a = %a[g, m, k] : !poplar.tensor<1x8x16xf32>
      in b = %w[g, k, n] : !poplar.tensor<1x16x4xf32>
      out c = %d[g, m, n] : !poplar.tensor<1x8x4xf32>
    poplar.family @map {expr = #expr.fn<max(_1, 0)>} for (i = 1, j = 8 in 4, l = 4) on (j)
      inout x1 = %c[i, j, l] : !poplar.tensor<1x8x4xf32>
    poplar.family @map {expr = #expr.fn<min(_1, 0)>} for (i = 1, j = 8 in 4, l = 4) on (j)
      inout x1 = %d[i, j, l] : !poplar.tensor<1x8x4xf32>
  }
}
