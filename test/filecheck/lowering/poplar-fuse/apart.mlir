// RUN: populus-opt %s -p poplar-fuse | filecheck %s

// No task where one launch would give other elements, or where it is not the machine's.

// CHECK-NOT: poplar.task

// A machine whose tiles run families as they are.
// CHECK-LABEL: poplar.graph @machine
poplar.graph @machine target <gc200, tiles = 4> {
  %a = poplar.var "a" : !poplar.tensor<1x8x16xf32>
  %w = poplar.var "w" : !poplar.tensor<1x16x4xf32>
  %c = poplar.var "c" : !poplar.tensor<1x8x4xf32>
  poplar.execute "c + relu" {
    poplar.family @matmul for (k = 16, g = 1, m = 8 in 4, n = 4) on (m)
      in a = %a[g, m, k] : !poplar.tensor<1x8x16xf32>
      in b = %w[g, k, n] : !poplar.tensor<1x16x4xf32>
      out c = %c[g, m, n] : !poplar.tensor<1x8x4xf32>
    poplar.family @map {expr = #expr.fn<max(_1, 0)>} for (i = 1, j = 8 in 4, l = 4) on (j)
      inout x1 = %c[i, j, l] : !poplar.tensor<1x8x4xf32>
  }
}

// Another step reads the sums as well.
// CHECK-LABEL: poplar.graph @read_twice
poplar.graph @read_twice target <host, tiles = 4> {
  %a = poplar.var "a" : !poplar.tensor<1x8x16xf32>
  %w = poplar.var "w" : !poplar.tensor<1x16x4xf32>
  %c = poplar.var "c" : !poplar.tensor<1x8x4xf32>
  %y = poplar.var "y" : !poplar.tensor<1x8x4xf32>
  poplar.execute "c" {
    poplar.family @matmul for (k = 16, g = 1, m = 8 in 4, n = 4) on (m)
      in a = %a[g, m, k] : !poplar.tensor<1x8x16xf32>
      in b = %w[g, k, n] : !poplar.tensor<1x16x4xf32>
      out c = %c[g, m, n] : !poplar.tensor<1x8x4xf32>
  }
  poplar.execute "relu" {
    poplar.family @map {expr = #expr.fn<max(_1, 0)>} for (i = 1, j = 8 in 4, l = 4) on (j)
      in x1 = %c[i, j, l] : !poplar.tensor<1x8x4xf32>
      out y = %y[i, j, l] : !poplar.tensor<1x8x4xf32>
  }
  poplar.stream_out %c to "c" : !poplar.tensor<1x8x4xf32>
}

// The map writes what the product reads.
// CHECK-LABEL: poplar.graph @over_the_input
poplar.graph @over_the_input target <host, tiles = 4> {
  %a = poplar.var "a" : !poplar.tensor<1x8x8xf32>
  %w = poplar.var "w" : !poplar.tensor<1x8x8xf32>
  %c = poplar.var "c" : !poplar.tensor<1x8x8xf32>
  poplar.execute "c" {
    poplar.family @matmul for (k = 8, g = 1, m = 8 in 4, n = 8) on (m)
      in a = %a[g, m, k] : !poplar.tensor<1x8x8xf32>
      in b = %w[g, k, n] : !poplar.tensor<1x8x8xf32>
      out c = %c[g, m, n] : !poplar.tensor<1x8x8xf32>
  }
  poplar.execute "a" {
    poplar.family @map {expr = #expr.fn<max(_1, 0)>} for (i = 1, j = 8 in 4, l = 8) on (j)
      in x1 = %c[i, j, l] : !poplar.tensor<1x8x8xf32>
      out y = %a[i, j, l] : !poplar.tensor<1x8x8xf32>
  }
}

// Between the two, steps write both an operand of the map and what the product reads.
// CHECK-LABEL: poplar.graph @between
poplar.graph @between target <host, tiles = 4> {
  %a = poplar.var "a" : !poplar.tensor<1x8x16xf32>
  %w = poplar.var "w" : !poplar.tensor<1x16x4xf32>
  %c = poplar.var "c" : !poplar.tensor<1x8x4xf32>
  %z = poplar.var "z" : !poplar.tensor<1x8x4xf32>
  poplar.execute "c" {
    poplar.family @matmul for (k = 16, g = 1, m = 8 in 4, n = 4) on (m)
      in a = %a[g, m, k] : !poplar.tensor<1x8x16xf32>
      in b = %w[g, k, n] : !poplar.tensor<1x16x4xf32>
      out c = %c[g, m, n] : !poplar.tensor<1x8x4xf32>
  }
  poplar.execute "z" {
    poplar.family @fill {value = 1.0 : f32} for (i = 1, j = 8, l = 4) out y = %z[i, j, l] : !poplar.tensor<1x8x4xf32>
  }
  poplar.execute "a" {
    poplar.family @fill {value = 1.0 : f32} for (i = 1, j = 8, l = 16) out y = %a[i, j, l] : !poplar.tensor<1x8x16xf32>
  }
  poplar.execute "y" {
    poplar.family @map {expr = #expr.fn<add(_1, _2)>} for (i = 1, j = 8 in 4, l = 4) on (j)
      inout x1 = %c[i, j, l] : !poplar.tensor<1x8x4xf32>
      in x2 = %z[i, j, l] : !poplar.tensor<1x8x4xf32>
  }
}

// Launches have no code for the map in their stores.
// CHECK-LABEL: poplar.graph @other_function
poplar.graph @other_function target <host, tiles = 4> {
  %a = poplar.var "a" : !poplar.tensor<1x8x16xf32>
  %w = poplar.var "w" : !poplar.tensor<1x16x4xf32>
  %c = poplar.var "c" : !poplar.tensor<1x8x4xf32>
  poplar.execute "c + exp" {
    poplar.family @matmul for (k = 16, g = 1, m = 8 in 4, n = 4) on (m)
      in a = %a[g, m, k] : !poplar.tensor<1x8x16xf32>
      in b = %w[g, k, n] : !poplar.tensor<1x16x4xf32>
      out c = %c[g, m, n] : !poplar.tensor<1x8x4xf32>
    poplar.family @map {expr = #expr.fn<exp(_1)>} for (i = 1, j = 8 in 4, l = 4) on (j)
      inout x1 = %c[i, j, l] : !poplar.tensor<1x8x4xf32>
  }
}

// The map reads one row of its other operand, as a single element: a launch sees operands whole.
// CHECK-LABEL: poplar.graph @one_row
poplar.graph @one_row target <host, tiles = 4> {
  %a = poplar.var "a" : !poplar.tensor<1x8x16xf32>
  %w = poplar.var "w" : !poplar.tensor<1x16x4xf32>
  %c = poplar.var "c" : !poplar.tensor<1x8x4xf32>
  %z = poplar.var "z" : !poplar.tensor<8x4xf32>
  poplar.execute "c" {
    poplar.family @matmul for (k = 16, g = 1, m = 8 in 4, n = 4) on (m)
      in a = %a[g, m, k] : !poplar.tensor<1x8x16xf32>
      in b = %w[g, k, n] : !poplar.tensor<1x16x4xf32>
      out c = %c[g, m, n] : !poplar.tensor<1x8x4xf32>
  }
  poplar.execute "y" {
    poplar.family @map {expr = #expr.fn<add(_1, _2)>} for (i = 1, j = 8 in 4, l = 4) on (j)
      inout x1 = %c[i, j, l] : !poplar.tensor<1x8x4xf32>
      in x2 = %z[3, l] : !poplar.tensor<8x4xf32>
  }
}
// CHECK-NOT: poplar.task
