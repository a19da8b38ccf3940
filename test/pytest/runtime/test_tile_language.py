"""The language of codelets in Python: each construct on every engine against Python itself, and mistakes in a run."""

from __future__ import annotations

import math
import re
from math import ceil, copysign, erf, floor, fmod, gamma, hypot, isfinite, isinf, isnan, pi, sqrt, trunc

import numpy as np
import pytest

import populus
from benchmarks.codelets import levenshtein
from helpers import codelet_engines as engines
from populus.dialects.poplar.tile_code import BoolVector, IntVector, Vector, bools, codelet, floats, random_bits, uniform
from populus.dialects.poplar.tile_mlir import Operand, function_of
from populus.dialects.support.diagnostics import PopulusError
from populus.dialects.support.element_types import element_of
from populus.runtime.cycles.tile_code import tile_code_cycles
from populus.runtime.memory import summary
from populus.runtime.poprand import philox
from populus.runtime.session import graph_of

G = np.random.default_rng(7)


def clamped(i: int, n: int) -> int:
    if i < 0:
        return 0
    return i if i < n else n - 1


def largest(x: Vector, first: int, last: int) -> int:
    best = first
    for i in range(first, last):
        if x[i] > x[best]:
            best = i
    return best


def exchange(x: Vector, i: int, j: int) -> None:
    x[i], x[j] = x[j], x[i]


@codelet(axes={"x": "row n", "top": "row two", "at": "row two"})
def top_two(x: Vector, top: Vector, at: IntVector) -> None:
    for r in range(x.shape[0]):
        first = 0
        for i in range(x.shape[1]):
            if x[r, i] > x[r, first]:
                first = i
        second = 1 if first == 0 else 0
        for i in range(x.shape[1]):
            if i == first:
                continue
            if x[r, i] > x[r, second]:
                second = i
        top[r, 0], top[r, 1] = x[r, first], x[r, second]
        at[r, 0], at[r, 1] = first, second


@codelet(axes={"x": "n", "y": "n"})
def selection_sort(x: Vector, y: Vector) -> None:
    for i in range(len(x)):
        y[i] = x[i]
    for i in range(len(x) - 1, 0, -1):
        exchange(y, i, largest(y, 0, i + 1))


@codelet(axes={"values": "nz", "column": "nz", "start": "ends", "x": "n", "y": "row"})
def csr_product(values: Vector, column: IntVector, start: IntVector, x: Vector, y: Vector) -> None:
    for r in range(len(y)):
        total = 0.0
        for k in range(start[r], start[r + 1]):
            total += values[k] * x[column[k]]
        y[r] = total


@codelet(axes={"x": "n", "value": "n", "count": "n", "runs": "one"})
def run_lengths(x: IntVector, value: IntVector, count: IntVector, runs: IntVector) -> None:
    for i in range(len(x)):
        value[i], count[i] = 0, 0
    last = -1
    for i in range(len(x)):
        if last >= 0 and value[last] == x[i]:
            count[last] += 1
        else:
            last += 1
            value[last], count[last] = x[i], 1
    runs[0] = last + 1


@codelet(axes={"x": "row n", "y": "row"})
def first_positive(x: Vector, y: IntVector) -> None:
    for r in range(len(y)):
        y[r] = -1
        i = 0
        while True:
            if i == x.shape[1]:
                break
            if x[r, i] > 0:
                y[r] = i
                break
            i += 1


