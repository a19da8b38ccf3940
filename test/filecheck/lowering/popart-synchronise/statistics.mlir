// RUN: populus-opt %s -p 'popart-synchronise{replicas=4}' | filecheck %s
// RUN: populus-opt %s -p 'popart-synchronise' | filecheck %s --check-prefix=ONE

// The mean is that of all replicas before the variance is about it. Statistics that are inputs stay.
// CHECK: %[[OWN:.*]] = popart.reduce_mean %x
// CHECK-NEXT: %[[MEAN:.*]] = popart.all_reduce %[[OWN]] {reduction = "mean", size = 4 : i64}
// CHECK: popops.map <square(sub(_1, _2))>(%x, %[[MEAN]])
// CHECK: %[[SPREAD:.*]] = popart.reduce_mean
// CHECK-NEXT: %[[VARIANCE:.*]] = popart.all_reduce %[[SPREAD]] {reduction = "mean", size = 4 : i64}
// CHECK: popart.batch_norm %x, %s, %s, %[[MEAN]], %[[VARIANCE]]
// CHECK: popart.batch_norm %{{.*}}, %s, %s, %s, %s
// ONE-NOT: all_reduce
func.func @main(%x: tensor<8x2xf32>, %s: tensor<2xf32>) -> tensor<8x2xf32> {
  %mean = popart.reduce_mean %x {axes = array<i64: 0>} : (tensor<8x2xf32>) -> tensor<2xf32>
  %d = popops.map <square(sub(_1, _2))>(%x, %mean) : (tensor<8x2xf32>, tensor<2xf32>) -> tensor<8x2xf32>
  %variance = popart.reduce_mean %d {axes = array<i64: 0>} : (tensor<8x2xf32>) -> tensor<2xf32>
  %y = popart.batch_norm %x, %s, %s, %mean, %variance : (tensor<8x2xf32>, tensor<2xf32>, tensor<2xf32>, tensor<2xf32>, tensor<2xf32>) -> tensor<8x2xf32>
  %z = popart.batch_norm %y, %s, %s, %s, %s : (tensor<8x2xf32>, tensor<2xf32>, tensor<2xf32>, tensor<2xf32>, tensor<2xf32>) -> tensor<8x2xf32>
  func.return %z : tensor<8x2xf32>
}
