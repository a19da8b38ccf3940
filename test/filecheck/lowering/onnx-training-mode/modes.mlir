// RUN: populus-opt %s -p 'onnx-training-mode{mode=train}' | filecheck %s
// RUN: populus-opt %s -p 'onnx-training-mode{mode=train},onnx-training-mode{mode=infer}' | filecheck %s --check-prefix=BACK
// RUN: populus-opt %s -p onnx-training-mode | filecheck %s --check-prefix=KEEP
// RUN: not populus-opt %s -p 'onnx-training-mode{mode=test}' 2>&1 | filecheck %s --check-prefix=WRONG

// WRONG: the mode is 'test'; train, infer or keep is expected

// CHECK: func.func @main(%x: tensor<2x3xf32>, %s: tensor<3xf32>, %m: tensor<3xf32>, %v: tensor<3xf32>)
// CHECK-SAME: output_names = ["y", "Updated___mean", "Updated___variance"]
// KEEP: func.func @main(%x: tensor<2x3xf32>, %s: tensor<3xf32>)
// KEEP: output_names = ["y"]
func.func @main(%x: tensor<2x3xf32>, %s: tensor<3xf32>) -> !onnx.unknown attributes {input_names = ["x", "s"], output_names = ["y"]} {
  %m = data.constant dense<0.0> : tensor<3xf32> loc("mean")
  %v = data.constant dense<1.0> : tensor<3xf32> loc("variance")
  // CHECK: onnx.BatchNormalization_15(%x, %s, %s, %m, %v) {{.*}}training_mode = 1 : i64{{.*}} -> (!onnx.unknown, !onnx.unknown, !onnx.unknown)
  // KEEP: onnx.BatchNormalization_9(%x
  %n = onnx.BatchNormalization_9(%x, %s, %s, %m, %v) {momentum = 0.8 : f32} : (tensor<2x3xf32>, tensor<3xf32>, tensor<3xf32>, tensor<3xf32>, tensor<3xf32>) -> !onnx.unknown
  // CHECK: %[[TRUE:.*]] = data.constant dense<{{true|1}}>
  // CHECK: %[[RATIO:.*]] = data.constant dense<2.500000e-01>
  // CHECK: onnx.Dropout_12(%{{.*}}, %[[RATIO]], %[[TRUE]])
  // BACK: onnx.BatchNormalization_15(%x, %s, %s, %m, %v) {{.*}} -> !onnx.unknown
  // BACK: data.constant dense<{{false|0}}>
  // BACK: func.return %{{.*}}, %m, %v
  // KEEP: onnx.Dropout_10(
  %y = onnx.Dropout_10(%n) {ratio = 0.25 : f32} : (!onnx.unknown) -> !onnx.unknown
  func.return %y : !onnx.unknown
}
