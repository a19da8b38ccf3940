"""Conversions of gradients and optimizers of `ai.onnx.preview.training`.

An optimizer node updates any number of tensors: all weights, then all gradients, then all states.
"""

from __future__ import annotations

from collections.abc import Callable

from xdsl.dialects.builtin import ModuleOp

from populus.lowering.onnx.to_popart.conversion import Conversion, Output, Rule, Rules, element, shape, texts
from populus.lowering.onnx.to_popart.formula import Term

UpdateStep = Callable[[Conversion, Term, Term, list[Term]], list[Term]]
"""Computes the new weight and states from the rate, the count, and (weight, gradient, states)."""


def optimizer(step: UpdateStep, states: int) -> Rule:
    """Makes the rule of an optimizer with `states` states for each weight. `step`: the update of one weight."""

    def rule(c: Conversion) -> list[Output]:
        rate, count, *tensors = (Term(c, c.input(i)) for i in range(len(c.inputs)))
        n = len(tensors) // (2 + states)
        rate, count = rate.reshape(), count.reshape()
        updates = [step(c, rate, count, tensors[i::n]) for i in range(n)]
        return [update[k].value for k in range(1 + states) for update in updates]

    return rule


def adagrad(c: Conversion, rate: Term, count: Term, tensors: list[Term]) -> list[Term]:
    """Updates a weight. Source: Adagrad-1."""
    x, g, h = tensors
    slower = rate / (count.cast(element(rate.value)) * c.get("decay_factor") + 1)
    g = x * c.get("norm_coefficient") + g
    h = h + g * g
    return [x - slower * g / (h.sqrt() + c.get("epsilon")), h]


def adam(c: Conversion, rate: Term, count: Term, tensors: list[Term]) -> list[Term]:
    """Updates a weight. Source: Adam-1."""
    x, g, v, h = tensors
    alpha, beta = c.get("alpha"), c.get("beta")
    g = x * c.get("norm_coefficient") + g
    v = v * alpha + g * (1 - alpha)
    h = h * beta + g * g * (1 - beta)
    t = count.cast(element(rate.value))
    corrected = rate * (1 - t.power(beta, swapped=True)).sqrt() / (1 - t.power(alpha, swapped=True))
    rate = (count > 0).where(corrected, rate)
    moved = x - rate * (v / (h.sqrt() + c.get("epsilon")))
    return [moved * (1 - c.get("norm_coefficient_post")), v, h]


def momentum(c: Conversion, rate: Term, count: Term, tensors: list[Term]) -> list[Term]:
    """Updates a weight; the first gradient counts in full. Source: Momentum-1."""
    x, g, v = tensors
    g = x * c.get("norm_coefficient") + g
    v = v * c.get("alpha") + (count > 0).where(g * c.get("beta"), g)
    return [x - rate * (g + v * c.get("alpha") if c.get("mode") == "nesterov" else v), v]


def gradient(c: Conversion) -> list[Output]:
    """Converts Gradient: the gradients of y, summed over its elements, with respect to the tensors `xs`.

    The importer makes y the last operand. A tensor that y does not depend on has a gradient of zeros. Source:
    Gradient-1.
    """
    # Imported here: only models with a Gradient need the reverse walk.
    from populus.lowering.popart.autodiff import Seed, differentiate
    from populus.lowering.popart.autodiff.call_gradients import CallGradients

    names = texts(c.op.properties.get("xs"))
    *_, y = c.inputs
    assert y is not None, c.op
    xs = [c.input(i) for i in range(len(names))]
    block = c.op.parent
    assert block is not None, c.op
    one = c.expand(c.scalar(1, y), shape(y))
    calls = CallGradients(ModuleOp([]))  # there are no calls yet
    gradients = differentiate(block, [Seed(str(c.get("y")), y, one)], xs, calls, before=c.op)
    return [gradients[x] for x in xs]


RULES: Rules = {
    "ai.onnx.preview.training.Adagrad": optimizer(adagrad, 1),
    "ai.onnx.preview.training.Adam": optimizer(adam, 2),
    "ai.onnx.preview.training.Gradient": gradient,
    "ai.onnx.preview.training.Momentum": optimizer(momentum, 1),
}
