"""Random programs of StableHLO by type, on a random engine against XLA: `make fuzz FUZZERS=stablehlo`.

A seed draws 1 to 6 ops, each of a kind that some values so far have types for, with attributes that are valid for them. Inputs are
quarters, so that most sums are exact; some are not finite. XLA in doubles tells how far rounding alone may lead.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import ml_dtypes
import numpy as np
from xdsl.dialects.builtin import bf16, f16, f32, f64, i1, i8, i16, i32, i64
from xdsl.ir import Attribute

import populus
from fuzz.children import Outcome, asking
from populus.compare import xla
from populus.dialects.support import shapes
from populus.dialects.support.element_types import dtype_of, is_float, is_integer, is_unsigned, ui8, ui16, ui32, ui64
from populus.dialects.table import context
from populus.lowering.stablehlo.export_text import Text, Value
from populus.lowering.stablehlo.importer import read_text

FLOATS: tuple[Attribute, ...] = (f32, f32, f32, f32, f64, f16, bf16)
INTEGERS: tuple[Attribute, ...] = (i32, i32, i8, i16, i64, ui8, ui16, ui32, ui64)
ELEMENTS = (*FLOATS, *FLOATS, *INTEGERS, i1)
REAL = """
abs cbrt ceil cosine exponential exponential_minus_one floor log_plus_one logistic negate round_nearest_afz round_nearest_even sign sine
sqrt tanh
"""
WHOLE = "not popcnt count_leading_zeros negate"
PAIRS = "add subtract multiply maximum minimum divide remainder"
BITS = "and or xor shift_left shift_right_logical shift_right_arithmetic"
DIRECTIONS = ("EQ", "NE", "LT", "LE", "GT", "GE")
LARGEST = 3000  # elements of a value
ROUNDED = {f64: 1e-11, f32: 2e-5, f16: 2e-2, bf16: 1e-1}


class Unfit(Exception):
    """A kind of op that no value is fit for."""


@dataclass
class Program:
    """A program under construction: its text, the values so far, and the types of its inputs."""

    rng: random.Random
    text: Text = field(default_factory=Text)
    inputs: list[Value] = field(default_factory=list[Value])
    values: list[Value] = field(default_factory=list[Value])

    def input(self, shape: Sequence[int], element: Attribute) -> Value:
        made = Value(f"%in{len(self.inputs)}", tuple(shape), element)
        self.inputs.append(made)
        return made

    def shape(self, least: int = 0, most: int = 4) -> tuple[int, ...]:
        rank = self.rng.randint(least, most)
        return tuple(0 if self.rng.random() < 0.02 else self.rng.randint(1, 6 if rank < 4 else 4) for _ in range(rank))

    def any(self, fit: Callable[[Value], bool] = lambda v: True, least: int = 0) -> Value:
        """Takes a value that is fit, one of the last more often, or a new input of a shape and type that are."""
        fitting = [v for v in self.values if fit(v) and len(v.shape) >= least]
        if fitting and self.rng.random() < 0.8:
            return fitting[max(self.rng.randrange(len(fitting)), self.rng.randrange(len(fitting)))]
        for _ in range(60):
            made = Value("", self.shape(least), self.rng.choice(ELEMENTS))
            if fit(made):
                return self.input(made.shape, made.element)
        raise Unfit

    def like(self, v: Value, shape: Sequence[int] | None = None, element: Attribute | None = None) -> Value:
        """Takes a value of the same type, or a new input."""
        wanted = (v.shape if shape is None else tuple(shape)), (v.element if element is None else element)
        same = [w for w in self.values if (w.shape, w.element) == wanted]
        return self.rng.choice(same) if same and self.rng.random() < 0.5 else self.input(*wanted)

    def scalar(self, element: Attribute) -> Value:
        return self.like(Value("", (), element))


def number(v: Value) -> bool:
    return v.element != i1


def unary(p: Program) -> Value:
    x = p.any()
    if x.element == i1:
        return p.text.same("not", x)
    if is_integer(x.element):
        return p.text.same(p.rng.choice([*WHOLE.split(), *([] if is_unsigned(x.element) else ["abs", "sign"])]), x)
    kind = p.rng.choice([*REAL.split(), "is_finite"])
    return p.text.op("is_finite", [x], x.shape, i1) if kind == "is_finite" else p.text.same(kind, x)


def binary(p: Program) -> Value:
    x = p.any()
    if is_float(x.element) and p.rng.random() < 0.1:  # of a second operand that is no zero with a sign, which would decide on pi or -pi
        return p.text.same("atan2", x, p.text.same("abs", p.like(x)))
    kinds = BITS.split()[:3] if x.element == i1 else PAIRS.split() + (BITS.split() if is_integer(x.element) else [])
    return p.text.same(p.rng.choice(kinds), x, p.like(x))


def compare(p: Program) -> Value:
    x = p.any()
    y, direction = p.like(x), p.rng.choice(DIRECTIONS)
    if is_float(x.element) and p.rng.random() < 0.4:
        given = {
            "comparison_direction": f"#stablehlo<comparison_direction {direction}>",
            "compare_type": "#stablehlo<comparison_type TOTALORDER>",
        }
        return p.text.op("compare", [x, y], x.shape, i1, given)
    return p.text.compare(direction, x, y)


def select(p: Program) -> Value:
    x = p.any()
    condition = p.like(x, shape=() if p.rng.random() < 0.3 else None, element=i1)
    return p.text.op("select", [condition, x, p.like(x)], x.shape, x.element)


def clamp(p: Program) -> Value:
    x = p.any(number)
    low, high = (p.scalar(x.element) if p.rng.random() < 0.5 else p.like(x) for _ in range(2))
    return p.text.op("clamp", [low, x, high], x.shape, x.element)


def convert(p: Program) -> Value:
    x = p.any()
    return p.text.cast(x, p.rng.choice([e for e in set(ELEMENTS) if e != x.element]))


def bitcast(p: Program) -> Value:
    x = p.any(lambda v: is_integer(v.element) and number(v))  # floats show the sign of a zero, which sums do not define
    size = dtype_of(x.element).itemsize
    to = p.rng.choice(sorted((e for e in {*INTEGERS} if dtype_of(e).itemsize == size), key=str))
    return p.text.op("bitcast_convert", [x], x.shape, to)


def reshape(p: Program) -> Value:
    x = p.any()
    sizes = list(x.shape)
    for _ in range(p.rng.randint(1, 3)):
        at = p.rng.randrange(len(sizes) + 1)
        if p.rng.random() < 0.5 and at + 1 < len(sizes):
            sizes[at : at + 2] = [sizes[at] * sizes[at + 1]]
        else:
            sizes.insert(at, 1)
    return p.text.op("reshape", [x], sizes, x.element)


def broadcast(p: Program) -> Value:
    x = p.any()
    rank = len(x.shape) + p.rng.randint(0, 2)
    dims = p.rng.sample(range(rank), len(x.shape))
    sizes = [p.rng.randint(1, 4) for _ in range(rank)]
    for n, d in zip(x.shape, dims):
        sizes[d] = sizes[d] if n == 1 else n
    return p.text.spread(x, sizes, dims)


def transpose(p: Program) -> Value:
    x = p.any()
    order = p.rng.sample(range(len(x.shape)), len(x.shape))
    return p.text.op("transpose", [x], [x.shape[d] for d in order], x.element, {"permutation": p.text.array(order)})


def slice_(p: Program) -> Value:
    x = p.any()
    low = [p.rng.randint(0, n) for n in x.shape]
    high = [p.rng.randint(a, n) for a, n in zip(low, x.shape)]
    steps = [p.rng.randint(1, 3) for _ in x.shape]
    given = {"start_indices": low, "limit_indices": high, "strides": steps}
    sizes = shapes.sliced(x.shape, low, high, steps)
    return p.text.op("slice", [x], sizes, x.element, {k: p.text.array(v) for k, v in given.items()})


def pad(p: Program) -> Value:
    x = p.any()
    low, high = ([p.rng.randint(-1, 2) for _ in x.shape] for _ in range(2))
    inside = [p.rng.choice([0, 0, 1, 2]) for _ in x.shape]
    sizes = [n + a + b + max(n - 1, 0) * i for n, a, b, i in zip(x.shape, low, high, inside)]
    if min(sizes, default=0) < 0:
        raise Unfit
    given = {"edge_padding_low": low, "edge_padding_high": high, "interior_padding": inside}
    return p.text.op("pad", [x, p.scalar(x.element)], sizes, x.element, {k: p.text.array(v) for k, v in given.items()})


def concatenate(p: Program) -> Value:
    x = p.any(least=1)
    d = p.rng.randrange(len(x.shape))
    parts = [x]
    for _ in range(p.rng.randint(1, 2)):
        parts.append(p.like(x, [p.rng.randint(1, 3) if e == d else n for e, n in enumerate(x.shape)]))
    sizes = [sum(v.shape[d] for v in parts) if e == d else n for e, n in enumerate(x.shape)]
    return p.text.op("concatenate", parts, sizes, x.element, {"dimension": f"{d} : i64"})


def reverse(p: Program) -> Value:
    x = p.any(least=1)
    dims = p.rng.sample(range(len(x.shape)), p.rng.randint(1, len(x.shape)))
    return p.text.op("reverse", [x], x.shape, x.element, {"dimensions": p.text.array(dims)})


def iota(p: Program) -> Value:
    shape = p.shape(1)
    return p.text.op("iota", [], shape, p.rng.choice([f32, i32, ui8, f64]), {"iota_dimension": f"{p.rng.randrange(len(shape))} : i64"})


def dot_general(p: Program) -> Value:
    x = p.any(lambda v: v.element in (f32, f64, i32))
    order = p.rng.sample(range(len(x.shape)), len(x.shape))
    batch = order[: p.rng.randint(0, min(2, len(order)))]
    over = order[len(batch) : len(batch) + p.rng.randint(0, 2)]
    labels = [("b", d) for d in batch] + [("k", d) for d in over] + [("n", p.rng.randint(1, 4)) for _ in range(p.rng.randint(0, 2))]
    p.rng.shuffle(labels)
    y = p.like(x, [n if kind == "n" else x.shape[n] for kind, n in labels])
    places = [[labels.index((kind, d)) for d in dims] for kind, dims in (("b", batch), ("k", over))]
    free = [n for d, n in enumerate(x.shape) if d not in (*batch, *over)], [n for kind, n in labels if kind == "n"]
    numbers = (
        f"#stablehlo.dot<lhs_batching_dimensions = {batch}, rhs_batching_dimensions = {places[0]}, "
        f"lhs_contracting_dimensions = {over}, rhs_contracting_dimensions = {places[1]}>"
    )
    sizes = [*(x.shape[d] for d in batch), *free[0], *free[1]]
    return p.text.op("dot_general", [x, y], sizes, x.element, {"dot_dimension_numbers": numbers})


def convolution(p: Program) -> Value:
    rank, draw = p.rng.randint(1, 2), p.rng.randint
    groups, batches = p.rng.choice([(1, 1), (1, 1), (2, 1), (1, 2)])
    n, i, o = batches * draw(1, 2), draw(1, 3), groups * batches * draw(1, 3)
    size, kernel = ([draw(1, 5) for _ in range(rank)] for _ in range(2))
    strides, into, apart = ([p.rng.choice([1, 1, 2]) for _ in range(rank)] for _ in range(3))
    pads = [(draw(-1, 2), draw(-1, 2)) for _ in range(rank)]
    turned = [p.rng.random() < 0.2 for _ in range(rank)]
    out = list[int]()
    for m, k, s, a, b, (low, high) in zip(size, kernel, strides, into, apart, pads):
        room, reach = (m - 1) * a + 1 + low + high, (k - 1) * b + 1
        out.append((room - reach) // s + 1 if room >= reach and room > 0 else 0)
    x, w = p.input([n, i * groups, *size], f32), p.input([o, i, *kernel], f32)
    spatial = ", ".join(map(str, range(rank)))
    given = {
        "window_strides": p.text.array(strides),
        "padding": p.text.pairs(pads),
        "lhs_dilation": p.text.array(into),
        "rhs_dilation": p.text.array(apart),
        "window_reversal": f"array<i1: {', '.join(str(v).lower() for v in turned)}>",
        "dimension_numbers": f"#stablehlo.conv<[b, f, {spatial}]x[o, i, {spatial}]->[b, f, {spatial}]>",
        "feature_group_count": f"{groups} : i64",
        "batch_group_count": f"{batches} : i64",
    }
    return p.text.op("convolution", [x, w], [n // batches, o, *out], f32, given)


def gather(p: Program) -> Value:
    x = p.any(lambda v: 0 not in v.shape, least=1)
    rank = len(x.shape)
    mapped = p.rng.sample(range(rank), p.rng.randint(1, rank))
    sizes = [p.rng.randint(1, n) for n in x.shape]
    collapsed = sorted(d for d in range(rank) if sizes[d] == 1 and p.rng.random() < 0.6)
    batch = [p.rng.randint(1, 3) for _ in range(p.rng.randint(0, 2))]
    inner = [sizes[d] for d in range(rank) if d not in collapsed]
    offsets = sorted(p.rng.sample(range(len(batch) + len(inner)), len(inner)))
    rows, columns = list(batch), list(inner)
    out = [columns.pop(0) if d in offsets else rows.pop(0) for d in range(len(batch) + len(inner))]
    indices = p.input([*batch, len(mapped)], p.rng.choice([i32, i32, i64, ui8]))
    numbers = (
        f"#stablehlo.gather<offset_dims = {offsets}, collapsed_slice_dims = {collapsed}, start_index_map = {mapped}, "
        f"index_vector_dim = {len(batch)}>"
    )
    return p.text.op("gather", [x, indices], out, x.element, {"dimension_numbers": numbers, "slice_sizes": p.text.array(sizes)})


def scatter(p: Program) -> Value:
    x = p.any(lambda v: number(v) and 0 not in v.shape and v.element not in (f16, bf16), least=1)
    rank = len(x.shape)
    mapped = p.rng.sample(range(rank), p.rng.randint(1, rank))
    inserted = sorted(d for d in range(rank) if p.rng.random() < 0.6)
    sizes = [p.rng.randint(1, n) for d, n in enumerate(x.shape) if d not in inserted]
    batch = [p.rng.randint(1, 4) for _ in range(p.rng.randint(0, 1))]
    windows = sorted(p.rng.sample(range(len(batch) + len(sizes)), len(sizes)))
    rows, columns = list(batch), list(sizes)
    updates = [columns.pop(0) if d in windows else rows.pop(0) for d in range(len(batch) + len(sizes))]
    indices = p.input([*batch, len(mapped)], i32)
    numbers = (
        f"#stablehlo.scatter<update_window_dims = {windows}, inserted_window_dims = {inserted}, "
        f"scatter_dims_to_operand_dims = {mapped}, index_vector_dim = {len(batch)}>"
    )
    kind = p.rng.choice(["add", "multiply", "minimum", "maximum", *([] if batch else [None])])  # of two that are set, any may stay
    given = {"scatter_dimension_numbers": numbers}
    return p.text.op("scatter", [x, indices, p.like(x, updates)], x.shape, x.element, given, p.text.combiner(kind, x.element))


def dynamic_slice(p: Program) -> Value:
    x = p.any()
    sizes = [p.rng.randint(0 if p.rng.random() < 0.05 else min(n, 1), n) for n in x.shape]
    at = [p.scalar(i32) for _ in x.shape]
    return p.text.op("dynamic_slice", [x, *at], sizes, x.element, {"slice_sizes": p.text.array(sizes)})


def dynamic_update(p: Program) -> Value:
    x = p.any()
    update = p.like(x, [p.rng.randint(min(n, 1), n) for n in x.shape])
    return p.text.op("dynamic_update_slice", [x, update, *(p.scalar(i32) for _ in x.shape)], x.shape, x.element)


def combination(p: Program, element: Attribute) -> tuple[str, Value]:
    """Draws a reduction: its op, and its neutral element."""
    if element == i1:
        kind = p.rng.choice(["and", "or"])
        return kind, p.text.constant(np.array(kind == "and"), i1)
    kind = p.rng.choice(["add", "maximum", "minimum", *(["multiply"] if element != bf16 else [])])
    least, most = (-np.inf, np.inf) if is_float(element) else (np.iinfo(dtype_of(element)).min, np.iinfo(dtype_of(element)).max)
    start = {"add": 0, "multiply": 1, "maximum": least, "minimum": most}[kind]  # a start that changes nothing, as reductions ask for
    return kind, p.text.constant(np.array(start, dtype_of(element)), element)


def reduce(p: Program) -> Value:
    x = p.any(least=1)
    dims = sorted(p.rng.sample(range(len(x.shape)), p.rng.randint(1, len(x.shape))))
    kind, start = combination(p, x.element)
    sizes = [n for d, n in enumerate(x.shape) if d not in dims]
    return p.text.op("reduce", [x, start], sizes, x.element, {"dimensions": p.text.array(dims)}, p.text.combiner(kind, x.element))


def reduce_window(p: Program) -> Value:
    x = p.any(lambda v: len(v.shape) < 4, least=1)
    kernel, strides, apart, into = ([p.rng.choice(c) for _ in x.shape] for c in ((1, 2, 3), (1, 1, 2), (1, 1, 2), (1, 1, 2)))
    pads = [(p.rng.randint(0, 2), p.rng.randint(0, 2)) for _ in x.shape]
    out = list[int]()
    for n, k, s, b, a, (low, high) in zip(x.shape, kernel, strides, apart, into, pads):
        room = ((n - 1) * a + 1 if n else 0) + low + high
        out.append((room - (k - 1) * b - 1) // s + 1 if room >= (k - 1) * b + 1 else 0)
    kind, start = combination(p, x.element)
    given = {"window_dimensions": kernel, "window_strides": strides, "window_dilations": apart, "base_dilations": into}
    attributes = {k: p.text.array(v) for k, v in given.items()} | {"padding": p.text.pairs(pads)}
    return p.text.op("reduce_window", [x, start], out, x.element, attributes, p.text.combiner(kind, x.element))


def sort(p: Program) -> Value:
    x = p.any(lambda v: is_integer(v.element) and number(v), least=1)
    places = p.text.op("iota", [], x.shape, i32, {"iota_dimension": f"{p.rng.randrange(len(x.shape))} : i64"})
    given = {"dimension": f"{p.rng.randrange(len(x.shape))} : i64", "is_stable": "true"}
    made = p.text.several("sort", [x, places], [x.type, places.type], given, p.text.before(x.element, p.rng.random() < 0.5))
    p.values.append(made[0])
    return made[1]


def branch(p: Program) -> Value:
    condition, x = p.scalar(i1), p.any(number)
    with p.text.regions("if", [condition], [x.type]) as made:
        for kind in ("negate", "not" if is_integer(x.element) else "abs"):
            with made.region([]):
                made.end([p.text.same(kind, x)])
    return made.results[0]


def loop(p: Program) -> Value:
    """Draws a loop that counts to a constant or to an input, with a row of a table for each iteration or none."""
    x = p.any(lambda v: v.element in (f32, i32))
    trips = p.rng.randint(0, 4)
    limit = p.text.constant(np.array(trips, np.int32), i32)
    zero = p.text.constant(np.array(p.rng.choice([0, 0, 0, 1, -1]), np.int32), i32)
    table = p.input([max(trips, 1), *x.shape], x.element)
    state = [zero, x, table, p.text.filled(0, table)]
    with p.text.regions("while", state, [v.type for v in state]) as made:
        with made.region(state) as held:
            made.end([p.text.compare("LT", held[0], limit)])
        with made.region(state) as held:
            i, now, rows, out = held
            new = p.text.same(p.rng.choice(["add", "maximum", "subtract"]), now, p.text.row(rows, i))
            out = p.text.put_row(out, new, i) if p.rng.random() < 0.7 else p.text.same("add", out, rows)
            one = p.text.constant(np.array(1, np.int32), i32)
            made.end([p.text.same("add", i, one), new, rows, out])
    p.values += [made.results[1], made.results[3]]
    return made.results[0]


KINDS = (
    unary, binary, binary, compare, select, clamp, convert, bitcast, reshape, broadcast, transpose, slice_, pad, concatenate, reverse, iota,
    dot_general, dot_general, convolution, gather, gather, scatter, scatter, dynamic_slice, dynamic_update, reduce, reduce, reduce_window,
    sort, branch, loop, loop,
)  # fmt: skip


def program(seed: int) -> tuple[str, list[Value]]:
    """Gives the text of a seed, and its inputs, whose values are those of `arrays`."""
    rng = random.Random(seed)
    p = Program(rng)
    wanted = rng.randint(1, 6)
    while wanted:
        before = len(p.inputs), len(p.text.lines)
        try:
            made = rng.choice(KINDS)(p)
        except Unfit:
            del p.inputs[before[0] :], p.text.lines[before[1] :]
            continue
        if np.prod(made.shape) > LARGEST:
            del p.inputs[before[0] :], p.text.lines[before[1] :]
            continue
        wanted -= 1
        p.values.append(made)
    used = "".join(p.text.lines)
    kept = [v for v in p.inputs if f"{v.name}," in used or f"{v.name})" in used]
    results = [v for v in p.values if f"{v.name}," not in used and f"{v.name})" not in used] or p.values[-1:]
    head, types = ", ".join(f"{v.name}: {v.type}" for v in kept), ", ".join(str(v.type) for v in results)
    return (
        f"func.func @main({head}) -> ({types}) {{\n{used}func.return {', '.join(v.name for v in results)} : {types}\n}}\n",
        kept,
    )


def arrays(seed: int, text: str, inputs: Sequence[Value]) -> list[Any]:
    """Draws the inputs of a seed. With a convolution all are finite: whether padding times infinity is NaN is the kernel's choice."""
    rng = np.random.default_rng(seed)
    strange = rng.random() < 0.2 and "convolution" not in text

    def one(v: Value) -> Any:
        dtype = dtype_of(v.element)
        if dtype == np.bool_:
            return rng.integers(0, 2, v.shape).astype(bool)
        if dtype.kind in "iu":
            limits = np.iinfo(dtype)
            low, high = (limits.min, limits.max) if strange else (max(limits.min, -5), 9)
            return rng.integers(low, high, v.shape, endpoint=True, dtype=dtype)
        found = (rng.integers(-16, 17, v.shape) / 4).astype(dtype)
        if strange and found.size:
            flat = found.reshape(-1)
            for value in (np.inf, -np.inf, np.nan, -0.0):
                flat[rng.integers(found.size)] = value
        return found

    return [one(v) for v in inputs]


