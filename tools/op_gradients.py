"""The gradient of a single op compared with differences: central ones in double precision, and one-sided ones at ties."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from xdsl.builder import Builder as OpBuilder
from xdsl.dialects.builtin import ArrayAttr, ModuleOp, StringAttr
from xdsl.dialects.func import ReturnOp
from xdsl.ir import Attribute
from xdsl.rewriter import InsertPoint

from populus.dialects.signature import input_names
from populus.dialects.support import user_op_errors
from populus.dialects.support.element_types import dtype_of, element_type_of, shape_of
from populus.dialects.support.element_types import is_float as is_float_type
from populus.dialects.table import context
from populus.lowering.popart.autodiff import PopartAutodiffPass
from populus.lowering.popart.training_names import gradient_name
from populus.tools.op_model import Array, Example, OpModel, function_of

NOISE = 1e-8  # of differences of values of about 1: their rounding over the step
STEP = 1e-6  # step of central differences in double precision, for values of about 1


class Unmet(Exception):
    """A violated part of the contract; the message says how."""


@dataclass(frozen=True)
class Pulled:
    """The gradient of an op as a model. `outputs`: for each input of the op, the output that is its gradient, or None.

    `cotangents`: values of the further inputs, the gradients of the results. `module` is None if there is no output.
    """

    module: ModuleOp | None
    outputs: dict[str, str | None]
    cotangents: dict[str, Array]


def pulled(model: OpModel, example: Example, dtype: str = "float64") -> Pulled:
    """Builds the model of an op's gradients. Raises Unmet if `gradient` gives something else than gradients, NoGradient if it has none."""
    import numpy as np

    module = model.module(example, dtype)
    function, op = function_of(module), model.op(module)
    block, last = function.body.block, function.body.block.last_op
    assert isinstance(last, ReturnOp)
    names = [f"x{i}" for i, o in enumerate(example[0]) if o is not None]  # of the op's operands
    given = [n for n in names if n in input_names(function)]
    if not any(is_float_type(element_type_of(v.type)) for v in op.results):
        return Pulled(None, dict.fromkeys(given), {})
    grads: list[Any] = []
    cotangents: dict[str, Array] = {}
    generator = np.random.default_rng(5)
    for i, result in enumerate(op.results):
        grads.append(block.insert_arg(result.type, len(block.args)))
        cotangents[f"g{i}"] = generator.uniform(0.5, 1.5, shape_of(result.type)).astype(dtype_of(element_type_of(result.type)))
    with user_op_errors.asked(op, "gradient", lambda: op.name):
        found = op.gradient(OpBuilder(InsertPoint.before(last)), grads)
    found = user_op_errors.values(op, "gradient", found, lambda: op.name, none=True)
    if len(found) != len(op.operands):
        raise Unmet(f"gradient gives {len(found)} values for {len(op.operands)} operands")
    for operand, value in zip(op.operands, found):
        if value is not None and value.type != operand.type:
            raise Unmet(f"the gradient of an operand of {operand.type} is {value.type}")
    flows = {n: f"d{n.removeprefix('x')}" for n, v in zip(names, found) if v is not None}
    outputs = {n: flows.get(n) for n in given}
    if not flows:
        return Pulled(None, outputs, cotangents)
    block.insert_op_before(ReturnOp(*(v for v in found if v is not None)), last)
    last.detach()
    last.erase()
    function.update_function_type()
    for key, values in (("input_names", [*given, *cotangents]), ("output_names", list(flows.values()))):
        function.attributes[key] = _names(values)
    module.verify()
    return Pulled(module, outputs, cotangents)


def _gradients(model: OpModel, example: Example, inputs: dict[str, Array]) -> tuple[dict[str, Array | None], dict[str, Array]]:
    """Computes the gradients of the operands, and gives the cotangents."""
    of = pulled(model, example)
    if of.module is None:
        return dict.fromkeys(inputs), of.cotangents
    arrays = model.run(of.module, {**inputs, **of.cotangents}, level="popops")
    return {n: None if (output := of.outputs.get(n)) is None else arrays[output] for n in inputs}, of.cotangents


def _weighted(model: OpModel, module: ModuleOp, inputs: dict[str, Array], cotangents: dict[str, Array]) -> float:
    results = model.run(module, inputs, level="popart").values()
    return float(sum((r * g).sum() for r, g in zip(results, cotangents.values()) if is_float(r)))


