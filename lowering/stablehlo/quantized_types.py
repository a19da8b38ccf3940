"""Quantized types of a text as encodings of tensors, which both xDSL and jaxlib read: neither has MLIR's dialect `quant`.

`tensor<4x!quant.uniform<i8:f32, 0.5:-1>>` becomes `tensor<4xf32, "quant.uniform<i8:f32, 0.5:-1>">`. The ops between elements of
two kinds become calls of their names, for jaxlib would check them as ops of floats.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from xdsl.dialects.builtin import StringAttr, TensorType
from xdsl.ir import Attribute

from populus.dialects.support.diagnostics import PopulusError
from populus.dialects.support.element_types import dtype_of, element_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

PREFIX = "stablehlo."
BETWEEN = ("uniform_quantize", "uniform_dequantize", "bitcast_convert")
_TYPE = re.compile(r"(tensor<(?:[\d?]+x)*)!quant\.(uniform<[iu]\d+(?:<[^<>]*>)?:(\w+)[^<>]*>)")
_OPS = "|".join(BETWEEN)
_PRETTY = re.compile(rf"\bstablehlo\.({_OPS}) (%[\w#]+)")
_ONE_TYPE = re.compile(rf"(@stablehlo\.(?:{_OPS})\(%[\w#]+\)) : (tensor<.*>)")  # the result's is the operand's
_GENERIC = re.compile(rf'"stablehlo\.({_OPS})"\((%[\w#]+)\)')
_STATED = re.compile(r"quant\.uniform<([iu])(\d+)(?:<(-?\d+):(-?\d+)>)?:f32(?::(\d+))?,\s*(\{[^{}]*\}|[^{}]*)>")


def readable(text: str) -> str:
    """Writes quantized types as encodings, and the ops between quantized and other elements as calls. Lines keep their numbers."""
    return "\n".join(_line(line) for line in text.split("\n")) if "!quant." in text else text


def _line(line: str) -> str:
    if "!quant." not in line:
        return line
    line = _PRETTY.sub(rf"stablehlo.custom_call @{PREFIX}\1(\2)", line)
    line = _ONE_TYPE.sub(r"\1 : (\2) -> \2", line)
    line = _GENERIC.sub(rf'"stablehlo.custom_call"(\2) <{{call_target_name = "{PREFIX}\1"}}>', line)
    return _TYPE.sub(r'\1\3, "quant.\2"', line)


@dataclass(frozen=True)
class Quantization:
    """The elements `(stored - zero) scale`: the integer type that is stored, its range, and scales and zeros, of an axis or one."""

    storage: Attribute
    low: int
    high: int
    axis: int | None
    scales: tuple[float, ...]
    zeros: tuple[int, ...]

    def along(self, values: tuple[float, ...] | tuple[int, ...], rank: int, dtype: Any) -> NDArray[Any]:
        """Gives scales or zeros in a shape that is broadcast to a tensor of `rank` dimensions."""
        shape = () if self.axis is None else tuple(-1 if d == self.axis else 1 for d in range(rank))
        return np.array(values, dtype).reshape(shape)


def range_of(storage: Attribute) -> tuple[int, int]:
    """Gives the least and the largest value of an integer type."""
    limits = np.iinfo(dtype_of(storage))
    return int(limits.min), int(limits.max)


def quantization_of(type: Attribute) -> Quantization | None:
    """Gives the quantization of a tensor type; None if it has none. Raises PopulusError for one that has no conversion."""
    encoding = cast("TensorType[Attribute]", type).encoding if isinstance(type, TensorType) else None
    if not isinstance(encoding, StringAttr) or not encoding.data.startswith("quant."):
        return None
    found = _STATED.fullmatch(encoding.data)
    bits = int(found[2]) if found is not None else 0
    if found is None or bits not in (8, 16, 32):
        raise PopulusError(f"!{encoding.data} has no conversion; integers of 8, 16 or 32 bits that stand for f32 have one")
    storage = element_of(np.dtype(f"{found[1]}{bits // 8}"))
    least, most = range_of(storage)
    stated = [entry.strip().partition(":") for entry in found[6].strip("{}").split(",")]
    try:
        scales, zeros = tuple(float(s) for s, _, _ in stated), tuple(int(z or 0) for _, _, z in stated)
    except ValueError:
        raise PopulusError(f"!{encoding.data}: a scale or a zero point is no number") from None
    low, high = int(found[3] or least), int(found[4] or most)
    axis = None if found[5] is None else int(found[5])
    sizes = cast("TensorType[Attribute]", type).get_shape()
    if axis is not None and (axis >= len(sizes) or sizes[axis] != len(scales)):
        raise PopulusError(f"!{encoding.data}: {len(scales)} scales; dimension {axis} of {list(sizes)} is expected to have one each")
    if axis is None and len(scales) > 1:
        raise PopulusError(f"!{encoding.data}: {len(scales)} scales without an axis")
    if any(not 0 < s < np.inf or np.float32(s) == 0 for s in scales):
        raise PopulusError(f"!{encoding.data}: a scale is a positive f32")
    if not least <= low <= high <= most or any(not low <= z <= high for z in zeros):
        raise PopulusError(f"!{encoding.data}: the range and its zero points lie within [{least}, {most}]")
    return Quantization(storage, low, high, axis, scales, zeros)
