"""Layers of ai.onnx that PopART computes otherwise than ONNX, and what a batch leaves in variables."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from populus.dialects.support.diagnostics import PopulusError
from populus.popart.graphcore_nn import batch_norm
from populus.popart.stated import listed
from populus.popart.translation import Body, Rule, Translation, rule

if TYPE_CHECKING:
    from onnx import NodeProto


def copy_var_update(translation: Translation, node: NodeProto) -> None:
    """Leaves a tensor in a variable after the batch, and gives it. Raises PopulusError if it does not fit, or for no variable."""
    from onnx import helper

    variable, value = node.input
    if not translation.is_variable(variable):
        raise PopulusError(f"'{variable}' is no weight; only a weight can be assigned")
    if translation.type_of(variable) != translation.type_of(value):
        kinds = [translation.type_of(n) for n in (variable, value)]
        raise PopulusError(f"'{variable}' is {kinds[0].dtype} {listed(kinds[0].shape)}; {kinds[1].dtype} {listed(kinds[1].shape)} is given")
    translation.assign(variable, value)
    translation.nodes.append(helper.make_node("Identity", [value], list(node.output)))


def batch_normalization(translation: Translation, node: NodeProto) -> None:
    """Translates a BatchNormalization; one that trains leaves its moved statistics in the weights that it had them from."""
    rule(batch_norm)(translation, node)
    if translation.training and len(node.output) > 2:
        for variable, moved in zip(node.input[3:], node.output[1:3]):
            if moved and translation.is_variable(variable):
                translation.assign(variable, moved)


def conv_transpose(translation: Translation, node: NodeProto) -> None:
    """States the pads of a transposed convolution whose `output_shape` is given: of an odd number, the end has one more.

    With `auto_pad` SAME_UPPER, the begin has it. Source: PopART.
    """
    from onnx import NodeProto, helper

    given = {a.name: helper.get_attribute_value(a) for a in node.attribute}
    if "output_shape" not in given:
        translation.nodes.append(node)
        return
    spatial = translation.type_of(node.input[0]).shape[2:]
    kernel = translation.type_of(node.input[1]).shape[2:]
    ones = [1] * len(spatial)
    strides, gaps = given.get("strides", ones), given.get("dilations", ones)
    extra = given.get("output_padding", [0] * len(spatial))
    wanted = list(given["output_shape"])[-len(spatial) :]
    full = [s * (n - 1) + e + (k - 1) * d + 1 for n, k, s, d, e in zip(spatial, kernel, strides, gaps, extra)]
    total = [f - w for f, w in zip(full, wanted)]
    if min(total) < 0:
        raise PopulusError(f"output_shape = {wanted}; at most {full} is expected")
    less = [t // 2 for t in total]
    more = [t - half for t, half in zip(total, less)]
    pads = [*more, *less] if given.get("auto_pad") == b"SAME_UPPER" else [*less, *more]
    made = NodeProto()
    made.CopyFrom(node)
    kept = [a for a in node.attribute if a.name not in ("output_shape", "auto_pad", "pads")]
    del made.attribute[:]
    made.attribute.extend([*kept, helper.make_attribute("pads", pads)])
    translation.nodes.append(made)


def resize(b: Body, x: str, *more: str | None) -> str:
    """Computes ONNX's Resize; scales and sizes of any types, and one of them given or not empty.

    `nearest_mode` "pytorch", the default of opset 10, takes the element at `floor(i / scale)`.
    Raises PopulusError if both or none are given, and where they are no constants.
    """
    import numpy as np

    old = b.translation.opsets.get("", 10) < 11
    at = {"scales": 1} if old else {"scales": 2, "sizes": 3}
    given = {n: b.value(i) for n, i in at.items() if b.has(i)}
    if unknown := [n for n, v in given.items() if v is None]:
        raise PopulusError(f"its {unknown[0]} are no constant")
    kept = {n: v for n, v in given.items() if v is not None and v.size}
    if len(kept) != 1:
        raise PopulusError(f"it has {' and '.join(kept) or 'neither scales nor sizes'}; one of scales and sizes is expected")
    mode = b.attr("mode", "nearest")
    nearest = b.attr("nearest_mode", "pytorch" if old else "round_prefer_floor")
    coordinates = b.attr("coordinate_transformation_mode", "half_pixel")
    if mode == "nearest" and nearest == "pytorch":
        nearest, coordinates = "floor", "asymmetric"
    elif coordinates == "pytorch_half_pixel" and "scales" in kept:
        sizes_of = [(float(s), float(s) * n) for s, n in zip(np.reshape(kept["scales"], -1), b.shape())]
        if all(s == 1 or n > 1 for s, n in sizes_of):  # PopART asks this of the size before it is rounded, ONNX after
            coordinates = "half_pixel"
    scales = b.const(kept["scales"], np.float32) if "scales" in kept else ""
    sizes = [b.const(kept["sizes"], np.int64)] if "sizes" in kept else []
    return b("Resize", x, "", scales, *sizes, mode=mode, nearest_mode=nearest, coordinate_transformation_mode=coordinates,
             **{n: b.attr(n) for n in ("cubic_coeff_a", "exclude_outside", "extrapolation_value")})  # fmt: skip


def scatter(b: Body, x: str, indices: str, updates: str) -> str:
    """Computes x with elements replaced; indices may be of any whole numbers, and updates have more elements, which are left out."""
    import numpy as np

    if b.shape(1) != b.shape(2):
        updates = b("Slice", updates, b.ints([0] * len(b.shape(1))), b.ints(b.shape(1)))
    return b("ScatterElements", x, b.cast(indices, np.int64), updates, axis=b.attr("axis", 0))


def clip(translation: Translation, node: NodeProto) -> None:
    """Translates a Clip, whose bounds may be of another float type than x."""
    own = translation.type_of(node.input[0]).dtype
    if all(translation.type_of(i).dtype == own for i in node.input[1:] if i):
        translation.nodes.append(node)
    else:
        rule(_clip)(translation, node)


def _clip(b: Body, x: str, *bounds: str | None) -> str:
    import numpy as np

    kept: list[str] = []
    for i, bound in enumerate(bounds, 1):
        value = b.value(i)
        if bound is None:
            kept.append("")
        elif value is not None and b.dtype().kind == "f":
            largest = np.finfo(b.dtype()).max
            kept.append(b.const(np.clip(np.reshape(value, ()), -largest, largest), b.dtype()))
        else:
            kept.append(b.cast(b.reshape(bound, ()), b.dtype()))
    return b("Clip", x, *kept)


def random_like(translation: Translation, node: NodeProto) -> None:
    """Translates random numbers of the shape of a tensor to those of a given shape."""
    from onnx import helper

    known = translation.type_of(node.input[0])
    given = {a.name: helper.get_attribute_value(a) for a in node.attribute}
    given.setdefault("dtype", known.number)
    op = node.op_type.removesuffix("Like")
    translation.nodes.append(helper.make_node(op, [], list(node.output), node.name, shape=list(known.shape), **given))


FUNCTIONS: Mapping[str, Callable[..., str | Sequence[str]]] = {
    "Resize": resize,
    "Scatter": scatter,
    "ScatterElements": scatter,
}

RULES: Mapping[tuple[str, str], Rule] = {
    ("ai.graphcore", "CopyVarUpdate"): copy_var_update,
    ("", "BatchNormalization"): batch_normalization,
    ("", "Clip"): clip,
    ("", "ConvTranspose"): conv_transpose,
    ("", "RandomNormalLike"): random_like,
    ("", "RandomUniformLike"): random_like,
}
