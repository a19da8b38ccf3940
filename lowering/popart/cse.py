"""Common subexpressions (`popart-cse`): ops that compute the same become one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Attribute, Block, Operation, SSAValue
from xdsl.passes import ModulePass

from populus.dialects.data import EqualContents, unify
from populus.dialects.support.dead_code import is_pure
from populus.dialects.support.diagnostics import fused
from populus.dialects.support.walk import ops_of

Key: TypeAlias = "tuple[str, tuple[SSAValue, ...], frozenset[tuple[str, Attribute]], tuple[Attribute, ...]]"


@dataclass(frozen=True)
class PopartCsePass(ModulePass):
    """Erases an op that repeats an earlier one of its block, with equal operands, attributes and types.

    Ops with effects or regions stay. Constants are equal if their bits are; in the whole module, these then have one handle.
    Random ops of one seed and one stream draw the same numbers, so they merge too. Source: PopART's `MergeDuplicateOps`. Bit for bit.
    """

    name = "popart-cse"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        contents = EqualContents()
        for inner in ops_of(op):
            unify(inner, contents)
        for inner in ops_of(op):
            for block in (b for region in inner.regions for b in region.blocks if inner is not op):
                merge_duplicates(block)


def merge_duplicates(block: Block) -> None:
    """Merges the equal ops of a block."""
    first: dict[Key, Operation] = {}
    for op in list(block.ops):
        if op.regions or not op.results or not is_pure(op):
            continue
        key = (
            op.name,
            tuple(op.operands),
            frozenset((*op.properties.items(), *op.attributes.items())),
            tuple(r.type for r in op.results),
        )
        original = first.setdefault(key, op)
        if original is not op:
            for old, new in zip(op.results, original.results):
                old.replace_all_uses_with(new)
            original.location = fused(op.location, original.location)
            op.detach()
            op.erase()
