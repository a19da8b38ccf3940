"""Ops of PopXL that are ops of ONNX: one node, converted as that of a model is, becomes ops of the current graph."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from xdsl.dialects.builtin import ModuleOp

from populus.dialects.signature import main_of, return_of
from populus.dialects.support.element_types import dtype_of, element_type_of, shape_of
from populus.lowering.driver.pipeline import Pipeline
from populus.popxl.context import get_current_graph
from populus.popxl.tensor import Tensor
from populus.program.source import Source

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from onnx import ModelProto


def onnx_node(type: str, operands: Sequence[Tensor | NDArray[Any] | None], version: int, **attributes: Any) -> Tensor:
    """Gives the one result of a node of ONNX's opset `version`; an array is an initializer, None an input that is absent.

    Raises PopulusError for attributes that the node does not have, or that tiles cannot follow.
    """
    graph, given = get_current_graph(), [t for t in operands if isinstance(t, Tensor)]
    source = Source(_model(type, operands, version, attributes), {})
    ctx = source.context()
    module = source.module(ctx)
    Pipeline.named("inference").until("onnx-to-popart").run(ctx, module)
    return graph.tensor(_moved(module, given), f"{type.lower()}_out")


def _moved(module: ModuleOp, given: Sequence[Tensor]) -> Any:
    """Gives the module's result as a value of the current graph, into which its ops are copied."""
    block = main_of(module).body.block
    end = return_of(main_of(module))
    values: dict[Any, Any] = {a: t.ssa for a, t in zip(block.args, given, strict=True)}
    for op in block.ops:
        if op is not end:
            get_current_graph().insert(op.clone(values))
    return values[end.operands[0]]


def _model(type: str, operands: Sequence[Tensor | NDArray[Any] | None], version: int, attributes: dict[str, Any]) -> ModelProto:
    """Makes a model of one node."""
    from onnx import TensorProto, helper, numpy_helper

    names = ["" if t is None else f"x{k}" for k, t in enumerate(operands)]
    inputs: list[Any] = []
    initializers: list[TensorProto] = []
    for name, t in zip(names, operands):
        if isinstance(t, Tensor):
            element = helper.np_dtype_to_tensor_dtype(dtype_of(element_type_of(t.ssa.type)))
            inputs.append(helper.make_tensor_value_info(name, element, shape_of(t.ssa.type)))
        elif t is not None:
            initializers.append(numpy_helper.from_array(t, name))
    node = helper.make_node(type, names, ["y"], **attributes)
    graph = helper.make_graph([node], type, inputs, [helper.make_empty_tensor_value_info("y")], initializers)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", version)])
