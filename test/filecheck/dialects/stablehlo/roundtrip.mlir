// RUN: populus-opt %s | populus-opt | filecheck %s

// What is read is printed so that it is read again.
func.func @main(%x: tensor<1x4x4x2xf32>, %w: tensor<3x3x2x5xf32>, %c: tensor<2xcomplex<f32>>) {
  // CHECK: dimension_numbers = #stablehlo.conv<[b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f]>
  %y = "stablehlo.convolution"(%x, %w) <{batch_group_count = 1 : i64, feature_group_count = 1 : i64, dimension_numbers = #stablehlo.conv<[b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f]>}> : (tensor<1x4x4x2xf32>, tensor<3x3x2x5xf32>) -> tensor<1x2x2x5xf32>
  // CHECK: comparison_direction = #stablehlo<comparison_direction EQ>
  %z = "stablehlo.compare"(%c, %c) <{comparison_direction = #stablehlo<comparison_direction EQ>}> : (tensor<2xcomplex<f32>>, tensor<2xcomplex<f32>>) -> tensor<2xi1>
  // CHECK: #stablehlo.gather<offset_dims = [1, 2, 3], collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = 1>
  %i = "stablehlo.constant"() <{value = dense<0> : tensor<6x1xi32>}> : () -> tensor<6x1xi32>
  %g = "stablehlo.gather"(%x, %i) <{dimension_numbers = #stablehlo.gather<offset_dims = [1, 2, 3], collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = 1>, slice_sizes = array<i64: 1, 4, 4, 2>}> : (tensor<1x4x4x2xf32>, tensor<6x1xi32>) -> tensor<6x4x4x2xf32>
  // CHECK: "stablehlo.create_token"() : () -> !stablehlo.token
  %t = "stablehlo.create_token"() : () -> !stablehlo.token
  func.return
}
