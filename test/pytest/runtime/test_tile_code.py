"""Codelets in Python: what they compute at every cut, what is refused, their cycles, and their text as LLVM."""

from __future__ import annotations

import importlib.util
import re
import sys
from math import ceil, cos, exp, expm1, floor, log, log1p, sin, sqrt, tan, tanh
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from xdsl.dialects.builtin import f16, f32, f64, i32
from xdsl.parser import Parser

import populus
from helpers.codelet_engines import by_emitted_llvm
from populus.dialects.popart import PopartOp, calls
from populus.dialects.poplar.codelets import CODELETS, register
from populus.dialects.poplar.tile_code import BoolVector, IntVector, Vector, codelet
from populus.dialects.poplar.tile_mlir import Operand, function_of
from populus.dialects.support.diagnostics import PopulusError
from populus.dialects.support.element_types import ui8
from populus.dialects.table import context
from populus.runtime.codelets.tile_code import run
from populus.runtime.cycles.tile_code import tile_code_cycles

EXAMPLES = Path(__file__).parents[3] / "examples"
HALF = 0.5


@codelet
def leaky_in_test(x: Vector, y: Vector, alpha: float) -> None:
    for i in range(len(y)):
        y[i] = x[i] if x[i] >= 0 else alpha * x[i]


@codelet(axes={"x": "row n", "y": "row"})
def clipped_norm(x: Vector, y: Vector) -> None:
    for i in range(len(y)):
        total = 0.0
        for k in range(x.shape[1]):
            total += x[i, k] * x[i, k]
            if total > 3:
                total = 3.0
        y[i] = sqrt(total)


@codelet
def running_sum(x: Vector, y: Vector) -> None:
    total = 0.0
    for i in range(len(y)):
        total += x[i]
        y[i] = total


@codelet(axes={"x": "a b", "y": "b a"})
def turned(x: Vector, y: Vector) -> None:
    for i in range(x.shape[0]):
        for j in range(x.shape[1]):
            t = exp(x[i, j])
            if t > 1.0 and not x[i, j] > 2:
                t -= HALF
            else:
                t = min(t, 0.25, x[i, j]) ** 2.0
            y[j, i] = t


@codelet(axes={"table": "n", "indices": "i", "y": "i"})
def picked(table: IntVector, indices: IntVector, y: IntVector) -> None:
    for i in range(len(y)):
        y[i] = table[indices[i]] // 2 - table[indices[i]] % 3


@codelet
def is_large(x: Vector, y: BoolVector) -> None:
    for i in range(len(y)):
        y[i] = abs(x[i]) > 1 or int(x[i]) == -1


@codelet
def every_other(x: Vector, y: Vector, gain: int) -> None:
    for i in range(0, len(y), 2):
        y[i] = float(gain) * max(x[i], 0.0)
    for i in range(1, len(y), 2):
        y[i] = -x[i]


@codelet
def functions(x: Vector, y: Vector) -> None:
    for i in range(len(y)):
        y[i] = tanh(sin(x[i]) + cos(x[i]) * tan(x[i])) + log(1 + log1p(expm1(abs(x[i])))) - floor(x[i]) + ceil(x[i])


def result(code, shape, dtype=np.float32, *, inputs, **scalars):
    y = np.zeros(shape, dtype)
    run(code, {**dict(zip(code.inputs, inputs)), code.outputs[0]: y}, scalars)
    return y


X = np.array([[1, -2, 0.5, 0.25], [3, -0.0, -1, 2.5]], np.float32)
TABLE = np.array([9, -4, 7, 250], np.int32)
CASES = [
    (leaky_in_test, [X[0]], (4,), {"alpha": 0.5}, np.array([1, -1, 0.5, 0.25], np.float32)),
    (clipped_norm, [X], (2,), {}, np.sqrt(np.array([3, 3], np.float32))),
    (running_sum, [X[0]], (4,), {}, np.array([1, -1, -0.5, -0.25], np.float32)),
    (picked, [TABLE, np.array([3, 0, 1])], (3,), {}, np.array([124, 4, -4], np.int32)),
    (is_large, [X[1]], (4,), {}, np.array([True, False, True, True])),
    (every_other, [X[0]], (4,), {"gain": 3}, np.array([3, 2, 1.5, -0.25], np.float32)),
]


