"""Parts of this front end's ops: inserting an op, changing in place, axes."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from typing import Any, ParamSpec, TypeVar, cast

from populus.dialects.expr import Arg, Expr
from populus.dialects.popops import MapOp
from populus.dialects.support.element_types import element_of
from populus.popxl import dtypes
from populus.popxl.context import get_current_graph
from populus.popxl.dtypes import dtype
from populus.popxl.errors import WrongType, WrongValue
from populus.popxl.internals.recording import recorded
from populus.popxl.tensor import Tensor, View, constant

P = ParamSpec("P")
R = TypeVar("R")


def emit(op: str, *operands: Tensor | None, **properties: Any) -> Tensor:
    """Gives the result of a built-in op in the current graph."""
    graph = get_current_graph()
    for t in operands:
        if t is not None and not isinstance(cast("Any", t), Tensor):
            raise WrongType(f"{op} takes tensors, not {t!r}; make one by popxl.constant")
    (value, *_) = graph.op(op, *(None if t is None else t.ssa for t in operands), **properties)
    return graph.tensor(value, f"{op}_out")


def mapped(formula: Callable[..., Expr], *values: Tensor | float) -> Tensor:
    """Gives a formula of tensors of one element type, or of one element, and numbers, in the current graph."""
    graph, tensors = get_current_graph(), [v for v in values if isinstance(v, Tensor)]
    arguments = iter(Arg(i) for i in range(1, len(tensors) + 1))
    made = MapOp(*(t.ssa for t in tensors), expr=formula(*(next(arguments) if isinstance(v, Tensor) else v for v in values)))
    made.verify()
    (value,) = graph.insert(made)
    return graph.tensor(value, "map_out")


def element(type: dtype) -> Any:
    """Gives the element type at the levels below. Raises ValueError for one that tiles do not hold."""
    try:
        return element_of(type.held)
    except TypeError:
        raise WrongValue(f"tiles hold no {type}") from None


def pair(a: Any, b: Any) -> tuple[Tensor, Tensor]:
    """Gives two operands, a number among them as a constant of the other's element type. Raises TypeError for two numbers."""
    if isinstance(a, Tensor):
        return a, a.operand(b)
    if isinstance(b, Tensor):
        return b.operand(a), b
    raise WrongType(f"{a!r} and {b!r} are both no tensors; make one by popxl.constant")


def fixed(value: float, like: Tensor, type: dtype | None = None) -> Tensor:
    """Gives a number as a constant of a tensor's element type, or another."""
    return constant(value, like.dtype if type is None else type)


def alias(t: Tensor, name: str = "alias") -> Tensor:
    """Gives another tensor that is the same."""
    return t.graph.view(View((t,), lambda of: of[0], lambda of, new: (new,)), name)


def set_in_place(t: Tensor, new: Tensor, name: str = "alias") -> Tensor:
    """Gives a tensor another's value, in its element type; an alias of it."""
    value = new if new.dtype is t.dtype else cast_to(new, t.dtype)
    t.assign(value.ssa)
    return alias(t, name)


def cast_to(t: Tensor, type: dtype) -> Tensor:
    """Gives the tensor in another element type, itself if it is of that one."""
    return t if t.dtype is type else emit("cast", t, to=element(type))


def wide(t: Tensor) -> Tensor:
    """Gives a float of 16 bits as one of 32; others as they are."""
    return cast_to(t, dtypes.float32) if t.dtype is dtypes.float16 else t


def stated(function: Callable[P, R], name: str, doc: str, signature: inspect.Signature | None = None) -> Callable[P, R]:
    """Gives a function the name, the docstring and, unless it is its own, the signature of an op."""
    function.__name__ = function.__qualname__ = name
    function.__doc__ = doc
    if signature is not None:
        function.__dict__["__signature__"] = signature
    return function


def without(function: Callable[..., Any], *names: str) -> inspect.Signature:
    """Gives a function's signature without some of its parameters."""
    signature = inspect.signature(function)
    return signature.replace(parameters=[p for name, p in signature.parameters.items() if name not in names])


def in_place(kind: str, function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Gives the form of an op that gives its first tensor the result: an op of this kind."""
    name = f"{function.__name__}_"

    def changed(t: Tensor, *args: Any, **keywords: Any) -> Tensor:
        return set_in_place(t, function(t, *args, **keywords), name)

    doc = f"Gives its first tensor the result of `{name[:-1]}`, in place; an alias of it."
    return recorded(kind)(stated(changed, name, doc, inspect.signature(function)))


def axis_of(t: Tensor, axis: int) -> int:
    """Gives an axis from the front. Raises ValueError for one that there is not."""
    if not -t.rank <= axis < max(t.rank, 1):
        raise WrongValue(f"{t.id} has {t.rank} dimensions, so no axis {axis}")
    return axis % t.rank if t.rank else 0


def axes_of(t: Tensor, axis: int | Iterable[int] | None) -> tuple[int, ...]:
    """Gives axes from the front, in order; all for None. Raises ValueError for one that there is not."""
    if axis is None:
        return tuple(range(t.rank))
    chosen = (axis,) if isinstance(axis, int) else tuple(axis)
    return tuple(sorted({axis_of(t, a) for a in chosen}))
