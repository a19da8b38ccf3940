// RUN: not populus-opt %s -p "popops-narrow{target=gc200}" 2>&1 | filecheck %s

func.func @main(%x : tensor<f64>) -> tensor<f64> {
  %c = data.constant dense<1.0e300> : tensor<f64> loc("limit")
  %y = popops.map <min(_1, _2)>(%x, %c) : (tensor<f64>, tensor<f64>) -> tensor<f64>
  func.return %y : tensor<f64>
}

// CHECK: 'limit': the constant 1e+300 does not fit f32, which target gc200 holds instead
