"""Kernels of `matmul` and `conv`: blocks of sums held in registers, with the right-hand side packed into panels.

    c[m, n] = sum over k of a[m, k] b[k, n]

The kernels read a in place. Element (m, k) lies at rows[m] + depth[k], two tables of byte offsets, so a convolution's
windows are rows of a matrix that is never stored. b is packed as panels a few vectors wide, once if it is constant.
Each element is one sum in the order of k, from 0, for any size of block. If the CPU has fused multiply-add, product
and sum are rounded once.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from populus.dialects.support import mmap_file
from populus.runtime.codelets.task import Array, PackedForms
from populus.runtime.engine.native.codegen.cpu import Machine
from populus.runtime.engine.native.codegen.jit import Kernel, Library
from populus.runtime.engine.native.codegen.llvm_builder import Function
from populus.runtime.engine.native.kernels.launch import Launch
from populus.runtime.engine.native.kernels.panels import Packed, Panels, Table

LINE = 64  # bytes of a line of a cache
PREFETCH = ("i32 immarg", "2"), ("i32 immarg", "1")  # data, into the second cache
PIECE = 32 << 20  # bytes of a constant per packing launch
TYPES = {"float32": "float", "float64": "double"}
SUMMED = {**TYPES, "int32": "i32", "uint32": "i32", "int64": "i64", "uint64": "i64"}  # integers wrap around
SUFFIX = {"float": "f32", "double": "f64", "i32": "i32", "i64": "i64"}
BYTES = {"float": 4, "double": 8, "i32": 4, "i64": 8}


def lanes_of(machine: Machine, dtype: np.dtype[np.generic]) -> int:
    """Counts the elements of a type in the machine's widest vector."""
    return machine.vector_bytes // dtype.itemsize


# -- one block of rows by vectors -------------------------------------------------------------------------------------


def block_kernel(rows: int, vectors: int, dtype: str, form: str) -> Kernel:
    """Names the kernel of `rows` by `vectors` sums.

    `form`: the layout of c, `rows` (columns are adjacent) or `columns` (rows are adjacent). In `swapped`, which is `rows`
    too, the left side is packed, and the columns of the right side are adjacent in memory; `%valid` cuts the last
    vector, but not in `swapped whole`. With the prefix `sliced ` each slice of k has its own sum, and the sums are added in order.
    """
    return Kernel(f"block {rows} {vectors} {dtype} {form}", partial(_block, rows, vectors, SUMMED[dtype], form))


