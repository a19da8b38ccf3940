// RUN: populus-opt %s -p "poplin-to-poplar{target=gc200 tiles=4}" | filecheck %s
// RUN: populus-opt %s -p "poplin-to-poplar{target=gc200 tiles=1}" | filecheck %s --check-prefix ONE

// A square product on four tiles: cut along m and n, k stays whole, nothing to reduce.
func.func @main(%a : tensor<1x64x64xf32>, %b : tensor<1x64x64xf32>) -> tensor<1x64x64xf32> attributes {input_names = ["a", "b"], output_names = ["c"]} {
  %c = poplin.matmul %a, %b : (tensor<1x64x64xf32>, tensor<1x64x64xf32>) -> tensor<1x64x64xf32>
  func.return %c : tensor<1x64x64xf32>
}

// CHECK:      poplar.graph @main target <gc200, tiles = 4> {
// CHECK-NEXT:   %a = poplar.var "a" : !poplar.tensor<1x64x64xf32>
// CHECK-NEXT:   poplar.stream_in "a" to %a
// CHECK:        [[C:%.*]] = poplar.var {{.*}} on {{.*}} : !poplar.tensor<1x64x64xf32>
// CHECK-NEXT:   poplar.execute
// CHECK-NEXT:     poplar.family @matmul for (k = 64 by 8, g = 1, m = 64{{.*}}, n = 64{{.*}})
// CHECK-NEXT:       in a = %a[g, m, k]
// CHECK-NEXT:       in b = %b[g, k, n]
// CHECK-NEXT:       out c = [[C]][g, m, n]
// CHECK:        poplar.stream_out [[C]] to "c"

// ONE: poplar.family @matmul for (k = 64 by 8, g = 1, m = 64, n = 64 by 16){{$}}
