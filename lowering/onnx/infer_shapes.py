"""The pass `onnx-infer-shapes`: every value gets its type, and every shape is static afterwards."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import cast

from xdsl.context import Context
from xdsl.dialects.builtin import ArrayAttr, ModuleOp, StringAttr, TensorType
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Attribute, SSAValue
from xdsl.passes import ModulePass

from populus.dialects.onnx.dimensions import Dimensions
from populus.dialects.onnx.types import OptionalType, SequenceType, as_tensor
from populus.dialects.signature import input_names, output_names, return_of, state_names
from populus.dialects.signature.bounded_dimensions import RESULTS, open_dimensions, set_sizes
from populus.dialects.support.budget import check_shape
from populus.dialects.support.diagnostics import PopulusError, option
from populus.dialects.support.element_types import shape_of
from populus.lowering.onnx.custom_ops import custom_ops
from populus.lowering.onnx.inference import WRITE_OUT, Inference, set_type
from populus.lowering.onnx.to_popart import Converter
from populus.lowering.onnx.valid_sizes import stated


@dataclass(frozen=True)
class OnnxInferShapesPass(ModulePass):
    """Infers the types of all values with ONNX's inference, and evaluates ops that compute shapes.

    dims: sizes of symbolic dimensions that the model leaves open, as `batch=1`.
    write_out: number of ops up to which the iterations of a loop are unrolled; 0 keeps every loop that can be kept.
    """

    name = "onnx-infer-shapes"
    dims: tuple[str, ...] = ()
    write_out: int = WRITE_OUT

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        """Types every function of the module that has a body."""
        customs = custom_ops(ctx)
        for function in op.ops:
            if isinstance(function, FuncOp) and function.body.blocks:
                bind_dims(function, _sizes(self.dims))
                inference = Converter(customs, self.write_out).inference
                inference.enter(function)
                inference.block(function.body.block)
                _flatten_results(function, inference)
                if inference.valid.has_ranges:
                    results = return_of(function).operands
                    set_sizes(function, RESULTS, [stated(inference.valid.of(v)) for v in results])
                inference.finish()
                function.update_function_type()


def _flatten_results(function: FuncOp, inference: Inference) -> None:
    """Replaces a returned sequence `y` by its elements, the results `y.0`, `y.1`, ..

    Raises PopulusError for an element whose size is known only at run time, or for two results of one name.
    """
    last = function.body.block.last_op
    assert isinstance(last, ReturnOp), last
    names = output_names(function)
    if not any(v in inference.lists for v in last.operands):
        return
    values: list[SSAValue] = []
    flat: list[str] = []
    for name, value in zip(names, last.operands, strict=True):
        elements = inference.lists.get(value)
        for i, element in enumerate((value,) if elements is None else elements):
            if element is None:
                raise PopulusError(f"output '{name}' has an element of a size that is known only when the model runs")
            values.append(element)
            flat.append(name if elements is None else f"{name}.{i}")
    if twice := [name for name in flat if flat.count(name) > 1]:
        raise PopulusError(f"two outputs are called '{twice[0]}'; rename one")
    last.operands = values
    state_names(function, outputs=flat)


def _sizes(dims: tuple[str, ...]) -> dict[str, int | tuple[int, int]]:
    """Parses entries `NAME=N` and `NAME=LEAST..GREATEST`. Raises PopulusError for another form."""
    sizes: dict[str, int | tuple[int, int]] = {}
    for entry in dims:
        name, _, size = entry.rpartition("=")
        ends = size.split("..")
        if not name or len(ends) > 2 or not all(e.isdigit() for e in ends):
            raise PopulusError(f"the dimension '{entry}' is not of the form NAME=N or NAME=LEAST..GREATEST")
        sizes[name] = (int(ends[0]), int(ends[-1])) if len(ends) == 2 else int(size)
    return sizes


def bind_dims(function: FuncOp, sizes: Mapping[str, int | tuple[int, int]], default: int | None = None, tensors: bool = True) -> None:
    """Replaces open dimensions of a function's arguments by `sizes` (elements, or the least and the greatest), and others by `default`.

    `tensors`: requires each argument to be a tensor of stated rank; without it, other arguments stay as they are.
    Raises PopulusError for an argument whose dimension stays open, with the option that binds it.
    """
    names = texts_of(function.attributes.pop("dim_names", None))
    inputs, given = input_names(function), Dimensions(sizes)
    stated = [[""] * len(shape_of(a.type)) if as_tensor(a.type) is not None else [] for a in function.body.block.args]
    for i, argument in enumerate(list(function.body.block.args)):
        if not tensors and as_tensor(argument.type) is None:
            continue
        title = f"input '{inputs[i]}'"
        if isinstance(argument.type, SequenceType | OptionalType):
            raise PopulusError(f"{title} is {argument.type}; tiles hold tensors only")
        if (type := as_tensor(argument.type)) is None:
            raise PopulusError(f"{title} is {argument.type}: its shape has to be stated in the model")
        shape = list(type.get_shape())
        for d in [d for d, n in enumerate(shape) if n < 0]:
            dimension = names[i][d] if names else f"{i}.{d}"
            found = given.size(dimension)
            if found is None and default is None:
                bind = option(f"--dim {dimension}=N", f"dims={{'{dimension}': N}}")
                raise PopulusError(f"{title} is {type}: its dimension '{dimension}' is open; bind it with {bind}")
            shape[d] = default or 0 if found is None else given.upper(found)
            stated[i][d] = str(found) if found is not None and found.constant is None else ""
        check_shape(shape, title)
        set_type(argument, TensorType(type.element_type, shape))
    if given.bounds:
        open_dimensions(function, given.bounds, stated, {str(s): n for s, n in given.limits.items()})


def texts_of(attribute: Attribute | None) -> list[list[str]]:
    """Gives the strings of an array of strings, or of nested arrays; none for None."""
    if isinstance(attribute, StringAttr):
        return [[attribute.data]]
    entries = cast("ArrayAttr[Attribute]", attribute).data if isinstance(attribute, ArrayAttr) else ()
    return [[text for inner in texts_of(entry) for text in inner] for entry in entries]
