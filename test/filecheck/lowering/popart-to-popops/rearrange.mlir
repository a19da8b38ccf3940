// RUN: populus-opt %s -p popart-to-popops | filecheck %s

func.func @main(%v: tensor<4xf32>, %table: tensor<5x4xf32>, %i: tensor<3xi64>) -> (tensor<12xf32>, tensor<6xf32>, tensor<3xf32>, tensor<3x4xf32>, tensor<2x4xf32>) {
  // A tensor repeats as a new dimension of stride 0.
  // CHECK: popops.reshape %v {shape = array<i64: 1, 4>}
  // CHECK-NEXT: popops.broadcast {{.*}} {shape = array<i64: 3, 4>}
  // CHECK-NEXT: %tiled = popops.reshape {{.*}} -> tensor<12xf32>
  %tiled = popart.tile %v {repeats = array<i64: 3>} : (tensor<4xf32>) -> tensor<12xf32>
  // A mirror is a slice backwards.
  // CHECK-NEXT: popops.slice %v {begins = array<i64: 1>, ends = array<i64: 3>, steps = array<i64: 1>}
  // CHECK-NEXT: popops.slice {{.*}} {begins = array<i64: 1>, ends = array<i64: -1>, steps = array<i64: -1>}
  // CHECK-NEXT: %mirrored = popops.concat {{.*}}, %v {dim = 0 : i64}
  %mirrored = popart.pad %v {lower = array<i64: 2>, upper = array<i64: 0>, mode = "reflect"} : (tensor<4xf32>) -> tensor<6xf32>
  // A negative pad is a slice.
  // CHECK-NEXT: data.constant dense<0.000000e+00> : tensor<f32>
  // CHECK-NEXT: popops.pad %v, {{.*}} {lower = array<i64: 1>, upper = array<i64: 0>, interior = array<i64: 0>}
  // CHECK-NEXT: %moved = popops.slice {{.*}} {begins = array<i64: 0>, ends = array<i64: 3>, steps = array<i64: 1>}
  %moved = popart.pad %v {lower = array<i64: 1>, upper = array<i64: -2>} : (tensor<4xf32>) -> tensor<3xf32>
  // Indices that are computed may count from the end.
  // CHECK-NEXT: popops.map <select(add(_1, 5), _1, lt(_1, 0))>(%i)
  // CHECK-NEXT: %rows = popops.multi_slice %table
  %rows = popart.gather %table, %i {axis = 0 : i64} : (tensor<5x4xf32>, tensor<3xi64>) -> tensor<3x4xf32>
  // Known ones are set right here; the constant that nobody reads any more is gone.
  // CHECK-NEXT: %[[K:.*]] = data.constant dense<[4, 1]> : tensor<2xi64>
  // CHECK-NEXT: %picked = popops.multi_slice %table, %[[K]]
  %k = data.constant dense<[-1, 1]> : tensor<2xi64>
  %picked = popart.gather %table, %k {axis = 0 : i64} : (tensor<5x4xf32>, tensor<2xi64>) -> tensor<2x4xf32>
  // CHECK-NEXT: func.return
  func.return %tiled, %mirrored, %moved, %rows, %picked : tensor<12xf32>, tensor<6xf32>, tensor<3xf32>, tensor<3x4xf32>, tensor<2x4xf32>
}
