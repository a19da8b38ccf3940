"""3x3 convolutions of 8-bit integers by Winograd's algorithm, exact: 16 products for 4 outputs instead of 36.

    4 y = A' ((2G w 2G') . (B' x B)) A        i16 . i16 in i32, then a formula of y

2G has integers only, so all operands are integers: below 1,021 in B' x B and 1,153 in 2G w 2G'. Sums wrap around, which the
division by 4 cannot undo, so it is for at most MOST_CHANNELS. It pays where products are `pmaddwd`: dot products of bytes are faster
than what it saves. Vectors are channels, which are last. Some rows of tiles are a chunk: they are transformed once; then each panel of
output channels is multiplied, transformed back and given to the formula while it is in cache.

    v: [16, tiles, ic] i16, u: [panels, 16, ic / 2, columns, 2] i16, m: [16, tiles, columns] i32
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from populus.runtime.codelets.task import Array, Task
from populus.runtime.engine.native.codegen import byte_dots
from populus.runtime.engine.native.codegen.cpu import Machine
from populus.runtime.engine.native.codegen.jit import Kernel, Library
from populus.runtime.engine.native.codegen.llvm_builder import Function
from populus.runtime.engine.native.codegen.touched import Arguments, Elements, Touched
from populus.runtime.engine.native.kernels.formula_words import WORDS, Epilogue, call_formula, formula_touches
from populus.runtime.engine.native.kernels.launch import Launch
from populus.runtime.engine.native.kernels.operands import Convolution
from populus.runtime.engine.native.kernels.panels import Table

MOST_CHANNELS = 1024  # 9 * 1024 * 255 * 128 < 2^29, so 4 y fits 32 bits
FEWEST_OUTPUTS = 32  # channels, from which a transformed input is used often enough
SAVED = 0.8  # of the products of direct sums: at most so many are computed
ROWS, VECTORS = 4, 2  # of a block of sums
TILES, ROOM = 24, 384 << 10  # tiles from which a chunk fills its blocks, and bytes of v that the second cache holds
POINTS, CHUNKS = 16, 4  # points of a tile; ranges of chunks for each thread
FIRST_WORD = 18  # the arguments from here on are those of a formula


@dataclass(frozen=True)
class Plane:
    """Sizes of a convolution: channels, outputs, and tiles of 2 by 2 outputs in chunks of rows."""

    ic: int
    oc: int
    high: int
    wide: int
    lanes: int

    @property
    def down(self) -> int:
        """Rows of tiles."""
        return -(-self.high // 2)

    @property
    def across(self) -> int:
        """Tiles of a row."""
        return -(-self.wide // 2)

    @property
    def columns(self) -> int:
        """Output channels of a panel."""
        return VECTORS * self.lanes

    @property
    def rows(self) -> int:
        """Rows of tiles of a chunk."""
        most = max(1, ROOM // (2 * POINTS * self.ic * self.across))
        return min(self.down, most, -(-TILES // self.across))

    @property
    def tiles(self) -> int:
        """Tiles of a chunk, in whole blocks."""
        return -(-self.rows * self.across // ROWS) * ROWS

    @property
    def weights(self) -> int:
        """Elements of u."""
        return POINTS * self.oc * self.ic

    @property
    def bytes(self) -> tuple[int, int, int]:
        """Bytes of v, of m, and of the sums of a panel."""
        sums = 4 * self.rows * self.across * self.columns * 4
        return 2 * POINTS * self.tiles * self.ic, 4 * POINTS * self.tiles * self.columns, -(-sums // 64) * 64


def suits(machine: Machine, plane: Plane) -> bool:
    """Tells whether the algorithm computes a convolution, and in less time."""
    if byte_dots.form_of(machine) != "wide" or plane.ic % plane.columns or plane.oc % plane.columns:
        return False
    saved = POINTS * plane.down * plane.across <= SAVED * 9 * plane.high * plane.wide
    return saved and plane.ic <= MOST_CHANNELS and plane.oc >= FEWEST_OUTPUTS


def packing(library: Library, plane: Plane, w: Array, u: Array) -> Launch:
    """Builds the launch that computes u of w [oc, ic, 3, 3]."""
    kernel = Kernel("byte winograd weights", _packer, partial(_packed, plane.columns))
    return Launch(library, kernel, [w, u, plane.ic, *w.strides], plane.oc // plane.columns, 4 * u.size)


def _packed(columns: int, args: Arguments, units: int) -> Touched:
    """States what a launch of `_packer` touches."""
    w, u, ic, *steps = args
    return Touched([Elements.at(w, 1, *zip((units * columns, ic, 3, 3), steps, strict=True))], [Elements.of(u)])


def _packer(name: str, machine: Machine) -> str:
    """Emits u = 2G w 2G'. Units are panels of output channels."""
    f, columns = Function(name), VECTORS * byte_dots.lanes_of(machine)
    w, u, ic, oc_step, ic_step, row_step, column_step = f.args("ppiiiii")
    plane = f.mul(ic, 2 * columns)

    def side(w: Sequence[str]) -> list[str]:
        outer = f.let(f"add i16 {w[0]}, {w[2]}")
        return [
            f.let(f"{op} i16 {a}, {b}") for op, a, b in (("shl", w[0], 1), ("add", outer, w[1]), ("sub", outer, w[1]), ("shl", w[2], 1))
        ]

    def panel(j: str) -> None:
        into = f.beyond(u, f.mul(plane, f.mul(j, POINTS)))

        def channel(c: str) -> None:
            first = f.beyond(into, f.add(f.mul(f.let(f"lshr i64 {c}, 1"), 4 * columns), f.mul(f.let(f"and i64 {c}, 1"), 2)))

            def one(q: str) -> None:
                at = f.beyond(f.beyond(w, f.mul(f.add(f.mul(j, columns), q), oc_step)), f.mul(c, ic_step))
                places = [[f.beyond(at, f.add(f.mul(row_step, y), f.mul(column_step, x))) for y in range(3)] for x in range(3)]
                halves = [side([f.let(f"sext i8 {f.load('i8', place)} to i16") for place in line]) for line in places]
                for n, value in enumerate(value for p in range(4) for value in side([half[p] for half in halves])):
                    f.store("i16", value, f.beyond(f.at(first, f.mul(q, 2), "i16"), f.mul(plane, n)))

            f.loop(0, columns, one)

        f.loop(0, ic, channel)

    f.loop("%first", "%end", panel)
    return f.done()


