"""Ops built from nodes: scopes of names, subgraphs as regions, and functions inlined where they are called."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from xdsl.dialects.builtin import StringAttr, TensorType
from xdsl.ir import Attribute, Block, Operation, Region, SSAValue

from populus.dialects.data import constant, constant_value
from populus.dialects.onnx.attributes import FLAGS, filling, plain, read_attribute
from populus.dialects.onnx.schema import op_class
from populus.dialects.onnx.structure import CustomOp, StringsOp, YieldOp
from populus.dialects.onnx.types import DOMAINS, from_proto, unknown
from populus.dialects.signature.complex_pairs import as_pairs
from populus.dialects.support.budget import check_growth, check_shape, check_time
from populus.dialects.support.diagnostics import PopulusError, named, nearest, option
from populus.lowering.onnx.importer.complex_pairs import marked
from populus.lowering.onnx.importer.contrib import BLOCKED, DOMAIN, EVERYWHERE, HOST, NAMES, contrib
from populus.lowering.onnx.importer.read import read_sparse, read_tensor

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from onnx import AttributeProto, FunctionProto, GraphProto, NodeProto, TensorProto

MISSING = "missing"  # the attribute with the reason why a survey could not build a node
EARLY = {"LayerNormalization": 17, "Erf": 9}  # exporters write these at any opset: op type -> the opset that introduced it
DEEPEST_CALL = 64  # nested function calls; more means that functions call each other in a cycle


def standard(domain: str) -> str:
    """Normalises a domain: ONNX's own is both '' and 'ai.onnx'."""
    return "" if domain == "ai.onnx" else domain


class AnyOp:
    """The custom ops of a survey: every op counts as defined. A node that cannot be built stays, with the reason."""

    def __contains__(self, key: object) -> bool:
        return True


ANY_OP = AnyOp()


class Scope:
    """The names that nodes of a graph may read: values, initializers (constants on first use), and the parent's."""

    def __init__(self, block: Block, parent: Scope | None = None, initializers: Mapping[str, Callable[[], Operation]] = {}):
        self.block = block
        self.parent = parent
        self.values: dict[str, SSAValue] = {}
        self.initializers = dict(initializers)
        self.last_constant: Operation | None = None

    def lookup(self, name: str) -> SSAValue | None:
        """Gives the value of a name; None if nothing has defined it yet."""
        if (value := self.values.get(name)) is not None:
            return value
        if (read := self.initializers.get(name)) is not None:
            op = read()
            op.location = named(name)
            hint(op.results[0], name)
            first = self.block.first_op
            if self.last_constant is not None:
                self.block.insert_op_after(op, self.last_constant)
            elif first is not None:
                self.block.insert_op_before(op, first)
            else:
                self.block.add_op(op)
            self.last_constant = op
            self.values[name] = op.results[0]
            return op.results[0]
        return None if self.parent is None else self.parent.lookup(name)


def constant_of(array: NDArray[Any]) -> Operation:
    """Makes a constant of an array of numbers or strings. Complex numbers are pairs, which the op says until `to_pairs`."""
    if array.dtype.kind == "c":
        op = constant(as_pairs(array))
        op.attributes.update(marked())
        return op
    return StringsOp.of(array) if array.dtype == object else constant(array)


def hint(value: SSAValue, name: str) -> None:
    """Names a value in printed IR after its ONNX name; other characters than letters and digits become `_`."""
    name = re.sub(r"\W", "_", name, flags=re.ASCII)
    value.name_hint = f"v{name}" if name[:1].isdigit() else name or None


