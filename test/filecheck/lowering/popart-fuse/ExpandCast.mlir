// RUN: populus-opt %s -p "popart-fuse{patterns=ExpandCast}" --split-input-file | filecheck %s

// The cast works on what is expanded; an operand that the other one stretches anyway is not expanded.
func.func @main(%m : tensor<1x4xi32>, %x : tensor<3x4xf32>) -> tensor<3x4xf32> {
  %a = popart.expand %m {shape = array<i64: 3, 4>} : (tensor<1x4xi32>) -> tensor<3x4xi32>
  %b = popart.cast %a {to = f32} : (tensor<3x4xi32>) -> tensor<3x4xf32>
  %y = popart.add %x, %b : (tensor<3x4xf32>, tensor<3x4xf32>) -> tensor<3x4xf32>
  func.return %y : tensor<3x4xf32>
}

// CHECK:      %[[C:.*]] = popart.cast %m {to = f32} : (tensor<1x4xi32>) -> tensor<1x4xf32>
// CHECK-NEXT: popart.add %x, %[[C]] : (tensor<3x4xf32>, tensor<1x4xf32>) -> tensor<3x4xf32>

// -----

// The expansion is read elsewhere too, or the other operand needs it for the shape of the result.
func.func @main(%m : tensor<1x4xf32>, %k : tensor<4xf32>) -> (tensor<3x4xf32>, tensor<3x4xf32>, tensor<3x4xf32>) {
  %a = popart.expand %m {shape = array<i64: 3, 4>} : (tensor<1x4xf32>) -> tensor<3x4xf32>
  %b = popart.exp %a : tensor<3x4xf32>
  %c = popart.add %a, %k : (tensor<3x4xf32>, tensor<4xf32>) -> tensor<3x4xf32>
  func.return %a, %b, %c : tensor<3x4xf32>, tensor<3x4xf32>, tensor<3x4xf32>
}

// CHECK: popart.exp %a : tensor<3x4xf32>
// CHECK: popart.add %a, %k
