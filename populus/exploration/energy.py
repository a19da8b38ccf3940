"""The work of a program, counted: operations by type, bytes of tile memory, of exchange and of memory outside; and the energy of these."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

from xdsl.ir import Attribute

from populus.dialects.poplar import ExecuteOp
from populus.dialects.poplar.codelets import CODELETS
from populus.dialects.poplar.target import Target
from populus.dialects.support.element_types import size_in_bytes
from populus.exploration.technology import Technology
from populus.runtime.codelets import IMPLEMENTATIONS
from populus.runtime.codelets.cost import accesses
from populus.runtime.cycles import Vertex
from populus.runtime.profile import Profile

PICO = 1e-12


@dataclass(frozen=True)
class Counts:
    """`operations`: by element type and whether they are of products. `local`: bytes that tiles read and write in their memory.

    An operand of a vertex counts once for each vertex, however often its loop reads it: registers and matrix units keep it.
    """

    operations: Mapping[tuple[Attribute, bool], int]
    local: int
    exchanged: int
    outside: int


@lru_cache(4096)
def _of_family(vertex: Vertex) -> tuple[int, int]:
    """Counts the operations of a family's vertices, of integers too, and the bytes that they read and write."""
    bytes = sum(accesses(vertex, i) * size_in_bytes(vertex.types[i].element) for i in range(len(vertex.fields)))
    return int(IMPLEMENTATIONS[vertex.codelet].flops(vertex)), bytes


def counts_of(profile: Profile) -> Counts:
    """Counts what one run of a profiled program does."""
    operations: Counter[tuple[Attribute, bool]] = Counter()
    local = exchanged = outside = 0
    for step in profile.steps:
        exchanged += step.bytes * step.count
        local += 2 * step.bytes * step.count  # read where it is, written where it comes to
        if step.kind in ("copy", "call"):
            outside += step.host_bytes * step.count
        if isinstance(step.op, ExecuteOp):
            for family in step.op.families():
                vertex = Vertex.of(family, profile.target)
                own, bytes = _of_family(vertex)
                operations[vertex.element, CODELETS[vertex.codelet].is_product] += own * step.count
                local += bytes * step.count
    return Counts(operations, local, exchanged, outside)


def joules(counts: Counts, target: Target, technology: Technology) -> dict[str, float]:
    """Computes the joules of one run: of operations, tile memory, exchange and memory outside."""
    computed = sum(n * technology.operation(element, product) for (element, product), n in counts.operations.items())
    return {
        "compute": computed * PICO,
        "sram": counts.local * technology.sram_byte(target.tile_bytes) * PICO,
        "exchange": counts.exchanged * technology.wire_byte(target) * PICO,
        "dram": counts.outside * technology.dram_byte(target) * PICO,
    }