def _input_side(f: Function, vector: str, d: Sequence[str]) -> list[str]:
    """Emits B' d."""
    pairs = (("sub", 0, 2), ("add", 1, 2), ("sub", 2, 1), ("sub", 1, 3))
    return [f.let(f"{op} {vector} {d[a]}, {d[b]}") for op, a, b in pairs]


def _output_side(f: Function, vector: str, m: Sequence[str]) -> list[str]:
    """Emits A' m."""
    first, second = f.let(f"add {vector} {m[0]}, {m[1]}"), f.let(f"sub {vector} {m[1]}, {m[2]}")
    return [f.let(f"add {vector} {first}, {m[2]}"), f.let(f"sub {vector} {second}, {m[3]}")]


def _transform(f: Function, signed: bool, lanes: int, places: Sequence[Sequence[str]], ic: str, target: str, plane: str) -> None:
    """Emits v of one tile, whose elements (i, j) begin at `places`."""
    n = 2 * lanes
    bytes, vector = f"<{n} x i8>", f"<{n} x i16>"

    def channels(c: str) -> None:
        d = [[f.load(bytes, f.beyond(p, c), 1) for p in row] for row in places]
        d = [[f.let(f"{'sext' if signed else 'zext'} {bytes} {e} to {vector}") for e in row] for row in d]
        halves = [_input_side(f, vector, [d[i][j] for i in range(4)]) for j in range(4)]
        for i in range(4):
            for j, value in enumerate(_input_side(f, vector, [halves[k][i] for k in range(4)])):
                into = f.beyond(target, f.mul(plane, 4 * i + j)) if i or j else target
                f.store(vector, value, f.at(into, c, "i16"), 2)

    f.loop(0, ic, channels, step=n)


