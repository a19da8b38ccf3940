// RUN: populus-opt %s | populus-opt | filecheck %s

// A large constant is named by the hash of its content.
func.func @main() {
  // CHECK: %k = data.constant dense<[1.500000e+00, -0.000000e+00]> : tensor<2xf32>
  %k = data.constant dense<[1.500000e+00, -0.000000e+00]> : tensor<2xf32>
  // CHECK-NEXT: %b = data.constant dense<[true, false]> : tensor<2xi1>
  %b = data.constant dense<[true, false]> : tensor<2xi1>
  // CHECK-NEXT: %u = data.constant dense<255> : tensor<3xui8>
  %u = data.constant dense<255> : tensor<3xui8>
  // Infinity and not a number, by their bytes.
  // CHECK-NEXT: %inf = data.constant dense<"0x0000807F0000C07F"> : tensor<2xf32>
  %inf = data.constant dense<"0x0000807F0000C07F"> : tensor<2xf32>
  // CHECK-NEXT: %w = data.constant #data.stored<"0123456789abcdef"> : tensor<64x3x7x7xf32>
  %w = data.constant #data.stored<"0123456789abcdef"> : tensor<64x3x7x7xf32>
  func.return
}
