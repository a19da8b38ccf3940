// RUN: not populus-opt %s -p "popart-recompute{share=-1.0}" 2>&1 | filecheck %s

// CHECK: share = -1; a part of memory is at least 0
func.func @main(%x: tensor<2xf32>) -> tensor<2xf32> attributes {input_names = ["x"], output_names = ["y"]} {
  func.return %x : tensor<2xf32>
}
