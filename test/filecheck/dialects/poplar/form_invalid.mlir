// RUN: populus-opt %s --split-input-file --verify-diagnostics | filecheck %s

// A family has the form of its codelet. What is refused here made an engine read or write outside of a variable.

// CHECK: w[oc, ic, oc]: the form has [oc, ic, k0] there
poplar.graph @main target <host> {
  %x = poplar.var "x" : !poplar.tensor<1x2x8xf32>
  %w = poplar.var "w" : !poplar.tensor<2x2x3xf32>
  %y = poplar.var "y" : !poplar.tensor<1x2x8xf32>
  poplar.execute "e" {
    poplar.family @conv for (b = 1, oc = 2, ic = 2, o0 = 8, k0 = 3)
      in x = %x[b, ic, o0 + k0 - 1] : !poplar.tensor<1x2x8xf32>
      in w = %w[oc, ic, oc] : !poplar.tensor<2x2x3xf32>
      out y = %y[b, oc, o0] : !poplar.tensor<1x2x8xf32>
  }
}

// -----
// CHECK: x[b, ic, o0]: [o0] is not o0 times a stride plus k0 times a dilation
poplar.graph @main target <host> {
  %x = poplar.var "x" : !poplar.tensor<1x2x8xf32>
  %w = poplar.var "w" : !poplar.tensor<2x2x3xf32>
  %y = poplar.var "y" : !poplar.tensor<1x2x8xf32>
  poplar.execute "e" {
    poplar.family @conv for (b = 1, oc = 2, ic = 2, o0 = 8, k0 = 3)
      in x = %x[b, ic, o0] : !poplar.tensor<1x2x8xf32>
      in w = %w[oc, ic, k0] : !poplar.tensor<2x2x3xf32>
      out y = %y[b, oc, o0] : !poplar.tensor<1x2x8xf32>
  }
}

// -----
// CHECK: x[b, ic, o0 + k0]: [ic] reaches 0..5 of 0..2; only windows may overhang
poplar.graph @main target <host> {
  %x = poplar.var "x" : !poplar.tensor<1x2x8xf32>
  %w = poplar.var "w" : !poplar.tensor<2x5x3xf32>
  %y = poplar.var "y" : !poplar.tensor<1x2x6xf32>
  poplar.execute "e" {
    poplar.family @conv for (b = 1, oc = 2, ic = 5, o0 = 6, k0 = 3)
      in x = %x[b, ic, o0 + k0] : !poplar.tensor<1x2x8xf32>
      in w = %w[oc, ic, k0] : !poplar.tensor<2x5x3xf32>
      out y = %y[b, oc, o0] : !poplar.tensor<1x2x6xf32>
  }
}

// -----
// CHECK: @conv: its parameters are partials?, swapped?, not strides
poplar.graph @main target <host> {
  %x = poplar.var "x" : !poplar.tensor<1x2x8xf32>
  %w = poplar.var "w" : !poplar.tensor<2x2x3xf32>
  %y = poplar.var "y" : !poplar.tensor<1x2x6xf32>
  poplar.execute "e" {
    poplar.family @conv {strides = array<i64: 4>} for (b = 1, oc = 2, ic = 2, o0 = 6, k0 = 3)
      in x = %x[b, ic, o0 + k0] : !poplar.tensor<1x2x8xf32>
      in w = %w[oc, ic, k0] : !poplar.tensor<2x2x3xf32>
      out y = %y[b, oc, o0] : !poplar.tensor<1x2x6xf32>
  }
}

// -----
// CHECK: partials = f16 is for sums of f16, but x is f32
poplar.graph @main target <host> {
  %x = poplar.var "x" : !poplar.tensor<1x2x8xf32>
  %w = poplar.var "w" : !poplar.tensor<2x2x3xf32>
  %y = poplar.var "y" : !poplar.tensor<1x2x6xf32>
  poplar.execute "e" {
    poplar.family @conv {partials = "f16"} for (b = 1, oc = 2, ic = 2, o0 = 6, k0 = 3)
      in x = %x[b, ic, o0 + k0] : !poplar.tensor<1x2x8xf32>
      in w = %w[oc, ic, k0] : !poplar.tensor<2x2x3xf32>
      out y = %y[b, oc, o0] : !poplar.tensor<1x2x6xf32>
  }
}

