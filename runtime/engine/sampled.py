"""The `numpy` engine with spot checks: random vertices of each family also run by the rules of `strict`, and are
compared.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from populus.dialects.poplar.compute import ExecuteOp, FamilyOp
from populus.dialects.poplar.memory import storage_of, view_of
from populus.dialects.poplar.program import GraphOp
from populus.runtime.codelets.task import Run
from populus.runtime.engine.checked_vertices import Connection, Result, Store, Vertices, execute_vertex, immutable
from populus.runtime.engine.numpy import NumpyProgram
from populus.runtime.engine.program import StepNode
from populus.runtime.views import PlacedError

Array = NDArray[Any]

CONTRACTIONS = frozenset(("conv", "matmul", "packed_matmul", "winograd"))
TOLERANCE = {"float16": 1e-3, "bfloat16": 8e-3, "float32": 1e-6, "float64": 1e-14}
"""Relative to the family's largest result: the error that BLAS's choice of the order of a short sum may cause. All else
is exact.
"""

EPSILON = {"float16": 2.0**-10, "bfloat16": 2.0**-7, "float32": 2.0**-23, "float64": 2.0**-52}


class SampledProgram(NumpyProgram):
    """A graph that runs on the numpy engine, and checks `sample` random vertices of each family in each execute.

    Running raises PopulusError for a vertex that breaks a rule of `strict`, or whose result differs when it runs alone.
    """

    def __init__(self, graph: GraphOp, sample: int, seed: int = 0):
        self.sample, self.rng = sample, random.Random(seed)
        super().__init__(graph)

    def execute(self, op: ExecuteOp) -> StepNode:
        runs = [run for stage in op.stages() for run in self._sampled(stage)]
        return StepNode(op, runs, [(v, self.array(v)) for family in op.families() for _, v in family.written()])

    def _sampled(self, stage: Sequence[FamilyOp]) -> list[Run]:
        """Gives the calls of families that do not overlap: draw and run the sample, run the families, compare."""
        families = [self._vertices(family) for family in stage]
        expected: list[Result] = []

        def before() -> None:
            expected.clear()
            for family in families:
                for vertex in self.rng.sample(range(family.count), min(self.sample, family.count)):
                    expected.extend(execute_vertex(family, vertex, _reader(family)))

        def after() -> None:
            for result in expected:
                _compare(result)

        return [before, *(run for family in stage for run in self.compile(family)), after]

    def _vertices(self, family: FamilyOp) -> Vertices:
        connections: list[Connection] = []
        for field, value in family.connections():
            store = Store(storage_of(value), self.memory(value), np.zeros(0, np.bool_), True)
            connections.append(Connection(field, value, view_of(value), store, self.array(value)))
        return Vertices(family, connections, self.workspace, self.graph.machine.tiles)


def _reader(family: Vertices) -> Callable[[int, tuple[int, ...], tuple[slice, ...]], Array]:
    return lambda number, _, slices: immutable(family.connections[number].array[(*slices, ...)])


def _tolerance(family: Vertices, vertex: int, dtype: np.dtype[Any]) -> float:
    """Gives the larger of TOLERANCE and n eps / 4: a quarter of the worst-case error of a sum of n terms of one sign."""
    box = family.box(vertex)
    terms = math.prod(box[a][1] - box[a][0] for a in family.family.contracted)
    return max(TOLERANCE.get(dtype.name, 0), 0.25 * terms * EPSILON.get(dtype.name, 0))


def _compare(result: Result) -> None:
    c, family = result.connection, result.vertices
    computed = c.array[(*result.part, ...)]
    if computed.tobytes() == result.array.tobytes():
        return
    codelet = family.family.codelet.data
    tolerance = _tolerance(family, result.vertex, computed.dtype) if codelet in CONTRACTIONS else 0.0
    alone, whole = result.array.astype(np.float64), computed.astype(np.float64)
    scale = float(np.max(np.abs(c.array[np.isfinite(c.array)]), initial=0)) if tolerance else 0.0
    close = np.isclose(alone, whole, rtol=0, atol=tolerance * scale, equal_nan=True) if tolerance else alone == whole
    if not tolerance:
        close = close | (np.isnan(alone) & np.isnan(whole))
    if not close.all():
        worst = float(np.nanmax(np.abs(alone - whole)[~close], initial=0))
        raise PlacedError(
            f"{family.place(result.vertex)} alone gives other values than the numpy engine for "
            f"{int((~close).sum())} elements of {c.name}, by up to {worst:.3g}"
        )
