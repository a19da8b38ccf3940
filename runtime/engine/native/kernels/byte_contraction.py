"""Kernels of products of 8-bit integers: blocks of sums in registers, packed panels, and a formula on the sums.

    c[m, n] = sum over k of a[m, k] b[k, n]        i32, or formula(c, ..)

As in `contraction.py`, a is read in place: bytes 4 g to 4 g + 3 of row m are at rows[m] + depth[g]. b is packed by fours of k
(`codegen/byte_dots.py`). Sums wrap around, so neither order nor width changes a bit. A formula of a `map` that reads c runs on
some rows of a panel while they are in the first cache.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from populus.runtime.codelets.task import Array
from populus.runtime.engine.native.codegen import byte_dots
from populus.runtime.engine.native.codegen.cpu import WASM, Machine
from populus.runtime.engine.native.codegen.jit import Kernel, Library
from populus.runtime.engine.native.codegen.llvm_builder import Function
from populus.runtime.engine.native.codegen.touched import Arguments, Elements, Touched
from populus.runtime.engine.native.kernels import byte_tile_blocks
from populus.runtime.engine.native.kernels.contraction import count_of, start_of
from populus.runtime.engine.native.kernels.formula_words import WORDS, Epilogue, call_formula, formula_touches
from populus.runtime.engine.native.kernels.launch import Launch
from populus.runtime.engine.native.kernels.panels import Panels, Table, shares

AT_ONCE = 8  # blocks of rows whose sums wait for the formula
FEW, LARGE = 4, 1 << 21  # rows up to which, and elements from which, panels stay in bytes
MARK = ("", " few")  # of the keys of kernels
FIRST_WORD = 19  # the arguments from here on are those of a formula


def block_kernel(rows: int, vectors: int, signed: bool, few: bool = False) -> Kernel:
    """Names the kernel of `rows` by `vectors` sums. `signed`: a is i8 and not ui8. `few`: the panels are those for few rows."""
    return Kernel(f"byte block {rows} {vectors} {signed}{MARK[few]}", partial(_block, rows, vectors, signed, few))


def _block(rows: int, vectors: int, signed: bool, few: bool, name: str, machine: Machine) -> str:
    lanes = byte_dots.lanes_of(machine)
    vector, size = f"<{lanes} x i32>", byte_dots.bytes_of(machine, few)
    # begin: the sums' first values by column; step: bytes between rows of c; valid: number of columns inside c
    f = Function(
        name,
        "ptr noalias readonly %a, ptr noalias readonly %rows, ptr noalias readonly %depth, ptr noalias readonly %b, i64 %fours, "
        "ptr noalias %c, i64 %step, i64 %valid, ptr noalias readonly %begin",
        "void",
    )
    starts = [f.beyond("%a", f.load("i64", f.at("%rows", r, "i64"))) for r in range(rows)]
    first = [f.load(vector, f.at("%begin", v * lanes, "i32"), 4) for v in range(vectors)]

    def step(i: str, *sums: str) -> list[str]:
        offset = f.load("i64", f.at("%depth", i, "i64"))
        panel = f.beyond("%b", f.mul(i, vectors * size))
        panels, lines = [f.beyond(panel, v * size) for v in range(vectors)], [f.beyond(start, offset) for start in starts]
        new, count = list(sums), byte_dots.parts_of(machine)
        for parts in [[part] for part in range(count)] if machine.few_registers else [range(count)]:
            if parts[0]:  # LLVM would load all parts before it sums, which is more than V8 has registers for
                new = [f.held(vector, x) for x in new]
            columns = [[byte_dots.right(f, machine, place, part, few) for part in parts] for place in panels]
            for r, line in enumerate(lines):
                row = [byte_dots.left(f, machine, line, part, signed) for part in parts]
                for v, column in enumerate(columns, r * vectors):
                    for x, y in zip(row, column):
                        new[v] = byte_dots.summed(f, machine, new[v], x, y, signed)
        return new

    sums = f.loop(0, "%fours", step, [(vector, first[v]) for _ in range(rows) for v in range(vectors)])
    rest = f.sub("%valid", (vectors - 1) * lanes)

    def store(mask: str) -> None:
        for i, value in enumerate(sums):
            r, v = divmod(i, vectors)
            place = f.at(f.beyond("%c", f.mul("%step", r)), v * lanes, "i32")
            if mask and v == vectors - 1:
                masked = f"llvm.masked.store.v{lanes}i32.p0"
                f.call("void", masked, (vector, value), ("ptr", place), ("i32 immarg", "4"), (f"<{lanes} x i1>", mask))
            else:
                f.store(vector, value, place, 4)

    def cut() -> None:
        counts = f"<{lanes} x i64> <{', '.join(f'i64 {n}' for n in range(lanes))}>"
        store(f.let(f"icmp slt {counts}, {f.splat('i64', lanes, rest)}"))

    # A masked store is dozens of operations with AVX2, and a branch for each lane where vectors have no masks.
    f.when(f.let(f"icmp sge i64 {rest}, {lanes}"), lambda: store(""), cut)
    return f.done("void")


def _blocks(formula: bool, few: bool, name: str, machine: Machine) -> str:
    """Emits the kernel of all blocks. Units are chunks of up to AT_ONCE blocks of rows, those of a panel one after the other.

    The first `tall` blocks have `high` rows, the others one less; so have the first `wide` panels `broad` vectors. With a
    formula, `words` are its arguments, the first `pointers` of which are addresses; `moves` has for each the bytes between
    rows and between columns. Three of the words are those of the block: its sums, its columns, its width.
    """
    f = Function(name)
    a, rows, depth, b, begin, c, *kernels = f.args("pppppp" + "pppp")
    fours, n, blocks, high, tall, wide, broad, row_step, chunks = (f.arg(10 + i) for i in range(9))
    lanes, vector_bytes = byte_dots.lanes_of(machine), byte_dots.bytes_of(machine, few)
    rows_most, vectors_most = byte_dots.block_of(machine)
    sums = room = ""
    if formula:
        room = f.let(f"alloca [{WORDS} x i64], align 64")
        sums = f.let(f"alloca [{AT_ONCE * rows_most * vectors_most * lanes} x i32], align 64")

    def unit(u: str) -> None:
        j, chunk = f.let(f"sdiv i64 {u}, {chunks}"), f.let(f"srem i64 {u}, {chunks}")
        narrow = f.let(f"icmp sge i64 {j}, {wide}")
        vectors = f.sub(broad, f.let(f"zext i1 {narrow} to i64"))
        start = start_of(f, j, wide, broad)
        panel = f.beyond(b, f.mul(f.mul(start, vector_bytes), fours))
        column, width = f.mul(start, lanes), f.mul(vectors, lanes)
        valid = f.call("i64", "llvm.smin.i64", ("i64", width), ("i64", f.sub(n, column)))
        first = f.at(begin, column, "i32")
        tall_kernel = f.let(f"select i1 {narrow}, ptr {kernels[2]}, ptr {kernels[0]}")
        short_kernel = f.let(f"select i1 {narrow}, ptr {kernels[3]}, ptr {kernels[1]}")
        low = f.mul(chunk, AT_ONCE)
        until = f.call("i64", "llvm.smin.i64", ("i64", f.add(low, AT_ONCE)), ("i64", blocks))
        low_row, end_row = start_of(f, low, tall, high), start_of(f, until, tall, high)
        target = sums if formula else f.beyond(f.at(c, column, "i32"), f.mul(low_row, row_step))
        step, inside = (f.mul(width, 4), width) if formula else (row_step, valid)

        def block(i: str) -> None:
            row = start_of(f, i, tall, high)
            kernel = f.let(f"select i1 {f.let(f'icmp sge i64 {i}, {tall}')}, ptr {short_kernel}, ptr {tall_kernel}")
            into = f.beyond(target, f.mul(f.sub(row, low_row), step))
            f.line(
                f"call void {kernel}(ptr {a}, ptr {f.at(rows, row, 'i64')}, ptr {depth}, ptr {panel}, i64 {fours}, "
                f"ptr {into}, i64 {step}, i64 {inside}, ptr {first})"
            )

        f.loop(low, until, block)
        if formula:
            call_formula(f, FIRST_WORD, room, low_row, column, f.sub(end_row, low_row), valid, width, sums)

    f.loop("%first", "%end", unit)
    return f.done()


def _packer(few: bool, name: str, machine: Machine) -> str:
    """Emits the packing of b[k, n], i8 at depth[k] + columns[n], into panels padded with zeros. Units are panels.

    It also writes `begin`: for each column `factor` times its sum.
    """
    lanes, size = byte_dots.lanes_of(machine), byte_dots.bytes_of(machine, few)
    f = Function(name)
    b, depth, columns, panels, begin = f.args("ppppp")
    k, n, wide, broad, straight, factor = (f.arg(5 + i) for i in range(6))
    fours = f.let(f"sdiv i64 {f.add(k, 3)}, 4")
    times = f.let(f"trunc i64 {factor} to i32")

    def panel(j: str) -> None:
        start = start_of(f, j, wide, broad)
        vectors = f.sub(broad, f.let(f"zext i1 {f.let(f'icmp sge i64 {j}, {wide}')} to i64"))
        into = f.beyond(panels, f.mul(f.mul(start, size), fours))
        f.each(0, f.mul(vectors, lanes), lambda q: f.store("i32", "0", f.at(begin, f.add(f.mul(start, lanes), q), "i32")))

        def four(g: str) -> None:
            sources: list[str] = []
            kept: list[str] = []
            for r in range(4):
                row = f.add(f.mul(g, 4), r)
                last = f.call("i64", "llvm.smin.i64", ("i64", row), ("i64", f.sub(k, 1)))
                sources.append(f.beyond(b, f.load("i64", f.at(depth, last, "i64"))))
                kept.append(f.let(f"sext i1 {f.let(f'icmp slt i64 {row}, {k}')} to i8"))

            def vector(v: str) -> None:
                column = f.mul(f.add(start, v), lanes)
                place = f.beyond(into, f.mul(f.add(f.mul(g, vectors), v), size))
                left = f.call("i64", "llvm.smax.i64", ("i64", f.sub(n, column)), ("i64", "0"))
                valid = f.call("i64", "llvm.smin.i64", ("i64", str(lanes)), ("i64", left))

                def one(q: str, offset: str) -> None:
                    rows = [f.let(f"and i8 {f.load('i8', f.beyond(s, offset))}, {m}") for s, m in zip(sources, kept)]
                    byte_dots.packed(f, machine, rows, place, q, few)
                    wide_rows = [f.let(f"sext i8 {r} to i32") for r in rows]
                    total = wide_rows[0]
                    for w in wide_rows[1:]:
                        total = f.let(f"add i32 {total}, {w}")
                    here = f.at(begin, f.add(column, q), "i32")
                    f.store("i32", f.let(f"add i32 {f.load('i32', here)}, {f.let(f'mul i32 {total}, {times}')}"), here)

                def adjacent(q: str) -> None:
                    one(q, f.add(column, q))

                def scattered(q: str) -> None:
                    one(q, f.load("i64", f.at(columns, f.add(column, q), "i64")))

                def empty(q: str) -> None:
                    byte_dots.packed(f, machine, ["0"] * 4, place, q, few)

                near = f.let(f"icmp ne i64 {straight}, 0")
                f.when(near, lambda: f.each(0, valid, adjacent), lambda: f.each(0, valid, scattered))
                f.loop(valid, lanes, empty)

            f.loop(0, vectors, vector)

        f.loop(0, fours, four)

    f.loop("%first", "%end", panel)
    return f.done()


def _packed(args: Arguments, units: int) -> Touched:
    """States what a launch of `_packer` touches."""
    b, depth, columns, panels, begin, k, n, _, _, straight, _ = args
    across = np.arange(n, dtype=np.int64) if straight else columns[:n]
    return Touched([Elements.at(b, 1, depth[:k], across)], [Elements.of(panels), Elements.of(begin)])


def _touches(formula: bool, args: Arguments, units: int) -> Touched:
    """States what a launch of `_blocks` touches."""
    a, rows, depth, panels, begin, c = args[:6]
    fours, n, blocks, high, tall, _, _, row_step = args[10:18]
    m = count_of(tall, high, blocks)
    reads = [Elements.at(a, 4 * a.itemsize, rows[:m], depth[:fours]), Elements.of(panels), Elements.of(begin)]
    if not formula:
        return Touched(reads, [Elements.at(c, 4, (m, row_step), (n, 4))], unset=True)
    others, writes = formula_touches(args[FIRST_WORD:], m, n)
    return Touched([*reads, *others], writes, unset=True)


def pack_kernel(few: bool = False) -> Kernel:
    """Names the kernel that packs panels."""
    return Kernel(f"byte pack{MARK[few]}", partial(_packer, few), _packed)


def blocks_kernel(formula: bool, few: bool = False) -> Kernel:
    """Names the kernel of all blocks."""
    return Kernel(f"byte blocks{' formula' if formula else ''}{MARK[few]}", partial(_blocks, formula, few), partial(_touches, formula))


@dataclass(frozen=True)
class Bytes:
    """Packed panels of the right-hand side, and the sums' first values."""

    panels: Array
    begin: Array


