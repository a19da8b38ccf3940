"""The modules that popxl_addons compiles from C++, by name, with their classes: ops and their parameters."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from hashlib import sha256
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

from populus.dialects.support.diagnostics import PopulusError
from populus.popxl.addons import collectives, layers
from populus.popxl.internals.op import Op
from populus.popxl.internals.views import GraphView
from populus.popxl.replica_grouping import ReplicaGrouping


def _class(function: Callable[..., Any]) -> SimpleNamespace:
    """Gives the class of an op: its members make one in a graph, from the names of its inputs."""

    def made(graph: GraphView, inputs: Mapping[int, str], outputs: Mapping[int, str], *args: Any, settings: Any = None, **named: Any) -> Op:
        tensors = [graph.graph.get_tensor(inputs[k]) for k in sorted(inputs)]
        ir = graph.graph.ir
        values = [ReplicaGrouping.of_stride(ir, a.stride, a.size) if hasattr(a, "groups") else a for a in args]
        options = {k: ReplicaGrouping.of_stride(ir, a.stride, a.size) if hasattr(a, "groups") else a for k, a in named.items()}
        function(*tensors, *values, **options)
        return graph.graph.recorded[-1]

    def with_settings(graph: GraphView, inputs: Mapping[int, str], outputs: Mapping[int, str], *args: Any, **named: Any) -> Op:
        return made(graph, inputs, outputs, *(args if "settings" in named else args[:-1]), **named)

    return SimpleNamespace(createOpInGraph=with_settings, create_op_in_graph=with_settings)


def _of_chips(*values: Any) -> Any:
    return collectives.cross_entropy_of_chips(*values[:-1], ipus=values[-1])


STRIDED = "replicated_strided_collectives"
# folder and module of popxl_addons.ops -> its classes
BINDINGS: dict[str, dict[str, Any]] = {
    "rotary_pos_embed.rotary_pos_embed_binding": {"RotaryPosEmbedOp": _class(layers.rotary_pos_embed)},
    "grad_reduce_square_add.grad_reduce_square_add_binding": {"GradReduceSquareAddOp": _class(layers.grad_reduce_square_add)},
    "group_quantize_decompress.group_quantize_decompress_binding": {"GroupQuantizeDecompressOp": _class(layers.group_quantize_decompress)},
    "cross_entropy_sharded_loss.crossentropysharded_binding": {"CrossEntropyShardedOp": _class(collectives.cross_entropy_sharded)},
    "cross_entropy_sharded_wr_loss.crossentropysharded_wr_binding": {"CrossEntropyShardedOp": _class(_of_chips)},
    "replicated_all_reduce_TP.replicated_all_reduce_TP_binding": {"ReplicatedAllReduceTPOp": _class(collectives.all_reduce_of_group)},
    "layer_norm_distributed.layer_norm_distributed_binding": {"LayerNormDistributedOp": _class(collectives.layer_norm_distributed)},
    f"{STRIDED}.replicated_all_reduce_strided_binding": {"ReplicatedAllReduceStridedOp": _class(collectives.all_reduce_strided)},
    f"{STRIDED}.replicated_all_gather_strided_binding": {"ReplicatedAllGatherStridedOp": _class(collectives.all_gather_strided)},
    f"{STRIDED}.replicated_reduce_scatter_strided_binding": {
        "ReplicatedReduceScatterStridedOp": _class(collectives.reduce_scatter_strided)
    },
    "linear_layout.linear_layout_impl": {
        "LinearLayoutOp": _class(layers.linear_layout),
        "LinearLayoutParams": layers.LinearLayoutParams,
    },
    "static_sparse_ops.dense_sparse_matmul_impl": {
        "DenseSparseMatMulOp": _class(layers.dense_sparse_matmul),
        "DenseSparseMatMulParams": layers.DenseSparseMatMulParams,
    },
    "fp8_mse_scale.fp8_mse_scale_impl": {
        "Fp8FindBestScaleOp": _class(layers.fp8_scale),
        "Fp8ScalingBiasParams": layers.Fp8ScalingBiasParams,
    },
}
# SHA-256 of a file of C++ in a program's own folder -> the classes of its module: names alone do not tell what an op computes.
BY_TEXT: dict[str, dict[str, Any]] = {
    "0e76076819639a4aaf89a7fd009ca79f8a387bbdd0e30fd7e22a27ceee454ac9": {"RotaryPosEmbedOp": _class(layers.rotary_halves)},
}


def binding(name: str) -> ModuleType:
    """Makes the module of a name in `BINDINGS`."""
    made = ModuleType(name.rpartition(".")[2])
    made.__dict__.update(BINDINGS[name])
    return made


def binding_of_text(name: str, folder: Path) -> ModuleType | None:
    """Makes the module of a program's own C++, None where it is none that cppimport would compile.

    Raises PopulusError for C++ that is not in `BY_TEXT`.
    """
    file = folder / f"{name.rpartition('.')[2]}.cpp"
    if not file.is_file() or "cppimport" not in file.read_text(errors="replace").partition("\n")[0]:
        return None
    texts = [sha256(f.read_bytes()).hexdigest() for f in sorted(folder.glob("*.cpp"))]
    if (known := next((BY_TEXT[t] for t in texts if t in BY_TEXT), None)) is None:
        raise PopulusError(f"{name} is compiled C++, which does not run here; write what {file.name} computes with functions of popxl.ops")
    made = ModuleType(file.stem)
    made.__dict__.update(known)
    return made
