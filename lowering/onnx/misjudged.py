"""Ops of ONNX whose result types ONNX's own inference does not know or gets wrong: those of what they become are theirs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

from xdsl.ir import SSAValue

from populus.dialects.onnx.schema import OnnxOp

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Known: TypeAlias = Callable[[SSAValue], NDArray[Any] | None]


def trains(op: OnnxOp) -> bool:
    """Whether a BatchNormalization normalises by its batch; before opset 14 it does if it has more outputs than y."""
    if op.VERSION >= 14:
        return bool(op.property("training_mode"))
    return any(op.output(i) is not None for i in range(1, len(op.outputs)))


def misjudged(op: OnnxOp, known: Known) -> bool:
    """Whether ONNX's inference is not to be asked about an op. `known`: the values of operands, if any."""
    rule = None if op.DOMAIN else _MISJUDGED.get(op.OP_TYPE)
    return rule is not None and rule(op, known)


def _has_scales(op: OnnxOp, known: Known) -> bool:
    """Then ONNX multiplies sizes and scales in f64, onnxruntime in f32."""
    i = 1 if op.VERSION == 10 or op.OP_TYPE == "Upsample" else 2
    scales = op.inputs[i] if i < len(op.inputs) else None
    given = None if scales is None else known(scales)
    return op.property("scales") is not None or (given is not None and given.size > 0)


def _hangs_over(op: OnnxOp, known: Known) -> bool:
    """Before opset 22 ONNX counts windows too that start in the padding behind."""
    return op.VERSION < 22 and bool(op.property("ceil_mode"))


def _states_its_size(op: OnnxOp, known: Known) -> bool:
    """SAME means a result of x's size times the stride; ONNX adds the output padding to that. `output_shape` it takes for no dimensions."""
    same = str(op.property("auto_pad")).startswith("SAME")
    return bool(op.property("output_shape")) or (same and any(op.property("output_padding") or ()))


_MISJUDGED: Mapping[str, Callable[[OnnxOp, Known], bool]] = {
    "AveragePool": _hangs_over,
    "BatchNormalization": lambda op, known: op.VERSION < 14 and trains(op),  # ONNX has no type for the outputs besides y
    "ConvTranspose": _states_its_size,
    "LpPool": _hangs_over,
    "MaxPool": _hangs_over,
    "Resize": _has_scales,
    "Squeeze": lambda op, known: op.VERSION < 11 and bool(op.property("axes")),  # of unsorted axes ONNX drops others
    "Upsample": _has_scales,
}
