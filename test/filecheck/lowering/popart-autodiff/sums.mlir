// RUN: populus-opt %s -p 'popart-autodiff{wrt=x}' | filecheck %s
// RUN: populus-opt %s -p 'popart-autodiff{wrt=x},popart-to-popops' | filecheck %s --check-prefix=LOWERED

// A tensor that is read twice has the sum of two contributions; cotangents and gradients come behind what is there.
// CHECK: func.func @main(%x: tensor<2xf32>, %i: tensor<2xi64>, %g: tensor<2xf32>) -> (tensor<2xf32>, tensor<2xi64>, tensor<2xf32>)
// CHECK-SAME: input_names = ["x", "i", "Gradient___y"], output_names = ["y", "j", "Gradient___x"]
func.func @main(%x: tensor<2xf32>, %i: tensor<2xi64>) -> (tensor<2xf32>, tensor<2xi64>) attributes {input_names = ["x", "i"], output_names = ["y", "j"]} {
  %s = popart.sin %x : tensor<2xf32> loc("sine")
  %y = popart.mul %s, %x : (tensor<2xf32>, tensor<2xf32>) -> tensor<2xf32> loc("times")
  // Integers have no cotangent, and nothing is asked of what only they lead through.
  %c = popart.cast %y {to = i64} : (tensor<2xf32>) -> tensor<2xi64> loc("whole")
  %j = popart.bitwise_and %c, %i : (tensor<2xi64>, tensor<2xi64>) -> tensor<2xi64> loc("and")
  // CHECK: %[[S:.*]] = popops.map <mul(_2, _1)>(%x, %g)
  // CHECK-NEXT: %[[X:.*]] = popops.map <mul(_2, _1)>(%s, %g)
  // CHECK-NEXT: %[[D:.*]] = popops.map <mul(_2, cos(_1))>(%x, %[[S]])
  // CHECK-NEXT: %[[DX:.*]] = popart.add %[[X]], %[[D]]
  // CHECK-NEXT: func.return %y, %j, %[[DX]]
  // LOWERED-NOT: popart.
  // LOWERED: func.return
  func.return %y, %j : tensor<2xf32>, tensor<2xi64>
}
