// RUN: populus-opt %s -p onnx-infer-shapes,onnx-host-calls | filecheck %s

// What joins strings is a call of the host; what moves and compares them works on their numbers in a table.

// CHECK:       func.func @main(%x: tensor<2xi32>) -> (tensor<2xi1>, tensor<4xi32>)
// CHECK-SAME: texts = {table = ["", "b", "a"], inputs = ["x"], outputs = ["all"]}
func.func @main(%x: tensor<2x!onnx.string>) -> (!onnx.unknown, !onnx.unknown) attributes {input_names = ["x"], output_names = ["same", "all"]} {
  // CHECK-NEXT:  %ba = data.constant dense<[1, 2]> : tensor<2xi32>
  %ba = onnx.strings ["b", "a"] : tensor<2x!onnx.string>
  // CHECK-NEXT:  %joined = host.call "text.concat"(%x, %ba) params {texts_in = array<i64: 1, 1>}
  %joined = onnx.StringConcat_20(%x, %ba) : (tensor<2x!onnx.string>, tensor<2x!onnx.string>) -> !onnx.unknown
  // CHECK-NEXT:  %same = onnx.Equal_19(%joined, %ba) : (tensor<2xi32>, tensor<2xi32>) -> tensor<2xi1>
  %same = onnx.Equal_19(%joined, %ba) : (!onnx.unknown, tensor<2x!onnx.string>) -> !onnx.unknown
  // CHECK-NEXT:  %all = onnx.Concat_13(%x, %joined) {axis = 0 : i64} : (tensor<2xi32>, tensor<2xi32>) -> tensor<4xi32>
  %all = onnx.Concat_13(%x, %joined) {axis = 0 : i64} : (tensor<2x!onnx.string>, !onnx.unknown) -> !onnx.unknown
  func.return %same, %all : !onnx.unknown, !onnx.unknown
}
