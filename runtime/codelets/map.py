"""Kernel of `map`: an expression of every element."""

from __future__ import annotations

from typing import Any

from populus.dialects.expr import FUNCTIONS, Expr, functions_of
from populus.runtime.codelets.implementation import Implementation
from populus.runtime.codelets.task import Run, Task, nothing
from populus.runtime.cycles.family import map_cycles
from populus.runtime.cycles.vertices import Sizes, Vertex
from populus.runtime.expr import bind_map


def map(task: Task) -> Run:
    """Computes `y = expr(x1, x2, ...)` with inputs broadcast to y; an `inout` input is y."""
    expr = task.params["expr"]
    assert isinstance(expr, Expr), expr
    inputs = [piece.array for name, piece in task.fields.items() if name != "y"]
    out = task["y"] if "y" in task.fields else next(a for a in inputs if a.flags.writeable)
    if out.size == 0:
        return nothing
    return bind_map(expr, inputs, out)


def _cycles(v: Vertex, sizes: Sizes) -> Any:
    assert v.expression is not None, v.codelet
    inputs = [i for i, f in enumerate(v.fields) if f.kind != "out"]
    largest = {a: s.largest for a, s in v.domain.axes}
    several = v.elements(v.output, largest) > 1
    single = [bool(several and v.elements(i, largest) == 1) for i in inputs]
    return map_cycles(
        v.elements(v.output, sizes),
        v.expression,
        [v.types[i].element for i in inputs],
        single,
        v.types[v.output].element,
        v.target,
        v.fields[v.output].kind == "inout",
    )


def flops_of(expression: Expr) -> int:
    """Counts the floating-point operations of an expression for one element; a cast counts nothing."""
    return sum(FUNCTIONS[f].flops for f in functions_of(expression) if f != "cast")


def _flops(v: Vertex) -> int:
    assert v.expression is not None, v.codelet
    return v.points * flops_of(v.expression)


IMPLEMENTATIONS = {
    "map": Implementation(map, _cycles, _flops, native="elementwise.map"),
}
