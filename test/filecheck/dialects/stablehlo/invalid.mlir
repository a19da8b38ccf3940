// RUN: populus-opt %s --split-input-file --verify-diagnostics

func.func @shape(%x: tensor<2xf32>) {
  // expected-error@+1 {{the result is tensor<3xf32>; operands and attributes give tensor<2xf32>}}
  %y = "stablehlo.abs"(%x) : (tensor<2xf32>) -> tensor<3xf32>
  func.return
}
// -----
func.func @name(%x: tensor<2xf32>) {
  // expected-error@+1 {{there is no op 'stablehlo.abbs'; did you mean 'stablehlo.abs'?}}
  %y = "stablehlo.abbs"(%x) : (tensor<2xf32>) -> tensor<2xf32>
  func.return
}
// -----
func.func @region(%x: tensor<2xf32>, %z: tensor<f32>) {
  // expected-error@+1 {{the region 'body' is one block that ends in stablehlo.return}}
  %y = "stablehlo.reduce"(%x, %z) <{dimensions = array<i64: 0>}> ({
  ^bb0(%l: tensor<f32>, %r: tensor<f32>):
    popart.yield %l : tensor<f32>
  }) : (tensor<2xf32>, tensor<f32>) -> tensor<f32>
  func.return
}
// -----
func.func @operands(%x: tensor<2xf32>) {
  // expected-error@+1 {{the number of operands is 2; 1 expected: operand}}
  %y = "stablehlo.abs"(%x, %x) : (tensor<2xf32>, tensor<2xf32>) -> tensor<2xf32>
  func.return
}
// -----
func.func @attribute() {
  // expected-error@+1 {{the attribute 'iota_dimension' is missing}}
  %y = "stablehlo.iota"() : () -> tensor<2xi32>
  func.return
}
// -----
func.func @word(%x: tensor<2xf32>) {
  // expected-error@+1 {{comparison_direction is 'NEAR'; it is one of EQ, NE, GE, GT, LE, LT}}
  %y = "stablehlo.compare"(%x, %x) <{comparison_direction = #stablehlo<comparison_direction NEAR>}> : (tensor<2xf32>, tensor<2xf32>) -> tensor<2xi1>
  func.return
}
