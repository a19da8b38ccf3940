"""Floating point exceptions: ops that make an infinity of finite numbers, or NaN of numbers."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from populus.popart.reserved import GRADIENT
from populus.torch_backend.export import PREFIX
from populus.torch_backend.step import initial

if TYPE_CHECKING:
    from onnx import GraphProto, ModelProto, NodeProto

    from populus.program.source import Arrays

_TRACE = "pkg.torch.onnx.stack_trace"
_PLACE = re.compile(r'File "([^"]+)", line (\d+)')


def watched(graph: GraphProto) -> list[str]:
    """Lists the tensors of a model that its nodes give, which have a type."""
    typed = {v.name for v in (*graph.value_info, *graph.output)}
    return [o for n in graph.node for o in n.output if o in typed]


def raised(model: ModelProto, given: Arrays, found: Arrays) -> str | None:
    """Says which op raised an exception, if one did. `given`: inputs and weights by name; `found`: `watched` tensors."""
    values = {**initial(model, [i.name for i in model.graph.initializer]), **given, **found}
    for node in model.graph.node:
        operands = [values[name] for name in node.input if name in values]
        for name in node.output:
            if name in found and (what := _made(operands, found[name])):
                return f"{node.op_type} '{node.name}' gives {what}{_line(node)}"
    return None


def spread(given: Arrays, gradients: Arrays) -> str | None:
    """Says which gradient is no number where all that it follows from are numbers, if there is one."""
    what = ((_made([*given.values()], g), n.removeprefix(PREFIX)) for n, g in gradients.items())
    return next((f"{GRADIENT}{name} has {said}" for said, name in what if said), None)


def _made(operands: list[Any], result: Any) -> str | None:
    """Says what a result has that nothing in its operands explains."""
    if _has(np.isnan, result) and not any(_has(np.isnan, a) for a in operands):
        return "NaN"
    if _has(np.isinf, result) and not any(_has(np.isinf, a) or _has(np.isnan, a) for a in operands):
        return "an infinity of finite numbers"
    return None


def _has(kind: Any, array: Any) -> bool:
    return np.asarray(array).dtype.kind == "f" and bool(kind(array).any())


def _line(node: NodeProto) -> str:
    """Gives the line of the user's module that the trace names last."""
    notes: Mapping[str, str] = {p.key: p.value for p in node.metadata_props}
    places = _PLACE.findall(notes.get(_TRACE, ""))
    return f" ({places[-1][0]}:{places[-1][1]})" if places else ""
