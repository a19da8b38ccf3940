// RUN: populus-opt %s -p poplar-merge | filecheck %s
// RUN: populus-opt %s -p poplar-merge{epilogues=false} | filecheck %s --check-prefix OFF

// A step that goes on with what its own tile made runs in the same compute set, with what it needs of others.

// CHECK-LABEL: poplar.graph @same_cut
poplar.graph @same_cut target <gc200, tiles = 8> {
  %x = poplar.var "x" on [64 in 8] order [0] : !poplar.tensor<64xf32>
  %y = poplar.var "y" on [64 in 8] order [0] : !poplar.tensor<64xf32>
  // CHECK: poplar.var "scale"
  // CHECK: poplar.execute "fill + twice"
  // CHECK-NEXT: poplar.family @fill
  // CHECK: poplar.family @map {expr = #expr.fn<mul(_1, _2)>}
  // CHECK-NOT: poplar.execute
  // OFF: poplar.execute "fill"
  // OFF: poplar.execute "twice"
  poplar.execute "fill" {
    poplar.family @fill {value = 1.0 : f32} for (i = 64 in 8) on (i) out y = %y[i] : !poplar.tensor<64xf32>
  }
  %scale = poplar.var "scale" on [1] : !poplar.tensor<1xf32>
  poplar.execute "twice" {
    poplar.family @map {expr = #expr.fn<mul(_1, _2)>} for (i = 64 in 8) on (i)
      inout x1 = %y[i] : !poplar.tensor<64xf32>
      in x2 = %scale[0] : !poplar.tensor<1xf32>
  }
}

// It is not where tiles would meet: another cut, another order, a window over neighbours.

// CHECK-LABEL: poplar.graph @other_cut
poplar.graph @other_cut target <gc200, tiles = 8> {
  %y = poplar.var "y" on [64 in 8] order [0] : !poplar.tensor<64xf32>
  %z = poplar.var "z" on [64 in 4] order [0] : !poplar.tensor<64xf32>
  %m = poplar.var "m" on [4 in 4, 2 in 2] order [0, 1] : !poplar.tensor<4x2xf32>
  // CHECK: poplar.execute "fill" {
  poplar.execute "fill" {
    poplar.family @fill {value = 1.0 : f32} for (i = 64 in 8) on (i) out y = %y[i] : !poplar.tensor<64xf32>
  }
  // CHECK: poplar.execute "four" {
  poplar.execute "four" {
    poplar.family @map {expr = #expr.fn<_1>} for (i = 64 in 4) on (i)
      in x1 = %y[i] : !poplar.tensor<64xf32>
      out y = %z[i] : !poplar.tensor<64xf32>
  }
  // CHECK: poplar.execute "shifted" {
  poplar.execute "shifted" {
    poplar.family @map {expr = #expr.fn<neg(_1)>} for (i = 64 in 4) on (i) start 1
      inout x1 = %z[i] : !poplar.tensor<64xf32>
  }
  // CHECK: poplar.execute "rows first" {
  %pairs = poplar.reshape %z : !poplar.tensor<64xf32> -> !poplar.tensor<32x2xf32>
  poplar.execute "rows first" {
    poplar.family @map {expr = #expr.fn<_1>} for (i = 4 in 4, j = 2 in 2) on (i, j)
      in x1 = %pairs[i, j] : !poplar.tensor<32x2xf32>
      out y = %m[i, j] : !poplar.tensor<4x2xf32>
  }
  // CHECK: poplar.execute "columns first" {
  poplar.execute "columns first" {
    poplar.family @map {expr = #expr.fn<neg(_1)>} for (i = 4 in 4, j = 2 in 2) on (j, i)
      inout x1 = %m[i, j] : !poplar.tensor<4x2xf32>
  }
}

// Nor behind a step in between that reads what it would overwrite.

// CHECK-LABEL: poplar.graph @read_between
poplar.graph @read_between target <gc200, tiles = 8> {
  %y = poplar.var "y" on [64 in 8] order [0] : !poplar.tensor<64xf32>
  // CHECK: poplar.execute "fill" {
  poplar.execute "fill" {
    poplar.family @fill {value = 1.0 : f32} for (i = 64 in 8) on (i) out y = %y[i] : !poplar.tensor<64xf32>
  }
  poplar.stream_out %y to "y" : !poplar.tensor<64xf32>
  // CHECK: poplar.execute "twice" {
  poplar.execute "twice" {
    poplar.family @map {expr = #expr.fn<add(_1, _1)>} for (i = 64 in 8) on (i)
      inout x1 = %y[i] : !poplar.tensor<64xf32>
  }
}

// However much the first step receives, a step that needs no more than a bias of others joins it.

// CHECK-LABEL: poplar.graph @much_and_little
poplar.graph @much_and_little target <gc200, tiles = 8> {
  %x = poplar.var "x" on [262144 in 8] order [0] start 1 : !poplar.tensor<262144xf32>
  %y = poplar.var "y" on [262144 in 8] order [0] : !poplar.tensor<262144xf32>
  %scale = poplar.var "scale" on [1] : !poplar.tensor<1xf32>
  // CHECK: poplar.execute "far + scaled"
  // CHECK-NOT: poplar.execute
  // OFF: poplar.execute "far"
  // OFF: poplar.execute "scaled"
  poplar.execute "far" {
    poplar.family @map {expr = #expr.fn<exp(_1)>} for (i = 262144 in 8) on (i)
      in x1 = %x[i] : !poplar.tensor<262144xf32>
      out y = %y[i] : !poplar.tensor<262144xf32>
  }
  poplar.execute "scaled" {
    poplar.family @map {expr = #expr.fn<mul(_1, _2)>} for (i = 262144 in 8) on (i)
      inout x1 = %y[i] : !poplar.tensor<262144xf32>
      in x2 = %scale[0] : !poplar.tensor<1xf32>
  }
}