@pytest.mark.parametrize(("code", "inputs", "shape", "scalars", "expected"), CASES, ids=[c[0].name for c in CASES])
def test_a_codelet_computes_what_it_says(code, inputs, shape, scalars, expected):
    assert result(code, shape, expected.dtype, inputs=inputs, **scalars).tolist() == expected.tolist()


def test_the_axes_whose_elements_stand_alone_are_found():
    lanes = {c.name: c.lanes for c in (leaky_in_test, clipped_norm, running_sum, turned, picked, is_large, every_other)}
    assert lanes == {
        "leaky_in_test": ("i",), "clipped_norm": ("row",), "running_sum": (), "turned": ("b", "a"), "picked": ("i",), "is_large": ("i",),
        "every_other": (),
    }  # fmt: skip


@codelet
def mean_in_test(x: Vector, y: Vector) -> None:
    for i in range(len(y)):
        y[i] = x[i] / len(x)


@codelet
def numbered(x: Vector, y: Vector) -> None:
    for i in range(len(y)):
        y[i] = x[i] * i


@codelet
def neighbours(x: Vector, y: Vector) -> None:
    for i in range(len(y)):
        y[i] = x[i] + x[max(i - 1, 0)]


@codelet
def all_with_all(x: Vector, y: Vector) -> None:
    for i in range(len(y)):
        y[i] = 0.0
        for j in range(len(x)):
            y[i] += x[j]


@codelet
def twice_the_name(x: Vector, y: Vector) -> None:
    for i in range(len(y)):
        y[i] = x[i]
    for i in range(1):
        y[i] = 0.0


@codelet
def last_one(x: Vector, y: Vector) -> None:
    seen = 0.0
    for i in range(len(y)):
        if x[i] > 0:
            seen = x[i]
        y[i] = seen


@pytest.mark.parametrize("code", [mean_in_test, numbered, neighbours, all_with_all, twice_the_name, last_one], ids=lambda c: c.name)
def test_what_depends_on_more_than_its_element_is_not_cut(code):
    assert code.lanes == ()


def program(code, inputs, shape, element=None, **scalars):
    """A model of one call."""
    with populus.Builder() as b:
        values = [b.input(f"x{i}", a.shape, a.dtype) for i, a in enumerate(inputs)]
        b.output("y", b.op("relu", values[0])[0])
    module = b.module()
    from xdsl.builder import Builder
    from xdsl.rewriter import InsertPoint

    function = next(iter(module.ops))
    last = function.body.block.last_op
    old = last.prev_op
    arguments = function.body.block.args
    y = calls.codelet(Builder(InsertPoint.before(last)), code, *arguments, shape=shape, element=element, **scalars)
    last.operands[0] = y
    old.detach()
    old.erase()
    function.update_function_type()
    return module


G = np.random.default_rng(0)
LARGE = [
    (leaky_in_test, [G.normal(size=1003).astype(np.float32)], (1003,), {"alpha": 0.3}),
    (clipped_norm, [G.normal(size=(37, 19)).astype(np.float16)], (37,), {}),
    (turned, [G.normal(size=(33, 47)).astype(np.float32)], (47, 33), {}),
    (turned, [G.normal(size=(5, 9))], (9, 5), {}),
    (functions, [G.normal(size=211).astype(np.float32)], (211,), {}),
    (running_sum, [G.normal(size=29).astype(np.float32)], (29,), {}),
    (leaky_in_test, [np.zeros(0, np.float32)], (0,), {"alpha": 0.3}),
]


