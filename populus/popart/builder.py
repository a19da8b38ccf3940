"""`Builder`: an ONNX model, node by node; tensors are their names."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from populus.dialects.support.diagnostics import PopulusError, did_you_mean

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

OPSET = 11  # of ai.onnx, the latest that PopART's builder has

_TYPES = {
    "FLOAT": 1,
    "UINT8": 2,
    "INT8": 3,
    "UINT16": 4,
    "INT16": 5,
    "INT32": 6,
    "INT64": 7,
    "BOOL": 9,
    "FLOAT16": 10,
    "DOUBLE": 11,
    "UINT32": 12,
}


class TensorInfo:
    """Element type (`FLOAT`, `FLOAT16`, `INT32`, ...) and shape; or those of an array."""

    def __init__(self, type: str | ArrayLike, shape: Sequence[int] | None = None):
        if isinstance(type, str):
            if type not in _TYPES:
                raise PopulusError(f"there is no type '{type}'{did_you_mean(type, _TYPES)}")
            self.type, self._shape = _TYPES[type], tuple(shape or ())
        else:
            import numpy as np
            from onnx.helper import np_dtype_to_tensor_dtype

            array = np.asarray(type)
            self.type, self._shape = np_dtype_to_tensor_dtype(array.dtype), array.shape

    def shape(self) -> list[int]:
        return list(self._shape)


class Builder:
    """A model that grows. `aiOnnx.<op>(inputs, **attributes)` adds a node of ONNX, `customOp` one of a domain of yours."""

    def __init__(self) -> None:
        from onnx import GraphProto

        self._graph = GraphProto(name="popart")
        self._domains: dict[str, int] = {"": OPSET}
        self._used: set[str] = set()

    @property
    def aiOnnx(self) -> _AiOnnx:
        return _AiOnnx(self)

    def addInputTensor(self, info: TensorInfo, debugContext: str = "") -> str:
        """A new input; its name."""
        from onnx.helper import make_tensor_value_info

        name = self._name(debugContext or "input")
        self._graph.input.append(make_tensor_value_info(name, info.type, info.shape()))
        return name

    def addInitializedInputTensor(self, value: ArrayLike, debugContext: str = "") -> str:
        """A weight; its name."""
        import numpy as np
        from onnx import numpy_helper

        name = self._name(debugContext or "init_input")
        self._graph.initializer.append(numpy_helper.from_array(np.asarray(value), name))
        return name

    def addOutputTensor(self, name: str) -> None:
        """Makes a tensor an output. Raises PopulusError if there is none of this name."""
        from onnx import ValueInfoProto

        if name not in self._used:
            raise PopulusError(f"there is no tensor '{name}'{did_you_mean(name, self._used)}")
        self._graph.output.append(ValueInfoProto(name=name))

    def customOp(
        self,
        opName: str,
        opVersion: int,
        domain: str,
        inputs: Sequence[str],
        attributes: Mapping[str, Any] | None = None,
        numOutputs: int = 1,
        name: str = "",
    ) -> list[str]:
        """The outputs of a node of a domain of yours.

        Raises PopulusError for an input that is no tensor of this builder, and for a domain in two versions.
        """
        from onnx.helper import make_node

        if strange := [i for i in inputs if i not in self._used]:
            raise PopulusError(f"{opName}: there is no tensor '{strange[0]}'{did_you_mean(strange[0], self._used)}")
        if self._domains.setdefault(domain, opVersion) != opVersion:
            raise PopulusError(f"{opName}: the model has version {self._domains[domain]} of '{domain}' already, not {opVersion}")
        outputs = [self._name(name or opName) for _ in range(numOutputs)]
        self._graph.node.append(make_node(opName, list(inputs), outputs, name or None, domain=domain or None, **(attributes or {})))
        return outputs

    def getModelProto(self) -> bytes:
        """The model as ONNX has it in files."""
        from onnx.helper import make_model, make_opsetid

        opsets = [make_opsetid(domain, version) for domain, version in self._domains.items()]
        return make_model(self._graph, opset_imports=opsets, ir_version=10).SerializeToString()

    def _name(self, stem: str) -> str:
        number = 0
        while (found := f"{stem}/{number}" if number else stem) in self._used:
            number += 1
        self._used.add(found)
        return found


class _AiOnnx:
    """ONNX's ops by their names in lower case: `leakyrelu`, `matmul`."""

    def __init__(self, builder: Builder):
        self._builder = builder

    def __getattr__(self, name: str) -> Callable[..., str]:
        from onnx.defs import get_all_schemas

        names = {s.name.lower(): s.name for s in get_all_schemas() if not s.domain}
        if name not in names:
            raise AttributeError(f"ai.onnx has no op '{name}'{did_you_mean(name, names)}")
        return partial(self._node, names[name])

    def _node(self, op: str, inputs: Sequence[str], debugContext: object = "", *values: object, **attributes: Any) -> str:
        """The output of a node. Raises PopulusError for attributes without their names, and for an op of several outputs."""
        from onnx.defs import OpSchema, get_schema

        if not isinstance(debugContext, str) or values:
            strange = values[0] if isinstance(debugContext, str) else debugContext
            raise PopulusError(f"{op}: {strange!r} is given without a name; write attributes with theirs, such as axis=0")
        schema = get_schema(op, OPSET)
        if schema.min_output > 1 or any(o.option == OpSchema.FormalParameterOption.Variadic for o in schema.outputs):
            raise PopulusError(f"{op} has several outputs, of which this gives one; take customOp('{op}', {OPSET}, '', .., numOutputs=n)")
        return self._builder.customOp(op, OPSET, "", inputs, attributes, name=debugContext)[0]
