"""The kernel of `map`: an expression of every element."""

from __future__ import annotations

from populus.dialects.expr import Expr
from populus.runtime.codelets.task import Run, Task, nothing
from populus.runtime.expr import bind_map


def map(task: Task) -> Run:
    """`y = expr(x1, x2, ...)`, inputs stretched to y; an `inout` input is y."""
    expr = task.params["expr"]
    assert isinstance(expr, Expr), expr
    inputs = [piece.array for name, piece in task.fields.items() if name != "y"]
    out = task["y"] if "y" in task.fields else next(a for a in inputs if a.flags.writeable)
    if out.size == 0:
        return nothing
    return bind_map(expr, inputs, out)
