// RUN: populus-opt %s -p stablehlo-to-popart | filecheck %s

// A call is written out, a while is a loop that its condition ends, and a complex number is a pair.
func.func private @twice(%x: tensor<2xcomplex<f32>>) -> tensor<2xcomplex<f32>> {
  %y = "stablehlo.add"(%x, %x) : (tensor<2xcomplex<f32>>, tensor<2xcomplex<f32>>) -> tensor<2xcomplex<f32>>
  func.return %y : tensor<2xcomplex<f32>>
}
func.func @main(%x: tensor<2xcomplex<f32>>, %n: tensor<i32>) -> tensor<2xcomplex<f32>> {
  // CHECK: func.func @main(%x: tensor<2x2xf32>, %n: tensor<i32>) -> tensor<2x2xf32>
  // CHECK-SAME: complex_inputs = ["x"], complex_outputs = ["output_0"]
  %z = "stablehlo.constant"() <{value = dense<0> : tensor<i32>}> : () -> tensor<i32>
  // CHECK: popart.less
  // CHECK: popart.loop({{.*}}) {conditional = true}
  %0, %1 = "stablehlo.while"(%z, %x) ({
  ^bb0(%i: tensor<i32>, %v: tensor<2xcomplex<f32>>):
    %go = "stablehlo.compare"(%i, %n) <{comparison_direction = #stablehlo<comparison_direction LT>}> : (tensor<i32>, tensor<i32>) -> tensor<i1>
    "stablehlo.return"(%go) : (tensor<i1>) -> ()
  }, {
  ^bb0(%i: tensor<i32>, %v: tensor<2xcomplex<f32>>):
    %one = "stablehlo.constant"() <{value = dense<1> : tensor<i32>}> : () -> tensor<i32>
    %j = "stablehlo.add"(%i, %one) : (tensor<i32>, tensor<i32>) -> tensor<i32>
    // CHECK-COUNT-3: popart.add
    %w = "func.call"(%v) <{callee = @twice}> : (tensor<2xcomplex<f32>>) -> tensor<2xcomplex<f32>>
    "stablehlo.return"(%j, %w) : (tensor<i32>, tensor<2xcomplex<f32>>) -> ()
  }) : (tensor<i32>, tensor<2xcomplex<f32>>) -> (tensor<i32>, tensor<2xcomplex<f32>>)
  func.return %1 : tensor<2xcomplex<f32>>
}
