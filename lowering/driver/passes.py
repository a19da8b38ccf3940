"""Pass table: one line for each pass, in pipeline order. A pass is imported on first use."""

from __future__ import annotations

from collections.abc import Callable

from xdsl.passes import ModulePass

from populus.dialects.table import lazily

PASSES: dict[str, Callable[[], type[ModulePass]]] = {
    "onnx-expose-weights": lazily("populus.lowering.onnx.expose_weights:OnnxExposeWeightsPass"),
    "onnx-training-mode": lazily("populus.lowering.onnx.training_mode:OnnxTrainingModePass"),
    "onnx-infer-shapes": lazily("populus.lowering.onnx.infer_shapes:OnnxInferShapesPass"),
    "onnx-host-calls": lazily("populus.lowering.onnx.host_calls:OnnxHostCallsPass"),
    "onnx-fold-constants": lazily("populus.lowering.onnx.fold_constants:OnnxFoldConstantsPass"),
    "onnx-to-popart": lazily("populus.lowering.onnx.to_popart:OnnxToPopartPass"),
    "stablehlo-to-popart": lazily("populus.lowering.stablehlo.to_popart:StablehloToPopartPass"),
    "popart-cse": lazily("populus.lowering.popart.cse:PopartCsePass"),
    "popart-tensor-parallel": lazily("populus.lowering.popart.tensor_parallel:PopartTensorParallelPass"),
    "popart-stage": lazily("populus.lowering.popart.stage:PopartStagePass"),
    "popart-fuse": lazily("populus.lowering.popart.fuse:PopartFusePass"),
    "popart-synchronise": lazily("populus.lowering.popart.synchronise:PopartSynchronisePass"),
    "popart-seed": lazily("populus.lowering.popart.seed:PopartSeedPass"),
    "popart-loss": lazily("populus.lowering.popart.loss:PopartLossPass"),
    "popart-autodiff": lazily("populus.lowering.popart.autodiff:PopartAutodiffPass"),
    "popart-pipeline": lazily("populus.lowering.popart.pipeline:PopartPipelinePass"),
    "popart-accumulate": lazily("populus.lowering.popart.accumulate:PopartAccumulatePass"),
    "popart-replicate": lazily("populus.lowering.popart.replicate:PopartReplicatePass"),
    "popart-optimize": lazily("populus.lowering.popart.optimize:PopartOptimizePass"),
    "popart-shard": lazily("populus.lowering.popart.shard:PopartShardPass"),
    "popart-bucket": lazily("populus.lowering.popart.bucket:PopartBucketPass"),
    "popart-recompute": lazily("populus.lowering.popart.recompute:PopartRecomputePass"),
    "popart-encode": lazily("populus.lowering.popart.encode:PopartEncodePass"),
    "popart-outline": lazily("populus.lowering.popart.outline:PopartOutlinePass"),
    "popart-inplace": lazily("populus.lowering.popart.inplace:PopartInplacePass"),
    "popart-to-popops": lazily("populus.lowering.popart.to_popops:PopartToPopopsPass"),
    "popops-widen": lazily("populus.lowering.popops.widen:PopopsWidenPass"),
    "popops-fuse": lazily("populus.lowering.popops.fuse:PopopsFusePass"),
    "popops-narrow": lazily("populus.lowering.popops.narrow:PopopsNarrowPass"),
    "poplin-to-poplar": lazily("populus.lowering.poplar.from_poplin:PoplinToPoplarPass"),
    "popnn-to-poplar": lazily("populus.lowering.poplar.from_popnn:PopnnToPoplarPass"),
    "poprand-to-poplar": lazily("populus.lowering.poplar.from_poprand:PoprandToPoplarPass"),
    "gcl-to-poplar": lazily("populus.lowering.poplar.from_gcl:GclToPoplarPass"),
    "popops-to-poplar": lazily("populus.lowering.poplar.from_popops:PopopsToPoplarPass"),
    "poplar-map": lazily("populus.lowering.poplar.map:PoplarMapPass"),
    "poplar-merge": lazily("populus.lowering.poplar.merge:PoplarMergePass"),
    "poplar-offload": lazily("populus.lowering.poplar.offload:PoplarOffloadPass"),
    "poplar-fuse": lazily("populus.lowering.poplar.fuse:PoplarFusePass"),
    "poplar-allocate": lazily("populus.lowering.poplar.allocate:PoplarAllocatePass"),
    "poplar-declare": lazily("populus.lowering.poplar.declare:PoplarDeclarePass"),
    "poplar-emit": lazily("populus.lowering.poplar.emit:PoplarEmitPass"),
    "codelet-to-llvm": lazily("populus.lowering.poplar.to_llvm:CodeletToLlvmPass"),
}
