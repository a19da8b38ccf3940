// RUN: populus-opt %s -p "popart-to-popops,popops-narrow{target=gc200}" | filecheck %s

// Every ui16 is a float.
// CHECK: popops.map <cast(_1, f32)>(%x) : (tensor<2xui16>) -> tensor<2xf32>
func.func @main(%x : tensor<2xui16>) -> tensor<2xf64> {
  %y = popart.cast %x {to = f64} : (tensor<2xui16>) -> tensor<2xf64>
  func.return %y : tensor<2xf64>
}
