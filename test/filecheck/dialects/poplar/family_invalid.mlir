// RUN: populus-opt %s --split-input-file --verify-diagnostics | filecheck %s

// What a family, an execute or a copy may not be.

// CHECK: there is no codelet 'mapp'; did you mean 'map'?
poplar.graph @main target <host> {
  %x = poplar.var "x" : !poplar.tensor<8xf32>
  poplar.execute "e" { poplar.family @mapp for (i = 8) out y = %x[i] : !poplar.tensor<8xf32> }
}

// -----
// CHECK: an axis is named twice in (i, i)
poplar.graph @main target <host> {
  %x = poplar.var "x" : !poplar.tensor<8xf32>
  poplar.execute "e" { poplar.family @fill for (i = 8, i = 4) out y = %x[i] : !poplar.tensor<8xf32> }
}

// -----
// CHECK: the iteration space has 9223372036854775808 points; at most 2^52 are run
poplar.graph @main target <host> {
  %x = poplar.var "x" : !poplar.tensor<8xf32>
  poplar.execute "e" { poplar.family @fill for (i = 8, k = 1152921504606846976) out y = %x[i] : !poplar.tensor<8xf32> }
}

// -----
// CHECK: x: [o0 * 9223372036854775808 + k0] has a number beyond 2^52, which no element has
poplar.graph @main target <host> {
  %x = poplar.var "x" : !poplar.tensor<1x1x8xf32>
  %y = poplar.var "y" : !poplar.tensor<1x1x1xf32>
  poplar.execute "e" {
    poplar.family @pool {kind = "max", after = array<i64: 1>, count_padding = false} for (n = 1, c = 1, o0 = 1, k0 = 1)
      in x = %x[n, c, o0 * 9223372036854775808 + k0] : !poplar.tensor<1x1x8xf32>
      out y = %y[n, c, o0] : !poplar.tensor<1x1x1xf32>
  }
}

// -----
// CHECK: windows of 2147483648 along k0 do not fit x, its padding and a stride, 11 elements
poplar.graph @main target <host> {
  %x = poplar.var "x" : !poplar.tensor<1x1x8xf32>
  %y = poplar.var "y" : !poplar.tensor<1x1x1xf32>
  poplar.execute "e" {
    poplar.family @pool {kind = "max", after = array<i64: 1>, count_padding = false} for (n = 1, c = 1, o0 = 1, k0 = 2147483648)
      in x = %x[n, c, o0 + k0 - 1] : !poplar.tensor<1x1x8xf32>
      out y = %y[n, c, o0] : !poplar.tensor<1x1x1xf32>
  }
}

// -----
// CHECK: 8 elements by 4 have 2 grains, too few for 3 parts
poplar.graph @main target <host> {
  %x = poplar.var "x" : !poplar.tensor<8xf32>
  poplar.execute "e" { poplar.family @fill for (i = 8 in 3 by 4) on (i) out y = %x[i] : !poplar.tensor<8xf32> }
}

// -----
// CHECK: 8 by 0 is not a number of elements by a positive grain
poplar.graph @main target <host> {
  %x = poplar.var "x" : !poplar.tensor<8xf32>
  poplar.execute "e" { poplar.family @fill for (i = 8 by 0) out y = %x[i] : !poplar.tensor<8xf32> }
}

// -----
// CHECK: 'on ()' does not name each cut axis of (i) once
poplar.graph @main target <host> {
  %x = poplar.var "x" : !poplar.tensor<8xf32>
  poplar.execute "e" { poplar.family @fill for (i = 8 in 2) out y = %x[i] : !poplar.tensor<8xf32> }
}

