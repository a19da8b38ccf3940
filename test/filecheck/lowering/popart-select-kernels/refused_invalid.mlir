// RUN: not populus-opt %s --load %S/blocked.py -p 'popart-select-kernels{force="relu:block"}' 2>&1 | filecheck %s --check-prefix=NAME
// RUN: not populus-opt %s --load %S/blocked.py -p 'popart-select-kernels{force="relu:blocked"}' 2>&1 | filecheck %s --check-prefix=RANK
// RUN: not populus-opt %s --load %S/blocked.py -p 'popart-select-kernels{force="relu"}' 2>&1 | filecheck %s --check-prefix=FORM

// NAME: popart.relu has no kernel 'block' to be forced; did you mean 'blocked'?
// RANK: no kernel computes popart.relu: blocked: operand 0 has 1 dimensions; 4 are expected; own: blocked is forced
// FORM: force = 'relu'; expected OP:KERNEL, such as conv:direct
func.func @main(%x: tensor<3xf32>) -> tensor<3xf32> {
  %y = popart.relu %x : tensor<3xf32>
  func.return %y : tensor<3xf32>
}