def in_doubles(text: str) -> str:
    """Gives the program with doubles for all other floats."""
    for small in ("bf16", "f16", "f32"):
        text = text.replace(f"x{small}>", "xf64>").replace(f"<{small}>", "<f64>")
    return text


def judge(seed: int) -> Outcome:
    """Judges a seed: `agrees`, `rounded` where only doubles tell, `differs`, or `no oracle`. Raises PopulusError for a refusal."""
    text, inputs = program(seed)
    given = arrays(seed, text, inputs)
    try:
        with asking():
            wanted = xla.run(text, given)
    except Exception as error:
        return "no oracle", " ".join(str(error).split())[:300]
    rng = random.Random(seed)
    engine, tiles = rng.choice([("strict", 1), ("strict", 4), ("numpy", 3), ("native", 2), ("native", 7)])
    made = populus.compile(read_text(context(), text, "fuzz.mlir"), engine=engine, tiles=tiles, cache=False)
    found = list(made.run(dict(zip(made.signature.inputs, given))).values())
    wrong = difference(found, wanted, None)
    if wrong is None:
        return "agrees", ""
    if "bitcast" in text or not any(a.dtype.kind == "f" or a.dtype == ml_dtypes.bfloat16 for a in (*wanted, *given)):
        return "differs", f"{engine}, {tiles} tiles: {wrong}"
    try:
        with asking():
            exact = xla.run(in_doubles(text), [a.astype(np.float64) if dtype_is_float(a) else a for a in given])
    except Exception:
        return "differs", f"{engine}, {tiles} tiles: {wrong}"
    wrong = difference(found, wanted, exact)
    return ("rounded", "") if wrong is None else ("differs", f"{engine}, {tiles} tiles: {wrong}")


