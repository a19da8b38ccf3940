"""Makes a program of StableHLO static: by the sizes of its inputs' open dimensions, and the values of inputs that state sizes.

Shapes inside follow by jaxlib's passes, which check the producer's assertions about sizes too.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from io import BytesIO
from typing import TYPE_CHECKING, Any, cast

from populus.dialects.support import shapes
from populus.dialects.support.diagnostics import PopulusError, did_you_mean, option

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

DTYPES = {"i1": "bool", "f32": "float32", "f64": "float64", **{f"{u}i{n}": f"{u}int{n}" for u in ("", "u") for n in (8, 16, 32, 64)}}
"""The element types of inputs that may be given a value, with NumPy's names."""
_OPEN = re.compile(r"tensor<((?:\?|\d+)x(?:(?:\?|\d+)x)*)([^,<>]+(?:<[^<>]*>)?)(?:, #stablehlo\.bounds<(.*)>)?>")


@dataclass(frozen=True)
class Given:
    """Sizes of open dimensions that a user states, as `INPUT.POSITION`, and values of inputs, which are constants then."""

    sizes: Mapping[str, int | tuple[int, int]] = field(default_factory=dict[str, "int | tuple[int, int]"])
    values: Mapping[str, ArrayLike] = field(default_factory=dict[str, "ArrayLike"])

    def __bool__(self) -> bool:
        return bool(self.sizes or self.values)


NOTHING = Given()


def main_of(module: Any) -> Any:
    """Finds the function @main of a module of jaxlib, if it has a body; None if there is none."""
    found = [f for f in module.body.operations if f.operation.name == "func.func" and str(f.attributes["sym_name"]) == '"main"']
    return found[0] if found and len(found[0].regions[0].blocks) else None


def open_sizes(type: str) -> tuple[list[int], str, list[int | None]] | None:
    """Splits the text of a type into sizes, -1 for open ones, its elements' type, and the sizes' bounds; None for one without any."""
    found = _OPEN.fullmatch(type)
    if found is None:
        return None
    sizes = [-1 if n == "?" else int(n) for n in found[1].split("x")[:-1]]
    stated: list[str] = found[3].split(",") if found[3] else ["?"] * len(sizes)
    bounds = [None if n.strip() == "?" else int(n) for n in stated]
    return sizes, str(found[2]), bounds


def open_places(type: str) -> list[int]:
    """Lists the dimensions of a type that are open."""
    found = open_sizes(type)
    return [] if found is None else [d for d, size in enumerate(found[0]) if size < 0]


def check_sizes(given: Given, dimensions: Collection[str]) -> None:
    """Raises PopulusError for the size of a dimension that is not open, and for a range."""
    for name, size in given.sizes.items():
        if name not in dimensions:
            raise PopulusError(f"there is no open dimension '{name}'{did_you_mean(name, dimensions)}")
        if not isinstance(size, int):
            raise PopulusError(f"dimension '{name}' is {size[0]}..{size[1]}; one number is expected for a program of StableHLO")


