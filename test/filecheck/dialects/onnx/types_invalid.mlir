// RUN: not populus-opt %s 2>&1 | filecheck %s

// CHECK: types_invalid.mlir:5:3: onnx.Add_14: A is tensor(float), B is tensor(double); Add-14 wants one type T for both
func.func @mixed(%x: tensor<2xf32>, %w: tensor<2xf64>) {
  %y = onnx.Add_14(%x, %w) : (tensor<2xf32>, tensor<2xf64>) -> tensor<2xf32>
  func.return
}
