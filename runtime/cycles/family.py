"""The formulas of a machine, by its kind: what the planner, the codelets and the profile ask of either family.

| function | cycles of |
|---|---|
| `contraction` | a vertex that multiplies and sums |
| `map_cycles` | a vertex that computes a formula on each element |
| `reduce_cycles` | a vertex that sums elements |
| `local_copy`, `transfer`, `outside` | bytes that a tile copies, that tiles send each other, that move to or from memory outside |
| `launch`, `start` | a step before it computes; a vertex before its formula holds |
| `hidden` | moving that runs under the computing |
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, cast

from xdsl.ir import Attribute

from populus.dialects.expr import Expr
from populus.dialects.poplar.target import Target
from populus.runtime.cycles import ipu, mesh
from populus.runtime.cycles.counts import Count
from populus.runtime.cycles.products import Products


class Family(Protocol):
    """The formulas of one kind of machines. Each folder beside this file is one."""

    def contraction(self, v: Products) -> Any: ...
    def map_cycles(
        self,
        n: Count, expression: Expr, inputs: Sequence[Attribute], single: Sequence[bool], output: Attribute, target: Target, inout: bool,
    ) -> Any: ...  # fmt: skip
    def reduce_cycles(
        self,
        outputs: Count, depth: Count, element: Attribute, target: Target,
        contiguous: bool = False, add: bool = True, squares: bool = False,
    ) -> Any: ...  # fmt: skip
    def local_copy(self, bytes: int, target: Target) -> int: ...
    def transfer(self, bytes: int, target: Target, many: bool = False) -> int: ...
    def outside(self, bytes: int, target: Target, written: bool = False) -> int: ...
    def launch(self, exchanges: int, target: Target) -> int: ...
    def start(self, is_product: bool, target: Target) -> int: ...
    def hidden(self, compute: Any, exchange: Any, blocks: Any, target: Target) -> Any: ...


FAMILIES: dict[str, Family] = {"ipu": cast("Family", ipu), "mesh": cast("Family", mesh)}


def family(target: Target) -> Family:
    """Returns the formulas of a machine."""
    return FAMILIES[target.kind]


def contraction(v: Products) -> Any:
    """Estimates a contraction vertex by its cheapest form."""
    return family(v.target).contraction(v)


def map_cycles(
    n: Count, expression: Expr, inputs: Sequence[Attribute], single: Sequence[bool], output: Attribute, target: Target, inout: bool
) -> Any:
    """Estimates a map over n elements. `single`: for each input, whether the vertex reads one element of it for all n."""
    return family(target).map_cycles(n, expression, inputs, single, output, target, inout)


def reduce_cycles(
    outputs: Count, depth: Count, element: Attribute, target: Target, contiguous: bool = False, add: bool = True, squares: bool = False
) -> Any:
    """Estimates tile cycles of reducing depth x outputs elements, or their squares, to `outputs`.

    `contiguous`: the elements of one sum are adjacent; otherwise the outputs are. `add`: partials of equal size may be added as those of
    convolutions are.
    """
    return family(target).reduce_cycles(outputs, depth, element, target, contiguous, add, squares)
