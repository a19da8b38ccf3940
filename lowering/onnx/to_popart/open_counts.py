"""Operands of ops that count by themselves, where they are partly valid: what stands beyond the valid part does not count.

NonZero(x) reads 0 there, Compress false, NonMaxSuppression scores of minus infinity.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

from xdsl.ir import SSAValue

from populus.dialects import popart
from populus.dialects.support.diagnostics import PopulusError
from populus.lowering.onnx.to_popart.conversion import Conversion, shape
from populus.lowering.onnx.to_popart.open_shapes import compacted, masks_of, refused
from populus.lowering.onnx.valid_sizes import is_whole

Operands: TypeAlias = "Callable[[Conversion, list[SSAValue]], list[SSAValue]]"


def prepare(c: Conversion) -> None:
    """Replaces the operands of an op by ones that are valid as a whole. Raises PopulusError for an op for which there are none."""
    rule = OPERANDS.get(c.op.OP_TYPE)
    if rule is not None:
        c.op.operands = [_whole(c, v) for v in rule(c, [compacted(c, v) for v in c.op.operands])]
    elif any(v in masks_of(c).valid.axes for v in c.op.operands):
        raise refused(c)


def _whole(c: Conversion, x: SSAValue) -> SSAValue:
    """Gives a value under a name that counts as valid as a whole."""
    m = masks_of(c)
    return m.plain(c, popart.ReshapeOp(x, shape=shape(x))) if x in m.valid.axes else x


def _filled(c: Conversion, values: list[SSAValue]) -> list[SSAValue]:
    """Replaces what stands beyond the valid part of x by 0, which does not count."""
    return [masks_of(c).filled(c, v, None, "zero") for v in values]


def _compressed(c: Conversion, values: list[SSAValue]) -> list[SSAValue]:
    """Replaces the condition beyond the valid part of itself and of x by false. Raises PopulusError for x of other open axes."""
    m, (x, condition) = masks_of(c), values
    axes = m.valid.of(x)
    axis = 0 if c.get("axis") is None else c.axis(len(axes))
    if x in m.valid.axes and ((c.get("axis") is None and len(axes) != 1) or any(not is_whole(a) for d, a in enumerate(axes) if d != axis)):
        raise refused(c)
    condition = m.filled(c, condition, None, "zero")
    if x in m.valid.axes:
        n = min(shape(condition)[0], shape(x)[axis])
        parts = [m.plain(c, popart.SliceOp(v, begins=(0,), ends=(n,), steps=(1,))) for v in (condition, m.mask(axes[axis]))]
        condition = m.plain(c, popart.AndOp(*parts))
    return [x, condition]


def _suppressed(c: Conversion, values: list[SSAValue]) -> list[SSAValue]:
    """Replaces scores beyond the valid part by minus infinity. Raises PopulusError without a threshold, which excludes these."""
    m = masks_of(c)
    if not c.has(4):
        raise PopulusError("without a score_threshold, it would select boxes beyond the valid ones; state one, or bind the dimension")
    boxes, scores, *rest = values
    return [m.filled(c, boxes, None, "zero"), m.filled(c, scores, None, "lowest"), *rest]


OPERANDS: Mapping[str, Operands] = {"Compress": _compressed, "NonMaxSuppression": _suppressed, "NonZero": _filled}
