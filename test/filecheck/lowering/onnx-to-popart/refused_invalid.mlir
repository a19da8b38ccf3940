// RUN: not populus-opt %s -p onnx-to-popart 2>&1 | filecheck %s

// What only the host can do is a host call before this pass, by onnx-host-calls; here there is nothing that it could become.

// CHECK: 'picture': ImageDecoder-20: there is no conversion of ImageDecoder
func.func @main(%x: tensor<64xui8>) -> tensor<4x4x3xui8> {
  %y = onnx.ImageDecoder_20(%x) : (tensor<64xui8>) -> tensor<4x4x3xui8> loc("picture")
  func.return %y : tensor<4x4x3xui8>
}
