// RUN: not populus-opt %s -p "popops-narrow{target=gc200}" 2>&1 | filecheck %s

func.func @main(%x : tensor<3xf64>) -> tensor<3xf64> {
  %c = data.constant dense<[1.0, 2.0e300, -3.0e300]> : tensor<3xf64> loc("limits")
  %y = popops.map <min(_1, _2)>(%x, %c) : (tensor<3xf64>, tensor<3xf64>) -> tensor<3xf64>
  func.return %y : tensor<3xf64>
}

// CHECK: 'limits': the constant 2e+300 does not fit f32, which target gc200 holds instead
