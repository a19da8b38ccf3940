// RUN: populus-opt %s -p codelet-to-llvm | filecheck %s

// Memrefs become pointers that do not overlap, loops become branches, nothing is fused.

// CHECK: llvm.func @leaky(%x: !llvm.ptr {llvm.noalias}, %y: !llvm.ptr {llvm.noalias}, %end: i64) {
func.func @leaky(%x: memref<?xf32>, %y: memref<?xf32>, %end: index) {
  // CHECK-NEXT: %zero = llvm.mlir.constant(0) : i64
  %zero = arith.constant 0 : index
  // CHECK-NEXT: %one = llvm.mlir.constant(1) : i64
  %one = arith.constant 1 : index
  // CHECK-NEXT: %slope = llvm.mlir.constant(2.500000e-01 : f32) : f32
  %slope = arith.constant 0.25 : f32
  // CHECK: llvm.icmp "slt"
  // CHECK: llvm.cond_br
  scf.for %i = %zero to %end step %one {
    // CHECK: [[PLACE:%[0-9]+]] = llvm.getelementptr inbounds %x[{{.*}}] : (!llvm.ptr, i64) -> !llvm.ptr, f32
    // CHECK-NEXT: %v = llvm.load [[PLACE]] : !llvm.ptr -> f32
    %v = memref.load %x[%i] : memref<?xf32>
    // CHECK-NEXT: %s = llvm.fmul %v, %slope : f32
    %s = arith.mulf %v, %slope : f32
    // CHECK-NEXT: %n = llvm.fcmp "olt" %v, %s : f32
    %n = arith.cmpf olt, %v, %s : f32
    // CHECK-NEXT: %r = llvm.select %n, %s, %v : i1, f32
    %r = arith.select %n, %s, %v : f32
    // CHECK-NEXT: %q = llvm.call_intrinsic "llvm.sqrt.f32"(%r)
    %q = math.sqrt %r : f32
    // CHECK: llvm.store
    memref.store %q, %y[%i] : memref<?xf32>
  }
  // CHECK: llvm.return
  func.return
}