// -----
// CHECK: axes o1 are not o0
poplar.graph @main target <host> {
  %x = poplar.var "x" : !poplar.tensor<1x2x8xf32>
  %y = poplar.var "y" : !poplar.tensor<1x2x6xf32>
  poplar.execute "e" {
    poplar.family @pool {kind = "max", after = array<i64: 0>, count_padding = false} for (n = 1, c = 2, o1 = 6, k0 = 3)
      in x = %x[n, c, o1 + k0] : !poplar.tensor<1x2x8xf32>
      out y = %y[n, c, o1] : !poplar.tensor<1x2x6xf32>
  }
}

// -----
// CHECK: @pool: kind = "median" is not one of max, average, sum, square_sum
poplar.graph @main target <host> {
  %x = poplar.var "x" : !poplar.tensor<1x2x8xf32>
  %y = poplar.var "y" : !poplar.tensor<1x2x6xf32>
  poplar.execute "e" {
    poplar.family @pool {kind = "median", after = array<i64: 0>, count_padding = false} for (n = 1, c = 2, o0 = 6, k0 = 3)
      in x = %x[n, c, o0 + k0] : !poplar.tensor<1x2x8xf32>
      out y = %y[n, c, o0] : !poplar.tensor<1x2x6xf32>
  }
}

// -----
// CHECK: after = [0, 0] is not a padding for each of 1 dimensions
poplar.graph @main target <host> {
  %x = poplar.var "x" : !poplar.tensor<1x2x8xf32>
  %y = poplar.var "y" : !poplar.tensor<1x2x6xf32>
  poplar.execute "e" {
    poplar.family @pool {kind = "max", after = array<i64: 0, 0>, count_padding = false} for (n = 1, c = 2, o0 = 6, k0 = 3)
      in x = %x[n, c, o0 + k0] : !poplar.tensor<1x2x8xf32>
      out y = %y[n, c, o0] : !poplar.tensor<1x2x6xf32>
  }
}

// -----
// CHECK: a[0, m, k]: the form has [g, m, k] there
poplar.graph @main target <host> {
  %a = poplar.var "a" : !poplar.tensor<1x4x8xf32>
  %b = poplar.var "b" : !poplar.tensor<3x8x5xf32>
  %c = poplar.var "c" : !poplar.tensor<3x4x5xf32>
  poplar.execute "e" {
    poplar.family @matmul for (g = 3, m = 4, n = 5, k = 8)
      in a = %a[0, m, k] : !poplar.tensor<1x4x8xf32>
      in b = %b[g, k, n] : !poplar.tensor<3x8x5xf32>
      out c = %c[g, m, n] : !poplar.tensor<3x4x5xf32>
  }
}

// -----
// CHECK: c[0, m, 0]: the form has [g, m, n] there
poplar.graph @main target <host> {
  %a = poplar.var "a" : !poplar.tensor<3x4x8xf32>
  %b = poplar.var "b" : !poplar.tensor<3x8x5xf32>
  %c = poplar.var "c" : !poplar.tensor<1x4x1xf32>
  poplar.execute "e" {
    poplar.family @matmul for (g = 3, m = 4, n = 5, k = 8)
      in a = %a[g, m, k] : !poplar.tensor<3x4x8xf32>
      in b = %b[g, k, n] : !poplar.tensor<3x8x5xf32>
      out c = %c[0, m, 0] : !poplar.tensor<1x4x1xf32>
  }
}

// -----
// CHECK: no field names axis z
poplar.graph @main target <host> {
  %x = poplar.var "x" : !poplar.tensor<8xf32>
  poplar.execute "e" { poplar.family @fill {value = 0.0 : f32} for (i = 8, z = 3) out y = %x[i] : !poplar.tensor<8xf32> }
}

