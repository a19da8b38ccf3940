// RUN: populus-opt %s -p onnx-infer-shapes,onnx-fold-constants | filecheck %s

// CHECK: func.func @main(%x: tensor<2x3xf32>)
// CHECK-NEXT: [[SHAPE:%.*]] = data.constant dense<[2, 3]> : tensor<2xi64>
// CHECK-NEXT: [[ROOT:%.*]] = data.constant dense<2.000000e+00> : tensor<2xf32>
// CHECK-NEXT: func.return [[SHAPE]], [[ROOT]]
func.func @main(%x: tensor<2x3xf32>) -> (!onnx.unknown, !onnx.unknown) {
  %four = data.constant dense<4.0> : tensor<2xf32>
  %shape = onnx.Shape_13(%x) : (tensor<2x3xf32>) -> !onnx.unknown
  %root = onnx.Sqrt_13(%four) : (tensor<2xf32>) -> !onnx.unknown
  func.return %shape, %root : !onnx.unknown, !onnx.unknown
}
