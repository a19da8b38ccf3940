"""Export of library calls, the level `popops`, to StableHLO's generic text, which XLA, JAX and IREE read.

    text = export_stablehlo(program.module("popops"))

Each op of `popart` computes what its `lower` calls, so a rule for each library call exports all of them. Random numbers,
collectives, codelets and packed weights have no form in StableHLO that computes the same, and are refused.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from xdsl.dialects.builtin import ModuleOp, bf16, f16, i1, i32
from xdsl.dialects.func import ReturnOp
from xdsl.ir import Attribute, Block, Operation, SSAValue

from populus.dialects.base.control_flow import Yield
from populus.dialects.data import ConstantOp
from populus.dialects.expr import infer
from populus.dialects.popart.definition import plain
from populus.dialects.poplar.target import sum_type
from populus.dialects.popops import LoopOp, MapOp
from populus.dialects.popops.control_flow import IfOp
from populus.dialects.signature import input_names, main_of, output_names
from populus.dialects.support import shapes
from populus.dialects.support.call_places import names_in
from populus.dialects.support.diagnostics import PopulusError, where
from populus.dialects.support.element_types import dtype_of, element_type_of, is_byte, is_float, is_packed, shape_of, tensor
from populus.lowering.stablehlo.export_formulas import formula
from populus.lowering.stablehlo.export_text import Text, Value

if TYPE_CHECKING:
    from numpy.typing import NDArray

Rule: TypeAlias = "Callable[[Text, list[Value], dict[str, Any], Operation], Value]"
COMBINERS = {"add": "add", "mul": "multiply", "min": "minimum", "max": "maximum", "and": "and", "or": "or"}


def _neutral(op: str, element: Attribute) -> Any:
    """Gives the neutral element of a reduction."""
    if op in ("add", "mul", "and", "or"):
        return {"add": 0, "mul": 1, "and": True, "or": False}[op]
    if is_float(element):
        return -np.inf if op == "max" else np.inf
    limits = np.iinfo(dtype_of(element))
    return int(limits.min if op == "max" else limits.max)


def _reduced(t: Text, x: Value, op: str, dims: Sequence[int]) -> Value:
    """Reduces dimensions, which are gone."""
    kind, element = COMBINERS[op], x.element
    start = t.constant(np.array(_neutral(op, element), dtype_of(element)), element)
    sizes = shapes.reduced(x.shape, dims, keep=False)
    return t.op("reduce", [x, start], sizes, element, {"dimensions": t.array(dims)}, region=t.combiner(kind, element))


def _sum_of_rows(t: Text, x: Value, op: str = "add") -> Value:
    """Reduces the last dimension, and repeats the result along it."""
    rank = len(x.shape)
    return t.spread(_reduced(t, x, op, [rank - 1]), x.shape, range(rank - 1))


def _map(t: Text, x: list[Value], a: dict[str, Any], op: Operation) -> Value:
    assert isinstance(op, MapOp), op
    element = infer(op.expr.data, [v.element for v in x])
    return formula(t, op.expr.data, x, shape_of(op.y.type), element)


def _reduce(t: Text, x: list[Value], a: dict[str, Any], op: Operation) -> Value:
    kind, to = str(a["op"]), element_type_of(op.results[0].type)
    exact = kind in ("min", "max", "and", "or")
    value = x[0] if exact else t.cast(x[0], sum_type(to) if is_float(to) else to)
    value = t.same("multiply", value, value) if kind == "square_add" else value
    return t.cast(_reduced(t, value, kind.removeprefix("square_"), a["dims"]), to)


def _reshape(t: Text, x: list[Value], a: dict[str, Any], op: Operation) -> Value:
    return t.reshape(x[0], a["shape"])


def _dim_shuffle(t: Text, x: list[Value], a: dict[str, Any], op: Operation) -> Value:
    return t.op("transpose", x, shape_of(op.results[0].type), x[0].element, {"permutation": t.array(a["permutation"])})


def _broadcast(t: Text, x: list[Value], a: dict[str, Any], op: Operation) -> Value:
    return t.stretch(x[0], a["shape"])


def _slice(t: Text, x: list[Value], a: dict[str, Any], op: Operation) -> Value:
    """Slices; a dimension that is walked backwards is sliced forwards and reversed."""
    sizes, low, high, turned = shape_of(op.results[0].type), list[int](), list[int](), list[int]()
    for d, (n, begin, step) in enumerate(zip(sizes, a["begins"], a["steps"])):
        last = begin + (n - 1) * step
        first, end = (min(begin, last), max(begin, last) + 1) if n else (0, 0)
        low.append(first)
        high.append(end)
        if step < 0 and n > 1:
            turned.append(d)
    lists = {"start_indices": low, "limit_indices": high, "strides": [abs(s) for s in a["steps"]]}
    cut = t.op("slice", x, sizes, x[0].element, {name: t.array(v) for name, v in lists.items()})
    return t.op("reverse", [cut], sizes, cut.element, {"dimensions": t.array(turned)}) if turned else cut


def _concat(t: Text, x: list[Value], a: dict[str, Any], op: Operation) -> Value:
    return t.op("concatenate", x, shape_of(op.results[0].type), x[0].element, {"dimension": f"{a['dim']} : i64"})


def _pad(t: Text, x: list[Value], a: dict[str, Any], op: Operation) -> Value:
    lists = {"edge_padding_low": a["lower"], "edge_padding_high": a["upper"], "interior_padding": a["interior"]}
    return t.op("pad", x, shape_of(op.results[0].type), x[0].element, {name: t.array(v) for name, v in lists.items()})


def _multi_slice(t: Text, x: list[Value], a: dict[str, Any], op: Operation) -> Value:
    table, indices = x
    d, inner, sizes = int(a["dim"]), len(indices.shape), list(table.shape)
    offsets = [*range(d), *(i + inner for i in range(d, len(sizes) - 1))]
    sizes[d] = 1
    numbers = (
        f"#stablehlo.gather<offset_dims = {offsets}, collapsed_slice_dims = [{d}], start_index_map = [{d}], index_vector_dim = {inner}>"
    )
    given = {"dimension_numbers": numbers, "slice_sizes": t.array(sizes)}
    return t.op("gather", x, shape_of(op.results[0].type), table.element, given)


def _multi_update(t: Text, x: list[Value], a: dict[str, Any], op: Operation) -> Value:
    table, kind = x[0], str(a["op"])
    windows = list(range(1, len(table.shape)))
    numbers = (
        f"#stablehlo.scatter<update_window_dims = {windows}, inserted_window_dims = [0], "
        "scatter_dims_to_operand_dims = [0], index_vector_dim = 1>"
    )
    region = t.combiner(None if kind == "set" else COMBINERS[kind], table.element)
    return t.op("scatter", x, table.shape, table.element, {"scatter_dimension_numbers": numbers}, region=region)


def _iota(t: Text, x: list[Value], a: dict[str, Any], op: Operation) -> Value:
    element, count = element_type_of(op.results[0].type), int(a["count"])
    line = (np.arange(count) * a["step"] + a["start"]).astype(dtype_of(element))
    return t.constant(line, element)


def _top_k(t: Text, x: list[Value], a: dict[str, Any], op: Operation) -> Value:
    """Sorts each row with its positions; NaN is the largest, and of equals the first comes first."""
    value, axis = x[0], len(x[0].shape) - 1
    if not value.shape[axis]:
        return t.constant(np.zeros(shape_of(op.results[0].type), np.int32), i32)
    places = t.op("iota", [], value.shape, i32, {"iota_dimension": f"{axis} : i64"})
    given = {"dimension": f"{axis} : i64", "is_stable": "true"}
    region = t.before(value.element, bool(a["largest"]))
    _, order = t.several("sort", [value, places], [value.type, places.type], given, region)
    low = {"start_indices": [0] * (axis + 1), "limit_indices": [*value.shape[:-1], a["k"]], "strides": [1] * (axis + 1)}
    return t.op("slice", [order], [*value.shape[:-1], a["k"]], i32, {name: t.array(v) for name, v in low.items()})


def _factors(t: Text, x: list[Value]) -> tuple[list[Value], Attribute]:
    """Gives the factors of products and the type of their sums: i32 for bytes, f32 for halves."""
    if is_byte(x[0].element):
        return [t.cast(v, i32) for v in x], i32
    return x, sum_type(x[0].element) if x[0].element in (f16, bf16) else x[0].element


def _matmul(t: Text, x: list[Value], a: dict[str, Any], op: Operation) -> Value:
    factors, element = _factors(t, x)
    numbers = (
        "#stablehlo.dot<lhs_batching_dimensions = [0], rhs_batching_dimensions = [0], "
        "lhs_contracting_dimensions = [2], rhs_contracting_dimensions = [1]>"
    )
    y = t.op("dot_general", factors, shape_of(op.results[0].type), element, {"dot_dimension_numbers": numbers})
    return t.cast(y, element_type_of(op.results[0].type))


def _convolution(t: Text, x: list[Value], a: dict[str, Any], op: Operation) -> Value:
    factors, element = _factors(t, x)
    rank = len(a["strides"])
    spatial = ", ".join(map(str, range(rank)))
    given = {
        "window_strides": t.array(a["strides"]),
        "padding": t.pairs(zip(a["pads"][:rank], a["pads"][rank:])),
        "rhs_dilation": t.array(a["dilations"]),
        "dimension_numbers": f"#stablehlo.conv<[b, f, {spatial}]x[o, i, {spatial}]->[b, f, {spatial}]>",
        "feature_group_count": f"{a['groups']} : i64",
        "batch_group_count": "1 : i64",
    }
    return t.cast(t.op("convolution", factors, shape_of(op.results[0].type), element, given), element_type_of(op.results[0].type))


def _pool(t: Text, x: list[Value], a: dict[str, Any], op: Operation) -> Value:
    value, kind, rank, own = x[0], str(a["kind"]), len(a["kernel"]), x[0].element
    if kind != "max":
        value = t.cast(value, sum_type(own) if is_float(own) else own)
    if kind == "square_sum":
        value = t.same("multiply", value, value)
    out, pads = shape_of(op.results[0].type), list[tuple[int, int]]()
    counts: NDArray[Any] = np.ones((1, 1, *(1,) * rank))
    for d in range(rank):
        n, windows, kernel = value.shape[d + 2], out[d + 2], int(a["kernel"][d])
        stride, dilation, low, high = (int(v) for v in (a["strides"][d], a["dilations"][d], a["pads"][d], a["pads"][d + rank]))
        pads.append((low, max(shapes.reach(windows, stride, kernel, dilation) - n - low, 0)))
        at = np.arange(windows)[:, None] * stride + np.arange(kernel) * dilation - low
        inside = (at >= -low) & (at < n + high) if a["count_padding"] else (at >= 0) & (at < n)
        counts = counts * inside.sum(1).reshape([-1 if e == d + 2 else 1 for e in range(rank + 2)])
    combine = "max" if kind == "max" else "add"
    start = t.constant(np.array(_neutral(combine, value.element), dtype_of(value.element)), value.element)
    given = {
        "window_dimensions": t.array([1, 1, *a["kernel"]]),
        "window_strides": t.array([1, 1, *a["strides"]]),
        "window_dilations": t.array([1, 1, *a["dilations"]]),
        "padding": t.pairs([(0, 0), (0, 0), *pads]),
    }
    y = t.op("reduce_window", [value, start], out, value.element, given, region=t.combiner(COMBINERS[combine], value.element))
    if kind == "average":
        divisor = t.constant(counts.astype(dtype_of(value.element)), value.element)
        y = t.same("divide", y, t.stretch(divisor, out))
    return t.cast(y, own)


def _softmax(t: Text, x: list[Value], a: dict[str, Any], op: Operation) -> Value:
    value = t.cast(x[0], sum_type(x[0].element))
    value = t.same("subtract", value, _sum_of_rows(t, value, "max"))
    powers = t.same("exponential", value)
    total = _sum_of_rows(t, powers)
    y = t.same("subtract", value, t.same("log", total)) if a["log"] else t.same("divide", powers, total)
    return t.cast(y, x[0].element)


def _whiten(t: Text, x: list[Value], a: dict[str, Any], op: Operation) -> Value:
    value = t.cast(x[0], sum_type(x[0].element))
    count = t.filled(value.shape[-1], value)
    value = t.same("subtract", value, t.same("divide", _sum_of_rows(t, value), count))
    variance = t.same("divide", _sum_of_rows(t, t.same("multiply", value, value)), count)
    y = t.same("multiply", value, t.same("rsqrt", t.same("add", variance, t.filled(a["epsilon"], value))))
    return t.cast(y, x[0].element)


RULES: dict[str, Rule] = {
    "poplin.convolution": _convolution,
    "poplin.matmul": _matmul,
    "popnn.pool": _pool,
    "popnn.softmax": _softmax,
    "popnn.whiten": _whiten,
    "popops.broadcast": _broadcast,
    "popops.concat": _concat,
    "popops.dim_shuffle": _dim_shuffle,
    "popops.iota": _iota,
    "popops.map": _map,
    "popops.multi_slice": _multi_slice,
    "popops.multi_update": _multi_update,
    "popops.pad": _pad,
    "popops.reduce": _reduce,
    "popops.reshape": _reshape,
    "popops.slice": _slice,
    "popops.top_k": _top_k,
}


def export_stablehlo(module: ModuleOp) -> Iterator[str]:
    """Exports a module of library calls, line by line. Raises PopulusError for a call that StableHLO has no form of."""
    function = main_of(module)
    block, last = function.body.block, function.body.block.last_op
    assert isinstance(last, ReturnOp), last
    t = Text()
    arguments = [t.argument(a.type) for a in block.args]
    values: dict[SSAValue, Value] = dict(zip(block.args, arguments))
    sides = {"input_names": input_names(function), "output_names": output_names(function)}
    names = [f"{side} = {json.dumps(found)}" for side, found in sides.items()]
    head = ", ".join(f"{v.name}: {v.type}" for v in arguments)
    results = ", ".join(str(v.type) for v in last.operands)
    yield f"func.func @main({head}) -> ({results}) attributes {{{', '.join(names)}}} {{\n"
    for op in block.ops:
        if op is not last:
            _export(t, op, values)
            yield from t.take()
    given = [values[v] for v in last.operands]
    yield f"  func.return {', '.join(v.name for v in given)} : {results}\n}}\n" if given else "  func.return\n}\n"


def _export(t: Text, op: Operation, values: dict[SSAValue, Value]) -> None:
    """Exports an op. Raises PopulusError for one that has no form."""
    t.place = next(reversed(names_in(op.location)), "")
    if wide := next((v for v in (*op.operands, *op.results) if is_packed(element_type_of(v.type))), None):
        raise PopulusError(f"{where(op)}: {op.name}: {wide.type}: elements of less than a byte are not exported to StableHLO")
    if isinstance(op, ConstantOp):
        values[op.result] = t.constant(op.array(), element_type_of(op.result.type))
        return
    if isinstance(op, IfOp):
        values.update(zip(op.results, _branches(t, op, values)))
        return
    if isinstance(op, LoopOp):
        values.update(zip(op.results, _loop(t, op, values)))
        return
    rule = RULES.get(op.name)
    if rule is None:
        raise PopulusError(f"{where(op)}: {op.name} has no form in StableHLO that computes the same")
    given = {name: plain(value) for name, value in op.properties.items() if name not in ("expr", "to", "element", "operandSegmentSizes")}
    (result,) = op.results
    made = rule(t, [values[o] for o in op.operands], given, op)
    assert made.type == result.type, (op.name, made.type, result.type)
    values[result] = made


def _region(t: Text, block: Block, values: dict[SSAValue, Value]) -> list[Value]:
    """Exports the ops of a region, and gives what it yields."""
    last = block.last_op
    assert isinstance(last, Yield), last
    for op in block.ops:
        if op is not last:
            _export(t, op, values)
    return [values[v] for v in last.operands]


def _branches(t: Text, op: IfOp, values: dict[SSAValue, Value]) -> list[Value]:
    with t.regions("if", [values[op.condition]], [r.type for r in op.results]) as made:
        for region in (op.then, op.otherwise):
            with made.region([]):
                made.end(_region(t, region.block, values))
    return made.results


def _loop(t: Text, op: LoopOp, values: dict[SSAValue, Value]) -> list[Value]:
    """Exports a loop: its state is the number of the iteration, the condition if there is one, carried values, and tables of rows."""
    block, carried = op.body.block, [values[v] for v in op.carried]
    tables, conditional = [values[v] for v in op.tables], op.go is not None
    rows = [t.filled_with(0, tensor(shape_of(r.type), element_type_of(r.type))) for r in op.results[len(carried) :]]
    state = [t.constant(np.array(0, np.int32), i32), *([values[op.go]] if op.go is not None else []), *carried, *rows]
    with t.regions("while", state, [tensor(v.shape, v.element) for v in state]) as made:
        with made.region(state) as held:
            below = None
            if op.most is not None:
                below = t.compare("LT", held[0], t.constant(np.array(op.most, np.int32), i32))
            go = held[1] if conditional else None
            made.end([t.same("and", below, go) if below is not None and go is not None else below or go or t.constant(np.array(True), i1)])
        with made.region(state) as held:
            first = 2 if conditional else 1
            inner = dict(values)
            inner[block.args[0]] = held[0]
            inner.update(zip(block.args[1:], [*held[first : first + len(carried)], *(t.row(v, held[0]) for v in tables)]))
            found = _region(t, block, inner)
            go_on, new = found[: first - 1], found[first - 1 :]
            kept = [t.put_row(table, row, held[0]) for table, row in zip(held[first + len(carried) :], new[len(carried) :])]
            one = t.same("add", held[0], t.constant(np.array(1, np.int32), i32))
            made.end([one, *go_on, *new[: len(carried)], *kept])
    return made.results[2 if conditional else 1 :]
