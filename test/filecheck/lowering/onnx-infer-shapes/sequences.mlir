// RUN: populus-opt %s -p onnx-infer-shapes | filecheck %s

// A sequence exists while compiling only.
// CHECK-LABEL: @known
// CHECK-NEXT: %one = data.constant
// CHECK-NEXT: func.return %b : tensor<3xf32>
func.func @known(%a: tensor<2xf32>, %b: tensor<3xf32>) -> !onnx.unknown {
  %one = data.constant dense<1> : tensor<i64>
  %s = onnx.SequenceConstruct_11(%a, %b) : (tensor<2xf32>, tensor<3xf32>) -> !onnx.unknown
  %y = onnx.SequenceAt_11(%s, %one) : (!onnx.unknown, tensor<i64>) -> !onnx.unknown
  func.return %y : !onnx.unknown
}

// A position that the running model decides selects among elements of one type.
// CHECK-LABEL: @chosen
// CHECK-NOT: Sequence
// CHECK: onnx.Where_16
// CHECK-NOT: Sequence
func.func @chosen(%a: tensor<2xf32>, %b: tensor<2xf32>, %i: tensor<i64>) -> !onnx.unknown {
  %s = onnx.SequenceConstruct_11(%a, %b) : (tensor<2xf32>, tensor<2xf32>) -> !onnx.unknown
  %y = onnx.SequenceAt_11(%s, %i) : (!onnx.unknown, tensor<i64>) -> !onnx.unknown
  func.return %y : !onnx.unknown
}

// A loop of known length is its body that often.
// CHECK-LABEL: @loop
// CHECK: [[FIRST:%.*]] = onnx.Add_14(%x, %x)
// CHECK: [[SECOND:%.*]] = onnx.Add_14([[FIRST]], %x)
// CHECK-NEXT: func.return [[SECOND]]
func.func @loop(%x: tensor<2xf32>) -> !onnx.unknown {
  %two = data.constant dense<2> : tensor<i64>
  %y = onnx.Loop_16(%two, none, %x) ({
  ^bb0(%i: tensor<i64>, %go: tensor<i1>, %sum: tensor<2xf32>):
    %next = onnx.Add_14(%sum, %x) : (tensor<2xf32>, tensor<2xf32>) -> !onnx.unknown
    onnx.yield %go, %next : tensor<i1>, !onnx.unknown
  }) : (tensor<i64>, none, tensor<2xf32>) -> !onnx.unknown
  func.return %y : !onnx.unknown
}
