// RUN: populus-opt %s --split-input-file -p "popart-recompute{target=gc200 tiles=1 share=0.0052}" | filecheck %s
// RUN: populus-opt %s --split-input-file -p "popart-recompute{target=gc200 tiles=1}" | filecheck %s --check-prefix ROOM
// RUN: populus-opt %s --split-input-file -p "popart-recompute{target=gc200 tiles=1 share=0.0}" | filecheck %s --check-prefix ROOM

// Of 620 KiB, 0.0052 hold three tensors of 1 KiB. %a and what it is made of are computed again from %x, which is read later anyhow;
// %b is not, because a product is no cheap op. With room for all, nothing changes.
func.func @main(%x: tensor<16x16xf32>) -> tensor<16x16xf32> attributes {input_names = ["x"], output_names = ["y"]} {
  // CHECK: %e = popart.exp %x
  // CHECK-NEXT: %a = popart.relu %e
  %e = popart.exp %x : tensor<16x16xf32>
  %a = popart.relu %e : tensor<16x16xf32>
  // CHECK-NEXT: %b = popart.matmul %a, %x
  %b = popart.matmul %a, %x : (tensor<16x16xf32>, tensor<16x16xf32>) -> tensor<16x16xf32>
  // CHECK-NEXT: %c = popart.matmul %b, %b
  %c = popart.matmul %b, %b : (tensor<16x16xf32>, tensor<16x16xf32>) -> tensor<16x16xf32>
  // CHECK-NEXT: %d = popart.matmul %c, %b
  %d = popart.matmul %c, %b : (tensor<16x16xf32>, tensor<16x16xf32>) -> tensor<16x16xf32>
  // CHECK-NEXT: %[[E:.*]] = popart.exp %x
  // CHECK-NEXT: %[[A:.*]] = popart.relu %[[E]]
  // CHECK-NEXT: %f = popart.matmul %d, %[[A]]
  // ROOM: popart.matmul %d, %a
  %f = popart.matmul %d, %a : (tensor<16x16xf32>, tensor<16x16xf32>) -> tensor<16x16xf32>
  // CHECK-NEXT: %g = popart.matmul %f, %[[A]]
  %g = popart.matmul %f, %a : (tensor<16x16xf32>, tensor<16x16xf32>) -> tensor<16x16xf32>
  // CHECK-NEXT: popart.matmul %g, %x
  %h = popart.matmul %g, %x : (tensor<16x16xf32>, tensor<16x16xf32>) -> tensor<16x16xf32>
  func.return %h : tensor<16x16xf32>
}

// -----

// A late reader reads an earlier view of the value: a view of the copy takes its place, and the early reader keeps the first.
func.func @main(%x: tensor<16x16xf32>, %u: tensor<32x32xf32>) -> tensor<8x32xf32> attributes {input_names = ["x", "u"], output_names = ["y"]} {
  // CHECK: %a = popart.relu %x
  %a = popart.relu %x : tensor<16x16xf32>
  // CHECK-NEXT: %v = popart.reshape %a
  %v = popart.reshape %a {shape = array<i64: 8, 32>} : (tensor<16x16xf32>) -> tensor<8x32xf32>
  // CHECK: popart.matmul %v
  %b = popart.matmul %v, %u : (tensor<8x32xf32>, tensor<32x32xf32>) -> tensor<8x32xf32>
  %c = popart.matmul %b, %u : (tensor<8x32xf32>, tensor<32x32xf32>) -> tensor<8x32xf32>
  %d = popart.matmul %c, %u : (tensor<8x32xf32>, tensor<32x32xf32>) -> tensor<8x32xf32>
  // CHECK: %[[A:.*]] = popart.relu %x
  // CHECK-NEXT: %[[V:.*]] = popart.reshape %[[A]]
  // CHECK-NEXT: popart.add %d, %[[V]]
  // ROOM: popart.add %d, %v
  %f = popart.add %d, %v : (tensor<8x32xf32>, tensor<8x32xf32>) -> tensor<8x32xf32>
  %r = popart.reshape %x {shape = array<i64: 8, 32>} : (tensor<16x16xf32>) -> tensor<8x32xf32>
  %g = popart.add %f, %r : (tensor<8x32xf32>, tensor<8x32xf32>) -> tensor<8x32xf32>
  func.return %g : tensor<8x32xf32>
}
