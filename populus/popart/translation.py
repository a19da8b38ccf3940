"""A model of PopART becomes one of ONNX: ops of `ai.graphcore` become functions of ONNX ops, and types are known at every step."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING, Any, Self, cast

from populus.dialects.support.diagnostics import PopulusError, did_you_mean
from populus.popart.stated import StatedError
from populus.popart.tensor_info import dtype_of_number

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from onnx import FunctionProto, GraphProto, ModelProto, NodeProto, TensorProto

DOMAIN = "populus.popart"  # of the functions
OPSET = 21  # of ONNX's ops in them
LARGEST_KNOWN = 4096  # elements of constants that may decide shapes
# Ops of `ai.graphcore` that the `popart` dialect has as they are.
NATIVE = frozenset(("Atan2", "Detach", "Expm1", "Log1p"))


@dataclass(frozen=True)
class Known:
    """Element type and shape of a tensor."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]

    @property
    def number(self) -> int:
        """ONNX's number of the element type."""
        from onnx.helper import np_dtype_to_tensor_dtype

        return np_dtype_to_tensor_dtype(self.dtype)


class Translation(ABC):
    """The nodes of one graph, translated in order, with what is known of its tensors. `outer`: of the graph around it."""

    def __init__(self, opsets: Mapping[str, int], outer: Translation | None = None, training: bool = False, strided_groups: bool = False):
        self.opsets = opsets
        self.strided_groups = strided_groups
        self.outer = outer
        self.training = training
        self.functions: list[FunctionProto] = [] if outer is None else outer.functions
        self.numbers = count() if outer is None else outer.numbers
        self.nodes: list[NodeProto] = []
        self.assigned: dict[str, str] = {} if outer is None else outer.assigned
        """The tensors that a batch leaves in variables, by the variables' names."""
        self._types: dict[str, Known] = {}
        self._values: dict[str, NDArray[Any]] = {}
        self._variables: set[str] = set()
        self._inferred = 0

    @classmethod
    def of(cls, model: ModelProto, outer: Translation | None = None, training: bool = False, strided_groups: bool = False) -> Self:
        """Translates a whole model. `training`: elements are dropped. `strided_groups`: groups of channels are not neighbours.

        Raises PopulusError naming the node that has no meaning, or does not fit its inputs.
        """
        opsets = {"" if o.domain == "ai.onnx" else o.domain: o.version for o in model.opset_import}
        made = cls(opsets, outer, training, strided_groups)
        made.begin(model.graph)
        for node in model.graph.node:
            made.feed(node)
        return made

    def begin(self, graph: GraphProto, given: Sequence[Known | None] = ()) -> None:
        """Takes the inputs and weights of a graph. `given`: types of what it is called with."""
        for tensor in graph.initializer:
            self.weight(tensor)
        called = [*given, *(None for _ in graph.input)]
        for value, known in zip(graph.input, called):
            if known is not None:
                self._types[value.name] = known
            elif value.type.tensor_type.elem_type and value.name not in self._types:
                stated = value.type.tensor_type
                self._types[value.name] = Known(dtype_of_number(stated.elem_type), tuple(d.dim_value for d in stated.shape.dim))

    def weight(self, tensor: TensorProto) -> None:
        """Takes a tensor with a value."""
        from onnx import numpy_helper

        array = numpy_helper.to_array(tensor)
        self._types[tensor.name] = Known(array.dtype, array.shape)
        self._variables.add(tensor.name)
        if array.size <= LARGEST_KNOWN:
            self._values[tensor.name] = array

    # -- what is known ------------------------------------------------------------------------------------------------

    def type_of(self, name: str) -> Known:
        """Gives the type of a tensor. Raises PopulusError if there is none of this name, or a node does not fit."""
        found = self._find(name)
        if found is None:
            raise PopulusError(f"there is no tensor '{name}' of known type{did_you_mean(name, self._types)}")
        return found

    def value_of(self, name: str) -> NDArray[Any] | None:
        """Gives the value of a constant; None for any other tensor."""
        self.infer()
        if name in self._values:
            return self._values[name]
        return None if self.outer is None else self.outer.value_of(name)

    def has(self, name: str) -> bool:
        """Tells whether a tensor is known, here or around."""
        return self._find(name) is not None

    def _find(self, name: str) -> Known | None:
        if name not in self._types:
            self.infer()
        if name in self._types:
            return self._types[name]
        return None if self.outer is None else self.outer._find(name)

    def infer(self) -> None:
        """Finds the types of what nodes give that were added since the last time. Raises PopulusError."""
        pending = self.nodes[self._inferred :]
        if not pending:
            return
        self._inferred = len(self.nodes)
        model = self._part(pending)
        names = [o.name for o in model.graph.output]
        for name, (known, value) in zip(names, _inferred(model)):
            self._types[name] = known
            if value is not None and value.size <= LARGEST_KNOWN:
                self._values[name] = value

    def _part(self, nodes: Sequence[NodeProto]) -> ModelProto:
        """Gives a model of these nodes alone, whose inputs are what they read."""
        from onnx import ValueInfoProto, helper, numpy_helper

        made = {o for n in nodes for o in n.output if o}
        inputs: list[ValueInfoProto] = []
        weights: list[TensorProto] = []
        for name in dict.fromkeys(r for n in nodes for r in reads(n) if r not in made):
            known = self._types.get(name) or (None if self.outer is None else self.outer._find(name))
            if known is None:
                raise PopulusError(f"there is no tensor '{name}' of known type")
            value = self._values.get(name)
            value = value if value is not None or self.outer is None or name in self._types else self.outer.value_of(name)
            if value is not None:
                weights.append(numpy_helper.from_array(value, name))
            else:
                inputs.append(helper.make_tensor_value_info(name, known.number, known.shape))
        outputs = [ValueInfoProto(name=o) for o in dict.fromkeys(o for n in nodes for o in n.output if o)]
        return self.assembled(nodes, inputs, outputs, weights)

    def assembled(self, nodes: Sequence[NodeProto], inputs: Any, outputs: Any, weights: Any) -> ModelProto:
        """Gives a model of these parts, with the functions that its nodes call."""
        from onnx import helper

        called = {n.op_type for n in every(nodes) if n.domain == DOMAIN}
        opsets = {**self.opsets, DOMAIN: 1, "ai.graphcore": 1}
        opsets.setdefault("", 10)
        return helper.make_model(
            helper.make_graph(nodes, "popart", inputs, outputs, weights),
            functions=[f for f in self.functions if f.name in called],
            opset_imports=[helper.make_opsetid(d, v) for d, v in opsets.items()],
            ir_version=10,
        )

    # -- nodes --------------------------------------------------------------------------------------------------------

    def feed(self, node: NodeProto) -> None:
        """Translates one more node. Raises PopulusError naming it."""
        domain = "" if node.domain == "ai.onnx" else node.domain
        try:
            rule = self.rule_for(domain, node)
            if rule is not None:
                rule(self, node)
            elif domain == "ai.graphcore" and node.op_type not in NATIVE:
                raise PopulusError(f"PopART's op {node.op_type} is not there yet")
            else:
                self.nodes.append(node)
        except PopulusError as error:
            place = next((o for o in node.output if o), node.op_type)
            named = isinstance(error, StatedError) or str(error).startswith("'")
            raise error if named else PopulusError(f"'{place}': {node.op_type}: {error}") from error

    @abstractmethod
    def rule_for(self, domain: str, node: NodeProto) -> Rule | None:
        """Gives the rule of a node; None for one that stays as it is. Raises PopulusError for one that PopART refuses."""

    def since(self, op: str) -> int:
        """Gives the version of ONNX's op that the model's opset has."""
        from onnx.defs import get_schema

        return get_schema(op, self.opsets.get("", 10), "").since_version

    def assign(self, variable: str, value: str) -> None:
        """States that a batch leaves a tensor in a variable. Raises PopulusError inside a graph of a node, and for one assigned twice."""
        if self.outer is not None:
            raise PopulusError(f"the variable '{variable}' is assigned inside a graph of a node; assign it in the main graph")
        if self.assigned.setdefault(variable, value) != value:
            raise PopulusError(f"the variable '{variable}' is assigned twice; once is expected")

    def names(self) -> list[str]:
        """Lists the tensors of the graph."""
        self.infer()
        return list(self._types)

    def is_variable(self, name: str) -> bool:
        """Tells whether a tensor of the main graph is a weight."""
        return name in self._variables

    def inner(self, graph: GraphProto, given: Sequence[Known | None]) -> Self:
        """Gives the translation of a graph inside a node."""
        made = type(self)(self.opsets, self, self.training, self.strided_groups)
        made.begin(graph, given)
        for node in graph.node:
            made.feed(node)
        return made


