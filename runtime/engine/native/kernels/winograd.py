"""Kernels of `winograd`: the transforms of a plane's tiles, and the products between them.

Vectors are tiles of a row of tiles, so no transform needs a transposition. Some rows of tiles are a block: all of its
inputs are transformed into `v`, multiplied into `m` and transformed back while both are in cache.

    v: [n n, ic, tiles], u: [n n, oc, ic] in panels of some output channels, m: [n n, oc, tiles]

The transforms have the operations of the NumPy kernel, in its order; a product is one sum in the order of ic.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from populus.runtime.codelets.task import Array, Task
from populus.runtime.codelets.winograd import input_side, output_side
from populus.runtime.engine.native.codegen.cpu import Machine
from populus.runtime.engine.native.codegen.jit import Kernel, Library
from populus.runtime.engine.native.codegen.llvm_builder import Function, number
from populus.runtime.engine.native.kernels.blocks import block_kernel
from populus.runtime.engine.native.kernels.contraction import lanes_of, start_of
from populus.runtime.engine.native.kernels.endings import Ending, OnPlanes, ending_of, masked_load
from populus.runtime.engine.native.kernels.launch import Launch
from populus.runtime.engine.native.kernels.operands import Formula, Walk, ending_words, on_matrix, walk_over, walks_of
from populus.runtime.engine.native.kernels.panels import Panels, Slices, lines, offsets
from populus.runtime.engine.native.kernels.places import place_functions, places_of
from populus.runtime.engine.native.kernels.planes import Columns, Form
from populus.runtime.engine.native.kernels.winograd_weights import weights_kernel
from populus.runtime.engine.native.kernels.winograd_words import ITEM, WORDS, touches, touches_of_part

GFLOPS, READ, MOVED = 150.0, 20.0, 6.0  # rates by which blocks are chosen: products; GB/s of weights, and of v and m, beyond the caches
CACHE = 1 << 20  # bytes of v and m that the inner caches hold
LINE = 64  # bytes of a line of a cache
TOGETHER = 16  # blocks of output channels that a panel meets in turn, so that the second cache has their weights
CHUNKS = 4  # ranges of blocks for each thread; each that runs has a `v` and an `m`

POINTERS = frozenset((*WORDS[:10], "scratch", "transform", "multiply", "back", "ends", "busy"))
PART = "ptr %args, i64 %block, ptr %v, ptr %m, i64 %first, i64 %end"


class _Part(Function):
    """Function under construction that reads the words of the launch by name."""

    def word(self, name: str) -> str:
        """Loads a word of the launch."""
        return self.arg(WORDS.index(name), "ptr" if name in POINTERS else "i64")

    def least(self, a: str, b: str) -> str:
        """Returns the smaller of two i64 values."""
        return self.call("i64", "llvm.smin.i64", ("i64", a), ("i64", b))

    def image(self) -> tuple[str, str, str]:
        """Computes the image of `%block`, its first row of tiles, and the number of its rows."""
        blocks, rows = self.word("blocks"), self.word("rows")
        image = self.let(f"sdiv i64 %block, {blocks}")
        first = self.mul(self.sub("%block", self.mul(image, blocks)), rows)
        return image, first, self.least(rows, self.sub(self.word("down"), first))

    def filled(self, rows: str, lanes: int) -> str:
        """Computes the tiles of a block in whole vectors."""
        tiles = self.mul(rows, self.word("across"))
        return tiles if lanes == 1 else self.let(f"and i64 {self.add(tiles, lanes - 1)}, {-lanes}")

    def sides(self, vector: str) -> tuple[partial[str], partial[str], partial[str]]:
        """Gives addition, subtraction, and multiplication by a number, of vectors."""

        def both(op: str, a: str, b: str) -> str:
            return self.let(f"{op} {vector} {a}, {b}")

        def times(a: float, b: str) -> str:
            return self.let(f"fmul {vector} {b}, splat (float {number(a)})")

        return partial(both, "fadd"), partial(both, "fsub"), partial(times)


def _transform(m: int, name: str, machine: Machine, exact: bool = False) -> str:
    """Emits v = B' x B for the channels `first` to `end` of a block. `exact`: nothing follows a block's last tile in v."""
    f, n, lanes = _Part(name, PART, "void"), m + 2, machine.vector_bytes // ITEM
    vector = f"<{lanes} x float>"
    x, xs, x_channel, x_row, high, wide, top, left, across, tiles, plane = (
        f.word(w) for w in ("x", "xs", "x_channel", "x_row", "high", "wide", "top", "left", "across", "tiles", "v_plane")
    )
    image, row0, rows = f.image()
    start = f.beyond(x, f.load("i64", f.at(xs, image, "i64")))
    operations = f.sides(vector)
    last, total = f.sub(rows, 1), f.filled(rows, 1 if exact else lanes)
    rest = f.sub(total, f.mul(last, across))
    plane_end = f.add(f.mul(f.sub(high, 1), x_row), f.mul(wide, ITEM))

    def channel(c: str) -> None:
        source, target = f.beyond(start, f.mul(c, x_channel)), f.at("%v", f.mul(c, tiles), "float")

        def tile(part: Columns, tx: str, inside: str, ending: str, ty: str) -> None:
            # The last row fills its vector: sums of what memory held before could be slow (denormal numbers).
            ends = f.let(f"icmp eq i64 {ty}, {last}")
            written = f.let(f"select i1 {ends}, <{lanes} x i1> {ending}, <{lanes} x i1> {inside}")
            taken: list[list[str]] = []
            for i in range(n):
                r = f.sub(f.add(f.mul(f.add(row0, ty), m), i), top)
                present = f.let(f"icmp ult i64 {r}, {high}")
                at = f.add(f.mul(r, x_row), f.mul(part.first, ITEM))
                taken.append(part.row(f.beyond(source, at), present, (at, plane_end)))
            halves = [input_side(m, [taken[i][j] for i in range(n)], *operations) for j in range(n)]
            values = [v for i in range(n) for v in input_side(m, [halves[k][i] for k in range(n)], *operations)]
            begin = f.add(f.mul(ty, across), tx)
            into = f.at(target, begin, "float")
            places = [f.beyond(into, f.mul(plane, i)) for i in range(n * n)]
            # A whole vector may write tiles of the next row, which are written after it.
            part.store(places, f.sub(total, begin), written, lambda _: values)

        def columns(tx: str) -> tuple[Columns, str, str, str]:
            part = Columns(f, Form("weighted", "float", (n, n), (m, m)), machine, tx, wide, left)
            inside, ending = (part.inside("0", f.sub(end, tx)) for end in (across, rest))
            return part, tx, inside, ending

        def down(tx: str) -> None:
            f.loop(0, rows, partial(tile, *columns(tx)))

        def right(ty: str) -> None:
            def one(tx: str) -> None:
                tile(*columns(tx), ty)

            f.loop(0, across, one, step=lanes)

        if machine.masks_freely:
            f.loop(0, across, down, step=lanes)
        else:
            f.loop(0, rows, right)

    f.loop("%first", "%end", channel)
    return f.done("void")


def _multiply(name: str, machine: Machine) -> str:
    """Emits m = u v. Units are blocks of output channels, those of a point after those of the one before.

    A block meets all panels of tiles, so that each weight is read once; meanwhile the next block's weights arrive.
    WebAssembly fetches nothing ahead, so there a panel meets some blocks while the first cache has it.
    """
    f = _Part(name, PART, "void")
    u, depth, ends, ic, tiles = (f.word(w) for w in ("u", "depth", "ends", "ic", "tiles"))
    parts, wide, broad, oc_parts, tall, high = (f.word(w) for w in ("parts", "wide_parts", "broad", "oc_parts", "oc_tall", "oc_high"))
    planes = [f.word(w) for w in ("v_plane", "m_plane", "u_plane")]
    kernels = [f.word(w) for w in ("tall_broad", "tall_narrow", "short_broad", "short_narrow")]
    step, lanes = f.mul(tiles, ITEM), machine.vector_bytes // ITEM
    filled = f.filled(f.image()[2], lanes)
    pace = f.add(f.let(f"sdiv i64 {f.mul(high, ITEM)}, {parts}"), 1)

    def point(p: str) -> None:
        v, m, weights = (f.beyond(a, f.mul(p, plane)) for a, plane in zip(("%v", "%m", u), planes))
        before = f.mul(p, oc_parts)
        begin = f.call("i64", "llvm.smax.i64", ("i64", f.sub("%first", before)), ("i64", "0"))
        until = f.least(f.sub("%end", before), oc_parts)

        def channels(i: str) -> tuple[str, ...]:
            row, short = start_of(f, i, tall, high), f.let(f"icmp sge i64 {i}, {tall}")
            chosen = (f.let(f"select i1 {short}, ptr {kernels[2 + k]}, ptr {kernels[k]}") for k in (0, 1))
            return f.at(weights, f.mul(row, ic), "float"), f.beyond(m, f.mul(row, step)), *chosen

        def panel(j: str) -> tuple[str, ...]:
            return f.mul(start_of(f, j, wide, broad), lanes), f.let(f"icmp sge i64 {j}, {wide}"), f.mul(f.add(f.mul(pace, j), high), ic)

        def both(block: tuple[str, ...], tiles: tuple[str, ...]) -> None:
            (left, out, broad_kernel, narrow_kernel), (column, narrow, later) = block, tiles
            kernel = f.let(f"select i1 {narrow}, ptr {narrow_kernel}, ptr {broad_kernel}")
            right, into, ahead = f.at(v, column, "float"), f.at(out, column, "float"), f.at(left, later, "float")
            given = f"ptr {right}, ptr {depth}, ptr {depth}, ptr {left}, ptr {into}, i64 {step}, i64 0, ptr {ends}, i64 1, i64 0"
            call = f"call void {kernel}({given}, ptr {into}, ptr {ahead}, i64 {pace}, ptr {depth}, i64 0, i64 0)"
            f.when(f.let(f"icmp slt i64 {column}, {filled}"), lambda: f.line(call))

        def of_block(block: tuple[str, ...], j: str) -> None:
            both(block, panel(j))

        def of_panel(first: str, j: str) -> None:
            def one(tiles: tuple[str, ...], i: str) -> None:
                both(channels(i), tiles)

            f.loop(first, f.least(f.add(first, TOGETHER), until), partial(one, panel(j)))

        def some(first: str) -> None:
            f.loop(0, parts, partial(of_panel, first) if machine.few_registers else partial(of_block, channels(first)))

        f.loop(begin, until, some, step=TOGETHER if machine.few_registers else 1)

    f.loop(f.let(f"sdiv i64 %first, {oc_parts}"), f.let(f"sdiv i64 {f.sub(f.add('%end', oc_parts), 1)}, {oc_parts}"), point)
    return f.done("void")


def _back(m: int, ending: Ending | None, name: str, machine: Machine, exact: bool = False) -> str:
    """Emits y = A' m A, or a formula of it, for the output channels `first` to `end` of a block.

    `exact`: nothing follows a block's last tile in m.
    """
    f, n, lanes = _Part(name, PART, "void"), m + 2, machine.vector_bytes // ITEM
    vector = f"<{lanes} x float>"
    y, ys, y_channel, y_row, high, wide, across, tiles, plane = (
        f.word(w) for w in ("y", "ys", "y_channel", "y_row", "out_high", "out_wide", "across", "tiles", "m_plane")
    )
    image, row0, rows = f.image()
    start = f.beyond(y, f.load("i64", f.at(ys, image, "i64")))
    operations = f.sides(vector)
    operands = OnPlanes(f, ending and ending.on(machine), len(WORDS), "float", lanes)

    def channel(c: str) -> None:
        target, source = f.beyond(start, f.mul(c, y_channel)), f.at("%m", f.mul(c, tiles), "float")
        ended = operands.at(image, c)

        def formula(value: str, row: str, column: str, mask: str) -> list[str]:
            return [ended(value, row, high, column, mask)]

        def columns(tx: str) -> None:
            part = Columns(f, Form("weighted", "float", (1, 1), (1, 1)), machine, tx, wide, "0")
            left = f.mul(tx, m)
            written = [part.inside(f.add(left, k * lanes), wide) for k in range(m)]
            valid = part.inside(tx, across) if exact else ""

            def row(ty: str) -> None:
                begin = f.add(f.mul(ty, across), tx)
                at = f.at(source, begin, "float")
                places = [f.beyond(at, f.mul(plane, i)) for i in range(n * n)]

                def sums(load: Callable[[str], str]) -> list[str]:
                    columns = [[load(places[i * n + j]) for i in range(n)] for j in range(n)]
                    return [value for taken in columns for value in output_side(m, taken, *operations)]

                if exact:
                    whole = f.let(f"icmp sle i64 {f.add(begin, lanes)}, {f.filled(rows, 1)}")
                    masked = partial(masked_load, f, "float", lanes, inside=valid)
                    flat = f.choose(whole, vector, lambda: sums(lambda p: f.load(vector, p, ITEM)), lambda: sums(masked))
                else:
                    flat = sums(lambda p: f.load(vector, p, ITEM))
                halves = [flat[j * m : (j + 1) * m] for j in range(n)]
                for i in range(m):
                    r = f.add(f.mul(f.add(row0, ty), m), i)
                    present = f.let(f"icmp slt i64 {r}, {high}")
                    line = f.at(f.beyond(target, f.mul(r, y_row)), left, "float")
                    found = _together(f, vector, lanes, output_side(m, [halves[k][i] for k in range(n)], *operations))
                    for k, value in enumerate(found):
                        mask = f.let(f"select i1 {present}, <{lanes} x i1> {written[k]}, <{lanes} x i1> zeroinitializer")
                        column = f.add(left, k * lanes)
                        count = f.let(f"select i1 {present}, i64 {f.sub(wide, column)}, i64 0")
                        part.store([f.at(line, k * lanes, "float")], count, mask, partial(formula, value, r, column))

            f.loop(0, rows, row)

        f.loop(0, across, columns, step=lanes)

    f.loop("%first", "%end", channel)
    return f.done("void")


def _together(f: Function, vector: str, lanes: int, values: list[str]) -> list[str]:
    """Combines vectors, in turns: element i of value j becomes element i len(values) + j of the vectors together."""
    if len(values) == 1:
        return values
    halves = _together(f, vector, lanes, values[::2]), _together(f, vector, lanes, values[1::2])
    found: list[str] = []
    for a, b in zip(*halves):
        for first in (0, lanes // 2):
            order = ", ".join(f"i32 {first + i // 2 + lanes * (i % 2)}" for i in range(lanes))
            found.append(f.let(f"shufflevector {vector} {a}, {vector} {b}, <{lanes} x i32> <{order}>"))
    return found


def _all(name: str, machine: Machine) -> str:
    """Emits the kernel whose units are ranges of blocks, each with the `v` and the `m` of a place in scratch memory."""
    f = _Part(name)
    kernels = [f.word(part) for part in ("transform", "multiply", "back")]
    total, lanes, points, plane = (f.word(w) for w in ("total", "lanes", "points", "v_plane"))
    scratch, each = f.word("scratch"), f.word("each_scratch")
    units = f.word("ic"), f.mul(f.word("oc_parts"), points), f.word("oc")
    places = f"ptr {f.word('busy')}, i64 {f.word('places')}, i64 {lanes}"

    def lane(q: str) -> None:
        first, end = (f.let(f"sdiv i64 {f.mul(total, i)}, {lanes}") for i in (q, f.add(q, 1)))
        place = f.let(f"call i64 @{name}_take({places}, i64 {q})")
        v = f.beyond(scratch, f.mul(each, place))
        m = f.beyond(v, f.mul(plane, points))

        def block(b: str) -> None:
            for kernel, count in zip(kernels, units):
                f.line(f"call void {kernel}(ptr %args, i64 {b}, ptr {v}, ptr {m}, i64 0, i64 {count})")

        f.loop(first, end, block)
        f.line(f"call void @{name}_leave({places}, i64 {place})")

    f.loop("%first", "%end", lane)
    return place_functions(name) + f.done()


def _one(part: str, name: str, machine: Machine) -> str:
    """Emits the kernel of one part of the block `number`, whose units threads share."""
    f = _Part(name)
    kernel, block, v = f.word(part), f.word("number"), f.word("scratch")
    m = f.beyond(v, f.mul(f.word("v_plane"), f.word("points")))
    f.line(f"call void {kernel}(ptr %args, i64 {block}, ptr {v}, ptr {m}, i64 %first, i64 %end)")
    return f.done()


def transform_kernel(m: int, exact: bool = False) -> Kernel:
    """Names the transform of inputs."""
    return Kernel(f"winograd _transform {m}{' exact' if exact else ''}", partial(_transform, m, exact=exact), vectors=True)


def back_kernel(m: int, ending: Ending | None, exact: bool = False) -> Kernel:
    """Names the transform of sums, or a formula of it."""
    key = f"winograd _back {m}{' exact' if exact else ''}" + ("" if ending is None else f" {ending.key}")
    return Kernel(key, partial(_back, m, ending, exact=exact), vectors=True)


def one_kernel(part: str, ending: Ending | None) -> Kernel:
    """Names the kernel of one part of one block."""
    return Kernel(f"winograd one {part}", partial(_one, part), partial(touches_of_part, part, ending), vectors=True)


def block_rows(points: int, down: int, across: int, ic: int, oc: int, lanes: int) -> int:
    """Chooses the rows of tiles of a block, by the time of its products and of its bytes beyond the inner caches."""

    def seconds(blocks: int) -> float:
        vectors = -(-(-(-down // blocks) * across) // lanes) * lanes
        weights, others = points * ic * oc * ITEM, points * vectors * (ic + oc) * ITEM
        outside = min(max((others - CACHE / 2) / (8 * CACHE), 0.1), 1.0)  # the part of v and m that leaves the inner caches
        moved = (weights / READ if weights > CACHE // 2 else 0) + 2 * others * outside / MOVED
        return blocks * (2 * points * vectors * ic * oc / GFLOPS + moved)

    return -(-down // min(range(1, down + 1), key=seconds))


@dataclass
class _Sizes:
    """Sizes of a launch, from those of its operands."""

    m: int
    ic: int
    oc: int
    down: int
    across: int
    library: Library

    def __post_init__(self) -> None:
        host = self.library.host
        self.lanes, self.points = lanes_of(host, np.dtype(np.float32)), (self.m + 2) ** 2
        self.rows = block_rows(self.points, self.down, self.across, self.ic, self.oc, self.lanes)
        self.blocks = -(-self.down // self.rows)
        self.vectors = Panels.of(self.rows * self.across, self.lanes, host.block[1])
        held = host.block[0] * host.block[1]
        self.channels = Panels.of(self.oc, 1, min(held // self.vectors.broad, 16))
        self.tiles = self.vectors.columns
        # The planes of a tile's points must not have the same place in a cache.
        self.v_plane, self.m_plane = (n * self.tiles * ITEM + LINE for n in (self.ic, self.oc))
        self.u_plane = self.oc * self.ic * ITEM
        # A vector at the end of a row of tiles may begin at the last tile.
        self.each = -(-(self.points * (self.v_plane + self.m_plane) + LINE) // LINE) * LINE

    def kernels(self) -> list[Kernel]:
        """Names the blocks of sums: more and fewer output channels, each with more and fewer vectors."""
        v, c = self.vectors, self.channels
        sizes = [(r, n) for r in (c.broad, c.broad - (c.wide < c.parts)) for n in (v.broad, v.broad - (v.wide < v.parts))]
        return [block_kernel(r, n, "float32", "swapped paced") for r, n in sizes]


def winograd(library: Library, task: Task, slices: Slices | None = None, formula: Formula | None = None) -> list[Launch] | None:
    """Computes a 3x3 convolution of f32 in tiles, or a formula of it.

    Returns None for other types, for columns that are not adjacent, for slices of k, and for a formula without code.
    """
    field_x, field_w, y = task.fields["x"], task.fields["w"], task["y"] if formula is None else formula.out
    on_plane = formula and on_matrix(formula, walks_of(task, "y"), ("o0",), ("o1",))
    ending = on_plane and ending_of(on_plane.at(0, 0), 1)
    if slices is not None or (formula is not None and ending is None):
        return None
    x, w, tile = field_x.array, field_w.array, int(task.number("tile"))
    if not x.dtype == w.dtype == y.dtype == np.float32 or 0 in (x.size, w.size, y.size):
        return None
    along_x, along_w, along_y = (walk_over(task, piece) for piece in (field_x, field_w, replace(task.fields["y"], array=y)))
    if (x.shape[-1] > 1 and along_x.bytes["k1"] != ITEM) or (y.shape[-1] > 1 and along_y.bytes["o1"] != ITEM):
        return None
    ic, oc, high, wide = (along_y.points[axis] for axis in ("ic", "oc", "o0", "o1"))
    s = _Sizes(tile, ic, oc, -(-high // tile), -(-wide // tile), library)
    launches: list[Launch] = []

    def packing(w: Array, room: Array) -> Launch:
        steps = [along_w.bytes[axis] for axis in ("oc", "ic", "k0", "k1")]
        args = [w, room, s.ic, *steps, s.u_plane, s.channels.wide, s.channels.broad]
        return Launch(library, weights_kernel(tile), args, s.channels.parts, room.size)

    if field_w.constant:
        key = ("winograd", tile, s.channels, w.shape, w.strides)
        room = partial(lines, s.points * s.oc * s.ic, np.float32)
        if task.constants is None:
            packing(w, u := room())()
        else:
            u = task.constants.filled(w, key, room, packing)
    else:
        u = task.scratch((s.points * s.oc * s.ic,), np.float32)
        launches.append(packing(w, u))
    return [*launches, *_launches(library, task, s, (x, u, y), (along_x, along_y), ending, formula)]


def _launches(
    library: Library,
    task: Task,
    s: _Sizes,
    arrays: tuple[Array, Array, Array],
    walks: tuple[Walk, Walk],
    ending: Ending | None,
    formula: Formula | None,
) -> list[Launch]:
    """Builds one launch whose threads take blocks each; or where blocks are few, the parts of each block as launches."""
    (x, u, y), (along_x, along_y) = arrays, walks
    total = len(y) * s.blocks
    lanes = 1 if task.threads == 1 else min(total, CHUNKS * task.threads)
    few = task.threads > 1 and total < 2 * task.threads
    busy, held = places_of(task, lanes)
    scratch = task.scratch((s.each * (1 if few else held),), np.uint8)
    pads = [before for before, _ in task.fields["x"].pads[2:]]
    places = [w.table("b") for w in walks]
    kernels = [transform_kernel(s.m), Kernel("winograd multiply", _multiply, vectors=True), back_kernel(s.m, ending)]
    words = ending_words(formula, walks_of(task, "y"), ("b",), ("oc",), ("o0",))
    units = s.ic, s.points * s.channels.parts, s.oc
    work = 2 * s.points * s.tiles * s.ic * s.oc // 100

    def launch(kernel: Kernel, units: int, work: int, number: int) -> Launch:
        args: list[int | Array | Kernel] = [
            x, u, y, *s.kernels(), *places, offsets((s.ic,), (s.tiles * ITEM,)),
            s.ic, s.oc, along_x.bytes["ic"], along_x.bytes["k0"], *x.shape[2:], *pads,
            along_y.bytes["oc"], along_y.bytes["o0"], *y.shape[2:],
            s.across, s.down, s.rows, s.blocks, s.tiles, s.v_plane, s.m_plane, s.u_plane,
            s.vectors.parts, s.vectors.wide, s.vectors.broad, s.channels.parts, s.channels.wide, s.channels.broad,
            scratch, s.each, lanes, *kernels, total, s.points, number,
            np.array([0, s.ic], np.int64), busy, held, *words,
        ]  # fmt: skip
        assert len(args) == len(WORDS) + len(words), (len(args), len(WORDS))
        return Launch(library, kernel, args, units, work)

    if not few:
        return [launch(Kernel("winograd", _all, partial(touches, ending), vectors=True), lanes, total * work, 0)]
    moved = [s.points * s.tiles * n * ITEM // 8 for n in (s.ic, s.oc)]
    each = zip(("transform", "multiply", "back"), units, (moved[0], work, moved[1]))
    named = [(one_kernel(part, ending), n, ns) for part, n, ns in each]
    return [launch(kernel, n, ns, number) for number in range(total) for kernel, n, ns in named]
