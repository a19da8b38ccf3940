// RUN: populus-opt %s -p 'onnx-expose-weights{names=w,x}' | filecheck %s
// RUN: not populus-opt %s -p 'onnx-expose-weights{names=v}' 2>&1 | filecheck %s --check-prefix=UNKNOWN

// UNKNOWN: there is no input or weight 'v'

// A weight becomes an argument behind those that there are; other constants stay.
// CHECK: func.func @main(%x: tensor<2xf32>, %w: tensor<2xf32>) -> tensor<2xf32> attributes {input_names = ["x", "w"], output_names = ["y"]}
func.func @main(%x: tensor<2xf32>) -> tensor<2xf32> attributes {input_names = ["x"], output_names = ["y"]} {
  // CHECK-NEXT: data.constant dense<5.000000e-01>
  %w = data.constant dense<[1.0, 2.0]> : tensor<2xf32> loc("w")
  %k = data.constant dense<0.5> : tensor<f32> loc("k")
  // CHECK-NEXT: popart.mul %x, %w
  %a = popart.mul %x, %w : (tensor<2xf32>, tensor<2xf32>) -> tensor<2xf32>
  %y = popart.mul %a, %k : (tensor<2xf32>, tensor<f32>) -> tensor<2xf32>
  func.return %y : tensor<2xf32>
}
