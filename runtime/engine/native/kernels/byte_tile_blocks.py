"""Kernel of products of 8-bit integers in tile registers: blocks of 32 rows by 32 columns, as `byte_contraction.py` otherwise.

A block reads its rows in place if they are equally far apart. Else it first copies them, one step of k after the other, and does so
once for all columns of a panel. Steps of k are up to 64 adjacent bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from populus.runtime.codelets.task import Array
from populus.runtime.engine.native.codegen import byte_dots, byte_tiles
from populus.runtime.engine.native.codegen.byte_tiles import LEFT, LINE, RIGHT, ROWS
from populus.runtime.engine.native.codegen.cpu import Machine
from populus.runtime.engine.native.codegen.jit import Kernel
from populus.runtime.engine.native.codegen.llvm_builder import Function
from populus.runtime.engine.native.kernels.contraction import start_of
from populus.runtime.engine.native.kernels.formula_words import WORDS, call_formula
from populus.runtime.engine.native.kernels.panels import Panels, Table

FEWEST_ROWS, FEWEST_GROUPS = 12, 7  # from which the registers are faster than vectors
MOST_STEPS = 256  # of k: bytes on the stack for the rows of a block
PANEL_VECTORS, LANES = 4, 16
FIRST_WORD = 16  # the arguments from here on are those of a formula


@dataclass(frozen=True)
class Steps:
    """Steps of k: `groups` times four adjacent bytes each; their byte offsets; bytes from row to row, or 0 if they differ."""

    groups: int
    offsets: Table
    stride: int


def steps_of(machine: Machine, rows: Table, depth: Table, fewest: int = FEWEST_GROUPS) -> Steps | None:
    """Divides k into the longest steps of equal length; None if the registers are of no use. `depth`: of each four bytes."""
    if not machine.tiles or len(rows) < FEWEST_ROWS:
        return None
    breaks = np.flatnonzero(np.diff(depth) != 4) + 1
    for groups in range(min(16, len(depth)), fewest - 1, -1):
        if len(depth) % groups == 0 and not np.any(breaks % groups) and len(depth) // groups <= MOST_STEPS:
            strides = np.diff(rows)
            stride = int(strides[0]) if np.all(strides == strides[0]) else 0
            return Steps(groups, np.ascontiguousarray(depth[::groups]), stride)
    return None


def _copy_rows(f: Function, signed: bool, a: str, places: str, depth: str, steps: str, groups: str, held: str, count: str) -> None:
    """Emits the copying of a block's rows, whose offsets begin at `places`, to `held` as [step, row, LINE]; i8 with 128 more."""
    bytes, mask = f"<{LINE} x i8>", f"<{LINE} x i1>"
    counts = f"<{LINE} x i8> <{', '.join(f'i8 {i}' for i in range(LINE))}>"
    used = f.let(f"icmp ult {counts}, {f.splat('i8', LINE, f.let(f'trunc i64 {f.mul(groups, 4)} to i8'))}")

    def copied(r: str) -> None:
        # Beyond the last row it is computed, and not stored, again.
        last = f.call("i64", "llvm.smin.i64", ("i64", r), ("i64", f.sub(count, 1)))
        source, target = f.beyond(a, f.load("i64", f.at(places, last, "i64"))), f.beyond(held, f.mul(r, LINE))

        def step(s: str) -> None:
            place = f.beyond(source, f.load("i64", f.at(depth, s, "i64")))
            operands = ("ptr", place), ("i32 immarg", "1"), (mask, used), (bytes, "zeroinitializer")
            value = f.call(bytes, f"llvm.masked.load.v{LINE}i8.p0", *operands)
            if signed:
                value = f.let(f"xor {bytes} {value}, splat (i8 -128)")
            f.store(bytes, value, f.beyond(target, f.mul(s, ROWS * LINE)), LINE)

        f.loop(0, steps, step)

    f.loop(0, ROWS, copied)


