// RUN: populus-opt %s --verify-diagnostics --split-input-file | filecheck %s

func.func @main(%c: tensor<i1>, %x: tensor<3xf32>, %z: tensor<2xf32>) -> tensor<3xf32> {
  %y = popart.if %c then {
    popart.yield %x : tensor<3xf32>
  } else {
    popart.yield %z : tensor<2xf32>
  } : tensor<i1> -> tensor<3xf32>
  func.return %y : tensor<3xf32>
}

// CHECK: the branches give tensor<3xf32> and tensor<2xf32>; they have to agree

// -----

func.func @main(%x: tensor<3xf32>) -> tensor<3xf32> {
  %y = popart.loop(%x) {trips = 5 : i64} : (tensor<3xf32>) -> tensor<3xf32> do {
  ^bb0(%i: tensor<i64>, %a: tensor<3xf32>):
    popart.yield %a : tensor<3xf32>
  }
  func.return %y : tensor<3xf32>
}

// CHECK: the region takes tensor<i64>, tensor<3xf32>; the operands give tensor<i32>, tensor<3xf32>

// -----

func.func @main(%x: tensor<3xf32>) -> tensor<3xf32> {
  %y = popart.loop(%x) {trips = 5 : i64} : (tensor<3xf32>) -> tensor<3xf32> do {
  ^bb0(%i: tensor<i32>, %a: tensor<3xf32>):
    popart.yield %i : tensor<i32>
  }
  func.return %y : tensor<3xf32>
}

// CHECK: the region gives tensor<i32>; tensor<3xf32> has to come first

// -----

func.func @main(%x: tensor<3xf32>) -> tensor<3xf32> {
  %y = popart.loop(%x) : (tensor<3xf32>) -> tensor<3xf32> do {
  ^bb0(%i: tensor<i32>, %a: tensor<3xf32>):
    popart.yield %a : tensor<3xf32>
  }
  func.return %y : tensor<3xf32>
}

// CHECK: `trips` may be left open only by a conditional loop that scans and collects nothing

// -----

func.func @main(%x: tensor<3xf32>) -> tensor<3xf32> {
  %y = popart.loop(%x) {trips = 2 : i64, scanned = 1 : i64} : (tensor<3xf32>) -> tensor<3xf32> do {
  ^bb0(%i: tensor<i32>, %a: tensor<f32>):
    popart.yield
  }
  func.return %y : tensor<3xf32>
}

// CHECK: a scanned operand is tensor<3xf32>, of which 2 iterations take a row each
