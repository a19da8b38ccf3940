// RUN: not populus-opt %s -p codelet-to-llvm 2>&1 | filecheck %s

// CHECK: math.ctpop has no lowering to llvm; codelets are made of func, arith, math, scf, cf and memref
func.func @f(%x: i32) -> i32 {
  %y = math.ctpop %x : i32
  func.return %y : i32
}
