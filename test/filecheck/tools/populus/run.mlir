// RUN: populus run %s --target gc200 --tiles 4 --engine strict --check-levels | filecheck %s
// RUN: not populus run %s --target gc20 2>&1 | filecheck %s --check-prefix TARGET
// RUN: not populus run %s --inputs %s 2>&1 | filecheck %s --check-prefix INPUTS
// A module runs as a model does: its arguments are its inputs, drawn at random where none are given.

// CHECK:      output    dtype    shape
// CHECK-NEXT: output_0  float32  4x2
// CHECK:      at the level poplar
// CHECK:      levels  popops agrees with popart at all {{[0-9]+}} places
// CHECK-NEXT: levels  poplar agrees with popops at all {{[0-9]+}} places

// TARGET: populus: no target 'gc20'; did you mean 'gc200'?{{$}}
// TARGET-NOT: Traceback

// INPUTS: run.mlir: expected one .npz file, or .pb tensors in the order of the model
func.func @main(%x: tensor<4x3xf32>, %w: tensor<3x2xf32>) -> tensor<4x2xf32> {
  %xw = popart.matmul %x, %w : (tensor<4x3xf32>, tensor<3x2xf32>) -> tensor<4x2xf32>
  %y = popart.relu %xw : tensor<4x2xf32>
  func.return %y : tensor<4x2xf32>
}