def _multiply(f: Function, machine: Machine, v: str, u: str, m: str, pairs: str, tiles: str) -> None:
    """Emits m = v u of one point and one panel. `pairs`: of channels; blocks of tiles are whole."""
    lanes = byte_dots.lanes_of(machine)
    vector, half = f"<{lanes} x i32>", f"<{2 * lanes} x i16>"
    line = f.mul(pairs, 4)

    def block(t: str) -> None:
        rows = [f.beyond(v, f.mul(f.add(t, r), line)) for r in range(ROWS)]

        def step(i: str, *sums: str) -> list[str]:
            right = f.beyond(u, f.mul(i, VECTORS * lanes * 4))
            columns = [f.load(half, f.beyond(right, q * lanes * 4), 4) for q in range(VECTORS)]
            new: list[str] = []
            for r, row in enumerate(rows):
                pair = f.splat("i32", lanes, f.load("i32", f.at(row, i, "i32"), 4))
                pair = f.let(f"bitcast {vector} {pair} to {half}")
                new += [byte_dots.add_pairs(f, machine, sums[r * VECTORS + q], pair, columns[q]) for q in range(VECTORS)]
            return new

        sums = f.loop(0, pairs, step, [(vector, "zeroinitializer")] * (ROWS * VECTORS))
        into = f.at(m, f.mul(t, VECTORS * lanes), "i32")
        for i, total in enumerate(sums):
            f.store(vector, total, f.at(into, i * lanes, "i32"), 4)

    f.loop(0, tiles, block, step=ROWS)


def _back(f: Function, lanes: int, m: str, plane: str, into: str, row: str) -> None:
    """Emits y of one tile, whose points begin at `m`, `plane` bytes apart; `row`: elements between rows of sums."""
    vector = f"<{lanes} x i32>"
    for q in range(VECTORS):
        taken = [[f.load(vector, f.at(f.beyond(m, f.mul(plane, 4 * i + j)), q * lanes, "i32"), 4) for j in range(4)] for i in range(4)]
        halves = [_output_side(f, vector, [taken[i][j] for i in range(4)]) for j in range(4)]
        for a in range(2):
            for b, value in enumerate(_output_side(f, vector, [halves[j][a] for j in range(4)])):
                y = f.let(f"ashr {vector} {value}, splat (i32 2)")
                place = f.at(into, row, "i32") if a else into
                f.store(vector, y, f.at(place, (b * VECTORS + q) * lanes, "i32"), 4)


