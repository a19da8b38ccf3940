"""Kernels of `matmul` and `conv`: blocks of sums held in registers, with the right-hand side packed into panels.

    c[m, n] = sum over k of a[m, k] b[k, n]

The kernels read a in place. Element (m, k) lies at rows[m] + depth[k], two tables of byte offsets, so a convolution's
windows are rows of a matrix that is never stored. b is packed as panels a few vectors wide, once if it is constant.
Blocks (`blocks.py`) compute a stage of k each before any goes on, so that a stage of the panel stays in the first cache.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from populus.dialects.support import mmap_file
from populus.runtime.codelets.task import Array, PackedForms
from populus.runtime.engine.native.codegen.cpu import Machine
from populus.runtime.engine.native.codegen.jit import Kernel, Library
from populus.runtime.engine.native.codegen.llvm_builder import Function
from populus.runtime.engine.native.codegen.touched import Arguments, Elements, Touched
from populus.runtime.engine.native.kernels.blocks import CONTINUES, STOPS, SUMMED, block_kernel
from populus.runtime.engine.native.kernels.endings import BYTES, ending_of
from populus.runtime.engine.native.kernels.launch import Launch
from populus.runtime.engine.native.kernels.native_support import long_work
from populus.runtime.engine.native.kernels.operands import OnMatrix, Word
from populus.runtime.engine.native.kernels.panels import Packed, Panels, Table, lines, shares

PIECE = 32 << 20  # bytes of a constant per packing launch
STAGE = 32 << 10  # bytes of a panel that blocks read again and again, so that the first cache holds them
ALONE = 8  # vectors of a panel for one row: a sum is added to every few cycles, so that fewer sums would wait for themselves
FEW, KEPT = (12, 11, 10), 8 << 20  # the same where nothing is fetched ahead; up to so many bytes, as beyond the caches memory bounds it
LINE = 64  # bytes of a line of the cache
GROUP = 32  # blocks whose sums wait in memory while others continue


def lanes_of(machine: Machine, dtype: np.dtype[np.generic]) -> int:
    """Counts the elements of a type in the machine's widest vector."""
    return machine.vector_bytes // dtype.itemsize


# -- all blocks --------------------------------------------------------------------------------------------------------


