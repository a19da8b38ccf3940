// RUN: populus-opt %s -p "popart-outline{statistics=true}" 2>&1 | filecheck %s --check-prefix=ON
// RUN: populus-opt %s -p "popart-outline{threshold=2000.0 statistics=true}" 2>&1 | filecheck %s --check-prefix=OFF
// RUN: populus-opt %s -p "popart-outline{calls=4 statistics=true}" 2>&1 | filecheck %s --check-prefix=OFF
// RUN: populus-opt %s -p "popart-outline{break_cost=0.01 statistics=true}" 2>&1 | filecheck %s --check-prefix=CUT
// RUN: populus-opt %s -p "popart-outline{break_cost=0.01 threshold=1000.15 statistics=true}" 2>&1 | filecheck %s --check-prefix=CUT

// Three products, each with a chain of element-wise ops behind it that begins alike. A call that cut the chains would have two ops
// more, but then they were no longer one step; that costs more than it saves, unless it is made cheap.
// ON: popart-outline: @subgraph_0: 1 ops, 3 calls, saved 2000
// OFF-NOT: @subgraph
// CUT: popart-outline: @subgraph_0: 3 ops, 3 calls, saved 2000.38
func.func @main(%x : tensor<4x4xf32>, %w : tensor<4x4xf32>) -> tensor<4x4xf32> {
  %m1 = popart.matmul %x, %w : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
  %a1 = popart.add %m1, %x : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
  %b1 = popart.relu %a1 : tensor<4x4xf32>
  %c1 = popart.exp %b1 : tensor<4x4xf32>
  %m2 = popart.matmul %c1, %w : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
  %a2 = popart.add %m2, %x : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
  %b2 = popart.relu %a2 : tensor<4x4xf32>
  %c2 = popart.sigmoid %b2 : tensor<4x4xf32>
  %m3 = popart.matmul %c2, %w : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
  %a3 = popart.add %m3, %x : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
  %b3 = popart.relu %a3 : tensor<4x4xf32>
  %c3 = popart.tanh %b3 : tensor<4x4xf32>
  func.return %c3 : tensor<4x4xf32>
}
