// RUN: populus-opt %s -p "popart-autodiff{wrt=\"x\",\"w\"}" --verify-each | filecheck %s --check-prefixes=ANY,SAVED
// RUN: populus-opt %s -p "popart-autodiff{wrt=\"x\",\"w\" stitch=recompute_minimal}" --verify-each | filecheck %s --check-prefixes=ANY,MINIMAL
// RUN: populus-opt %s -p "popart-autodiff{wrt=\"x\",\"w\" stitch=recompute_all_non_inputs}" --verify-each | filecheck %s --check-prefixes=ANY,ALL

// The gradient of m = x w needs x and w, that of s = softmax(tanh(m)) needs t and s: an intermediate value and a result.
func.func private @layer(%x: tensor<4x4xf32>, %w: tensor<4x4xf32>) -> tensor<4x4xf32> {
  %m = popart.matmul %x, %w : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
  %t = popart.tanh %m : tensor<4x4xf32>
  %s = popart.softmax %t {axis = 1 : i64} : (tensor<4x4xf32>) -> tensor<4x4xf32>
  func.return %s : tensor<4x4xf32>
}
func.func @main(%x: tensor<4x4xf32>, %w: tensor<4x4xf32>) -> tensor<4x4xf32> attributes {input_names = ["x", "w"], output_names = ["y"]} {
  %a = func.call @layer(%x, %w) : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
  %y = func.call @layer(%a, %w) : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
  func.return %y : tensor<4x4xf32>
}

// MINIMAL:      func.func private @layer(
// MINIMAL:        func.return %s : tensor<4x4xf32>
// MINIMAL-NEXT: }
// ALL:          func.func private @layer(
// ALL:            func.return %s : tensor<4x4xf32>
// ALL-NEXT:     }
// SAVED:        %a, [[A:%.*]] = func.call @layer_fwd(%x, %w)
// SAVED-NEXT:   %y, [[Y:%.*]] = func.call @layer_fwd(%a, %w)
// SAVED-NEXT:   [[G:%.*]], {{%.*}} = func.call @layer_grad(%g, %a, %w, %y, [[Y]])
// SAVED-NEXT:   func.call @layer_grad([[G]], %x, %w, %a, [[A]])
// MINIMAL:      %a = func.call @layer(%x, %w)
// MINIMAL-NEXT: %y = func.call @layer(%a, %w)
// MINIMAL-NEXT: [[G:%.*]], {{%.*}} = func.call @layer_grad(%g, %a, %w, %y)
// MINIMAL-NEXT: func.call @layer_grad([[G]], %x, %w, %a)
// ALL:          %y = func.call @layer(%a, %w)
// ALL-NEXT:     [[G:%.*]], {{%.*}} = func.call @layer_grad(%g, %a, %w)
// ALL-NEXT:     func.call @layer_grad([[G]], %x, %w)
// SAVED:        func.func private @layer_fwd(
// SAVED:          func.return %s, %t
// ANY:          func.func private @layer_grad(
// SAVED-NOT:      popart.matmul
// SAVED-NOT:      popart.softmax
// MINIMAL-NEXT:   popart.matmul
// MINIMAL-NEXT:   popart.tanh
// MINIMAL-NOT:    popart.softmax
// ALL-NEXT:       popart.matmul
// ALL-NEXT:       popart.tanh
// ALL-NEXT:       popart.softmax
// ANY:            func.return
