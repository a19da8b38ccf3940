"""Programs: control flow, streams, shared memory, views; on the numpy engine, and equal on the others."""

import random
from itertools import pairwise

import numpy as np
import pytest

from populus.dialects.diagnostics import LocatingParser, PopulusError, verify
from populus.dialects.poplar import ExecuteOp, GraphOp
from populus.dialects.table import context
from populus.runtime.engine import program
from populus.runtime.engine.arena import place
from populus.runtime.engine.numpy import NumpyProgram
from populus.runtime.session import Session

ENGINES = ("numpy", "strict", "native")


def module(text):
    parsed = LocatingParser(context(), f"poplar.graph @main target <host, tiles = 64> {{\n{text}\n}}", "program.mlir").parse_module()
    verify(parsed)
    return parsed


def run(text, engine="numpy", **inputs):
    return Session(module(text), engine).run({k: np.asarray(v) for k, v in inputs.items()})


F = ": !poplar.tensor<4xf32>"
I = ": !poplar.tensor<i32>"
X = np.arange(4, dtype="f4")


def var(name, type=F):
    return f'%{name} = poplar.var "{name}" {type}\n'


def map_(expression, out, *inputs, type=F, inout=False):
    """An execute that maps vectors of 4 (or scalars)."""
    access = "[]" if type != F else "[d0]"
    fields = [f"{'inout' if inout and i == 0 else 'in'} x{i + 1} = %{x}{access} {type}" for i, x in enumerate(inputs)]
    fields += [] if inout else [f"out y = %{out}{access} {type}"]
    domain = "() " if type != F else "(d0 = 4 in 2) on (d0)"
    return f'poplar.execute "{out}" {{ poplar.family @map {{expr = #expr.fn<{expression}>}} for {domain}\n' + "\n".join(fields) + "\n}\n"


def stream_in(name, type=F):
    return f'poplar.stream_in "{name}" to %{name} {type}\n'


def stream_out(name, type=F):
    return f'poplar.stream_out %{name} to "{name}" {type}\n'


B = ": !poplar.tensor<i1>"
INCREMENT = map_("add(_1, 1.0)", "x", "x", inout=True)


@pytest.mark.parametrize("engine", ENGINES)
def test_repeat_runs_its_body_that_often(engine):
    for count in (0, 1, 5):
        text = var("x") + stream_in("x") + f"poplar.repeat {count} {{ {INCREMENT} }}\n" + stream_out("x")
        assert run(text, engine, x=X)["x"].tolist() == (X + count).tolist()


@pytest.mark.parametrize("engine", ENGINES)
def test_while_runs_while_its_predicate_holds(engine):
    text = (
        var("n", I) + var("limit", I) + var("go", B) + stream_in("n", I) + stream_in("limit", I)
        + f"poplar.while %go {B} before {{ {map_('lt(_1, _2)', 'go', 'n', 'limit', type=I).replace(f'%go[] {I}', f'%go[] {B}')} }}"
        + f" do {{ {map_('add(mul(_1, 2), 1)', 'n', 'n', type=I, inout=True)} }}\n" + stream_out("n", I)
    )  # fmt: skip
    assert run(text, engine, n=np.int32(1), limit=np.int32(20))["n"].item() == 31
    assert run(text, engine, n=np.int32(21), limit=np.int32(20))["n"].item() == 21


@pytest.mark.parametrize("engine", ENGINES)
def test_if_runs_one_of_two_programs(engine):
    text = (
        var("x") + var("c", B) + stream_in("x") + stream_in("c", B)
        + f"poplar.if %c {B} {{ {INCREMENT} }} else {{ {INCREMENT}{INCREMENT} }}\n" + stream_out("x")
    )  # fmt: skip
    assert run(text, engine, x=X, c=True)["x"].tolist() == (X + 1).tolist()
    assert run(text, engine, x=X, c=False)["x"].tolist() == (X + 2).tolist()


@pytest.mark.parametrize("engine", ENGINES)
def test_switch_runs_the_case_or_the_default(engine):
    text = (
        var("x") + var("s", I) + stream_in("x") + stream_in("s", I)
        + f"poplar.switch %s {I} case 3 {{ {INCREMENT} }} case -4 {{ }} default {{ {INCREMENT}{INCREMENT} }}\n" + stream_out("x")
    )  # fmt: skip
    for control, steps in ((3, 1), (-4, 0), (7, 2)):
        assert run(text, engine, x=X, s=np.int32(control))["x"].tolist() == (X + steps).tolist()