def every(nodes: Iterable[NodeProto]) -> Iterable[NodeProto]:
    """Lists nodes and those of graphs inside them."""
    for node in nodes:
        yield node
        for a in node.attribute:
            if a.HasField("g"):
                yield from every(a.g.node)


def reads(node: NodeProto) -> Iterable[str]:
    """Gives the tensors that a node reads, also inside the graphs that it holds."""
    yield from (i for i in node.input if i)
    for a in node.attribute:
        if a.HasField("g"):
            own = {i.name for i in a.g.input} | {i.name for i in a.g.initializer} | {o for n in a.g.node for o in n.output}
            yield from (r for n in a.g.node for r in reads(n) if r not in own)
            yield from (o.name for o in a.g.output if o.name not in own)


def _inferred(model: ModelProto) -> Iterable[tuple[Known, NDArray[Any] | None]]:
    """Gives type, and value where it is constant, of each output."""
    from xdsl.dialects.builtin import TensorType
    from xdsl.dialects.func import ReturnOp
    from xdsl.ir import Attribute

    from populus.dialects.data import constant_value
    from populus.dialects.signature import main_of
    from populus.dialects.support.element_types import dtype_of
    from populus.lowering.driver import extensions
    from populus.lowering.onnx.fold_constants import OnnxFoldConstantsPass
    from populus.lowering.onnx.infer_shapes import OnnxInferShapesPass
    from populus.program.source import Source

    source = Source(model, {}, extensions.known())
    ctx = source.context()
    module = source.module(ctx)
    OnnxInferShapesPass().apply(ctx, module)
    OnnxFoldConstantsPass().apply(ctx, module)
    last = main_of(module).body.block.last_op
    assert isinstance(last, ReturnOp), last
    for value in last.operands:
        if not isinstance(value.type, TensorType):
            raise PopulusError(f"a tensor is expected, {value.type} is found")
        type = cast("TensorType[Attribute]", value.type)
        yield Known(dtype_of(type.element_type), tuple(type.get_shape())), constant_value(value)


