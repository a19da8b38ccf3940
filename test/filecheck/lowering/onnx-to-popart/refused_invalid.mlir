// RUN: not populus-opt %s -p onnx-to-popart 2>&1 | filecheck %s

// CHECK: 'regions': MaxRoiPool-22: there is no conversion of MaxRoiPool
func.func @main(%x: tensor<1x2x4x4xf32>, %rois: tensor<1x5xf32>) -> tensor<1x2x2x2xf32> {
  %y = onnx.MaxRoiPool_22(%x, %rois) {pooled_shape = array<i64: 2, 2>}
    : (tensor<1x2x4x4xf32>, tensor<1x5xf32>) -> tensor<1x2x2x2xf32> loc("regions")
  func.return %y : tensor<1x2x2x2xf32>
}
