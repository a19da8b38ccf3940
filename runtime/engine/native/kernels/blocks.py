"""One block of a product: sums of some rows by some vectors in registers, and their stores.

    c[m, n] = sum over k of a[m, k] b[k, n]

Each element is one sum in the order of k, from 0, for any size of block. If the CPU has fused multiply-add, product
and sum are rounded once. A block may stop within k, and leave its sums in memory from which it continues.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

from populus.runtime.endings import TYPES
from populus.runtime.engine.native.codegen.cpu import Machine
from populus.runtime.engine.native.codegen.jit import Kernel
from populus.runtime.engine.native.codegen.llvm_builder import Function
from populus.runtime.engine.native.kernels.endings import BYTES, FETCH, LINE, SUFFIX, Ending, Operand, masked_load

NEAR = 4096  # bytes of a panel's lines that are on their way, for a single row
PREFETCH = ("i32 immarg", "2"), ("i32 immarg", "1")  # data, into the second cache
SUMMED = {**TYPES, "int32": "i32", "uint32": "i32", "int64": "i64", "uint64": "i64"}  # integers wrap around
CONTINUES, STOPS = 1, 2  # stages of a block: it continues the sums in its memory; it leaves them there


def block_kernel(rows: int, vectors: int, dtype: str, form: str, ending: Ending | None = None) -> Kernel:
    """Names the kernel of `rows` by `vectors` sums.

    `form`: the layout of c, `rows` (columns are adjacent) or `columns` (rows are adjacent). In `swapped`, which is `rows`
    too, the left side is packed, and the columns of the right side are adjacent in memory. `%valid` cuts the last
    vector. Two forms read whole vectors only: `swapped whole`, which is not cut, and `swapped late`, in which `%valid`
    counts the lanes that its first vector does not store. `swapped paced` is whole too; it fetches at an even pace.
    With `packed` before the last word the right side is packed too. With the prefix `sliced ` each slice of k has its own
    sum, and the sums are added in order. `ending`: a formula on the sums, applied where they are stored.
    """
    key = f"block {rows} {vectors} {dtype} {form}" + ("" if ending is None else f" {ending.key}")
    return Kernel(key, partial(_block, rows, vectors, SUMMED[dtype], form, ending), vectors=not form.startswith("sliced"))


def _block(rows: int, vectors: int, type: str, form: str, ending: Ending | None, name: str, machine: Machine) -> str:
    item = BYTES[type]
    lanes = machine.vector_bytes // item
    vector, plus = f"<{lanes} x {type}>", "add" if type.startswith("i") else "fadd"
    # rows: the block's part of the table; b: the panel; c: the block's first element;
    # step: bytes between rows, or between columns; valid: number of columns inside c;
    # ends: of k, or of its slices; ahead, pace: what is read later, and the bytes of it that arrive for each k meanwhile
    # (none in `swapped`: at the elements of depth);
    # words, row, column: operands of the ending, and the block's place
    f = Function(
        name,
        "ptr noalias readonly %a, ptr noalias readonly %rows, ptr noalias readonly %depth, ptr noalias readonly %b, "
        f"ptr{'' if ending else ' noalias'} %c, i64 %step, i64 %valid, ptr noalias readonly %ends, i64 %slices, i64 %stage, "
        "ptr noalias %buffer, ptr %ahead, i64 %pace, ptr noalias readonly %words, i64 %row, i64 %column",
        "void",
    )
    swapped = "swapped" in form
    starts = [] if swapped else [f.beyond("%a", f.load("i64", f.at("%rows", r, "i64"))) for r in range(rows)]
    cut = _cut(f, form, vectors, lanes)
    step, ending = partial(_step, f, rows, vectors, type, form, machine, starts, cut), ending and ending.on(machine)
    places = [f.at("%buffer", i * lanes, type) for i in range(rows * vectors)]
    zeros = ["zeroinitializer"] * (rows * vectors)
    continued, stopped = (f.let(f"icmp ne i64 {f.let(f'and i64 %stage, {bit}')}, 0") for bit in (CONTINUES, STOPS))
    if ending is not None and any(ending.adjacent):
        _fetch(f, rows, vectors * lanes, item, form, ending, stopped)

    def held() -> list[str]:
        return [f.load(vector, place, item) for place in places]

    def hold(values: Sequence[str]) -> None:
        for place, value in zip(places, values):
            f.store(vector, value, place, item)

    if form.startswith("sliced"):

        def slice(s: str) -> None:
            place = f.at("%ends", s, "i64")
            sums = f.loop(f.load("i64", place), f.load("i64", f.at(place, 1, "i64")), step, [(vector, zero) for zero in zeros])
            fresh = f.let(f"and i1 {f.let(f'icmp eq i64 {s}, 0')}, {f.let(f'xor i1 {continued}, true')}")
            f.when(
                fresh,
                lambda: hold(sums),
                lambda: hold([f.let(f"{plus} {vector} {total}, {value}") for total, value in zip(held(), sums)]),
            )

        f.loop(0, "%slices", slice)
        begin, sums = None, []
    else:
        begin = f.choose(continued, vector, held, lambda: zeros)
        low, high = (f.load("i64", f.at("%ends", i, "i64")) for i in range(2))
        sums = f.loop(low, high, step, [(vector, value) for value in begin])

    looped = form.endswith("columns") and machine.few_registers
    if looped and begin is not None:
        hold(sums)

    def store() -> None:
        if looped:
            _store_held(f, rows, vectors * lanes, type, ending)
            return
        final = held() if begin is None else sums
        if form.endswith("columns"):
            _store_columns(f, rows, vectors, lanes, type, final, cut, ending)
        else:
            _store_rows(f, rows, vectors, lanes, type, final, cut, ending, machine.masks_freely or form.endswith("late"))

    f.when(stopped, lambda: None if begin is None or looped else hold(sums), store)
    return f.done("void")


def _fetch(f: Function, rows: int, width: int, item: int, form: str, ending: Ending, stopped: str) -> None:
    """Fetches what the ending reads and writes for a block that has not `stopped`."""
    turned = form.endswith("columns") and ending.turned
    counts, along = ((1, width), 0) if turned else ((rows, 1), 1)
    fetched = [(o, False) for o in ending.operands(f) if o.adjacent]
    fetched += [] if form.endswith("columns") else [(Operand("%c", ("%step", "0"), True), True)]

    def fetch() -> None:
        for operand, write in fetched:
            operand.fetch(f, counts, along, (rows if turned else width) * item, write)

    f.when(stopped, lambda: None, fetch)


@dataclass(frozen=True)
class _Cut:
    """Vector of a block's rows that has lanes outside c, and the mask of its others; without a mask none has."""

    vector: int
    inside: str

    def mask(self, vector: int) -> str:
        """Returns the mask of a vector; empty for all lanes."""
        return self.inside if vector == self.vector else ""


