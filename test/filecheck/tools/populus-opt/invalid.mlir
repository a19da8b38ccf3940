// What is wrong with a command or a file is one line that names the place, and the nearest that would have been right.

// RUN: not populus-opt %s -p popops-fuze 2>&1 | filecheck %s --check-prefix PASS
// PASS: populus-opt: -p: no pass 'popops-fuze'; did you mean 'popops-fuse'?
// PASS-NOT: Traceback

// RUN: not populus-opt %s -p cse{fast=true} 2>&1 | filecheck %s --check-prefix OPTION
// OPTION: populus-opt: -p: cse has no option 'fast'; there are none

// RUN: not populus-opt %s -p 2>&1 | filecheck %s --check-prefix ARGUMENT
// ARGUMENT: populus-opt: argument -p/--passes: expected one argument (--help lists the options)

// RUN: not populus-opt %S/absent.mlir 2>&1 | filecheck %s --check-prefix ABSENT
// ABSENT: absent.mlir: no such file

// RUN: not populus-opt %s 2>&1 | filecheck %s --check-prefix TEXT
// TEXT: invalid.mlir:[[# @LINE + 2]]:3: there is no op 'popops.mup'; did you mean 'popops.map'?
func.func @main() {
  popops.mup
  func.return
}
