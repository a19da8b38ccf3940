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
// -----
func.func @gathered_twice(%x: tensor<1x4x2xf32>, %i: tensor<6x1xi32>) {
  // expected-error@+1 {{dimensions [0, 0] of a rank of 3 are outside of it, or twice}}
  %g = "stablehlo.gather"(%x, %i) <{dimension_numbers = #stablehlo.gather<offset_dims = [1], collapsed_slice_dims = [0, 0], start_index_map = [0], index_vector_dim = 1>, slice_sizes = array<i64: 1, 4, 2>}> : (tensor<1x4x2xf32>, tensor<6x1xi32>) -> tensor<6x4xf32>
  func.return
}
// -----
func.func @indexed_outside(%x: tensor<1x4x2xf32>, %i: tensor<6x1xi32>) {
  // expected-error@+1 {{index_vector_dim is -1; indices of 6x1 have 0 to 2}}
  %g = "stablehlo.gather"(%x, %i) <{dimension_numbers = #stablehlo.gather<offset_dims = [1, 2], collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = -1>, slice_sizes = array<i64: 1, 4, 2>}> : (tensor<1x4x2xf32>, tensor<6x1xi32>) -> tensor<6x4x2xf32>
  func.return
}
// -----
func.func @no_groups(%x: tensor<1x4x4x2xf32>, %w: tensor<3x3x2x5xf32>) {
  // expected-error@+1 {{2 features of 1 inputs do not fit a kernel of 2 to 5 in 1 and 0 groups}}
  %y = "stablehlo.convolution"(%x, %w) <{batch_group_count = 0 : i64, feature_group_count = 1 : i64, dimension_numbers = #stablehlo.conv<[b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f]>}> : (tensor<1x4x4x2xf32>, tensor<3x3x2x5xf32>) -> tensor<1x2x2x5xf32>
  func.return
}
