// RUN: populus-opt %s -p codelet-to-llvm | filecheck %s

// Variables in memory, two dimensions, blocks, quotients that round down, and functions of C's library.

// CHECK: llvm.func @sinf(f32) -> f32
// CHECK: llvm.func @blocks(%x: !llvm.ptr {llvm.noalias}, %i: i64, %n: i64) -> i64 {
func.func @blocks(%x: memref<4x5xf32>, %i: index, %n: index) -> i64 {
  // CHECK: [[CELL:%[a-z0-9]+]] = llvm.alloca %{{[a-z0-9]+}} x i64
  %cell = memref.alloca() : memref<index>
  // CHECK: llvm.store %i, [[CELL]]
  memref.store %i, %cell[] : memref<index>
  // CHECK: [[Q:%[0-9]+]] = llvm.sdiv %i, %n : i64
  // CHECK: llvm.srem %i, %n : i64
  // CHECK: llvm.sub [[Q]]
  %q = arith.floordivsi %i, %n : index
  %good = arith.cmpi ult, %q, %n : index
  // CHECK: llvm.cond_br
  cf.cond_br %good, ^inside, ^outside
^inside:
  // CHECK: [[FIVE:%[0-9]+]] = llvm.mlir.constant(5) : i64
  // CHECK-NEXT: llvm.mul %q, [[FIVE]] : i64
  %v = memref.load %x[%q, %i] : memref<4x5xf32>
  // CHECK: llvm.call @sinf
  %s = math.sin %v : f32
  // CHECK: llvm.call_intrinsic "llvm.fptosi.sat.i64.f32"
  %w = arith.fptosi %s : f32 to i64
  func.return %w : i64
^outside:
  %one = arith.constant 1 : i64
  func.return %one : i64
}