def dtype_is_float(a: Any) -> bool:
    return a.dtype.kind == "f" or a.dtype == ml_dtypes.bfloat16


def difference(found: Sequence[Any], wanted: Sequence[Any], exact: Sequence[Any] | None) -> str | None:
    """Tells where results differ by more than rounding, or than ten times what XLA's own rounding makes of them; None if nowhere."""
    for i, (a, b) in enumerate(zip(found, wanted, strict=True)):
        if (a.shape, a.dtype) != (b.shape, b.dtype):
            return f"result {i} is {a.dtype}{list(a.shape)}, for {b.dtype}{list(b.shape)}"
        x, y = (v.astype(np.float64) if dtype_is_float(v) else v for v in (a, b))
        if not dtype_is_float(a):
            bad = x != y
            if exact is not None and a.dtype.kind in "iub":
                bad &= b == exact[i]
        else:
            size = np.abs(np.where(np.isfinite(y), y, 0)).max(initial=0)
            element = next(e for e in ROUNDED if dtype_of(e) == a.dtype)
            room = ROUNDED[element] * (size + 1e-30)
            with np.errstate(all="ignore"):
                near = np.abs(x - y) <= room
                if exact is not None:
                    near |= np.abs(x - exact[i]) <= 10 * np.abs(y - exact[i]) + room
                    near |= ~np.isclose(y, exact[i], rtol=0.01, atol=room, equal_nan=True)  # XLA's rounding has another outcome
            bad = ~(near | (x == y) | (np.isnan(x) & np.isnan(y)))
        if np.any(bad):
            at = tuple(int(n) for n in np.argwhere(bad)[0]) if a.ndim else ()
            return f"result {i}: {int(np.sum(bad))} of {a.size} elements differ; at {list(at)}: {a[at]}, expected {b[at]}"
    return None


def described(seed: int) -> str:
    """Gives the text of a seed."""
    return program(seed)[0]
