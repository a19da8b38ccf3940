// RUN: populus-opt %s --split-input-file --verify-diagnostics | filecheck %s

// What variables, views and the program around them may not be.

// CHECK: tiles cannot hold elements of index
poplar.graph @main target <host> {
  %x = poplar.var "x" : !poplar.tensor<8xindex>
}

// -----
// CHECK: no target 'gc2000'; did you mean 'gc200'?
poplar.graph @main target <gc2000> {}

// -----
// CHECK: target 'gc200' has no field 'tile' to override; did you mean 'tiles'?
poplar.graph @main target <gc200, tile = 4> {}

// -----
// CHECK: target 'gc200': workers = 0 is out of range
poplar.graph @main target <gc200, workers = 0> {}

// -----
// CHECK: target 'gc200': 2097152 tiles are more than the 1048576 that fit in memory here
poplar.graph @main target <gc200, tiles = 2097152> {}

// -----
// CHECK: 'x' is f64, which target gc200 cannot hold
poplar.graph @main target <gc200> {
  %x = poplar.var "x" : !poplar.tensor<8xf64>
}

// -----
// CHECK: 'x': the grid is for [4], the variable is [8]
poplar.graph @main target <host> {
  %x = poplar.var "x" on [4] : !poplar.tensor<8xf32>
}

// -----
// CHECK: 'x': 8 elements by 1 have 8 grains, too few for 9 parts
poplar.graph @main target <host> {
  %x = poplar.var "x" on [8 in 9] order [0] : !poplar.tensor<8xf32>
}

// -----
// CHECK: 'x': order [] does not name each cut dimension of ['8 in 2'] once
poplar.graph @main target <host> {
  %x = poplar.const "x" dense<1.0> : tensor<8xf32> on [8 in 2] : !poplar.tensor<8xf32>
}

// -----
// CHECK: 'x': 8 cells on 4 tiles
poplar.graph @main target <host, tiles = 4> {
  %x = poplar.var "x" on [8 in 8] order [0] : !poplar.tensor<8xf32>
}

// -----
// CHECK: a family of 8 vertices on 4 tiles; each tile runs one
poplar.graph @main target <host, tiles = 4> {
  %x = poplar.var "x" : !poplar.tensor<8xf32>
  poplar.execute "e" { poplar.family @fill {value = 0.0 : f32} for (i = 8 in 8) on (i) out y = %x[i] : !poplar.tensor<8xf32> }
}

// -----
// CHECK: "x" is neither dense nor stored
poplar.graph @main target <host> {
  %x = poplar.const "x" "x" : !poplar.tensor<8xf32>
}

// -----
// CHECK: the element type changes from f32 to f16
poplar.graph @main target <host> {
  %x = poplar.var "x" : !poplar.tensor<8xf32>
  %y = poplar.reshape %x : !poplar.tensor<8xf32> -> !poplar.tensor<8xf16>
}

// -----
// CHECK: 8x4 with strides (1, 8) cannot be seen as 32; it takes a copy
poplar.graph @main target <host> {
  %x = poplar.var "x" : !poplar.tensor<4x8xf32>
  %t = poplar.dim_shuffle %x [1, 0] : !poplar.tensor<4x8xf32> -> !poplar.tensor<8x4xf32>
  %y = poplar.reshape %t : !poplar.tensor<8x4xf32> -> !poplar.tensor<32xf32>
}

// -----
// CHECK: the result is 8x5, the view 8x4
poplar.graph @main target <host> {
  %x = poplar.var "x" : !poplar.tensor<4x8xf32>
  %t = poplar.dim_shuffle %x [1, 0] : !poplar.tensor<4x8xf32> -> !poplar.tensor<8x5xf32>
}

// -----
// CHECK: [0:9:1] leaves a dimension of 8
poplar.graph @main target <host> {
  %x = poplar.var "x" : !poplar.tensor<8xf32>
  %y = poplar.slice %x[0:9] : !poplar.tensor<8xf32> -> !poplar.tensor<9xf32>
}

// -----
// CHECK: [0:4:0] leaves a dimension of 8
poplar.graph @main target <host> {
  %x = poplar.var "x" : !poplar.tensor<8xf32>
  %y = poplar.slice %x[0:4:0] : !poplar.tensor<8xf32> -> !poplar.tensor<4xf32>
}

