// RUN: not populus-opt %s -p "poplin-to-poplar{target=gc200 tiles=64 resident=2.0}" 2>&1 | filecheck %s

// CHECK: resident = 2.0; it is a share of a tile's memory, from 0 to 1
func.func @main(%a : tensor<1x2x2xf32>) -> tensor<1x2x2xf32> {
  func.return %a : tensor<1x2x2xf32>
}
