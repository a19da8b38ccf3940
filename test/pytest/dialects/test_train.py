"""Losses and optimizers against formulas written out in NumPy, in f64, over several steps."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from xdsl.dialects.builtin import ArrayAttr, ModuleOp, StringAttr, TensorType
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Block, Region

from populus.dialects.popart import train
from populus.dialects.support.diagnostics import verify
from populus.dialects.support.element_types import element_of
from populus.dialects.table import context
from populus.lowering.popart.autodiff import PopartAutodiffPass
from populus.lowering.popart.to_popops import PopartToPopopsPass
from populus.runtime.interpreter import run_function

Array = Any
RATE, DECAY = 0.05, 0.1


def module_of(op: type, arrays: dict[str, Array], **properties: Any) -> ModuleOp:
    block = Block(arg_types=[TensorType(element_of(a.dtype), list(a.shape)) for a in arrays.values()])
    made = op(*block.args, **properties)
    block.add_ops([made, ReturnOp(*made.results)])
    function = FuncOp("main", ([a.type for a in block.args], [r.type for r in made.results]), Region(block))
    function.attributes["input_names"] = ArrayAttr([StringAttr(n) for n in arrays])
    function.attributes["output_names"] = ArrayAttr([StringAttr(f"y{i}") for i in range(len(made.results))])
    module = ModuleOp([function])
    verify(module)
    return module


def sgd(w, g, t, s, k):
    return w - RATE * (g + DECAY * w)


def momentum(w, g, t, s, k, nesterov=False):
    d = g + DECAY * w
    s["velocity"] = d if t == 1 else k["momentum"] * s["velocity"] + (1 - k["damping"]) * d
    return w - RATE * (d + k["momentum"] * s["velocity"] if nesterov else s["velocity"])


def nesterov(w, g, t, s, k):
    return momentum(w, g, t, s, k, nesterov=True)


def moments(d, t, s, k):
    b1, b2 = 1 - k["rest1"], 1 - k["rest2"]
    s["mean"] = b1 * s["mean"] + (1 - b1) * d
    s["square"] = b2 * s["square"] + (1 - b2) * d**2
    return s["mean"] / (1 - b1**t) / (np.sqrt(s["square"] / (1 - b2**t)) + k["epsilon"])


def adam(w, g, t, s, k):
    return w - RATE * moments(g + DECAY * w, t, s, k)


def adamw(w, g, t, s, k):
    x = moments(g, t, s, k)
    return w - RATE * DECAY * w - RATE * x


def lamb(w, g, t, s, k):
    x = moments(g, t, s, k) + DECAY * w
    return w - RATE * np.linalg.norm(w) / np.linalg.norm(x) * x


def lamb_limited(w, g, t, s, k):
    x = moments(g, t, s, k) + DECAY * w
    return w - RATE * min(np.linalg.norm(w), k["limit"]) / np.linalg.norm(x) * x


def adam_biased(w, g, t, s, k):
    return w - RATE * moments(g + DECAY * w, 1e9, s, k)  # after so many steps both corrections are 1


def adamax(w, g, t, s, k, outside=False):
    d, b1, b2 = g + DECAY * w, 1 - k["rest1"], 1 - k["rest2"]
    s["mean"] = b1 * s["mean"] + (1 - b1) * d
    s["square"] = np.maximum(b2 * s["square"], np.abs(d) + (0 if outside else k["epsilon"]))
    return w - RATE / (1 - b1**t) * s["mean"] / (s["square"] + (k["epsilon"] if outside else 0))


def adamax_outside(w, g, t, s, k):
    return adamax(w, g, t, s, k, outside=True)


def velocity(w, g, t, s, k, ahead=False):
    d = g + DECAY * w
    s["velocity"] = k["momentum"] * s["velocity"] + (1 - k["damping"]) * d
    return w - RATE * (d + k["momentum"] * s["velocity"] if ahead else s["velocity"])


def velocity_ahead(w, g, t, s, k):
    return velocity(w, g, t, s, k, ahead=True)


def rmsprop(w, g, t, s, k, centered=False):
    d, b = g + DECAY * w, 1 - k["rest"]
    s["square"] = b * s["square"] + (1 - b) * d**2
    if centered:
        s["mean"] = b * s["mean"] + (1 - b) * d
    s["velocity"] = k["momentum"] * s["velocity"] + d / (np.sqrt(s["square"] - s["mean"] ** 2) + k["epsilon"])
    return w - RATE * s["velocity"]


def rmsprop_inside(w, g, t, s, k):
    d, b = g + DECAY * w, 1 - k["rest"]
    s["square"] = b * s["square"] + (1 - b) * d**2
    s["velocity"] = k["momentum"] * s["velocity"] + d / np.sqrt(s["square"] + k["epsilon"])
    return w - RATE * s["velocity"]


def rmsprop_sum(w, g, t, s, k):
    d = g + DECAY * w
    s["square"] = s["square"] + d**2
    s["velocity"] = k["momentum"] * s["velocity"] + d / (np.sqrt(s["square"]) + k["epsilon"])
    return w - RATE * s["velocity"]


def rmsprop_moving(w, g, t, s, k):
    d, b = g + DECAY * w, 1 - k["rest"]
    s["square"] = b * s["square"] + (1 - b) * d**2
    x = np.sqrt(s["mean"] + k["epsilon"]) / np.sqrt(s["square"] + k["epsilon"]) * d
    s["mean"] = b * s["mean"] + (1 - b) * x**2
    s["velocity"] = k["momentum"] * s["velocity"] + x
    return w - RATE * s["velocity"]


def rmsprop_centered(w, g, t, s, k):
    return rmsprop(w, g, t, s, k, centered=True)


def adagrad(w, g, t, s, k):
    d = g + DECAY * w
    s["square"] = s["square"] + d**2
    return w - RATE / (1 + (t - 1) * k["slowing"]) * d / (np.sqrt(s["square"]) + k["epsilon"])


def adadelta(w, g, t, s, k):
    d, b = g + DECAY * w, 1 - k["rest"]
    s["square"] = b * s["square"] + (1 - b) * d**2
    x = np.sqrt(s["moved"] + k["epsilon"]) / np.sqrt(s["square"] + k["epsilon"]) * d
    s["moved"] = b * s["moved"] + (1 - b) * x**2
    return w - RATE * x


ADAM = {"rest1": 0.1, "rest2": 0.001, "epsilon": 1e-8}
RMSPROP = {"rest": 0.01, "epsilon": 1e-8, "momentum": 0.5}
ROWS: list[tuple[type[train.OptimizerOp], Any, dict[str, float], dict[str, bool | str]]] = [
    (train.SgdOp, sgd, {}, {}),
    (train.MomentumOp, momentum, {"momentum": 0.9, "damping": 0.2}, {}),
    (train.MomentumOp, nesterov, {"momentum": 0.9, "damping": 0.0}, {"nesterov": True}),
    (train.VelocityOp, velocity, {"momentum": 0.9, "damping": 0.2}, {}),
    (train.VelocityOp, velocity_ahead, {"momentum": 0.9, "damping": 0.2}, {"nesterov": True}),
    (train.AdamOp, adam, ADAM, {}),
    (train.AdamOp, adam_biased, ADAM, {"biased": True}),
    (train.AdamWOp, adamw, ADAM, {}),
    (train.LambOp, lamb, {**ADAM, "limit": math.inf}, {}),
    (train.LambOp, lamb_limited, {**ADAM, "limit": 0.5}, {}),
    (train.AdaMaxOp, adamax, ADAM, {}),
    (train.AdaMaxOp, adamax_outside, {**ADAM, "epsilon": 0.25}, {"outside": True}),
    (train.RmsPropOp, rmsprop, RMSPROP, {}),
    (train.RmsPropOp, rmsprop_centered, RMSPROP, {"centered": True}),
    (train.RmsPropOp, rmsprop_inside, {**RMSPROP, "epsilon": 0.25}, {"inside": True}),
    (train.RmsPropOp, rmsprop_sum, RMSPROP, {"squares": "sum"}),
    (train.RmsPropOp, rmsprop_moving, {**RMSPROP, "epsilon": 1e-6}, {"moving": True}),
    (train.AdagradOp, adagrad, {"slowing": 0.1, "epsilon": 1e-10}, {}),
    (train.AdadeltaOp, adadelta, {"rest": 0.1, "epsilon": 1e-6}, {}),
]


def test_every_optimizer_has_a_row():
    assert {row[0] for row in ROWS} == {op for op in train.TRAIN.operations if issubclass(op, train.OptimizerOp)}


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.float16])
@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[1].__name__)
def test_an_optimizer_is_its_formula(row, dtype):
    op, formula, k, properties = row
    g = np.random.default_rng(3)
    inside = np.dtype(np.float32 if dtype == np.float16 else dtype)
    scalars = {"rate": RATE, "decay": DECAY, **k}
    weight = g.standard_normal((3, 4)).astype(dtype)
    type = TensorType(element_of(weight.dtype), [3, 4])
    state = {n: np.zeros(t.get_shape(), inside) for n, t in zip(op.STATE, op.state_types(type))}
    expected, memory = weight.astype(np.float64), {n: a.astype(np.float64) for n, a in state.items()}
    arrays = {"weight": weight, "gradient": weight, **state, **{n: np.array(scalars[n], inside) for n in op.SCALARS}}
    module = module_of(op, arrays, **properties)
    library = module.clone()
    PopartToPopopsPass().apply(context(), library)
    for t in range(1, 6):
        arrays["gradient"] = g.standard_normal((3, 4)).astype(dtype)
        expected = formula(expected, arrays["gradient"].astype(np.float64), t, memory, scalars)
        results = list(run_function(module, arrays).values())
        for found, other in zip(results, run_function(library, arrays).values()):
            assert np.array_equal(found, other)
        arrays.update(zip(["weight", *op.STATE], results))
        assert arrays["weight"].dtype == dtype
        tolerance = {8: 1e-11, 4: 1e-5, 2: 4e-3}[np.dtype(dtype).itemsize]
        np.testing.assert_allclose(arrays["weight"].astype(np.float64), expected, rtol=tolerance, atol=tolerance)
    if "step" in state:
        assert arrays["step"] == 5


def softmax(x, axis):
    e = np.exp(x - x.max(axis, keepdims=True))
    return e / e.sum(axis, keepdims=True)


@pytest.mark.parametrize(("shape", "axis"), [((5, 4), 1), ((2, 3, 5), 1), ((2, 3, 5), 2)])
def test_cross_entropy_and_its_gradient(shape, axis):
    g = np.random.default_rng(4)
    x = g.standard_normal(shape) * 3
    labels = g.integers(0, shape[axis], [n for d, n in enumerate(shape) if d != axis]).astype(np.int32)
    dy = g.standard_normal(labels.shape)
    p = softmax(x, axis)
    chosen = np.expand_dims(labels, axis) == np.arange(shape[axis]).reshape([-1 if d == axis else 1 for d in range(len(shape))])
    module = module_of(train.CrossEntropyOp, {"x": x, "labels": labels}, axis=axis)
    PopartAutodiffPass(("x",)).apply(context(), module)
    for lower in (False, True):
        if lower:
            PopartToPopopsPass().apply(context(), module)
        found = run_function(module, {"x": x, "labels": labels, "Gradient___y0": dy})
        np.testing.assert_allclose(found["y0"], -np.log((p * chosen).sum(axis)))
        np.testing.assert_allclose(found["Gradient___x"], (p - chosen) * np.expand_dims(dy, axis), atol=1e-12)


def test_cross_entropy_of_certain_logits_is_finite():
    x = np.array([[1e4, 0.0], [-np.inf, 0.0]], np.float32)
    found = run_function(
        module_of(train.CrossEntropyOp, {"x": x, "labels": np.array([0, 1], np.int32)}), {"x": x, "labels": np.array([0, 1], np.int32)}
    )
    assert found["y0"].tolist() == [0, 0]


ERRORS = [
    (train.SquaredErrorOp, lambda a, b: (a - b) ** 2),
    (train.AbsoluteErrorOp, lambda a, b: np.abs(a - b)),
    (train.BinaryCrossEntropyOp, lambda a, b: -(b * np.log(1 / (1 + np.exp(-a))) + (1 - b) * np.log(1 - 1 / (1 + np.exp(-a))))),
]


@pytest.mark.parametrize(("op", "formula"), ERRORS, ids=lambda v: getattr(v, "__name__", ""))
def test_an_error_and_its_gradient(op, formula):
    g = np.random.default_rng(5)
    a, b, dy, h = g.standard_normal((3, 4)), g.uniform(0.1, 0.9, (3, 4)), g.standard_normal((3, 4)), 1e-6
    module = module_of(op, {"a": a, "b": b})
    PopartAutodiffPass(("a", "b")).apply(context(), module)
    found = run_function(module, {"a": a, "b": b, "Gradient___y0": dy})
    np.testing.assert_allclose(found["y0"], formula(a, b))
    np.testing.assert_allclose(found["Gradient___a"], dy * (formula(a + h, b) - formula(a - h, b)) / (2 * h), rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(found["Gradient___b"], dy * (formula(a, b + h) - formula(a, b - h)) / (2 * h), rtol=1e-6, atol=1e-8)


def test_the_gradient_of_binary_cross_entropy_at_zero_is_a_half_less_the_label():
    a = np.zeros(2, np.float32)
    module = module_of(train.BinaryCrossEntropyOp, {"a": a, "b": a})
    PopartAutodiffPass(("a",)).apply(context(), module)
    found = run_function(module, {"a": a, "b": np.array([0, 1], np.float32), "Gradient___y0": np.ones(2, np.float32)})
    assert found["Gradient___a"].tolist() == [0.5, -0.5]
