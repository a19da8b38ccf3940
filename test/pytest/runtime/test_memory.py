"""Liveness, bytes on tiles, and addresses: random programs against what the definitions say."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest
from xdsl.dialects.builtin import ModuleOp, f32
from xdsl.ir import Operation, SSAValue

from helpers.effort import effort
from populus.dialects.base.tensor_op import integers
from populus.dialects.poplar import CallOp, ExecuteOp, GraphOp, RepeatOp, StorageOp, StreamInOp, StreamOutOp, TensorType, VarOp
from populus.dialects.poplar.memory import SliceOp, storage_of, view_of
from populus.dialects.poplar.overlap import covered
from populus.dialects.poplar.partition import Grid
from populus.dialects.poplar.types import GridAttr
from populus.dialects.poplar.view import View
from populus.dialects.support.diagnostics import PopulusError
from populus.dialects.table import context
from populus.lowering.driver.files import parse_text
from populus.lowering.poplar.allocate import allocate, fitted, highest
from populus.runtime import memory
from populus.runtime.exchange import Moved
from populus.runtime.liveness import liveness
from populus.runtime.memory import Tenant, layout, moved_by, summary, temporary_bytes, tenants, usage


def graph(body: str, target: str = "gc200, tiles = 16") -> GraphOp:
    module = parse_text(context(), f"poplar.graph @main target <{target}> {{\n{body}\n}}", "test.mlir")
    found = module.body.block.first_op
    assert isinstance(found, GraphOp)
    return found


def var(name: str, tiles: int = 4, start: int = 0) -> str:
    """A variable of `tiles` x 4 floats, 16 bytes on each tile."""
    begin = f" start {start}" if start else ""
    cut = f"{4 * tiles} in {tiles}" if tiles > 1 else f"{4 * tiles}"
    return f'%{name} = poplar.var "{name}" on [{cut}] order [{"0" if tiles > 1 else ""}]{begin} : !poplar.tensor<{4 * tiles}xf32>\n'


def step(to: str, *sources: str) -> str:
    """A map from variables of 16 floats to another, each in place on its tile."""
    fields = "".join(f"in x{i + 1} = %{s}[i] : !poplar.tensor<16xf32> " for i, s in enumerate(sources))
    expr = "_1" if len(sources) < 2 else "add(_1, _2)"
    return (
        f'poplar.execute "{to}" {{ poplar.family @map {{expr = #expr.fn<{expr}>}} for (i = 16 in 4) on (i) '
        f"{fields} out y = %{to}[i] : !poplar.tensor<16xf32> }}\n"
    )


def stream_in(to: str) -> str:
    return f'poplar.stream_in "{to}" to %{to} : !poplar.tensor<16xf32>\n'


def stream_out(source: str) -> str:
    return f'poplar.stream_out %{source} to "{source}" : !poplar.tensor<16xf32>\n'


def all_spans(body: str, shared: bool = False) -> dict[str, tuple[tuple[int, int], ...]]:
    return {op.label.data: spans for op, spans in liveness(graph(body), shared).spans.items()}


def spans(body: str) -> dict[str, tuple[int, int]]:
    return {label: span for label, (span,) in all_spans(body).items()}


def test_a_variable_is_needed_from_its_first_write_to_its_last_read():
    body = var("a") + var("b") + var("c") + stream_in("a") + step("b", "a") + step("c", "b") + stream_out("c")
    assert spans(body) == {"a": (0, 1), "b": (1, 2), "c": (2, 3)}


def test_a_copy_under_steps_needs_both_its_variables_until_the_last_of_them():
    copy = "poplar.copy %a to %b under 2 : !poplar.tensor<16xf32>\n"
    others = var("c") + var("d") + stream_in("c")
    body = var("a") + var("b") + others + stream_in("a") + copy + step("d", "c") + step("c", "d") + stream_out("c")
    assert spans(body) == {"c": (0, 5), "a": (1, 4), "b": (2, 4), "d": (3, 4)}


def test_what_is_read_before_it_is_written_is_always_needed():
    body = var("state") + var("b") + step("b", "state") + stream_out("b") + step("state", "b")
    assert spans(body) == {"state": (0, 2), "b": (0, 2)}


def test_constants_are_always_needed():
    constant = '%k = poplar.const "k" dense<1.0> : tensor<16xf32> on [16 in 4] order [0] : !poplar.tensor<16xf32>\n'
    body = constant + var("a") + var("b") + stream_in("a") + step("b", "a", "k") + stream_out("b")
    assert spans(body)["k"] == (0, 2)


def test_a_loop_holds_what_it_reads_from_before():
    body = var("a") + var("b") + var("c") + stream_in("a") + "poplar.repeat 3 {" + step("b", "a") + step("c", "b") + "}" + stream_out("c")
    assert spans(body) == {"a": (0, 2), "b": (1, 2), "c": (2, 3)}


def test_a_loop_holds_what_it_carries_to_the_next_round():
    body = var("a") + var("b") + stream_in("a") + "poplar.repeat 3 {" + step("b", "a") + step("a", "b") + "}" + stream_out("a")
    assert spans(body) == {"a": (0, 3), "b": (1, 2)}


def test_what_a_branch_in_a_loop_may_leave_alone_is_held_through_the_loop():
    inside = step("b", "a") + "poplar.if %p : !poplar.tensor<1xi1> {" + step("c", "b") + "} else {}"
    predicate = '%p = poplar.var "p" on [1] : !poplar.tensor<1xi1>\npoplar.stream_in "p" to %p : !poplar.tensor<1xi1>\n'
    body = predicate + var("a") + var("b") + var("c") + stream_in("a") + "poplar.repeat 3 {" + inside + "}" + stream_out("c")
    found = spans(body)
    assert found["b"] == (2, 4)
    assert found["c"] == (0, 5)  # nothing may have been written at all
    assert found["p"] == (0, 4)


def test_a_while_holds_what_its_body_writes_for_its_predicate():
    before = (
        'poplar.execute "p" { poplar.family @map {expr = #expr.fn<gt(_1, 0.0)>} for (i = 1) '
        "in x1 = %a[0] : !poplar.tensor<16xf32> out y = %p[i] : !poplar.tensor<1xi1> }\n"
    )
    body = (
        '%p = poplar.var "p" on [1] : !poplar.tensor<1xi1>\n'
        + var("a") + var("b") + stream_in("a")
        + "poplar.while %p : !poplar.tensor<1xi1> before {" + before + "} do {" + step("b", "a") + step("a", "b") + "}"
        + stream_out("a")
    )  # fmt: skip
    assert spans(body) == {"a": (0, 5), "p": (1, 2), "b": (3, 4)}


def test_parts_of_a_concatenation_add_up_to_a_whole_write():
    slices = "".join(
        f"%s{i} = poplar.slice %c[{8 * i}:{8 * i + 8}] : !poplar.tensor<16xf32> -> !poplar.tensor<8xf32>\n"
        f"%t{i} = poplar.slice %a[{8 * i}:{8 * i + 8}] : !poplar.tensor<16xf32> -> !poplar.tensor<8xf32>\n"
        f"poplar.copy %t{i} to %s{i} : !poplar.tensor<8xf32>\n"
        for i in range(2)
    )
    body = var("a") + var("c") + var("d") + stream_in("a") + slices + step("d", "c") + stream_out("d")
    assert spans(body) == {"a": (0, 2), "c": (1, 3), "d": (3, 4)}


def half(number: int, source: str, to: str, half: int) -> str:
    """A copy of half of a variable; `number` tells the views of one from those of another."""
    part = f"[{8 * half}:{8 * half + 8}] : !poplar.tensor<16xf32> -> !poplar.tensor<8xf32>\n"
    views = f"%s{number} = poplar.slice %{source}{part}%t{number} = poplar.slice %{to}{part}"
    return views + f"poplar.copy %s{number} to %t{number} : !poplar.tensor<8xf32>\n"


FRONT = (
    'poplar.execute "c" { poplar.family @map {expr = #expr.fn<_1>} for (i = 8 in 2) on (i) '
    "in x1 = %a[i] : !poplar.tensor<16xf32> out y = %c[i] : !poplar.tensor<16xf32> }\n"
)


PART = "%{0} = poplar.slice %{1}[{2}:{3}] : !poplar.tensor<16xf32> -> !poplar.tensor<{4}xf32>\n"


@pytest.mark.parametrize(("read", "held"), [((0, 8), False), ((2, 6), False), ((4, 9), True), ((8, 16), True)])
def test_a_part_is_needed_from_before_unless_it_was_written(read: tuple[int, int], held: bool):
    """The pieces 0:4 and 4:8 are written; a part of both is read; the other half is written last."""
    body = [var("x"), var("a"), var("p", 2), stream_in("x")]
    for name, begin, end in (("low", 0, 4), ("high", 4, 8), ("rest", 8, 16), ("read", *read)):
        body.append(PART.format(name, "a", begin, end, end - begin))
    body += [f'poplar.stream_in "{n}" to %{n} : !poplar.tensor<4xf32>\n' for n in ("low", "high")]
    body += [f'poplar.stream_out %read to "read" : !poplar.tensor<{read[1] - read[0]}xf32>\n']
    body += ['poplar.stream_in "rest" to %rest : !poplar.tensor<8xf32>\n', stream_out("a"), stream_out("x")]
    spans = all_spans("".join(body))
    assert spans["a"] == ((0, 6) if held else (1, 5),)


@pytest.mark.parametrize("seed", range(40))
def test_pieces_cover_a_view_as_their_elements_say(seed: int):
    rng = random.Random(seed)
    base = tuple(rng.randint(1, 4) for _ in range(3))
    count = int(np.prod(base))

    def drawn() -> View:
        low = [rng.randrange(n) for n in base]
        high = [rng.randint(a + 1, n) for a, n in zip(low, base)]
        return View.whole(base).slice(low, high, [rng.randint(1, 2) for _ in base]).dim_shuffle(rng.sample(range(3), 3))

    pieces, view = [drawn() for _ in range(rng.randint(1, 5))], drawn()
    elements = np.arange(count).reshape(base)

    def shown(v: View) -> set[int]:
        strides = [s * elements.itemsize for s in v.strides]
        return set(np.lib.stride_tricks.as_strided(elements.reshape(-1)[v.offset :], v.shape, strides).reshape(-1).tolist())

    assert covered(view, pieces) == (shown(view) <= set().union(*map(shown, pieces)))


@pytest.mark.parametrize(
    ("written", "steps"),
    [
        (half(0, "a", "c", 0), 1),
        (half(0, "a", "c", 0) + half(1, "a", "c", 0), 2),
        (FRONT, 1),
        ("poplar.repeat 0 {" + step("c", "a") + "}", 1),
    ],
    ids=["half of it", "one half twice", "fewer points than elements", "no turn"],
)
def test_a_loop_holds_what_it_may_not_write_whole_before_it_reads_it(written: str, steps: int):
    inside = written + step("d", "c") + step("e", "d")
    body = "".join(map(var, "acde")) + stream_in("a") + step("c", "a") + "poplar.repeat 3 {" + inside + "}" + stream_out("e")
    last = 1 + steps + 2
    assert spans(body) == {"a": (0, last), "c": (1, last), "d": (steps + 2, last), "e": (last, last + 1)}


PREDICATE = '%p = poplar.var "p" on [1] : !poplar.tensor<1xi1>\npoplar.stream_in "p" to %p : !poplar.tensor<1xi1>\n'


def test_what_the_body_of_a_while_writes_may_be_left_unwritten():
    inside = "poplar.while %p : !poplar.tensor<1xi1> before {} do {" + step("c", "a") + "}" + step("d", "c") + step("e", "d")
    body = PREDICATE + "".join(map(var, "acde")) + stream_in("a") + step("c", "a") + "poplar.repeat 3 {" + inside + "}" + stream_out("e")
    assert spans(body) == {"p": (0, 6), "a": (1, 6), "c": (2, 6), "d": (5, 6), "e": (6, 7)}


def test_a_result_that_one_turn_writes_is_held_for_the_others():
    inside = "poplar.repeat 2 {" + step("t", "x") + "poplar.if %p : !poplar.tensor<1xi1> {" + step("q", "t") + "} else {}" + "}"
    body = PREDICATE + var("a") + var("b") + stream_in("a") + call("f", "a", "b") + stream_out("b")
    body += function("f", var("t") + inside, x="in", q="out")
    found = all_spans(body)
    assert found["q"] == ((3, 6),)  # from the loop's first step to the copy of the results
    assert found["t"] == ((3, 5),)


def test_a_loop_does_not_hold_what_it_writes_whole_before_it_reads_it():
    inside = half(0, "a", "c", 0) + half(1, "a", "c", 1) + step("d", "c") + step("e", "d")
    body = "".join(map(var, "acde")) + stream_in("a") + step("c", "a") + "poplar.repeat 3 {" + inside + "}" + stream_out("e")
    assert spans(body)["c"] == (1, 4)


def test_a_function_is_live_where_it_is_called():
    body = (
        var("a") + var("b") + var("c") + stream_in("a") + "poplar.call @f\n" + step("c", "b") + stream_out("c")
        + "poplar.func @f {" + step("b", "a") + "}"
    )  # fmt: skip
    assert spans(body) == {"a": (0, 1), "b": (1, 2), "c": (2, 3)}


def function(name: str, body: str, **parameters: str) -> str:
    on = "on [16 in 4] order [0] : !poplar.tensor<16xf32>"
    head = "\n".join(f'%{label} = poplar.param {kind} "{label}" {on}' for label, kind in parameters.items())
    return f"poplar.func @{name} {{ {head}\n{body} }}\n"


def call(name: str, *arguments: str) -> str:
    types = ", ".join(["!poplar.tensor<16xf32>"] * len(arguments))
    return f"poplar.call @{name}({', '.join(f'%{a}' for a in arguments)}) : {types}\n"


CALLED = (
    var("a") + var("b") + var("c") + stream_in("a") + call("f", "a", "b") + step("c", "b") + call("f", "c", "b") + stream_out("b")
    + function("f", var("t") + step("t", "p") + step("q", "t"), p="in", q="out")
)  # fmt: skip


def test_a_function_has_memory_of_its_own_while_it_runs():
    """Steps: 0 stream in; 1 arguments in, 2, 3 the function, 4 results out; 5; 6 in, 7, 8, 9 out; 10 stream out."""
    assert all_spans(CALLED) == {
        "a": ((0, 1),), "b": ((4, 10),), "c": ((5, 6),), "p": ((1, 2), (6, 7)), "t": ((2, 3), (7, 8)), "q": ((3, 4), (8, 9))
    }  # fmt: skip


def test_engines_hold_arguments_while_the_function_runs():
    assert all_spans(CALLED, shared=True) == {"a": ((0, 4),), "b": ((1, 10),), "c": ((5, 9),), "t": ((2, 3), (7, 8))}


def test_what_a_function_keeps_from_one_call_to_the_next_is_always_needed():
    body = stream_in("a") + call("f", "a", "b") + call("f", "b", "a") + stream_out("a")
    body = var("a") + var("b") + body + function("f", var("t") + step("q", "t") + step("t", "p"), p="in", q="out")
    assert all_spans(body)["t"] == ((0, 9),)


def test_the_fullest_tile_is_found_with_what_lies_on_it():
    body = var("a") + var("b", 1, 2) + var("c") + stream_in("a") + step("c", "a")
    copy = (
        "%h = poplar.slice %c[0:4] : !poplar.tensor<16xf32> -> !poplar.tensor<4xf32>\n"
        "poplar.copy %h to %b : !poplar.tensor<4xf32>\n"
        'poplar.stream_out %b to "b" : !poplar.tensor<4xf32>\n'
    )
    used = summary(graph(body + copy + stream_out("a")))
    assert (used.peak_bytes, used.tile, used.step) == (48, 2, 2)
    assert used.largest == (("a", 16), ("c", 16), ("b", 16))
    assert used.bytes_by_step == (16, 32, 48, 32, 16)


def test_what_a_step_brings_from_other_tiles_takes_memory():
    body = var("a") + var("b", 4, 1) + stream_in("a") + step("b", "a") + stream_out("b")
    used = summary(graph(body))
    assert used.label == "b"
    assert used.peak_bytes == 48
    assert dict(used.largest) == {"a": 16, "b": 16, "b (exchanged)": 16}


def test_what_lies_round_the_ring_of_tiles_leaves_all_of_them():
    steps = [ModuleOp([])] * 3
    used = usage([tenant(8, 0, 0, 14, 4), tenant(16, 2, 2, 0, 1)], steps, graph("").machine)
    assert used.bytes_by_step == (8, 0, 16)


def test_what_a_step_needs_is_counted_once_until_its_variables_change(monkeypatch: pytest.MonkeyPatch):
    found = graph(var("a") + var("b") + step("b", "a"))
    (execute,) = [op for op in found.walk() if isinstance(op, ExecuteOp)]
    counted: list[str] = []

    def moved(*given: Any) -> Moved:
        counted.append(given[1].name)
        return moved_by(*given)

    monkeypatch.setattr(memory, "moved_by", moved)
    assert not temporary_bytes(execute, 16).any()
    temporary_bytes(execute, 16)
    assert counted == ["x1", "y"]
    (a, _) = [op for op in found.walk() if isinstance(op, StorageOp)]
    a.grid = GridAttr(Grid(layout(a).splits, (0,), 1))
    assert list(temporary_bytes(execute, 16)[:5]) == [16, 16, 16, 16, 0]
    assert counted == ["x1", "y"] * 2


def test_a_view_is_composed_once_until_an_op_of_it_changes(monkeypatch: pytest.MonkeyPatch):
    base = VarOp("a", TensorType.of((8, 4), f32))
    first = SliceOp(base.result, (2, 0), (8, 4), (1, 1))
    second = SliceOp(first.y, (1, 0), (3, 4), (1, 1))
    composed: list[SliceOp] = []

    def apply(self: SliceOp, view: View) -> View:
        composed.append(self)
        return whole_apply(self, view)

    whole_apply = SliceOp.apply
    monkeypatch.setattr(SliceOp, "apply", apply)
    assert [view_of(second.y).offset for _ in range(3)] == [12, 12, 12]
    assert composed == [first, second]
    first.begins, first.ends = integers((0, 0)), integers((6, 4))
    assert view_of(second.y).offset == 4
    assert composed == [first, second] * 2
    second.operands[0] = base.result
    assert view_of(second.y) == View((8, 4), 4, (2, 4), (4, 1))
    assert composed == [first, second, first, second, second]


def test_a_variable_without_layout_is_refused():
    with pytest.raises(PopulusError, match=r"test.mlir:2:1: 'a' is on no tile; poplar-map gives every variable a layout"):
        summary(graph('%a = poplar.var "a" : !poplar.tensor<16xf32>\n' + stream_in("a")))


LOOP = "poplar.repeat 2 {" + call("f", "u", "r") + step("u", "r") + "}"
FUNCTIONS = function("f", var("t") + step("t", "p") + step("q", "t", "p"), p="in", q="out") + function(
    "g", var("u") + step("u", "s") + LOOP + step("s", "u"), s="inout", r="out"
)


def random_program(rng: random.Random) -> str:
    names = [f"v{i}" for i in range(rng.randint(3, 9))]
    body = "".join(var(n, 4, rng.randint(0, 15)) for n in names) + FUNCTIONS
    known: list[str] = [names[0]]
    body += stream_in(names[0])
    depth = 0
    for _ in range(rng.randint(3, 14)):
        to = rng.choice(names)
        sources = [n for n in rng.sample(known, min(len(known), rng.randint(1, 2))) if n != to]
        if sources:
            body += step(to, *sources)
            if to not in known:
                known.append(to)
            elif rng.random() < 0.5 and sources[0] != to:
                body += call(rng.choice("fg"), sources[0], to)
        if rng.random() < 0.25 and depth < 2:
            body, depth = body + "poplar.repeat 2 {\n", depth + 1
        elif rng.random() < 0.2 and depth:
            body, depth = body + "}\n", depth - 1
    return body + "}\n" * depth + stream_out(known[-1])


def address_and_end(tenant: Tenant, tile: int) -> tuple[int, int]:
    assert isinstance(tenant.op, StorageOp)
    assert tenant.op.address is not None
    address = tenant.op.address.value.data
    return address, address + tenant.on(tile, 16)


def test_addresses_of_what_lives_together_on_a_tile_do_not_overlap():
    rng = random.Random(0)
    for _ in range(60):
        program = graph(random_program(rng))
        allocate(program)
        found, steps = tenants(program)
        top = 0
        for a, b in itertools.combinations([t for t in found if isinstance(t.op, StorageOp)], 2):
            if not any(a.at(step) and b.at(step) for step in range(len(steps))):
                continue
            for tile in range(16):
                if a.on(tile, 16) and b.on(tile, 16):
                    (a0, a1), (b0, b1) = (address_and_end(t, tile) for t in (a, b))
                    assert a1 <= b0 or b1 <= a0, (a.label, b.label, tile)
                    assert a0 % 8 == b0 % 8 == 0
                    top = max(top, a1, b1)
        assert top <= 2 * usage(found, steps, program.machine).peak_bytes + 64


def test_a_reader_of_the_program_finds_what_it_wrote():
    """Each step's sources, read from addresses on each tile while the program runs with loops taken, are what was last written."""
    rng = random.Random(1)
    for _ in range(40):
        program = graph(random_program(rng))
        allocate(program)
        run(program)