@dataclass
class ByteProduct:
    """Product under construction: m rows by n columns of sums over k. `signed`: a is i8. `rows`: m, for which panels are chosen."""

    library: Library
    n: int
    k: int
    signed: bool
    rows: int

    @property
    def few(self) -> bool:
        """True if the panels are those for few rows: as 16 bits they would leave the caches, and each is read for few products.

        So are all of WebAssembly, which widens them in the instruction that loads them: pages ship and hold half as many bytes.
        """
        host, few = self.library.host, self.rows <= FEW and self.n * self.k >= LARGE
        return (few or host.architecture == WASM) and byte_dots.form_of(host, True) == "thin"

    @property
    def panels(self) -> Panels:
        """Panels of the right-hand side."""
        host = self.library.host
        return Panels.of(self.n, byte_dots.lanes_of(host), byte_dots.block_of(host)[1])

    @property
    def fours(self) -> int:
        """Number of groups of four bytes of k."""
        return -(-self.k // 4)

    @property
    def room(self) -> int:
        """Bytes of the packed panels."""
        return self.panels.columns // self.panels.lanes * byte_dots.bytes_of(self.library.host, self.few) * self.fours

    def pack(self, b: Array, depth: Table, columns: Table, into: Bytes) -> Launch:
        """Builds the launch that packs b: element (k, n) is at depth[k] + columns[n]."""
        p = self.panels
        straight = len(columns) == 1 or bool(np.array_equal(columns, np.arange(self.n)))
        factor = -byte_dots.offset_of(self.library.host, self.signed)
        args: Sequence[int | Array | Kernel] = [
            b, depth, columns, into.panels, into.begin, self.k, self.n, p.wide, p.broad, int(straight), factor,
        ]  # fmt: skip
        return Launch(self.library, pack_kernel(self.few), args, p.parts, self.room // (8 if straight else 1))

    def launch(self, a: Array, rows: Table, depth: Table, right: Bytes, c: Array | None, row_step: int, formula: Epilogue | None) -> Launch:
        """Builds the launch that multiplies. Without a formula, c's columns are adjacent and its rows `row_step` bytes apart."""
        p, m = self.panels, len(rows)
        assert m == self.rows, (m, self.rows)
        assert len(depth) == self.fours, (len(depth), self.k)
        steps = byte_tile_blocks.steps_of(self.library.host, rows, depth)
        if steps is not None:
            into, host = right.begin if c is None else c, self.library.host
            args, units = byte_tile_blocks.arguments(host, steps, a, rows, right.panels, right.begin, into, self.n, p, row_step)
            work = m * p.columns * self.fours * 4 // 1500 + m * p.columns // 4
            kernel = byte_tile_blocks.kernel(formula is not None, self.signed)
            return Launch(self.library, kernel, [*args, *(formula.arguments() if formula else ())], units, work)
        parts, high, tall = shares(m, byte_dots.block_of(self.library.host)[0])
        kernels = [block_kernel(max(r, 1), max(v, 1), self.signed, self.few) for v in (p.broad, p.broad - 1) for r in (high, high - 1)]
        # Sizes that do not occur are not compiled.
        if tall == parts:
            kernels[1], kernels[3] = kernels[0], kernels[2]
        if p.wide == p.parts:
            kernels[2], kernels[3] = kernels[0], kernels[1]
        chunks = -(-parts // AT_ONCE)
        args: list[int | Array | Kernel] = [
            a, rows, depth, right.panels, right.begin, right.begin if c is None else c, *kernels,
            self.fours, self.n, parts, high, tall, p.wide, p.broad, row_step, chunks,
        ]  # fmt: skip
        work = m * p.columns * self.fours * 4 // 300
        if formula is None:
            return Launch(self.library, blocks_kernel(False, self.few), args, p.parts * chunks, work)
        assert len(args) == FIRST_WORD, len(args)
        args += formula.arguments()
        return Launch(self.library, blocks_kernel(True, self.few), args, p.parts * chunks, work + m * p.columns // 4)
