"""Import of a model file to an `onnx` module.

module = import_onnx("bert.onnx", dims={"batch": 1, "sequence": 128})
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any

from xdsl.dialects.builtin import DYNAMIC_INDEX, ArrayAttr, ModuleOp, StringAttr, TensorType
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Attribute, Block, Region

from populus.dialects.onnx.dimensions import Dimensions, parts
from populus.dialects.onnx.types import as_tensor, dimension_name, from_proto
from populus.dialects.signature import state_names
from populus.dialects.signature.bounded_dimensions import open_dimensions
from populus.dialects.signature.map_inputs import note_map
from populus.dialects.support.diagnostics import PopulusError, named
from populus.lowering.onnx.importer.build import AnyOp, NodeBuilder, Scope, constant_of, hint, standard
from populus.lowering.onnx.importer.complex_pairs import to_pairs
from populus.lowering.onnx.importer.opened import OpenedModel
from populus.lowering.onnx.importer.read import read_tensor

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from onnx import ModelProto, ValueInfoProto


def import_onnx(
    model: str | os.PathLike[str] | ModelProto | OpenedModel,
    *,
    dims: Mapping[str, int | tuple[int, int]] = {},
    customs: Collection[tuple[str, str]] | AnyOp = (),
    values: Mapping[str, NDArray[Any]] = {},
) -> ModuleOp:
    """Imports a model: one function `main` from its inputs to its outputs, with ONNX's names as attributes.

    `dims` binds symbolic dimensions by name, to one size or to a least and a greatest; one without a name is `INPUT.AXIS`.
    A name such as `past + cur` follows from the others. Dimensions that stay open are dynamic, and `onnx-infer-shapes` asks
    for them. `customs` has the (domain, op type) of every custom op that is defined.
    `values` turns inputs that decide shapes or axes into constants; the function has no argument for them.
    A value whose type the model does not state is `!onnx.unknown`. Initializers without uses are dropped.
    The modules of one `OpenedModel` share their constants.
    Raises PopulusError, one line that begins with the file, for an invalid model.
    """
    opened = model if isinstance(model, OpenedModel) else OpenedModel(model)
    try:
        return _module(opened, dims, customs, values)
    except PopulusError as error:
        raise PopulusError(f"{opened.place}: {error}") from error


def _module(
    opened: OpenedModel,
    dims: Mapping[str, int | tuple[int, int]],
    customs: Collection[tuple[str, str]] | AnyOp,
    values: Mapping[str, NDArray[Any]],
) -> ModuleOp:
    """Imports the graph of a model; see `import_onnx`."""
    model = opened.proto
    graph = model.graph
    bound = Dimensions(dims)
    if not graph.output:
        raise PopulusError("the model has no outputs, so there is nothing to compute; name one at least in graph.output")
    used: set[str] = set()

    def dimension(name: str) -> int:
        used.add(name)
        return bound.stated(name)

    opsets = {standard(o.domain): o.version for o in model.opset_import}
    if not opsets and model.ir_version < 3:
        opsets = {"": 1}  # models older than opset imports
    functions = {(standard(f.domain), f.name): f for f in model.functions}
    builder = NodeBuilder(opsets, functions, customs, {}, lambda t: read_tensor(t, opened.folder), dimension)
    initializers = opened.shared(builder.initializers(graph))
    if strange := [name for name in values if name not in {i.name for i in graph.input}]:
        raise PopulusError(f"there is no input '{strange[0]}' to make a constant; the inputs are {', '.join(i.name for i in graph.input)}")
    initializers.update({name: (lambda array=array: constant_of(array)) for name, array in values.items()})
    inputs = [i for i in graph.input if i.name not in initializers]
    types, sizes = zip(*(_input_type(i, bound, used) for i in inputs)) if inputs else ((), ())
    builder.types = {i.name: from_proto(i.type, dimension) for i in (*graph.value_info, *graph.output)}
    used.update(*(parts(name) for name in used))
    if missing := [name for name in dims if name not in used]:
        raise PopulusError(f"there is no dimension '{missing[0]}' to bind; the model has {', '.join(sorted(used)) or 'none'}")

    block = Block(arg_types=types)
    scope = Scope(block, None, initializers)
    for argument, i in zip(block.args, inputs):
        hint(argument, i.name)
        argument.location = named(i.name)
        scope.values[i.name] = argument
    builder.nodes(graph.node, scope)
    results = [builder.output(o.name, scope) for o in graph.output]
    block.add_op(ReturnOp(*results))
    function = FuncOp("main", (types, [r.type for r in results]), Region(block))
    state_names(function, inputs=[i.name for i in inputs], outputs=[o.name for o in graph.output])
    open_names = [[_name(i, d) if n < 0 else "" for d, n in enumerate(_shape(t))] for i, t in zip(inputs, types)]
    if any(any(names) for names in open_names):
        function.attributes["dim_names"] = ArrayAttr([ArrayAttr([StringAttr(n) for n in names]) for names in open_names])
    if bound.bounds:
        open_dimensions(function, bound.bounds, sizes, {str(s): n for s, n in bound.limits.items()})
    to_pairs(function)
    for entry in opened.maps:
        note_map(function, entry)
    return ModuleOp([function])


def _shape(type: Attribute) -> tuple[int, ...]:
    """Gives the shape of a tensor type; empty for another type."""
    return type.get_shape() if isinstance(type, TensorType) else ()


def _name(value: ValueInfoProto, d: int) -> str:
    """Names a dimension of an input: its own name, or `INPUT.AXIS`."""
    return dimension_name(value.type.tensor_type.shape.dim[d]) or f"{value.name}.{d}"


def _input_type(value: ValueInfoProto, dims: Dimensions, used: set[str]) -> tuple[Attribute, tuple[str, ...]]:
    """Gives the type of a graph input at the greatest sizes of `dims`, and the text of each bounded size.

    Adds the names of its open dimensions to `used`. Raises PopulusError for a size that is negative at all sizes of its parts.
    """
    type = from_proto(value.type)
    if (ranked := as_tensor(type)) is None:
        return type, ()
    shape, texts = list(ranked.get_shape()), [""] * len(ranked.get_shape())
    for d, n in enumerate(shape):
        if n < 0:
            used.add(name := _name(value, d))
            found = dims.size(name)
            shape[d] = DYNAMIC_INDEX if found is None else dims.upper(found)
            texts[d] = "" if found is None or found.constant is not None else str(found)
            if found is not None and shape[d] < 0:
                raise PopulusError(f"input '{value.name}': its dimension '{name}' is negative for all sizes")
    return TensorType(ranked.element_type, shape), tuple(texts)
