"""ONNX's ops that compute element by element, or put elements elsewhere: formulas and index maps."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from populus.dialects import expr
from populus.dialects.data import constant_value
from populus.dialects.poplar.affine import box, names, read_map, read_set, shuffle_map, slice_map, within
from populus.dialects.poplar.meaning import plain
from populus.dialects.poplar.partition import ALL, Domain, Split
from populus.dialects.support.element_types import element_type_of, is_float, shape_of
from populus.proof.codelets import Family, Operand
from populus.proof.onnx.formulas import FORMULAS
from populus.proof.onnx.node import Node, Results
from populus.proof.pieces import over
from populus.proof.report import Undecided
from populus.proof.trees import Number, Piece, Pieces

_1, _2 = expr.Arg(1), expr.Arg(2)


# -- element by element -------------------------------------------------------------------------------------------------


def _elementwise(n: Node) -> Results:
    types = [element_type_of(v.type) for v in n.op.operands]
    if n.get("broadcast") or n.get("axis") is not None or None in n.op.inputs:
        raise Undecided(f"opset {n.op.VERSION}")
    e = FORMULAS[n.op.OP_TYPE](n.get, types)
    if e is None:
        raise Undecided("no formula for these types")
    operands = [n.stretched(i, n.full) for i in range(1 if n.op.OP_TYPE == "CastLike" else len(types))]
    return [n.t.elementwise(e, box(n.full), operands, is_float(types[len(operands) - 1]))]


def _clip(n: Node) -> Results:
    if n.op.VERSION < 11:
        return _elementwise(n)
    y = n.x(0)
    for i, function in ((1, "max"), (2, "min")):
        if n.has(i):
            bound = n.t.seen(n.x(i), read_map(f"{{ [{', '.join(names('i', len(n.full)))}] -> [{', '.join('0' * len(n.shape(i)))}] }}"))
            y = n.t.elementwise(expr.call(function, _1, _2), box(n.full), [y, bound], is_float(n.element(0)))
    return [y]


# -- the same elements elsewhere ----------------------------------------------------------------------------------------


def _reshaped(n: Node) -> Results:
    return [n.t.reshaped(n.x(0), n.shape(0), n.full)]


def _transposed(n: Node) -> Results:
    order = n.get("perm") or list(reversed(range(len(n.full))))
    return [n.t.seen(n.x(0), shuffle_map(n.full, order))]


def _expanded(n: Node) -> Results:
    return [n.stretched(0, n.full)]


def _concatenated(n: Node) -> Results:
    axis, begin, found = n.axis(len(n.full)), 0, list[Piece]()
    i = names("i", len(n.full))
    for number in range(len(n.op.operands)):
        size = n.shape(number)
        inside = within([v if d != axis else f"{v} - {begin}" for d, v in enumerate(i)], size)
        to = [v if d != axis else f"{v} - {begin}" for d, v in enumerate(i)]
        found += n.t.seen(n.x(number), read_map(f"{{ [{', '.join(i)}] -> [{', '.join(to)}] : {inside} }}"))
        begin += size[axis]
    return [found]


def _part(n: Node, shape: tuple[int, ...], begins: Sequence[int], steps: Sequence[int]) -> Pieces:
    return n.t.seen(n.x(0), slice_map(shape, begins, steps))


def _sliced(n: Node) -> Results:
    shape = n.shape(0)
    starts, axes = n.ints(1, "starts"), n.ints(3, "axes")
    assert starts is not None
    steps = n.ints(4, "steps") or [1] * len(starts)
    begins, by = [0] * len(shape), [1] * len(shape)  # ends decide the shape, which is known
    for begin, axis, step in zip(starts, range(len(starts)) if axes is None else axes, steps):
        size = shape[axis]
        by[axis], begins[axis] = step, min(max(begin + size if begin < 0 else begin, 0), size - 1 if step < 0 else size)
    return [_part(n, n.full, begins, by)]


def _split(n: Node) -> Results:
    axis, begin, found = n.axis(len(n.shape(0))), 0, list[Pieces]()
    for result in n.op.results:
        shape = shape_of(result.type)
        begins = [begin if d == axis else 0 for d in range(len(shape))]
        found.append(_part(n, shape, begins, [1] * len(shape)))
        begin += shape[axis]
    return found


def _padded(n: Node) -> Results:
    x, shape, mode = n.x(0), n.shape(0), n.get("mode") or "constant"
    pads, axes = n.ints(1, "pads"), n.ints(3, "axes") if n.has(3) else None
    assert pads is not None
    lower = [0] * len(shape)
    for number, axis in enumerate(range(len(shape)) if axes is None else axes):
        lower[axis] = pads[number]
    i = names("i", len(shape))
    for d, (size, low) in enumerate(zip(shape, lower)):
        at = f"{i[d]} - {low}"
        cases = {
            "constant": [(at, f"0 <= {at} < {size}")],
            "edge": [("0", f"{at} < 0"), (at, f"0 <= {at} < {size}"), (f"{size - 1}", f"{at} >= {size}")],
            "reflect": [(f"-({at})", f"{at} < 0"), (at, f"0 <= {at} < {size}"), (f"{2 * size - 2} - ({at})", f"{at} >= {size}")],
            "wrap": [(f"({at}) mod {size}", "true")],
        }[mode]
        now = [*n.full[: d + 1], *shape[d + 1 :]]
        to = "; ".join(
            f"[{', '.join(i)}] -> [{', '.join([*i[:d], e, *i[d + 1 :]])}] : {where} and {within(i, now)} and 0 <= {e} < {size}"
            for e, where in cases
        )
        x = n.t.seen(x, read_map(f"{{ {to} }}"))
    if mode != "constant":
        return [x]
    if n.has(2):
        value = n.t.seen(n.x(2), read_map(f"{{ [{', '.join(i)}] -> [{', '.join('0' * len(n.shape(2)))}] : {within(i, n.full)} }}"))
    else:
        value = n.t.number(float(n.get("value") or 0) if is_float(n.element(0)) else 0, n.full)
    return [over(value, x)]


def _tiled(n: Node) -> Results:
    if 0 in n.full:
        return [[]]
    i = names("i", len(n.full))
    to = (f"{v} mod {size}" for v, size in zip(i, n.shape(0)))
    return [n.t.seen(n.x(0), read_map(f"{{ [{', '.join(i)}] -> [{', '.join(to)}] : {within(i, n.full)} }}"))]


def _space(n: Node) -> Results:
    """Gives DepthToSpace and SpaceToDepth by reshapes and a transpose."""
    b = int(n.get("blocksize"))
    batch, channels, height, width = n.shape(0)
    if n.op.OP_TYPE == "SpaceToDepth":
        inner = (batch, channels, height // b, b, width // b, b)
        order = (0, 3, 5, 1, 2, 4) if (n.get("mode") or "DCR") == "DCR" else (0, 1, 3, 5, 2, 4)
    elif (n.get("mode") or "DCR") == "DCR":
        inner, order = (batch, b, b, channels // b**2, height, width), (0, 3, 4, 1, 5, 2)
    else:
        inner, order = (batch, channels // b**2, b, b, height, width), (0, 1, 4, 2, 5, 3)
    x = n.t.reshaped(n.x(0), n.shape(0), inner)
    shuffled = tuple(inner[d] for d in order)
    return [n.t.reshaped(n.t.seen(x, shuffle_map(shuffled, order)), shuffled, n.full)]


def _triangle(n: Node) -> Results:
    k = int(n.known(1)) if n.has(1) else 0
    i = names("i", len(n.full))
    keeps = f"{i[-1]} - {i[-2]} {'>=' if n.get('upper') else '<='} {k}"
    kept = n.t.seen(n.x(0), read_map(f"{{ [{', '.join(i)}] -> [{', '.join(i)}] : {keeps} and {within(i, n.full)} }}"))
    return [over(n.t.number(0.0 if is_float(n.element(0)) else 0, n.full), kept)]


def _gathered(n: Node) -> Results:
    """Gives rows that indices name, from the end if they are negative: known ones are places, others are a function of the table."""
    table, indices = n.shape(0), n.shape(1)
    axis = n.axis(len(table))
    size, k = table[axis], names("k", len(indices))
    array = constant_value(n.value(1))
    if array is not None:
        wrapped = n.t.array(np.where(array < 0, array + size, array))
    else:
        wrapped = n.t.elementwise(expr.select(_1 + size, _1, expr.call("lt", _1, 0)), box(indices), [n.x(1)], False)
    rows = [f"d{d}" for d in range(len(table))]
    before, after = rows[:axis], rows[axis + 1 :]
    axes = tuple((a, Split(m)) for a, m in zip((*before, *k, *after), n.full))
    fields = {
        "table": Operand(n.x(0), table, n.element(0), (*plain(*before), ALL, *plain(*after))),
        "indices": Operand(wrapped, indices, n.element(1), plain(*k)),
        "y": Operand([], n.full, n.element(0), plain(*before, *k, *after)),
    }
    return [Family(n.t, "multi_slice", Domain(axes, ()), {}, fields).written()]


def _same(n: Node) -> Results:
    if n.op.VERSION < 12 and len([r for r in n.op.results if r.uses]) > 1:
        raise Undecided("a mask")
    if n.has(2) and bool(n.known(2)) and not (n.has(1) and float(n.known(1)) == 0):
        raise Undecided("training")
    return [n.x(0), *(n.t.number(True, n.full) for _ in n.op.results[1:])]


def _constant(n: Node) -> Results:
    """Gives Shape and Size: numbers of the operand's type."""
    shape = n.shape(0)
    if n.op.OP_TYPE == "Size":
        return [n.t.number(math.prod(shape), ())]
    return [n.t.array(np.array(shape[slice(n.get("start"), n.get("end"))], np.int64))]


