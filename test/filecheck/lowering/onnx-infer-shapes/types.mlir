// RUN: populus-opt %s -p 'onnx-infer-shapes{dims="batch=2"}' | filecheck %s

// A torch export computes the shape that it reshapes to; it is evaluated.
// CHECK: func.func @main(%x: tensor<2x3x4xf32>) -> tensor<2x12xf32>
func.func @main(%x: tensor<?x3x4xf32>) -> !onnx.unknown
    attributes {input_names = ["x"], output_names = ["y"], dim_names = [["batch", "", ""]]} {
  %zero = data.constant dense<0> : tensor<1xi64>
  %rest = data.constant dense<-1> : tensor<1xi64>
  %shape = onnx.Shape_13(%x) : (tensor<?x3x4xf32>) -> !onnx.unknown
  %batch = onnx.Gather_13(%shape, %zero) : (!onnx.unknown, tensor<1xi64>) -> !onnx.unknown
  %to = onnx.Concat_13(%batch, %rest) {axis = 0 : i64} : (!onnx.unknown, tensor<1xi64>) -> !onnx.unknown
  // CHECK: onnx.Reshape_13(%x, %to) : (tensor<2x3x4xf32>, tensor<2xi64>) -> tensor<2x12xf32>
  %y = onnx.Reshape_13(%x, %to) : (tensor<?x3x4xf32>, !onnx.unknown) -> !onnx.unknown
  func.return %y : !onnx.unknown
}
