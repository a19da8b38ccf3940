"""Ops of ONNX whose result types ONNX's own inference does not know or gets wrong: those of what they become are theirs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

from xdsl.ir import SSAValue

from populus.dialects.onnx.schema import OnnxOp
from populus.dialects.onnx.types import as_tensor, is_static, string

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
    types = [as_tensor(v.type) for v in op.operands]
    if rule is None or any(t is None or t.element_type == string or not is_static(t) for t in types):
        return False
    return rule(op, known)


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


def _picked(op: OnnxOp, known: Known) -> bool:
    """ONNX does not look at what is picked, where that is known."""
    chosen = op.inputs[-1]
    return len(op.inputs) == _PICKED[op.OP_TYPE] and chosen is not None and known(chosen) is not None


_PICKED = {"Compress": 2, "MaxUnpool": 3}  # how many inputs the op has then


def _before(version: int) -> Callable[[OnnxOp, Known], bool]:
    """Of ops for which ONNX has no inference in versions before this one, or one with gaps."""
    return lambda op, known: op.VERSION < version


_MISJUDGED: Mapping[str, Callable[[OnnxOp, Known], bool]] = {
    "AveragePool": _hangs_over,
    "BatchNormalization": lambda op, known: op.VERSION < 14 and trains(op),  # ONNX has no type for the outputs besides y
    "Compress": _picked,
    "Concat": _before(4),
    "ConvTranspose": _states_its_size,
    "Dropout": _before(10),
    "GRU": _before(7),
    "LSTM": _before(7),
    "LpPool": lambda op, known: op.VERSION < 2 or _hangs_over(op, known),
    "MaxPool": _hangs_over,
    "MaxUnpool": _picked,
    "Pad": _before(2),
    "RNN": _before(7),
    "Reshape": _before(5),
    "Resize": _has_scales,
    "Slice": _before(10),
    "Split": _before(2),
    "Squeeze": lambda op, known: op.VERSION < 11 and bool(op.property("axes")),  # of unsorted axes ONNX drops others
    "Tile": _before(6),
    "Upsample": _has_scales,
}
