// RUN: not populus-opt %s -p codelet-to-llvm 2>&1 | filecheck %s

// CHECK: math.tan has no lowering to llvm; codelets are made of func, arith, math, scf and memref
func.func @f(%x: f32) -> f32 {
  %y = math.tan %x : f32
  func.return %y : f32
}