def _slope(
    model: OpModel, module: ModuleOp, inputs: dict[str, Array], name: str, at: int, cotangents: dict[str, Array], ends: tuple[float, float]
) -> float:
    values: list[float] = []
    for end in ends:
        moved = {n: a.copy() for n, a in inputs.items()}
        moved[name].reshape(-1)[at] += end
        values.append(_weighted(model, module, moved, cotangents))
    return (values[1] - values[0]) / (ends[1] - ends[0])


def _points(
    model: OpModel, example: Example, inputs: dict[str, Array], most: int = 6
) -> Iterator[tuple[str, int, float, ModuleOp, dict[str, Array]]]:
    """Yields elements of the operands of floats with their gradients, which are 0 where `gradient` gives None."""
    import numpy as np

    module = model.module(example, "float64")
    gradients, cotangents = _gradients(model, example, inputs)
    for name, array in inputs.items():
        gradient = gradients[name]
        if array.dtype.kind in "biu" or array.size == 0:
            continue
        for at in np.random.default_rng(9).choice(array.size, min(array.size, most), replace=False):
            yield name, int(at), 0.0 if gradient is None else float(gradient.reshape(-1)[at]), module, cotangents


def differences(model: OpModel, example: Example, inputs: dict[str, Array], most: int = 6) -> float:
    """Compares gradients with central differences, at `most` elements of each operand; gives the largest error. Raises Unmet."""
    worst = 0.0
    for name, at, gradient, module, cotangents in _points(model, example, inputs, most):
        slope = _slope(model, module, inputs, name, at, cotangents, (-STEP, STEP))
        noise = NOISE * max(1.0, abs(_weighted(model, module, inputs, cotangents)))
        off = abs(slope - gradient)
        if not off < 1e-5 * max(abs(slope), abs(gradient)) + noise:
            raise Unmet(
                f"the gradient of {name}, element {at} at {inputs[name].reshape(-1)[at]:g}, is {gradient:.6g}; differences give {slope:.6g}"
            )
        worst = max(worst, off / max(1.0, abs(slope)))
    return worst


def second(model: OpModel, example: Example, inputs: dict[str, Array]) -> float | None:
    """Compares the gradient of the gradient with differences of the gradient; gives the largest error, None if nothing flows twice.

    Raises Unmet if they differ, and NoGradient if an op of the gradient has none.
    """
    import numpy as np

    of = pulled(model, example)
    given = {**inputs, **of.cotangents}
    wrt = [n for n, a in inputs.items() if is_float(a) and a.size]
    if of.module is None or not wrt:
        return None
    module, weights = of.module, np.random.default_rng(6)
    model.doing = "differentiating its gradient"
    first = model.run(module, given, level="popops")
    factors = {n: weights.uniform(0.5, 1.5, a.shape).astype(a.dtype) for n, a in first.items()}
    twice = module.clone()
    PopartAutodiffPass(wrt=tuple(wrt)).apply(context(), twice)
    both = model.run(twice, {**given, **{gradient_name(n): f for n, f in factors.items()}}, level="popops")
    found = {n: both[gradient_name(n)] for n in wrt}

    def total(moved: dict[str, Array]) -> float:
        values = model.run(module, moved, level="popops")
        return float(sum((values[n] * f).sum() for n, f in factors.items()))

    worst, noise = 0.0, NOISE * max(1.0, abs(total(given)))
    for name in wrt:
        for at in np.random.default_rng(9).choice(given[name].size, min(given[name].size, 3), replace=False):
            ends: list[float] = []
            for step in (-STEP, STEP):
                moved = {**given, name: given[name].copy()}
                moved[name].reshape(-1)[at] += step
                ends.append(total(moved))
            slope, gradient = (ends[1] - ends[0]) / (2 * STEP), float(found[name].reshape(-1)[at])
            off = abs(slope - gradient)
            if not off < 1e-5 * max(abs(slope), abs(gradient)) + noise:
                raise Unmet(
                    f"the gradient of the gradient, of {name}, element {at} at {given[name].reshape(-1)[at]:g}, "
                    f"is {gradient:.6g}; differences of the gradient give {slope:.6g}"
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


def is_float(a: Array) -> bool:
    """Tells whether an array is of NumPy's floats."""
    return a.dtype.kind == "f"


def _names(names: Sequence[str]) -> Attribute:
    return ArrayAttr([StringAttr(name) for name in names])