@dataclass
class NodeBuilder:
    """Builds the ops of a model's nodes at the end of a scope's block."""

    opsets: Mapping[str, int]  # by domain
    functions: Mapping[tuple[str, str], FunctionProto] = field(default_factory=dict[tuple[str, str], Any])
    customs: Collection[tuple[str, str]] | AnyOp = ()
    types: Mapping[str, Attribute] = field(default_factory=dict[str, Attribute])  # types that the model states, by value
    read_tensor: Callable[[TensorProto], NDArray[Any]] = lambda t: read_tensor(t, None)
    dimension: Callable[[str], int] = lambda name: -1
    location: str | None = None  # of all ops; else each has its node's name
    depth: int = 0
    made: Counter[str] = field(default_factory=Counter[str])  # nodes of functions, which calls of calls multiply

    def nodes(self, nodes: Iterable[NodeProto], scope: Scope, call_attributes: Mapping[str, AttributeProto] = {}, prefix: str = "") -> None:
        """Builds `nodes` in order. `call_attributes`: the attributes of the function call that they come from.

        Raises PopulusError naming the node.
        """
        for index, node in enumerate(nodes):
            if self.depth:
                self.made["nodes"] += 1
                check_growth(len(self.functions), self.made["nodes"])
            check_time()
            name = self.location or prefix + (node.name or next((o for o in node.output if o), f"{node.op_type}_{index}"))
            try:
                self.node(node, name, scope, call_attributes)
            except NodeError:
                raise
            except PopulusError as error:
                if isinstance(self.customs, AnyOp):
                    self._missing(node, str(error), name, scope)
                    continue
                raise NodeError(f"'{name}': {node.op_type}: {error}") from error

    def node(self, node: NodeProto, name: str, scope: Scope, call_attributes: Mapping[str, AttributeProto]) -> None:
        """Builds one node. Raises PopulusError if it does not fit its schema or reads an undefined name."""
        from onnx import AttributeProto

        domain = standard(node.domain)
        attributes = {a.name: a for a in self._attributes(node, call_attributes)}
        function = self.functions.get((domain, node.op_type))
        known = domain == DOMAIN or (not domain and node.op_type in EVERYWHERE)
        if function is None and known and not self._defined(domain, node.op_type):
            function = contrib(node, attributes, [self._type(i, scope) for i in node.input])
        if function is not None:
            self._call(function, node, name, scope, attributes)
            return
        inputs = [self._read(i, scope) for i in node.input]
        if domain not in DOMAINS:
            self._custom(node, domain, inputs, name, scope, attributes)
            return
        if (array := self._constant(node.op_type if not domain else "", inputs, attributes)) is not None:
            self._insert(constant_of(array), node.output, name, scope)
            return
        if domain == "ai.onnx.preview.training" and node.op_type == "Gradient":
            inputs.append(self._differentiated(node, attributes, scope))
        kind = op_class(domain, node.op_type, max(self.opset(domain), EARLY.get(node.op_type, 0) if not domain else 0))
        properties: dict[str, Attribute] = {}
        regions: dict[str, Region] = {}
        for key, attribute in attributes.items():
            expected, actual = kind.KINDS.get(key), AttributeProto.AttributeType.Name(attribute.type)
            if expected is None:
                raise PopulusError(f"{kind.title()} has no attribute '{key}'")
            if actual != expected:
                raise PopulusError(f"{kind.title()}'s attribute '{key}' is of type {actual}; {expected} is expected")
            if key in FLAGS and attribute.i not in (0, 1):
                raise PopulusError(f"{kind.title()}'s attribute '{key}' is {attribute.i}; 0 or 1 is expected")
            if key in kind.GRAPHS:
                regions[key] = self.graph(attribute.g, scope, call_attributes, f"{name}/")
            else:
                properties[key] = read_attribute(attribute)
        if missing := [key for key in kind.REQUIRED if key not in attributes]:
            raise PopulusError(f"{kind.title()} needs the attribute '{missing[0]}'")
        outputs = [self.types.get(o, unknown) if o else None for o in node.output]
        self._insert(kind.make(inputs, outputs, properties, regions), [o for o in node.output if o], name, scope)

    def _missing(self, node: NodeProto, why: str, name: str, scope: Scope) -> None:
        """Builds an op with the reason in place of a node that cannot be built, for a survey."""
        domain = standard(node.domain)
        values = [v for i in node.input if i and (v := scope.lookup(i)) is not None]
        outputs = [o for o in node.output if o and o not in scope.values]
        version = self.opsets.get(domain, 1)
        op = CustomOp(domain, node.op_type, version, values, [self.types.get(o, unknown) for o in outputs], {})
        op.attributes[MISSING] = StringAttr(why)
        self._insert(op, outputs, name, scope)

    def _differentiated(self, node: NodeProto, attributes: Mapping[str, AttributeProto], scope: Scope) -> SSAValue | None:
        """Gives the tensor that a Gradient names as y.

        Raises PopulusError unless its inputs are the tensors that xs and zs name.
        """
        names = [s.decode() for key in ("xs", "zs") if key in attributes for s in attributes[key].strings]
        if names != list(node.input):
            raise PopulusError(f"its inputs are {', '.join(node.input)}; those that xs and zs name are expected, {', '.join(names)}")
        if "y" not in attributes:
            raise PopulusError("Gradient needs the attribute 'y'")
        return self._read(attributes["y"].s.decode(), scope)

    def _defined(self, domain: str, op_type: str) -> bool:
        """Tells whether a user's file defines an op; a survey's `AnyOp` defines none."""
        return not isinstance(self.customs, AnyOp) and (domain, op_type) in self.customs

    def opset(self, domain: str) -> int:
        """Gives the model's opset of a domain. Raises PopulusError if it has none, or an unknown one."""
        if domain not in self.opsets:
            raise PopulusError(f"the model imports no opset of the domain '{domain or 'ai.onnx'}'")
        version = self.opsets[domain]
        newest = newest_opset(domain)
        if not 1 <= version <= newest:
            raise PopulusError(f"the model states opset {version} of '{domain or 'ai.onnx'}'; 1 to {newest} are known")
        return version

    def graph(self, graph: GraphProto, scope: Scope, call_attributes: Mapping[str, AttributeProto], prefix: str) -> Region:
        """Builds a subgraph as a region, which may read every value that is visible at the node."""
        block = Block(arg_types=[from_proto(i.type, self.dimension) for i in graph.input])
        inner = Scope(block, scope, self.initializers(graph))
        for argument, i in zip(block.args, graph.input):
            hint(argument, i.name)
            inner.values[i.name] = argument
        saved = self.types
        self.types = {i.name: from_proto(i.type, self.dimension) for i in (*graph.value_info, *graph.output)}
        self.nodes(graph.node, inner, call_attributes, prefix)
        self.types = saved
        block.add_op(YieldOp(*(self.output(o.name, inner) for o in graph.output)))
        return Region(block)

    def initializers(self, graph: GraphProto) -> dict[str, Callable[[], Operation]]:
        """Gives a function that makes a constant of each initializer of a graph, by name."""
        read = self.read_tensor
        result: dict[str, Callable[[], Operation]] = {t.name: (lambda t=t: constant_of(read(t))) for t in graph.initializer}
        for sparse in graph.sparse_initializer:
            result[sparse.values.name] = lambda sparse=sparse: constant_of(read_sparse(sparse, None))
        return result

    def output(self, name: str, scope: Scope) -> SSAValue:
        """Gives the value of a graph's output. Raises PopulusError if nothing defines it."""
        value = scope.lookup(name)
        if value is None:
            raise PopulusError(f"the graph's output '{name}' is not defined by any node, input or initializer")
        return value

    def _read(self, name: str, scope: Scope) -> SSAValue | None:
        """Gives the value of an input; None for an absent one. Raises PopulusError for an undefined name."""
        if not name:
            return None
        value = scope.lookup(name)
        if value is None:
            raise PopulusError(f"it reads '{name}', which no input, initializer or earlier node defines")
        return value

    def _type(self, name: str, scope: Scope) -> TensorType | None:
        """Gives the type of an input; None if it is absent or its type is unknown."""
        value = scope.lookup(name) if name else None
        match value.type if value is not None else None:
            case TensorType() as type:
                return type
            case _:
                return None

    def _insert(self, op: Operation, names: Sequence[str], name: str, scope: Scope) -> None:
        """Appends an op, and defines the names of its results."""
        op.location = named(name)
        scope.block.add_op(op)
        for result, output in zip(op.results, names):
            if output:
                self._name(result, output, scope)

    def _name(self, value: SSAValue, name: str, scope: Scope) -> None:
        """Defines a name. Raises PopulusError if it is defined already."""
        if name in scope.values:
            raise PopulusError(f"its output '{name}' is already defined")
        scope.values[name] = value
        if value.name_hint is None:
            hint(value, name)

    def _attributes(self, node: NodeProto, call_attributes: Mapping[str, AttributeProto]) -> Iterable[AttributeProto]:
        """Gives a node's attributes; references to a function's attributes take the values of the call."""
        from onnx import AttributeProto

        for attribute in node.attribute:
            if not attribute.ref_attr_name:
                yield attribute
            elif (value := call_attributes.get(attribute.ref_attr_name)) is not None:
                copy = AttributeProto()
                copy.CopyFrom(value)
                copy.name = attribute.name
                yield copy

    def _call(self, function: FunctionProto, node: NodeProto, name: str, scope: Scope, attributes: Mapping[str, AttributeProto]) -> None:
        """Inlines a function's nodes in place of a call. Raises PopulusError for recursion."""
        if self.depth >= DEEPEST_CALL:
            raise PopulusError(f"the functions that it calls are {DEEPEST_CALL} deep; they may not call themselves")
        inner = Scope(scope.block)
        for parameter, argument in zip(function.input, node.input):
            if (value := self._read(argument, scope)) is not None:
                inner.values[parameter] = value
        body = NodeBuilder(
            {standard(o.domain): o.version for o in function.opset_import} or self.opsets,
            self.functions,
            self.customs,
            {},
            self.read_tensor,
            self.dimension,
            self.location,
            self.depth + 1,
            self.made,
        )
        body.function(function, inner, attributes, f"{name}/")
        for formal, output in zip(function.output, node.output):
            if output:
                self._name(self.output(formal, inner), output, scope)

    def function(self, function: FunctionProto, scope: Scope, call_attributes: Mapping[str, AttributeProto], prefix: str = "") -> None:
        """Builds a function's nodes in a scope that defines its parameters; undefined ones count as absent."""
        absent = set(function.input) - set(scope.values)
        self.nodes(_without(function.node, absent), scope, {**{a.name: a for a in function.attribute_proto}, **call_attributes}, prefix)

    def _custom(
        self,
        node: NodeProto,
        domain: str,
        inputs: Sequence[SSAValue | None],
        name: str,
        scope: Scope,
        attributes: Mapping[str, AttributeProto],
    ) -> None:
        """Builds a custom node. Raises PopulusError if no file defines its op."""
        if domain == BLOCKED and not self._defined(domain, node.op_type):
            raise PopulusError(
                "it has the layout in blocks of channels of one CPU; save the optimized model at the level `extended`"
                " (ORT_ENABLE_EXTENDED), which leaves layouts as they are"
            )
        if (domain, node.op_type) not in self.customs and not (domain == DOMAIN and node.op_type in HOST):
            load = option("--load FILE.py", "load='FILE.py'")
            assert not isinstance(self.customs, AnyOp), node.op_type  # which defines every op
            names = {name for place, name in self.customs if place == domain} | (NAMES if domain == DOMAIN else frozenset[str]())
            text = f"there is no op {node.op_type} in the custom domain '{domain}'; give the file that defines it with {load}"
            raise PopulusError(text + nearest(node.op_type, names))
        op = CustomOp(
            domain,
            node.op_type,
            self.opsets.get(domain, 1),
            inputs,
            [self.types.get(o, unknown) for o in node.output],
            {key: read_attribute(a) for key, a in attributes.items()},
        )
        self._insert(op, node.output, name, scope)

    def _constant(self, op_type: str, inputs: Sequence[SSAValue | None], attributes: Mapping[str, AttributeProto]) -> NDArray[Any] | None:
        """Gives the array of a Constant, or of a ConstantOfShape whose shape is known; None for another node."""
        import numpy as np

        match op_type:
            case "Constant":
                return self._constant_value(attributes)
            case "ConstantOfShape":
                value = filling(plain(read_attribute(attributes["value"])) if "value" in attributes else None)
                shape = constant_value(inputs[0]) if inputs else None
                if shape is None:
                    return None
                if shape.ndim != 1 or (shape.size and shape.min() < 0):
                    raise PopulusError(f"its input is {shape.tolist()}; a shape, a list of dimensions, is expected")
                check_shape(shape.tolist(), "its result")
                return np.broadcast_to(value, [int(n) for n in shape])
            case _:
                return None

    def _constant_value(self, attributes: Mapping[str, AttributeProto]) -> NDArray[Any]:
        """Gives the value of a Constant node. Raises PopulusError unless it has one. Source: ONNX Constant-13."""
        import numpy as np

        match list(attributes.items()):
            case [("value", a)]:
                return self.read_tensor(a.t)
            case [("sparse_value", a)]:
                return read_sparse(a.sparse_tensor, None)
            case [("value_float", a)]:
                return np.array(a.f, np.float32)
            case [("value_floats", a)]:
                return np.array(list(a.floats), np.float32)
            case [("value_int", a)]:
                return np.array(a.i, np.int64)
            case [("value_ints", a)]:
                return np.array(list(a.ints), np.int64)
            case [("value_string", a)]:
                return np.array(a.s.decode(), object)
            case [("value_strings", a)]:
                return np.array([s.decode() for s in a.strings], object)
            case _:
                raise PopulusError(f"it has the attributes {', '.join(attributes) or 'none'}; one value is expected")


class NodeError(PopulusError):
    """An error that names its node already."""


def newest_opset(domain: str) -> int:
    """Gives the newest version of a domain that the `onnx` package knows."""
    from onnx.defs import get_all_schemas_with_history, onnx_opset_version

    if not domain:
        return onnx_opset_version()
    from onnx.helper import VERSION_TABLE

    column = {"ai.onnx.ml": 3, "ai.onnx.preview.training": 4}.get(domain)
    stated = [row[column] for row in VERSION_TABLE if column is not None and len(row) > column]
    return max([int(v) for v in stated] + [s.since_version for s in get_all_schemas_with_history() if s.domain == domain])


def _without(nodes: Iterable[NodeProto], absent: set[str]) -> Iterable[NodeProto]:
    """Gives a function's nodes, with the parameters that a call omits as absent inputs."""
    from onnx import NodeProto

    for node in nodes:
        if absent.isdisjoint(node.input):
            yield node
        else:
            copy = NodeProto()
            copy.CopyFrom(node)
            copy.input[:] = ["" if i in absent else i for i in node.input]
            yield copy
