"""Arguments and results of regions. One that computes elements is on scalars, whose element types may be wider than the operands' own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeAlias, cast

from xdsl.dialects.builtin import TensorType
from xdsl.ir import Attribute
from xdsl.utils.exceptions import VerifyException

from populus.dialects.support.element_types import shape_of

if TYPE_CHECKING:
    from populus.dialects.stablehlo.ops import HloOp

Types: TypeAlias = "int | Sequence[Attribute]"  # so many scalars, or just these types
Interface: TypeAlias = tuple[Types, Types]  # of arguments, and of results
COMBINING: Interface = (2, 1)
REGIONS: dict[str, Callable[[HloOp], list[Interface]]] = {
    "all_reduce": lambda op: [COMBINING],
    "case": lambda op: [((), op.result_types)] * len(op.regions),
    "if": lambda op: [((), op.result_types)] * 2,
    "map": lambda op: [(len(op.operands), 1)],
    "reduce": lambda op: [(len(op.operands), len(op.results))],
    "reduce_scatter": lambda op: [COMBINING],
    "reduce_window": lambda op: [(len(op.operands), len(op.results))],
    "scatter": lambda op: [(2 * len(op.results), len(op.results))],
    "select_and_scatter": lambda op: [COMBINING] * 2,
    "sort": lambda op: [(2 * len(op.operands), 1)],
    "while": lambda op: [(op.operand_types, 1), (op.operand_types, op.result_types)],
}


def verify_regions(op: HloOp, names: Sequence[str]) -> None:
    """Raises VerifyException for a region that takes or gives something else than its op asks for. `names`: of the regions."""
    if op.kind not in REGIONS:
        return
    for i, (region, (takes, gives)) in enumerate(zip(op.regions, REGIONS[op.kind](op), strict=True)):
        name = names[min(i, len(names) - 1)].rstrip("*")
        last = region.block.last_op
        assert last is not None, op
        for verb, found, wanted in (("takes", region.block.arg_types, takes), ("gives", last.operand_types, gives)):
            if not _fits(found, wanted):
                what = f"{wanted} scalar{'s' if wanted != 1 else ''}" if isinstance(wanted, int) else _listed(wanted)
                raise VerifyException(f"the region '{name}' {verb} {_listed(found)}; {what} {'is' if wanted == 1 else 'are'} expected")


def _fits(found: Sequence[Attribute], wanted: Types) -> bool:
    if not isinstance(wanted, int):
        return list(found) == list(wanted)
    return len(found) == wanted and all(isinstance(t, TensorType) and shape_of(cast("Attribute", t)) == () for t in found)


def _listed(types: Sequence[Attribute]) -> str:
    return ", ".join(map(str, types)) or "nothing"