// -----
// CHECK: x1[i]: each dimension is that of [i, j] or one element
poplar.graph @main target <host> {
  %x = poplar.var "x" : !poplar.tensor<8xf32>
  %y = poplar.var "y" : !poplar.tensor<8x4xf32>
  poplar.execute "e" {
    poplar.family @map {expr = #expr.fn<_1>} for (i = 8, j = 4) in x1 = %x[i] : !poplar.tensor<8xf32> out y = %y[i, j] : !poplar.tensor<8x4xf32>
  }
}

// -----
// CHECK: _2 is read, but there are 1 operands
poplar.graph @main target <host> {
  %x = poplar.var "x" : !poplar.tensor<8xf32>
  poplar.execute "e" { poplar.family @map {expr = #expr.fn<add(_1, _2)>} for (i = 8) inout x1 = %x[i] : !poplar.tensor<8xf32> }
}

// -----
// CHECK: lt(_1, 0.0) makes i1 for y, which holds f32
poplar.graph @main target <host> {
  %x = poplar.var "x" : !poplar.tensor<8xf32>
  %y = poplar.var "y" : !poplar.tensor<8xf32>
  poplar.execute "e" {
    poplar.family @map {expr = #expr.fn<lt(_1, 0.0)>} for (i = 8) in x1 = %x[i] : !poplar.tensor<8xf32> out y = %y[i] : !poplar.tensor<8xf32>
  }
}

// -----
// CHECK: y[d1]: the axes that stay of x are [d0]
poplar.graph @main target <host> {
  %x = poplar.var "x" : !poplar.tensor<8x4xf32>
  %y = poplar.var "y" : !poplar.tensor<4xf32>
  poplar.execute "e" {
    poplar.family @reduce {op = "add"} for (d0 = 8, r = 4, d1 = 4) in x = %x[d0, r] : !poplar.tensor<8x4xf32> out y = %y[d1] : !poplar.tensor<4xf32>
  }
}

// -----
// CHECK: y[d0, r]: the form has [r, d0] there
poplar.graph @main target <host> {
  %x = poplar.var "x" : !poplar.tensor<8x4xf32>
  %y = poplar.var "y" : !poplar.tensor<4x8xf32>
  poplar.execute "e" {
    poplar.family @softmax {log = false} for (d0 = 4, r = 8) in x = %x[r, d0] : !poplar.tensor<8x4xf32> out y = %y[d0, r] : !poplar.tensor<4x8xf32>
  }
}

// -----
// CHECK: k = 9 of a row of 4 elements
poplar.graph @main target <host> {
  %x = poplar.var "x" : !poplar.tensor<8x4xf32>
  %y = poplar.var "y" : !poplar.tensor<8x9xi32>
  poplar.execute "e" {
    poplar.family @top_k {largest = true} for (d0 = 8, k = 9) in x = %x[d0, *] : !poplar.tensor<8x4xf32> out y = %y[d0, k] : !poplar.tensor<8x9xi32>
  }
}

// -----
// CHECK: y[d0, d1]: the form has [d0, d2] there
poplar.graph @main target <host> {
  %t = poplar.var "t" : !poplar.tensor<8x64xf32>
  %i = poplar.var "i" : !poplar.tensor<3xi32>
  %y = poplar.var "y" : !poplar.tensor<3x4xf32>
  poplar.execute "e" {
    poplar.family @multi_slice for (d0 = 3, d1 = 4, d2 = 64)
      in table = %t[*, d2] : !poplar.tensor<8x64xf32>
      in indices = %i[d0] : !poplar.tensor<3xi32>
      out y = %y[d0, d1] : !poplar.tensor<3x4xf32>
  }
}

// -----
// CHECK: indices[d0]: f32 elements are no indices
poplar.graph @main target <host> {
  %t = poplar.var "t" : !poplar.tensor<8x4xf32>
  %i = poplar.var "i" : !poplar.tensor<3xf32>
  %y = poplar.var "y" : !poplar.tensor<3x4xf32>
  poplar.execute "e" {
    poplar.family @multi_slice for (d0 = 3, d1 = 4)
      in table = %t[*, d1] : !poplar.tensor<8x4xf32>
      in indices = %i[d0] : !poplar.tensor<3xf32>
      out y = %y[d0, d1] : !poplar.tensor<3x4xf32>
  }
}

// -----
// CHECK: 3 indices for 5 updates
poplar.graph @main target <host> {
  %t = poplar.var "t" : !poplar.tensor<8x4xf32>
  %i = poplar.var "i" : !poplar.tensor<3xi32>
  %u = poplar.var "u" : !poplar.tensor<5x4xf32>
  %y = poplar.var "y" : !poplar.tensor<8x4xf32>
  poplar.execute "e" {
    poplar.family @multi_update {op = "add"} for (d0 = 8, d1 = 4)
      in table = %t[d0, d1] : !poplar.tensor<8x4xf32>
      in indices = %i[*] : !poplar.tensor<3xi32>
      in updates = %u[*, d1] : !poplar.tensor<5x4xf32>
      out y = %y[d0, d1] : !poplar.tensor<8x4xf32>
  }
}

// -----
// CHECK: table[d0, d1]: [d0] reaches 4 of 8 elements
poplar.graph @main target <host> {
  %t = poplar.var "t" : !poplar.tensor<8x4xf32>
  %i = poplar.var "i" : !poplar.tensor<3xi32>
  %u = poplar.var "u" : !poplar.tensor<3x4xf32>
  %y = poplar.var "y" : !poplar.tensor<4x4xf32>
  poplar.execute "e" {
    poplar.family @multi_update {op = "add"} for (d0 = 4, d1 = 4)
      in table = %t[d0, d1] : !poplar.tensor<8x4xf32>
      in indices = %i[*] : !poplar.tensor<3xi32>
      in updates = %u[*, d1] : !poplar.tensor<3x4xf32>
      out y = %y[d0, d1] : !poplar.tensor<4x4xf32>
  }
}

// -----
// CHECK: index[d0]: the index is one element
poplar.graph @main target <host> {
  %t = poplar.var "t" : !poplar.tensor<8x4xf32>
  %i = poplar.var "i" : !poplar.tensor<4xi32>
  %u = poplar.var "u" : !poplar.tensor<4xf32>
  poplar.execute "e" {
    poplar.family @dynamic_update for (d0 = 4)
      inout table = %t[*, d0] : !poplar.tensor<8x4xf32>
      in index = %i[d0] : !poplar.tensor<4xi32>
      in row = %u[d0] : !poplar.tensor<4xf32>
  }
}

// -----
// CHECK: y[i]: the form has [d0] there
poplar.graph @main target <host> {
  %x = poplar.var "x" : !poplar.tensor<8xi32>
  poplar.execute "e" { poplar.family @iota {start = 0 : i32, step = 1 : i32} for (i = 8) out y = %x[i] : !poplar.tensor<8xi32> }
}

// -----
// CHECK: seed[*]: a seed has 2 words, not 1
poplar.graph @main target <host> {
  %s = poplar.var "s" : !poplar.tensor<1xui32>
  %y = poplar.var "y" : !poplar.tensor<8xf32>
  poplar.execute "e" {
    poplar.family @random {distribution = "uniform", a = 0.0 : f32, b = 1.0 : f32, stream = 0 : i64} for (d0 = 8)
      in seed = %s[*] : !poplar.tensor<1xui32>
      out y = %y[d0] : !poplar.tensor<8xf32>
  }
}

// -----
// CHECK: o0 is cut at (0, 3, 6, 8), which are no multiples of tile = 2
poplar.graph @main target <host> {
  %x = poplar.var "x" : !poplar.tensor<1x2x8x8xf32>
  %w = poplar.var "w" : !poplar.tensor<2x2x3x3xf32>
  %y = poplar.var "y" : !poplar.tensor<1x2x8x8xf32>
  poplar.execute "e" {
    poplar.family @winograd {tile = 2} for (b = 1, oc = 2, ic = 2, o0 = 8 in 3, o1 = 8, k0 = 3, k1 = 3) on (o0)
      in x = %x[b, ic, o0 + k0 - 1, o1 + k1 - 1] : !poplar.tensor<1x2x8x8xf32>
      in w = %w[oc, ic, k0, k1] : !poplar.tensor<2x2x3x3xf32>
      out y = %y[b, oc, o0, o1] : !poplar.tensor<1x2x8x8xf32>
  }
}

// -----
// CHECK: tile = 3 : i64; expected 2 or 4
poplar.graph @main target <host> {
  %x = poplar.var "x" : !poplar.tensor<1x2x8x8xf32>
  %w = poplar.var "w" : !poplar.tensor<2x2x3x3xf32>
  %y = poplar.var "y" : !poplar.tensor<1x2x8x8xf32>
  poplar.execute "e" {
    poplar.family @winograd {tile = 3} for (b = 1, oc = 2, ic = 2, o0 = 8, o1 = 8, k0 = 3, k1 = 3)
      in x = %x[b, ic, o0 + k0 - 1, o1 + k1 - 1] : !poplar.tensor<1x2x8x8xf32>
      in w = %w[oc, ic, k0, k1] : !poplar.tensor<2x2x3x3xf32>
      out y = %y[b, oc, o0, o1] : !poplar.tensor<1x2x8x8xf32>
  }
}

// -----
// CHECK: x[b, ic, o0 * 2 + k0, o1 + k1 - 1]: [o0 * 2 + k0] has a stride or a dilation
poplar.graph @main target <host> {
  %x = poplar.var "x" : !poplar.tensor<1x2x17x8xf32>
  %w = poplar.var "w" : !poplar.tensor<2x2x3x3xf32>
  %y = poplar.var "y" : !poplar.tensor<1x2x8x8xf32>
  poplar.execute "e" {
    poplar.family @winograd {tile = 2} for (b = 1, oc = 2, ic = 2, o0 = 8, o1 = 8, k0 = 3, k1 = 3)
      in x = %x[b, ic, o0 * 2 + k0, o1 + k1 - 1] : !poplar.tensor<1x2x17x8xf32>
      in w = %w[oc, ic, k0, k1] : !poplar.tensor<2x2x3x3xf32>
      out y = %y[b, oc, o0, o1] : !poplar.tensor<1x2x8x8xf32>
  }
}

// -----
// CHECK: x[b, ic, o0 + k0 - 1, o1 * 2 + k1 - 1]: [o0 + k0 - 1] is not o0 * 2 + k0 from some offset
poplar.graph @main target <host> {
  %x = poplar.var "x" : !poplar.tensor<1x2x8x8xf32>
  %v = poplar.var "v" : !poplar.tensor<4x4x2x1x4x4xf32>
  poplar.execute "e" {
    poplar.family @winograd_input for (ic = 2, b = 1, o0 = 4, o1 = 4, k0 = 4, k1 = 4)
      in x = %x[b, ic, o0 + k0 - 1, o1 * 2 + k1 - 1] : !poplar.tensor<1x2x8x8xf32>
      out v = %v[k0, k1, ic, b, o0, o1] : !poplar.tensor<4x4x2x1x4x4xf32>
  }
}

// -----
// CHECK: tiles of 3 by 3; expected 4 by 4
poplar.graph @main target <host> {
  %m = poplar.var "m" : !poplar.tensor<3x3x2x1x4x4xf32>
  %y = poplar.var "y" : !poplar.tensor<1x2x8x8xf32>
  poplar.execute "e" {
    poplar.family @winograd_output for (oc = 2, b = 1, o0 = 4, o1 = 4, k0 = 3, k1 = 3, r0 = 2, r1 = 2)
      in m = %m[k0, k1, oc, b, o0, o1] : !poplar.tensor<3x3x2x1x4x4xf32>
      out y = %y[b, oc, o0 * 2 + r0, o1 * 2 + r1] : !poplar.tensor<1x2x8x8xf32>
  }
}