@pytest.mark.parametrize("tiles", [1, 4, 16, 1472])
@pytest.mark.parametrize("case", range(len(LARGE)))
def test_every_cut_and_engine_gives_the_same_bits(case, tiles):
    code, inputs, shape, scalars = LARGE[case]
    expected = result(code, shape, inputs[0].dtype, inputs=inputs, **scalars)
    module = program(code, inputs, shape, **scalars)
    for engine in ("numpy", "strict", "native"):
        compiled = populus.compile(module, target="host", tiles=tiles, engine=engine)
        assert code is functions or not compiled.session.fallbacks, "only calls of C's library may be left to NumPy"
        got = compiled.run({f"x{i}": a for i, a in enumerate(inputs)})["y"]
        if engine == "native" and code in (turned, functions):  # its own exp, and those of C's library
            assert got == pytest.approx(expected, rel=2e-6, abs=1e-6)
        else:
            assert got.tobytes() == expected.tobytes(), engine


def test_types_without_machine_code_are_left_to_numpy():
    x = G.normal(size=37).astype(ml_dtypes.float8_e4m3fn)
    compiled = populus.compile(program(leaky_in_test, [x], (37,), alpha=0.3), tiles=4, engine="native")
    expected = result(leaky_in_test, (37,), x.dtype, inputs=[x], alpha=0.3)
    assert compiled.run({"x0": x})["y"].tobytes() == expected.tobytes()
    assert len(compiled.session.fallbacks) == 1


def test_the_vertices_share_the_lanes():
    module = program(turned, [np.zeros((8, 8), np.float32)], (8, 8))
    text = str(populus.compile(module, tiles=16).module("poplar"))
    assert re.search(r"@turned\.[0-9a-f]{8} for \(.*8 in 8", text)
    assert populus.compile(module, tiles=16).profile()


def test_a_tile_program_is_text_and_back(tmp_path):
    module = program(leaky_in_test, [X[0]], (4,), alpha=0.5)
    (tmp_path / "m.mlir").write_text(str(populus.compile(module, tiles=4).module("poplar")))
    assert populus.compile(tmp_path / "m.mlir").run({"x0": X[0]})["y"].tolist() == [1, -1, 0.5, 0.25]


def test_cycles_are_counted_or_stated():
    @codelet(axes={"x": "n", "y": "n"}, cycles=lambda n: 5 + 3 * n)
    def stated(x: Vector, y: Vector) -> None:
        for i in range(len(y)):
            y[i] = x[i]

    assert tile_code_cycles(stated, {"n": 7}, {}, 6) == 26
    # 20 to begin and end; of 12 elements 2 for each of 6 workers, each 2 for the loop, 3 loads, product, comparison, selection, store
    assert tile_code_cycles(leaky_in_test, {"i": 12}, {}, 6) == 6 * (20 + 2 * (2 + 3 + 1 + 1 + 1 + 1))
    assert tile_code_cycles(clipped_norm, {"row": np.array([6, 12]), "n": 5}, {}, 6).shape == (2,)


@pytest.mark.parametrize(
    ("code", "scalars"), [(leaky_in_test, {"alpha": 0.5}), (running_sum, {}), (last_one, {})], ids=["leaky", "sum", "last"]
)
def test_the_text_computes_the_same(code, scalars):
    expected = result(code, (4,), inputs=[X[0]], **scalars)
    assert by_emitted_llvm(code, {"x": X[0]}, {"y": ((4,), np.float32)}, scalars)["y"].tolist() == expected.tolist()


@pytest.mark.parametrize(
    ("code", "types"),
    [(c, t) for c in (leaky_in_test, clipped_norm, running_sum, every_other, functions, last_one, mean_in_test) for t in (f16, f32, f64)]
    + [(picked, i32), (picked, ui8)],
    ids=lambda v: getattr(v, "name", str(v)),
)
def test_the_text_is_verified(code, types):
    module = function_of(code, {v: Operand((4,) * len(a), types) for v, a in code.axes.items()}).module()
    module.verify()
    Parser(context(), str(module)).parse_module().verify()


