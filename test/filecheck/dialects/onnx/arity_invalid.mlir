// RUN: not populus-opt %s 2>&1 | filecheck %s

// CHECK: Add-14 has no input 'B' (number 2); it needs 2 inputs at least
func.func @arity(%x: tensor<2xf32>) {
  %y = onnx.Add_14(%x) : (tensor<2xf32>) -> tensor<2xf32>
  func.return
}
