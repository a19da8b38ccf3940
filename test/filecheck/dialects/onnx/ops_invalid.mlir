// RUN: not populus-opt %s --split-input-file 2>&1 | filecheck %s

// CHECK: tensor(int32) is not one of tensor(bfloat16), tensor(double), tensor(float), tensor(float16)
func.func @elements(%x: tensor<2xi32>) {
  %y = onnx.Sigmoid_13(%x) : (tensor<2xi32>) -> tensor<2xi32>
  func.return
}
