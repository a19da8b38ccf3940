"""The bounds of a step: its time if one unit of the machine alone mattered, with all tiles alike.

    matrix    operations of products / the matrix units' rate for their types
    vector    other operations / one for each element of a vector in a cycle
    load      bytes that vertices read / two data paths in a cycle
    exchange  bytes that tiles receive / the rate of all tiles
    outside   bytes to and from memory outside / its rate, if any go there
    sync      barriers
    imbalance what the fullest tile computes beyond the mean

A step is bounded by the largest of its exchange, sync, imbalance, and mean computation; for the last, by the unit
that needs most. Together they are the roofline of this machine.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Protocol

from populus.dialects.poplar.codelets import CODELETS
from populus.dialects.poplar.target import sum_type
from populus.dialects.support.element_types import size_in_bytes
from populus.runtime.codelets.cost import accesses, flops
from populus.runtime.cycles import Vertex

UNITS = ("matrix", "vector", "load")
BOUNDS = (*UNITS, "exchange", "sync", "imbalance")


@dataclass(frozen=True)
class Work:
    """Cycles of all tiles together at the rate of one unit each.

    `at_peak`: by element type, those of all operations at the matrix units' fastest rate for it. `exchange`: of what
    tiles receive. `outside`: of what memory outside gives and takes.
    """

    matrix: float = 0.0
    vector: float = 0.0
    load: float = 0.0
    exchange: float = 0.0
    outside: float = 0.0
    at_peak: tuple[tuple[str, float], ...] = ()


NOTHING = Work()


class Step(Protocol):
    """A step with its costs."""

    @property
    def count(self) -> int: ...
    @property
    def compute(self) -> int: ...
    @property
    def exchange(self) -> int: ...
    @property
    def sync(self) -> int: ...
    @property
    def hidden(self) -> int: ...
    @property
    def imbalance(self) -> int: ...
    @property
    def work(self) -> Work: ...


@lru_cache(2048)
def work_of(vertex: Vertex) -> Work:
    """Computes the work of a family's vertices."""
    target, operations, element = vertex.target, flops(vertex), vertex.element
    read = sum(accesses(vertex, i) * size_in_bytes(vertex.types[i].element) for i, f in enumerate(vertex.fields) if f.kind != "out")
    load = read / (2 * target.vector_bytes * target.tiles)
    if not operations:
        return Work(load=load)
    peak = ((str(element), operations / (2 * target.macs_per_cycle(element) * target.tiles)),)
    if CODELETS[vertex.codelet].is_product:
        rate = target.macs_per_cycle(element, sum_type(element, vertex.partials))
        return Work(matrix=operations / (2 * rate * target.tiles), load=load, at_peak=peak)
    return Work(vector=operations / (target.vector_width(element) * target.tiles), load=load, at_peak=peak)


def together(works: Iterable[Work], exchange: float = 0.0) -> Work:
    """Adds the work of the families of a step."""
    matrix = vector = load = 0.0
    at_peak: dict[str, float] = {}
    for work in works:
        matrix, vector, load = matrix + work.matrix, vector + work.vector, load + work.load
        for element, cycles in work.at_peak:
            at_peak[element] = at_peak.get(element, 0.0) + cycles
    return Work(matrix, vector, load, exchange, 0.0, tuple(sorted(at_peak.items())))


def bound_of(step: Step) -> tuple[str, float]:
    """Returns what bounds a step, and the cycles that it would take if that alone mattered."""
    mean = step.compute - step.imbalance
    unit = max(UNITS, key=lambda name: getattr(step.work, name))
    parts: dict[str, tuple[float, float]] = {
        unit: (mean, getattr(step.work, unit)),
        "exchange": (step.exchange - step.hidden, step.work.exchange),
        "sync": (step.sync, step.sync),
        "imbalance": (step.imbalance, mean),
    }
    largest = max(parts, key=lambda name: parts[name][0])
    return largest, parts[largest][1]


def totals(steps: Sequence[Step], cycles: int) -> dict[str, int | float]:
    """Computes, for the whole program, the cycles at each bound, and the utilisation in all and by type."""
    found: dict[str, float] = dict.fromkeys((*BOUNDS, "outside"), 0.0)
    at_peak: dict[str, float] = {}
    for step in steps:
        for name in (*UNITS, "exchange", "outside"):
            found[name] += getattr(step.work, name) * step.count
        found["sync"] += step.sync * step.count
        found["imbalance"] += step.imbalance * step.count
        for element, own in step.work.at_peak:
            at_peak[element] = at_peak.get(element, 0.0) + own * step.count
    used = {element: own / cycles if cycles else 0.0 for element, own in sorted(at_peak.items())}
    bounds = {f"at_{name}_bound_cycles" if name != "imbalance" else "imbalance_cycles": round(found[name]) for name in BOUNDS}
    if found["outside"]:
        bounds["at_outside_bound_cycles"] = round(found["outside"])
    return {"utilisation": sum(used.values()), **{f"{element}_utilisation": own for element, own in used.items()}, **bounds}
