// RUN: populus-opt %s -p "popart-recompute{target=gc200 tiles=1 share=0.0052}" | filecheck %s --check-prefix FREE
// RUN: populus-opt %s -p "popart-recompute{target=gc200 tiles=1 share=0.0052 keep=relu}" | filecheck %s
// RUN: not populus-opt %s -p "popart-recompute{target=gc200 tiles=1 keep=rellu}" 2>&1 | filecheck %s --check-prefix NONE

// A checkpoint stays, though memory is short.

// NONE: no node 'rellu' whose result could be kept; did you mean 'relu'?
func.func @main(%x: tensor<16x16xf32>) -> tensor<16x16xf32> attributes {input_names = ["x"], output_names = ["y"]} {
  %a = popart.relu %x : tensor<16x16xf32> loc("relu")
  %b = popart.matmul %a, %x : (tensor<16x16xf32>, tensor<16x16xf32>) -> tensor<16x16xf32>
  %c = popart.matmul %b, %b : (tensor<16x16xf32>, tensor<16x16xf32>) -> tensor<16x16xf32>
  %d = popart.matmul %c, %b : (tensor<16x16xf32>, tensor<16x16xf32>) -> tensor<16x16xf32>
  // CHECK: popart.matmul %d, %a
  // FREE:      %d = popart.matmul
  // FREE-NEXT: %[[A:.*]] = popart.relu %x
  // FREE-NEXT: popart.matmul %d, %[[A]]
  %f = popart.matmul %d, %a : (tensor<16x16xf32>, tensor<16x16xf32>) -> tensor<16x16xf32>
  %h = popart.matmul %f, %x : (tensor<16x16xf32>, tensor<16x16xf32>) -> tensor<16x16xf32>
  func.return %h : tensor<16x16xf32>
}
