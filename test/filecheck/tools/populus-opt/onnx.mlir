// RUN: populus-opt %onnx_data/light/light_squeezenet.onnx -p onnx-infer-shapes,onnx-fold-constants,onnx-to-popart --print-debuginfo | filecheck %s
// A model is read as well as a text, by the end of its name; ops keep the names of its nodes, and the function those of its inputs and outputs.

// CHECK: func.func @main(%data: tensor<1x3x224x224xf32> loc("data_0")) -> tensor<1x1000x1x1xf32>
// CHECK-SAME: input_names = ["data_0"], output_names = ["softmaxout_1"]
// CHECK: popart.conv {{.*}} -> tensor<1x64x111x111xf32> loc("{{.+}}")
// CHECK-NOT: onnx.
// CHECK: func.return

// RUN: populus-opt --pipeline inference-plain --print-pipeline | filecheck %s --check-prefix PIPELINE
// PIPELINE:      onnx-infer-shapes
// PIPELINE-NOT:  popops-fuse
// PIPELINE:      poplar-allocate