def _cut(f: Function, form: str, vectors: int, lanes: int) -> _Cut:
    """Emits the mask of the vector that `%valid` cuts: the last one, or in `late` the first."""
    if form.endswith(("whole", "paced")):
        return _Cut(0, "")
    counts = f"<{lanes} x i64> <{', '.join(f'i64 {n}' for n in range(lanes))}>"
    if form.endswith("late"):
        return _Cut(0, f.let(f"icmp sge {counts}, {f.splat('i64', lanes, '%valid')}"))
    left = f.sub("%valid", (vectors - 1) * lanes)
    return _Cut(vectors - 1, f.let(f"icmp slt {counts}, {f.splat('i64', lanes, left)}"))


def _step(
    f: Function, rows: int, vectors: int, type: str, form: str, machine: Machine, starts: list[str], cut: _Cut, i: str, *sums: str
) -> list[str]:
    """Emits one element of k: its products are added to the sums."""
    item = BYTES[type]
    lanes = machine.vector_bytes // item
    vector, swapped, late = f"<{lanes} x {type}>", "swapped" in form, form.endswith("late")
    offset = f.load("i64", f.at("%depth", i, "i64"))
    if rows > 1 or swapped:
        later = offset if swapped and not form.endswith("paced") else f.mul(i, "%pace")
        f.call("void", "llvm.prefetch.p0", ("ptr", f.beyond("%ahead", later)), ("i32 immarg", "0"), *PREFETCH)
    panel = f.at("%b", f.mul(i, rows if swapped else vectors * lanes), type)
    line = f.at("%a", f.mul(i, vectors * lanes), type) if "packed" in form else f.beyond("%a", offset) if swapped else panel
    right: list[str] = []
    for v in range(vectors):
        place, mask = f.at(line, v * lanes, type), cut.mask(v) if swapped and not late else ""
        right.append(masked_load(f, type, lanes, place, mask) if mask else f.load(vector, place, item))
    # Nothing else reads the panel of one row, and sums are too few to wait for it: all of its lines are fetched. Where a vector is a
    # line, the CPU fetches them by itself, and more operations only delay those loads.
    if rows == 1 and not swapped and machine.vector_bytes < LINE:
        for near in range(NEAR, NEAR + vectors * machine.vector_bytes, LINE):
            place = f.let(f"getelementptr i8, ptr {panel}, i64 {near}")
            f.call("void", "llvm.prefetch.p0", ("ptr", place), *FETCH)
    new: list[str] = []
    for r in range(rows):
        place = f.at(panel, r, type) if swapped else f.beyond(starts[r], offset)
        left = f.splat(type, lanes, f.load(type, place))
        for v in range(vectors):
            total = sums[r * vectors + v]
            if type.startswith("i"):
                new.append(f.let(f"add {vector} {total}, {f.let(f'mul {vector} {left}, {right[v]}')}"))
            else:
                new.append(f.add_product(machine, type, lanes, total, left, right[v]))
    return new


