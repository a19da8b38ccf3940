"""Programs: control flow, streams, shared memory, views; on the numpy engine, and equal on the others."""

import random
from itertools import pairwise

import numpy as np
import pytest
from xdsl.rewriter import InsertPoint, Rewriter

from populus.dialects.poplar import CallOp, ExecuteOp, FuncOp, GraphOp, ParamOp
from populus.dialects.support.diagnostics import PopulusError, verify
from populus.dialects.support.parser import LocatingParser
from populus.dialects.table import context
from populus.runtime import host
from populus.runtime.engine.arena import assign_offsets
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


SWAP = (
    f'poplar.func @swap {{ %p = poplar.param inout "p" {F}\n %q = poplar.param inout "q" {F}\n %d = poplar.param out "d" {F}\n'
    f'%t = poplar.var "t" {F}\n poplar.copy %p to %t {F}\n poplar.copy %q to %p {F}\n poplar.copy %t to %q {F}\n'
    f"{map_('sub(_1, _2)', 'd', 'p', 'q')} }}\n"
)


@pytest.mark.parametrize("engine", ENGINES)
def test_a_call_works_on_its_arguments_where_they_are(engine):
    arguments = ": !poplar.tensor<4xf32>, !poplar.tensor<4xf32>, !poplar.tensor<4xf32>\n"
    halves = "".join(
        f"%x{i} = poplar.slice %pair[{i}:{i + 1}, 0:4] : !poplar.tensor<2x4xf32> -> !poplar.tensor<1x4xf32>\n"
        f"%{name} = poplar.reshape %x{i} : !poplar.tensor<1x4xf32> -> !poplar.tensor<4xf32>\n"
        for i, name in enumerate("ab")
    )
    text = (
        var("pair", ": !poplar.tensor<2x4xf32>") + stream_in("pair", ": !poplar.tensor<2x4xf32>") + halves + var("c") + stream_in("c")
        + var("n") + "poplar.call @swap(%a, %b, %n) " + arguments + "poplar.call @swap(%b, %c, %n) " + arguments
        + stream_out("a") + stream_out("b") + stream_out("c") + stream_out("n") + SWAP
    )  # fmt: skip
    found = run(text, engine, pair=np.stack([X, 10 * X]), c=100 * X)
    assert {k: v.tolist() for k, v in found.items()} == {k: (n * X).tolist() for k, n in {"a": 10, "b": 100, "c": 1, "n": 99}.items()}


def test_strict_finds_an_output_that_a_function_leaves_unwritten():
    function = f'poplar.func @f {{ %p = poplar.param in "p" {F}\n %q = poplar.param out "q" {F} }}\n'
    text = var("a") + stream_in("a") + var("b") + stream_in("b") + function
    text += "poplar.call @f(%a, %b) : !poplar.tensor<4xf32>, !poplar.tensor<4xf32>\n" + stream_out("b")
    with pytest.raises(PopulusError, match="reads 4 elements of 'b' that nothing wrote"):
        run(text, "strict", a=X, b=X)


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
    monkeypatch.setitem(host.FUNCTIONS, "sort", lambda params, arrays: [np.sort(arrays[0])])
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
    spans = {i: [(a, a + rng.randint(0, 10)) for a in sorted(rng.sample(range(0, 60, 11), rng.randint(1, 3)))] for i in sizes}
    offsets, total = assign_offsets(sizes, spans)
    for i, size in sizes.items():
        assert offsets[i] % 64 == 0
        assert offsets[i] + size <= total
        for j in range(i):
            apart = offsets[i] + size <= offsets[j] or offsets[j] + sizes[j] <= offsets[i]
            assert apart or all(a[1] < b[0] or b[1] < a[0] for a in spans[i] for b in spans[j])


def random_program(seed):
    """Steps on a few variables, in loops, branches and calls with arguments; every variable is written before it is read."""
    rng = random.Random(seed)
    names = [f"v{i}" for i in range(8)]

    def step(names, defined):
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

    def function(number):
        """A function of an in, an inout and an out parameter; some call the one before."""
        p, q, r, *own = (f"f{number}_{i}" for i in range(6))
        defined = {p, q}
        body = "".join(step([*own, q, r], defined) for _ in range(rng.randint(1, 5)))
        if number and rng.random() < 0.7:
            body += f"poplar.copy %{p} to %{own[0]} {F}\n{call(number - 1, p, own[0], own[1])}"
            defined.add(own[1])
        body += map_("add(_1, _2)", r, q, own[1] if own[1] in defined else p)
        parameters = "".join(f'%{name} = poplar.param {kind} "{name}" {F}\n' for name, kind in ((p, "in"), (q, "inout"), (r, "out")))
        return f"poplar.func @f{number} {{ {parameters} {''.join(map(var, own))} {body} }}\n"

    def call(number, p, q, r):
        return f"poplar.call @f{number}(%{p}, %{q}, %{r}) {F}, !poplar.tensor<4xf32>, !poplar.tensor<4xf32>\n"

    def block(defined, depth):
        text = ""
        for _ in range(rng.randint(1, 5)):
            kind = rng.random()
            if kind < 0.2 and len(defined) > 1:
                p, q = rng.sample(sorted(defined), 2)
                r = rng.choice([name for name in names if name not in (p, q)])
                defined.add(r)
                text += call(rng.randrange(3), p, q, r)
            elif depth == 0 or kind < 0.6:
                text += step(names, defined)
            elif kind < 0.8:
                text += f"poplar.repeat {rng.randint(1, 3)} {{ {block(defined, depth - 1)} }}\n"
            else:
                left, right = set(defined), set(defined)
                text += f"poplar.if %c {B} {{ {block(left, depth - 1)} }} else {{ {block(right, depth - 1)} }}\n"
                defined |= left & right
        return text

    functions = "".join(function(i) for i in range(3))
    defined = {"v0", "v1"}
    text = "".join(map(var, names)) + var("c", B) + stream_in("v0") + stream_in("v1") + stream_in("c", B)
    text += "".join(block(defined, 2) for _ in range(4))
    return text + "".join(stream_out(name) for name in sorted(defined)) + functions


def inlined(parsed):
    """The program with the steps of functions in place of their calls, each with variables of its own."""
    copy = parsed.clone()
    while calls := [op for op in copy.walk() if isinstance(op, CallOp) and not isinstance(op.parent_op(), FuncOp)]:
        for op in calls:
            body = op.target().body.clone()
            for parameter, value in zip([p for p in body.block.ops if isinstance(p, ParamOp)], op.arguments):
                parameter.result.replace_all_uses_with(value)
                Rewriter.erase_op(parameter)
            for inner in list(body.block.ops):
                inner.detach()
                Rewriter.insert_op(inner, InsertPoint.before(op))
            Rewriter.erase_op(op)
    return copy


@pytest.mark.parametrize("seed", range(40))
def test_random_programs_give_the_same_bits_on_all_engines_and_without_calls(seed):
    text = random_program(seed)
    inputs = {"v0": X - 1.5, "v1": X * 3, "c": seed % 2 == 0}
    parsed = module(text)
    arrays = {k: np.asarray(v) for k, v in inputs.items()}
    numpy, *others = (*(Session(parsed, engine) for engine in ENGINES), Session(inlined(parsed)))
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
