"""Kernel of products of f16 in tile registers of bf16: each element is the exact sum of two bf16, so each product is that of four.

    c[m, n] = sum over k of (ah + al)[m, k] (bh + bl)[k, n]        f32

The left-hand side comes as two arrays, ah and al. A panel of the right-hand side stays f16, as `[k / 2][column][2]`, and is cut in two
once for all rows. Sums are f32: in a step of k those of even and of odd elements, then both together; for bh, bl, and al. A block whose
sums are not all finite is computed again with fused multiply-adds in the order of k, because infinity times the part 0 is NaN.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from populus.runtime.codelets.task import Array
from populus.runtime.engine.native.codegen import byte_tiles
from populus.runtime.engine.native.codegen.byte_tiles import LEFT, LINE, RIGHT, ROWS
from populus.runtime.engine.native.codegen.cpu import Machine
from populus.runtime.engine.native.codegen.jit import Kernel, Library
from populus.runtime.engine.native.codegen.llvm_builder import Function
from populus.runtime.engine.native.kernels.byte_tile_blocks import Steps
from populus.runtime.engine.native.kernels.formula_words import WORDS, call_formula
from populus.runtime.engine.native.kernels.launch import Launch
from populus.runtime.engine.native.kernels.operands import Nest

COLUMNS, LANES = 32, 16  # of a panel, of a vector
PAIR = COLUMNS * 4  # bytes of two rows of k in a panel
CUT_BYTES = 1 << 20  # of panels that are cut at once, if rows are copied: in the second cache
MOST_PAIRS = 4096  # of k: bytes on the stack for a panel and for the rows of a block
FIRST_WORD = 16  # the arguments from here on are those of a formula
RANK = 4  # dimensions of an array that is cut
WIDE, BITS, SHORT = f"<{LANES} x float>", f"<{LANES} x i32>", f"<{LANES} x i16>"


def packed(b: Array) -> Array:
    """Packs b [k, n] of f16, with k even, as panels [n / COLUMNS, k / 2, COLUMNS, 2], padded with zeros."""
    k, n = b.shape
    wide = np.zeros((k, -(-n // COLUMNS) * COLUMNS), b.dtype)
    wide[:, :n] = b
    return np.ascontiguousarray(wide.reshape(k // 2, 2, -1, COLUMNS).transpose(2, 0, 3, 1))


def _cut(f: Function, halves: str) -> list[str]:
    """Emits the cutting of a vector: the upper 8 bits of each number, and the rest."""
    value = f.let(f"fpext <{LANES} x half> {halves} to {WIDE}")
    upper = f.let(f"and {BITS} {f.let(f'bitcast {WIDE} {value} to {BITS}')}, splat (i32 -65536)")
    rest = f.let(f"fsub {WIDE} {value}, {f.let(f'bitcast {BITS} {upper} to {WIDE}')}")
    parts = upper, f.let(f"bitcast {WIDE} {rest} to {BITS}")
    return [f.let(f"trunc {BITS} {f.let(f'lshr {BITS} {part}, splat (i32 16)')} to {SHORT}") for part in parts]


def _cut_panel(f: Function, panel: str, pairs: str, high: str, low: str) -> None:
    """Emits the cutting of a panel."""

    def some(i: str) -> None:
        at = f.mul(i, 2 * LANES)
        for short, into in zip(_cut(f, f.load(f"<{LANES} x half>", f.beyond(panel, at), 2)), (high, low)):
            f.store(SHORT, short, f.beyond(into, at), 2)

    f.loop(0, f.mul(pairs, PAIR // (2 * LANES)), some)


def _cut_rows(name: str, machine: Machine) -> str:
    """Emits the cutting of an array of RANK dimensions, the last of which is adjacent. Units are of the first dimension."""
    f = Function(name)
    x, high, low = f.args("ppp")
    sizes, steps, leaps = ([f.arg(3 + RANK * g + d) for d in range(RANK)] for g in range(3))
    halves, mask = f"<{LANES} x half>", f"<{LANES} x i1>"
    counts = f"<{LANES} x i64> <{', '.join(f'i64 {i}' for i in range(LANES))}>"

    def level(d: int, source: str, target: str, first: str, end: str) -> None:
        def body(i: str) -> None:
            if d < RANK - 1:
                level(d + 1, f.add(source, f.mul(i, steps[d])), f.add(target, f.mul(i, leaps[d])), "0", sizes[d + 1])
                return
            at = f.mul(i, 2)
            inside = f.let(f"icmp slt {counts}, {f.splat('i64', LANES, f.sub(end, i))}")
            operands = ("ptr", f.beyond(f.beyond(x, source), at)), ("i32 immarg", "2"), (mask, inside), (halves, "zeroinitializer")
            for short, into in zip(_cut(f, f.call(halves, f"llvm.masked.load.v{LANES}f16.p0", *operands)), (high, low)):
                place = ("ptr", f.beyond(f.beyond(into, target), at)), ("i32 immarg", "2"), (mask, inside)
                f.call("void", f"llvm.masked.store.v{LANES}i16.p0", (SHORT, short), *place)

        f.loop(first, end, body, step=LANES if d == RANK - 1 else 1)

    level(0, "0", "0", "%first", "%end")
    return f.done()


CUT = Kernel("half cut", _cut_rows)


def cut(library: Library, x: Array, high: Array, low: Array) -> list[Launch] | None:
    """Builds the launch that cuts x into two arrays of its shape; None unless elements of its last dimension are adjacent."""
    if x.size == 0:
        return []
    assert high.strides == low.strides, (high.strides, low.strides)
    shape, strides = Nest.of(x, high).loops()
    if len(shape) > RANK or [s[-1] for s in strides] != [2, 2]:
        return None
    lead = RANK - len(shape)
    first, rest = (slice(1), slice(1, None)) if len(shape) > 1 else (slice(0), slice(None))  # units divide the first dimension
    sizes = [*shape[first], *[1] * lead, *shape[rest]]
    steps = [n for s in strides for n in (*s[first], *[0] * lead, *s[rest])]
    return [Launch(library, CUT, [x, high, low, *sizes, *steps], sizes[0], x.size // 8)]


def _multiply(f: Function, steps: str, groups: str, parts: tuple[str, str], sums: str, left: Callable[[str, int], None]) -> None:
    """Emits the sums of ROWS rows by COLUMNS columns. `left`: loads both registers of ah (0) or al (1) in a step."""
    for q in range(4):
        f.call("void", "llvm.x86.tilezero", ("i8 immarg", str(q)))

    def step(s: str) -> None:
        at = f.mul(f.mul(s, groups), PAIR)

        def right(part: str) -> None:
            for v in range(2):
                byte_tiles.load(f, RIGHT + v, f.beyond(f.beyond(part, at), v * LINE), PAIR)

        def products() -> None:
            for v in range(2):
                for half in range(2):
                    operands = (("i8 immarg", str(r)) for r in (half + 2 * v, LEFT + half, RIGHT + v))
                    f.call("void", "llvm.x86.tdpbf16ps", *operands)

        left(s, 0)
        right(parts[0])
        products()
        right(parts[1])
        products()
        left(s, 1)
        products()
        right(parts[0])
        products()

    f.loop(0, steps, step)
    for v in range(2):
        for half in range(2):
            byte_tiles.store(f, half + 2 * v, f.beyond(sums, half * ROWS // 2 * PAIR + v * LINE), PAIR)


def _again(f: Function, a: tuple[str, str], places: str, depth: str, steps: str, groups: str, panel: str, count: str, sums: str) -> None:
    """Emits the sums once more if one of them is not finite, from the numbers themselves."""

    def unbounded(i: str, *found: str) -> list[str]:
        bits = f.let(f"and {BITS} {f.load(BITS, f.beyond(sums, f.mul(i, LINE)), 4)}, splat (i32 2139095040)")
        here = f.let(f"icmp eq {BITS} {bits}, splat (i32 2139095040)")
        return [f.let(f"or <{LANES} x i1> {found[0]}, {here}")]

    (found,) = f.loop(0, f.mul(count, 2), unbounded, [(f"<{LANES} x i1>", "zeroinitializer")])

    def row(r: str) -> None:
        start = f.load("i64", f.at(places, r, "i64"))

        def step(s: str, *totals: str) -> list[str]:
            offset = f.add(start, f.load("i64", f.at(depth, s, "i64")))

            def pair(g: str, *totals: str) -> list[str]:
                new = list(totals)
                line = f.beyond(panel, f.mul(f.add(f.mul(s, groups), g), PAIR))
                words = [f.load(BITS, f.beyond(line, v * LINE), 4) for v in range(2)]
                for odd in range(2):
                    place = f.add(offset, f.add(f.mul(g, 4), 2 * odd))
                    x = f.splat("float", LANES, _joined(f, *(f.load("i16", f.beyond(part, place)) for part in a)))
                    for v, word in enumerate(words):
                        short = f.let(f"trunc {BITS} {f.let(f'lshr {BITS} {word}, splat (i32 {16 * odd})')} to {SHORT}")
                        y = f.let(f"fpext <{LANES} x half> {f.let(f'bitcast {SHORT} {short} to <{LANES} x half>')} to {WIDE}")
                        new[v] = f.call(WIDE, f"llvm.fma.v{LANES}f32", (WIDE, x), (WIDE, y), (WIDE, new[v]))
                return new

            return f.loop(0, groups, pair, [(WIDE, t) for t in totals])

        totals = f.loop(0, steps, step, [(WIDE, "zeroinitializer")] * 2)
        for v, total in enumerate(totals):
            f.store(WIDE, total, f.beyond(sums, f.add(f.mul(r, PAIR), v * LINE)), 4)

    def rows() -> None:
        f.loop(0, count, row)

    f.when(f.let(f"icmp ne i{LANES} {f.let(f'bitcast <{LANES} x i1> {found} to i{LANES}')}, 0"), rows)


def _joined(f: Function, high: str, low: str) -> str:
    """Adds the parts of a number; an infinity or NaN is its upper part."""
    bits = [f.let(f"shl i32 {f.let(f'zext i16 {part} to i32')}, 16") for part in (high, low)]
    x, y = (f.let(f"bitcast i32 {b} to float") for b in bits)
    finite = f.let(f"fcmp ord float {f.let(f'fsub float {x}, {x}')}, 0.0")
    return f.let(f"select i1 {finite}, float {f.let(f'fadd float {x}, {y}')}, float {x}")


def _copy_rows(
    f: Function, parts: tuple[str, str], places: str, depth: str, steps: str, groups: str, held: Sequence[str], count: str
) -> None:
    """Emits the copying of a block's rows of both parts, whose offsets begin at `places`, to `held` as [step, row, LINE]."""
    bytes, mask = f"<{LINE} x i8>", f"<{LINE} x i1>"
    counts = f"<{LINE} x i8> <{', '.join(f'i8 {i}' for i in range(LINE))}>"
    used = f.let(f"icmp ult {counts}, {f.splat('i8', LINE, f.let(f'trunc i64 {f.mul(groups, 4)} to i8'))}")

    def copied(r: str) -> None:
        # Beyond the last row it is computed, and not stored, again.
        last = f.call("i64", "llvm.smin.i64", ("i64", r), ("i64", f.sub(count, 1)))
        start, into = f.load("i64", f.at(places, last, "i64")), f.mul(r, LINE)

        def step(s: str) -> None:
            place, target = f.add(start, f.load("i64", f.at(depth, s, "i64"))), f.add(into, f.mul(s, ROWS * LINE))
            for part, copy in zip(parts, held):
                operands = ("ptr", f.beyond(part, place)), ("i32 immarg", "1"), (mask, used), (bytes, "zeroinitializer")
                f.store(bytes, f.call(bytes, f"llvm.masked.load.v{LINE}i8.p0", *operands), f.beyond(copy, target), LINE)

        f.loop(0, steps, step)

    f.loop(0, ROWS, copied)