def _blocks(name: str, machine: Machine) -> str:
    """Emits the kernel of all blocks. Units are blocks, those of a panel one after the other.

    The first `tall` blocks have `high` rows, the others one less. The first `wide` panels have `broad` vectors, the
    others one less. Stage i of k is from ends[stages[i]] to ends[stages[i + 1]]: all blocks of a group compute a stage
    before the next begins.
    """
    f = Function(name)
    a, rows, depth, b, c, *kernels = f.args("ppppppppp")
    k, n, tall, high, blocks, wide, broad, lane_bytes, lanes, row_step, column_step, step = (f.arg(9 + i) for i in range(12))
    table = Stages(f, 21)
    words = f.at("%args", FIRST_WORD, "i64")
    each = max(machine.block[0] * machine.block[1], *FEW) * machine.vector_bytes
    buffer = f.let(f"alloca [{GROUP * each} x i8], align 64")
    vectors_of_n = f.let(f"sdiv i64 {f.sub(f.add(n, lanes), 1)}, {lanes}")
    size = f.mul(f.mul(vectors_of_n, lane_bytes), k)

    def panel(j: str) -> None:
        narrow = f.let(f"icmp sge i64 {j}, {wide}")
        vectors = f.sub(broad, f.let(f"zext i1 {narrow} to i64"))
        start = start_of(f, j, wide, broad)
        place_of_panel = f.mul(f.mul(start, lane_bytes), k)
        right = f.beyond(b, place_of_panel)
        column = f.mul(start, lanes)
        valid = f.call("i64", "llvm.smin.i64", ("i64", f.mul(vectors, lanes)), ("i64", f.sub(n, column)))
        into = f.beyond(c, f.mul(column, column_step))
        bytes = f.mul(vectors, lane_bytes)
        tall_kernel = f.let(f"select i1 {narrow}, ptr {kernels[2]}, ptr {kernels[0]}")
        short_kernel = f.let(f"select i1 {narrow}, ptr {kernels[3]}, ptr {kernels[1]}")
        before = f.mul(j, blocks)
        begin = f.call("i64", "llvm.smax.i64", ("i64", f.sub("%first", before)), ("i64", "0"))
        until = f.call("i64", "llvm.smin.i64", ("i64", f.sub("%end", before)), ("i64", blocks))

        def blocks_of(first: str, last: str, ends: str, slices: str, stage: str) -> None:
            low, high_k = f.load("i64", ends), f.load("i64", f.at(ends, slices, "i64"))
            length = f.sub(high_k, low)
            # After this stage's bytes come the next stage's, or the next panel's: each block fetches a part of them, evenly,
            # so that weights arrive from memory while sums are computed.
            pace = f.add(f.let(f"sdiv i64 {bytes}, {f.sub(last, first)}"), 1)
            next = f.sub(f.add(place_of_panel, f.mul(bytes, high_k)), f.mul(pace, low))
            # After the last panel nothing comes: memory that is not mapped would cost a walk of the page table for each element of k.
            limit = f.sub(size, f.mul(pace, high_k))

            def block(i: str) -> None:
                row = start_of(f, i, tall, high)
                kernel = f.let(f"select i1 {f.let(f'icmp sge i64 {i}, {tall}')}, ptr {short_kernel}, ptr {tall_kernel}")
                target = f.beyond(into, f.mul(row, row_step))
                place = f.at(rows, row, "i64")
                number = f.sub(i, first)
                later = f.add(next, f.mul(f.mul(number, length), pace))
                ahead = f.beyond(b, f.call("i64", "llvm.smin.i64", ("i64", later), ("i64", limit)))
                held = f.beyond(buffer, f.mul(number, each))
                f.line(
                    f"call void {kernel}(ptr {a}, ptr {place}, ptr {depth}, ptr {right}, ptr {target}, i64 {step}, i64 {valid}, "
                    f"ptr {ends}, i64 {slices}, i64 {stage}, ptr {held}, ptr {ahead}, i64 {pace}, ptr {words}, i64 {row}, i64 {column})"
                )

            f.loop(first, last, block)

        table.groups(begin, until, blocks_of)

    f.loop(f.let(f"sdiv i64 %first, {blocks}"), f.let(f"sdiv i64 {f.sub(f.add('%end', blocks), 1)}, {blocks}"), panel)
    return f.done()


FIRST_WORD = 24  # the arguments from here on are those of an ending


