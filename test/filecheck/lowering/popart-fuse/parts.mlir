// RUN: populus-opt %s -p "popart-fuse{patterns=SliceOfSlice,SliceOfConcat,ConcatOfSlices,ConcatOfConcat}" --split-input-file | filecheck %s

// A slice of a slice: from 1 by 2, then from the third backwards: 5, 3, 1.
func.func @main(%x : tensor<8xf32>) -> tensor<3xf32> {
  %a = popart.slice %x {begins = array<i64: 1>, ends = array<i64: 8>, steps = array<i64: 2>} : (tensor<8xf32>) -> tensor<4xf32>
  %b = popart.slice %a {begins = array<i64: 2>, ends = array<i64: -1>, steps = array<i64: -1>} : (tensor<4xf32>) -> tensor<3xf32>
  func.return %b : tensor<3xf32>
}

// CHECK: popart.slice %x {begins = array<i64: 5>, ends = array<i64: 0>, steps = array<i64: -2>}

// -----

// Split and put together again; two of three parts; parts in another order are not what they were.
func.func @main(%x : tensor<6xf32>) -> (tensor<6xf32>, tensor<5xf32>, tensor<4xf32>) {
  %a = popart.slice %x {begins = array<i64: 0>, ends = array<i64: 2>, steps = array<i64: 1>} : (tensor<6xf32>) -> tensor<2xf32>
  %b = popart.slice %x {begins = array<i64: 2>, ends = array<i64: 4>, steps = array<i64: 1>} : (tensor<6xf32>) -> tensor<2xf32>
  %c = popart.slice %x {begins = array<i64: 4>, ends = array<i64: 6>, steps = array<i64: 1>} : (tensor<6xf32>) -> tensor<2xf32>
  %o = data.constant dense<1.0> : tensor<1xf32>
  %all = popart.concat %a, %b, %c {axis = 0 : i64} : (tensor<2xf32>, tensor<2xf32>, tensor<2xf32>) -> tensor<6xf32>
  %two = popart.concat %o, %b, %c {axis = 0 : i64} : (tensor<1xf32>, tensor<2xf32>, tensor<2xf32>) -> tensor<5xf32>
  %back = popart.concat %b, %a {axis = 0 : i64} : (tensor<2xf32>, tensor<2xf32>) -> tensor<4xf32>
  func.return %all, %two, %back : tensor<6xf32>, tensor<5xf32>, tensor<4xf32>
}

// CHECK: %[[S:.*]] = popart.slice %x {begins = array<i64: 2>, ends = array<i64: 6>, steps = array<i64: 1>}
// CHECK: %two = popart.concat %o, %[[S]]
// CHECK: %back = popart.concat %b, %a
// CHECK: func.return %x, %two, %back

// -----

// Within one part: that part, or a slice of it; across two: the concatenation.
func.func @main(%x : tensor<2xf32>, %z : tensor<4xf32>) -> (tensor<2xf32>, tensor<2xf32>, tensor<2xf32>) {
  %c = popart.concat %x, %z {axis = 0 : i64} : (tensor<2xf32>, tensor<4xf32>) -> tensor<6xf32>
  %a = popart.slice %c {begins = array<i64: 0>, ends = array<i64: 2>, steps = array<i64: 1>} : (tensor<6xf32>) -> tensor<2xf32>
  %b = popart.slice %c {begins = array<i64: 3>, ends = array<i64: 6>, steps = array<i64: 2>} : (tensor<6xf32>) -> tensor<2xf32>
  %d = popart.slice %c {begins = array<i64: 1>, ends = array<i64: 3>, steps = array<i64: 1>} : (tensor<6xf32>) -> tensor<2xf32>
  func.return %a, %b, %d : tensor<2xf32>, tensor<2xf32>, tensor<2xf32>
}

// CHECK: %c = popart.concat
// CHECK: %b = popart.slice %z {begins = array<i64: 1>, ends = array<i64: 4>, steps = array<i64: 2>}
// CHECK: %d = popart.slice %c
// CHECK: func.return %x, %b, %d

// -----

// A concatenation that only the other reads is part of it; one that is returned, or along another axis, is not.
func.func @main(%x : tensor<1x1xf32>) -> (tensor<3x1xf32>, tensor<2x1xf32>, tensor<3x1xf32>, tensor<2x2xf32>) {
  %a = popart.concat %x, %x {axis = 0 : i64} : (tensor<1x1xf32>, tensor<1x1xf32>) -> tensor<2x1xf32>
  %p = popart.concat %a, %x {axis = 0 : i64} : (tensor<2x1xf32>, tensor<1x1xf32>) -> tensor<3x1xf32>
  %b = popart.concat %x, %x {axis = 0 : i64} : (tensor<1x1xf32>, tensor<1x1xf32>) -> tensor<2x1xf32>
  %q = popart.concat %b, %x {axis = 0 : i64} : (tensor<2x1xf32>, tensor<1x1xf32>) -> tensor<3x1xf32>
  %c = popart.concat %x, %x {axis = 1 : i64} : (tensor<1x1xf32>, tensor<1x1xf32>) -> tensor<1x2xf32>
  %r = popart.concat %c, %c {axis = 0 : i64} : (tensor<1x2xf32>, tensor<1x2xf32>) -> tensor<2x2xf32>
  func.return %p, %b, %q, %r : tensor<3x1xf32>, tensor<2x1xf32>, tensor<3x1xf32>, tensor<2x2xf32>
}

// CHECK: %p = popart.concat %x, %x, %x
// CHECK: %q = popart.concat %b, %x
// CHECK: %r = popart.concat %c, %c

// -----

// An empty slice that ends before it begins is no neighbour: x[0:3], nothing, x[2:6] are seven elements.
func.func @main(%x : tensor<8xf32>) -> tensor<7xf32> {
  %a = popart.slice %x {begins = array<i64: 0>, ends = array<i64: 3>, steps = array<i64: 1>} : (tensor<8xf32>) -> tensor<3xf32>
  %b = popart.slice %x {begins = array<i64: 3>, ends = array<i64: 2>, steps = array<i64: 1>} : (tensor<8xf32>) -> tensor<0xf32>
  %c = popart.slice %x {begins = array<i64: 2>, ends = array<i64: 6>, steps = array<i64: 1>} : (tensor<8xf32>) -> tensor<4xf32>
  %y = popart.concat %a, %b, %c {axis = 0 : i64} : (tensor<3xf32>, tensor<0xf32>, tensor<4xf32>) -> tensor<7xf32>
  func.return %y : tensor<7xf32>
}

// CHECK: %y = popart.concat %a, %b, %c
