// RUN: populus-opt %s -p 'popart-autodiff{wrt=t loss=y sparse=t},popart-accumulate{steps=3}' | filecheck %s

// A sparse gradient is not summed: rows and their numbers of three batches follow one another, and the oldest go.
// CHECK: func.func @main(%t: tensor<9x4xf32>, %i: tensor<2xi64>, %rows: tensor<6x4xf32>, %rows_1: tensor<6xi64>)
// CHECK-SAME: input_names = ["t", "i", "Accl___t", "Accl___Rows___t"]
// CHECK-SAME: output_names = ["y", "Accl___t", "Accl___Rows___t"]
func.func @main(%t: tensor<9x4xf32>, %i: tensor<2xi64>) -> tensor<f32> attributes {input_names = ["t", "i"], output_names = ["y"]} {
  %r = popart.gather %t, %i {axis = 0 : i64} : (tensor<9x4xf32>, tensor<2xi64>) -> tensor<2x4xf32>
  %y = popart.reduce_sum %r {axes = array<i64: 0, 1>} : (tensor<2x4xf32>) -> tensor<f32>
  // CHECK:      popops.map <mul(_1, 0.333{{[0-9]*}})>
  // CHECK:      popops.slice %rows {begins = array<i64: 2, 0>, ends = array<i64: 6, 4>
  // CHECK-NEXT: popops.concat {{.*}} -> tensor<6x4xf32>
  // CHECK:      popops.slice %rows_1
  // CHECK-NEXT: popops.concat {{.*}} -> tensor<6xi64>
  func.return %y : tensor<f32>
}