def _store_rows(
    f: Function,
    rows: int,
    vectors: int,
    lanes: int,
    type: str,
    sums: list[str],
    cut: _Cut,
    ending: Ending | None,
    freely: bool = True,
) -> None:
    """Stores whole vectors, but for the one that is cut. `freely`: the mask may be full; else full vectors go another way."""
    if cut.inside and not freely:  # few blocks are at the end of a row
        whole = f.let(f"icmp sge i64 %valid, {vectors * lanes}")
        store = partial(_store_rows, f, rows, vectors, lanes, type, sums)
        f.when(whole, lambda: store(_Cut(0, ""), ending), lambda: store(cut, ending))
        return
    vector, mask, item = f"<{lanes} x {type}>", f"<{lanes} x i1>", BYTES[type]
    masked = f"llvm.masked.store.v{lanes}{SUFFIX[type]}.p0"
    if ending is not None:
        operands = ending.operands(f)
        # All operands are loaded before the first store: a load waits for an earlier store whose address has equal low bits.
        places = [((r, v * lanes), cut.mask(v)) for r in range(rows) for v in range(vectors)]
        taken = [[o.vector(f, type, lanes, place, 1, inside) for o in operands] for place, inside in places]
        sums = [ending.applied(f, type, lanes, value, others) for value, others in zip(sums, taken)]
    for r in range(rows):
        row = f.beyond("%c", f.mul("%step", r))
        for v in range(vectors):
            place, value = f.at(row, v * lanes, type), sums[r * vectors + v]
            if cut.mask(v):
                f.call("void", masked, (vector, value), ("ptr", place), ("i32 immarg", str(item)), (mask, cut.inside))
            else:
                f.store(vector, value, place, item)


def _store_columns(f: Function, rows: int, vectors: int, lanes: int, type: str, sums: list[str], cut: _Cut, ending: Ending | None) -> None:
    """Stores the block transposed, so that each column becomes `rows` adjacent elements.

    It interleaves rows 0 and n/2, 1 and n/2 + 1, ...; after log2(n) rounds for n rows the elements are in order of
    columns. An ending whose operands do not vary by row comes before, on whole vectors.
    """
    vector = f"<{lanes} x {type}>"
    if ending is not None and not ending.turned:
        operands = ending.operands(f)
        for v in range(vectors):
            taken = [o.vector(f, type, lanes, (0, v * lanes), 1, cut.mask(v)) for o in operands]
            for i in range(v, rows * vectors, vectors):
                sums = [*sums[:i], ending.applied(f, type, lanes, sums[i], taken), *sums[i + 1 :]]
        ending = None
    later = [] if ending is None else ending.operands(f)
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

        def ended(n: int, value: str, first: int = v * lanes) -> str:
            if ending is None:
                return value
            return ending.applied(f, type, rows, value, [o.vector(f, type, rows, (0, first + n), 0, "") for o in later])

        _store_turned(f, turned, v * lanes, rows, height, lanes, type, ended)


def _store_held(f: Function, rows: int, width: int, type: str, ending: Ending | None) -> None:
    """Stores the block transposed, in a loop over its columns, from the rows of `width` elements in `%buffer`.

    Its code is that of one column. A block in registers would have each column's, and their shuffles: most of its bytes.
    """
    others = [] if ending is None else ending.operands(f)

    def store(n: str) -> None:
        column, value = f"<{rows} x {type}>", "poison"
        for r in range(rows):
            element = f.load(type, f.at(f.at("%buffer", n, type), r * width, type))
            value = f.let(f"insertelement {column} {value}, {type} {element}, i64 {r}")
        if ending is not None:
            taken = [replace(o, adjacent=o.adjacent and ending.turned).vector(f, type, rows, (0, n), 0, "") for o in others]
            value = ending.applied(f, type, rows, value, taken)
        f.store(column, value, f.beyond("%c", f.mul("%step", n)), BYTES[type])

    f.loop(0, "%valid", store)


def _interleave(lanes: int, first: int) -> str:
    return ", ".join(f"i32 {first + i // 2 + lanes * (i % 2)}" for i in range(lanes))


def _store_turned(
    f: Function, turned: list[str], first: int, rows: int, height: int, lanes: int, type: str, ended: Callable[[int, str], str]
) -> None:
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
        f.store(column, ended(n, value), target, item)
    f.line(f"br label %{out}")
    f.start(out)
