// RUN: populus-opt %s | populus-opt | filecheck %s

// Each op names the opset that brought its version; an input or output that is left out is none.
func.func @main(%x: tensor<2x3xf32>, %high: tensor<f32>, %w: tensor<1x4x3xf32>, %r: tensor<1x4x1xf32>) -> tensor<2x3xf32> {
  // CHECK: %y = onnx.Clip_13(%x, none, %high) : (tensor<2x3xf32>, none, tensor<f32>) -> tensor<2x3xf32>
  %y = onnx.Clip_13(%x, none, %high) : (tensor<2x3xf32>, none, tensor<f32>) -> tensor<2x3xf32>
  // A property at its default is not printed.
  // CHECK-NEXT: %z = onnx.LeakyRelu_16(%y) : (tensor<2x3xf32>) -> tensor<2x3xf32>
  %z = onnx.LeakyRelu_16(%y) {alpha = 0.01 : f32} : (tensor<2x3xf32>) -> tensor<2x3xf32>
  // CHECK-NEXT: %h = onnx.LSTM_14(%x, %w, %r) {hidden_size = 1 : i64} : {{.*}} -> (none, !onnx.unknown)
  %h = onnx.LSTM_14(%x, %w, %r) {hidden_size = 1 : i64} : (tensor<2x3xf32>, tensor<1x4x3xf32>, tensor<1x4x1xf32>) -> (none, !onnx.unknown)
  // CHECK-NEXT: %s = onnx.SequenceConstruct_11(%x, %y) : (tensor<2x3xf32>, tensor<2x3xf32>) -> !onnx.sequence<tensor<2x3xf32>>
  %s = onnx.SequenceConstruct_11(%x, %y) : (tensor<2x3xf32>, tensor<2x3xf32>) -> !onnx.sequence<tensor<2x3xf32>>
  // CHECK-NEXT: %c = onnx.custom "my.domain" "Twice"(%x) {version = 1 : i64, node_attributes = {scale = 2.000000e+00 : f32}}
  %c = onnx.custom "my.domain" "Twice"(%x) {version = 1 : i64, node_attributes = {scale = 2.0 : f32}} : (tensor<2x3xf32>) -> !onnx.unknown
  // CHECK-NEXT: %o = onnx.custom "my.domain" "Twice"(%x, %x) {version = 1 : i64, node_attributes = {}, absent = array<i64: 1>}
  %o = onnx.custom "my.domain" "Twice"(%x, %x) {version = 1 : i64, node_attributes = {}, absent = array<i64: 1>} : (tensor<2x3xf32>, tensor<2x3xf32>) -> !onnx.unknown
  // CHECK-NEXT: %l = onnx.ai_onnx_ml_Scaler_1(%x) : (tensor<2x3xf32>) -> tensor<2x3xf32>
  %l = onnx.ai_onnx_ml_Scaler_1(%x) : (tensor<2x3xf32>) -> tensor<2x3xf32>
  func.return %z : tensor<2x3xf32>
}

func.func @branches(%condition: tensor<i1>, %x: tensor<2xf32>) -> tensor<2xf32> {
  // CHECK: onnx.If_16(%condition) ({
  // CHECK-NEXT: onnx.Neg_13
  %y = onnx.If_16(%condition) ({
    %n = onnx.Neg_13(%x) : (tensor<2xf32>) -> tensor<2xf32>
    onnx.yield %n : tensor<2xf32>
  }, {
    onnx.yield %x : tensor<2xf32>
  }) : (tensor<i1>) -> tensor<2xf32>
  func.return %y : tensor<2xf32>
}
