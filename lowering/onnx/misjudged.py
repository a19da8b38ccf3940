"""Ops whose result types ONNX's inference does not know, or gets wrong.

Their types are those of the ops that they are converted to.
"""

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
    """Tells whether a BatchNormalization trains: by its attribute, or before opset 14 by more outputs than y."""
    if op.VERSION >= 14:
        return bool(op.property("training_mode"))
    return any(op.output(i) is not None for i in range(1, len(op.outputs)))


def misjudged(op: OnnxOp, known: Known) -> bool:
    """Tells whether ONNX's inference is wrong about an op. `known`: gives the value of an operand, or None."""
    rule = None if op.DOMAIN else _MISJUDGED.get(op.OP_TYPE)
    if rule is None:
        return False
    types = [as_tensor(v.type) for v in op.operands]
    if any(t is None or t.element_type == string or not is_static(t) for t in types):
        return False
    return rule(op, known)


def _has_scales(op: OnnxOp, known: Known) -> bool:
    """Tells whether a Resize has scales. ONNX multiplies sizes by scales in f64, onnxruntime in f32."""
    i = 1 if op.VERSION == 10 or op.OP_TYPE == "Upsample" else 2
    scales = op.inputs[i] if i < len(op.inputs) else None
    factors = None if scales is None else known(scales)
    return op.property("scales") is not None or (factors is not None and factors.size > 0)


def _hangs_over(op: OnnxOp, known: Known) -> bool:
    """Tells whether a pool uses ceil_mode. Before opset 22, ONNX counts windows that start in the end padding."""
    return op.VERSION < 22 and bool(op.property("ceil_mode"))


def _states_its_size(op: OnnxOp, known: Known) -> bool:
    """Tells whether a ConvTranspose states the size of its result.

    SAME means the size of x times the stride; ONNX adds the output padding. ONNX reads `output_shape` as no dimensions.
    """
    same = str(op.property("auto_pad")).startswith("SAME")
    return bool(op.property("output_shape")) or (same and any(op.property("output_padding") or ()))


def _picked(op: OnnxOp, known: Known) -> bool:
    """Tells whether the last input, which selects elements, is known; ONNX does not read it."""
    chosen = op.inputs[-1]
    return len(op.inputs) == _PICKED[op.OP_TYPE] and chosen is not None and known(chosen) is not None


_PICKED = {"Compress": 2, "MaxUnpool": 3}  # number of inputs with the selecting one


def _before(version: int) -> Callable[[OnnxOp, Known], bool]:
    """Makes the rule of an op whose inference ONNX lacks, or has with gaps, in versions before this one."""
    return lambda op, known: op.VERSION < version


def _unknown_direction(op: OnnxOp, known: Known) -> bool:
    """Tells whether a recurrent op is older than opset 7, or has a direction that ONNX's inference leaves open."""
    return op.VERSION < 7 or (op.property("direction") or "forward") not in ("forward", "reverse", "bidirectional")


_MISJUDGED: Mapping[str, Callable[[OnnxOp, Known], bool]] = {
    "AveragePool": _hangs_over,
    "BatchNormalization": lambda op, known: op.VERSION < 14 and trains(op),  # ONNX gives no types to the outputs after y
    "Compress": _picked,
    "Concat": _before(4),
    "ConvTranspose": _states_its_size,
    "Dropout": _before(10),
    "GRU": _unknown_direction,
    "LSTM": _unknown_direction,
    "LpPool": lambda op, known: op.VERSION < 2 or _hangs_over(op, known),
    "MaxPool": _hangs_over,
    "MaxUnpool": _picked,
    "Pad": _before(2),
    "RNN": _unknown_direction,
    "Reshape": _before(5),
    "Resize": _has_scales,
    "Slice": _before(10),
    "Split": _before(2),
    "Squeeze": lambda op, known: op.VERSION < 11 and bool(op.property("axes")),  # ONNX drops other dimensions if axes are unsorted
    "Tile": _before(6),
    "Upsample": _has_scales,
}
