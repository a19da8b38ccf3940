"""Keeps a graph's list of ops: a function under `@recorded` becomes one op of the current graph when a program calls it.

Tensors that the function makes on the way are not listed in the graph. Its results are, and what it keeps by `kept`, and constants
made of numbers in a tensor's place. A recorded function that another one calls is part of that one's op.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

from populus.popxl.errors import WrongType
from populus.popxl.graph import Graph
from populus.popxl.internals.kinds import CLASSES
from populus.popxl.internals.op import Program
from populus.popxl.internals.performing import performed
from populus.popxl.internals.replay import refresh
from populus.popxl.tensor import Tensor
from populus.write.builder import innermost

Params = ParamSpec("Params")
Result = TypeVar("Result")


def recorded(kind: str) -> Callable[[Callable[Params, Result]], Callable[Params, Result]]:
    """Makes calls of a function ops of this kind."""
    made = CLASSES[kind]

    def wrap(function: Callable[Params, Result]) -> Callable[Params, Result]:
        signature = inspect.signature(function)

        @wraps(function)
        def insert(*args: Params.args, **kwargs: Params.kwargs) -> Result:
            graph = innermost()
            if not isinstance(graph, Graph):
                return function(*args, **kwargs)
            if graph.op_within is not None:
                with graph.op_within.deeper():
                    return function(*args, **kwargs)
            try:
                bound = signature.bind(*args, **kwargs)
            except TypeError as error:
                raise WrongType(f"{function.__name__}(): {error}; it is {function.__name__}({', '.join(signature.parameters)})") from None
            bound.apply_defaults()
            refresh(graph)
            op, found = performed(graph, made, Program(function, bound))
            for hook in list(graph.op_hooks):
                hook(op)
            return found

        return insert

    return wrap


def kept(t: Tensor) -> Tensor:
    """Makes a tensor that an op makes on the way one that the graph shows, and an input of the op."""
    t.graph.keep(t)
    return t


def also_given(t: Tensor) -> Tensor:
    """Makes a tensor that an op makes on the way a further output of it, which the call does not give."""
    if t.graph.op_within is not None and not t.graph.op_within.depth:
        t.graph.op_within.outputs.append(t)
    return t