class Stages:
    """Words of a launch, from `position` on, that divide k: addresses of `ends` and `stages`, and the number of stages."""

    def __init__(self, f: Function, position: int):
        self.f = f
        self.ends, self.stages = (f.arg(position + i, "ptr") for i in range(2))
        self.count = f.arg(position + 2)

    def groups(self, begin: str, until: str, blocks: Callable[[str, str, str, str, str], None]) -> None:
        """Emits `blocks(first, last, ends, slices, stage)` for groups of the blocks `begin` to `until`, and each stage."""
        f = self.f
        last_stage = f.sub(self.count, 1)

        def group(first: str) -> None:
            last = f.call("i64", "llvm.smin.i64", ("i64", f.add(first, GROUP)), ("i64", until))

            def stage(q: str) -> None:
                low, high = (f.load("i64", f.at(self.stages, i, "i64")) for i in (q, f.add(q, 1)))
                tests = f"sgt i64 {q}, 0", f"slt i64 {q}, {last_stage}"
                continues, stops = (f.let(f"zext i1 {f.let(f'icmp {test}')} to i64") for test in tests)
                bits = f.add(f.mul(continues, CONTINUES), f.mul(stops, STOPS))
                blocks(first, last, f.at(self.ends, low, "i64"), f.sub(high, low), bits)

            f.loop(0, self.count, stage)

        f.loop(begin, until, group, step=GROUP)

    @staticmethod
    def words(k: int, ends: Table | None, row_bytes: int, blocks: int = 2) -> list[int | Array | Kernel]:
        """Lists the words: stages of about STAGE bytes of a panel with rows of `row_bytes`; slices of k stay whole.

        A single block of a panel reads it once, so its k is one stage.
        """
        most = max(STAGE // row_bytes, 1) if blocks > 1 else k
        if ends is None:
            parts = -(-k // most)
            ends = np.array([k * i // parts for i in range(parts + 1)], np.int64)
            stages = np.arange(parts + 1, dtype=np.int64)
        else:
            chosen = [0]
            for i in range(1, len(ends)):
                if ends[i] - ends[chosen[-1]] > most and i - 1 > chosen[-1]:
                    chosen.append(i - 1)
            stages = np.array([*chosen, len(ends) - 1], np.int64)
        return [ends, stages, len(stages) - 1]


def start_of(f: Function, i: str, large: str, size: str) -> str:
    """Emits the start of part i, if the first `large` parts have `size` elements and the others one less."""
    shorter = f.call("i64", "llvm.smax.i64", ("i64", f.sub(i, large)), ("i64", "0"))
    return f.sub(f.mul(i, size), shorter)


def count_of(tall: int, high: int, parts: int) -> int:
    """Counts the elements of parts, of which the first `tall` have `high` and the others one less."""
    return parts * (high - 1) + min(tall, parts)


def in_parts(n: int, starts: Sequence[int], step: int, inner: int) -> Table:
    """Lists the places of n elements: a part's first is `step` for each element before it, and the others `inner` apart."""
    first = np.repeat(np.array(starts, np.int64), np.diff([*starts, n]))
    return first * step + (np.arange(n, dtype=np.int64) - first) * inner


def _multiplied(args: Arguments, units: int) -> Touched:
    """States what a launch of `_blocks` touches."""
    a, rows, depth, b, c = args[:5]
    k, n, tall, high, blocks, wide, broad, _, lanes, row_step, column_step, step = args[9:21]
    m, item, panels = count_of(tall, high, blocks), c.itemsize, units // blocks
    down, right = (step, item) if column_step == item else (item, step)
    place_of_row = in_parts(m, [count_of(tall, high, i) for i in range(blocks)], row_step, down)
    place_of_column = in_parts(n, [lanes * count_of(wide, broad, j) for j in range(panels)], column_step, right)
    read = [Elements.at(a, item, rows[:m], depth[:k]), Elements.at(b, item, (k * lanes * count_of(wide, broad, panels), item))]
    others = zip(*(args[FIRST_WORD + w :: 3] for w in range(3)))
    read += [Elements.at(x, x.itemsize, (m, i), (n, j)) for x, i, j in others]
    return Touched(read, [Elements.at(c, item, place_of_row, place_of_column)])


BLOCKS = Kernel("blocks", _blocks, _multiplied)


def _packer(type: str, single: bool, name: str, machine: Machine) -> str:
    """Emits the packing of rows `low` to `high` of b[k, n], at depth[k] + columns[n], into panels padded with zeros.

    Units are panels, counted from `skipped`. `single`: panels are some elements wide, not vectors.
    """
    item = BYTES[type]
    lanes = 1 if single else machine.vector_bytes // item
    f = Function(name)
    b, depth, columns, panels, k, n, wide, broad, side, low, high, skipped = f.args("ppppiiiiiiii")

    def panel(unit: str) -> None:
        j = f.add(unit, skipped)
        start = start_of(f, j, wide, broad)
        vectors = f.sub(broad, f.let(f"zext i1 {f.let(f'icmp sge i64 {j}, {wide}')} to i64"))
        width = f.mul(vectors, lanes)
        into = f.at(panels, f.mul(f.mul(start, lanes), k), type)
        column = f.mul(start, lanes)
        valid = f.call("i64", "llvm.smin.i64", ("i64", width), ("i64", f.sub(n, column)))
        from_ = f.at(columns, column, "i64")

        def target_of(i: str) -> str:
            return f.at(into, f.mul(i, width), type)

        def source_of(i: str) -> str:
            return f.beyond(b, f.load("i64", f.at(depth, i, "i64")))

        def straight() -> None:
            full = f.let(f"sdiv i64 {valid}, {lanes}")

            def row(i: str) -> None:
                base, target = f.beyond(source_of(i), f.load("i64", from_)), target_of(i)

                def vector(v: str) -> None:
                    at = f.mul(v, lanes)
                    f.store(f"<{lanes} x {type}>", f.load(f"<{lanes} x {type}>", f.at(base, at, type), item), f.at(target, at, type), item)

                f.loop(0, full, vector)
                f.each(f.mul(full, lanes), valid, lambda q: f.store(type, f.load(type, f.at(base, q, type)), f.at(target, q, type)))

            f.loop(low, high, row)

        def scattered() -> None:
            def rows(begin: str) -> None:  # of a line of each column, which are often neighbours: columns may lie a power of two apart
                end = f.call("i64", "llvm.smin.i64", ("i64", f.add(begin, LINE // item)), ("i64", high))

                def one(q: str) -> None:
                    across = f.load("i64", f.at(from_, q, "i64"))

                    def row(i: str) -> None:
                        f.store(type, f.load(type, f.beyond(source_of(i), across)), f.at(target_of(i), q, type))

                    f.loop(begin, end, row)

                f.loop(0, valid, one)

            f.loop(low, high, rows, step=LINE // item)

        if single:
            scattered()
        else:
            f.when(f.let(f"icmp ne i64 {side}, 0"), straight, scattered)

        def padding(i: str) -> None:
            target = target_of(i)
            f.each(valid, width, lambda q: f.store(type, "0" if type.startswith("i") else "0.0", f.at(target, q, type)))

        f.loop(low, high, padding)

    f.loop("%first", "%end", panel)
    return f.done()


def _packed(item: int, lanes: int, args: Arguments, units: int) -> Touched:
    """States what a launch of `_packer` touches that packs whole panels."""
    b, depth, columns, panels, k, n, wide, broad, side, low, high, skipped = args
    first, end = (lanes * count_of(wide, broad, i) for i in (skipped, skipped + units))
    across = np.arange(first, min(end, n), dtype=np.int64) * item + int(columns[0]) if side and lanes > 1 else columns[first:end]
    written = Elements.at(panels, item, ((end - first) * (high - low), item), (1, first * k * item))
    assert (low, high) == (0, k), (low, high, k)
    return Touched([Elements.at(b, item, depth[low:high], across)], [written])


def pack_kernel(dtype: str, lanes: int) -> Kernel:
    """Names the kernel that packs panels of an element type, some vectors or, if `lanes` is 1, some elements wide."""
    key = f"pack {dtype}{' single' if lanes == 1 else ''}"
    return Kernel(key, partial(_packer, SUMMED[dtype], lanes == 1), partial(_packed, np.dtype(dtype).itemsize, lanes), vectors=True)


# -- products ----------------------------------------------------------------------------------------------------------


@dataclass
class Product:
    """Matrix product under construction.

    Tables are in bytes; so are c's `row_step` and `column_step`, one of which is an element.
    """

    library: Library
    a: Array
    rows: Table
    depth: Table
    c: Array
    row_step: int
    column_step: int
    n: int
    ends: Table | None = None

    @property
    def block(self) -> tuple[int, int]:
        """Rows, and vectors per row, of the largest block of sums: wider for one row, as its sums are few."""
        host = self.library.host
        if self.column_step != self.c.itemsize:
            return host.block
        if len(self.rows) > 1:
            return (3, 3) if host.few_registers else host.block
        if not host.few_registers or len(self.depth) * self.n * self.c.itemsize > KEPT:
            return 1, ALONE
        vectors = -(-self.n // lanes_of(host, self.c.dtype))
        return 1, next((width for width in FEW if vectors % width == 0), FEW[0])

    @property
    def panels(self) -> Panels:
        """Panels of the right-hand side, as wide as a block of sums."""
        return Panels.of(self.n, lanes_of(self.library.host, self.c.dtype), self.block[1])

    def pack(
        self,
        b: Array,
        depth: Table,
        columns: Table,
        room: Array,
        rows: tuple[int, int] | None = None,
        panels: tuple[int, int] | None = None,
    ) -> Launch:
        """Builds the launch that packs b into `room`; element (k, n) of b is at depth[k] + columns[n].

        `rows`, `panels`: ranges to pack; by default all.
        """
        p = self.panels
        (low, high), (first, end) = rows or (0, len(depth)), panels or (0, p.parts)
        side = bool(np.all(np.diff(columns) == b.itemsize))
        args: Sequence[int | Array | Kernel] = [b, depth, columns, room, len(depth), p.n, p.wide, p.broad, int(side), low, high, first]
        work = room.nbytes * (high - low) // len(depth) * (end - first) // p.parts // 8
        return Launch(self.library, pack_kernel(self.c.dtype.name, p.lanes), args, end - first, work)

    def packed(self, b: Array, depth: Table, columns: Table, constants: PackedForms | None) -> Packed:
        """Packs b now, into memory of its own, or gives the panels that `constants` has of it."""

        def pack() -> Array:
            room = lines(len(depth) * self.panels.columns, b.dtype)
            self.fill(room, b, depth, columns)
            return room

        begin = b.ctypes.data
        key = (self.panels, b.dtype.name, depth.tobytes(), columns.tobytes())
        room = pack() if constants is None else constants.form(begin, key, pack)
        return Packed(room, begin, depth, columns, self.panels)

    def fill(self, room: Array, b: Array, depth: Table, columns: Table) -> None:
        """Packs b into `room`. Mapped pages of a file are released piece by piece."""
        pieces = -(-b.nbytes // PIECE)
        if pieces == 1:
            self.pack(b, depth, columns, room)()
            return
        if abs(b.strides[-1]) <= abs(b.strides[0]):  # rows are further apart than columns
            for low, high in itertools.pairwise(len(depth) * i // pieces for i in range(pieces + 1)):
                self.pack(b, depth, columns, room, rows=(low, high))()
                mmap_file.release()
            return
        for first, end in itertools.pairwise(self.panels.parts * i // pieces for i in range(pieces + 1)):
            self.pack(b, depth, columns, room, panels=(first, end))()
            mmap_file.release()

    def launch(self, packed: Array, formula: OnMatrix | None = None) -> Launch | None:
        """Builds the launch that multiplies with packed panels, and applies a formula to the sums.

        Returns None if there is no code for the formula.
        """
        p, m, item = self.panels, len(self.rows), self.c.itemsize
        parts, high, tall = shares(m, self.block[0])
        form = "rows" if self.column_step == item else "columns"
        assert item in (self.column_step, self.row_step), (self.row_step, self.column_step)
        ending = None if formula is None else ending_of(formula, 1 if form == "rows" else 0)
        if formula is not None and ending is None:
            return None
        words: Sequence[Word] = () if formula is None else formula.words
        kernels = [
            block_kernel(max(rows, 1), max(vectors, 1), self.c.dtype.name, form if self.ends is None else f"sliced {form}", ending)
            for vectors in (p.broad, p.broad - 1)
            for rows in (high, high - 1)
        ]
        # Sizes that do not occur are not compiled.
        if tall == parts:
            kernels[1], kernels[3] = kernels[0], kernels[2]
        if p.wide == p.parts:
            kernels[2], kernels[3] = kernels[0], kernels[1]
        step = self.row_step if form == "rows" else self.column_step
        args: Sequence[int | Array | Kernel] = [
            self.a, self.rows, self.depth, packed, self.c, *kernels, len(self.depth), self.n, tall, high, parts, p.wide, p.broad,
            p.lanes * item, p.lanes, self.row_step, self.column_step, step,
            *Stages.words(len(self.depth), self.ends, p.broad * p.lanes * item, parts), *words,
        ]  # fmt: skip
        assert len(args) == FIRST_WORD + len(words), len(args)
        # 100 GFLOP/s in f32; but panels come from memory, or from the last cache, at some 45 GB/s.
        work = max(m * p.columns * len(self.depth) * item // 200, p.columns * len(self.depth) * item // 45)
        if ending is not None:
            work += long_work(ending.tape, m * self.n)  # other steps hide behind multiplications
        return Launch(self.library, BLOCKS, args, p.parts * parts, work)
