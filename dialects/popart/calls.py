"""Library calls, and other ops, as functions on values, for `lower` and `gradient`.

s = calls.reduce(b, "add", calls.map(b, Arg(1) * Arg(2), x, g), dims=(0,))
p = calls.op(b, "softmax", s, axis=0)    # other ops, of users too
"""

from __future__ import annotations

from xdsl.builder import Builder
from xdsl.ir import SSAValue

from populus.dialects.base.tensor_op import Plain
from populus.dialects.popart.base import PopartOp
from populus.dialects.popart.definition import built_in, definition_of
from populus.dialects.popart.library_calls import (
    added_rows,
    codelet,
    codelets,
    concat,
    element,
    fill,
    insert,
    map,
    pad,
    pull,
    reduce,
    reshape,
    reverse,
    shape,
    slice,
    slice_dim,
    slopes,
    stretch,
    sum_around,
    sum_to,
    transpose,
)
from populus.dialects.support.diagnostics import PopulusError

__all__ = [
    "added_rows",
    "codelet",
    "codelets",
    "concat",
    "element",
    "fill",
    "insert",
    "map",
    "op",
    "ops",
    "pad",
    "pull",
    "reduce",
    "reshape",
    "reverse",
    "shape",
    "slice",
    "slice_dim",
    "slopes",
    "stretch",
    "sum_around",
    "sum_to",
    "transpose",
]


def ops(b: Builder, op: type[PopartOp] | str, *operands: SSAValue | None, **attributes: Plain | None) -> list[SSAValue]:
    """Inserts an op of this level, a class or the name of a built-in one such as `softmax`, and gives its results as a list.

    `operands` in order, None for one that is left out; `attributes` as Python values. Such an op is lowered in turn.
    Raises PopulusError for an unknown op or attribute, or a value out of range, and VerifyException for operands that do not fit.
    """
    kind = built_in(op) if isinstance(op, str) else op
    checked = definition_of(kind).checked([o is not None for o in operands], attributes)
    made = kind(*operands, **checked)
    made.verify()
    return list(b.insert(made).results)


def op(b: Builder, op: type[PopartOp] | str, *operands: SSAValue | None, **attributes: Plain | None) -> SSAValue:
    """Inserts an op as `ops` does, and gives its only result. Raises PopulusError if it has another number of them."""
    results = ops(b, op, *operands, **attributes)
    if len(results) != 1:
        raise PopulusError(f"{op if isinstance(op, str) else op.name} has {len(results)} results; call it by `ops`, which gives a list")
    return results[0]
