"""`builder.aiOnnxOpset11` and `builder.aiGraphcore`: a method for each op, with its attributes by position and by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache, partial
from typing import Any, Protocol, cast

from populus.dialects.support.diagnostics import PopulusError, did_you_mean
from populus.popart.graphcore_signatures import SIGNATURES, Signature
from populus.popart.tensor_info import TensorInfo

# PopART's names of ops whose own are words of C++.
_RENAMED = {"and": "logical_and", "or": "logical_or", "not": "logical_not", "xor": "logical_xor", "if": "logical_if"}
_GRAPHS = {"If": ("else_branch", "then_branch"), "Loop": ("body",), "Scan": ("body",)}
# Ops with a fixed number of outputs are those without `num_outputs`; these have it though their outputs are not optional.
_REDUCTIONS = {"Sum": "Sum", "Mean": "Mean", "NoReduction": "None"}


@lru_cache
def signatures(version: int, domain: str = "") -> Mapping[str, Signature]:
    """Gives the ops of an opset by PopART's names: attributes that must be given first, then the others, each by alphabet."""
    from onnx.defs import OpSchema, get_all_schemas_with_history

    newest: dict[str, OpSchema] = {}
    for schema in get_all_schemas_with_history():
        if schema.domain == domain and schema.since_version <= version and not schema.deprecated:
            known = newest.get(schema.name)
            if known is None or known.since_version < schema.since_version:
                newest[schema.name] = schema
    return {_RENAMED.get(name.lower(), name.lower()): _signature(schema) for name, schema in newest.items()}


def _signature(schema: Any) -> Signature:
    graphs = _GRAPHS.get(schema.name, ())
    names = [a for a in sorted(schema.attributes) if a != "auto_pad" and a not in graphs]
    required = [a for a in names if schema.attributes[a].required]
    kinds = {str(o.option).rpartition(".")[2] for o in schema.outputs}
    counted = bool(kinds & {"Optional", "Variadic"})
    attributes = (*graphs, *required, *(a for a in names if a not in required))
    of_attributes = {n: str(a.type).rpartition(".")[2] for n, a in schema.attributes.items()}
    return Signature(
        schema.name,
        attributes,
        len(required) + len(graphs),
        counted,
        len(schema.outputs),
        kinds=of_attributes,
        inputs=bool(schema.inputs),
        named=tuple(n for n in ("auto_pad",) if n in schema.attributes),
    )


class Nodes(Protocol):
    """A builder as an opset needs it."""

    def node(
        self, op: str, domain: str, version: int, inputs: Sequence[str], count: int, attributes: Mapping[str, Any], context: str = ""
    ) -> list[str]:
        """Gives the outputs of a new node."""
        ...

    def getTensorShape(self, id: str) -> list[int]:
        """Gives the shape of a tensor."""
        ...


@dataclass(frozen=True)
class Opset:
    """The ops of one domain at one version. Raises AttributeError for an op that there is not."""

    builder: Nodes
    version: int

    @property
    def domain(self) -> str:
        """ONNX's own domain."""
        return ""

    def ops(self) -> Mapping[str, Signature]:
        """Gives the ops by the names of their methods."""
        return signatures(self.version)

    def constant(self, value: Any, is_value_sparse: bool | str = False, debugContext: str = "") -> str:
        """Gives a tensor of this value. Raises PopulusError for a sparse one."""
        import numpy as np
        from onnx import numpy_helper

        if isinstance(is_value_sparse, str):
            debugContext, is_value_sparse = is_value_sparse, False
        if is_value_sparse:
            raise PopulusError("a sparse constant is not taken; give its dense array")
        tensor = numpy_helper.from_array(np.asarray(value))
        return self.builder.node("Constant", self.domain, self.version, [], 1, {"value": tensor}, debugContext)[0]

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name.startswith("__"):
            raise AttributeError(name)
        ops = self.ops()
        if name not in ops:
            raise AttributeError(f"opset {self.version} of {self.domain or 'ai.onnx'} has no op '{name}'{did_you_mean(name, ops)}")
        return partial(self._call, ops[name])

    def _call(self, of: Signature, *given_values: Any, **named: Any) -> Any:
        args: Any = ()
        values: Sequence[Any] = given_values
        if of.inputs:
            args, values = (values[0], values[1:]) if values else (named.pop("args", ()), ())
        order = [*(["num_outputs"] if of.counted else []), *of.attributes, "debugContext", *of.after]
        for other in ("debugPrefix", "debug_context", "debugName", "name"):
            if other in named and other not in of.attributes:
                named["debugContext"] = named.pop(other)
        if len(values) > len(order):
            raise TypeError(f"{of.op} takes {', '.join(order)}; {len(values)} values are given")
        values = _shifted(order, values, of)
        given = dict(zip(order, values))
        if twice := [n for n in named if n in given]:
            raise TypeError(f"{of.op}: '{twice[0]}' is given twice")
        given.update(named)
        if strange := [n for n in given if n not in order and n not in of.named]:
            raise TypeError(f"{of.op} has no attribute '{strange[0]}'{did_you_mean(strange[0], order)}")
        if missing := [n for n in of.attributes[: of.required] if n not in given]:
            raise TypeError(f"{of.op} needs the attribute '{missing[0]}'")
        context, count = str(given.pop("debugContext", "") or ""), given.pop("num_outputs", None)
        if of.counted and count is None:
            if (of.outputs != 1 or of.op == "Split") and of.op != "MaxPool":
                raise TypeError(f"{of.op} needs num_outputs")
            count = 1
        args = [args] if isinstance(args, str) else args
        attributes = {n: v for n, v in ((n, typed(of, n, v)) for n, v in given.items()) if v is not None}
        if len(pads := attributes.get("pads", ())) % 2:
            raise PopulusError(f"Padding vector (length {len(pads)}) does not have a begin and an end for each dimension: {of.op}")
        outputs = self.builder.node(of.op, self.domain, self.version, list(args), int(count or of.outputs), attributes, context)
        several = of.counted or of.outputs > 1
        return outputs if several else outputs[0]