HEADER = "import math\nfrom math import *\nfrom populus.dialects.poplar.tile_code import *\n\n\n"
REFUSED = [
    (
        "y[0] = 1.0\n    with x:\n        pass",
        "`with x:` is not allowed; for over range, while, if, assignments, break, continue and return are",
    ),
    ("y[0] = 1.0\n    while x[0]:\n        pass", "`x[0]` is float; a comparison is expected"),
    ("y[0] = 1.0\n    while x[0] > 0:\n        pass\n    else:\n        pass", "`else` of a loop is not allowed"),
    ("for i in x:\n        y[i] = 0.0", "`for i in x:` is not allowed"),
    ("y[0] = x[0].real", "`x[0].real` is not allowed"),
    ("y[0] = sorted(x)", "x is a vector; its elements have values"),
    ("y[0] = nearest(x[0])", "`nearest(x[0])` is not allowed; the functions are abs, acos, acosh"),
    ("y[0] = x[0, 1]", "x has 1 dimensions (i) and gets 2 indices"),
    ("y[0] = x[x[0]]", "an index of x is float; int(..) makes an integer"),
    ("y[0] += x[0]", "`y[0]` is read before it is written; an output is written first, and an input is never written"),
    ("y[0] = t", "t may have no value here; assign it before, on every way"),
    ("if x[0] > 0:\n        t = 1.0\n    y[0] = t", "t may have no value here"),
    ("t = 1\n    t = 1.5\n    y[0] = t", "t is int and gets float; start it as float"),
    ("y[0] = x[0] > 0", "y holds float, and gets bool"),
    ("y[0] = 1.0 if x[0] else 0.0", "`x[0]` is float; a comparison is expected"),
    ("y[0] = x[0] << 2", "& | ^ << >> are of integers"),
    ("y[0] = 2 ** len(x)", "** of integers is that of a variable with a literal exponent of 0 to 16"),
    ("y[0] = 1 if x[0] is x[0] else 2", "comparisons are < <= > >= == !="),
    ("y[0] = 1.0\n    a, b = x[0]", "`x[0]` is one value; several targets get as many values"),
    ("y[0] = 1.0\n    a, b = 1, 2, 3", "2 targets get 3 values"),
    ("y[0] = 1.0\n    t = x", "x is a vector; its elements have values"),
    ("y[0] = 1.0\n    t = floats(int(x[0]))", "t: the sizes of a scratch vector are made of sizes, whole numbers and parameters"),
    ("y[0] = math.tau * 99999999999999999999", "does not fit 64 bits"),
    ("y[0] = sin(x[0], 2)", "`sin(x[0], 2)` is not allowed; the functions are"),
    ("y[0] = 1.0\n    sin(x[0])", "`sin(x[0])` has a value that nothing uses"),
    ("y[0] = x[0] @ x[0]", "of the operators, + - * / // % ** & | ^ << >> are allowed"),
    ("for i in range(x[0]):\n        y[i] = 0.0", "range(x[0]): a bound is float; int(..) makes an integer"),
    ("for i in range(0, 3, 0):\n        y[i] = 0.0", "the step of a range is a literal other than 0"),
    ("for i in range(3):\n        i = 2\n        y[i] = 0.0", "i is the variable of a loop, which is not assigned"),
    ("t = 1.0", "it writes no vector"),
    ("x[0] = 2.0 * x[0]\n    y[0] = x[0]", "`x[0]` is read before it is written"),
    ("y[0] = (x[0] > 0) + 1", "a boolean is no number"),
    ("x = 1.0\n    y[0] = x", "x is a parameter, which is not assigned"),
    ("n = 3", "n is a parameter, which is not assigned"),
    ("y[0] = x[-1]", "x has no negative index; `x.shape[d] - n` counts from the end of dimension d"),
    ("y[0] = x[0] or 1.0", "`x[0]` is float; a comparison is expected"),
    ("y[0] = (t := 1.0)", "`(t := 1.0)` is not allowed"),
    ("y[0] = x[0:1]", "`0:1` is not allowed"),
    ("y[0] = 1.0\n    try:\n        pass\n    except ValueError:\n        pass", "`try:` is not allowed"),
    ("y[0] = 1.0\n    def f():\n        pass", "`def f():` is not allowed"),
    ("y[0] = 1.0\n    assert x[0] > 0", "`assert x[0] > 0` is not allowed"),
    ("y[0] = x.shape[1]", "x has 1 dimensions; there is no shape[1]"),
    ("y[:] = 0.0", "`:` is not allowed"),
    ("y[0] = 1.0\n    return 1", "`return 1` is not allowed: a codelet's results are the vectors that it writes"),
]


