// RUN: populus-opt %s -p "poplin-to-poplar{target=gc200 tiles=64}" | filecheck %s

// One row against a long k: too few outputs for the tiles, so k is cut. Each part leaves a partial result, and the
// reduction states how they are added.
func.func @main(%a : tensor<1x1x8192xf32>, %b : tensor<1x8192x8xf32>) -> tensor<1x1x8xf32> {
  %c = poplin.matmul %a, %b : (tensor<1x1x8192xf32>, tensor<1x8192x8xf32>) -> tensor<1x1x8xf32>
  func.return %c : tensor<1x1x8xf32>
}

// CHECK:      [[P:%.*]] = poplar.var "{{.*}}.partials" on [[[K:[0-9]+]] in [[K]], 1, 1, 8{{.*}}] order [0] : !poplar.tensor<[[K]]x1x1x8xf32>
// CHECK:      poplar.family @matmul for (k = 8192 in [[K]] by 8, g = 1, m = 1, n = 8 by 16) on (k)
// CHECK:        out c = [[P]][at k, g, m, n]
// CHECK:      poplar.family @reduce {op = "add"}
// CHECK:      poplar.stream_out {{.*}} to "output_0" : !poplar.tensor<1x1x8xf32>
