// RUN: populus-opt %s -p onnx-to-popart | filecheck %s

// What is an attribute in one opset and an input in another becomes the same.
// CHECK-LABEL: @squeezed
// CHECK-NEXT: popart.reshape %x {shape = array<i64: 2>}
// CHECK-NEXT: popart.reshape %x {shape = array<i64: 2>}
func.func @squeezed(%x: tensor<1x2xf32>) -> (tensor<2xf32>, tensor<2xf32>) {
  %axes = data.constant dense<0> : tensor<1xi64>
  %a = onnx.Squeeze_11(%x) {axes = array<i64: 0>} : (tensor<1x2xf32>) -> tensor<2xf32>
  %b = onnx.Squeeze_13(%x, %axes) : (tensor<1x2xf32>, tensor<1xi64>) -> tensor<2xf32>
  func.return %a, %b : tensor<2xf32>, tensor<2xf32>
}

// Opset 6 states where the second operand stands.
// CHECK-LABEL: @broadcast
// CHECK-NEXT: [[B:%.*]] = popart.reshape %b {shape = array<i64: 3, 1>}
// CHECK-NEXT: popart.add %x, [[B]]
func.func @broadcast(%x: tensor<2x3x4xf32>, %b: tensor<3xf32>) -> tensor<2x3x4xf32> {
  %y = onnx.Add_6(%x, %b) {broadcast = 1 : i64, axis = 1 : i64} : (tensor<2x3x4xf32>, tensor<3xf32>) -> tensor<2x3x4xf32>
  func.return %y : tensor<2x3x4xf32>
}

// Below opset 13 Softmax makes one row of the dimensions from its axis on.
// CHECK-LABEL: @softmax
// CHECK-NEXT: [[ROWS:%.*]] = popart.reshape %x {shape = array<i64: 2, 12>}
// CHECK-NEXT: [[Y:%.*]] = popart.softmax [[ROWS]] {axis = 1 : i64}
// CHECK-NEXT: popart.reshape [[Y]] {shape = array<i64: 2, 3, 4>}
func.func @softmax(%x: tensor<2x3x4xf32>) -> tensor<2x3x4xf32> {
  %y = onnx.Softmax_11(%x) : (tensor<2x3x4xf32>) -> tensor<2x3x4xf32>
  func.return %y : tensor<2x3x4xf32>
}

// auto_pad is worked out; the odd one goes behind.
// CHECK-LABEL: @same
// CHECK-NEXT: popart.conv {{.*}} pads = array<i64: 0, 0, 1, 1>
func.func @same(%x: tensor<1x1x4x4xf32>, %w: tensor<1x1x2x2xf32>) -> tensor<1x1x4x4xf32> {
  %y = onnx.Conv_11(%x, %w) {auto_pad = "SAME_UPPER"} : (tensor<1x1x4x4xf32>, tensor<1x1x2x2xf32>) -> tensor<1x1x4x4xf32>
  func.return %y : tensor<1x1x4x4xf32>
}

// An op without a rule is the function that ONNX states it to be.
// CHECK-LABEL: @function
// CHECK-NOT: onnx.
// CHECK: popart.reduce_mean
func.func @function(%x: tensor<2x4xf32>) -> tensor<2x4xf32> {
  %y = onnx.MeanVarianceNormalization_13(%x) {axes = array<i64: 1>} : (tensor<2x4xf32>) -> tensor<2x4xf32>
  func.return %y : tensor<2x4xf32>
}
