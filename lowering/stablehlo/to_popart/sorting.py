"""Conversions of sort and top_k: by keys where a comparator compares one key of either element, otherwise by all comparisons."""

from __future__ import annotations

import math

from xdsl.dialects.builtin import i32
from xdsl.ir import Block, SSAValue

from populus.dialects import popart
from populus.dialects.stablehlo.ops import HloOp
from populus.dialects.support import shapes
from populus.dialects.support.diagnostics import PopulusError
from populus.dialects.support.element_types import element_type_of, is_float
from populus.lowering.stablehlo.to_popart.conversion import Conversion, Rules, Value, element, leaves, shape
from populus.lowering.stablehlo.to_popart.elementwise import ordered_bits
from populus.lowering.stablehlo.to_popart.reduction import mapped

MOST_PAIRS = 1 << 26  # comparisons of a sort by any comparator


def mirrored(a: SSAValue, b: SSAValue, block: Block) -> bool:
    """Tells whether `a` is of first arguments what `b` is of the second ones: arguments come in pairs, one for each element."""
    if a.owner is block or b.owner is block:
        if a.owner is not b.owner:
            return False
        first, second = (block.args.index(v) for v in (a, b))  # pyright: ignore[reportArgumentType], arguments
        return first % 2 == 0 and second == first + 1
    if a is b:  # from around the region, or a constant
        return not isinstance(a.owner, HloOp) or not a.owner.operands
    one, other = a.owner, b.owner
    if not isinstance(one, HloOp) or not isinstance(other, HloOp) or one.regions or other.regions:
        return False
    alike = one.name == other.name and one.properties == other.properties and one.attributes == other.attributes
    return alike and len(one.operands) == len(other.operands) and all(mirrored(x, y, block) for x, y in zip(one.operands, other.operands))


def key_of(c: Conversion, values: list[Value]) -> tuple[SSAValue, bool] | None:
    """Computes the key that a comparator compares, and tells whether larger ones come first; None for another comparator.

    Floats are compared in total order; otherwise NaN has no place.
    """
    end = c.body.last_op
    assert end is not None
    compared = end.operands[0].owner
    if not isinstance(compared, HloOp) or compared.kind != "compare" or compared.get("comparison_direction") not in ("LT", "GT"):
        return None
    floats = is_float(element_type_of(compared.operands[0].type))
    if (floats and compared.get("compare_type") != "TOTALORDER") or not mirrored(compared.operands[0], compared.operands[1], c.body):
        return None
    copy = c.op.clone()
    body = copy.body()
    last = body.last_op
    assert last is not None
    again = last.operands[0].owner
    assert isinstance(again, HloOp)
    last.operands[0] = again.operands[0]
    (key,) = leaves(c.regions.inline(body, [v for v in values for _ in range(2)], c.builder, lifted=True))
    copy.drop_all_references()
    key = c.expand(key, shape(next(leaves(values))))
    return ordered_bits(c, key) if floats else key, compared.get("comparison_direction") == "GT"


def sort(c: Conversion) -> list[Value]:
    """Converts sort, which is stable."""
    import numpy as np

    (full,) = {shape(v) for v in leaves(c.inputs)}
    if math.prod(full) == 0:
        return list(c.inputs)
    axis = shapes.axis(c.get("dimension", -1), len(full)) if full else 0
    order = [*(d for d in range(len(full)) if d != axis), axis]
    n = full[axis] if full else 1
    rows = math.prod(full) // n
    values = mapped(c.inputs, lambda v: c.reshape(c.transpose(v, order), (rows, n)))
    offsets = c.constant(np.arange(rows, dtype=np.int32).reshape(rows, 1) * n)
    found = key_of(c, values)
    if found is not None:
        key, largest = found
        taken = c(popart.AddOp, c(popart.TopKOp, key, k=n, largest=largest), offsets)
    else:
        places = c.reshape(c(popart.AddOp, ranks(c, values, rows, n), offsets), (rows * n,))
        line = c.constant(np.arange(rows * n, dtype=np.int32))
        taken = c(popart.ScatterOp, c.filled(0, line), places, line, reduction="set")
    taken = c.reshape(taken, (rows * n,))

    def moved(v: SSAValue) -> SSAValue:
        y = c.reshape(c(popart.GatherOp, c.reshape(v, (rows * n,)), taken, axis=0), [full[d] for d in order])
        return c.transpose(y, [order.index(d) for d in range(len(full))])

    return mapped(values, moved)


def ranks(c: Conversion, values: list[Value], rows: int, n: int) -> SSAValue:
    """Counts the elements that come before each, by all comparisons of a row: [rows, n]. Raises PopulusError if these are too many."""
    import numpy as np

    if rows * n * n > MOST_PAIRS:
        raise PopulusError(f"a sort of {rows} rows of {n} by this comparator takes {rows * n * n} comparisons; at most {MOST_PAIRS}")
    mine, theirs = (mapped(values, lambda v, s=s: c.reshape(v, s)) for s in ((rows, n, 1), (rows, 1, n)))
    # The arguments of the comparator are in pairs: a value of one element, and that of the other.
    (less,) = leaves(c.combine([v for pair in zip(theirs, mine) for v in pair]))
    before = c.expand(less, (rows, n, n))  # [i, j]: element j comes before element i
    earlier = c.constant(np.tril(np.ones((n, n), np.bool_), -1))
    after = c.transpose(before, (0, 2, 1))
    ties = c(popart.AndOp, c(popart.NotOp, c(popart.OrOp, before, after)), earlier)
    return c(popart.ReduceSumOp, c.cast(c(popart.OrOp, before, ties), i32), axes=(2,), keep=False)


def top_k(c: Conversion) -> list[Value]:
    """Converts chlo.top_k: the largest of each row, NaN above all, the first of equals first."""
    x = c.input(0)
    n = shape(x)[-1]
    key = ordered_bits(c, x) if is_float(element(x)) else x
    at = c(popart.TopKOp, key, k=c.get("k"), largest=True)
    rows = math.prod(shape(x)[:-1])
    import numpy as np

    offsets = c.constant(np.arange(rows, dtype=np.int32).reshape(*shape(x)[:-1], 1) * n)
    values = c(popart.GatherOp, c.reshape(x, (rows * n,)), c(popart.AddOp, at, offsets), axis=0)
    return [values, at]


RULES: Rules = {"sort": sort}
