"""Published times of single ops on meshes: element-wise ops, copies, layout changes, products and convolutions of networks.

An op takes its blocks of 32 x 32 by equal shares of its cores. A core reads a block, waits for it, and computes it under the next one.
Where all cores together need DRAM for longer, that is what the op takes. Times are of kernels, so no launch is in them.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from xdsl.dialects.builtin import bf16

from benchmarks.mesh_products import BLOCK
from benchmarks.mesh_traffic import EACH
from populus.dialects.expr import Arg, Call, Const, Expr
from populus.dialects.poplar.machine import FIDELITIES, Mesh
from populus.dialects.poplar.target import Target
from populus.runtime.cycles.mesh.contraction import SUB_BLOCKS, block_cycles
from populus.runtime.cycles.mesh.product import Places, Streamed, product_cycles
from populus.runtime.cycles.mesh.vector import map_cycles

BEGIN = 600.0  # cycles in which a core sets its kernels up
GATHER = 21.0  # cycles of a core to copy adjacent elements of a window
MADE = 45.0  # cycles in which a gathered block is brought into its layout, or sent along a row of cores
GATHERED = 2048.0  # bytes of a block of gathered elements, which are of 16 bits
UNMADE = {"BFLOAT16": 130.0, "BFLOAT8_B": 290.0}  # cycles to bring a block out of its layout
FILL = 2.0  # cycles of a core to write one element of a padding, of a scalar's block or of a row's
UNARY = {"CLIP text encoder 1": "sigmoid", "CLIP text encoder 2": "erf"}  # by the network; else max(x, 0)
WEIGHTS = {"bfp8": "BFLOAT8_B", "bfp4": "BFLOAT4_B"}
TESTED = re.compile(r"(\d+)x(\d+)x(\d+)x(\d+) -> (\d+), (\d+)x(\d+) s(\d+) p(\d+)")
TENSOR = re.compile(r"(\d+(?:x\d+)*) (\w+) (TILE|ROW_MAJOR) (\w+)")


@dataclass(frozen=True)
class Tensor:
    """An operand or a result: its shape in elements, format, layout and place."""

    shape: tuple[int, ...]
    format: str
    tiled: bool
    place: str

    @property
    def blocks(self) -> int:
        *outer, rows, columns = self.shape
        if not self.tiled:
            return -(-math.prod(self.shape) // 1024)
        return math.prod(outer) * -(-rows // 32) * -(-columns // 32)

    @property
    def bytes(self) -> int:
        return self.blocks * BLOCK[self.format]

    @property
    def in_dram(self) -> bool:
        return self.place.startswith("DRAM")


@dataclass(frozen=True)
class Op:
    """A row: the op's name, its cores, operands and result."""

    name: str
    cores: int
    operands: tuple[Tensor, ...]
    result: Tensor
    fidelity: str
    network: str

    @staticmethod
    def of(row: Mapping[str, str]) -> Op | None:
        """Reads a row of a profiler's report; None for one of another form."""
        cores = re.fullmatch(r"(\d+) cores", row["grid"])
        before, arrow, after = row["shape"].partition("->")
        tensors = [[_tensor(m) for m in TENSOR.finditer(text)] for text in (before, after)]
        if not cores or not arrow or len(tensors[1]) != 1 or any(t.format not in BLOCK for side in tensors for t in side):
            return None
        return Op(row["op"].rpartition(": ")[2], int(cores[1]), tuple(tensors[0]), tensors[1][0], row["fidelity"], row["op"])


def _tensor(m: re.Match[str]) -> Tensor:
    return Tensor(tuple(int(n) for n in m[1].split("x")), m[2], m[3] == "TILE", m[4])


def _mesh(target: Target) -> Mesh:
    assert target.mesh is not None, target.name
    return target.mesh


