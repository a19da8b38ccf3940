// RUN: not populus-opt %s -p "poplin-to-poplar{target=gc300}" 2>&1 | filecheck %s --check-prefix TARGET
// RUN: not populus-opt %s -p "poplin-to-poplar{target=gc200 tiles=0}" 2>&1 | filecheck %s --check-prefix TILES
// RUN: not populus-opt %s -p "poplin-to-poplar{target=gc200 tiles=4},popnn-to-poplar{target=bow}" 2>&1 | filecheck %s --check-prefix OTHER
// RUN: not populus-opt %s -p "poplin-to-poplar{target=gc200}" 2>&1 | filecheck %s --check-prefix HOLD

func.func @main(%a : tensor<1x8x8xf64>) -> tensor<1x8x8xf64> attributes {input_names = ["a"], output_names = ["a"]} {
  func.return %a : tensor<1x8x8xf64>
}

// TARGET: no target 'gc300'; did you mean 'gc200'?
// TILES: target 'gc200': tiles = 0 is out of range
// OTHER: input 'a' is f64, which target gc200 cannot hold
// HOLD: input 'a' is f64, which target gc200 cannot hold; ask for narrower types (--narrow, popops-narrow) or take target host