// -----
// CHECK: 1 fields for 2 views
poplar.graph @main target <host> {
  %x = poplar.var "x" : !poplar.tensor<8xf32>
  poplar.execute "e" {
    "poplar.family"(%x, %x) <{codelet = "fill", params = {}, domain = #poplar.domain<(i = 8)>, fields = #poplar.fields<out y[i]>}> : (!poplar.tensor<8xf32>, !poplar.tensor<8xf32>) -> ()
  }
}

// -----
// CHECK: @conv has fields x, w, y, not x, y
poplar.graph @main target <host> {
  %x = poplar.var "x" : !poplar.tensor<8xf32>
  %y = poplar.var "y" : !poplar.tensor<8xf32>
  poplar.execute "e" { poplar.family @conv for (i = 8) in x = %x[i] : !poplar.tensor<8xf32> out y = %y[i] : !poplar.tensor<8xf32> }
}

// -----
// CHECK: @reduce cannot write what it reads; x is inout
poplar.graph @main target <host> {
  %x = poplar.var "x" : !poplar.tensor<8xf32>
  poplar.execute "e" { poplar.family @reduce {op = "add"} for (d0 = 8) inout x = %x[d0] : !poplar.tensor<8xf32> }
}

// -----
// CHECK: @softmax needs axis r whole, but it has 2 parts
poplar.graph @main target <host> {
  %x = poplar.var "x" : !poplar.tensor<8xf32>
  %y = poplar.var "y" : !poplar.tensor<8xf32>
  poplar.execute "e" { poplar.family @softmax for (r = 8 in 2) on (r) in x = %x[r] : !poplar.tensor<8xf32> out y = %y[r] : !poplar.tensor<8xf32> }
}

// -----
// CHECK: y is outin, which is not one of in, inout, out
poplar.graph @main target <host> {
  %x = poplar.var "x" : !poplar.tensor<8xf32>
  poplar.execute "e" {
    "poplar.family"(%x) <{codelet = "fill", params = {}, domain = #poplar.domain<(i = 8)>, fields = #poplar.fields<outin y[i]>}> : (!poplar.tensor<8xf32>) -> ()
  }
}

// -----
// CHECK: y: 1 accesses to the 2 dimensions of 8x2
poplar.graph @main target <host> {
  %x = poplar.var "x" : !poplar.tensor<8x2xf32>
  poplar.execute "e" { poplar.family @fill for (i = 8) out y = %x[i] : !poplar.tensor<8x2xf32> }
}

// -----
// CHECK: y: [j] names axis j, which the domain does not have
poplar.graph @main target <host> {
  %x = poplar.var "x" : !poplar.tensor<8xf32>
  poplar.execute "e" { poplar.family @fill for (i = 8) out y = %x[j] : !poplar.tensor<8xf32> }
}

// -----
// CHECK: x1: [i * -1 + 7] walks backwards; see the operand through a slice instead
poplar.graph @main target <host> {
  %x = poplar.var "x" : !poplar.tensor<8xf32>
  %y = poplar.var "y" : !poplar.tensor<8xf32>
  poplar.execute "e" {
    poplar.family @map {expr = #expr.fn<_1>} for (i = 8)
      in x1 = %x[7 - i] : !poplar.tensor<8xf32>
      out y = %y[i] : !poplar.tensor<8xf32>
  }
}

// -----
// CHECK: x1: [i + 1] reaches 1..9 of 0..8
poplar.graph @main target <host> {
  %x = poplar.var "x" : !poplar.tensor<8xf32>
  %y = poplar.var "y" : !poplar.tensor<8xf32>
  poplar.execute "e" {
    poplar.family @map {expr = #expr.fn<_1>} for (i = 8)
      in x1 = %x[i + 1] : !poplar.tensor<8xf32>
      out y = %y[i] : !poplar.tensor<8xf32>
  }
}

// -----
// CHECK: y is a constant, which may not be written
poplar.graph @main target <host> {
  %x = poplar.const "x" dense<1.0> : tensor<8xf32> : !poplar.tensor<8xf32>
  poplar.execute "e" { poplar.family @fill for (i = 8) out y = %x[i] : !poplar.tensor<8xf32> }
}

// -----
// CHECK: y shows an element more than once, so it may not be written
poplar.graph @main target <host> {
  %x = poplar.var "x" : !poplar.tensor<1xf32>
  %b = poplar.broadcast %x : !poplar.tensor<1xf32> -> !poplar.tensor<8xf32>
  poplar.execute "e" { poplar.family @fill for (i = 8) out y = %b[i] : !poplar.tensor<8xf32> }
}

// -----
// CHECK: y: the parts of [i + k] overlap
poplar.graph @main target <host> {
  %x = poplar.var "x" : !poplar.tensor<10xf32>
  poplar.execute "e" { poplar.family @fill for (i = 8 in 2, k = 3) on (i) out y = %x[i + k] : !poplar.tensor<10xf32> }
}

// -----
// CHECK: y: c has parts but selects no part of it
poplar.graph @main target <host> {
  %x = poplar.var "x" : !poplar.tensor<8xf32>
  poplar.execute "e" { poplar.family @fill for (i = 8 in 2, c = 4 in 4) on (i, c) out y = %x[i] : !poplar.tensor<8xf32> }
}

// -----
// CHECK: x1 overlaps y, which the family writes
poplar.graph @main target <host> {
  %x = poplar.var "x" : !poplar.tensor<8xf32>
  poplar.execute "e" {
    poplar.family @map {expr = #expr.fn<_1>} for (i = 8) in x1 = %x[i] : !poplar.tensor<8xf32> out y = %x[i] : !poplar.tensor<8xf32>
  }
}

// -----
// CHECK: an execute holds families, and at least one
poplar.graph @main target <host> {
  poplar.execute "e" { poplar.func @f {} }
}

// -----
// CHECK: family 0 writes y of 'e' while family 1 has it as x1; they race
poplar.graph @main target <host> {
  %x = poplar.var "x" : !poplar.tensor<8xf32>
  %y = poplar.var "y" : !poplar.tensor<8xf32>
  poplar.execute "e" {
    poplar.family @fill {value = 0.0 : f32} for (i = 8) out y = %x[i] : !poplar.tensor<8xf32>
    poplar.family @map {expr = #expr.fn<_1>} for (i = 8) start 1 in x1 = %x[i] : !poplar.tensor<8xf32> out y = %y[i] : !poplar.tensor<8xf32>
  }
}

// -----
// CHECK: the destination is a constant, which may not be written
poplar.graph @main target <host> {
  %x = poplar.const "x" dense<1.0> : tensor<8xf32> : !poplar.tensor<8xf32>
  %y = poplar.var "y" : !poplar.tensor<8xf32>
  poplar.copy %y to %x : !poplar.tensor<8xf32>
}

// -----
// CHECK: the destination shows an element more than once, so it may not be written
poplar.graph @main target <host> {
  %x = poplar.var "x" : !poplar.tensor<1xf32>
  %y = poplar.var "y" : !poplar.tensor<8xf32>
  %b = poplar.broadcast %x : !poplar.tensor<1xf32> -> !poplar.tensor<8xf32>
  poplar.copy %y to %b : !poplar.tensor<8xf32>
}

// -----
// CHECK: source and destination overlap
poplar.graph @main target <host> {
  %x = poplar.var "x" : !poplar.tensor<8xf32>
  %a = poplar.slice %x[0:6] : !poplar.tensor<8xf32> -> !poplar.tensor<6xf32>
  %b = poplar.slice %x[2:8] : !poplar.tensor<8xf32> -> !poplar.tensor<6xf32>
  poplar.copy %a to %b : !poplar.tensor<6xf32>
}

// -----
// CHECK: under = 1; a step among these touches what the copy writes, or writes what it reads
poplar.graph @main target <host> {
  %x = poplar.var "x" : !poplar.tensor<8xf32>
  %y = poplar.var "y" : !poplar.tensor<8xf32>
  poplar.copy %x to %y under 1 : !poplar.tensor<8xf32>
  poplar.execute "e" { poplar.family @fill {value = 0.0 : f32} for (i = 8) out y = %y[i] : !poplar.tensor<8xf32> }
}

// -----
// CHECK: under = 1; a step among these touches what the copy writes, or writes what it reads
poplar.graph @main target <host> {
  %x = poplar.var "x" : !poplar.tensor<8xf32>
  %y = poplar.var "y" : !poplar.tensor<8xf32>
  poplar.copy %x to %y under 1 : !poplar.tensor<8xf32>
  poplar.execute "e" { poplar.family @fill {value = 0.0 : f32} for (i = 8) out y = %x[i] : !poplar.tensor<8xf32> }
}

// -----
// CHECK: under = 2; so many executes or copies follow it, at least 1
poplar.graph @main target <host> {
  %x = poplar.var "x" : !poplar.tensor<8xf32>
  %y = poplar.var "y" : !poplar.tensor<8xf32>
  poplar.copy %x to %y under 2 : !poplar.tensor<8xf32>
  poplar.execute "e" { poplar.family @fill {value = 0.0 : f32} for (i = 8) out y = %x[i] : !poplar.tensor<8xf32> }
}

// -----
// CHECK: under = 0; so many executes or copies follow it, at least 1
poplar.graph @main target <host> {
  %x = poplar.var "x" : !poplar.tensor<8xf32>
  %y = poplar.var "y" : !poplar.tensor<8xf32>
  poplar.copy %x to %y under 0 : !poplar.tensor<8xf32>
  poplar.execute "e" { poplar.family @fill {value = 0.0 : f32} for (i = 8) out y = %x[i] : !poplar.tensor<8xf32> }
}

// -----
// CHECK: 'x' has 2 copies; only a constant may lie on several tiles
poplar.graph @main target <gc200, tiles = 4> {
  %x = poplar.var "x" on [8 in 2] order [2 copies, 0] : !poplar.tensor<8xf32>
}

// -----
// CHECK: 'x' is outside the tiles and on some of them; it is one or the other
poplar.graph @main target <gc200, tiles = 4> {
  %x = poplar.var "x" outside on [8 in 2] order [0] : !poplar.tensor<8xf32>
}

// -----
// CHECK: y is outside the tiles, where no vertex reaches; copy it to a variable first
poplar.graph @main target <gc200, tiles = 4> {
  %x = poplar.var "x" outside : !poplar.tensor<8xf32>
  poplar.execute "e" {
    poplar.family @fill for (i = 8) out y = %x[i] : !poplar.tensor<8xf32>
  }
}