@pytest.mark.parametrize("engine", ENGINES)
def test_call_runs_a_function_on_the_variables_around_it(engine):
    text = (
        var("x") + stream_in("x") + 'poplar.sequence "twice" { poplar.call @f\n poplar.call @f }\n' + stream_out("x")
        + f"poplar.func @f {{ {INCREMENT} }}\n"
    )  # fmt: skip
    assert run(text, engine, x=X)["x"].tolist() == (X + 2).tolist()


@pytest.mark.parametrize("engine", ENGINES)
def test_views_slice_reverse_transpose_broadcast_and_reshape(engine):
    text = """
      %x = poplar.var "x" : !poplar.tensor<3x4xf32>
      poplar.stream_in "x" to %x : !poplar.tensor<3x4xf32>
      %back = poplar.slice %x[2:-1:-1, 1:4:2] : !poplar.tensor<3x4xf32> -> !poplar.tensor<3x2xf32>
      %turned = poplar.dim_shuffle %back [1, 0] : !poplar.tensor<3x2xf32> -> !poplar.tensor<2x3xf32>
      %wide = poplar.broadcast %turned : !poplar.tensor<2x3xf32> -> !poplar.tensor<2x2x3xf32>
      %y = poplar.var "y" : !poplar.tensor<12xf32>
      %cube = poplar.reshape %y : !poplar.tensor<12xf32> -> !poplar.tensor<2x2x3xf32>
      poplar.copy %wide to %cube : !poplar.tensor<2x2x3xf32>
      poplar.stream_out %y to "y" : !poplar.tensor<12xf32>
    """
    x = np.arange(12, dtype="f4").reshape(3, 4)
    expected = np.broadcast_to(x[::-1, 1::2].T, (2, 2, 3)).reshape(-1)
    assert run(text, engine, x=x)["y"].tolist() == expected.tolist()


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("value", ["dense<2.5>", "dense<[1.0, 2.0, 3.0, 4.0]>"])
def test_constants_are_read_in_place_or_stretched(engine, value):
    constant = f'%w = poplar.const "w" {value} : tensor<4xf32> {F}\n'
    text = var("x") + var("y") + stream_in("x") + constant + map_("mul(_1, _2)", "y", "x", "w") + stream_out("y")
    expected = X * 2.5 if "[" not in value else X * (X + 1)
    assert run(text, engine, x=X)["y"].tolist() == expected.tolist()


@pytest.mark.parametrize("engine", ENGINES)
def test_programs_run_again_and_leave_inputs_and_earlier_outputs_alone(engine):
    session = Session(module(var("x") + stream_in("x") + INCREMENT + stream_out("x")), engine)
    x = X.copy()
    first = session.run({"x": x})["x"]
    kept = first.copy()
    second = session.run({"x": X * 2})["x"]
    assert x.tolist() == X.tolist()
    assert first.tolist() == kept.tolist()
    assert second.tolist() == (X * 2 + 1).tolist()


def test_observe_sees_what_each_step_wrote():
    text = var("x") + var("y") + stream_in("x") + map_("neg(_1)", "y", "x") + "poplar.repeat 2 { " + INCREMENT + "}\n" + stream_out("y")
    seen = []
    Session(module(text)).run({"x": X}, observe=lambda op, written: seen.append((op.name, [a.tolist() for _, a in written])))
    executes = [written for name, written in seen if name == ExecuteOp.name]
    assert executes == [[(-X).tolist()], [(X + 1).tolist()], [(X + 2).tolist()]]
    assert seen[0] == ("poplar.stream_in", [X.tolist()])


def test_host_calls_run_on_the_host(monkeypatch):
    monkeypatch.setitem(program.HOST_FUNCTIONS, "sort", lambda op, arrays: [np.sort(arrays[0])])
    text = var("x") + var("y") + stream_in("x") + (
        '"poplar.host_call"(%x, %y) <{function = "sort", inputs = 1 : i64}> : (!poplar.tensor<4xf32>, !poplar.tensor<4xf32>) -> ()\n'
    ) + stream_out("y")  # fmt: skip
    for engine in ENGINES:
        assert run(text, engine, x=X[::-1].copy())["y"].tolist() == X.tolist()
    with pytest.raises(PopulusError, match=r"program.mlir:\d+:\d+: no host function 'sorted'; did you mean 'sort'"):
        run(text.replace('"sort"', '"sorted"'), x=X)


def chain(length):
    names = [f"v{i}" for i in range(length)]
    text = "".join(map(var, names)) + f'poplar.stream_in "x" to %v0 {F}\n'
    for a, b in pairwise(names):
        text += map_("add(_1, 1.0)", b, a)
    return text + f'poplar.stream_out %{names[-1]} to "y" {F}\n'