class Body:
    """A function that stands for one node: `b("Add", x, y)` adds an op and gives its result."""

    def __init__(self, translation: Translation, node: NodeProto):
        self.translation, self.node = translation, node
        self._attributes = {a.name: a for a in node.attribute}
        self._nodes: list[NodeProto] = []
        self._numbers = count()

    def has(self, i: int) -> bool:
        """Tells whether the node has an input of this number."""
        return i < len(self.node.input) and bool(self.node.input[i])

    def known(self, i: int) -> Known:
        """Gives the type of an input."""
        return self.translation.type_of(self.node.input[i])

    def shape(self, i: int = 0) -> tuple[int, ...]:
        """Gives the shape of an input."""
        return self.known(i).shape

    def dtype(self, i: int = 0) -> np.dtype[Any]:
        """Gives the element type of an input."""
        return self.known(i).dtype

    def value(self, i: int) -> NDArray[Any] | None:
        """Gives the value of an input that is constant."""
        return self.translation.value_of(self.node.input[i]) if self.has(i) else None

    def attr(self, name: str, default: Any = None) -> Any:
        """Gives an attribute. Raises PopulusError if it is missing and has no default."""
        from onnx.helper import get_attribute_value

        if name not in self._attributes:
            return default
        value: Any = get_attribute_value(self._attributes[name])
        return value.decode() if isinstance(value, bytes) else list(value) if not isinstance(value, int | float) else value

    def __call__(self, op: str, *inputs: str, outputs: int = 1, domain: str = "", **attributes: Any) -> Any:
        from onnx.helper import make_node

        names = [f"v{next(self._numbers)}" for _ in range(outputs)]
        given = {n: v for n, v in attributes.items() if v is not None}
        self._nodes.append(make_node(op, list(inputs), names, domain=domain or None, **given))
        return names[0] if outputs == 1 else names

    def const(self, value: Any, dtype: Any = None) -> str:
        """Adds a constant."""
        import numpy as np
        from onnx import numpy_helper

        return self("Constant", value=numpy_helper.from_array(np.asarray(value, dtype)))

    def ints(self, values: Iterable[int]) -> str:
        """Adds a constant list of whole numbers."""
        import numpy as np

        return self.const(list(values), np.int64)

    def like(self, value: float, i: int = 0) -> str:
        """Adds a constant scalar of an input's element type."""
        return self.const(value, self.dtype(i))

    def cast(self, x: str, dtype: Any) -> str:
        """Gives a tensor in another element type."""
        import numpy as np
        from onnx.helper import np_dtype_to_tensor_dtype

        return self("Cast", x, to=np_dtype_to_tensor_dtype(np.dtype(dtype)))

    def reshape(self, x: str, shape: Sequence[int]) -> str:
        """Gives a tensor in another shape."""
        return self("Reshape", x, self.ints(shape), allowzero=0 if math.prod(shape) else 1)

    def finish(self, results: Sequence[str]) -> None:
        """Makes the function and the node that calls it."""
        from onnx.helper import make_function, make_node, make_opsetid

        name = f"{self.node.op_type}_{next(self.translation.numbers)}"
        inputs = [f"x{i}" for i in range(len(self.node.input))]
        outputs = [o for o in self.node.output if o]
        kept = [r for r, o in zip(results, self.node.output) if o]
        if len(kept) < len(outputs):
            raise PopulusError(f"it gives {len(results)} outputs; {len(outputs)} are asked for")
        opsets = [make_opsetid("", OPSET), make_opsetid("ai.graphcore", 1)]
        named = [self("Identity", r) for r in kept]
        self.translation.functions.append(make_function(DOMAIN, name, inputs, named, self._nodes, opsets))
        self.translation.nodes.append(make_node(name, list(self.node.input), outputs, self.node.name or None, domain=DOMAIN))


Rule = Callable[[Translation, "NodeProto"], None]


def rule(function: Callable[..., str | Sequence[str]]) -> Rule:
    """Makes a rule from a function that takes a `Body` and its inputs and gives the result, or results."""

    def applied(translation: Translation, node: NodeProto) -> None:
        body = Body(translation, node)
        found = function(body, *(f"x{i}" if name else None for i, name in enumerate(node.input)))
        body.finish([found] if isinstance(found, str) else found)

    return applied
