// RUN: populus-opt %s | populus-opt | filecheck %s

// A branch reads what is around it; a loop has the iteration's number, carried values and rows.
func.func @main(%c: tensor<i1>, %x: tensor<3xf32>, %xs: tensor<5x3xf32>) -> (tensor<3xf32>, tensor<3xf32>, tensor<5x3xf32>) {
  %y = popart.if %c then {
    %a = popart.relu %x : tensor<3xf32>
    popart.yield %a : tensor<3xf32>
  } else {
    popart.yield %x : tensor<3xf32>
  } : tensor<i1> -> tensor<3xf32>
  %h, %ys = popart.loop(%y, %xs) {trips = 5 : i64, scanned = 1 : i64} : (tensor<3xf32>, tensor<5x3xf32>) -> (tensor<3xf32>, tensor<5x3xf32>) do {
  ^bb0(%i: tensor<i32>, %h0: tensor<3xf32>, %row: tensor<3xf32>):
    %h1 = popart.add %h0, %row : (tensor<3xf32>, tensor<3xf32>) -> tensor<3xf32>
    popart.yield %h1, %h1 : tensor<3xf32>, tensor<3xf32>
  }
  func.return %y, %h, %ys : tensor<3xf32>, tensor<3xf32>, tensor<5x3xf32>
}

// CHECK:      %y = popart.if %c then {
// CHECK-NEXT:   %a = popart.relu %x : tensor<3xf32>
// CHECK-NEXT:   popart.yield %a : tensor<3xf32>
// CHECK-NEXT: } else {
// CHECK-NEXT:   popart.yield %x : tensor<3xf32>
// CHECK-NEXT: } : tensor<i1> -> tensor<3xf32>
// CHECK-NEXT: %h, %ys = popart.loop(%y, %xs) {{{.*}}} : (tensor<3xf32>, tensor<5x3xf32>) -> (tensor<3xf32>, tensor<5x3xf32>) do {
// CHECK-NEXT: ^bb0(%i: tensor<i32>, %h0: tensor<3xf32>, %row: tensor<3xf32>):
