// RUN: populus-opt %s -p poplar-merge | filecheck %s
// RUN: populus-opt %s -p poplar-merge{independent=false} | filecheck %s --check-prefix OFF

// Steps that share nothing that either writes are one; both may read the same. A loop keeps its steps inside.

// CHECK-LABEL: poplar.graph @apart
poplar.graph @apart target <gc200, tiles = 8> {
  %x = poplar.var "x" on [64 in 8] order [0] : !poplar.tensor<64xf32>
  %a = poplar.var "a" on [64 in 8] order [0] : !poplar.tensor<64xf32>
  // CHECK: %b = poplar.var "b"
  // CHECK-NEXT: %low = poplar.slice %b
  // CHECK-NEXT: %high = poplar.slice %b
  // CHECK-NEXT: poplar.execute "one + 2 more" {
  // OFF: poplar.execute "one"
  poplar.execute "one" {
    poplar.family @map {expr = #expr.fn<neg(_1)>} for (i = 64 in 8) on (i)
      in x1 = %x[i] : !poplar.tensor<64xf32>
      out y = %a[i] : !poplar.tensor<64xf32>
  }
  %b = poplar.var "b" on [96 in 8] order [0] : !poplar.tensor<96xf32>
  %low = poplar.slice %b[0:64] : !poplar.tensor<96xf32> -> !poplar.tensor<64xf32>
  // OFF: poplar.execute "two"
  poplar.execute "two" {
    poplar.family @map {expr = #expr.fn<abs(_1)>} for (i = 64 in 4) on (i)
      in x1 = %x[i] : !poplar.tensor<64xf32>
      out y = %low[i] : !poplar.tensor<64xf32>
  }
  %high = poplar.slice %b[64:96] : !poplar.tensor<96xf32> -> !poplar.tensor<32xf32>
  // OFF: poplar.execute "other slice"
  poplar.execute "other slice" {
    poplar.family @fill {value = 1.0 : f32} for (i = 32 in 4) on (i) out y = %high[i] : !poplar.tensor<32xf32>
  }
  // CHECK: poplar.repeat
  poplar.repeat 2 {
    // CHECK-NEXT: poplar.execute "in the loop" {
    poplar.execute "in the loop" {
      poplar.family @fill {value = 1.0 : f32} for (i = 64 in 8) on (i) out y = %a[i] : !poplar.tensor<64xf32>
    }
  }
  // CHECK: poplar.execute "behind the loop" {
  poplar.execute "behind the loop" {
    poplar.family @fill {value = 1.0 : f32} for (i = 64 in 4) on (i) out y = %low[i] : !poplar.tensor<64xf32>
  }
}

// Not where what both bring from other tiles is more than a tenth of a tile.

// CHECK-LABEL: poplar.graph @crowded
poplar.graph @crowded target <gc200, tiles = 8, tile_bytes = 4096, reserved_bytes = 1024> {
  %x = poplar.var "x" on [64 in 8] order [0] : !poplar.tensor<64xf32>
  %a = poplar.var "a" on [8 in 8, 64] order [0] : !poplar.tensor<8x64xf32>
  %b = poplar.var "b" on [8 in 8, 64] order [0] : !poplar.tensor<8x64xf32>
  // CHECK: poplar.execute "one" {
  poplar.execute "one" {
    poplar.family @map {expr = #expr.fn<neg(_1)>} for (i = 8 in 8, j = 64) on (i)
      in x1 = %x[j] : !poplar.tensor<64xf32>
      out y = %a[i, j] : !poplar.tensor<8x64xf32>
  }
  // CHECK: poplar.execute "two" {
  poplar.execute "two" {
    poplar.family @map {expr = #expr.fn<abs(_1)>} for (i = 8 in 8, j = 64) on (i)
      in x1 = %x[j] : !poplar.tensor<64xf32>
      out y = %b[i, j] : !poplar.tensor<8x64xf32>
  }
}