def _shifted(order: Sequence[str], values: Sequence[Any], of: Signature) -> Sequence[Any]:
    """Gives values by position; a text in the place of the first attribute that takes none is the name of the node."""
    if values and isinstance(values[-1], str) and order[len(values) - 1] != "debugContext" and order[len(values) - 1] not in of.texts:
        place = order.index("debugContext")
        return (*values[:-1], *(None for _ in range(place - len(values) + 1)), values[-1])
    return values


def typed(of: Signature, name: str, value: Any) -> Any:
    """Gives an attribute of the kind that its op states."""
    import numpy as np
    from onnx import TensorProto, numpy_helper

    kind = of.kinds.get(name)
    if kind == "TENSOR" and not isinstance(value, TensorProto) and value is not None:
        return numpy_helper.from_array(np.asarray(value))
    found = attribute(of.op, name, value)
    if kind == "FLOAT" and found is not None:
        return float(found)
    return [float(v) for v in found] if kind == "FLOATS" and found is not None else found


def attribute(op: str, name: str, value: Any) -> Any:
    """Gives an attribute as ONNX takes it; None for one that is not given.

    An empty list is given where it differs from none: for reductions.
    """
    import numpy as np

    if name == "to" and isinstance(value, str):
        return TensorInfo(value).type
    if isinstance(value, Enum):
        number = cast("object", value.value)
        if type(value).__name__ == "ScatterReduction":
            return value.name
        return _REDUCTIONS[value.name] if type(value).__name__ == "ReductionType" else number
    if hasattr(value, "graph_proto"):
        return value.graph_proto()
    if isinstance(value, list | tuple | range | np.ndarray) and np.ndim(cast("Any", value)):
        listed = [_plain(v) for v in cast("Sequence[Any]", value) if v is not None]
        return listed if listed or op.startswith("Reduce") else None
    return _plain(value)


def _plain(value: Any) -> Any:
    if isinstance(value, bool):
        return int(value)
    return value.item() if hasattr(value, "item") else int(value) if hasattr(value, "__index__") and not isinstance(value, int) else value


@dataclass(frozen=True)
class MlOpset(Opset):
    """The ops of `ai.onnx.ml`."""

    @property
    def domain(self) -> str:
        """ONNX's domain of classic machine learning."""
        return "ai.onnx.ml"

    def ops(self) -> Mapping[str, Signature]:
        """Gives the ops by the names of their methods."""
        return signatures(self.version, self.domain)


@dataclass(frozen=True)
class GraphcoreOpset(Opset):
    """The ops of `ai.graphcore`."""

    @property
    def domain(self) -> str:
        """Graphcore's own domain."""
        return "ai.graphcore"

    def ops(self) -> Mapping[str, Signature]:
        """Gives the ops by the names of their methods."""
        return SIGNATURES

    def multiconv(self, args: Sequence[Sequence[str]], **named: Any) -> list[str]:
        """Gives the outputs of several convolutions, each with inputs and attributes of its own.

        Raises PopulusError for another number of inputs or of attributes than convolutions have.
        """
        for i, inputs in enumerate(args):
            if len(inputs) < 2:
                raise PopulusError(f"convolution {i} of a MultiConv must have at least two inputs - data and weights")
            if len(inputs) > 3:
                raise PopulusError(f"convolution {i} of a MultiConv can have at most three inputs - data, weights, and bias")
        context = str(named.pop("debugContext", ""))
        given: dict[str, Any] = {"inputCounts": [len(a) for a in args]}
        for name, value in named.items():
            if isinstance(value, list | tuple) and value and isinstance(value[0], list | tuple):
                rows = cast("Sequence[Sequence[Any]]", value)
                if len(rows) != len(args):
                    fault = f"number of {name} parameter sets ({len(rows)}) does not match the number of input sets ({len(args)})"
                    raise PopulusError(f"MultiConv: {fault}")
                for row, inputs in zip(rows, args):
                    self._check_width(name, row, inputs)
                given[name], given[f"{name}Counts"] = [v for row in rows for v in row], [len(row) for row in rows]
            elif value not in (None, [], ()):
                given[name] = attribute("MultiConv", name, value)
        return self.builder.node("MultiConv", self.domain, self.version, [i for a in args for i in a], len(args), given, context)

    def _check_width(self, name: str, row: Sequence[Any], inputs: Sequence[str]) -> None:
        """Raises PopulusError for a number of strides or dilations that the dimensions of an image do not have."""
        rank = len(self.builder.getTensorShape(inputs[0])) - 2
        if name in ("dilations", "inDilations", "strides") and row and len(row) != rank:
            raise PopulusError(f"Length of {name} vector {len(row)} != number of spatial dimensions {rank}")
