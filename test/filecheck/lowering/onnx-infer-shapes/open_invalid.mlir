// RUN: not populus-opt %s -p onnx-infer-shapes 2>&1 | filecheck %s

// CHECK: input 'x' is tensor<?xf32>: its dimension 'batch' is open; bind it with --dim batch=N
func.func @main(%x: tensor<?xf32>) -> tensor<?xf32> attributes {input_names = ["x"], output_names = ["x"], dim_names = [["batch"]]} {
  func.return %x : tensor<?xf32>
}
