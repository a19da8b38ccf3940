// RUN: populus-opt %s -p "popops-to-poplar{target=gc200 tiles=4}" --split-input-file | filecheck %s

// Both branches write the result where it is wanted.
func.func @main(%c: tensor<i1>, %x: tensor<3xf32>) -> tensor<3xf32> {
  %y = popops.if %c then {
    %a = popops.map <max(_1, 0)>(%x) : (tensor<3xf32>) -> tensor<3xf32>
    popops.yield %a : tensor<3xf32>
  } else {
    popops.yield %x : tensor<3xf32>
  } : tensor<i1> -> tensor<3xf32>
  func.return %y : tensor<3xf32>
}

// CHECK:      %[[Y:\d+]] = poplar.var {{.*}} : !poplar.tensor<3xf32>
// CHECK-NEXT: poplar.if %c : !poplar.tensor<i1> {
// CHECK-NEXT:   poplar.execute {{.*}} {
// CHECK:          out y = %[[Y]][d0]
// CHECK:      } else {
// CHECK-NEXT:   poplar.copy %x to %[[Y]]
// CHECK-NEXT: }
// CHECK-NEXT: poplar.stream_out %[[Y]]

// -----

// An iteration works in place on what it carries; a table has its rows on the tiles that work on them.
func.func @main(%h: tensor<8xf32>, %xs: tensor<5x8xf32>) -> (tensor<8xf32>, tensor<5x8xf32>) {
  %y, %ys = popops.loop(%h, %xs) {trips = 5 : i64, scanned = 1 : i64} : (tensor<8xf32>, tensor<5x8xf32>) -> (tensor<8xf32>, tensor<5x8xf32>) do {
  ^bb0(%i: tensor<i32>, %a: tensor<8xf32>, %x: tensor<8xf32>):
    %b = popops.map <add(_1, _2)>(%a, %x) : (tensor<8xf32>, tensor<8xf32>) -> tensor<8xf32>
    popops.yield %b, %b : tensor<8xf32>, tensor<8xf32>
  }
  func.return %y, %ys : tensor<8xf32>, tensor<5x8xf32>
}

// CHECK:      poplar.copy %h to %[[H:\d+]] : !poplar.tensor<8xf32>
// CHECK:      poplar.repeat 5 {
// CHECK:        poplar.family @multi_slice for (d0 = 8 in 4 by 2) on (d0)
// CHECK-NEXT:     in table = %xs[*, d0]
// CHECK-NEXT:     in indices = %[[I:\d+]][]
// CHECK-NEXT:     out y = %[[X:\d+]][d0]
// CHECK:        poplar.family @map {expr = #expr.fn<add(_1, _2)>}
// CHECK-NEXT:     inout x1 = %[[H]][d0]
// CHECK-NEXT:     in x2 = %[[X]][d0]
// CHECK:        poplar.family @dynamic_update for (d0 = 8 in 4 by 2) on (d0)
// CHECK-NEXT:     inout table = %[[T:\d+]][*, d0]
// CHECK-NEXT:     in index = %[[I]][]
// CHECK-NEXT:     in row = %[[H]][d0]
// CHECK:        poplar.family @map {expr = #expr.fn<add(_1, 1)>} for ()
// CHECK-NEXT:     inout x1 = %[[I]][]
// CHECK-NEXT:   }
// CHECK-NEXT: }

// -----

// Values that change places do so by way of a third; the flag of a loop that has no bound is carried like them.
func.func @main(%c: tensor<i1>, %x: tensor<3xf32>, %y: tensor<3xf32>) -> tensor<3xf32> {
  %a, %b = popops.loop(%c, %x, %y) {conditional = true} : (tensor<i1>, tensor<3xf32>, tensor<3xf32>) -> (tensor<3xf32>, tensor<3xf32>) do {
  ^bb0(%i: tensor<i32>, %p: tensor<3xf32>, %q: tensor<3xf32>):
    %s = popops.reduce %p {op = "add", dims = array<i64: 0>} : (tensor<3xf32>) -> tensor<f32>
    %go = popops.map <lt(_1, 1)>(%s) : (tensor<f32>) -> tensor<i1>
    popops.yield %go, %q, %p : tensor<i1>, tensor<3xf32>, tensor<3xf32>
  }
  func.return %a : tensor<3xf32>
}

// CHECK:      poplar.copy %c to %[[GO:\d+]] : !poplar.tensor<i1>
// CHECK-NEXT: poplar.while %[[GO]] : !poplar.tensor<i1> before {
// CHECK:      } do {
// CHECK:        out y = %[[GO]][]
// CHECK:        poplar.copy %[[Q:\d+]] to %[[R:\d+]] : !poplar.tensor<3xf32>
// CHECK:        poplar.copy %[[P:\d+]] to %[[S:\d+]] : !poplar.tensor<3xf32>
// CHECK-NEXT:   poplar.copy %[[R]] to %[[P]]
// CHECK-NEXT:   poplar.copy %[[S]] to %[[Q]]
// CHECK-NEXT: }
