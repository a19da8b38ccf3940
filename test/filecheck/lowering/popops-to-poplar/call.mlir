// RUN: populus-opt %s -p "popops-to-poplar{target=gc200 tiles=4}" --split-input-file | filecheck %s
// RUN: populus-opt %s -p "popops-to-poplar{target=gc200 tiles=4},poplar-map" --split-input-file | filecheck %s --check-prefix=MAP

// The result is made in the out parameter; the caller's constant gets the layout of the parameter that it is given for.
func.func private @half(%x : tensor<16xf32>, %w : tensor<16xf32>) -> tensor<16xf32> {
  %y = popops.map <mul(mul(_1, _2), 0.5)>(%x, %w) : (tensor<16xf32>, tensor<16xf32>) -> tensor<16xf32>
  func.return %y : tensor<16xf32>
}
func.func @main(%x : tensor<16xf32>) -> tensor<16xf32> {
  %k = data.constant dense<2.0> : tensor<16xf32>
  %y = func.call @half(%x, %k) : (tensor<16xf32>, tensor<16xf32>) -> tensor<16xf32>
  %z = func.call @half(%y, %k) : (tensor<16xf32>, tensor<16xf32>) -> tensor<16xf32>
  func.return %z : tensor<16xf32>
}

// CHECK:      poplar.func @half {
// CHECK-NEXT:   %x = poplar.param in "half.x" : !poplar.tensor<16xf32>
// CHECK-NEXT:   %w = poplar.param in "half.w" : !poplar.tensor<16xf32>
// CHECK-NEXT:   [[OUT:%.*]] = poplar.param out "half.result0" on [16 in 4 by 2] order [0] : !poplar.tensor<16xf32>
// CHECK-NEXT:   poplar.execute
// CHECK:          in x1 = %x[d0]
// CHECK-NEXT:     in x2 = %w[d0]
// CHECK-NEXT:     out y = [[OUT]][d0]
// CHECK-NEXT:   }
// CHECK-NEXT: }
// CHECK:      %k = poplar.const
// CHECK-NEXT: %y = poplar.var "half.result0" : !poplar.tensor<16xf32>
// CHECK-NEXT: poplar.call @half(%{{x.*}}, %k, %y)
// CHECK-NEXT: %z = poplar.var
// CHECK-NEXT: poplar.call @half(%y, %k, %z)
// CHECK-NEXT: poplar.stream_out %z
// MAP:        %x = poplar.param in "half.x" on [16 in 4 by 2] order [0]
// MAP:        poplar.var "x" on [16 in 4 by 2] order [0]
// MAP:        %k = poplar.const {{.*}} on [16 in 4 by 2] order [0]

// -----

// What is returned twice, or is an argument, is copied; an argument that is no stretch of elements is copied before the call.
func.func private @both(%x : tensor<2x4xf32>) -> (tensor<2x4xf32>, tensor<2x4xf32>, tensor<2x4xf32>) {
  %y = popops.map <exp(_1)>(%x) : (tensor<2x4xf32>) -> tensor<2x4xf32>
  func.return %y, %y, %x : tensor<2x4xf32>, tensor<2x4xf32>, tensor<2x4xf32>
}
func.func @main(%x : tensor<4x2xf32>) -> tensor<2x4xf32> {
  %t = popops.dim_shuffle %x {permutation = array<i64: 1, 0>} : (tensor<4x2xf32>) -> tensor<2x4xf32>
  %a, %b, %c = func.call @both(%t) : (tensor<2x4xf32>) -> (tensor<2x4xf32>, tensor<2x4xf32>, tensor<2x4xf32>)
  %y = popops.map <add(_1, mul(_2, _3))>(%a, %b, %c) : (tensor<2x4xf32>, tensor<2x4xf32>, tensor<2x4xf32>) -> tensor<2x4xf32>
  func.return %y : tensor<2x4xf32>
}

// CHECK:      poplar.func @both {
// CHECK:        [[A:%.*]] = poplar.param out "both.result0"
// CHECK:        [[B:%.*]] = poplar.param out "both.result1"
// CHECK:        [[C:%.*]] = poplar.param out "both.result2"
// CHECK:          out y = [[A]][d0, d1]
// CHECK:        poplar.copy [[A]] to [[B]]
// CHECK-NEXT:   poplar.copy %x to [[C]]
// CHECK:      [[T:%.*]] = poplar.dim_shuffle %{{x.*}} [1, 0]
// CHECK:      poplar.copy [[T]] to [[COPY:%.*]] : !poplar.tensor<2x4xf32>
// CHECK-NEXT: poplar.call @both([[COPY]],
// CHECK:      inout x1 = %a[d0, d1]

// -----

// A function that nothing calls is gone; one that is called by another stands in the graph.
func.func private @unused(%x : tensor<2xf32>) -> tensor<2xf32> {
  func.return %x : tensor<2xf32>
}
func.func private @inner(%x : tensor<2xf32>) -> tensor<2xf32> {
  %y = popops.map <exp(_1)>(%x) : (tensor<2xf32>) -> tensor<2xf32>
  func.return %y : tensor<2xf32>
}
func.func private @outer(%x : tensor<2xf32>) -> tensor<2xf32> {
  %y = func.call @inner(%x) : (tensor<2xf32>) -> tensor<2xf32>
  func.return %y : tensor<2xf32>
}
func.func @main(%x : tensor<2xf32>) -> tensor<2xf32> {
  %y = func.call @outer(%x) : (tensor<2xf32>) -> tensor<2xf32>
  func.return %y : tensor<2xf32>
}

// CHECK-NOT:  @unused
// CHECK:      poplar.func @inner {
// CHECK:      poplar.func @outer {
// CHECK:        [[OUT:%.*]] = poplar.param out "outer.result0"
// CHECK-NEXT:   poplar.call @inner({{%.*}}, [[OUT]])