@codelet(axes={"x": "i", "y": "i", "z": "i"})
def bits(x: IntVector, y: IntVector, z: BoolVector) -> None:
    for i in range(len(y)):
        n = x[i]
        y[i] = ((n & 12) | 3) ^ ~n ^ (n << 2) ^ (n >> (n & 7)) ^ (n >> 70) ^ n**3 ^ (1 << (n & 127))
        z[i] = (-3 <= n < 5) ^ (n != 2) | (n == 4) and not (n % 3 == 0 and n // 7 > 0)


@codelet
def rounded(x: Vector, y: Vector) -> None:
    for i in range(len(y)):
        t = x[i] % 0.75 + x[i] // -0.75 + fmod(x[i], 0.4)
        y[i] = t + float(round(x[i])) * 2 + float(floor(x[i]) - ceil(x[i])) + trunc(x[i]) + copysign(3.0, x[i]) + round(x[i]) % 5


@codelet
def tests_of_floats(x: Vector, y: Vector) -> None:
    for i in range(len(y)):
        if isnan(x[i]):
            y[i] = 1.0
        elif isinf(x[i]) or not isfinite(x[i]):
            y[i] = 2.0
        else:
            y[i] = min(x[i], 0.5, -x[i]) + max(0.25, x[i]) - abs(-x[i]) + x[i] ** 2


@codelet
def gelu(x: Vector, y: Vector) -> None:
    for i in range(len(y)):
        y[i] = 0.5 * x[i] * (1.0 + erf(x[i] / sqrt(2.0)))


@codelet
def library(x: Vector, y: Vector) -> None:
    for i in range(len(y)):
        y[i] = (
            hypot(x[i], 2.0) + gamma(abs(x[i]) + 1) + math.lgamma(2.5) + math.erfc(x[i]) + math.degrees(x[i]) / pi + math.log(8.0, 9 + x[i])
        )


@codelet(axes={"y": "i"})
def noise(y: Vector, seed: int) -> None:
    for i in range(len(y)):
        y[i] = uniform(seed, i) - 0.5


@codelet(axes={"x": "n", "y": "n"})
def prefix_until(x: Vector, y: Vector, most: float) -> None:
    for i in range(len(y)):
        y[i] = 0.0
    if most < 0:
        return
    y[0] = x[0]
    for i in range(1, len(x)):
        if y[i - 1] + x[i] > most:
            return
        y[i] = y[i - 1] + x[i]


@codelet(axes={"x": "row n", "y": "row n"})
def reversed_rows(x: Vector, y: Vector) -> None:
    for r in range(x.shape[0]):
        line = floats(x.shape[1])
        seen = bools(x.shape[1])
        for i in range(x.shape[1] - 1, -1, -2):
            line[i], seen[i] = x[r, i], True
        for i in range(x.shape[1]):
            y[r, i] = line[len(line) - 1] if not seen[i] else line[clamped(i - 1, x.shape[1])]


@codelet(axes={"x": "row n", "y": "row"})
def flags(x: Vector, y: Vector) -> None:
    for r in range(len(y)):
        done, found = False, 0
        i = 0
        while not done:
            found += int(x[r, i] > 0)
            i += 1
            done = i == x.shape[1] or (found == 2 and x[r, i] < 1)
        y[r] = float(done) + 10 * found + i


X = G.normal(size=(5, 7))
SMALL = G.integers(-9, 40, 19)
ODD = np.array([0.5, -0.5, 1.5, 2.5, -2.5, 0.0, -0.0, 3.7, -7.2, 0.75, -0.75])
CASES = [
    (top_two, {"x": X}, {"top": ((5, 2), "f8"), "at": ((5, 2), "i4")}, {}, ("row",)),
    (selection_sort, {"x": X[0]}, {"y": ((7,), "f8")}, {}, ()),
    (csr_product, {"values": X.reshape(-1)[:9], "column": G.integers(0, 7, 9), "start": np.array([0, 2, 2, 6, 9]), "x": X[1]},
     {"y": ((4,), "f8")}, {}, ()),
    (levenshtein, {"a": G.integers(0, 3, 9), "b": G.integers(0, 3, 6)}, {"y": ((1,), "i8")}, {}, ()),
    (run_lengths, {"x": np.array([4, 4, 1, 1, 1, 0, 4])}, {"value": ((7,), "i8"), "count": ((7,), "i4"), "runs": ((1,), "i4")}, {}, ()),
    (first_positive, {"x": np.concatenate([X, -abs(X[:2])])}, {"y": ((7,), "i4")}, {}, ("row",)),
    (bits, {"x": SMALL}, {"y": ((19,), "i8"), "z": ((19,), "?")}, {}, ("i",)),
    (rounded, {"x": ODD}, {"y": ((11,), "f8")}, {}, ("i",)),
    (tests_of_floats, {"x": np.array([np.nan, np.inf, -np.inf, 1.0, -3.0, 0.25])}, {"y": ((6,), "f8")}, {}, ("i",)),
    (prefix_until, {"x": abs(X[2])}, {"y": ((7,), "f8")}, {"most": 2.0}, ()),
    (prefix_until, {"x": abs(X[2])}, {"y": ((7,), "f8")}, {"most": -1.0}, ()),
    (reversed_rows, {"x": X}, {"y": ((5, 7), "f8")}, {}, ("row",)),
    (flags, {"x": X}, {"y": ((5,), "f8")}, {}, ("row",)),
]  # fmt: skip


@pytest.mark.parametrize(("code", "inputs", "outputs", "scalars", "lanes"), CASES, ids=[f"{c[0].name}-{i}" for i, c in enumerate(CASES)])
def test_every_way_to_run_a_codelet_gives_the_bits_of_python(code, inputs, outputs, scalars, lanes):
    assert code.lanes == lanes
    expected = engines.by_plain_python(code, inputs, outputs, scalars)
    found = {
        "interpreter": engines.by_interpreter(code, inputs, outputs, scalars),
        "emitted": engines.by_emitted_llvm(code, inputs, outputs, scalars),
        **{e: engines.by_engine(code, inputs, outputs, scalars, e, tiles=3) for e in ("numpy", "strict", "native")},
    }
    for way, arrays in found.items():
        for v in outputs:
            assert arrays[v].tobytes() == expected[v].tobytes(), (way, v, arrays[v], expected[v])


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("code", [gelu, library], ids=lambda c: c.name)
def test_functions_are_right_to_some_units_of_the_last_place(code, dtype):
    x = np.linspace(-3, 3, 41).astype(dtype)
    outputs = {"y": ((41,), dtype)}
    expected = np.zeros(41)
    from populus.runtime.codelets.plain_python import plain

    plain(code, {"x": x, "y": expected}, {}, double=True)
    tolerance = {2: 2e-3, 4: 4e-6, 8: 1e-14}[x.itemsize]
    for engine in ("numpy", "strict", "native"):
        got = engines.by_engine(code, {"x": x}, outputs, {}, engine, tiles=3)["y"]
        assert got == pytest.approx(expected, rel=tolerance, abs=tolerance), engine


def test_random_numbers_are_those_of_philox_on_every_engine():
    counters = np.array([0, 5, 2**33 + 7], np.uint64)
    low, high = counters.astype(np.uint32), (counters >> np.uint64(32)).astype(np.uint32)
    words = philox((low, high, np.zeros(3, np.uint32), np.zeros(3, np.uint32)), (99, 3))[0]
    assert [random_bits(3 << 32 | 99, int(c)) for c in counters] == words.tolist()
    outputs = {"y": ((50,), "f4")}
    made = np.array([uniform(7, i) - 0.5 for i in range(50)], "f4")
    assert engines.by_interpreter(noise, {}, outputs, {"seed": 7})["y"].tolist() == made.tolist()
    assert engines.by_emitted_llvm(noise, {}, outputs, {"seed": 7})["y"].tolist() == made.tolist()


def test_scratch_vectors_are_counted_in_tile_memory():
    @codelet(axes={"x": "n", "y": "n"})
    def with_scratch(x: Vector, y: Vector) -> None:
        t = floats(1000)
        for i in range(len(y)):
            t[i] = x[i]
            y[i] = t[i]

    module = engines.model(with_scratch, {"x": X[0].astype("f4")}, {"y": ((7,), "f4")}, {})
    program = populus.compile(module, target="gc200", tiles=4)
    graph = graph_of(program.module("poplar"))
    assert summary(graph).peak_bytes >= 4000
    assert any(n >= 4000 for _, n in summary(graph).largest)


# -- mistakes in a run


@codelet(axes={"x": "row n", "at": "row", "y": "row"})
def picked(x: Vector, at: IntVector, y: Vector) -> None:
    for r in range(len(y)):
        y[r] = x[r, at[r]]


@codelet(axes={"x": "row", "y": "row"})
def divided(x: IntVector, y: IntVector) -> None:
    for r in range(len(y)):
        y[r] = 100 // x[r]


@codelet(axes={"x": "row", "y": "row"})
def truncated(x: Vector, y: IntVector) -> None:
    for r in range(len(y)):
        y[r] = int(x[r])


@codelet(axes={"x": "row", "y": "row"}, steps=1000)
def endless(x: IntVector, y: IntVector) -> None:
    for r in range(len(y)):
        n = 0
        while n != x[r]:
            n += 1
        y[r] = n


@codelet(axes={"x": "row", "y": "row"}, steps=1000)
def too_far(x: IntVector, y: IntVector) -> None:
    for r in range(len(y)):
        total = 0
        for i in range(x[r]):
            total += i
        y[r] = total


@codelet(axes={"x": "row", "y": "row"})
def shifted(x: IntVector, y: IntVector) -> None:
    for r in range(len(y)):
        y[r] = 1 << x[r]


@codelet(axes={"x": "n", "y": "n"})
def read_early(x: IntVector, y: IntVector) -> None:
    for i in range(len(y)):
        y[x[i]] = 1 if i == 0 else y[x[i - 1]] + 1
        y[i] = y[max(x[i] - 1, 0)]


ZEROS = np.zeros((6, 4), "f4")
ROWS = np.array([3, 1, 2, 2, 0, 1])
WRONG = [
    (picked, {"x": ZEROS, "at": np.array([0, 1, 2, 3, 4, 0])}, "f4", "index 4 of x is outside of the 4 elements of dimension 1", 4),
    (picked, {"x": ZEROS, "at": np.array([0, -1, 2, 3, 3, 0])}, "f4", "index -1 of x is outside of the 4 elements of dimension 1", 1),
    (divided, {"x": ROWS}, "i8", "an integer is divided by 0", 4),
    (truncated, {"x": np.array([1, 2, 3, np.nan, 0, 0])}, "i4", "a float that is NaN, infinite or beyond 64 bits has no integer", 3),
    (truncated, {"x": np.array([1, 2, 1e19, 0, 0, 0])}, "i4", "a float that is NaN, infinite or beyond 64 bits has no integer", 2),
    (endless, {"x": np.array([5, 1000, 3, 4, 5, -1])}, "i4", "a loop has more than 1000 turns, which counts as endless", 5),
    (too_far, {"x": np.array([5, 1000, 3, 1001, 5, -1])}, "i4", "a loop has more than 1000 turns, which counts as endless", 3),
    (shifted, {"x": np.array([5, 0, -3, 1, 5, 1])}, "i4", "a shift by -3, which is negative", 2),
]  # fmt: skip


@pytest.mark.parametrize("engine", ["numpy", "strict", "native"])
@pytest.mark.parametrize(("code", "inputs", "dtype", "message", "vertex"), WRONG, ids=[f"{w[0].name}-{i}" for i, w in enumerate(WRONG)])
def test_a_mistake_in_a_run_names_the_vertex_and_the_index(code, inputs, dtype, message, vertex, engine):
    outputs = {"y": ((6,), dtype)}
    with pytest.raises(PopulusError) as error:
        engines.by_engine(code, inputs, outputs, {}, engine, tiles=6, parts={"row": 6})
    assert re.search(
        rf"vertex {vertex} \(tile {vertex}\): .*test_tile_language.py:\d+: codelet {code.name}: {re.escape(message)}", str(error.value)
    )


@pytest.mark.parametrize("engine", ["numpy", "strict", "native"])
def test_an_element_that_is_read_too_early_is_an_error(engine):
    with pytest.raises(PopulusError, match="codelet read_early: an element of y is read before it is written"):
        engines.by_engine(read_early, {"x": np.array([3, 3, 2, 1])}, {"y": ((4,), "i8")}, {}, engine)
    good = engines.by_engine(read_early, {"x": np.array([0, 1, 2, 3])}, {"y": ((4,), "i8")}, {}, engine)["y"]
    assert good.tolist() == engines.by_plain_python(read_early, {"x": np.arange(4)}, {"y": ((4,), "i8")}, {})["y"].tolist()


def test_a_program_runs_again_after_a_mistake():
    inputs, outputs = {"x": ROWS + 1}, {"y": ((6,), "i8")}
    program = populus.compile(engines.model(divided, inputs, outputs, {}), target="host", tiles=2, engine="native")
    for _ in range(2):
        with pytest.raises(PopulusError, match="vertex 1"):
            program.run({"x": ROWS})
        assert program.run(inputs)["y"].tolist() == (100 // (ROWS + 1)).tolist()


# -- what is proved takes no check


def sites(code, **shapes):
    """The checks of a codelet for float and 32-bit vectors of these shapes."""
    types = {"float": np.float32, "int": np.int32, "bool": np.bool_}
    operands = {v: Operand(s, element_of(np.dtype(types[code.kinds[v]]))) for v, s in shapes.items()}
    return [(s.why, s.vector) for s in function_of(code, operands).sites]


def test_proved_indices_take_no_check():
    assert sites(levenshtein, a=(9,), b=(6,), y=(1,)) == []
    assert sites(top_two, x=(5, 7), top=(5, 2), at=(5, 2)) == [("index", "x")] * 2 + [("index", "x")] * 2
    assert sites(reversed_rows, x=(5, 7), y=(5, 7)) == []
    assert sites(csr_product, values=(9,), column=(9,), start=(5,), x=(7,), y=(4,)) == [
        ("turns", ""), ("index", "values"), ("index", "column"), ("index", "x"),
    ]  # fmt: skip
    assert sites(picked, x=(6, 4), at=(6,), y=(6,)) == [("index", "x")]


def test_only_outputs_that_nothing_proves_are_recorded():
    codelets = levenshtein, selection_sort, top_two, run_lengths, prefix_until, read_early, first_positive
    tracked = {c.name: set(c.tracked) for c in codelets}
    assert tracked == {
        "levenshtein": {"y"}, "selection_sort": set(), "top_two": {"top", "at"}, "run_lengths": {"runs"}, "prefix_until": set(),
        "read_early": {"y"}, "first_positive": set(),
    }  # fmt: skip
    operands = {v: Operand(s, element_of(np.dtype(np.int64))) for v, s in {"a": (9,), "b": (6,), "y": (1,)}.items()}
    assert function_of(levenshtein, operands).tracked == ()  # y has one element, which is written


@codelet(axes={"x": "n", "y": "n"})
def one_name_for_two(x: Vector, y: Vector) -> None:
    for i in range(len(y)):
        y[i] = x[i] + 1
    i = 1
    while i < 3:
        y[i] = 0.0
        i += 1


def test_a_loop_s_variable_and_a_local_one_may_have_one_name():
    assert one_name_for_two.lanes == ()
    outputs = {"y": ((5,), "f4")}
    for way in (engines.by_plain_python, engines.by_interpreter, engines.by_emitted_llvm):
        assert way(one_name_for_two, {"x": np.ones(5, "f4")}, outputs, {})["y"].tolist() == [2, 0, 0, 2, 2]
    assert engines.by_engine(one_name_for_two, {"x": np.ones(5, "f4")}, outputs, {}, "native", 2)["y"].tolist() == [2, 0, 0, 2, 2]


def test_threads_share_the_blocks_of_a_lane():
    x = G.normal(size=(5000, 7)).astype("f4")
    inputs, outputs = {"x": x}, {"y": ((5000, 7), "f4")}
    module = engines.model(reversed_rows, inputs, outputs, {})
    one, two = (populus.compile(module, target="host", tiles=4, engine="native", threads=n).run(inputs)["y"] for n in (1, 2))
    assert one.tobytes() == two.tobytes() == engines.by_interpreter(reversed_rows, inputs, outputs, {})["y"].tobytes()
    wide = {"x": np.zeros((5000, 4), "f4"), "at": np.where(np.arange(5000) >= 3210, 9, 1)}
    model = engines.model(picked, wide, {"y": ((5000,), "f4")}, {}, parts={"row": 5000})
    with pytest.raises(PopulusError, match="vertex 3210 .*index 9 of x"):  # the first one, whichever thread finds it
        populus.compile(model, target="host", tiles=5000, engine="native", threads=2).run(wide)


@pytest.mark.parametrize("n", [1, 2, 3, 6])
def test_each_part_of_an_axis_has_a_tile(n):
    model = engines.model(divided, {"x": ROWS}, {"y": ((6,), "i8")}, {}, parts={"row": n})
    text = str(populus.compile(model, target="gc200", tiles=8).module("poplar"))
    said = f"(row = 6 in {n}) on (row)" if n > 1 else "(row = 6)"
    assert re.search(rf"@divided\.\w+ for {re.escape(said)}$", text, re.MULTILINE)
    assert f'"popops.codelet" on [6 in {n}] order [0]' in text or n == 1


def test_many_lanes_of_large_scratch_run_in_parts():
    x = G.normal(size=(300, 400))
    inputs, outputs = {"x": x}, {"y": ((300, 400), "f8")}
    from populus.runtime.codelets import tile_code

    whole = engines.by_interpreter(reversed_rows, inputs, outputs, {})["y"]
    before, tile_code.SCRATCH_BYTES = tile_code.SCRATCH_BYTES, 1 << 16
    try:
        parts = engines.by_interpreter(reversed_rows, inputs, outputs, {})["y"]
    finally:
        tile_code.SCRATCH_BYTES = before
    assert parts.tobytes() == whole.tobytes()


def test_rows_share_the_entries_in_the_count_of_cycles():
    sizes = {"nz": 1600, "ends": 101, "n": 50, "row": 100}
    once = tile_code_cycles(csr_product, sizes, {}, 1)
    twice = tile_code_cycles(csr_product, {**sizes, "nz": 3200}, {}, 1)
    assert 1600 * 5 < once < 1600 * 12
    assert twice - once == pytest.approx(once, rel=0.2)
