"""Published times of single ops on meshes: element-wise ops, copies, layout changes, products and convolutions of networks.

An op takes its blocks of 32 x 32 by equal shares of its cores. A core reads a block, waits for it, and computes it under the next one.
Where all cores together need DRAM for longer, that is what the op takes. Times are of kernels, so no launch is in them.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

from xdsl.dialects.builtin import bf16

from benchmarks.mesh_products import BLOCK, SUM_BYTES
from populus.dialects.expr import Arg, Call, Const, Expr
from populus.dialects.poplar.machine import FIDELITIES, Mesh
from populus.dialects.poplar.target import Target
from populus.runtime.cycles.mesh.contraction import SUB_BLOCKS, block_cycles
from populus.runtime.cycles.mesh.product import Places, Streamed, product_cycles
from populus.runtime.cycles.mesh.vector import map_cycles

BEGIN = 600.0  # cycles in which a core sets its kernels up
GATHER = 9.5  # cycles of a core to copy one row of a window's elements
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


def predicted(row: Mapping[str, str], target: Target) -> float | None:
    """Predicts the nanoseconds of an op; None for one that no formula is for."""
    op, mesh = Op.of(row), target.mesh
    if op is None or mesh is None:
        return None
    for names, cycles in _OPS.items():
        if op.name in names:
            return 1e9 * cycles(op, target) / target.clock_hz
    return None


def _streamed(op: Op, target: Target, computed: float, operands: tuple[Tensor, ...], waits_to_write: bool = False) -> float:
    """Computes the cycles of blocks that are read, computed (each in `computed`) and written.

    `waits_to_write`: a block is written before the next one is read.
    """
    mesh = target.mesh
    assert mesh is not None
    own = -(-op.result.blocks // op.cores)
    waits = mesh.dram_cycles if any(t.in_dram for t in operands) else mesh.signal_cycles * any("INTER" in t.place for t in operands)
    read = waits + sum(_moved(t, own, op, mesh) for t in operands) / own
    written = (mesh.issue_cycles + BLOCK[op.result.format] / mesh.dram_tile_bytes) if "INTER" in op.result.place else 0.0
    read += (mesh.dram_cycles - 2048 / mesh.dram_tile_bytes) * (waits_to_write and op.result.in_dram)
    together = max(
        sum(t.bytes for t in operands if t.in_dram) / mesh.dram_read_bytes, op.result.bytes * op.result.in_dram / mesh.dram_write_bytes
    )
    last = mesh.dram_cycles if op.result.in_dram else 0.0
    return BEGIN + max(own * max(read, computed, written), together) + last


def _moved(t: Tensor, own: int, op: Op, mesh: Mesh) -> float:
    """Computes the cycles in which a core gets its share of an operand that lies elsewhere."""
    if "INTER" not in t.place:
        return 0.0
    share = own * t.blocks / op.result.blocks
    rate = mesh.dram_tile_bytes if t.in_dram else mesh.unicast_bytes
    return share * max(mesh.issue_cycles, BLOCK[t.format] / rate)


def _map(op: Op, target: Target) -> float:
    tensors = tuple(t for t in op.operands if t.shape == op.result.shape) if op.name != "Unary" else op.operands[:1]
    # Rows do not say which function it is: text encoders have gelu, the other networks relu.
    unary = Call("erf", (Arg(1),)) if op.network.startswith("CLIP") else Call("max", (Arg(1), Const(0)))
    formula: Expr = Call("add", (Arg(1), Arg(2))) if op.name != "Unary" else unary
    count = len(tensors) if op.name != "Unary" else 1
    computed = float(map_cycles(1024, formula, [bf16] * max(count, 1), [False] * max(count, 1), bf16, target, False))
    return _streamed(op, target, computed, tensors or op.operands[:1], op.name == "Unary")


def _move(op: Op, target: Target) -> float:
    """Predicts a copy in each core's memory by its own link."""
    assert target.mesh is not None
    return BEGIN / 2 + -(-op.result.blocks // op.cores) * BLOCK[op.result.format] / target.mesh.unicast_bytes


def _copy(op: Op, target: Target) -> float:
    """Predicts blocks from or to DRAM, many at once."""
    mesh = target.mesh
    assert mesh is not None
    cycles = BEGIN
    moved = op.operands[0]
    own = -(-moved.blocks // op.cores)
    for t, rate in ((moved, mesh.dram_read_bytes), (replace(moved, place=op.result.place), mesh.dram_write_bytes)):
        if t.in_dram:
            cycles = max(cycles, BEGIN + max(t.bytes / rate, own * mesh.issue_cycles, own * BLOCK[t.format] / mesh.dram_tile_bytes))
    return cycles + mesh.dram_cycles


def _layout(op: Op, target: Target) -> float:
    """Predicts rows to blocks or back: a core moves the 32 rows of each row of blocks. Where rows are padded or cut, it waits for each."""
    mesh = target.mesh
    assert mesh is not None
    rows = next(t for t in (*op.operands[:1], op.result) if not t.tiled)
    tiled = next(t for t in (*op.operands[:1], op.result) if t.tiled)
    width = max(1, tiled.shape[-1] // 32)
    if "Val" in op.name or "Unpadding" in op.name:
        waits = mesh.dram_cycles - 2048 / mesh.dram_tile_bytes if rows.in_dram else mesh.signal_cycles
        each = waits + 2 * rows.shape[-1] / mesh.dram_tile_bytes
        spread = width if op.cores > tiled.blocks // width else 1  # cores that share a row of blocks
        return BEGIN + -(-tiled.blocks // width * spread // op.cores) * min(32, rows.shape[-2]) * each
    requests = 32 / width * mesh.issue_cycles * (2.0 if "INTER" in rows.place else 0.4)
    return _streamed(op, target, max(requests, 100.0), op.operands[:1])


def _product(op: Op, target: Target) -> float:
    """Predicts a product by the library's default, of depth 2 a step: rows over all cores, or columns if there are few rows."""
    assert target.mesh is not None
    (*outer, m, k), n = op.operands[0].shape, op.result.shape[-1]
    rows, depth, columns = (-(-size // 32) for size in (math.prod(outer) * m, k, n))
    across = 1 if 2 * rows >= op.cores else next(d for d in range(target.mesh.grid[0], 0, -1) if op.cores % d == 0)
    down, own = op.cores // across, (-(-rows // (op.cores // across)), -(-columns // across))
    h, w = next((h, w) for h, w in SUB_BLOCKS if own[0] % h == 0 and own[1] % w == 0)
    plan = Streamed(*own, min(2, depth), h, w, -(-depth // 2), 1, across, down)
    places = Places(*(t.in_dram for t in (op.operands[0], op.operands[1], op.result)))
    return BEGIN + float(product_cycles(target.mesh, plan, BLOCK[op.operands[1].format], FIDELITIES.get(op.fidelity, 2), places).all)


def _convolution(op: Op, target: Target) -> float:
    """Predicts a product whose first operand is gathered from a core's rows, and made blocks of, before it is multiplied."""
    mesh = target.mesh
    assert mesh is not None
    (depth, n), m = (-(-s // 32) for s in op.operands[1].shape[-2:]), -(-op.result.shape[-2] // 32)
    across = mesh.grid[0] if "BLOCK" in op.result.place else 1
    across = next(d for d in range(min(across, op.cores), 0, -1) if op.cores % d == 0)
    rows, columns = -(-m // (op.cores // across)), -(-n // across)
    bytes = BLOCK[op.operands[1].format]
    multiplied = float(block_cycles(mesh, rows, columns, depth, SUM_BYTES, FIDELITIES.get(op.fidelity, 2), False))
    channels = max(1, op.operands[0].shape[-1] // 32)
    gathered = rows * depth / across * 32 / channels * GATHER
    weights = columns * depth * (max(mesh.reader_cycles, bytes / mesh.dram_tile_bytes) + bytes / mesh.column_bytes)
    return BEGIN + max(gathered + rows * depth * 50.0, weights) + multiplied


_OPS = {
    ("Binary", "BinaryNg", "Unary"): _map,
    ("Move",): _move,
    ("ShardedToInterleaved", "InterleavedToSharded", "SliceWrite"): _copy,
    ("Slice",): lambda op, target: _streamed(op, target, 64.0, (op.result,)),
    ("Concat", "Transpose"): lambda op, target: _streamed(op, target, 64.0, (op.result,), True),
    ("Tilize", "TilizeWithValPadding", "Untilize", "UntilizeWithUnpadding"): _layout,
    ("Matmul", "MinimalMatmulOp"): _product,
    ("Conv2d",): _convolution,
}
