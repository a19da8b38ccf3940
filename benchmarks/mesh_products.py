"""Published products of meshes: the plan of each row, and its cycles and time by the model.

A row names its plan: `matmul manual` is the vendor's benchmark with hand-tuned blocks, `matmul oob` the choice of its library. Sources:
tt-metal's `test_benchmark.py` for the blocks, `matmul_program_config.cpp` for the library's rule.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from populus.dialects.poplar.machine import FIDELITIES, Mesh
from populus.dialects.poplar.target import Target
from populus.lowering.poplar.plan.streamed import SUM_BYTES, Blocks, streamed
from populus.runtime.cycles.mesh.contraction import SUB_BLOCKS
from populus.runtime.cycles.mesh.product import Cycles, Places, Streamed, product_cycles

BLOCK = {"BFLOAT16": 2048, "BFLOAT8_B": 1088, "BFLOAT4_B": 576, "FLOAT32": 4096}  # bytes of 32 x 32 elements with shared exponents
# Elements of a core -> parts of its depth, of its rows, of its columns.
PARTS = {
    (256, 384, 384): (2, 1, 1), (384, 384, 384): (4, 1, 1), (384, 384, 512): (2, 1, 1), (384, 512, 512): (2, 1, 1),
    (512, 512, 512): (1, 2, 2), (1024, 1024, 1024): (2, 4, 4), (2048, 2048, 2048): (4, 8, 8),
}  # fmt: skip
OF_FORMAT = {
    "BFLOAT8_B": {(256, 384, 384): (1, 1, 1), (384, 384, 384): (2, 1, 1)},
    "BFLOAT4_B": {
        (256, 384, 384): (1, 1, 1), (384, 384, 384): (1, 1, 1), (384, 384, 512): (1, 1, 1), (512, 512, 512): (2, 1, 1),
        (1024, 1024, 1024): (2, 2, 2), (2048, 2048, 2048): (4, 4, 4),
    },
}  # fmt: skip

Row = Mapping[str, str]


@dataclass(frozen=True)
class Product:
    """A row's product: sizes in blocks on its grid."""

    mesh: Mesh
    blocks: Blocks
    places: Places
    format: str

    @staticmethod
    def of(row: Row, target: Target) -> Product:
        """Reads a row. Raises ValueError or KeyError for one of another form."""
        assert target.mesh is not None
        grid = tuple(int(n) for n in row["grid"].split("x"))
        m, k, n = (-(-int(row[axis]) // 32) for axis in "mkn")
        places = Places(row["in0"] == "DRAM", row["in1"] == "DRAM", row["out"] == "DRAM")
        blocks = Blocks(m, k, n, BLOCK[row["format"]], FIDELITIES[row["fidelity"]])
        return Product(replace(target.mesh, grid=(grid[0], grid[1])), blocks, places, row["format"])

    def share(self) -> tuple[int, int, int]:
        """Returns the blocks of a core: rows, depth as it lies, columns."""
        across, down = self.mesh.grid
        return self.blocks.rows // down, self.blocks.depth // across, self.blocks.columns // across

    def plan(self, rows: int, inner: int, columns: int, flat: bool) -> Streamed:
        """Builds a plan from its blocks, with the first sub-block that divides them. `flat`: of height 1."""
        m, _, n = self.share()
        held = [(h, w) for h, w in SUB_BLOCKS if h * w <= self.mesh.sub_block and not (flat and h > 1)]
        h, w = next((h, w) for h, w in held if rows % h == 0 and columns % w == 0)
        return Streamed(rows, columns, inner, h, w, self.blocks.depth // inner, (m // rows) * (n // columns), *self.mesh.grid)

    def tuned(self) -> Streamed:
        """Returns the hand-tuned plan of the benchmark. A result in the cores' memory is written row by row."""
        m, k, n = self.share()
        key = (32 * m, 32 * k, 32 * n)
        depth, high, wide = OF_FORMAT.get(self.format, {}).get(key) or PARTS.get(key, (1, 1, 1))
        return self.plan(m // high, k // depth, n // wide, not self.places.result)

    def chosen(self, room: int) -> Streamed:
        """Returns the plan by the library's rule: the largest output block, then the largest depth, whose buffers fit."""
        m, k, n = self.share()

        def fits(rows: int, columns: int, inner: int) -> bool:
            return 2 * inner * (rows + columns) * self.blocks.bytes + rows * columns * (self.blocks.bytes + SUM_BYTES) < room

        if fits(m, n, k):
            return self.plan(m, k, n, False)
        sizes = sorted(((a, b) for a in _factors(m) for b in _factors(n)), key=lambda p: (-p[0] * p[1], max(p) / min(p)))
        rows, inner, columns = next((a, c, b) for c in _factors(k) for a, b in sizes if fits(a, b, c))
        return self.plan(rows, inner, columns, False)

    def cycles(self, plan: Streamed) -> Cycles:
        """Predicts the cycles of a plan."""
        return product_cycles(self.mesh, plan, self.blocks.bytes, self.blocks.phases, self.places)

    def own(self, target: Target) -> float:
        """Returns the cycles of our own plan. Raises ValueError if none fits a core."""
        found = streamed(self.blocks, replace(target, mesh=self.mesh), self.places)
        if found is None:
            raise ValueError("no plan fits a core's memory")
        return found[1]


def planned(row: Row, target: Target) -> Cycles:
    """Predicts the cycles of a row with its own plan."""
    product = Product.of(row, target)
    return product.cycles(product.tuned() if row["op"] == "matmul manual" else product.chosen(target.room))


def nanoseconds(cycles: Cycles, target: Target) -> float:
    """Predicts the time of a replayed product: its cycles, by the clock that they sustain, and its launch."""
    mesh = target.mesh
    assert mesh is not None
    busy = mesh.busy_clock_hz and float(cycles.until_summed) >= mesh.busy_cycles
    return 1e9 * (float(cycles.all) / (mesh.busy_clock_hz if busy else target.clock_hz) + mesh.launch_cycles / target.clock_hz)


def _factors(n: int) -> list[int]:
    return [f for f in range(n, 0, -1) if n % f == 0]