def predicted(row: Mapping[str, str], target: Target) -> float | None:
    """Predicts the nanoseconds of an op; None for one that no formula is for."""
    if tested := Convolution.tested(row, target):
        return 1e9 * tested.cycles(_mesh(target)) / target.clock_hz
    if (op := Op.of(row)) is None:
        return None
    for names, cycles in _OPS.items():
        if op.name in names:
            return 1e9 * cycles(op, target) / target.clock_hz
    return None


def halo(mesh: Mesh, bytes: float, blocks: int, format: str, cores: int) -> float:
    """Predicts the bytes that a core gathers for its windows, from its own blocks and from its neighbours'."""
    return BEGIN + EACH * cores + bytes / mesh.unicast_bytes + blocks * UNMADE.get(format, UNMADE["BFLOAT16"])


def _halo(op: Op, target: Target) -> float:
    before, mesh = op.operands[0], _mesh(target)
    return halo(mesh, 2 * math.prod(op.result.shape) / op.cores, -(-before.blocks // op.cores) * before.tiled, before.format, op.cores)


def _streamed(
    op: Op, target: Target, computed: float, operands: tuple[Tensor, ...], waits_to_write: bool = False, filled: float = 0.0
) -> float:
    """Computes the cycles of blocks that are read, computed (each in `computed`) and written.

    `waits_to_write`: a block is written before the next one is read. `filled`: cycles in which a reader fills a further block for each.
    """
    mesh = _mesh(target)
    own = -(-op.result.blocks // op.cores)
    # Once an operand comes by the network, all do. A core waits for the first bytes, and for a signal of each further operand.
    waits = 0.0
    if any("INTER" in t.place for t in operands):
        first = mesh.dram_cycles - 2048 / mesh.dram_tile_bytes if any(t.in_dram for t in operands) else mesh.signal_cycles
        waits = first + (len(operands) - 1) * mesh.signal_cycles
    read = waits + sum(_moved(t, own, op, mesh) for t in operands) / own + filled
    written = (mesh.issue_cycles + BLOCK[op.result.format] / mesh.dram_tile_bytes) if "INTER" in op.result.place else 0.0
    read += (mesh.dram_cycles - 2048 / mesh.dram_tile_bytes) * (waits_to_write and op.result.in_dram)
    together = max(
        sum(t.bytes for t in operands if t.in_dram) / mesh.dram_read_bytes, op.result.bytes * op.result.in_dram / mesh.dram_write_bytes
    )
    last = mesh.dram_cycles if op.result.in_dram else 0.0
    return BEGIN + EACH * op.cores + max(own * max(read, computed, written), together) + last


def _moved(t: Tensor, own: int, op: Op, mesh: Mesh) -> float:
    """Computes the cycles in which a core gets its share of an operand that lies elsewhere."""
    if "INTER" not in t.place:
        return 0.0
    share = own * t.blocks / op.result.blocks
    rate = mesh.dram_tile_bytes if t.in_dram else mesh.unicast_bytes
    return share * max(mesh.issue_cycles, BLOCK[t.format] / rate)


def _map(op: Op, target: Target) -> float:
    tensors = tuple(t for t in op.operands if t.shape == op.result.shape) if op.name != "Unary" else op.operands[:1]
    # Rows do not say which function it is. The first text encoder is defined with x * sigmoid(1.702 x), the second with gelu.
    function = next((f for name, f in UNARY.items() if op.network.startswith(name)), "")
    unary = Call(function, (Arg(1),)) if function else Call("max", (Arg(1), Const(0)))
    formula: Expr = Call("add", (Arg(1), Arg(2))) if op.name != "Unary" else unary
    count = len(tensors) if op.name != "Unary" else 1
    computed = float(map_cycles(1024, formula, [bf16] * max(count, 1), [False] * max(count, 1), bf16, target, False))
    # A core writes a scalar into a block of its own, once. A row it copies over all rows of a block, anew for each block of the result.
    scalar = op.name != "Unary" and len(op.operands) == 1
    row = op.name != "Unary" and any(t.shape[-2] < op.result.shape[-2] and t.shape[-1] == op.result.shape[-1] for t in op.operands)
    streamed = _streamed(op, target, computed, tensors or op.operands[:1], op.name != "BinaryNg", row * 1024 * FILL)
    return streamed + scalar * 1024 * FILL


def _move(op: Op, target: Target) -> float:
    """Predicts a copy in each core's memory by its own link."""
    return BEGIN / 2 + -(-op.result.blocks // op.cores) * BLOCK[op.result.format] / _mesh(target).unicast_bytes


def _copy(op: Op, target: Target) -> float:
    """Predicts blocks from or to DRAM, many at once."""
    mesh = _mesh(target)
    cycles = BEGIN
    moved = op.operands[0]
    own = -(-moved.blocks // op.cores)
    for t, rate in ((moved, mesh.dram_read_bytes), (replace(moved, place=op.result.place), mesh.dram_write_bytes)):
        if t.in_dram:
            cycles = max(cycles, BEGIN + max(t.bytes / rate, own * mesh.issue_cycles, own * BLOCK[t.format] / mesh.dram_tile_bytes))
    return cycles + mesh.dram_cycles


def _layout(op: Op, target: Target) -> float:
    """Predicts rows to blocks or back: a core moves the 32 rows of each row of blocks. Where rows are padded or cut, it waits for each."""
    mesh = _mesh(target)
    rows = next(t for t in (*op.operands[:1], op.result) if not t.tiled)
    tiled = next(t for t in (*op.operands[:1], op.result) if t.tiled)
    width = max(1, tiled.shape[-1] // 32)
    if "Val" in op.name or "Unpadding" in op.name:
        waits = mesh.dram_cycles - 2048 / mesh.dram_tile_bytes if rows.in_dram else mesh.signal_cycles
        spread = width if op.cores > tiled.blocks // width else 1  # cores that share a row of blocks
        own, full = -(-tiled.blocks // width * spread // op.cores), min(32, rows.shape[-2])
        by_row = full * (waits + 2 * rows.shape[-1] / mesh.dram_tile_bytes)
        by_block = (width // spread) * (mesh.dram_cycles if tiled.in_dram else mesh.signal_cycles)
        filled = (32 - full) * (width // spread) * 32 * FILL if rows is op.operands[0] else 0.0
        return BEGIN + EACH * op.cores + own * (max(by_row + filled, by_block)) + mesh.dram_cycles * op.result.in_dram
    requests = 32 / width * mesh.issue_cycles * (2.0 if "INTER" in rows.place else 0.4)
    return _streamed(op, target, max(requests, 100.0), op.operands[:1])


def _transposed(op: Op, target: Target) -> float:
    """Predicts blocks that are turned; where rows change places, each half of a row of a block is a request."""
    assert target.mesh is not None
    before, after = op.operands[0].shape, op.result.shape
    turned = before[-1] != after[-1] or before[:-2] == after[:-2]
    return _streamed(op, target, 64.0 if turned else 64 * target.mesh.issue_cycles, op.operands[:1], True)


def _product(op: Op, target: Target) -> float:
    """Predicts a product by the library's default, of depth 2 a step: rows over all cores, or columns if there are few rows."""
    mesh = _mesh(target)
    (*outer, m, k), n = op.operands[0].shape, op.result.shape[-1]
    rows, depth, columns = (-(-size // 32) for size in (math.prod(outer) * m, k, n))
    if math.prod(outer) > 1:  # of batches, each product of blocks reads both anew
        read = sum(max(mesh.reader_cycles, BLOCK[t.format] / mesh.dram_tile_bytes) for t in op.operands[:2])
        return BEGIN + EACH * op.cores + -(-rows * columns // op.cores) * depth * read
    across = 1 if 2 * rows >= op.cores else next(d for d in range(mesh.grid[0], 0, -1) if op.cores % d == 0)
    down, own = op.cores // across, (-(-rows // (op.cores // across)), -(-columns // across))
    h, w = next((h, w) for h, w in SUB_BLOCKS if own[0] % h == 0 and own[1] % w == 0)
    plan = Streamed(*own, min(2, depth), h, w, -(-depth // 2), 1, across, down)
    places = Places(*(t.in_dram for t in (op.operands[0], op.operands[1], op.result)))
    return BEGIN + float(product_cycles(mesh, plan, BLOCK[op.operands[1].format], FIDELITIES.get(op.fidelity, 2), places).all)


@dataclass(frozen=True)
class Convolution:
    """A convolution as a product: of gathered windows with weights. Sizes of one core are in blocks."""

    cores: int
    rows: int  # of a core
    columns: int
    depth: int
    windows: int  # requests that gather one window
    weights: float  # bytes of a block
    fidelity: str

    @staticmethod
    def of(op: Op, target: Target) -> Convolution:
        """Reads a row of a profiler's report. The rows that cores hold for their windows tell whether a kernel is dilated."""
        assert target.mesh is not None
        first, second = op.operands[:2]
        (depth, n), m = (-(-s // 32) for s in second.shape[-2:]), -(-op.result.shape[-2] // 32)
        across = target.mesh.grid[0] if "BLOCK" in op.result.place else 1
        across = next(d for d in range(min(across, op.cores), 0, -1) if op.cores % d == 0)
        taps = max(1, second.shape[-2] // first.shape[-1])
        windows = taps if first.shape[-2] > 8 * op.result.shape[-2] or first.shape[-1] < 32 else math.isqrt(taps)
        return Convolution(op.cores, -(-m // (op.cores // across)), -(-n // across), depth, windows, BLOCK[second.format], op.fidelity)

    @staticmethod
    def tested(row: Mapping[str, str], target: Target) -> Convolution | None:
        """Reads a row of a regression test, which uses all cores: 1x128x128x4 -> 512, 3x3 s1 p1, with weights of its format."""
        if not (m := TESTED.fullmatch(row["shape"])):
            return None
        images, height, width, channels, out, kernel, _, stride, pad = map(int, m.groups())
        positions = images * math.prod((size + 2 * pad - kernel) // stride + 1 for size in (height, width))
        padded = -(-channels // 8) * 8  # a row of channels begins at 16 bytes
        windows = kernel if channels >= 32 else kernel * kernel
        own = -(-positions // 32 // target.tiles)
        bytes = next((BLOCK[full] for name, full in WEIGHTS.items() if f"w {name}" in row["format"]), BLOCK["BFLOAT16"])
        return Convolution(target.tiles, own, -(-out // 32), -(-kernel * kernel * padded // 32), windows, bytes, row["fidelity"])

    def cycles(self, mesh: Mesh) -> float:
        """Predicts windows that are gathered from a core's rows, made blocks of and multiplied; weights come under that, in two buffers."""
        phases = FIDELITIES.get(self.fidelity, 2)
        multiplied = float(block_cycles(mesh, self.rows, self.columns, self.depth, (GATHERED + self.weights) / 2, phases, False))
        gathered = self.rows * (32 * self.windows * GATHER + self.depth * MADE)
        read = self.columns * self.depth * (max(mesh.reader_cycles, self.weights / mesh.dram_tile_bytes) + self.weights / mesh.column_bytes)
        return BEGIN + EACH * self.cores + max(gathered + multiplied, read)


_OPS: dict[tuple[str, ...], Callable[[Op, Target], float]] = {
    ("Binary", "BinaryNg", "Unary"): _map,
    ("Move",): _move,
    ("Halo",): _halo,
    ("ShardedToInterleaved", "InterleavedToSharded", "SliceWrite"): _copy,
    ("Slice",): lambda op, target: _streamed(op, target, 64.0, (op.result,)),
    ("Transpose",): _transposed,
    ("Concat",): lambda op, target: _streamed(op, target, 64.0, (op.result,), True),
    ("Tilize", "TilizeWithValPadding", "Untilize", "UntilizeWithUnpadding"): _layout,
    ("Matmul", "MinimalMatmulOp"): _product,
    ("Conv2d",): lambda op, target: Convolution.of(op, target).cycles(_mesh(target)),
}
