"""The tile builder by itself: copies inside of one variable, and variables that it uses again."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation

from populus.dialects.poplar import CopyOp, GraphOp, StreamOutOp, VarOp
from populus.dialects.table import context
from populus.lowering.driver.files import parse_text
from populus.lowering.poplar.from_popops import PopopsToPoplarPass
from populus.lowering.poplar.tile_builder import TileBuilder
from populus.runtime.session import Session

PROGRAM = """
poplar.graph @main target <host, tiles = 2> {
  %x = poplar.var "x" on [8] : !poplar.tensor<8xf32>
  poplar.stream_in "x" to %x : !poplar.tensor<8xf32>
  poplar.stream_out %x to "y" : !poplar.tensor<8xf32>
}
"""


@pytest.mark.parametrize(("begin", "copies"), [(1, 2), (4, 1)], ids=["overlap", "apart"])
def test_a_copy_to_elements_that_it_reads_goes_through_a_temporary(begin: int, copies: int):
    module = parse_text(context(), PROGRAM, "program.mlir")
    graph = module.body.block.first_op
    assert isinstance(graph, GraphOp)
    x = next(op for op in graph.walk() if isinstance(op, VarOp)).result
    t = TileBuilder(graph.machine)
    t.at(next(op for op in graph.walk() if isinstance(op, StreamOutOp)))
    t.copy(t.slice(x, [0], [4], [1]), t.slice(x, [begin], [begin + 4], [1]))
    module.verify()
    assert sum(isinstance(op, CopyOp) for op in graph.walk()) == copies
    given = np.arange(8, dtype=np.float32)
    expected = given.copy()
    expected[begin : begin + 4] = given[:4]
    for engine in ("numpy", "strict", "native"):
        assert Session(module, engine).run({"x": given})["y"].tolist() == expected.tolist()


FLAT, COLUMN = "tensor<4xf32>", "tensor<4x1xf32>"


def lowered(lines: list[str], result: str) -> ModuleOp:
    """Lowers a function of %x, whose lines are given."""
    text = "\n".join([f"func.func @main(%x : {FLAT}) -> {FLAT} {{", *lines, f"func.return {result} : {FLAT}", "}"])
    module = parse_text(context(), text, "program.mlir")
    PopopsToPoplarPass("host", 2).apply(context(), module)
    return module


def steps(n: int) -> list[str]:
    """Makes a chain of maps."""
    return [f"%v{i + 1} = popops.map <neg(_1)>(%{f'v{i}' if i else 'x'}) : ({FLAT}) -> {FLAT}" for i in range(n)]


def shapes(n: int) -> list[str]:
    """Makes a chain of maps, with a reshape there and back between them."""
    lines = [f"%v0 = popops.map <neg(_1)>(%x) : ({FLAT}) -> {FLAT}"]
    for i in range(n):
        lines += [
            f"%c{i} = popops.reshape %v{i} {{shape = array<i64: 4, 1>}} : ({FLAT}) -> {COLUMN}",
            f"%n{i} = popops.map <neg(_1)>(%c{i}) : ({COLUMN}) -> {COLUMN}",
            f"%v{i + 1} = popops.reshape %n{i} {{shape = array<i64: 4>}} : ({COLUMN}) -> {FLAT}",
        ]
    return lines


def backwards(n: int) -> list[str]:
    """Makes n views of one variable, of which a sum takes the last first."""
    lines = [f"%s{n} = popops.map <neg(_1)>(%x) : ({FLAT}) -> {FLAT}"]
    for i in range(n):
        lines += [
            f"%c{i} = popops.reshape %s{n} {{shape = array<i64: 4, 1>}} : ({FLAT}) -> {COLUMN}",
            f"%r{i} = popops.reshape %c{i} {{shape = array<i64: 4>}} : ({COLUMN}) -> {FLAT}",
        ]
    sums = [f"%s{i} = popops.map <add(_1, _2)>(%s{i + 1}, %r{i}) : ({FLAT}, {FLAT}) -> {FLAT}" for i in reversed(range(n))]
    return [*lines, *sums, f"%v{n} = popops.map <neg(_1)>(%s0) : ({FLAT}) -> {FLAT}"]


@pytest.mark.parametrize("make", [steps, shapes, backwards], ids=lambda make: make.__name__)
def test_a_step_in_place_does_not_ask_about_all_before_it(make: Callable[[int], list[str]], monkeypatch: pytest.MonkeyPatch):
    asked, read_by = 0, TileBuilder._read_by

    def counted(t: TileBuilder, user: Operation, within: Operation | None) -> tuple[Operation | None, bool]:
        nonlocal asked
        asked += 1
        return read_by(t, user, within)

    monkeypatch.setattr(TileBuilder, "_read_by", counted)
    lowered(make(100), "%v100")
    assert asked <= 1000


def test_a_view_that_was_made_for_a_step_in_place_may_have_a_later_reader():
    """The sum is in place of a view that it makes for itself of %a; %d has a place of its own, as %e reads the sum again."""
    row = "tensor<1x4xf32>"
    module = lowered(
        [
            f"%a = popops.map <neg(_1)>(%x) : ({FLAT}) -> {FLAT}",
            f"%c = popops.reshape %x {{shape = array<i64: 1, 4>}} : ({FLAT}) -> {row}",
            f"%b = popops.map <add(_1, mul(_2, _2))>(%a, %c) : ({FLAT}, {row}) -> {row}",
            f"%d = popops.map <neg(_1)>(%b) : ({row}) -> {row}",
            f"%e = popops.map <mul(_1, _2)>(%d, %b) : ({row}, {row}) -> {row}",
            f"%f = popops.reshape %e {{shape = array<i64: 4>}} : ({row}) -> {FLAT}",
        ],
        "%f",
    )
    assert sum(isinstance(op, VarOp) for op in module.walk()) == 3  # of %x, %a and %d
    x = np.arange(4, dtype=np.float32)
    for engine in ("numpy", "strict", "native"):
        [found] = Session(module, engine).run({"x": x}).values()
        assert found.tolist() == (-((x * x - x) ** 2)).tolist()
