// RUN: populus-opt %s --split-input-file --verify-diagnostics | filecheck %s

// CHECK: x is tensor<3xf32>, which has no dimension 1 to be in blocks
func.func @rank(%x: tensor<3xf32>) {
  %p = popart.pack %x : (tensor<3xf32>) -> tensor<1x8xf32>
  func.return
}

// -----

// CHECK: x is tensor<1x1x2x8xf32>; blocked 8 at 1 with 9 elements is expected
func.func @extent(%x: tensor<1x1x2x8xf32>) {
  %p = popart.unpack %x {extent = 9 : i64} : (tensor<1x1x2x8xf32>) -> tensor<1x9x2xf32>
  func.return
}
