"""Gradients and optimizers of `ai.onnx.preview.training`; these for any number of tensors: all weights, then all gradients, then states."""

from __future__ import annotations

from collections.abc import Callable

from xdsl.dialects.builtin import ModuleOp

from populus.lowering.onnx.to_popart.conversion import Conversion, Output, Rule, Rules, element, shape, texts
from populus.lowering.onnx.to_popart.formula import Term

Step = Callable[[Conversion, Term, Term, list[Term]], list[Term]]  # rate, count, (weight, gradient, states) -> weight, states


def optimizer(step: Step, states: int) -> Rule:
    def rule(c: Conversion) -> list[Output]:
        rate, count, *tensors = (Term(c, c.input(i)) for i in range(len(c.inputs)))
        n = len(tensors) // (2 + states)
        rate, count = rate.reshape(), count.reshape()
        found = [step(c, rate, count, tensors[i::n]) for i in range(n)]
        return [results[k].value for k in range(1 + states) for results in found]

    return rule


def adagrad(c: Conversion, rate: Term, count: Term, given: list[Term]) -> list[Term]:
    """Source: Adagrad-1."""
    x, g, h = given
    slower = rate / (count.cast(element(rate.value)) * c.get("decay_factor") + 1)
    g = x * c.get("norm_coefficient") + g
    h = h + g * g
    return [x - slower * g / (h.sqrt() + c.get("epsilon")), h]


def adam(c: Conversion, rate: Term, count: Term, given: list[Term]) -> list[Term]:
    """Source: Adam-1."""
    x, g, v, h = given
    alpha, beta = c.get("alpha"), c.get("beta")
    g = x * c.get("norm_coefficient") + g
    v = v * alpha + g * (1 - alpha)
    h = h * beta + g * g * (1 - beta)
    t = count.cast(element(rate.value))
    corrected = rate * (1 - t.power(beta, swapped=True)).sqrt() / (1 - t.power(alpha, swapped=True))
    rate = (count > 0).where(corrected, rate)
    moved = x - rate * (v / (h.sqrt() + c.get("epsilon")))
    return [moved * (1 - c.get("norm_coefficient_post")), v, h]


def momentum(c: Conversion, rate: Term, count: Term, given: list[Term]) -> list[Term]:
    """Source: Momentum-1; the first gradient counts in full."""
    x, g, v = given
    g = x * c.get("norm_coefficient") + g
    v = v * c.get("alpha") + (count > 0).where(g * c.get("beta"), g)
    return [x - rate * (g + v * c.get("alpha") if c.get("mode") == "nesterov" else v), v]


def gradient(c: Conversion) -> list[Output]:
    """The gradients of y, summed over its elements, with respect to the tensors `xs`. Source: Gradient-1.

    The import gives the op y as a last operand. A tensor that y does not depend on has a gradient of zeros.
    """
    from populus.lowering.popart.autodiff import Seed, differentiate
    from populus.lowering.popart.autodiff.call_gradients import CallGradients

    names = texts(c.op.properties.get("xs"))
    *_, y = c.inputs
    assert y is not None, c.op
    xs = [c.input(i) for i in range(len(names))]
    block = c.op.parent
    assert block is not None, c.op
    one = c.expand(c.scalar(1, y), shape(y))
    found = differentiate(block, [Seed(str(c.get("y")), y, one)], xs, CallGradients(ModuleOp([])), before=c.op)  # there are no calls yet
    return [found[x] for x in xs]


RULES: Rules = {
    "ai.onnx.preview.training.Adagrad": optimizer(adagrad, 1),
    "ai.onnx.preview.training.Adam": optimizer(adam, 2),
    "ai.onnx.preview.training.Gradient": gradient,
    "ai.onnx.preview.training.Momentum": optimizer(momentum, 1),
}
