// RUN: populus-opt %s | populus-opt | filecheck %s

// Expectations stay where they are put: nothing reads them, and no pass drops them.
func.func @main(%x: tensor<2xf32>, %n: tensor<i32>) {
  // CHECK: check.close %x, dense<[1.500000e+00, 2.000000e+00]> : tensor<2xf32>
  check.close %x, dense<[1.500000e+00, 2.000000e+00]> : tensor<2xf32>
  // CHECK-NEXT: check.close %x, dense<1.000000e+00> : tensor<2xf32> {rtol = 2.500000e-01 : f64}
  check.close %x, dense<1.000000e+00> : tensor<2xf32> {rtol = 2.500000e-01 : f64}
  // CHECK-NEXT: check.close %n, dense<3> : tensor<i32> {rtol = 0.000000e+00 : f64, atol = 0.000000e+00 : f64}
  check.close %n, dense<3> : tensor<i32> {rtol = 0.000000e+00 : f64, atol = 0.000000e+00 : f64}
  // Not a number, and infinity, by their bytes.
  // CHECK-NEXT: check.close %x, dense<"0x0000C07F0000807F"> : tensor<2xf32>
  check.close %x, dense<"0x0000C07F0000807F"> : tensor<2xf32>
  // CHECK-NEXT: check.close %x, #data.stored<"0123456789abcdef"> : tensor<2xf32>
  check.close %x, #data.stored<"0123456789abcdef"> : tensor<2xf32>
  func.return
}
