// RUN: not populus-opt %s -p onnx-infer-shapes,onnx-host-calls 2>&1 | filecheck %s

func.func @main(%x: tensor<2x!onnx.string>) -> (!onnx.unknown) attributes {input_names = ["x"], output_names = ["y"]} {
  // CHECK: Unique-11: on strings it is not supported; tiles move and compare them, and do not order them
  %y, %i, %j, %n = onnx.Unique_11(%x) : (tensor<2x!onnx.string>) -> (!onnx.unknown, !onnx.unknown, !onnx.unknown, !onnx.unknown)
  func.return %y : !onnx.unknown
}