def run(program: GraphOp) -> None:
    """Runs the steps on a memory of tiles by address; values are the numbers of writes."""
    memory: dict[tuple[int, int], int] = {}
    values: dict[StorageOp, int] = {}
    writes = itertools.count(1)

    def places(op: StorageOp) -> list[tuple[int, int]]:
        assert op.address is not None
        assert op.layout is not None
        return [((op.layout.start + t) % 16, op.address.value.data + b) for t in range(4) for b in range(0, 16, 4)]

    def read(value: SSAValue) -> None:
        op = storage_of(value)
        assert all(memory[place] == values[op] for place in places(op)), op

    def write(value: SSAValue) -> None:
        op = storage_of(value)
        values[op] = next(writes)
        for place in places(op):
            memory[place] = values[op]

    def take(ops: Iterable[Operation]) -> None:
        for op in ops:
            match op:
                case RepeatOp():
                    for _ in range(2):
                        take(op.body.block.ops)
                case ExecuteOp():
                    *sources, to = op.families()[0].views
                    for source in sources:
                        read(source)
                    write(to)
                case CallOp():
                    pairs = list(op.bindings())
                    for parameter, value in pairs:
                        if parameter.read:
                            read(value)
                            write(parameter.result)
                    take(op.target().body.block.ops)
                    for parameter, value in pairs:
                        if parameter.written:
                            read(parameter.result)
                            write(value)
                case StreamInOp():
                    write(op.dst)
                case StreamOutOp():
                    read(op.src)
                case _:
                    pass

    take(program.body.block.ops)


