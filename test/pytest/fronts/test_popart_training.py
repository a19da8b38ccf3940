"""Loss curves of 100 steps of `TrainingSession`, compared with torch where it is installed, and with formulas in float64."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest

from helpers.popart_programs import CPU, Array
from populus import popart

STEPS, BATCH = 100, 8
G = np.random.default_rng(11)
DATA = G.normal(size=(STEPS, BATCH, 6)).astype(np.float32)
LABELS = (DATA.sum(2) > 0).astype(np.int32) + (DATA[:, :, 0] > 1)
START = {
    "w1": (G.normal(size=(6, 5)) / 2).astype(np.float32),
    "b1": np.zeros(5, np.float32),
    "w2": (G.normal(size=(5, 3)) / 2).astype(np.float32),
}


def curve(optimizer: popart.Optimizer, options: popart.SessionOptions | None = None) -> Array:
    """Trains a net of two layers for 100 steps; gives the losses."""
    b = popart.Builder()
    x, y = b.addInputTensor("FLOAT", [BATCH, 6]), b.addInputTensor("INT32", [BATCH])
    w = {name: b.addInitializedInputTensor(array, name) for name, array in START.items()}
    h = b.aiOnnx.tanh([b.aiOnnx.add([b.aiOnnx.matmul([x, w["w1"]]), w["b1"]])])
    p = b.aiOnnx.logsoftmax([b.aiOnnx.matmul([h, w["w2"]])], axis=1)
    loss = b.aiGraphcore.nllloss([p, y], popart.ReductionType.Mean, inputIsLogProbability=True)
    flow = popart.DataFlow(STEPS, [loss])
    session = popart.TrainingSession(b.getModelProto(), flow, loss, optimizer, CPU, userOptions=options)
    session.prepareDevice()
    session.weightsFromHost()
    anchors = session.initAnchorArrays()
    session.run(popart.PyStepIO({x: DATA, y: LABELS.astype(np.int32)}, anchors))
    return anchors[loss]


def constants(**values: float) -> dict[str, tuple[float, bool]]:
    """Gives hyperparameters that may change."""
    return {f"default{name}" if name != "lossScaling" else name: (value, False) for name, value in values.items()}


ADAM, DECAY = popart.AdamMode, popart.WeightDecayMode
KIND = popart.AdaptiveMode
# PopART's optimizer, and torch's by its name with its arguments.
PAIRS: list[tuple[popart.Optimizer, str, Mapping[str, Any]]] = [
    (popart.ConstSGD(0.1), "SGD", {"lr": 0.1}),
    (popart.ConstSGD(0.1, weight_decay=0.02, loss_scaling=64), "SGD", {"lr": 0.1, "weight_decay": 0.02}),
    (popart.SGD(constants(LearningRate=0.1, Momentum=0.9)), "SGD", {"lr": 0.1, "momentum": 0.9}),
    (
        popart.SGD(constants(LearningRate=0.05, Momentum=0.8, WeightDecay=0.01, lossScaling=128, VelocityScaling=0.25)),
        "SGD",
        {"lr": 0.05, "momentum": 0.8, "weight_decay": 0.01},
    ),
    (
        popart.SGD({**constants(LearningRate=0.05, Momentum=0.8), "defaultNesterov": (True, True)}),
        "SGD",
        {"lr": 0.05, "momentum": 0.8, "nesterov": True},
    ),
    (popart.Adam(constants(LearningRate=0.01, Eps=1e-8)), "Adam", {"lr": 0.01}),
    (popart.Adam(constants(LearningRate=0.01, Eps=1e-8, lossScaling=256)), "Adam", {"lr": 0.01}),
    (popart.Adam(constants(LearningRate=0.01, Eps=1e-8, WeightDecay=0.05)), "AdamW", {"lr": 0.01, "weight_decay": 0.05}),
    (
        popart.Adam(constants(LearningRate=0.01, Eps=1e-8, WeightDecay=0.05), weight_decay_mode=DECAY.L2Regularization),
        "Adam",
        {"lr": 0.01, "weight_decay": 0.05},
    ),
    (popart.Adam(constants(LearningRate=0.01, Eps=1e-8), mode=ADAM.AdaMax), "Adamax", {"lr": 0.01, "eps": 1e-8}),
    (popart.Adaptive(constants(LearningRate=0.01, Eps=1e-6), mode=KIND.RMSProp), "RMSprop", {"lr": 0.01, "eps": 1e-6}),
    (
        popart.Adaptive(constants(LearningRate=0.01, Eps=1e-4, Momentum=0.5), mode=KIND.CenteredRMSProp),
        "RMSprop",
        {"lr": 0.01, "eps": 1e-4, "momentum": 0.5, "centered": True},
    ),
    (popart.Adaptive(constants(LearningRate=0.05, Eps=1e-6), mode=KIND.AdaGrad), "Adagrad", {"lr": 0.05, "eps": 1e-6}),
    (popart.Adaptive(constants(LearningRate=1.0, Eps=1e-6, Alpha=0.9), mode=KIND.AdaDelta), "Adadelta", {"lr": 1.0, "eps": 1e-6}),
]


def torch_curve(torch: Any, name: str, given: Mapping[str, Any]) -> Array:
    """Trains the same net by torch in float64; gives the losses."""
    w = {n: torch.tensor(a.astype(np.float64), requires_grad=True) for n, a in START.items()}
    optimizer = getattr(torch.optim, name)(w.values(), **given)
    losses: list[float] = []
    for x, y in zip(DATA, LABELS):
        optimizer.zero_grad()
        h = torch.tanh(torch.tensor(x.astype(np.float64)) @ w["w1"] + w["b1"])
        loss = torch.nn.functional.cross_entropy(h @ w["w2"], torch.tensor(y.astype(np.int64)))
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    return np.array(losses)


@pytest.mark.parametrize(("optimizer", "name", "given"), PAIRS, ids=[f"{name}-{i}" for i, (_, name, _) in enumerate(PAIRS)])
def test_a_curve_of_100_steps_is_that_of_torch(optimizer, name, given):
    torch = pytest.importorskip("torch", reason="torch is not installed")
    np.testing.assert_allclose(curve(optimizer), torch_curve(torch, name, given), rtol=1e-5, atol=1e-5)


def gradients(w: Mapping[str, Array], x: Array, y: Array) -> tuple[float, dict[str, Array]]:
    """Computes the loss and the gradients of the net in float64."""
    h = np.tanh(x @ w["w1"] + w["b1"])
    z = h @ w["w2"]
    p = np.exp(z - z.max(1, keepdims=True))
    p /= p.sum(1, keepdims=True)
    rows = np.arange(len(y))
    loss = -np.log(p[rows, y]).mean()
    p[rows, y] -= 1
    dz = p / len(y)
    dh = dz @ w["w2"].T * (1 - h * h)
    return float(loss), {"w1": x.T @ dh, "b1": dh.sum(0), "w2": h.T @ dz}


Step = Callable[[Array, Array, dict[str, Array], int], Array]


def formula_curve(step: Step, clip: float | None = None) -> Array:
    """Trains the net by a formula in float64; gives the losses."""
    w = {n: a.astype(np.float64) for n, a in START.items()}
    states: dict[str, dict[str, Array]] = {n: {"m": np.zeros_like(a), "v": np.zeros_like(a)} for n, a in w.items()}
    losses: list[float] = []
    for t, (x, y) in enumerate(zip(DATA.astype(np.float64), LABELS), 1):
        loss, g = gradients(w, x, y)
        if clip is not None:
            norm = np.sqrt(sum((a**2).sum() for a in g.values()))
            g = {n: a * clip / max(norm, clip) for n, a in g.items()}
        w = {n: step(w[n], g[n], states[n], t) for n in w}
        losses.append(loss)
    return np.array(losses)


def adam_step(bias: bool, lamb: bool) -> Step:
    """Makes the formula of Adam or Lamb, with a decay of 0.01 in the step, with or without correction of the first steps."""

    def step(w: Array, g: Array, states: dict[str, Array], t: int) -> Array:
        m = states["m"] = 0.9 * states["m"] + 0.1 * g
        v = states["v"] = 0.999 * states["v"] + 0.001 * g * g
        if bias:
            m, v = m / (1 - 0.9**t), v / (1 - 0.999**t)
        x = m / (np.sqrt(v) + 1e-6) + 0.01 * w
        sizes = np.sqrt((w * w).sum()), np.sqrt((x * x).sum())
        ratio = min(sizes[0], 10.0) / sizes[1] if lamb and min(sizes) > 0 else 1.0
        return w - 0.003 * ratio * x

    return step


def momentum_step(w: Array, g: Array, states: dict[str, Array], t: int) -> Array:
    """Computes SGD with momentum and dampening."""
    states["v"] = 0.9 * states["v"] + 0.75 * g
    return w - 0.05 * states["v"]


@pytest.mark.parametrize(
    ("mode", "bias", "lamb"),
    [(ADAM.Adam, True, False), (ADAM.AdamNoBias, False, False), (ADAM.Lamb, True, True), (ADAM.LambNoBias, False, True)],
)
def test_a_curve_of_100_steps_is_that_of_adams_and_lambs_formulas(mode, bias, lamb):
    optimizer = popart.Adam(constants(LearningRate=0.003, WeightDecay=0.01, lossScaling=16), mode=mode)
    np.testing.assert_allclose(curve(optimizer), formula_curve(adam_step(bias, lamb)), rtol=1e-5, atol=1e-5)


def test_a_curve_of_100_steps_with_dampening_and_clipped_gradients():
    values = constants(LearningRate=0.05, Momentum=0.9, Dampening=0.25)
    optimizer = popart.SGD(values, [popart.ClipNormSettings.clipAllWeights(0.5)])
    np.testing.assert_allclose(curve(optimizer), formula_curve(momentum_step, 0.5), rtol=1e-5, atol=1e-5)
