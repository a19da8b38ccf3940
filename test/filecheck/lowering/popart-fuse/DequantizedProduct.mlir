// RUN: populus-opt %s -p "popart-fuse{patterns=DequantizedProduct,FoldConstants,FoldDequantized}" --split-input-file | filecheck %s
// RUN: populus-opt %s -p "popart-fuse{without=DequantizedProduct}" --split-input-file | filecheck %s --check-prefix OFF

// The product is of the integers; the zero point of the left-hand side is a term for each column.
func.func @main(%x : tensor<4x3xui8>) -> tensor<4x2xf32> {
  %s = data.constant dense<0.5> : tensor<f32>
  %z = data.constant dense<10> : tensor<ui8>
  %w = data.constant dense<[[1, 2], [3, 4], [5, 6]]> : tensor<3x2xi8>
  %t = data.constant dense<[0.5, 0.25]> : tensor<2xf32>
  %o = data.constant dense<0> : tensor<i8>
  %a = popart.dequantize %x, %s, %z : (tensor<4x3xui8>, tensor<f32>, tensor<ui8>) -> tensor<4x3xf32>
  %b = popart.dequantize %w, %t, %o : (tensor<3x2xi8>, tensor<2xf32>, tensor<i8>) -> tensor<3x2xf32>
  %y = popart.matmul %a, %b : (tensor<4x3xf32>, tensor<3x2xf32>) -> tensor<4x2xf32>
  func.return %y : tensor<4x2xf32>
}

// CHECK-DAG:  data.constant dense<{{\[}}[90, 120]]> : tensor<1x2xi32>
// CHECK-DAG:  data.constant dense<[2.500000e-01, 1.250000e-01]> : tensor<2xf32>
// CHECK-DAG:  popart.integer_matmul %x, %w
// CHECK:      popart.sub
// CHECK:      popart.cast
// CHECK-NEXT: popart.mul
// OFF:        data.constant dense<{{.*}}> : tensor<3x2xf32>
// OFF:        popart.matmul

// -----

// Weights alone are dequantized once, when the program is made.
func.func @main(%a : tensor<4x3xf32>) -> tensor<4x2xf32> {
  %w = data.constant dense<[[1, 2], [3, 4], [5, 6]]> : tensor<3x2xi8>
  %t = data.constant dense<[0.5, 0.25]> : tensor<2xf32>
  %o = data.constant dense<0> : tensor<i8>
  %b = popart.dequantize %w, %t, %o : (tensor<3x2xi8>, tensor<2xf32>, tensor<i8>) -> tensor<3x2xf32>
  %y = popart.matmul %a, %b : (tensor<4x3xf32>, tensor<3x2xf32>) -> tensor<4x2xf32>
  func.return %y : tensor<4x2xf32>
}

// CHECK:      data.constant dense<{{\[}}[5.000000e-01, 5.000000e-01], [1.500000e+00, 1.000000e+00], [2.500000e+00, 1.500000e+00]]>
// CHECK-NEXT: popart.matmul