def _all(signed: bool, name: str, machine: Machine) -> str:
    """Emits the kernel. Units are ranges of chunks, each with a v, an m and sums of its own."""
    f, lanes = Function(name), byte_dots.lanes_of(machine)
    x, images, rows_of, columns_of, u, scratch = f.args("pppppp")
    ic, high, wide, down, across, most, tiles, parts, total, ranges, v_bytes, each = (f.arg(6 + i) for i in range(12))
    columns = VECTORS * lanes
    room = f.let(f"alloca [{WORDS} x i64], align 64")
    pairs = f.let(f"sdiv i64 {ic}, 2")
    chunks = f.let(f"sdiv i64 {f.sub(f.add(down, most), 1)}, {most}")
    v_plane, m_plane, u_plane = f.mul(f.mul(tiles, ic), 2), f.mul(tiles, columns * 4), f.mul(pairs, columns * 4)
    row_sums = f.mul(across, 2 * columns)

    def each_tile(rows: str, body: Callable[[str, str], None]) -> None:
        def line(ty: str) -> None:
            f.loop(0, across, partial(body, ty))

        f.loop(0, rows, line)

    def chunk(v: str, b: str) -> None:
        m = f.beyond(v, v_bytes)
        sums = f.beyond(m, f.mul(m_plane, POINTS))
        image = f.let(f"sdiv i64 {b}, {chunks}")
        first = f.mul(f.sub(b, f.mul(image, chunks)), most)
        rows = f.call("i64", "llvm.smin.i64", ("i64", most), ("i64", f.sub(down, first)))
        start = f.beyond(x, f.load("i64", f.at(images, image, "i64")))

        def tile(ty: str, tx: str) -> None:
            at_row, at_column = f.at(rows_of, f.mul(f.add(first, ty), 2), "i64"), f.at(columns_of, f.mul(tx, 2), "i64")
            lines = [f.beyond(start, f.load("i64", f.at(at_row, i, "i64"))) for i in range(4)]
            offsets = [f.load("i64", f.at(at_column, j, "i64")) for j in range(4)]
            target = f.at(v, f.mul(f.add(f.mul(ty, across), tx), ic), "i16")
            _transform(f, signed, lanes, [[f.beyond(line, o) for o in offsets] for line in lines], ic, target, v_plane)

        def panel(j: str) -> None:
            right = f.beyond(u, f.mul(f.mul(j, POINTS), u_plane))
            used = f.mul(rows, across)

            def point(p: str) -> None:
                a, b, c = (f.beyond(x, f.mul(p, plane)) for x, plane in ((v, v_plane), (right, u_plane), (m, m_plane)))
                _multiply(f, machine, a, b, c, pairs, used)

            def back(ty: str, tx: str) -> None:
                source = f.at(m, f.mul(f.add(f.mul(ty, across), tx), columns), "i32")
                into = f.at(f.at(sums, f.mul(f.mul(ty, 2), row_sums), "i32"), f.mul(tx, 2 * columns), "i32")
                _back(f, lanes, source, m_plane, into, row_sums)

            f.loop(0, POINTS, point)
            each_tile(rows, back)
            top = f.mul(first, 2)
            left = f.call("i64", "llvm.smin.i64", ("i64", f.mul(rows, 2)), ("i64", f.sub(high, top)))

            def ended(r: str) -> None:
                row = f.mul(f.add(f.mul(image, high), f.add(top, r)), wide)
                own = f.at(sums, f.mul(r, row_sums), "i32")
                call_formula(f, FIRST_WORD, room, row, f.mul(j, columns), wide, str(columns), str(columns), own)

            f.loop(0, left, ended)

        each_tile(rows, tile)
        f.loop(0, parts, panel)

    def unit(q: str) -> None:
        low, end = (f.let(f"sdiv i64 {f.mul(total, i)}, {ranges}") for i in (q, f.add(q, 1)))
        v = f.beyond(scratch, f.mul(each, q))
        f.loop(low, end, partial(chunk, v))

    f.loop("%first", "%end", unit)
    return f.done()


def _touches(columns: int, args: Arguments, units: int) -> Touched:
    """States what a launch touches, but its scratch memory. `columns`: of a panel."""
    x, images, *sides, u, _, ic, high, wide, _, _, _, _, parts = args[:14]
    read = Elements.at(x, 1, images, *map(np.unique, sides), (ic, 1))
    others, writes = formula_touches(args[FIRST_WORD:], len(images) * high * wide, parts * columns)
    return Touched([read, Elements.of(u), *others], writes)


def launch(library: Library, task: Task, plane: Plane, c: Convolution, u: Array, ending: Epilogue) -> Launch:
    """Builds the launch. c: of x with its padding, channels adjacent."""
    x, (tall, wide) = c.x, c.sides
    batch = len(x)
    assert min(tall.n - plane.high, wide.n - plane.wide) >= 2, (x.shape, plane)
    # The last tile of an odd number of outputs reads its last row again, which enters no output that is kept.
    sides = [np.minimum(np.arange(2 * n + 2, dtype=np.int64), s.n - 1) * s.step for n, s in ((plane.down, tall), (plane.across, wide))]
    tables: list[Table] = [c.along_x().table("b"), *sides]
    total = batch * -(-plane.down // plane.rows)
    ranges = 1 if task.threads == 1 else min(total, CHUNKS * task.threads)
    each = sum(plane.bytes)
    scratch = task.scratch((each * ranges,), np.uint8)
    args: list[int | Array | Kernel] = [
        x, *tables, u, scratch, plane.ic, plane.high, plane.wide, plane.down, plane.across, plane.rows, plane.tiles,
        plane.oc // plane.columns, total, ranges, plane.bytes[0], each,
    ]  # fmt: skip
    assert len(args) == FIRST_WORD, len(args)
    kernel = Kernel(f"byte winograd {x.dtype == np.int8}", partial(_all, x.dtype == np.int8), partial(_touches, plane.columns))
    work = batch * plane.down * plane.across * plane.oc * plane.ic * POINTS // 150
    return Launch(library, kernel, [*args, *ending.arguments()], ranges, work)