HELPERS = """
def rec(n: int) -> int:
    return rec(n - 1)

def maybe(n: int) -> int:
    if n > 0:
        return 1

def nothing(n: int) -> None:
    return

def two(n: int) -> int:
    if n > 0:
        return 1
    return 2.0

def default(n: int = 3) -> int:
    return n

def item(x: Vector, n: int) -> float:
    return x[n]

"""
REFUSED_CALLS = [
    ("rec(3)", 9, "rec calls itself, which is not allowed; a loop with a scratch vector as its stack does the same"),
    ("maybe(3)", 11, "maybe returns int on some ways, and nothing on others"),
    ("nothing(2)", 32, "`nothing(2)` returns nothing, and a value is expected"),
    ("two(2)", 21, "two returns int, and here float"),
    ("default()", 32, "default takes 1 arguments by place, and gets 0"),
    ("item(n, x)", 32, "item takes x: Vector, and gets int"),
    ("item(x, 1.5)", 32, "item takes n: int, and gets float"),
    ("item(x=x, n=1)", 32, "arguments are given by place"),
    ("helped(3)", 32, "helped is of another file; helpers stand in the codelet's own"),
]


@pytest.mark.parametrize(("call", "line", "message"), REFUSED_CALLS, ids=[c for c, _, _ in REFUSED_CALLS])
def test_a_call_of_a_helper_that_is_refused_is_one_line(call, line, message, tmp_path):
    other = loaded(tmp_path, "def helped(n: int) -> int:\n    return n\n", 1)
    text = f"{HELPERS}\n@codelet\ndef own(x: Vector, y: Vector, n: int) -> None:\n    y[0] = {call}\n"
    sys.modules["own_codelets1"] = other
    with pytest.raises(PopulusError) as error:
        loaded(tmp_path, "from own_codelets1 import helped\n" + text)
    del sys.modules["own_codelets1"]
    assert re.match(rf"{tmp_path}/own0.py:{line}: codelet own: ", str(error.value)), str(error.value)
    assert message in str(error.value)


def loaded(tmp_path, text, number=0):
    path = tmp_path / f"own{number}.py"
    path.write_text(HEADER + text)
    spec = importlib.util.spec_from_file_location(f"own_codelets{number}", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(("body", "message"), REFUSED, ids=[m[:30] for _, m in REFUSED])
def test_what_is_outside_of_the_subset_is_one_line(body, message, tmp_path):
    with pytest.raises(PopulusError) as error:
        loaded(tmp_path, f"@codelet\ndef own(x: Vector, y: Vector, n: int) -> None:\n    {body}\n")
    assert re.match(rf"{tmp_path}/own0.py:\d+: codelet own: ", str(error.value))
    assert message in str(error.value)
    assert "\n" not in str(error.value)


def test_the_line_is_that_of_the_mistake(tmp_path):
    with pytest.raises(PopulusError, match=r"own0.py:9: codelet own: "):
        loaded(tmp_path, "@codelet\ndef own(x: Vector, y: Vector) -> None:\n    y[0] = 1.0\n    y[1] = nearest(2.0)\n")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("@codelet\ndef own(x, y: Vector) -> None:\n    y[0] = 1.0", "x is to be annotated with one of Vector, IntVector"),
        ("@codelet\ndef own(*x: Vector) -> None:\n    pass", "parameters are plain names with a type"),
        ('@codelet(axes={"z": "i"})\ndef own(y: Vector) -> None:\n    y[0] = 1.0', "axes names 'z', which is no vector of it"),
        ('@codelet(axes={"y": "i i"})\ndef own(y: Vector) -> None:\n    y[0, 0] = 1.0', "y has axes 'i i'; one or more different ones"),
        ('@codelet(whole="k")\ndef own(y: Vector) -> None:\n    y[0] = 1.0', "whole names axis 'k', which no vector has"),
    ],
)
def test_a_wrong_head_is_one_line(text, message, tmp_path):
    with pytest.raises(PopulusError) as error:
        loaded(tmp_path, text + "\n")
    assert message in str(error.value)