// -----
// CHECK: 2 dimensions need as many bounds
poplar.graph @main target <host> {
  %x = poplar.var "x" : !poplar.tensor<8x8xf32>
  %y = poplar.slice %x[0:4] : !poplar.tensor<8x8xf32> -> !poplar.tensor<4x8xf32>
}

// -----
// CHECK: 3 does not stretch to 8
poplar.graph @main target <host> {
  %x = poplar.var "x" : !poplar.tensor<3xf32>
  %y = poplar.broadcast %x : !poplar.tensor<3xf32> -> !poplar.tensor<8xf32>
}

// -----
// CHECK: [1, 1] is not a permutation of 2 dimensions
poplar.graph @main target <host> {
  %x = poplar.var "x" : !poplar.tensor<3x8xf32>
  %y = poplar.dim_shuffle %x [1, 1] : !poplar.tensor<3x8xf32> -> !poplar.tensor<8x8xf32>
}

// -----
// CHECK: the predicate is !poplar.tensor<2xi1>, not one element of i1
poplar.graph @main target <host> {
  %p = poplar.var "p" : !poplar.tensor<2xi1>
  poplar.if %p : !poplar.tensor<2xi1> {} else {}
}

// -----
// CHECK: the predicate is !poplar.tensor<i32>, not one element of i1
poplar.graph @main target <host> {
  %p = poplar.var "p" : !poplar.tensor<i32>
  poplar.while %p : !poplar.tensor<i32> before {} do {}
}

// -----
// CHECK: the control is !poplar.tensor<i1>, not one element of i32 or ui32
poplar.graph @main target <host> {
  %p = poplar.var "p" : !poplar.tensor<i1>
  poplar.switch %p : !poplar.tensor<i1> case 1 {} default {}
}

// -----
// CHECK: 2 cases and a default need 3 programs, not 2
poplar.graph @main target <host> {
  %p = poplar.var "p" : !poplar.tensor<i32>
  "poplar.switch"(%p) <{cases = array<i64: 1, 2>}> ({}, {}) : (!poplar.tensor<i32>) -> ()
}

// -----
// CHECK: a case is named twice
poplar.graph @main target <host> {
  %p = poplar.var "p" : !poplar.tensor<i32>
  poplar.switch %p : !poplar.tensor<i32> case 1 {} case 1 {} default {}
}

// -----
// CHECK: the graph has no function @g
poplar.graph @main target <host> {
  poplar.func @f {}
  poplar.call @g
}

// -----
// CHECK: @f calls itself
poplar.graph @main target <host> {
  poplar.func @f { poplar.call @f }
}

// -----
// CHECK: the destination is a constant, which may not be written
poplar.graph @main target <host> {
  %x = poplar.const "x" dense<1.0> : tensor<8xf32> : !poplar.tensor<8xf32>
  poplar.stream_in "x" to %x : !poplar.tensor<8xf32>
}

// -----
// CHECK: an output is a constant, which may not be written
poplar.graph @main target <host> {
  %x = poplar.const "x" dense<1.0> : tensor<8xf32> : !poplar.tensor<8xf32>
  "poplar.host_call"(%x, %x) <{function = "unique", inputs = 1 : i64}> : (!poplar.tensor<8xf32>, !poplar.tensor<8xf32>) -> ()
}

// -----
// CHECK: 3 inputs among 2 views
poplar.graph @main target <host> {
  %x = poplar.var "x" : !poplar.tensor<8xf32>
  "poplar.host_call"(%x, %x) <{function = "unique", inputs = 3 : i64}> : (!poplar.tensor<8xf32>, !poplar.tensor<8xf32>) -> ()
}

// -----
// CHECK: 'x' stands behind other ops or outside of a function; parameters come first in one
poplar.graph @main target <host> {
  %x = poplar.param in "x" : !poplar.tensor<8xf32>
}

// -----
// CHECK: 'x' stands behind other ops or outside of a function; parameters come first in one
poplar.graph @main target <host> {
  poplar.func @f {
    %v = poplar.var "v" : !poplar.tensor<8xf32>
    %x = poplar.param in "x" : !poplar.tensor<8xf32>
  }
}

