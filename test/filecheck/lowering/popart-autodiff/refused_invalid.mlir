// RUN: not populus-opt %s -p 'popart-autodiff{wrt=n}' 2>&1 | filecheck %s --check-prefix=INTEGER
// RUN: not populus-opt %s -p 'popart-autodiff{wrt=z}' 2>&1 | filecheck %s --check-prefix=UNKNOWN
// RUN: not populus-opt %s -p 'popart-autodiff{wrt=x loss=y}' 2>&1 | filecheck %s --check-prefix=SCALAR
// RUN: not populus-opt %s -p 'popart-autodiff{wrt=x loss=l}' 2>&1 | filecheck %s --check-prefix=OUTPUT
// RUN: not populus-opt %s -p 'popart-autodiff{wrt=x}' 2>&1 | filecheck %s --check-prefix=PATH
// RUN: not populus-opt %s -p popart-autodiff 2>&1 | filecheck %s --check-prefix=NOTHING

// INTEGER: 'n' is tensor<2xi32>; only floats have gradients, so leave it out of wrt
// UNKNOWN: there is no input or weight 'z'; there are n, x
// SCALAR: the loss 'y' is tensor<2xf32>, of 2 elements; one is expected
// OUTPUT: there is no output 'l'
// PATH: 'deep': popnn.pool has no gradient; the path to it is 'y' <- 'high' <- 'flat' <- 'deep'
// NOTHING: wrt names what to differentiate with respect to, and is empty
func.func @main(%x: tensor<2xf32>, %n: tensor<2xi32>) -> tensor<2xf32> attributes {input_names = ["x", "n"], output_names = ["y"]} {
  %r = popart.reshape %x {shape = array<i64: 1, 1, 2>} : (tensor<2xf32>) -> tensor<1x1x2xf32>
  %p = popnn.pool %r {kind = "square_sum", kernel = array<i64: 1>, strides = array<i64: 1>, pads = array<i64: 0, 0>, dilations = array<i64: 1>} : (tensor<1x1x2xf32>) -> tensor<1x1x2xf32> loc("deep")
  %a = popart.reshape %p {shape = array<i64: 2>} : (tensor<1x1x2xf32>) -> tensor<2xf32> loc("flat")
  %y = popart.sin %a : tensor<2xf32> loc("high")
  func.return %y : tensor<2xf32>
}