def _range(n: Node) -> Results:
    start, limit, delta = (n.known(i).reshape(-1)[0] for i in range(3))
    count = max(math.ceil((limit.item() - start.item()) / delta.item()), 0)
    return [n.t.array(np.asarray(start + np.arange(count) * delta, n.known(0).dtype))]


def _eye(n: Node) -> Results:
    """Gives 1 on a diagonal."""
    rows, columns = n.full
    floats = is_float(element_type_of(n.op.results[0].type))
    one, none = (1.0, 0.0) if floats else (1, 0)
    diagonal = read_set(f"{{ [i, j] : j - i = {int(n.get('k') or 0)} and {within('ij', (rows, columns))} }}")
    ones = [Piece(diagonal, Number(one))] if not diagonal.is_empty() else []
    return [over(n.t.number(none, n.full), ones)]


def _filled(n: Node) -> Results:
    value = n.op.properties.get("value")
    number = n.get("value") if value is not None else None
    if number is None:
        return [n.t.number(0.0, n.full)]
    first = number.reshape(-1)[0].item() if hasattr(number, "reshape") else number
    return [n.t.number(first, n.full)]


ELEMENTS: Mapping[str, Callable[[Node], Results]] = {
    **dict.fromkeys(FORMULAS, _elementwise),
    **dict.fromkeys(("Reshape", "Squeeze", "Unsqueeze", "Flatten"), _reshaped),
    **dict.fromkeys(("DepthToSpace", "SpaceToDepth"), _space),
    **dict.fromkeys(("Shape", "Size"), _constant),
    "Clip": _clip,
    "Transpose": _transposed,
    "Expand": _expanded,
    "Concat": _concatenated,
    "Slice": _sliced,
    "Split": _split,
    "Pad": _padded,
    "Tile": _tiled,
    "Trilu": _triangle,
    "Dropout": _same,
    "Gather": _gathered,
    "ConstantOfShape": _filled,
    "EyeLike": _eye,
    "Range": _range,
}
"""The definition of each op."""