// -----
// CHECK: 0 arguments for the 1 parameters of @f
poplar.graph @main target <host> {
  poplar.func @f { %x = poplar.param in "x" : !poplar.tensor<8xf32> }
  poplar.call @f
}

// -----
// CHECK: the argument for 'x' of @f is !poplar.tensor<4xf32>, expected !poplar.tensor<8xf32>
poplar.graph @main target <host> {
  poplar.func @f { %x = poplar.param in "x" : !poplar.tensor<8xf32> }
  %v = poplar.var "v" : !poplar.tensor<4xf32>
  poplar.call @f(%v) : !poplar.tensor<4xf32>
}

// -----
// CHECK: the argument for 'x' of @f is no stretch of its variable's elements in order; it takes a copy
poplar.graph @main target <host> {
  poplar.func @f { %x = poplar.param in "x" : !poplar.tensor<4xf32> }
  %v = poplar.var "v" : !poplar.tensor<8xf32>
  %s = poplar.slice %v[0:8:2] : !poplar.tensor<8xf32> -> !poplar.tensor<4xf32>
  poplar.call @f(%s) : !poplar.tensor<4xf32>
}

// -----
// CHECK: the argument for 'y' of @f is a constant, which may not be written
poplar.graph @main target <host> {
  poplar.func @f { %y = poplar.param out "y" : !poplar.tensor<4xf32> }
  %v = poplar.const "v" dense<1.0> : tensor<4xf32> : !poplar.tensor<4xf32>
  poplar.call @f(%v) : !poplar.tensor<4xf32>
}

// -----
// CHECK: the argument for 'y' of @f is an in parameter, which may not be written
poplar.graph @main target <host> {
  poplar.func @f { %y = poplar.param inout "y" : !poplar.tensor<4xf32> }
  poplar.func @g {
    %x = poplar.param in "x" : !poplar.tensor<4xf32>
    poplar.call @f(%x) : !poplar.tensor<4xf32>
  }
}

// -----
// CHECK: y is an in parameter, which may not be written
poplar.graph @main target <host> {
  poplar.func @f {
    %x = poplar.param in "x" : !poplar.tensor<4xf32>
    poplar.execute "e" { poplar.family @fill {value = 1.0 : f32} for (i = 4) out y = %x[i] : !poplar.tensor<4xf32> }
  }
}

// -----
// CHECK: the argument for 'y', which @f writes, overlaps that for 'x'
poplar.graph @main target <host> {
  poplar.func @f {
    %x = poplar.param in "x" : !poplar.tensor<4xf32>
    %y = poplar.param out "y" : !poplar.tensor<4xf32>
    poplar.copy %x to %y : !poplar.tensor<4xf32>
  }
  %v = poplar.var "v" : !poplar.tensor<6xf32>
  %a = poplar.slice %v[0:4] : !poplar.tensor<6xf32> -> !poplar.tensor<4xf32>
  %b = poplar.slice %v[2:6] : !poplar.tensor<6xf32> -> !poplar.tensor<4xf32>
  poplar.call @f(%a, %b) : !poplar.tensor<4xf32>, !poplar.tensor<4xf32>
}

// -----
// CHECK: @f uses 'v' itself, and gets it for 'x'
poplar.graph @main target <host> {
  %v = poplar.var "v" : !poplar.tensor<4xf32>
  poplar.func @f {
    %x = poplar.param in "x" : !poplar.tensor<4xf32>
    poplar.call @g(%v) : !poplar.tensor<4xf32>
  }
  poplar.func @g { %y = poplar.param out "y" : !poplar.tensor<4xf32> }
  poplar.call @f(%v) : !poplar.tensor<4xf32>
}

// -----
// CHECK: @g calls itself
poplar.graph @main target <host> {
  poplar.func @f { poplar.call @g }
  poplar.func @g { poplar.call @f }
}

// -----
// CHECK: 'y' has 2 copies; a parameter that is written has one
poplar.graph @main target <gc200, tiles = 4> {
  poplar.func @f {
    %y = poplar.param out "y" on [4 in 2] order [2 copies, 0] : !poplar.tensor<4xf32>
  }
}

// -----
// CHECK: it starts at tile 9223372036854775808; expected less than 2147483648
poplar.graph @main target <host> {
  %x = poplar.var "x" on [8 in 2] order [0] start 9223372036854775808 : !poplar.tensor<8xf32>
}