def _block(rows: int, vectors: int, type: str, form: str, name: str, machine: Machine) -> str:
    item = BYTES[type]
    lanes = machine.vector_bytes // item
    vector, plus = f"<{lanes} x {type}>", "add" if type.startswith("i") else "fadd"
    # rows: the block's part of the table; b: the panel; c: the block's first element;
    # step: bytes between rows, or between columns; valid: number of columns inside c;
    # ahead: lines of a later panel, which arrive meanwhile
    f = Function(
        name,
        "ptr noalias readonly %a, ptr noalias readonly %rows, ptr noalias readonly %depth, ptr noalias readonly %b, i64 %k, "
        "ptr noalias %c, i64 %step, i64 %valid, ptr noalias readonly %ends, i64 %slices, ptr noalias %buffer, ptr %ahead",
        "void",
    )
    swapped, whole = "swapped" in form, form.endswith("whole")
    starts = [] if swapped else [f.beyond("%a", f.load("i64", f.at("%rows", r, "i64"))) for r in range(rows)]
    inside = _inside(f, vectors, lanes)

    def step(i: str, *sums: str) -> list[str]:
        offset = f.load("i64", f.at("%depth", i, "i64"))
        if swapped:
            panel, line = f.at("%b", f.mul(i, rows), type), f.beyond("%a", offset)
            right = [f.load(vector, f.at(line, v * lanes, type), item) for v in range(vectors - (not whole))]
            if not whole:
                right.append(_masked_load(f, type, lanes, f.at(line, (vectors - 1) * lanes, type), inside))
        else:
            f.call("void", "llvm.prefetch.p0", ("ptr", f.beyond("%ahead", f.mul(i, LINE))), ("i32 immarg", "0"), *PREFETCH)
            panel = f.at("%b", f.mul(i, vectors * lanes), type)
            right = [f.load(vector, f.at(panel, v * lanes, type), item) for v in range(vectors)]
        new: list[str] = []
        for r in range(rows):
            place = f.at(panel, r, type) if swapped else f.beyond(starts[r], offset)
            left = f.splat(type, lanes, f.load(type, place))
            for v in range(vectors):
                total = sums[r * vectors + v]
                if type.startswith("i"):
                    new.append(f.let(f"add {vector} {total}, {f.let(f'mul {vector} {left}, {right[v]}')}"))
                elif machine.fused:
                    new.append(f.call(vector, f"llvm.fma.v{lanes}{SUFFIX[type]}", (vector, left), (vector, right[v]), (vector, total)))
                else:
                    new.append(f.let(f"fadd {vector} {total}, {f.let(f'fmul {vector} {left}, {right[v]}')}"))
        return new

    zeros = [(vector, "zeroinitializer")] * (rows * vectors)
    if form.startswith("sliced"):

        def slice(s: str) -> None:
            place = f.at("%ends", s, "i64")
            sums = f.loop(f.load("i64", place), f.load("i64", f.at(place, 1, "i64")), step, zeros)

            def accumulate(first: bool) -> None:
                for i, value in enumerate(sums):
                    total = f.at("%buffer", i * lanes, type)
                    new = value if first else f.let(f"{plus} {vector} {f.load(vector, total, item)}, {value}")
                    f.store(vector, new, total, item)

            f.when(f.let(f"icmp eq i64 {s}, 0"), lambda: accumulate(True), lambda: accumulate(False))

        f.loop(0, "%slices", slice)
        sums = [f.load(vector, f.at("%buffer", i * lanes, type), item) for i in range(rows * vectors)]
    else:
        sums = f.loop(0, "%k", step, zeros)
    if form.endswith("columns"):
        _store_columns(f, rows, vectors, lanes, type, sums)
    else:
        _store_rows(f, rows, vectors, lanes, type, sums, "" if whole else inside)
    return f.done("void")


def _inside(f: Function, vectors: int, lanes: int) -> str:
    """Marks the lanes of a block's last vector that are columns below `%valid`."""
    left = f.sub("%valid", (vectors - 1) * lanes)
    counts = f"<{lanes} x i64> <{', '.join(f'i64 {n}' for n in range(lanes))}>"
    return f.let(f"icmp slt {counts}, {f.splat('i64', lanes, left)}")


def _masked_load(f: Function, type: str, lanes: int, place: str, inside: str) -> str:
    vector = f"<{lanes} x {type}>"
    operands = ("ptr", place), ("i32 immarg", str(BYTES[type])), (f"<{lanes} x i1>", inside), (vector, "zeroinitializer")
    return f.call(vector, f"llvm.masked.load.v{lanes}{SUFFIX[type]}.p0", *operands)


def _store_rows(f: Function, rows: int, vectors: int, lanes: int, type: str, sums: list[str], inside: str) -> None:
    """Stores whole vectors; a mask, if there is one, cuts the last columns."""
    vector, mask, item = f"<{lanes} x {type}>", f"<{lanes} x i1>", BYTES[type]
    masked = f"llvm.masked.store.v{lanes}{SUFFIX[type]}.p0"
    for r in range(rows):
        row = f.beyond("%c", f.mul("%step", r))
        for v in range(vectors):
            place, value = f.at(row, v * lanes, type), sums[r * vectors + v]
            if inside and v == vectors - 1:
                f.call("void", masked, (vector, value), ("ptr", place), ("i32 immarg", str(item)), (mask, inside))
            else:
                f.store(vector, value, place, item)


