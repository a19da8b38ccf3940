"""Export of an `onnx` module to a model.

    onnx.save(export_onnx(module), "model.onnx")

Every op of the `onnx` dialect is one node. A constant is an initializer, or a Constant node if it follows other ops.
The functions of a model stay inlined, as the importer left them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast

from xdsl.dialects.builtin import ArrayAttr, ModuleOp, NameLoc, StringAttr
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Attribute, Block, Operation, SSAValue

from populus.dialects.data import ConstantOp
from populus.dialects.onnx.attributes import write_attribute
from populus.dialects.onnx.schema import SEGMENTS, OnnxOp
from populus.dialects.onnx.structure import CustomOp, YieldOp
from populus.dialects.onnx.types import to_proto
from populus.dialects.signature import input_names, main_of, output_names
from populus.dialects.support.diagnostics import PopulusError, where
from populus.dialects.support.names import Names

if TYPE_CHECKING:
    from onnx import GraphProto, ModelProto, NodeProto, ValueInfoProto

IR_VERSION = 10


def export_onnx(module: ModuleOp) -> ModelProto:
    """Exports a module at the `onnx` level, at the lowest opsets that have all of its ops.

    Raises PopulusError for an op of another level.
    """
    from onnx import ModelProto, helper

    function = main_of(module)
    block = function.body.block
    writer = _Writer(set(input_names(function)) | set(output_names(function)))
    for argument, name in zip(block.args, input_names(function)):
        writer.names[argument] = name
    model = ModelProto(ir_version=IR_VERSION, producer_name="populus")
    graph = writer.graph(block, output_names(function), "main")
    for info, names in zip(graph.input, _dim_names(function)):
        for d, name in zip(info.type.tensor_type.shape.dim, names):
            if name:
                d.dim_param = name
    model.graph.CopyFrom(graph)
    writer.versions.setdefault("", 1)
    model.opset_import.extend(helper.make_opsetid(domain, version) for domain, version in sorted(writer.versions.items()))
    return model


class _Writer:
    """The names of values, and the opset of each domain."""

    def __init__(self, taken: set[str]):
        self.names: dict[SSAValue, str] = {}
        self.free = Names(taken).free
        self.versions: dict[str, int] = {}

    def graph(self, block: Block, outputs: Sequence[str], name: str) -> GraphProto:
        """Writes a block as a graph. `outputs`: the names of its outputs, if they are fixed."""
        from onnx import GraphProto, helper, numpy_helper

        graph = GraphProto(name=name)
        graph.input.extend(_value(self.name(argument), argument.type) for argument in block.args)
        last = block.last_op
        assert isinstance(last, ReturnOp | YieldOp), last
        inner = {r for op in block.ops for r in op.results}
        ends: list[tuple[str, SSAValue]] = []
        for i, value in enumerate(last.operands):
            fixed = outputs[i] if outputs else None
            if value in inner and value not in self.names:  # the result of a node of this graph may have the output's name
                ends.append((self.name(value, fixed), value))
            elif fixed is None and value in inner and self.names[value] not in [n for n, _ in ends]:
                ends.append((self.names[value], value))
            else:
                ends.append((fixed or self.free("out"), value))
        for op in block.ops:
            if isinstance(op, ConstantOp):
                tensor = numpy_helper.from_array(op.array(), self.name(op.result))
                if graph.node:  # it follows other nodes, as in the body of a function
                    graph.node.append(helper.make_node("Constant", [], [tensor.name], value=tensor))
                else:
                    graph.initializer.append(tensor)
            elif op is not last:
                graph.node.append(self.node(op))
        for end, value in ends:
            if self.names[value] != end:
                graph.node.append(helper.make_node("Identity", [self.names[value]], [end]))
            graph.output.append(_value(end, value.type))
        return graph

    def node(self, op: Operation) -> NodeProto:
        """Writes an op as a node. Raises PopulusError for an op of another level."""
        from onnx import AttributeProto, NodeProto

        node = NodeProto(name=op.location.desc.data if isinstance(op.location, NameLoc) else "")
        if isinstance(op, CustomOp):
            node.op_type, node.domain = op.op_type.data, op.domain.data
            self._needs(node.domain, op.version.value.data)
            inputs: Sequence[SSAValue | None] = op.given
            results: Sequence[SSAValue | None] = [r if r.uses or r.name_hint else None for r in op.outputs]
            attributes = dict(op.node_attributes.data)
        elif isinstance(op, OnnxOp):
            node.op_type, node.domain = op.OP_TYPE, op.DOMAIN
            self._needs(op.DOMAIN, op.VERSION)
            inputs, results = op.inputs, op.outputs
            attributes = {k: v for k, v in op.properties.items() if k not in SEGMENTS}
        else:
            raise PopulusError(f"{where(op)}: {op.name} is no op of the onnx dialect; export the module before it is lowered")
        node.input.extend("" if v is None else self.name(v) for v in inputs)
        node.output.extend("" if v is None else self.name(v) for v in results)
        for key in sorted(attributes):
            write_attribute(node, key, attributes[key])
        for key, region in zip(op.GRAPHS if isinstance(op, OnnxOp) else (), op.regions):
            if region.blocks:
                attribute = node.attribute.add()
                attribute.name, attribute.type = key, AttributeProto.GRAPH
                attribute.g.CopyFrom(self.graph(region.block, (), f"{node.name}_{key}"))
        return node

    def _needs(self, domain: str, version: int) -> None:
        # Each op is the newest of its kind at the model's opset, so it still is at the largest of all since-versions.
        """Raises the opset of a domain to `version`."""
        self.versions[domain] = max(version, self.versions.get(domain, 1))

    def name(self, value: SSAValue, fixed: str | None = None) -> str:
        """Gives the name of a value; a new value gets `fixed`, or a fresh name."""
        if value not in self.names:
            self.names[value] = fixed or self.free(value.name_hint or "v")
        return self.names[value]


def _value(name: str, type: Attribute) -> ValueInfoProto:
    """Writes the name and type of a value."""
    from onnx import ValueInfoProto

    return ValueInfoProto(name=name, type=to_proto(type))


def _dim_names(function: FuncOp) -> list[list[str]]:
    """Gives the names of each argument's dimensions."""
    names = function.attributes.get("dim_names")
    rows = cast("list[ArrayAttr[StringAttr]]", list(cast("ArrayAttr[Any]", names).data)) if isinstance(names, ArrayAttr) else []
    return [[name.data for name in row.data] for row in rows]
