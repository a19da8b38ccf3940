// RUN: populus-opt %s -p "popops-narrow{target=gc200},poplin-to-poplar{target=gc200 tiles=2},popops-to-poplar" --split-input-file | filecheck %s
// RUN: populus-opt %s -p "popops-narrow{target=host}" --split-input-file | filecheck %s --check-prefix HOST

// A GC200 has no doubles: tiles compute in floats, the host keeps its doubles.
func.func @main(%x : tensor<4xf64>) -> tensor<4xf64> attributes {input_names = ["x"], output_names = ["y"]} {
  %c = data.constant dense<[1.5, 2.0, 0.5, 4.0]> : tensor<4xf64>
  %y = popops.map <mul(_1, cast(cast(_2, f16), f64))>(%x, %c) : (tensor<4xf64>, tensor<4xf64>) -> tensor<4xf64>
  func.return %y : tensor<4xf64>
}

// CHECK: poplar.stream_in "x" as f64 to %x : !poplar.tensor<4xf32>
// CHECK: poplar.family @map {expr = #expr.fn<mul(_1, cast(cast(_2, f16), f32))>}
// CHECK: poplar.stream_out %{{.*}} to "y" as f64 : !poplar.tensor<4xf32>

// HOST: tensor<4xf64>
