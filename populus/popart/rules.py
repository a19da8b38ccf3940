"""The rules and limits of PopART's ops, by domain and op type, and the translation that follows them."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from populus.popart import (
    graphcore_graph,
    graphcore_indexing,
    graphcore_math,
    graphcore_nn,
    graphs,
    onnx_differences,
    onnx_layers,
    packed,
)
from populus.popart.limits import check
from populus.popart.translation import Rule, Translation, rule

if TYPE_CHECKING:
    from onnx import NodeProto


class PopartTranslation(Translation):
    """The nodes of a graph of PopART, translated in order."""

    def rule_for(self, domain: str, node: NodeProto) -> Rule | None:
        check(self, domain, node)
        return rule_of(domain, node.op_type)


@cache
def _rules() -> dict[tuple[str, str], Rule]:
    found: dict[tuple[str, str], Rule] = {}
    for module in (graphcore_math, graphcore_indexing, graphcore_nn, graphcore_graph):
        found.update({("ai.graphcore", op): rule(function) for op, function in module.OPS.items()})
    for module in (onnx_differences, onnx_layers):
        found.update({("", op): rule(function) for op, function in module.FUNCTIONS.items()})
        found.update(module.RULES)
    for module in (graphs, packed):
        found.update(module.RULES)
    return found


def rule_of(domain: str, op_type: str) -> Rule | None:
    """Gives the rule for an op; None for one that stays as it is."""
    return _rules().get((domain, op_type))