@codelet
def outside(x: Vector, y: Vector, shift: int) -> None:
    for i in range(len(y)):
        y[i] = x[i + shift]


@codelet
def half_written(x: Vector, y: Vector) -> None:
    for i in range(0, len(y), 2):
        y[i] = x[i]


@pytest.mark.parametrize("engine", ["numpy", "strict", "native"])
@pytest.mark.parametrize(
    ("code", "scalars", "message"),
    [
        (outside, {"shift": 1}, r"codelet outside: index 4 of x is outside of the 4 elements of dimension 0"),
        (outside, {"shift": -1}, r"codelet outside: index -1 of x is outside of the 4 elements of dimension 0"),
        (half_written, {}, r"codelet half_written: it leaves 2 elements of y unwritten"),
    ],
)
def test_what_goes_wrong_in_a_run_names_the_codelet(code, scalars, message, engine):
    with pytest.raises(PopulusError, match=message) as error:
        populus.compile(program(code, [X[0]], (4,), **scalars), engine=engine).run({"x0": X[0]})
    assert "test_tile_code.py:" in str(error.value)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([X[0]], (3,), {"alpha": 0.5}), "codelet leaky_in_test: axis i of y has 3 elements, and 4 before"),
        (([X], (2, 4), {"alpha": 0.5}), "codelet leaky_in_test: x has axes i, and is given"),
        (([X[0]], (4,), {}), "codelet leaky_in_test needs parameter 'alpha'; it takes alpha"),
        (([X[0]], (4,), {"alpha": 0.5, "beta": 1.0}), "codelet leaky_in_test has no parameter 'beta'; it takes alpha"),
        (([TABLE], (4,), {"alpha": 0.5}), "codelet leaky_in_test: x holds float, and is given i32"),
        (([X[0], X[0]], (4,), {"alpha": 0.5}), "codelet leaky_in_test reads x; 2 operands are given"),
    ],
)
def test_a_call_that_does_not_fit_is_one_line(arguments, message):
    inputs, shape, scalars = arguments
    with pytest.raises(Exception, match=re.escape(message)):
        program(leaky_in_test, inputs, shape, **scalars)


def test_equal_names_of_two_files_do_not_meet(tmp_path):
    text = "@codelet\ndef taken(y: Vector) -> None:\n    for i in range(len(y)):\n        y[i] = {}\n"
    first, second, again = (loaded(tmp_path, text.format(n), i).taken for i, n in enumerate(("1.0", "2.0", "1.0")))
    assert register(first) is register(again)
    assert register(first) is not register(second)
    assert first.symbol == again.symbol != second.symbol
    assert CODELETS[second.symbol].code is second


@pytest.mark.parametrize("tiles", [1, 4])
def test_an_op_with_a_codelet_runs_and_has_a_gradient(tiles):
    extension = populus.load(EXAMPLES / "row_norm.py")
    with populus.Builder() as b:
        b.output("y", extension.module.row_norm(b.input("x", (2, 4))))
    assert issubclass(extension.ops[0], PopartOp)
    for level in ("popart", "popops", "poplar"):
        got = populus.compile(b.module(), level=level, tiles=tiles).run({"x": X})["y"]
        assert got == pytest.approx(np.linalg.norm(X, axis=1), rel=1e-6)
