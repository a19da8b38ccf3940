"""ONNX's ops that read, write, compare or order elements by index."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

from xdsl.dialects.builtin import IntegerAttr, StringAttr, i1, i64
from xdsl.ir import Attribute

from populus.dialects import expr
from populus.dialects.expr import Arg, call, equal, select
from populus.dialects.poplar.affine import Map, box, every, names, read_map, shuffle_map, within
from populus.dialects.poplar.meaning import numbered, plain
from populus.dialects.poplar.partition import ALL, Domain, Split
from populus.dialects.support.element_types import is_float
from populus.proof.codelets import Family, Operand
from populus.proof.onnx.node import Node, Results
from populus.proof.trees import Pieces

_1, _2, _3 = Arg(1), Arg(2), Arg(3)


def place(n: Node, full: tuple[int, ...], image: str) -> Pieces:
    """Makes a coordinate as a tensor: an affine function of the index i0, i1, .."""
    i = names("i", len(full))
    return n.t.seen(n.t.input("", (1 << 31,), False, "place"), read_map(f"{{ [{', '.join(i)}] -> [{image}] : {within(i, full)} }}"))


def along(n: Node, full: tuple[int, ...], axis: int) -> Pieces:
    """Makes the coordinate along an axis."""
    return place(n, full, f"i{axis}")


def without(full: tuple[int, ...], axis: int) -> Map:
    """Maps an index to that of its row along an axis, which has size 1 there."""
    i = names("i", len(full))
    return read_map(f"{{ [{', '.join(i)}] -> [{', '.join('0' if d == axis else v for d, v in enumerate(i))}] : {within(i, full)} }}")


def element(n: Node, x: Pieces, shape: tuple[int, ...], at: Sequence[Pieces], full: tuple[int, ...], kind: Attribute) -> Pieces:
    """Makes `y[i] = x[at_0[i], at_1[i], ..]`. An index beyond its dimension, which ONNX does not allow, is beyond the tensor."""
    t, total, flat = n.t, math.prod(shape), t_zero(n, full)
    for d, one in enumerate(at):
        stride, size = math.prod(shape[d + 1 :]), shape[d]
        beyond = call("or", call("lt", _2, 0), call("gte", _2, size))
        flat = t.elementwise(select(total * total, _1 + _2 * stride, beyond), box(full), [flat, one], False)
    axes = numbered("d", len(full))
    fields = {
        "table": Operand(t.reshaped(x, shape, (total,)), (total,), kind, (ALL,)),
        "indices": Operand(flat, full, i64, plain(*axes)),
        "y": Operand([], full, kind, plain(*axes)),
    }
    return Family(t, "multi_slice", Domain(tuple((a, Split(m)) for a, m in zip(axes, full)), ()), {}, fields).written()


def t_zero(n: Node, full: tuple[int, ...]) -> Pieces:
    """Makes the integer 0."""
    return n.t.number(0, full)


def from_front(n: Node, indices: Pieces, full: tuple[int, ...], size: int) -> Pieces:
    """Counts negative indices from the end."""
    return n.t.elementwise(select(_1 + size, _1, call("lt", _1, 0)), box(full), [indices], False)


def _coordinates(n: Node) -> tuple[list[Pieces], int, tuple[int, ...], int]:
    """Gives the indices of a GatherND or ScatterND: one tensor for each dimension, their number, their shape, leading dimensions."""
    *lead, depth = n.shape(1)
    batch, i = int(n.get("batch_dims") or 0), names("i", len(lead))
    found = [place(n, tuple(lead), f"i{d}") for d in range(batch)]
    for k in range(depth):
        at = read_map(f"{{ [{', '.join(i)}] -> [{', '.join([*i, str(k)])}] : {within(i, lead)} }}")
        found.append(from_front(n, n.t.seen(n.x(1), at), tuple(lead), n.shape(0)[batch + k]))
    return found, batch + depth, tuple(lead), batch


def _gathered_elements(n: Node) -> Results:
    axis = n.axis(len(n.full))
    at = [along(n, n.full, d) for d in range(len(n.full))]
    at[axis] = from_front(n, n.x(1), n.full, n.shape(0)[axis])
    return [element(n, n.x(0), n.shape(0), at, n.full, n.element(0))]


def _gathered_parts(n: Node) -> Results:
    at, count, lead, _ = _coordinates(n)
    shape, i = n.shape(0), names("i", len(n.full))
    down = read_map(f"{{ [{', '.join(i)}] -> [{', '.join(i[: len(lead)])}] : {within(i, n.full)} }}")
    whole = [n.t.seen(one, down) for one in at] + [along(n, n.full, len(lead) + d) for d in range(len(shape) - count)]
    return [element(n, n.x(0), shape, whole, n.full, n.element(0))]


COMBINED = {"none": "set", "add": "add", "mul": "mul", "min": "min", "max": "max"}


def _written(n: Node, at: Sequence[Pieces], count: int, shape: tuple[int, ...], inner: int, updates: Pieces) -> Pieces:
    """Writes rows of x in order: `at` names the first dimensions of row k, [count]; updates: [count, inner]."""
    rows, flat = math.prod(shape[: len(at)]), t_zero(n, (count,))
    for d, one in enumerate(at):
        stride = math.prod(shape[d + 1 : len(at)])
        beyond = call("or", call("lt", _2, 0), call("gte", _2, shape[d]))
        flat = n.t.elementwise(select(rows * rows, _1 + _2 * stride, beyond), box((count,)), [flat, one], False)
    op = COMBINED[n.get("reduction") or "none"]
    fields = {
        "table": Operand(n.t.reshaped(n.x(0), shape, (rows, inner)), (rows, inner), n.element(0), plain("r", "c")),
        "indices": Operand(flat, (count,), i64, (ALL,)),
        "updates": Operand(updates, (count, inner), n.element(0), (ALL, *plain("c"))),
        "y": Operand([], (rows, inner), n.element(0), plain("r", "c")),
    }
    domain = Domain((("r", Split(rows)), ("c", Split(inner))), ())
    y = Family(n.t, "multi_update", domain, {"op": StringAttr(op)}, fields).written()
    return n.t.reshaped(y, (rows, inner), shape)


def _scattered_elements(n: Node) -> Results:
    shape, own = n.shape(0), n.shape(1)
    axis, count = n.axis(len(shape)), math.prod(own)
    at = [along(n, own, d) for d in range(len(own))]
    at[axis] = from_front(n, n.x(1), own, shape[axis])
    flat = [n.t.reshaped(one, own, (count,)) for one in at]
    return [_written(n, flat, count, shape, 1, n.t.reshaped(n.x(2), own, (count, 1)))]


def _scattered_parts(n: Node) -> Results:
    at, depth, lead, _ = _coordinates(n)
    shape, count = n.shape(0), math.prod(lead)
    inner = math.prod(shape[depth:])
    flat = [n.t.reshaped(one, lead, (count,)) for one in at]
    return [_written(n, flat, count, shape, inner, n.t.reshaped(n.x(2), n.shape(2), (count, inner)))]


def _one_hot(n: Node) -> Results:
    depth, axis = int(n.known(1).reshape(-1)[0]), n.axis(len(n.full))
    i = names("i", len(n.full))
    rest = read_map(f"{{ [{', '.join(i)}] -> [{', '.join(v for d, v in enumerate(i) if d != axis)}] : {within(i, n.full)} }}")
    index = n.t.seen(n.x(0), rest)
    if is_float(n.element(0)):
        index = n.t.elementwise(expr.cast(_1, i64), box(n.full), [index], True)
    off, on = (n.t.seen(n.x(2), read_map(f"{{ [{', '.join(i)}] -> [{k}] : {within(i, n.full)} }}")) for k in (0, 1))
    here = n.t.elementwise(equal(_1, _2), box(n.full), [from_front(n, index, n.full, depth), along(n, n.full, axis)], False)
    return [n.t.elementwise(select(_1, _2, _3), box(n.full), [on, off, here], False)]


def extreme_index(n: Node, x: Pieces, full: tuple[int, ...], axis: int, largest: bool, last: bool) -> Pieces:
    """Makes the first, or last, place of the largest or least element along an axis, which has size 1 then. NaN is extreme."""
    t, to_row = n.t, without(full, axis)
    best = t.reduced("max" if largest else "min", to_row.range(), to_row.reverse(), x, every(full))
    same = equal(_1, _2)
    if is_float(n.element(0)):
        same = call("or", same, expr.isnan(_1))
    chosen = t.elementwise(same, box(full), [x, t.seen(best, to_row)], is_float(n.element(0)))
    places = t.elementwise(select(_1, -1 if last else full[axis], _2), box(full), [along(n, full, axis), chosen], False)
    return t.reduced("max" if last else "min", to_row.range(), to_row.reverse(), places, every(full))


def _arg(n: Node) -> Results:
    shape = n.shape(0)
    axis = n.axis(len(shape))
    index = extreme_index(n, n.x(0), shape, axis, n.op.OP_TYPE == "ArgMax", bool(n.get("select_last_index")))
    return [n.t.reshaped(index, tuple(1 if d == axis else m for d, m in enumerate(shape)), n.full)]


def _hardmax(n: Node) -> Results:
    axis, full, x = n.axis(len(n.full)), n.full, n.x(0)
    if n.op.VERSION < 13:  # the dimensions from the axis on are one
        full, axis = (math.prod(n.full[:axis]), math.prod(n.full[axis:])), 1
        x = n.t.reshaped(x, n.full, full)
    index = extreme_index(n, x, full, axis, True, False)
    here = [along(n, full, axis), n.t.seen(index, without(full, axis))]
    same = n.t.elementwise(equal(_1, _2), box(full), here, False)
    return [n.t.reshaped(n.t.elementwise(select(1.0, 0.0, _1), box(full), [same], True), full, n.full)]


def _top_k(n: Node) -> Results:
    shape = n.shape(0)
    axis, full = n.axis(len(shape)), n.full
    order = [*(d for d in range(len(shape)) if d != axis), axis]
    ordered, rows = tuple(shape[d] for d in order), tuple(full[d] for d in order)
    d = numbered("d", len(shape) - 1)
    largest = IntegerAttr(int(n.get("largest") != 0), i1)
    fields = {
        "x": Operand(n.t.seen(n.x(0), shuffle_map(ordered, order)), ordered, n.element(0), (*plain(*d), ALL)),
        "y": Operand([], rows, i64, plain(*d, "k")),
    }
    domain = Domain((*((a, Split(m)) for a, m in zip(d, rows)), ("k", Split(rows[-1]))), ())
    found = Family(n.t, "top_k", domain, {"largest": largest}, fields).written()
    indices = n.t.seen(found, shuffle_map(full, [order.index(e) for e in range(len(order))]))
    at = [along(n, full, e) for e in range(len(full))]
    at[axis] = indices
    return [element(n, n.x(0), shape, at, full, n.element(0)), indices]


def _reversed(n: Node) -> Results:
    shape = n.full
    batch, time = n.axis(len(shape), "batch_axis"), n.axis(len(shape), "time_axis")
    i = names("i", len(shape))
    length = n.t.seen(n.x(1), read_map(f"{{ [{', '.join(i)}] -> [{i[batch]}] : {within(i, shape)} }}"))
    at = [along(n, shape, d) for d in range(len(shape))]
    allowed = select(-1, select(_2 - 1 - _1, _1, call("lt", _1, _2)), call("or", call("lt", _2, 0), call("gt", _2, shape[time])))
    at[time] = n.t.elementwise(allowed, box(shape), [at[time], length], False)
    return [element(n, n.x(0), shape, at, shape, n.element(0))]


def _cumulative(n: Node) -> Results:
    """Gives the sum or product of the elements before, and its own unless `exclusive`."""
    shape, op = n.full, "add" if n.op.OP_TYPE == "CumSum" else "mul"
    axis = int(n.known(1).reshape(-1)[0]) % len(shape)
    i, j = names("i", len(shape)), "j"
    other = [j if d == axis else v for d, v in enumerate(i)]
    relation = {(False, False): "<=", (False, True): "<", (True, False): ">=", (True, True): ">"}
    sign = relation[bool(n.get("reverse")), bool(n.get("exclusive"))]
    where = f"{within(i, shape)} and 0 <= j < {shape[axis]} and j {sign} {i[axis]}"
    points = read_map(f"{{ [{', '.join(i)}] -> [{', '.join([*i, j])}] : {where} }}")
    to_x = read_map(f"{{ [{', '.join([*i, j])}] -> [{', '.join(other)}] : {where} }}")
    return [n.t.reduced(op, box(shape), points, n.x(0), to_x)]


INDEXED: Mapping[str, Callable[[Node], Results]] = {
    **dict.fromkeys(("ArgMax", "ArgMin"), _arg),
    **dict.fromkeys(("CumSum", "CumProd"), _cumulative),
    **dict.fromkeys(("Scatter", "ScatterElements"), _scattered_elements),
    "GatherElements": _gathered_elements,
    "GatherND": _gathered_parts,
    "Hardmax": _hardmax,
    "OneHot": _one_hot,
    "ReverseSequence": _reversed,
    "ScatterND": _scattered_parts,
    "TopK": _top_k,
}
"""The definition of each op."""
