"""ONNX's standard backend interface: models and single nodes as tile programs.

    from populus import onnx_backend
    prepared = onnx_backend.prepare(onnx.load("model.onnx"))
    outputs = prepared.run([x, y])

The inputs fix the shapes, sequences and optionals of a program, and the values of inputs that decide shapes are constants in it.
Each combination is compiled on first use and kept. `POPULUS_ENGINE` names the engine (`numpy`, `strict`, `native`).
"""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, cast

import numpy as np
from onnx import ModelProto, NodeProto, ValueInfoProto, defs, helper
from onnx.backend.base import Backend as OnnxBackend
from onnx.backend.base import BackendRep, Device, DeviceType, namedtupledict

from populus.dialects.onnx.types import is_open
from populus.dialects.support.diagnostics import PopulusError
from populus.lowering.driver.inventory import arriving
from populus.lowering.onnx.importer import import_onnx
from populus.lowering.onnx.shape_inputs import deciding_inputs
from populus.program.compile import compile
from populus.program.options import EngineName, LevelName
from populus.program.program import Program

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[Any]
    Value = Array | list[Any] | None

PROGRAMS = 64  # kept by a prepared model


class UnsupportedError(PopulusError):
    """The model may be valid, but cannot be compiled."""


class Prepared(BackendRep):
    """A model that is compiled for the inputs of each run."""

    def __init__(
        self, model: ModelProto, target: str, tiles: int | None, engine: EngineName, host: bool = True, level: LevelName = "poplar"
    ):
        self.model = model
        self.target, self.tiles, self.host = target, tiles, host
        self.engine: EngineName = engine
        self.level: LevelName = level
        initial = {i.name for i in model.graph.initializer} | {i.values.name for i in model.graph.sparse_initializer}
        self.inputs: dict[str, ValueInfoProto] = {i.name: i for i in model.graph.input if i.name not in initial}
        self._programs: OrderedDict[object, tuple[Program, dict[str, Array]]] = OrderedDict()

    def run(self, inputs: Any, **kwargs: Any) -> tuple[Any, ...]:
        """Runs the model and gives the outputs in order, as a named tuple.

        `inputs`: in the model's order, or by name; they are not modified.
        Raises UnsupportedError for a model that cannot be compiled, and PopulusError for inputs that do not match the model.
        """
        program, arrays = self.program(self.named(inputs))
        found = program.run(arrays)
        names = [o.name for o in self.model.graph.output]
        values = [_gathered(found, o) for o in self.model.graph.output]
        return namedtupledict("Outputs", names)(*values)

    def named(self, inputs: Any) -> dict[str, Value]:
        """Names the inputs; each is an array, a list of arrays, or None. Raises PopulusError for a wrong number or wrong names."""
        given: Mapping[str, Any]
        if isinstance(inputs, Mapping):
            given = dict(cast("Mapping[str, Any]", inputs))
        else:
            values = list(cast("Sequence[Any]", inputs)) if isinstance(inputs, list | tuple) else [inputs]
            if len(values) != len(self.inputs):
                raise PopulusError(f"{len(values)} inputs are given; the model takes {len(self.inputs)}: {', '.join(self.inputs)}")
            given = dict(zip(self.inputs, values))
        if unlike := set(given) ^ set(self.inputs):
            raise PopulusError(
                f"the inputs given are {', '.join(given)}; the model takes {', '.join(self.inputs)} ({', '.join(sorted(unlike))})"
            )
        return {name: _value(given[name]) for name in self.inputs}

    def program(self, inputs: Mapping[str, Value]) -> tuple[Program, dict[str, Array]]:
        """Gives the program for these inputs, compiled on first use, and the arrays to run it with."""
        structured = {name: value for name, value in inputs.items() if not isinstance(value, np.ndarray)}
        flat = {**{n: v for n, v in inputs.items() if isinstance(v, np.ndarray)}, **_flat(structured)}
        structured |= {n: v for n, v in inputs.items() if not self.inputs[n].type.HasField("tensor_type")}
        failed: UnsupportedError | None = None
        for everything in (False, True):
            values = {n: flat[n] for n in deciding_inputs(self.model, everything) if n in flat}
            rest = {n: a for n, a in flat.items() if n not in values}
            key = (_key(inputs), tuple((n, tuple(a.reshape(-1)) if a.dtype == object else a.tobytes()) for n, a in values.items()))
            if key in self._programs:
                self._programs.move_to_end(key)
                return self._programs[key][0], rest
            try:
                program = self._compile(inputs, structured, values)
            except PopulusError as error:
                failed = failed or UnsupportedError(str(error))
                continue
            self._programs[key] = (program, values)
            if len(self._programs) > PROGRAMS:
                self._programs.popitem(last=False)
            return program, rest
        assert failed is not None
        raise failed

    def _compile(self, inputs: Mapping[str, Value], structured: Mapping[str, Value], values: Mapping[str, Array]) -> Program:
        model = _specialised(self.model, inputs, structured)
        module = import_onnx(model, values=values)
        return compile(module, target=self.target, tiles=self.tiles, engine=self.engine, host=self.host, level=self.level)


