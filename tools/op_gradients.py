"""The gradient of a single op compared with differences: central ones in double precision, and one-sided ones at ties."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from xdsl.builder import Builder as OpBuilder
from xdsl.dialects.builtin import ArrayAttr, ModuleOp, StringAttr
from xdsl.dialects.func import ReturnOp
from xdsl.ir import Attribute
from xdsl.rewriter import InsertPoint

from populus.dialects.support import user_op_errors
from populus.dialects.support.element_types import dtype_of, element_type_of, shape_of
from populus.tools.op_model import Array, Example, OpModel, function_of

NOISE = 1e-8  # of differences of values of about 1: their rounding over the step
STEP = 1e-6  # step of central differences in double precision, for values of about 1


class Unmet(Exception):
    """A violated part of the contract; the message says how."""


def _gradients(model: OpModel, example: Example, inputs: dict[str, Array]) -> tuple[list[Array | None], dict[str, Array]]:
    """Computes the gradients of the operands, and the inputs including the cotangents."""
    import numpy as np

    module = model.module(example, "float64")
    function, op = function_of(module), model.op(module)
    block, last = function.body.block, function.body.block.last_op
    assert isinstance(last, ReturnOp)
    given = dict(inputs)
    grads: list[Any] = []
    generator = np.random.default_rng(5)
    for i, result in enumerate(op.results):
        grads.append(block.insert_arg(result.type, len(block.args)))
        given[f"g{i}"] = generator.uniform(0.5, 1.5, shape_of(result.type)).astype(dtype_of(element_type_of(result.type)))
    with user_op_errors.asked(op, "gradient", lambda: op.name):
        found = op.gradient(OpBuilder(InsertPoint.before(last)), grads)
    found = user_op_errors.values(op, "gradient", found, lambda: op.name, none=True)
    if len(found) != len(op.operands):
        raise Unmet(f"gradient gives {len(found)} values for {len(op.operands)} operands")
    for operand, value in zip(op.operands, found):
        if value is not None and value.type != operand.type:
            raise Unmet(f"the gradient of an operand of {operand.type} is {value.type}")
    outputs = [v for v in found if v is not None]
    if not outputs:
        return [None] * len(found), {n: a for n, a in given.items() if n not in inputs}
    names = [f"d{i}" for i, v in enumerate(found) if v is not None]
    block.insert_op_before(ReturnOp(*outputs), last)
    last.detach()
    last.erase()
    function.update_function_type()
    for key, values in (("input_names", list(given)), ("output_names", names)):
        function.attributes[key] = _names(values)
    module.verify()
    arrays = model.run(module, given, level="popops")
    return [arrays.get(f"d{i}") for i in range(len(found))], {n: a for n, a in given.items() if n not in inputs}


def _weighted(model: OpModel, module: ModuleOp, inputs: dict[str, Array], cotangents: dict[str, Array]) -> float:
    results = model.run(module, inputs, level="popart").values()
    return float(sum((r * g).sum() for r, g in zip(results, cotangents.values())))


def _slope(
    model: OpModel, module: ModuleOp, inputs: dict[str, Array], name: str, at: int, cotangents: dict[str, Array], ends: tuple[float, float]
) -> float:
    values: list[float] = []
    for end in ends:
        moved = {n: a.copy() for n, a in inputs.items()}
        moved[name].reshape(-1)[at] += end
        values.append(_weighted(model, module, moved, cotangents))
    return (values[1] - values[0]) / (ends[1] - ends[0])


def _points(model: OpModel, example: Example, inputs: dict[str, Array]) -> Iterator[tuple[str, int, float, ModuleOp, dict[str, Array]]]:
    """Yields elements of the operands of floats with their gradients, which are 0 where `gradient` gives None."""
    import numpy as np

    module = model.module(example, "float64")
    gradients, cotangents = _gradients(model, example, inputs)
    for (name, array), gradient in zip(inputs.items(), gradients):
        if array.dtype.kind in "biu" or array.size == 0:
            continue
        for at in np.random.default_rng(9).choice(array.size, min(array.size, 6), replace=False):
            yield name, int(at), 0.0 if gradient is None else float(gradient.reshape(-1)[at]), module, cotangents


def differences(model: OpModel, example: Example, inputs: dict[str, Array]) -> float:
    worst = 0.0
    for name, at, gradient, module, cotangents in _points(model, example, inputs):
        slope = _slope(model, module, inputs, name, at, cotangents, (-STEP, STEP))
        noise = NOISE * max(1.0, abs(_weighted(model, module, inputs, cotangents)))
        off = abs(slope - gradient)
        if not off < 1e-5 * max(abs(slope), abs(gradient)) + noise:
            raise Unmet(
                f"the gradient of {name}, element {at} at {inputs[name].reshape(-1)[at]:g}, is {gradient:.6g}; differences give {slope:.6g}"
            )
        worst = max(worst, off / max(1.0, abs(slope)))
    return worst


def one_sided(model: OpModel, example: Example, inputs: dict[str, Array]) -> str:
    import math

    kept = "smooth"
    for name, at, gradient, module, cotangents in _points(model, example, inputs):
        left, right = (_slope(model, module, inputs, name, at, cotangents, ends) for ends in ((-STEP, 0.0), (0.0, STEP)))
        if not (math.isfinite(left) and math.isfinite(right)) or max(abs(left), abs(right)) > 1e3:
            kept = "not differentiable there"
            continue
        slack = 1e-4 * max(1.0, abs(left), abs(right))
        if math.isnan(gradient):
            kept = "NaN there"
        elif not min(left, right) - slack <= gradient <= max(left, right) + slack:
            raise Unmet(
                f"at {inputs[name].reshape(-1)[at]:g} the gradient of {name} is {gradient:.6g}; its sides have {left:.6g} and {right:.6g}"
            )
        elif abs(left - right) > 2 * slack:
            kept = (
                "the side of the right"
                if abs(gradient - right) <= slack
                else "the side of the left"
                if abs(gradient - left) <= slack
                else "between the sides"
            )
    return kept


def _names(names: Sequence[str]) -> Attribute:
    return ArrayAttr([StringAttr(name) for name in names])
