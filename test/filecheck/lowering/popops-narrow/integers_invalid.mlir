// RUN: not populus-opt %s -p "popart-to-popops,popops-narrow{target=gc200}" 2>&1 | filecheck %s
// RUN: populus-opt %s -p "popart-to-popops,popops-narrow" | filecheck %s --check-prefix HOST

// 2,147,483,647 is a double, and 2,147,483,648 the next float.
// CHECK: 'net/wide': i32 is cast to f64, which target gc200 holds as f32, and that rounds integers beyond 16,777,216; cast to f32 in the model if they may be rounded
// HOST: cast(_1, f64)
func.func @main(%x : tensor<2xi32>) -> tensor<2xf64> {
  %y = popart.cast %x {to = f64} : (tensor<2xi32>) -> tensor<2xf64> loc("net/wide")
  func.return %y : tensor<2xf64>
}
