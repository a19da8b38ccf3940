"""The passes by name, one line each, in the order of the way down; no pass is imported before it is asked for."""

from __future__ import annotations

from collections.abc import Callable

from xdsl.passes import ModulePass

from populus.dialects.table import lazily

PASSES: dict[str, Callable[[], type[ModulePass]]] = {
    "onnx-expose-weights": lazily("populus.lowering.onnx_expose_weights:OnnxExposeWeightsPass"),
    "onnx-training-mode": lazily("populus.lowering.onnx_training_mode:OnnxTrainingModePass"),
    "onnx-infer-shapes": lazily("populus.lowering.onnx_infer_shapes:OnnxInferShapesPass"),
    "onnx-host-calls": lazily("populus.lowering.onnx_host_calls:OnnxHostCallsPass"),
    "onnx-fold-constants": lazily("populus.lowering.onnx_fold_constants:OnnxFoldConstantsPass"),
    "onnx-to-popart": lazily("populus.lowering.onnx_to_popart:OnnxToPopartPass"),
    "popart-cse": lazily("populus.lowering.popart_cse:PopartCsePass"),
    "popart-fuse": lazily("populus.lowering.popart_fuse:PopartFusePass"),
    "popart-seed": lazily("populus.lowering.popart_seed:PopartSeedPass"),
    "popart-loss": lazily("populus.lowering.popart_loss:PopartLossPass"),
    "popart-autodiff": lazily("populus.lowering.popart_autodiff:PopartAutodiffPass"),
    "popart-accumulate": lazily("populus.lowering.popart_accumulate:PopartAccumulatePass"),
    "popart-optimize": lazily("populus.lowering.popart_optimize:PopartOptimizePass"),
    "popart-select-kernels": lazily("populus.lowering.popart_select_kernels:PopartSelectKernelsPass"),
    "popart-outline": lazily("populus.lowering.popart_outline:PopartOutlinePass"),
    "popart-inplace": lazily("populus.lowering.popart_inplace:PopartInplacePass"),
    "popart-to-popops": lazily("populus.lowering.popart_to_popops:PopartToPopopsPass"),
    "popops-fuse": lazily("populus.lowering.popops_fuse:PopopsFusePass"),
    "popops-narrow": lazily("populus.lowering.popops_narrow:PopopsNarrowPass"),
    "poplin-to-poplar": lazily("populus.lowering.poplin_to_poplar:PoplinToPoplarPass"),
    "popnn-to-poplar": lazily("populus.lowering.popnn_to_poplar:PopnnToPoplarPass"),
    "poprand-to-poplar": lazily("populus.lowering.poprand_to_poplar:PoprandToPoplarPass"),
    "popops-to-poplar": lazily("populus.lowering.popops_to_poplar:PopopsToPoplarPass"),
    "poplar-map": lazily("populus.lowering.poplar_map:PoplarMapPass"),
    "poplar-merge": lazily("populus.lowering.poplar_merge:PoplarMergePass"),
    "poplar-offload": lazily("populus.lowering.poplar_offload:PoplarOffloadPass"),
    "poplar-allocate": lazily("populus.lowering.poplar_allocate:PoplarAllocatePass"),
    "poplar-emit": lazily("populus.lowering.poplar_emit:PoplarEmitPass"),
    "codelet-to-llvm": lazily("populus.lowering.codelet_to_llvm:CodeletToLlvmPass"),
}
