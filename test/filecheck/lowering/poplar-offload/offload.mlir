// RUN: populus-opt %s -p "poplar-offload{tile_bytes=180}" --split-input-file | filecheck %s
// RUN: populus-opt %s -p "poplar-offload{tile_bytes=600}" --split-input-file | filecheck %s --check-prefix ROOM

// A constant waits outside until the step that reads it; a variable, between two steps that touch it.
// ROOM-NOT: outside
// CHECK: %w = poplar.const "w" {{.*}} outside : !poplar.tensor<16xf32>
poplar.graph @main target <gc200, tiles = 2> {
  %w = poplar.const "w" dense<2.0> : tensor<16xf32> on [16] : !poplar.tensor<16xf32>
  %a = poplar.var "a" on [48] : !poplar.tensor<48xf32>
  %low = poplar.slice %a[0:16] : !poplar.tensor<48xf32> -> !poplar.tensor<16xf32>
  %b = poplar.var "b" on [16] : !poplar.tensor<16xf32>
  %c = poplar.var "c" on [32] : !poplar.tensor<32xf32>
  poplar.stream_in "a" to %a : !poplar.tensor<48xf32>
  poplar.execute "negate" {
    poplar.family @map {expr = #expr.fn<neg(_1)>} for (i = 48) inout x1 = %a[i] : !poplar.tensor<48xf32>
  }
  // CHECK: inout x1 = %a[i]
  // CHECK-NEXT: }
  // CHECK-NEXT: [[AWAY:%.*]] = poplar.var "a (outside)" outside : !poplar.tensor<48xf32>
  // CHECK-NEXT: poplar.copy %a to [[AWAY]]
  // CHECK: poplar.execute "full"
  poplar.execute "full" {
    poplar.family @fill {value = 1.0 : f32} for (i = 32) out y = %c[i] : !poplar.tensor<32xf32>
  }
  poplar.execute "still full" {
    poplar.family @map {expr = #expr.fn<neg(_1)>} for (i = 32) inout x1 = %c[i] : !poplar.tensor<32xf32>
  }
  poplar.stream_out %c to "c" : !poplar.tensor<32xf32>
  // CHECK: poplar.stream_out %c
  // CHECK: poplar.copy [[AWAY]] to [[A:%.*]] :
  // CHECK-NEXT: poplar.slice [[A]][0:16]
  // CHECK: poplar.copy %w to [[W:%.*]] :
  // CHECK: poplar.execute "use"
  // CHECK-NEXT: poplar.family @map
  // CHECK-NEXT: in x1 = %{{.*}}[i]
  // CHECK-NEXT: in x2 = [[W]][i]
  poplar.execute "use" {
    poplar.family @map {expr = #expr.fn<add(_1, _2)>} for (i = 16)
      in x1 = %low[i] : !poplar.tensor<16xf32>
      in x2 = %w[i] : !poplar.tensor<16xf32>
      out y = %b[i] : !poplar.tensor<16xf32>
  }
  poplar.stream_out %b to "b" : !poplar.tensor<16xf32>
}

// -----

// While a function is called, what its caller does not pass to it may wait too. What only copies reads it there.
// CHECK-LABEL: poplar.graph @calls
poplar.graph @calls target <gc200, tiles = 2> {
  poplar.func @f {
    %p = poplar.param in "p" on [1] : !poplar.tensor<1xf32>
    %c = poplar.var "c" on [32] : !poplar.tensor<32xf32>
    poplar.execute "full" {
      poplar.family @fill {value = 1.0 : f32} for (i = 32) out y = %c[i] : !poplar.tensor<32xf32>
    }
    poplar.stream_out %c to "c" : !poplar.tensor<32xf32>
  }
  %a = poplar.var "a" on [32] : !poplar.tensor<32xf32>
  // CHECK: inout x1 = %a[i]
  // CHECK: poplar.copy %a to [[AWAY:%.*]] :
  // CHECK: poplar.call @f
  // CHECK-NEXT: poplar.stream_out [[AWAY]] to "a"
  %b = poplar.var "b" on [1] : !poplar.tensor<1xf32>
  poplar.stream_in "a" to %a : !poplar.tensor<32xf32>
  poplar.execute "negate" {
    poplar.family @map {expr = #expr.fn<neg(_1)>} for (i = 32) inout x1 = %a[i] : !poplar.tensor<32xf32>
  }
  poplar.stream_in "b" to %b : !poplar.tensor<1xf32>
  poplar.call @f(%b) : !poplar.tensor<1xf32>
  poplar.stream_out %a to "a" : !poplar.tensor<32xf32>
}

// -----

// Only copies between the tiles and outside reach outside: a copy that writes a variable waits until it is back on the tiles.
// CHECK-LABEL: poplar.graph @written
poplar.graph @written target <gc200, tiles = 2> {
  %a = poplar.var "a" on [32] : !poplar.tensor<32xf32>
  %low = poplar.slice %a[0:16] : !poplar.tensor<32xf32> -> !poplar.tensor<16xf32>
  %b = poplar.var "b" on [16] : !poplar.tensor<16xf32>
  %c = poplar.var "c" on [32] : !poplar.tensor<32xf32>
  // CHECK: poplar.copy %a to [[AWAY:%.*]] :
  poplar.stream_in "a" to %a : !poplar.tensor<32xf32>
  poplar.execute "negate" {
    poplar.family @map {expr = #expr.fn<neg(_1)>} for (i = 32) inout x1 = %a[i] : !poplar.tensor<32xf32>
  }
  poplar.execute "full" {
    poplar.family @fill {value = 1.0 : f32} for (i = 32) out y = %c[i] : !poplar.tensor<32xf32>
  }
  poplar.stream_out %c to "c" : !poplar.tensor<32xf32>
  // CHECK: poplar.stream_in "b" to %b
  // CHECK: poplar.copy [[AWAY]] to [[A:%.*]] :
  // CHECK-NEXT: [[LOW:%.*]] = poplar.slice [[A]][0:16]
  // CHECK-NEXT: poplar.copy %{{.*}} to [[LOW]]
  // CHECK-NEXT: poplar.stream_out [[A]] to "a"
  poplar.stream_in "b" to %b : !poplar.tensor<16xf32>
  poplar.copy %b to %low : !poplar.tensor<16xf32>
  poplar.stream_out %a to "a" : !poplar.tensor<32xf32>
}

// -----

// An input that waits is streamed outside. Of a variable of which one part is read later, that part is stored.
// CHECK-LABEL: poplar.graph @parts
poplar.graph @parts target <gc200, tiles = 2> {
  %a = poplar.var "a" on [16] : !poplar.tensor<16xf32>
  %b = poplar.var "b" on [32] : !poplar.tensor<32xf32>
  %low = poplar.slice %b[0:4] : !poplar.tensor<32xf32> -> !poplar.tensor<4xf32>
  %c = poplar.var "c" on [32] : !poplar.tensor<32xf32>
  // CHECK: [[A:%.*]] = poplar.var "a (outside)" outside : !poplar.tensor<16xf32>
  // CHECK-NEXT: poplar.stream_in "a" to [[A]]
  poplar.stream_in "a" to %a : !poplar.tensor<16xf32>
  // CHECK: [[B:%.*]] = poplar.var "b (outside)" outside : !poplar.tensor<4xf32>
  // CHECK-NEXT: [[LOW:%.*]] = poplar.slice %b[0:4]
  // CHECK-NEXT: poplar.copy [[LOW]] to [[B]]
  poplar.execute "b" {
    poplar.family @fill {value = 1.0 : f32} for (i = 32) out y = %b[i] : !poplar.tensor<32xf32>
  }
  poplar.execute "full" {
    poplar.family @fill {value = 1.0 : f32} for (i = 32) out y = %c[i] : !poplar.tensor<32xf32>
  }
  poplar.execute "still full" {
    poplar.family @map {expr = #expr.fn<neg(_1)>} for (i = 32) inout x1 = %c[i] : !poplar.tensor<32xf32>
  }
  poplar.stream_out %c to "c" : !poplar.tensor<32xf32>
  // CHECK: poplar.stream_out %c
  // CHECK-NEXT: poplar.stream_out [[A]] to "a"
  // CHECK-NEXT: poplar.stream_out [[B]] to "b"
  poplar.stream_out %a to "a" : !poplar.tensor<16xf32>
  poplar.stream_out %low to "b" : !poplar.tensor<4xf32>
}