def _blocks(formula: bool, name: str, machine: Machine) -> str:
    """Emits the kernel. Units are blocks of ROWS rows of `together` panels, those of the same panels one after the other."""
    f = Function(name)
    high, low, rows, depth, b, c, shape = f.args("ppppppp")
    steps, groups, n, m, row_step, blocks, stride, together, panels = (f.arg(7 + i) for i in range(9))
    sums = f.let(f"alloca [{ROWS * COLUMNS} x float], align 64")
    room = f.let(f"alloca [{WORDS} x i64], align 64") if formula else ""
    pairs = f.mul(steps, groups)
    size = f.mul(pairs, PAIR)
    cut = [f.let(f"alloca i8, i64 {f.mul(size, together)}, align 64") for _ in range(2)]
    held = [f.let(f"alloca i8, i64 {f.mul(steps, ROWS * LINE)}, align 64") for _ in range(2)]
    byte_tiles.begin(f, shape)

    def unit(u: str) -> None:
        begin, block = f.mul(f.let(f"sdiv i64 {u}, {blocks}"), together), f.let(f"srem i64 {u}, {blocks}")
        until = f.call("i64", "llvm.smin.i64", ("i64", f.add(begin, together)), ("i64", panels))
        row = f.mul(block, ROWS)
        count = f.call("i64", "llvm.smin.i64", ("i64", str(ROWS)), ("i64", f.sub(m, row)))
        places = f.at(rows, row, "i64")
        unequal, short = f.let(f"icmp eq i64 {stride}, 0"), f.let(f"icmp slt i64 {count}, {ROWS}")
        apart = f.let(f"or i1 {unequal}, {short}")
        f.when(apart, lambda: _copy_rows(f, (high, low), places, depth, steps, groups, held, count))
        first = f.let(f"or i1 {f.let(f'icmp eq i64 {block}, 0')}, {f.let(f'icmp eq i64 {u}, %first')}")

        def in_place(s: str, part: int) -> None:
            place = f.beyond(f.beyond((high, low)[part], f.load("i64", places)), f.load("i64", f.at(depth, s, "i64")))
            byte_tiles.load(f, LEFT, place, stride)
            byte_tiles.load(f, LEFT + 1, f.beyond(place, f.mul(stride, ROWS // 2)), stride)

        def aside(s: str, part: int) -> None:
            place = f.beyond(held[part], f.mul(s, ROWS * LINE))
            byte_tiles.load(f, LEFT, place, LINE)
            byte_tiles.load(f, LEFT + 1, f.beyond(place, ROWS // 2 * LINE), LINE)

        def panel(j: str) -> None:
            own = f.mul(f.sub(j, begin), size)
            parts = f.beyond(cut[0], own), f.beyond(cut[1], own)
            whole, column = f.beyond(b, f.mul(j, size)), f.mul(j, COLUMNS)
            valid = f.call("i64", "llvm.smin.i64", ("i64", str(COLUMNS)), ("i64", f.sub(n, column)))
            f.when(first, lambda: _cut_panel(f, whole, pairs, *parts))

            def multiplied(left: Callable[[str, int], None]) -> None:
                _multiply(f, steps, groups, parts, sums, left)

            f.when(apart, lambda: multiplied(aside), lambda: multiplied(in_place))
            _again(f, (high, low), places, depth, steps, groups, whole, count, sums)
            if formula:
                call_formula(f, FIRST_WORD, room, row, column, count, valid, str(COLUMNS), sums)
                return

            def stored(r: str) -> None:
                source, target = f.beyond(sums, f.mul(r, PAIR)), f.beyond(f.at(c, column, "i32"), f.mul(f.add(row, r), row_step))
                f.each(0, valid, lambda q: f.store("i32", f.load("i32", f.at(source, q, "i32")), f.at(target, q, "i32")))

            f.loop(0, count, stored)

        f.loop(begin, until, panel)

    f.loop("%first", "%end", unit)
    byte_tiles.end(f)
    return f.done()


def kernel(formula: bool) -> Kernel:
    """Names the kernel, with a formula on the sums or without."""
    return Kernel(f"half tiles {formula}", partial(_blocks, formula))


def arguments(
    steps: Steps, parts: tuple[Array, Array], rows: Array, panels: Array, c: Array, n: int, row_step: int
) -> tuple[list[int | Array | Kernel], int]:
    """Lists the kernel's arguments, without a formula's, and the number of units."""
    blocks, number, pairs = -(-len(rows) // ROWS), -(-n // COLUMNS), len(steps.offsets) * steps.groups
    together = 1 if steps.stride else max(1, min(number, 4, CUT_BYTES // (2 * pairs * PAIR)))
    args: list[int | Array | Kernel] = [
        *parts, rows, steps.offsets, panels, c, byte_tiles.shape_of(steps.groups),
        len(steps.offsets), steps.groups, n, len(rows), row_step, blocks, steps.stride,
        together, number,
    ]  # fmt: skip
    assert len(args) == FIRST_WORD, len(args)
    return args, blocks * -(-number // together)