def test_variables_that_are_never_needed_at_one_time_share_memory():
    [graph] = module(chain(20)).body.block.ops
    assert isinstance(graph, GraphOp)
    loaded = NumpyProgram(graph)
    assert loaded.run({"x": X})["y"].tolist() == (X + 19).tolist()
    assert loaded.arena_bytes == 2 * 64


def test_places_overlap_in_memory_or_in_time_but_not_in_both():
    rng = random.Random(0)
    sizes = {i: rng.randint(0, 1000) for i in range(80)}
    spans = {i: (a, a + rng.randint(0, 10)) for i in sizes for a in (rng.randint(0, 40),)}
    offsets, total = place(sizes, spans)
    for i, size in sizes.items():
        assert offsets[i] % 64 == 0
        assert offsets[i] + size <= total
        for j in range(i):
            apart = offsets[i] + size <= offsets[j] or offsets[j] + sizes[j] <= offsets[i]
            assert apart or spans[i][1] < spans[j][0] or spans[j][1] < spans[i][0]


def random_program(seed):
    """Steps on a few variables, in loops, branches and calls; every variable is written before it is read."""
    rng = random.Random(seed)
    names = [f"v{i}" for i in range(8)]

    def step(defined):
        target = rng.choice(names)
        a, b = (rng.choice(sorted(defined)) for _ in range(2))
        defined.add(target)
        if a != target and rng.random() < 0.2:
            return f"poplar.copy %{a} to %{target} {F}\n"
        if target in (a, b):
            other = b if target == a else a
            if other == target:
                return map_("mul(_1, 0.5)", target, target, inout=True)
            return map_("sub(_1, _2)", target, target, other, inout=True)
        return map_("add(_1, mul(_2, 0.25))", target, a, b)

    def block(defined, depth):
        text = ""
        for _ in range(rng.randint(1, 5)):
            kind = rng.random()
            if depth == 0 or kind < 0.6:
                text += step(defined)
            elif kind < 0.8:
                text += f"poplar.repeat {rng.randint(1, 3)} {{ {block(defined, depth - 1)} }}\n"
            else:
                left, right = set(defined), set(defined)
                text += f"poplar.if %c {B} {{ {block(left, depth - 1)} }} else {{ {block(right, depth - 1)} }}\n"
                defined |= left & right
        return text

    defined = {"v0", "v1"}
    text = "".join(map(var, names)) + var("c", B) + stream_in("v0") + stream_in("v1") + stream_in("c", B)
    text += "".join(block(defined, 2) for _ in range(4))
    return text + "".join(stream_out(name) for name in sorted(defined))


@pytest.mark.parametrize("seed", range(40))
def test_random_programs_give_the_same_bits_on_all_engines(seed):
    text = random_program(seed)
    inputs = {"v0": X - 1.5, "v1": X * 3, "c": seed % 2 == 0}
    parsed = module(text)
    arrays = {k: np.asarray(v) for k, v in inputs.items()}
    numpy, *others = (Session(parsed, engine) for engine in ENGINES)
    for _ in range(2):  # the second run finds the memory that the first left
        a = numpy.run(arrays)
        for other in others:
            b = other.run(arrays)
            assert a.keys() == b.keys()
            assert all(a[name].tobytes() == b[name].tobytes() for name in a)


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ({}, r"input 'x' is missing; it is float32 \[4\]"),
        ({"y": X}, "the program has no input 'y'; did you mean|there are x"),
        ({"x": X.astype("f8")}, r"input 'x' is float64 \[4\], expected float32 \[4\]"),
        ({"x": X[:3]}, r"input 'x' is float32 \[3\], expected float32 \[4\]"),
    ],
)
def test_inputs_that_are_not_the_programs(inputs, message):
    with pytest.raises(PopulusError, match=message):
        Session(module(var("x") + stream_in("x") + stream_out("x"))).run(inputs)


def test_engines_that_there_are_not():
    text = var("x") + stream_in("x")
    with pytest.raises(PopulusError, match="no engine 'nunpy'; did you mean 'numpy'"):
        Session(module(text), "nunpy")


def test_a_session_runs_one_graph():
    text = "poplar.graph @a target <host> { }\npoplar.graph @b target <host> { }"
    with pytest.raises(PopulusError, match=r"the module has 2 poplar.graph; a session runs exactly one"):
        Session(LocatingParser(context(), text).parse_module())