class Backend(OnnxBackend):
    """Populus as a backend. `target`, `tiles`, `level` and `engine` are those of `populus.compile`."""

    target: ClassVar[str] = "host"
    tiles: ClassVar[int | None] = 16
    host: ClassVar[bool] = True  # False refuses models that need the host (strings, images)
    level: ClassVar[LevelName] = "poplar"  # the level to run: poplar on tiles, those above on whole arrays
    engine: ClassVar[EngineName | None] = None  # None: POPULUS_ENGINE, or auto

    @classmethod
    def prepare(cls, model: ModelProto, device: str = "CPU", **kwargs: Any) -> Prepared:
        """Prepares a copy of the model; programs are compiled when inputs arrive.

        Raises UnsupportedError for a device that is not a CPU.
        """
        if not cls.supports_device(device):
            raise UnsupportedError(f"there is no device '{device}'; the only one is CPU")
        copy = ModelProto()
        copy.CopyFrom(model)
        engine = cls.engine or cast("EngineName", os.environ.get("POPULUS_ENGINE", "auto"))
        return Prepared(copy, cls.target, cls.tiles, engine, cls.host, cls.level)

    @classmethod
    def run_model(cls, model: ModelProto, inputs: Any, device: str = "CPU", **kwargs: Any) -> tuple[Any, ...]:
        """Compiles and runs a model on these inputs; gives its outputs."""
        return cls.prepare(model, device, **kwargs).run(inputs)

    @classmethod
    def run_node(
        cls,
        node: NodeProto,
        inputs: Any,
        device: str = "CPU",
        outputs_info: Sequence[tuple[np.dtype[Any], tuple[int, ...]]] | None = None,
        **kwargs: Any,
    ) -> tuple[Any, ...]:
        """Runs one node and gives its outputs. `opset_version`: of the node's domain; default: the newest."""
        given = {n: np.asarray(a) for n, a in zip((n for n in node.input if n), inputs, strict=True)}
        types = [helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape) for n, a in given.items()]
        names = [n for n in node.output if n]
        outputs = [helper.make_empty_tensor_value_info(n) for n in names]
        if outputs_info is not None:
            outputs = [
                helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(np.dtype(dtype)), shape)
                for n, (dtype, shape) in zip(names, outputs_info, strict=True)
            ]
        version = kwargs.pop("opset_version", None) or defs.get_schema(node.op_type, domain=node.domain).since_version
        if not node.domain and "opset_version" not in kwargs:
            version = max(version, defs.onnx_opset_version())
        graph = helper.make_graph([node], node.name or node.op_type, types, outputs)
        return cls.run_model(helper.make_model(graph, opset_imports=[helper.make_opsetid(node.domain, version)]), given, device)

    @classmethod
    def supports_device(cls, device: str) -> bool:
        return Device(device).type == DeviceType.CPU

    @classmethod
    def is_compatible(cls, model: ModelProto, device: str = "CPU", **kwargs: Any) -> bool:
        """Tells whether each node has a rule, as far as the model tells before inputs arrive.

        A model whose inputs decide shapes may still be refused for their values.
        """
        if not cls.supports_device(device):
            return False
        refused = ("missing",) if cls.host else ("missing", "host")
        try:
            return all(row.status not in refused for row in arriving(model))
        except PopulusError:
            return False