def _multiply(
    f: Function, vectors: int, steps: str, groups: str, line: str, panel: str, begin: str, sums: str, left: Callable[[str], None]
) -> None:
    """Emits the sums of ROWS rows by one or two vectors. `left`: loads both registers of the left-hand side in a step.

    `line`: bytes of a row of the panel, and of the sums.
    """
    for q in range(vectors):
        for half in range(2):
            byte_tiles.load(f, half + 2 * q, f.at(begin, q * LANES, "i32"), 0)

    def step(s: str) -> None:
        left(s)
        columns = f.beyond(panel, f.mul(f.mul(s, groups), line))
        for q in range(vectors):
            byte_tiles.load(f, RIGHT + q, f.beyond(columns, q * LINE), line)
            for half in range(2):
                byte_tiles.add_product(f, half + 2 * q, LEFT + half, RIGHT + q)

    f.loop(0, steps, step)
    for q in range(vectors):
        into = f.at(sums, q * LANES, "i32")
        byte_tiles.store(f, 2 * q, into, line)
        byte_tiles.store(f, 2 * q + 1, f.beyond(into, f.mul(line, ROWS // 2)), line)


def _blocks(formula: bool, signed: bool, name: str, machine: Machine) -> str:
    """Emits the kernel. Units are blocks of ROWS rows of a panel, those of a panel one after the other."""
    f = Function(name)
    a, rows, depth, b, begin, c, shape = f.args("ppppppp")
    steps, groups, n, m, wide, broad, row_step, blocks, stride = (f.arg(7 + i) for i in range(9))
    sums = f.let(f"alloca [{ROWS * PANEL_VECTORS * LANES} x i32], align 64")
    room = f.let(f"alloca [{WORDS} x i64], align 64") if formula else ""
    held = f.let(f"alloca i8, i64 {f.mul(steps, ROWS * LINE)}, align 64")
    byte_tiles.begin(f, shape)

    def unit(u: str) -> None:
        j, block = f.let(f"sdiv i64 {u}, {blocks}"), f.let(f"srem i64 {u}, {blocks}")
        vectors = f.sub(broad, f.let(f"zext i1 {f.let(f'icmp sge i64 {j}, {wide}')} to i64"))
        start, row = start_of(f, j, wide, broad), f.mul(block, ROWS)
        panel = f.beyond(b, f.mul(f.mul(f.mul(start, LINE), groups), steps))
        column, width, line = f.mul(start, LANES), f.mul(vectors, LANES), f.mul(vectors, LINE)
        valid = f.call("i64", "llvm.smin.i64", ("i64", width), ("i64", f.sub(n, column)))
        count = f.call("i64", "llvm.smin.i64", ("i64", str(ROWS)), ("i64", f.sub(m, row)))
        first, places = f.at(begin, column, "i32"), f.at(rows, row, "i64")

        def in_place(s: str) -> None:
            place = f.beyond(f.beyond(a, f.load("i64", places)), f.load("i64", f.at(depth, s, "i64")))
            byte_tiles.load(f, LEFT, place, stride)
            byte_tiles.load(f, LEFT + 1, f.beyond(place, f.mul(stride, ROWS // 2)), stride)

        def aside(s: str) -> None:
            place = f.beyond(held, f.mul(s, ROWS * LINE))
            byte_tiles.load(f, LEFT, place, LINE)
            byte_tiles.load(f, LEFT + 1, f.beyond(place, ROWS // 2 * LINE), LINE)

        def columns(left: Callable[[str], None]) -> None:
            def some(v: str, number: int) -> None:
                own = f.beyond(panel, f.mul(v, LINE)), f.at(first, f.mul(v, LANES), "i32"), f.at(sums, f.mul(v, LANES), "i32")
                _multiply(f, number, steps, groups, line, *own, left)

            def pair(v: str) -> None:
                f.when(f.let(f"icmp slt i64 {f.add(v, 1)}, {vectors}"), lambda: some(v, 2), lambda: some(v, 1))

            f.loop(0, vectors, pair, step=2)

        def copied() -> None:
            _copy_rows(f, signed, a, places, depth, steps, groups, held, count)
            columns(aside)

        if signed:
            copied()
        else:
            unequal, short = f.let(f"icmp eq i64 {stride}, 0"), f.let(f"icmp slt i64 {count}, {ROWS}")
            f.when(f.let(f"or i1 {unequal}, {short}"), copied, lambda: columns(in_place))
        if formula:
            call_formula(f, FIRST_WORD, room, row, column, count, valid, width, sums)
            return

        def stored(r: str) -> None:
            source, target = f.beyond(sums, f.mul(r, line)), f.beyond(f.at(c, column, "i32"), f.mul(f.add(row, r), row_step))
            f.each(0, valid, lambda q: f.store("i32", f.load("i32", f.at(source, q, "i32")), f.at(target, q, "i32")))

        f.loop(0, count, stored)

    f.loop("%first", "%end", unit)
    byte_tiles.end(f)
    return f.done()


def kernel(formula: bool, signed: bool) -> Kernel:
    """Names the kernel. `signed`: the left-hand side is i8; the sums' first values allow for 128 more."""
    return Kernel(f"byte tiles {formula} {signed}", partial(_blocks, formula, signed))


def arguments(
    machine: Machine, steps: Steps, a: Array, rows: Table, b: Array, begin: Array, c: Array, n: int, panels: Panels, row_step: int
) -> tuple[list[int | Array | Kernel], int]:
    """Lists the kernel's arguments, without a formula's, and the number of units."""
    assert panels.lanes == LANES == byte_dots.lanes_of(machine), panels
    assert panels.broad <= PANEL_VECTORS, panels
    blocks = -(-len(rows) // ROWS)
    args: Sequence[int | Array | Kernel] = [
        a, rows, steps.offsets, b, begin, c, byte_tiles.shape_of(steps.groups),
        len(steps.offsets), steps.groups, n, len(rows), panels.wide, panels.broad, row_step, blocks, steps.stride,
    ]  # fmt: skip
    assert len(args) == FIRST_WORD, len(args)
    return list(args), blocks * panels.parts