def tenant(bytes: int, first: int, last: int, start: int = 0, cells: int = 16) -> Tenant:
    return Tenant("t", ModuleOp([]), np.full(cells, bytes, np.int64), start, ((first, last),))


def test_what_a_step_reads_and_what_it_writes_are_apart_whichever_is_placed_first():
    read, written, later = tenant(8, 0, 1), tenant(16, 1, 2), tenant(16, 2, 3)
    assert list(fitted([written, read], 16).values()) == [0, 16]
    assert list(fitted([read, written], 16).values()) == [0, 8]
    assert list(fitted([later, read], 16).values()) == [0, 0]


def test_a_gap_that_is_too_small_stays_empty():
    around, short = [tenant(8, 0, 9), tenant(16, 0, 9)], tenant(8, 0, 2)
    assert list(fitted([around[0], short, around[1], tenant(16, 3, 9)], 16).values()) == [0, 8, 16, 32]


def test_fitted_fills_a_gap_and_round_the_ring_of_tiles():
    a, b, c = tenant(64, 0, 9), tenant(32, 0, 2), tenant(64, 3, 9)
    d, e = tenant(32, 3, 5), tenant(8, 0, 9, 14, 4)
    assert list(fitted([a, b, c, d, e], 16).values()) == [0, 64, 64, 128, 160]
    ring = [tenant(8, 0, 9, 14, 4), tenant(8, 0, 9, 2, 4), tenant(8, 0, 9, 1, 1)]
    assert list(fitted(ring, 16).values()) == [0, 0, 8]