def _value(value: Any) -> Value:
    if isinstance(value, list | tuple):
        return [_value(v) for v in cast("Sequence[Any]", value)]
    if value is None:
        return None
    array = np.asarray(value)
    return array.astype(object) if array.dtype.kind == "U" else array


def _key(inputs: Mapping[str, Value]) -> object:
    """Gives the part of the inputs that decides the type of a program: shapes, element types and structure."""
    return tuple((name, _shape_of(value)) for name, value in inputs.items())


def _shape_of(value: Value) -> object:
    if isinstance(value, np.ndarray):
        return value.shape, value.dtype.name
    return None if value is None else tuple(map(_shape_of, value))


def _flat(structured: Mapping[str, Value]) -> dict[str, Array]:
    """Names the tensors of sequences: `name.0`, `name.1`, .."""
    return {f"{name}.{i}": v for name, value in structured.items() for i, v in enumerate(value or ()) if isinstance(v, np.ndarray)}


def _specialised(model: ModelProto, inputs: Mapping[str, Value], structured: Mapping[str, Value]) -> ModelProto:
    """Gives a copy of the model with the shapes of these inputs, whose sequences and optionals are made from tensor inputs."""
    copy = ModelProto()
    copy.CopyFrom(model)
    graph = copy.graph
    del graph.input[:]
    made: list[NodeProto] = []
    for i in model.graph.input:
        value = inputs.get(i.name)
        if i.name not in structured:
            new = graph.input.add()
            new.CopyFrom(i)
            if isinstance(value, np.ndarray):
                _state(new, value)
            continue
        sequence = i.type
        if i.type.HasField("optional_type"):
            sequence = i.type.optional_type.elem_type
            if value is None:
                made.append(helper.make_node("Optional", [], [i.name], type=sequence))
                continue
        inner = i.name if sequence is i.type else f"{i.name}.value"
        if isinstance(value, np.ndarray):
            graph.input.append(ValueInfoProto(name=f"{i.name}", type=sequence))
            _state(graph.input[-1], value)
            inner = i.name
        elif value is None:
            raise PopulusError(f"input '{i.name}' is missing; it is a sequence")
        else:
            element = sequence.sequence_type.elem_type
            names = [f"{i.name}.{k}" for k in range(len(value))]
            for name, v in zip(names, value):
                if not isinstance(v, np.ndarray):
                    raise PopulusError(f"input '{i.name}' has an element that is not an array")
                graph.input.append(ValueInfoProto(name=name, type=element))
                _state(graph.input[-1], cast("Array", v))
            if names:
                made.append(helper.make_node("SequenceConstruct", names, [inner]))
            else:
                made.append(helper.make_node("SequenceEmpty", [], [inner], dtype=element.tensor_type.elem_type))
        if inner != i.name:
            made.append(helper.make_node("Optional", [inner], [i.name]))
    if made:
        nodes = [*made, *graph.node]
        del graph.node[:]
        graph.node.extend(nodes)
    return copy


def _state(info: ValueInfoProto, value: Array) -> None:
    """Gives open dimensions the sizes of a value. Stated sizes stay, so that the program checks them."""
    tensor = info.type.tensor_type
    if not tensor.HasField("shape") or len(tensor.shape.dim) != value.ndim:
        if tensor.HasField("shape"):
            return
        for _ in range(value.ndim):
            tensor.shape.dim.add()
        if not value.ndim:
            tensor.shape.SetInParent()
    for dimension, n in zip(tensor.shape.dim, value.shape):
        if is_open(dimension):
            dimension.dim_value = n


def _gathered(found: Mapping[str, Array], output: ValueInfoProto) -> Any:
    """Collects an output of the model from its program's outputs: a sequence's elements are called `name.0`, `name.1`, .."""
    if output.name in found:
        return found[output.name]
    values: list[Array] = []
    while (name := f"{output.name}.{len(values)}") in found:
        values.append(found[name])
    if output.type.HasField("optional_type") and not output.type.optional_type.elem_type.HasField("sequence_type"):
        return values[0] if values else None
    return values


prepare = Backend.prepare
run_node = Backend.run_node
run_model = Backend.run_model
supports_device = Backend.supports_device
is_compatible = Backend.is_compatible