def refined(ir: Any, module: Any, names: list[str], given: Given) -> Any:
    """Gives the module of jaxlib with the types of @main's arguments made static, those that have values removed, and all that follows.

    Raises PopulusError for names, sizes and values that do not fit, or that an assertion of the program refuses.
    """
    context = module.context
    arguments = list(main_of(module).regions[0].blocks[0].arguments)
    check_sizes(given, {f"{n}.{d}" for n, a in zip(names, arguments) for d in open_places(str(a.type))})
    for name in given.values:
        if name not in names:
            raise PopulusError(f"there is no input '{name}' to give a value to{did_you_mean(name, names)}")
    types = [_sized(str(a.type), name, given.sizes) for name, a in zip(names, arguments)]
    if any("#stablehlo.bounds" in str(a.type) for a in arguments):  # jaxlib refines no type that has bounds, and these are checked
        module = ir.Module.parse(re.sub(r", #stablehlo\.bounds<[^<>]*>", "", module.operation.get_asm(enable_debug_info=True)), context)
    import_module("jaxlib.mlir.dialects.stablehlo").register_stablehlo_passes()
    passes = f"builtin.module(stablehlo-refine-arguments{{types={','.join(types)}}})"
    import_module("jaxlib.mlir.passmanager").PassManager.parse(passes, context).run(module.operation)
    main = main_of(module)
    block = main.regions[0].blocks[0]
    for name, argument in zip(names, list(block.arguments)):
        if name in given.values:
            constant = ir.Operation.create(
                "stablehlo.constant",
                results=[argument.type],
                attributes={"value": _dense(ir, context, name, argument.type, given.values[name])},
                loc=argument.location,
                ip=ir.InsertionPoint.at_block_begin(block),
            )
            argument.replace_all_uses_with(constant.results[0])
    kept = [i for i, name in enumerate(names) if name not in given.values]
    for i in reversed(range(len(names))):
        if i not in kept:
            block.erase_argument(i)
    old = ir.FunctionType(ir.TypeAttr(main.attributes["function_type"]).value)
    new = ir.FunctionType.get([a.type for a in block.arguments], old.results, context)
    main.attributes["function_type"] = ir.TypeAttr.get(new, context)
    if "arg_attrs" in main.attributes:
        main.attributes["arg_attrs"] = ir.ArrayAttr.get([main.attributes["arg_attrs"][i] for i in kept], context)
    main.attributes["input_names"] = ir.ArrayAttr.get([ir.StringAttr.get(names[i], context) for i in kept], context)
    content = BytesIO()
    module.operation.write_bytecode(content)
    refine = import_module("jaxlib._jax").mlir.refine_polymorphic_shapes
    try:
        return ir.Module.parse(refine(content.getvalue(), enable_shape_assertions=True, validate_static_shapes=False), context)
    except RuntimeError as error:  # XLA's own kind derives from it
        reason = re.search(r"error: (?:loc\(.*?\): )?(.*)", str(error))
        raise PopulusError(f"the sizes do not fit: {reason[1] if reason else error}") from None


def _sized(type: str, name: str, sizes: Mapping[str, Any]) -> str:
    """Gives the text of an argument's type with the sizes that are known. Raises PopulusError for one that is missing or too large."""
    found = open_sizes(type)
    if found is None or -1 not in found[0]:
        return type
    shape, element, bounds = found
    for d, size in enumerate(shape):
        if size >= 0:
            continue
        key = f"{name}.{d}"
        if key not in sizes:
            how = option(f"--dim {key}=8", f"dims={{'{key}': 8}}")
            raise PopulusError(f"input '{name}' is {type}; state the size of dimension {d}, as {how}")
        shape[d], bound = sizes[key], bounds[d]
        if shape[d] < 0 or (bound is not None and shape[d] > bound):
            raise PopulusError(f"dimension '{key}' is {shape[d]}; 0 to {'any' if bound is None else bound} is expected")
    return f"tensor<{''.join(f'{n}x' for n in shape)}{element}>"


def _dense(ir: Any, context: Any, name: str, type: Any, value: ArrayLike) -> Any:
    """Makes the value of a constant. Raises PopulusError for another shape, or a value that the element type cannot hold."""
    import numpy as np

    array, shaped = np.asarray(value), ir.RankedTensorType(type)
    element = str(shaped.element_type)
    if tuple(shaped.shape) != array.shape:
        stated = shapes.text(tuple(shaped.shape))
        raise PopulusError(f"input '{name}' is {stated}, and the value that is given is {shapes.text(array.shape)}")
    if element not in DTYPES:
        raise PopulusError(f"input '{name}' is of {element}, which is given no value; {', '.join(DTYPES)} are")
    with np.errstate(all="ignore"):
        converted = array.astype(DTYPES[element]) if array.dtype.kind in "biuf" else None
    if converted is None or not np.array_equal(converted.astype(array.dtype), array) or not np.isfinite(converted).all():
        raise PopulusError(f"input '{name}' is of {element}, which cannot hold {np.array2string(array, threshold=8)}")

    def text(part: Any) -> str:
        if isinstance(part, list):
            return f"[{', '.join(text(p) for p in cast('list[Any]', part))}]"
        return str(part).lower() if not isinstance(part, float) else f"{part:.17e}"

    return ir.Attribute.parse(f"dense<{text(converted.tolist()) if array.size else ''}> : {type}", context)
