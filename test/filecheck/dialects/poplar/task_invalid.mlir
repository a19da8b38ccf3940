// RUN: populus-opt %s --split-input-file --verify-diagnostics | filecheck %s

// What a task may not be.

// CHECK: a task holds executes, not poplar.copy
poplar.graph @main target <host> {
  %x = poplar.var "x" : !poplar.tensor<8xf32>
  %y = poplar.var "y" : !poplar.tensor<8xf32>
  poplar.task "t" { poplar.copy %x to %y : !poplar.tensor<8xf32> }
}

// -----
// CHECK: Region 'body' at position 0 expected a single block, but got 0 blocks
poplar.graph @main target <host> {
  poplar.task "t" {}
}

// -----
// CHECK: a task is a product, the sum of its slices, and a map of the sums; at least two of them, not @fill, @fill
poplar.graph @main target <host> {
  %x = poplar.var "x" : !poplar.tensor<8xf32>
  %y = poplar.var "y" : !poplar.tensor<8xf32>
  poplar.task "t" {
    poplar.execute "x" { poplar.family @fill {value = 1.0 : f32} for (i = 8) out y = %x[i] : !poplar.tensor<8xf32> }
    poplar.execute "y" { poplar.family @fill {value = 1.0 : f32} for (i = 8) out y = %y[i] : !poplar.tensor<8xf32> }
  }
}

