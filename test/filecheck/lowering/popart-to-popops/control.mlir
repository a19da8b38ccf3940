// RUN: populus-opt %s -p popart-to-popops | filecheck %s

// What is inside is lowered where it stands.
func.func @main(%x: tensor<3xf32>) -> (tensor<3xf32>, tensor<0x3xf32>) {
  %y = popart.loop(%x) {trips = 5 : i64} : (tensor<3xf32>) -> tensor<3xf32> do {
  ^bb0(%i: tensor<i32>, %a: tensor<3xf32>):
    %b = popart.relu %a : tensor<3xf32>
    popart.yield %b : tensor<3xf32>
  }
  // A loop that never runs is what it would have begun with.
  %z, %rows = popart.loop(%y) {trips = 0 : i64} : (tensor<3xf32>) -> (tensor<3xf32>, tensor<0x3xf32>) do {
  ^bb1(%j: tensor<i32>, %c: tensor<3xf32>):
    popart.yield %c, %c : tensor<3xf32>, tensor<3xf32>
  }
  func.return %z, %rows : tensor<3xf32>, tensor<0x3xf32>
}

// CHECK:      %y = popops.loop(%x) {trips = 5 : i64} : (tensor<3xf32>) -> tensor<3xf32> do {
// CHECK-NEXT: ^bb0(%i: tensor<i32>, %a: tensor<3xf32>):
// CHECK-NEXT:   %b = popops.map <max(_1, 0)>(%a) : (tensor<3xf32>) -> tensor<3xf32>
// CHECK-NEXT:   popops.yield %b : tensor<3xf32>
// CHECK-NEXT: }
// CHECK-NEXT: %rows = data.constant
// CHECK-NEXT: func.return %y, %rows