def _store_columns(f: Function, rows: int, vectors: int, lanes: int, type: str, sums: list[str]) -> None:
    """Stores the block transposed, so that each column becomes `rows` adjacent elements.

    It interleaves rows 0 and n/2, 1 and n/2 + 1, ...; after log2(n) rounds for n rows the elements are in order of
    columns.
    """
    vector = f"<{lanes} x {type}>"
    height = 1 << (rows - 1).bit_length()
    for v in range(vectors):
        turned = [sums[r * vectors + v] if r < rows else "poison" for r in range(height)]
        half = height // 2
        while half:
            turned = [
                f.let(f"shufflevector {vector} {a}, {vector} {b}, <{lanes} x i32> <{mask}>")
                for a, b in zip(turned[: height // 2], turned[height // 2 :])
                for mask in (_interleave(lanes, 0), _interleave(lanes, lanes // 2))
            ]
            half //= 2
        _store_turned(f, turned, v * lanes, rows, height, lanes, type)


def _interleave(lanes: int, first: int) -> str:
    return ", ".join(f"i32 {first + i // 2 + lanes * (i % 2)}" for i in range(lanes))


def _store_turned(f: Function, turned: list[str], first: int, rows: int, height: int, lanes: int, type: str) -> None:
    """Stores columns from `first` on. `turned` holds them one after the other, with `height` elements each."""
    vector, column, item = f"<{lanes} x {type}>", f"<{rows} x {type}>", BYTES[type]
    out = f.fresh("done")
    for n in range(lanes):
        number, start = divmod(n * height, lanes)
        write = f.fresh("column")
        within = f.let(f"icmp slt i64 {first + n}, %valid")
        f.line(f"br i1 {within}, label %{write}, label %{out}")
        f.start(write)
        if height <= lanes:
            elements = ", ".join(f"i32 {start + r}" for r in range(rows))
            value = f.let(f"shufflevector {vector} {turned[number]}, {vector} poison, <{rows} x i32> <{elements}>")
        else:
            parts = [turned[number + i] for i in range(height // lanes)]
            elements = ", ".join(f"i32 {r}" for r in range(rows))
            value = f.let(f"shufflevector {vector} {parts[0]}, {vector} {parts[1]}, <{rows} x i32> <{elements}>")
        target = f.beyond("%c", f.mul("%step", first + n))
        f.store(column, value, target, item)
    f.line(f"br label %{out}")
    f.start(out)


# -- all blocks --------------------------------------------------------------------------------------------------------


def _blocks(name: str, machine: Machine) -> str:
    """Emits the kernel of all blocks. Units are blocks, those of a panel one after the other.

    The first `tall` blocks have `high` rows; one more has the remaining rows. The first `wide` panels have `broad`
    vectors, the others one less.
    """
    f = Function(name)
    a, rows, depth, b, c, *kernels = f.args("ppppppppp")
    k, n, tall, high, blocks, wide, broad, lane_bytes, lanes, row_step, column_step, step = (f.arg(9 + i) for i in range(12))
    ends, slices = f.arg(21, "ptr"), f.arg(22)
    rows_most, vectors_most = machine.block
    buffer = f.let(f"alloca [{rows_most * vectors_most * machine.vector_bytes} x i8], align 16")

    def panel(j: str) -> None:
        narrow = f.let(f"icmp sge i64 {j}, {wide}")
        vectors = f.sub(broad, f.let(f"zext i1 {narrow} to i64"))
        start = start_of(f, j, wide, broad)
        right = f.beyond(b, f.mul(f.mul(start, lane_bytes), k))
        column = f.mul(start, lanes)
        valid = f.call("i64", "llvm.smin.i64", ("i64", f.mul(vectors, lanes)), ("i64", f.sub(n, column)))
        into = f.beyond(c, f.mul(column, column_step))
        bytes = f.mul(vectors, lane_bytes)
        next = f.beyond(right, f.mul(bytes, k))
        shares = f.sub(f.let(f"sdiv i64 {f.add(bytes, LINE - 1)}, {LINE}"), 1)
        tall_kernel = f.let(f"select i1 {narrow}, ptr {kernels[2]}, ptr {kernels[0]}")
        short_kernel = f.let(f"select i1 {narrow}, ptr {kernels[3]}, ptr {kernels[1]}")

        def block(i: str) -> None:
            row = f.mul(i, high)
            kernel = f.let(f"select i1 {f.let(f'icmp sge i64 {i}, {tall}')}, ptr {short_kernel}, ptr {tall_kernel}")
            target = f.beyond(into, f.mul(row, row_step))
            place = f.at(rows, row, "i64")
            # Each block fetches a part of the next panel, so that weights arrive from memory while sums are computed.
            ahead = f.beyond(next, f.mul(f.mul(f.call("i64", "llvm.smin.i64", ("i64", i), ("i64", shares)), k), LINE))
            f.line(
                f"call void {kernel}(ptr {a}, ptr {place}, ptr {depth}, ptr {right}, i64 {k}, "
                f"ptr {target}, i64 {step}, i64 {valid}, ptr {ends}, i64 {slices}, ptr {buffer}, ptr {ahead})"
            )

        before = f.mul(j, blocks)
        begin = f.call("i64", "llvm.smax.i64", ("i64", f.sub("%first", before)), ("i64", "0"))
        until = f.call("i64", "llvm.smin.i64", ("i64", f.sub("%end", before)), ("i64", blocks))
        f.loop(begin, until, block)

    f.loop(f.let(f"sdiv i64 %first, {blocks}"), f.let(f"sdiv i64 {f.sub(f.add('%end', blocks), 1)}, {blocks}"), panel)
    return f.done()


def start_of(f: Function, i: str, large: str, size: str) -> str:
    """Emits the start of part i, if the first `large` parts have `size` elements and the others one less."""
    shorter = f.call("i64", "llvm.smax.i64", ("i64", f.sub(i, large)), ("i64", "0"))
    return f.sub(f.mul(i, size), shorter)


BLOCKS = Kernel("blocks", _blocks)


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
        contiguous = f.let(f"icmp ne i64 {side}, 0")

        def row(i: str) -> None:
            source = f.beyond(b, f.load("i64", f.at(depth, i, "i64")))
            target = f.at(into, f.mul(i, width), type)

            def straight() -> None:
                base = f.beyond(source, f.load("i64", from_))
                full = f.let(f"sdiv i64 {valid}, {lanes}")

                def vector(v: str) -> None:
                    at = f.mul(v, lanes)
                    f.store(f"<{lanes} x {type}>", f.load(f"<{lanes} x {type}>", f.at(base, at, type), item), f.at(target, at, type), item)

                f.loop(0, full, vector)
                f.each(f.mul(full, lanes), valid, lambda q: f.store(type, f.load(type, f.at(base, q, type)), f.at(target, q, type)))

            def scattered() -> None:
                def one(q: str) -> None:
                    value = f.load(type, f.beyond(source, f.load("i64", f.at(from_, q, "i64"))))
                    f.store(type, value, f.at(target, q, type))

                f.loop(0, valid, one)

            if single:
                scattered()
            else:
                f.when(contiguous, straight, scattered)
            f.each(valid, width, lambda q: f.store(type, "0" if type.startswith("i") else "0.0", f.at(target, q, type)))

        f.loop(low, high, row)

    f.loop("%first", "%end", panel)
    return f.done()


def pack_kernel(dtype: str, lanes: int) -> Kernel:
    """Names the kernel that packs panels of an element type, some vectors or, if `lanes` is 1, some elements wide."""
    return Kernel(f"pack {dtype}{' single' if lanes == 1 else ''}", partial(_packer, SUMMED[dtype], lanes == 1))


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
    def panels(self) -> Panels:
        """Panels of the right-hand side."""
        host = self.library.host
        return Panels.of(self.n, lanes_of(host, self.c.dtype), host.block[1])

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
            room = np.empty(len(depth) * self.panels.columns, b.dtype)
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

    def launch(self, packed: Array) -> Launch:
        """Builds the launch that multiplies with packed panels."""
        p, m, item = self.panels, len(self.rows), self.c.itemsize
        high = min(m, self.library.host.block[0])
        parts, tall, short = -(-m // high), m // high, m % high
        form = "rows" if self.column_step == item else "columns"
        assert item in (self.column_step, self.row_step), (self.row_step, self.column_step)
        kernels = [
            block_kernel(max(rows, 1), max(vectors, 1), self.c.dtype.name, form if self.ends is None else f"sliced {form}")
            for vectors in (p.broad, p.broad - 1)
            for rows in (high, short)
        ]
        # Sizes that do not occur are not compiled.
        if tall == parts:
            kernels[1], kernels[3] = kernels[0], kernels[2]
        if p.wide == p.parts:
            kernels[2], kernels[3] = kernels[0], kernels[1]
        step = self.row_step if form == "rows" else self.column_step
        ends = np.array([0, len(self.depth)], np.int64) if self.ends is None else self.ends
        args: Sequence[int | Array | Kernel] = [
            self.a, self.rows, self.depth, packed, self.c, *kernels, len(self.depth), self.n, tall, high, parts, p.wide, p.broad,
            p.lanes * item, p.lanes, self.row_step, self.column_step, step,
            ends, len(ends) - 1,
        ]  # fmt: skip
        work = m * p.columns * len(self.depth) * item // 200  # 100 GFLOP/s in f32
        return Launch(self.library, BLOCKS, args, p.parts * parts, work)
