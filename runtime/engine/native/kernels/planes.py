"""Kernels that go down a plane, for small windows: `pool`, and convolutions with one channel in and out of each group.

A vector of columns meets each input row once. The row serves all outputs whose windows contain it, so some outputs are
under way at a time. Rows and columns outside the plane are neutral elements, by masks: nothing is copied to pad it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from populus.runtime.codelets.task import Array
from populus.runtime.endings import TYPES
from populus.runtime.engine.native.codegen.cpu import Machine
from populus.runtime.engine.native.codegen.jit import Kernel, Library
from populus.runtime.engine.native.codegen.llvm_builder import Function
from populus.runtime.engine.native.codegen.touched import Arguments, Elements, Touched, met
from populus.runtime.engine.native.kernels.contraction import lanes_of
from populus.runtime.engine.native.kernels.endings import (
    BYTES,
    SUFFIX,
    Ending,
    OnPlanes,
    ending_of,
    plane_reads,
)
from populus.runtime.engine.native.kernels.launch import Launch
from populus.runtime.engine.native.kernels.operands import OnMatrix, Side, Word
from populus.runtime.engine.native.kernels.panels import Table
from populus.runtime.engine.native.kernels.rows import combine, window_start

SIDES = range(1, 6)  # sides of a window whose rows fit the registers
STRIDES = range(1, 5)


def is_small(side: Side) -> bool:
    """Tells whether this file has a kernel for such windows."""
    return side.kernel in SIDES and side.stride in STRIDES and side.dilation == 1


@dataclass(frozen=True)
class Form:
    """Part of a launch that its code depends on."""

    kind: str
    type: str
    kernel: tuple[int, int]
    strides: tuple[int, int]

    @property
    def op(self) -> str:
        """Operation that combines the elements of a window."""
        return "max" if self.kind == "max" else "add"


@dataclass
class Columns:
    """Code for a vector of columns: its masks, and the vectors of one input row that the window's columns meet.

    `halved`: with a stride of 2, the columns of a vector are out of order until `ordered`. Then the halves of vectors of 32
    bytes are divided apart from each other, which takes one instruction for a vector instead of two.
    """

    f: Function
    form: Form
    machine: Machine
    begin: str
    width: str
    left: str
    halved: bool = False

    def __post_init__(self) -> None:
        f, stride = self.f, self.form.strides[1]
        self.lanes = self.machine.vector_bytes // BYTES[self.form.type]
        self.vector, self.item = f"<{self.lanes} x {self.form.type}>", BYTES[self.form.type]
        self.first = f.sub(f.mul(self.begin, stride), self.left)
        # Tap k is every stride-th element from k on: one of the parts of the vectors from k - k % stride on.
        taps = range(0, self.form.kernel[1], stride)
        self.starts = [k + half * self.lanes for k in taps for half in range(stride)]
        self.masks = [self.inside(f.add(self.first, s), self.width) for s in self.starts]
        ends = f.let(f"icmp sle i64 {f.add(self.first, self.starts[-1] + self.lanes)}, {self.width}")
        self.full = f.let(f"and i1 {f.let(f'icmp sge i64 {self.first}, 0')}, {ends}")  # all that is read is in the row

    def inside(self, first: str, end: str) -> str:
        """Marks the lanes whose element, counted from `first`, is not negative and below `end`."""
        f, n = self.f, self.lanes
        numbers = f"<{n} x i32> <{', '.join(f'i32 {i}' for i in range(n))}>"
        low, high = (f.splat("i32", n, f.let(f"trunc i64 {v} to i32")) for v in (first, end))
        return f.let(f"icmp ult <{n} x i32> {f.let(f'add {numbers}, {low}')}, {high}")

    def row(self, line: str, present: str | None, line_in_plane: tuple[str, str]) -> list[str]:
        """Loads the vector of each column of the window. `line`: the row's element `first`; `present`: if it may be
        outside the plane, whether it is inside; `line_in_plane`: bytes from the plane's start to `line`, and the plane's end.
        """
        f, mask = self.f, f"<{self.lanes} x i1>"
        neutral = f"splat ({self.form.type} {window_start(self.form.kind, self.form.type)})"
        name = f"llvm.masked.load.v{self.lanes}{SUFFIX[self.form.type]}.p0"
        places = [f.at(line, start, self.form.type) for start in self.starts]

        def masked() -> list[str]:
            loaded: list[str] = []
            for place, there in zip(places, self.masks):
                if present is not None and self.machine.masks_freely:
                    there = f.let(f"select i1 {present}, {mask} {there}, {mask} zeroinitializer")
                operands = ("ptr", place), ("i32 immarg", str(self.item)), (mask, there), (self.vector, neutral)
                loaded.append(f.call(self.vector, name, *operands))
            return loaded

        def whole() -> list[str]:
            vectors = [f.load(self.vector, place, self.item) for place in places]
            return [f.let(f"select {mask} {m}, {self.vector} {v}, {self.vector} {neutral}") for m, v in zip(self.masks, vectors)]

        if self.machine.masks_freely:
            loaded = masked()
        else:
            # What lies around the row is in the plane too, and may be read.
            begin, end = line_in_plane
            low, high = (f.add(begin, n * self.item) for n in (self.starts[0], self.starts[-1] + self.lanes))
            tests = f.let(f"icmp sge i64 {low}, 0"), f.let(f"icmp sle i64 {high}, {end}")
            within = f.let(f"and i1 {tests[0]}, {tests[1]}")

            def inside() -> list[str]:
                edge = partial(f.choose, within, self.vector, whole, masked)
                return f.choose(self.full, self.vector, lambda: [f.load(self.vector, place, self.item) for place in places], edge)

            loaded = inside() if present is None else f.choose(present, self.vector, inside, lambda: [neutral] * len(places))
        stride = self.form.strides[1]
        groups = [self._apart(loaded[i : i + stride]) for i in range(0, len(loaded), stride)]
        return [groups[k // stride][k % stride] for k in range(self.form.kernel[1])]

    def _apart(self, vectors: list[str]) -> list[str]:
        """Divides adjacent vectors into those of every len(vectors)-th element."""
        if len(vectors) == 1:
            return vectors
        if len(vectors) == 3:  # element 3 i + k is in the first two vectors, or in the third
            (a, b, c), thirds = vectors, list[str]()
            for k in range(3):
                places, end = range(k, 3 * self.lanes, 3), 2 * self.lanes
                near = self.f.shuffled(self.vector, a, b, [at if at < end else 0 for at in places])
                merged = [i if at < end else at - self.lanes for i, at in enumerate(places)]
                thirds.append(self.f.shuffled(self.vector, near, c, merged))
            return thirds
        found: list[list[str]] = []
        for odd in (0, 1):
            order = ", ".join(f"i32 {2 * i + odd}" for i in self._order())
            shuffled = [
                self.f.let(f"shufflevector {self.vector} {a}, {self.vector} {b}, <{self.lanes} x i32> <{order}>")
                for a, b in zip(vectors[::2], vectors[1::2])
            ]
            found.append(self._apart(shuffled))
        return [v for pair in zip(*found) for v in pair]

    def _order(self) -> list[int]:
        """Lists the columns in the lanes' order, in which vectors of a stride of 2 are until they are stored."""
        if not self.halved:
            return list(range(self.lanes))
        part = self.lanes // 4  # columns from one half of a vector
        return [(i // part % 2) * 2 * part + i // part // 2 * part + i % part for i in range(self.lanes)]

    def ordered(self, value: str) -> str:
        """Returns a result's columns in their order."""
        order = self._order()
        if order == sorted(order):
            return value
        numbers = ", ".join(f"i32 {order.index(i)}" for i in range(self.lanes))
        return self.f.let(f"shufflevector {self.vector} {value}, {self.vector} poison, <{self.lanes} x i32> <{numbers}>")

    def store(self, places: Sequence[str], left: str, mask: str, values: Callable[[str], Sequence[str]]) -> None:
        """Stores vectors whose lanes from `left` on stay as they are, or may be written. `values(mask)` emits them."""
        f, masks = self.f, f"<{self.lanes} x i1>"

        def whole() -> None:
            for place, value in zip(places, values(""), strict=True):
                f.store(self.vector, value, place, self.item)

        def masked() -> None:
            name = f"llvm.masked.store.v{self.lanes}{SUFFIX[self.form.type]}.p0"
            for place, value in zip(places, values(mask), strict=True):
                f.call("void", name, (self.vector, value), ("ptr", place), ("i32 immarg", str(self.item)), (masks, mask))

        if self.machine.masks_freely:
            masked()
        else:
            some = f.let(f"icmp sgt i64 {left}, 0")
            f.when(f.let(f"icmp sge i64 {left}, {self.lanes}"), whole, lambda: f.when(some, masked))


# long: one kernel; its parts share the values of the function
def _down(form: Form, ending: Ending | None, name: str, machine: Machine) -> str:
    """Emits the kernel. Units are planes; turn t reads `stride` rows and completes output t - (late - 1)."""
    f, type, lanes = Function(name), form.type, machine.vector_bytes // BYTES[form.type]
    x, y, other, xs, ys, ws, x_row, y_row, rows, columns, high, wide, top, left, late_by, spill = f.args("ppppppiiiiiiiiii")
    operands = OnPlanes(f, ending and ending.on(machine), 16, type, lanes)
    (tall, _), down, vector = form.kernel, form.strides[0], f"<{lanes} x {type}>"
    late = -(-tall // down)  # outputs under way
    start = (vector, f"splat ({type} {window_start(form.kind, type)})")
    turns = f.add(rows, late - 1)
    plane_end = f.add(f.mul(f.sub(high, 1), x_row), f.mul(wide, BYTES[type]))
    # In the turns from `full` to `short` all rows are inside the plane.
    full = f.call("i64", "llvm.smin.i64", ("i64", turns), ("i64", f.let(f"sdiv i64 {f.add(top, down - 1)}, {down}")))
    full = f.call("i64", "llvm.smax.i64", ("i64", full), ("i64", str(late - 1)))
    short = f.call("i64", "llvm.smin.i64", ("i64", turns), ("i64", f.let(f"sdiv i64 {f.add(high, top)}, {down}")))
    short = f.call("i64", "llvm.smax.i64", ("i64", full), ("i64", short))

    def plane(p: str) -> None:
        source, target = (f.beyond(a, f.load("i64", f.at(t, p, "i64"))) for a, t in ((x, xs), (y, ys)))
        weights: list[str] = []
        if form.kind == "weighted":
            place = f.beyond(other, f.load("i64", f.at(ws, p, "i64")))
            weights = [f.splat(type, lanes, f.load(type, f.at(place, k, type))) for k in range(tall * form.kernel[1])]

        ended = operands.at(p)

        def block(begin: str) -> None:
            if not machine.masks_freely:
                begin = f.call("i64", "llvm.smin.i64", ("i64", begin), ("i64", late_by))
            part = Columns(f, form, machine, begin, wide, left, form.strides[1] == 2 and machine.vector_bytes == 32)
            written = part.inside("0", f.sub(columns, begin))
            into = f.at(target, begin, type)

            def turn(inside: bool, t: str, *sums: str) -> list[str]:
                under = [start[1], *sums]  # [q]: output t - q
                for j in range(down):
                    r = f.sub(f.add(f.mul(t, down), j), top)
                    present = None if inside else f.let(f"icmp ult i64 {r}, {high}")
                    at = f.add(f.mul(r, x_row), f.mul(part.first, part.item))
                    taken = part.row(f.beyond(source, at), present, (at, plane_end))
                    whole = _whole_row(f, form, vector, taken)
                    for q in range(late):
                        if (k := q * down + j) < tall:
                            across_k = weights[k * form.kernel[1] : (k + 1) * form.kernel[1]]
                            under[q] = _met(f, form, vector, machine, under[q], whole, across_k)
                o = f.sub(t, late - 1)
                done, mask, count = part.ordered(under.pop()), written, f.sub(columns, begin)
                if not machine.masks_freely:
                    reach = f.add(f.mul(o, y_row), f.mul(f.add(begin, lanes), part.item))
                    count = f.let(f"select i1 {f.let(f'icmp sle i64 {reach}, {spill}')}, i64 {lanes}, i64 {count}")
                if not inside:
                    there = f.let(f"icmp sge i64 {o}, 0")
                    mask = f.let(f"select i1 {there}, <{lanes} x i1> {written}, <{lanes} x i1> zeroinitializer")
                    count = f.let(f"select i1 {there}, i64 {count}, i64 0")

                def value(cut: str) -> list[str]:
                    result = done
                    if form.kind == "average":
                        divisors = _divisors(f, part, f.at(other, f.add(f.mul(o, columns), begin), type), cut)
                        result = f.let(f"fdiv {vector} {done}, {divisors}")
                    return [ended(result, o, rows, begin, cut)]

                part.store([f.beyond(into, f.mul(o, y_row))], count, mask, value)
                return under

            def half(h: str, *sums: str) -> list[str]:
                """Emits the turns until `short`, or those from it on: each half has turns at an edge first, by the same code."""
                top_half = f.let(f"icmp eq i64 {h}, 0")
                ends = (("0", short), (full, turns), (short, turns))
                first, middle, end = (f.let(f"select i1 {top_half}, i64 {a}, i64 {b}") for a, b in ends)
                at_edge = f.loop(first, middle, partial(turn, False), [(vector, value) for value in sums])
                return f.loop(middle, end, partial(turn, True), [(vector, value) for value in at_edge])

            f.loop(0, 2, half, [start] * (late - 1))

        f.loop(0, columns, block, step=lanes)

    f.loop("%first", "%end", plane)
    return f.done()


def _touches(form: Form, ending: Ending | None, args: Arguments, units: int) -> Touched:
    """States what a launch of `_down` touches."""
    x, y, other, xs, ys, ws, x_row, y_row, rows, columns, high, wide, top, left = args[:14]
    item, (tall, broad), (down, right) = y.itemsize, form.kernel, form.strides
    of_row, of_column = met((0, rows), down, tall, top, high) * x_row, met((0, columns), right, broad, left, wide) * item
    reads = [Elements.at(x, item, xs[:units], of_row, of_column), *plane_reads(ending, args[16:], (rows, columns))]
    if form.kind == "weighted":
        reads.append(Elements.at(other, item, ws[:units], (tall * broad, item)))
    if form.kind == "average":
        reads.append(Elements.at(other, item, (rows * columns, item)))
    return Touched(reads, [Elements.at(y, item, ys[:units], (rows, y_row), (columns, item))])


def _divisors(f: Function, part: Columns, place: str, cut: str) -> str:
    """Loads the divisors of averages; 1 outside a mask."""
    if not cut:
        return f.load(part.vector, place, part.item)
    load, ones = f"llvm.masked.load.v{part.lanes}{SUFFIX[part.form.type]}.p0", f"splat ({part.form.type} 1.0)"
    return f.call(part.vector, load, ("ptr", place), ("i32 immarg", str(part.item)), (f"<{part.lanes} x i1>", cut), (part.vector, ones))


def _whole_row(f: Function, form: Form, vector: str, taken: list[str]) -> list[str]:
    """Returns what an output takes from a row: its maximum, its squares, or its elements.

    A maximum of maxima has the bits of one maximum in order: of equals it is the first, and of NaNs the last.
    """
    if form.kind == "square_sum":
        return [f.let(f"fmul {vector} {v}, {v}") for v in taken]
    if form.kind != "max":
        return taken
    best = taken[0]
    for v in taken[1:]:
        best = combine(f, "max", vector, best, v)
    return [best]


def _met(f: Function, form: Form, vector: str, machine: Machine, total: str, row: list[str], weights: list[str]) -> str:
    """Adds a row to an output, one element after the other."""
    for i, value in enumerate(row):
        if not weights:
            total = combine(f, form.op, vector, total, value)
        else:
            total = f.add_product(machine, form.type, machine.vector_bytes // BYTES[form.type], total, value, weights[i])
    return total


def down(
    library: Library,
    kind: str,
    x: Array,
    y: Array,
    other: Array,
    places: tuple[Table, Table, Table],
    sides: tuple[Side, Side],
    formula: OnMatrix | None = None,
    words: Sequence[Word] = (),
) -> list[Launch] | None:
    """Builds the launch for the planes of x and y, which are at `places`.

    `other`: the weights, with those of plane p at `places`[2][p], or the divisors of an average. `formula`: on the results of
    a plane; `words`: of its operands. Returns None if the kernels of this file do not apply, or if there is no code for the formula.
    """
    tall, wide = sides
    lanes = lanes_of(library.host, y.dtype)
    if not (is_small(tall) and is_small(wide)) or lanes == 1:
        return None
    if any(n > 1 and step != y.itemsize for n, step in ((wide.n, wide.step), (wide.outputs, wide.leap))):
        return None
    ending = formula and ending_of(formula.at(*[0] * (y.ndim - 2)), 1)
    if formula is not None and ending is None:
        return None
    form = Form(kind, TYPES[y.dtype.name], (tall.kernel, wide.kernel), (tall.stride, wide.stride))
    key = f"down {form}" + ("" if ending is None else f" {ending.key}")
    kernel = Kernel(key, partial(_down, form, ending), partial(_touches, form, ending))
    begin, spill = _ends(x, y, sides, lanes, formula, ending)
    args = [
        x, y, other, *places, tall.step, tall.leap, tall.outputs, wide.outputs, tall.n, wide.n, tall.before, wide.before,
        begin, spill, *words,
    ]  # fmt: skip
    padded = -(-wide.outputs // lanes) * lanes
    planes = len(places[0])
    work = planes * tall.outputs * padded * tall.kernel * wide.kernel * y.itemsize // 200 + y.nbytes // 16
    return [Launch(library, kernel, args, planes, work)]


def _ends(x: Array, y: Array, sides: tuple[Side, Side], lanes: int, formula: OnMatrix | None, ending: Ending | None) -> tuple[int, int]:
    """Finds how rows end without masks: the column at which the last vector of a row may begin, and the bytes of a plane
    before which vectors may go on into the next row, which is written later.

    The last vector begins earlier by the lanes that it has too many. So it writes some results again, and neither way is
    open where the formula reads what was written. Where they are not open, the results are past the row's end, and 0.
    """
    tall, columns = sides[0], sides[1].outputs
    inputs = [] if formula is None else [a.array for a in formula.others]
    if any(np.may_share_memory(a, y) for a in (x, *inputs)):
        return columns, 0
    if columns >= lanes:
        return columns - lanes, 0
    alone = ending is None or all(ending.fixed)  # or a vector might go beyond an operand
    return columns, tall.outputs * tall.leap if alone and tall.leap == columns * y.itemsize else 0
