"""`packed_matmul`: products by weights of 2, 4 or 8 bits, which become floats in registers.

A row of weights is read as words of 32 bits, 16 at a time. A code at bit p of a word becomes the float 2^23 + 2^p code by an `and` and an
`or`; less 2^23 + 2^p zero, this is 2^p (code - zero), exact for whole zero points. It is multiplied by 2^-p x, which lies in the
same order. Sums of 16 words of a block are multiplied by its scale, and added to 16 running sums, one for each word. So the order
of sums depends neither on the cut nor on the CPU.

For many rows of x, some columns of weights at a time become floats in memory, `(code - zero) scale`, and a product of floats follows,
whose sums are in the order of k.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from populus.runtime.codelets.task import Array, Task
from populus.runtime.engine.native.codegen.cpu import Machine
from populus.runtime.engine.native.codegen.jit import Kernel, Library
from populus.runtime.engine.native.codegen.llvm_builder import Function, number
from populus.runtime.engine.native.codegen.touched import Arguments, Elements, Touched
from populus.runtime.engine.native.kernels.launch import Launch
from populus.runtime.engine.native.kernels.operands import Matrix, walk_over, walks_of
from populus.runtime.engine.native.kernels.panels import offsets
from populus.runtime.engine.native.kernels.products import Right, product, rows_along

LANES = 16  # words at a time
ROWS = 4  # of x at most, which share weights in registers
COLUMNS = 8  # of a unit
MANY = 20  # rows from which weights become floats in memory first, some columns at a time
PANEL_BYTES = 1 << 21  # of these floats, which stay in the last cache
INTS, FLOATS = f"<{LANES} x i32>", f"<{LANES} x float>"
MAGIC = 0x4B000000  # the bits of 2^23, whose last bit is 1


def places(bits: int) -> list[tuple[bool, int]]:
    """Lists for each code of a word whether it is in the upper half, and its first bit there."""
    return [(p >= 16, p % 16) for p in range(0, 32, bits)]


def _spread(bits: int, name: str, machine: Machine) -> str:
    """Emits the copy of rows of x in the order of codes in words: [row, step, code, word], 2^-p x, and 0 after the last element."""
    f = Function(name)
    x, to, k, row, item, steps = f.args("ppiiii")
    each = 32 // bits

    def one(r: str) -> None:
        source = f.beyond(x, f.mul(r, row))
        target = f.at(to, f.mul(f.mul(r, steps), LANES * each), "float")

        def step(s: str) -> None:
            for j, (_, p) in enumerate(places(bits)):
                begin = f.add(f.mul(s, LANES * each), j)
                into = f.at(target, f.add(f.mul(s, LANES * each), j * LANES), "float")

                def lane(i: str, begin: str = begin, into: str = into, p: int = p) -> None:
                    at = f.add(begin, f.mul(i, each))
                    inside = f.let(f"icmp slt i64 {at}, {k}")
                    value = f.load("float", f.beyond(source, f.mul(f.let(f"select i1 {inside}, i64 {at}, i64 0"), item)))
                    scaled = f.let(f"fmul float {value}, {number(2.0**-p)}")
                    f.store("float", f.let(f"select i1 {inside}, float {scaled}, float 0.0"), f.at(into, i, "float"))

                f.loop(0, LANES, lane)

        f.loop(0, steps, step)

    f.loop("%first", "%end", one)
    return f.done()


class _Columns:
    """The kernel of units of columns: `rows` of x at a time, blocks of `words` words, zero points of a kind.

    `zero`: a number that all blocks share, `ui8` or `f32`. `tail`: rows of weights end within 16 words.
    """

    def __init__(self, bits: int, words: int, zero: str, rows: int, rest: int, tail: bool, name: str, machine: Machine):
        self.f, self.bits, self.words, self.zero, self.machine = Function(name), bits, words, zero, machine
        self.rows, self.rest, self.tail = rows, rest, tail
        f = self.f
        self.x, self.codes, self.scales, self.zeros, self.y = f.args("ppppp")
        self.whole, self.left, self.m, self.n, *strides = f.args_from(5, "iiiiiiiiii")
        self.x_row, self.code_row, self.scale_row, self.zero_row, self.y_row, self.y_column = strides

    def text(self) -> str:
        """Emits the kernel."""
        f = self.f

        def unit(u: str) -> None:
            begin = f.mul(u, COLUMNS)
            end = f.call("i64", "llvm.smin.i64", ("i64", f.add(begin, COLUMNS)), ("i64", self.n))
            some = f.sub(self.m, self.rest)

            def together(r: str) -> None:
                def column(n: str) -> None:
                    self._sums(r, n, self.rows)

                f.loop(begin, end, column)

            def rest(n: str) -> None:
                self._sums(some, n, self.rest)

            f.loop(0, some, together, step=self.rows)
            if self.rest:
                f.loop(begin, end, rest)

        f.loop("%first", "%end", unit)
        return f.done()

    def _sums(self, r: str, n: str, rows: int) -> None:
        """Emits the sums of some rows of x and one column."""
        f = self.f
        own = [f.beyond(self.x, f.mul(f.add(r, i), self.x_row)) for i in range(rows)]
        codes = f.beyond(self.codes, f.mul(n, self.code_row))
        scales, zeros = f.beyond(self.scales, f.mul(n, self.scale_row)), f.beyond(self.zeros, f.mul(n, self.zero_row))
        start = [(FLOATS, "zeroinitializer")] * rows

        def step(s: str, *totals: str) -> list[str]:
            words = f.load(INTS, f.at(codes, f.mul(s, LANES), "i32"), 1)
            return self._step(s, words, None, own, scales, zeros, totals)

        totals = f.loop(0, self.whole, step, start)
        if self.tail:
            left = f.splat("i64", LANES, self.left)
            mask = f.let(f"icmp slt <{LANES} x i64> <{', '.join(f'i64 {i}' for i in range(LANES))}>, {left}")
            place = f.at(codes, f.mul(self.whole, LANES), "i32")
            words = f.call(INTS, "llvm.masked.load.v16i32.p0", ("ptr align 1", place), (f"<{LANES} x i1>", mask), (INTS, "zeroinitializer"))
            totals = self._step(self.whole, words, self.left, own, scales, zeros, totals)
        for i, total in enumerate(totals):
            parts = [f.let(f"extractelement {FLOATS} {total}, i64 {j}") for j in range(LANES)]
            while len(parts) > 1:
                half = len(parts) // 2
                parts = [f.let(f"fadd float {a}, {b}") for a, b in zip(parts[:half], parts[half:])]
            f.store("float", parts[0], f.beyond(self.y, f.add(f.mul(f.add(r, i), self.y_row), f.mul(n, self.y_column))))

    def _step(
        self, s: str, words: str, left: str | None, own: list[str], scales: str, zeros: str, totals: tuple[str, ...] | list[str]
    ) -> list[str]:
        """Emits the sums of 16 words, and adds them to the totals. `left`: the words that there are, else all."""
        f, places_of = self.f, places(self.bits)
        upper = f.let(f"lshr {INTS} {words}, splat (i32 16)")
        scale = self._of_blocks(s, scales, "float", left)
        zero = "" if self.zero.isdigit() else self._of_blocks(s, zeros, "i8" if self.zero == "ui8" else "float", left)
        if self.zero == "ui8":
            zero = f.let(f"uitofp <{LANES} x i8> {zero} to {FLOATS}")
        away: dict[int, str] = {}
        for p in sorted({p for _, p in places_of}):
            if self.zero.isdigit():
                away[p] = f"splat (float {number(2.0**23 + 2.0**p * int(self.zero))})"
            elif self.zero == "ui8":  # exact, fused or not
                scaled = f.let(f"fmul {FLOATS} {zero}, splat (float {number(2.0**p)})")
                away[p] = f.let(f"fadd {FLOATS} {scaled}, splat (float {number(2.0**23)})")
            else:
                away[p] = f.let(f"fmul {FLOATS} {zero}, splat (float {number(2.0**p)})")
        sums: list[str] = []
        for j, (high, p) in enumerate(places_of):
            mask = (2**self.bits - 1) << p
            code = f.let(f"and {INTS} {upper if high else words}, splat (i32 {mask})")
            code = f.let(f"bitcast {INTS} {f.let(f'or {INTS} {code}, splat (i32 {MAGIC})')} to {FLOATS}")
            if self.zero == "f32":
                code = f.let(f"fsub {FLOATS} {code}, splat (float {number(2.0**23)})")
            weight = f.let(f"fsub {FLOATS} {code}, {away[p]}")
            begin = f.mul(f.add(f.mul(s, len(places_of)), j), LANES)
            values = [f.load(FLOATS, f.at(row, begin, "float"), 4) for row in own]
            if j:
                sums = [self._added(total, value, weight) for total, value in zip(sums, values)]
            else:
                sums = [f.let(f"fmul {FLOATS} {value}, {weight}") for value in values]
        return [self._added(total, sum, scale) for total, sum in zip(totals, sums)]

    def _added(self, total: str, a: str, b: str) -> str:
        return self.f.add_product(self.machine, "float", LANES, total, a, b)

    def _of_blocks(self, s: str, place: str, type: str, left: str | None) -> str:
        """Emits a vector that has for each of 16 words the number of its block; 0 for blocks after the last."""
        f, size = self.f, 1 if type == "i8" else 4
        if self.words >= LANES:
            return f.splat(type, LANES, f.load(type, f.at(place, f.let(f"udiv i64 {s}, {self.words // LANES}"), type)))
        blocks = LANES // self.words
        begin = f.at(place, f.mul(s, blocks), type)
        if left is None:
            few = f.load(f"<{blocks} x {type}>", begin, size)
        else:
            few = "zeroinitializer"
            for i in range(blocks):  # the last one is read again for those that are not there
                inside = f.let(f"icmp slt i64 {i * self.words}, {left}")
                at = f.let(f"select i1 {inside}, i64 {i}, i64 0")
                value = f.let(f"select i1 {inside}, {type} {f.load(type, f.at(begin, at, type))}, {type} {'0' if type == 'i8' else '0.0'}")
                few = f.let(f"insertelement <{blocks} x {type}> {few}, {type} {value}, i64 {i}")
        order = ", ".join(f"i32 {i // self.words}" for i in range(LANES))
        return f.let(f"shufflevector <{blocks} x {type}> {few}, <{blocks} x {type}> poison, <{LANES} x i32> <{order}>")


def _columns(bits: int, words: int, zero: str, rows: int, rest: int, tail: bool, name: str, machine: Machine) -> str:
    return _Columns(bits, words, zero, rows, rest, tail, name, machine).text()


def _expand(bits: int, words: int, zero: str, name: str, machine: Machine) -> str:
    """Emits the expansion of 16 columns of weights a unit to floats [k, column]: `(code - zero) scale`, rounded twice.

    Columns after the last have its weights again.
    """
    f = Function(name)
    codes, scales, zeros, to, blocks, n, code_row, scale_row, zero_row, to_row = f.args("ppppiiiiii")
    each = 32 // bits

    def group(u: str) -> None:
        last = f.sub(n, 1)
        columns = [f.call("i64", "llvm.smin.i64", ("i64", f.add(f.mul(u, LANES), i)), ("i64", last)) for i in range(LANES)]
        target = f.at(to, f.mul(u, LANES), "float")

        def rows_of(array: str, step: str) -> list[str]:
            return [f.beyond(array, f.mul(column, step)) for column in columns]

        def gathered(rows: list[str], at: str, type: str, align: int) -> str:
            vector = "poison"
            for i, row in enumerate(rows):
                vector = f.let(f"insertelement <{LANES} x {type}> {vector}, {type} {f.load(type, f.at(row, at, type), align)}, i64 {i}")
            return vector

        sources, factors = rows_of(codes, code_row), rows_of(scales, scale_row)
        less = [] if zero.isdigit() else rows_of(zeros, zero_row)

        def block(b: str) -> None:
            factor = gathered(factors, b, "float", 4)
            if zero.isdigit():
                away = f"splat (float {number(float(zero))})"
            elif zero == "ui8":
                away = f.let(f"uitofp <{LANES} x i8> {gathered(less, b, 'i8', 1)} to {FLOATS}")
            else:
                away = gathered(less, b, "float", 4)

            def word(i: str) -> None:
                at = f.add(f.mul(b, words), i)
                some = gathered(sources, at, "i32", 1)
                row = f.beyond(target, f.mul(f.mul(at, each), to_row))
                for j in range(each):
                    code = f.let(f"and {INTS} {f.let(f'lshr {INTS} {some}, splat (i32 {bits * j})')}, splat (i32 {2**bits - 1})")
                    value = f.let(f"fsub {FLOATS} {f.let(f'uitofp {INTS} {code} to {FLOATS}')}, {away}")
                    f.store(FLOATS, f.let(f"fmul {FLOATS} {value}, {factor}"), f.beyond(row, f.mul(to_row, j)), 4)

            f.loop(0, words, word)

        f.loop(0, blocks, block)

    f.loop("%first", "%end", group)
    return f.done()


def _expanded(args: Arguments, units: int) -> Touched:
    """States what a launch of `_expand` touches."""
    *operands, wide, _, n, code_row, scale_row, zero_row, to_row = args
    return Touched(_read(operands, n, (code_row, scale_row, zero_row)), [Elements.at(wide, 4, (len(wide), to_row), (units * LANES, 4))])


def _spread_out(args: Arguments, units: int) -> Touched:
    """States what a launch of `_spread` touches."""
    x, spread, k, row, column, steps = args
    return Touched(
        [Elements.at(x, x.itemsize, (units, row), (k, column))], [Elements.at(spread, 4, (units * steps * spread[0, 0].size, 4))]
    )


def _multiplied(args: Arguments, units: int) -> Touched:
    """States what a launch of `_columns` touches."""
    spread, *operands, y, _, _, m, n, x_row, code_row, scale_row, zero_row, y_row, y_column = args
    reads = [Elements.at(spread, 4, (m, x_row), (spread[0].size, 4)), *_read(operands, n, (code_row, scale_row, zero_row))]
    return Touched(reads, [Elements.at(y, 4, (m, y_row), (n, y_column))])


def _read(operands: Sequence[Array], n: int, rows: Sequence[int]) -> list[Elements]:
    """States what is read of the rows of codes, scales and zero points."""
    return [Elements.at(a, a.itemsize, (n, row), (a[0].size if row else 1, a.itemsize)) for a, row in zip(operands, rows)]


def _by_panels(library: Library, task: Task, bits: int, kind: str, arrays: list[Array], leaps: list[int]) -> list[Launch] | None:
    """Lists the launches that expand some columns of weights to floats, and multiply all rows by them, until all columns are done.

    `leaps`: bytes from a column to the next in each of the arrays.
    """
    x, y, (codes, scale, zero) = task["x"], task["y"], arrays
    n, blocks, length = codes.shape
    k, size = x.shape[1], length * 8 // bits
    step = max(64, PANEL_BYTES // (4 * blocks * size) // 64 * 64)
    floats = task.scratch((blocks * size, -(-min(step, n) // LANES) * LANES), np.float32)
    kernel = Kernel(f"packed expand {bits} {length} {kind}", partial(_expand, bits, length // 4, kind), _expanded)
    launches: list[Launch] = []
    rows, depth, x = rows_along(library, task, walk_over(task, task.fields["x"]), "m", x, n, launches)
    c = Matrix.of(y, walk_over(task, task.fields["y"]), ("m",), ("n",))
    assert c is not None, y.strides
    used = task.used
    for begin in range(0, n, step):
        own = slice(begin, min(begin + step, n))
        count = own.stop - own.start
        args = [codes[own], scale[own], zero[own], floats, blocks, count, *leaps, floats.strides[0]]
        launches.append(Launch(library, kernel, args, -(-count // LANES), floats.shape[0] * count // 2))
        task.used = used
        wide = floats[:k, :count]
        weights = Right(wide, offsets((k,), wide.strides[:1]), offsets((count,), wide.strides[1:]), constant=False)
        into = replace(c, array=y[:, own], shape=(len(y), count))
        if not product(library, task, x, rows, depth, weights, into, launches, None):
            return None
    return launches


def packed_matmul(library: Library, task: Task) -> list[Launch] | None:
    """Computes `y[m, n] = sum over k of x[m, k] (code(n, k) - zero) scale` in f32, from packed codes."""
    x, codes, scale, y = (task[f] for f in ("x", "codes", "scale", "y"))
    piece = task.fields["zero"]
    zero, bits = piece.array, int(task.number("bits"))
    (m, k), (n, blocks, length) = x.shape, codes.shape
    if 0 in (m, n, k):
        return None
    shared = piece.constant and zero.dtype == np.uint8 and not any(s for s, size in zip(zero.strides, zero.shape) if size > 1)
    kind = str(int(zero.flat[0])) if shared else "ui8" if zero.dtype == np.uint8 else "f32"
    arrays = [codes, scale] if shared else [codes, scale, zero]
    fields = ["codes", "scale", "zero"][: len(arrays)]
    for i, (name, array) in enumerate(zip(fields, arrays)):
        if array[0].flags.c_contiguous:
            continue
        if not task.fields[name].constant:
            return None
        arrays[i] = np.ascontiguousarray(array)  # a constant of equal elements is one element of memory
    arrays = arrays if not shared else [*arrays, zero]
    codes, scale, zero = arrays
    leaps = [walks_of(task, name)(a).bytes["n"] for name, a in zip(("codes", "scale", "zero"), arrays)]
    if m >= MANY:
        return _by_panels(library, task, bits, kind, arrays, leaps)
    along_x, along_y = walk_over(task, task.fields["x"]), walk_over(task, task.fields["y"])
    words, each = length // 4, 32 // bits
    whole, left = divmod(blocks * words, LANES)
    steps = whole + (left > 0)
    spread = task.scratch((m, steps, each, LANES), np.float32)
    rows = min(m, ROWS)
    order = Kernel(f"packed spread {bits}", partial(_spread, bits), _spread_out)
    first = Launch(library, order, [x, spread, k, along_x.bytes["m"], along_x.bytes["k"], steps], m, spread.nbytes // 2)
    key = f"packed product {bits} {words} {kind} {rows} {m % rows} {left > 0}"
    kernel = Kernel(key, partial(_columns, bits, words, kind, rows, m % rows, left > 0), _multiplied)
    args = [
        spread, *arrays, y, whole, left, m, n, spread.strides[0], *leaps, along_y.bytes["m"], along_y.bytes["n"],
    ]  # fmt: skip
    return [first, Launch(library, kernel, args, -(-n // COLUMNS), max(codes.nbytes // 5, m * n * k // 25))]