def test_what_does_not_fit_by_size_is_placed_by_its_birth():
    """By size, the third finds no room below 80 units; by birth all lie below 72. A tile has 77."""
    unit = 8192
    lives = [tenant(bytes * unit, first, last) for bytes, first, last in ((40, 4, 5), (32, 1, 3), (8, 2, 4), (40, 0, 1))]
    by_size = fitted(sorted(lives, key=lambda t: -t.largest), 16)
    assert max(address + t.largest for t, address in by_size.items()) == 80 * unit
    assert highest(lives, graph("").machine) == 72 * unit


def test_a_model_that_does_not_fit_is_told_in_one_line():
    def holding(columns: int) -> GraphOp:
        type, shape = f"!poplar.tensor<16x{columns}xf32>", f"tensor<16x{columns}xf32>"
        constant = f'%w = poplar.const "conv/W" dense<1.0> : {shape} on [16 in 16, {columns}] order [0] : {type}\n'
        return graph(constant + f'poplar.stream_out %w to "w" : {type}\n')

    allocate(holding(100000))
    with pytest.raises(PopulusError) as error:
        allocate(holding(200000))
    assert str(error.value) == (
        "the model needs 782 KiB on tile 0 at step 'w', 162 KiB more than the 620 KiB of gc200; largest: 'conv/W' 782 KiB; "
        "use more of its 1,472 tiles"
    )


def test_placing_variables_takes_effort_linear_in_their_number():
    def placing(count: int) -> int:
        rng = random.Random(2)
        births = [rng.randint(0, count) for _ in range(count)]
        tenants = [tenant(8 * rng.randint(1, 500), b, b + rng.randint(0, 60), rng.randint(0, 5887), 5888) for b in births]
        return effort(lambda: fitted(tenants, 5888))

    few, many = placing(200), placing(800)
    assert many < 4.4 * few, (few, many)
