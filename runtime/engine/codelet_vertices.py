"""The vertex at which a codelet written in Python failed, for engines that run whole families."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable

from populus.dialects.poplar.compute import FamilyOp
from populus.dialects.poplar.partition import Box
from populus.dialects.poplar.program import GraphOp
from populus.dialects.support.diagnostics import PopulusError
from populus.runtime.codelets.tile_failures import CodeletError


def named(family: FamilyOp, box: Box, run: Callable[[], object]) -> Callable[[], object]:
    """Wraps the run of a family's box, so that the error of a codelet names the vertex."""
    if family.declaration.code is None:
        return run

    def placed() -> None:
        try:
            run()
        except CodeletError as error:
            at = {axis: i + box[axis][0] for axis, i in error.at.items()}
            raise PopulusError(f"{vertex_at(family, at)}: {error}") from error

    return placed


def vertex_at(family: FamilyOp, at: dict[str, int]) -> str:
    """Names the vertex that has an element, given by its index along axes; the first one along others."""
    number, own = 0, dict[str, tuple[int, int, int]]()
    for axis, split in family.space.axes:
        bounds = split.bounds()
        part = max(bisect_right(bounds, at.get(axis, 0)) - 1, 0)
        own[axis] = (bounds[part], bounds[part + 1], part)
        number = number * split.parts + part
    graph = family.parent_op()
    while graph is not None and not isinstance(graph, GraphOp):
        graph = graph.parent_op()
    tile = f" (tile {family.space.tile(own, graph.machine.tiles)})" if graph is not None else ""
    return f"vertex {number}{tile}"
