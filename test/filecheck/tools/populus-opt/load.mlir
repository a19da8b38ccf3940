// RUN: populus-opt %s --load %S/inputs/cube.py -p custom-half | filecheck %s
// A Python file brings an op in, and a pass that is named by its name.

// CHECK: %y = custom.cube %x {factor = 2.000000e+00 : f32} : tensor<4xf32>
func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
  %y = custom.cube %x {factor = 4.0 : f32} : tensor<4xf32>
  func.return %y : tensor<4xf32>
}