// -----
// CHECK: @fill leaves no sums that a launch could go on with
poplar.graph @main target <host> {
  %x = poplar.var "x" : !poplar.tensor<8xf32>
  poplar.task "t" {
    poplar.execute "x" { poplar.family @fill {value = 1.0 : f32} for (i = 8) out y = %x[i] : !poplar.tensor<8xf32> }
    poplar.execute "y" { poplar.family @map {expr = #expr.fn<neg(_1)>} for (i = 8) inout x1 = %x[i] : !poplar.tensor<8xf32> }
  }
}

// -----
// The map reads rows 1 to 7 of the sums, each as the neighbour of the one that was just computed.
// CHECK: x1 has some of the sums in another place
poplar.graph @main target <host> {
  %a = poplar.var "a" : !poplar.tensor<1x8x16xf32>
  %w = poplar.var "w" : !poplar.tensor<1x16x4xf32>
  %c = poplar.var "c" : !poplar.tensor<1x8x4xf32>
  %y = poplar.var "y" : !poplar.tensor<1x7x4xf32>
  %0 = poplar.slice %c[0:1, 1:8, 0:4] : !poplar.tensor<1x8x4xf32> -> !poplar.tensor<1x7x4xf32>
  poplar.task "t" {
    poplar.execute "c" {
      poplar.family @matmul for (k = 16, g = 1, m = 8, n = 4)
        in a = %a[g, m, k] : !poplar.tensor<1x8x16xf32>
        in b = %w[g, k, n] : !poplar.tensor<1x16x4xf32>
        out c = %c[g, m, n] : !poplar.tensor<1x8x4xf32>
    }
    poplar.execute "y" {
      poplar.family @map {expr = #expr.fn<neg(_1)>} for (i = 1, j = 7, l = 4)
        in x1 = %0[i, j, l] : !poplar.tensor<1x7x4xf32>
        out y = %y[i, j, l] : !poplar.tensor<1x7x4xf32>
    }
  }
}

// -----
// CHECK: x2 is neither seen whole nor one element along each dimension
poplar.graph @main target <host> {
  %a = poplar.var "a" : !poplar.tensor<1x8x16xf32>
  %w = poplar.var "w" : !poplar.tensor<1x16x4xf32>
  %c = poplar.var "c" : !poplar.tensor<1x8x4xf32>
  %z = poplar.var "z" : !poplar.tensor<8x4xf32>
  poplar.task "t" {
    poplar.execute "c" {
      poplar.family @matmul for (k = 16, g = 1, m = 8, n = 4)
        in a = %a[g, m, k] : !poplar.tensor<1x8x16xf32>
        in b = %w[g, k, n] : !poplar.tensor<1x16x4xf32>
        out c = %c[g, m, n] : !poplar.tensor<1x8x4xf32>
      poplar.family @map {expr = #expr.fn<add(_1, _2)>} for (i = 1, j = 8, l = 4)
        inout x1 = %c[i, j, l] : !poplar.tensor<1x8x4xf32>
        in x2 = %z[3, l] : !poplar.tensor<8x4xf32>
    }
  }
}

// -----
// CHECK: the sum leaves elements out
poplar.graph @main target <host> {
  %a = poplar.var "a" : !poplar.tensor<1x8x16xf32>
  %w = poplar.var "w" : !poplar.tensor<1x16x4xf32>
  %p = poplar.var "p" : !poplar.tensor<4x1x8x4xf32>
  %c = poplar.var "c" : !poplar.tensor<1x8x4xf32>
  poplar.task "t" {
    poplar.execute "p" {
      poplar.family @matmul for (k = 16 in 4, g = 1, m = 8, n = 4) on (k)
        in a = %a[g, m, k] : !poplar.tensor<1x8x16xf32>
        in b = %w[g, k, n] : !poplar.tensor<1x16x4xf32>
        out c = %p[at k, g, m, n] : !poplar.tensor<4x1x8x4xf32>
    }
    poplar.execute "c" {
      poplar.family @reduce {op = "add"} for (r = 3, a0 = 1, a1 = 8, a2 = 4)
        in x = %p[r, a0, a1, a2] : !poplar.tensor<4x1x8x4xf32>
        out y = %c[a0, a1, a2] : !poplar.tensor<1x8x4xf32>
    }
  }
}

// -----
// CHECK: 'c' is not stored, but poplar.stream_out touches it too
poplar.graph @main target <host> {
  %a = poplar.var "a" : !poplar.tensor<1x8x16xf32>
  %w = poplar.var "w" : !poplar.tensor<1x16x4xf32>
  %c = poplar.var "c" : !poplar.tensor<1x8x4xf32>
  %y = poplar.var "y" : !poplar.tensor<1x8x4xf32>
  poplar.task "t" {
    poplar.execute "c" {
      poplar.family @matmul for (k = 16, g = 1, m = 8, n = 4)
        in a = %a[g, m, k] : !poplar.tensor<1x8x16xf32>
        in b = %w[g, k, n] : !poplar.tensor<1x16x4xf32>
        out c = %c[g, m, n] : !poplar.tensor<1x8x4xf32>
      poplar.family @map {expr = #expr.fn<neg(_1)>} for (i = 1, j = 8, l = 4)
        in x1 = %c[i, j, l] : !poplar.tensor<1x8x4xf32>
        out y = %y[i, j, l] : !poplar.tensor<1x8x4xf32>
    }
  }
  poplar.stream_out %c to "c" : !poplar.tensor<1x8x4xf32>
}

// -----
// CHECK: @map writes what the product reads
poplar.graph @main target <host> {
  %a = poplar.var "a" : !poplar.tensor<1x8x8xf32>
  %w = poplar.var "w" : !poplar.tensor<1x8x8xf32>
  %c = poplar.var "c" : !poplar.tensor<1x8x8xf32>
  poplar.task "t" {
    poplar.execute "c" {
      poplar.family @matmul for (k = 8, g = 1, m = 8, n = 8)
        in a = %a[g, m, k] : !poplar.tensor<1x8x8xf32>
        in b = %w[g, k, n] : !poplar.tensor<1x8x8xf32>
        out c = %c[g, m, n] : !poplar.tensor<1x8x8xf32>
    }
    poplar.execute "a" {
      poplar.family @map {expr = #expr.fn<neg(_1)>} for (i = 1, j = 8, l = 8)
        in x1 = %c[i, j, l] : !poplar.tensor<1x8x8xf32>
        out y = %a[i, j, l] : !poplar.tensor<1x8x8xf32>
    }
  }
}
