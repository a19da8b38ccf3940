"""New weights and optimizer states from gradients, as one ONNX model that runs after a batch."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import count
from typing import TYPE_CHECKING, Any

from populus.dialects.support.diagnostics import PopulusError
from populus.popart.optimizers import SGD, Adam, Adaptive, Optimizer
from populus.popart.reserved import GRADIENT, STATES, STEP
from populus.popart.translation import OPSET

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from onnx import ModelProto, NodeProto

    from populus.program.source import Arrays

NEW = "Updated___"


class Formulas:
    """Ops in a graph: `f("Add", a, b)` gives the name of a sum. All is computed in f32."""

    def __init__(self) -> None:
        self.nodes: list[NodeProto] = []
        self._numbers = count()

    def __call__(self, op: str, *inputs: str, **attributes: Any) -> str:
        from onnx.helper import make_node

        name = f"v{next(self._numbers)}"
        self.nodes.append(make_node(op, list(inputs), [name], **attributes))
        return name

    def number(self, value: float) -> str:
        """Adds a constant."""
        import numpy as np
        from onnx import numpy_helper

        return self("Constant", value=numpy_helper.from_array(np.array(value, np.float32)))

    def mixed(self, share: str, a: str, b: str) -> str:
        """Computes `share a + (1 - share) b`."""
        return self("Add", self("Mul", share, a), self("Mul", self("Sub", self.number(1), share), b))


Step = Callable[[Formulas, Optimizer, str, str, Sequence[str], Mapping[str, str]], tuple[str, list[str]]]


def _sgd(f: Formulas, o: Optimizer, w: str, g: str, states: Sequence[str], h: Mapping[str, str]) -> tuple[str, list[str]]:
    own = f("Sub", f.number(1), h["dampening"])
    decayed = f("Add", g, f("Mul", h["weightDecay"], w))
    if not states:
        return f("Sub", w, f("Mul", f("Mul", h["learningRate"], own), decayed)), []
    if o.uses("nesterov"):
        v = f("Add", f("Mul", h["momentum"], states[0]), decayed)
        ahead = f("Add", decayed, f("Mul", h["momentum"], v))
        return f("Sub", w, f("Mul", h["learningRate"], ahead)), [v]
    v = f("Add", f("Mul", h["momentum"], states[0]), f("Mul", own, decayed))
    return f("Sub", w, f("Mul", h["learningRate"], v)), [v]


def _adam(f: Formulas, o: Optimizer, w: str, g: str, states: Sequence[str], h: Mapping[str, str]) -> tuple[str, list[str]]:
    assert isinstance(o, Adam)
    if o.decay == "L2Regularization":
        g = f("Add", g, f("Mul", h["weightDecay"], w))
    m = f.mixed(h["beta1"], states[0], g)
    t = f("Add", states[2], f.number(1))
    if o.mode == "AdaMax":
        v = f("Max", f("Mul", h["beta2"], states[1]), f("Abs", g))
    else:
        v = f.mixed(h["beta2"], states[1], f("Mul", g, g))
    first, second = m, v
    if "NoBias" not in o.mode:
        first = f("Div", m, f("Sub", f.number(1), f("Pow", h["beta1"], t)))
        if o.mode != "AdaMax":
            second = f("Div", v, f("Sub", f.number(1), f("Pow", h["beta2"], t)))
    below = f("Add", second if o.mode == "AdaMax" else f("Sqrt", second), h["eps"])
    x = f("Div", first, below)
    if o.decay == "Decay":
        x = f("Add", x, f("Mul", h["weightDecay"], w))
    rate = h["learningRate"]
    if o.mode.startswith("Lamb"):
        r1, r2 = (f("Sqrt", f("ReduceSum", f("Mul", v, v), keepdims=0)) for v in (w, x))
        r1 = f("Min", r1, h["maxWeightNorm"])
        both = f("And", f("Greater", r1, f.number(0)), f("Greater", r2, f.number(0)))
        safe = f("Where", both, r2, f.number(1))
        rate = f("Mul", rate, f("Where", both, f("Div", r1, safe), f.number(1)))
    return f("Sub", w, f("Mul", rate, x)), [m, v, t]


def _adaptive(f: Formulas, o: Optimizer, w: str, g: str, states: Sequence[str], h: Mapping[str, str]) -> tuple[str, list[str]]:
    assert isinstance(o, Adaptive)
    if o.decay == "L2Regularization":
        g = f("Add", g, f("Mul", h["weightDecay"], w))
    square = f("Mul", g, g)
    second, third, fourth = states
    a = f("Add", second, square) if o.mode == "AdaGrad" else f.mixed(h["alpha"], second, square)
    if o.mode == "AdaDelta":
        ahead = f("Div", f("Sqrt", f("Add", third, h["eps"])), f("Sqrt", f("Add", a, h["eps"])))
        x = f("Mul", ahead, g)
        b = f.mixed(h["alpha"], third, f("Mul", x, x))
    else:
        b, spread = third, a
        if o.mode == "CenteredRMSProp":
            b = f.mixed(h["alpha"], third, g)
            spread = f("Sub", a, f("Mul", b, b))
        below = f("Sqrt", f("Add", spread, h["eps"])) if o.inside else f("Add", f("Sqrt", spread), h["eps"])
        x = f("Div", g, below)
    if o.decay == "Decay":
        x = f("Add", x, f("Mul", h["weightDecay"], w))
    c = f("Add", f("Mul", h["momentum"], fourth), x)
    return f("Sub", w, f("Mul", h["learningRate"], c)), [a, b, c]


def states_of(optimizer: Optimizer) -> tuple[tuple[str, ...], Step]:
    """Gives the prefixes of the states' names, and the formula. Raises PopulusError for an optimizer that there is not."""
    if isinstance(optimizer, SGD):
        return (("Accl1___",) if optimizer.uses("momentum") else ()), _sgd
    if isinstance(optimizer, Adam):
        return (*STATES[:2], STEP), _adam
    if isinstance(optimizer, Adaptive):
        return STATES, _adaptive
    raise PopulusError(f"there is no optimizer {type(optimizer).__name__}")


def update_model(optimizer: Optimizer, weights: Arrays) -> ModelProto:
    """Builds a model from weights, gradients, states and hyperparameters to new weights and states."""
    import numpy as np
    from onnx import TensorProto, ValueInfoProto, helper

    prefixes, step = states_of(optimizer)
    f = Formulas()
    inputs: list[ValueInfoProto] = []
    outputs: list[ValueInfoProto] = []

    def given(name: str, shape: Sequence[int], dtype: Any = np.float32) -> str:
        number = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
        inputs.append(helper.make_tensor_value_info(name, number, shape))
        return name if number == TensorProto.FLOAT else f("Cast", name, to=TensorProto.FLOAT)

    def gives(name: str, value: str, shape: Sequence[int], dtype: Any = np.float32) -> None:
        number = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
        f.nodes.append(helper.make_node("Cast", [value], [name], to=number))
        outputs.append(helper.make_tensor_value_info(name, number, shape))

    hyper = {w: {n: given(f"{n}/{w}", ()) for n in optimizer.of(w)} for w in weights}
    gradients = {w: given(GRADIENT + w, a.shape, a.dtype) for w, a in weights.items()}
    gradients = {w: f("Div", g, hyper[w]["lossScaling"]) for w, g in gradients.items()}
    for clip in optimizer.clips:
        gradients.update(_clipped(f, {w: g for w, g in gradients.items() if not clip.weightIds or w in clip.weightIds}, clip.maxNorm))
    for w, array in weights.items():
        shapes = [() if p == STEP else array.shape for p in prefixes]
        types = [np.float16 if p in optimizer.state_types else np.float32 for p in prefixes]
        states = [given(p + w, shape, dtype) for p, shape, dtype in zip(prefixes, shapes, types)]
        new, moved = step(f, optimizer, given(w, array.shape, array.dtype), gradients[w], states, hyper[w])
        gives(NEW + w, new, array.shape, array.dtype)
        for prefix, shape, dtype, value in zip(prefixes, shapes, types, moved):
            gives(NEW + prefix + w, value, shape, dtype)
    graph = helper.make_graph(f.nodes, "update", inputs, outputs)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=10)


def _clipped(f: Formulas, gradients: Mapping[str, str], limit: float) -> dict[str, str]:
    """Computes gradients times `limit / max(norm, limit)`, with the norm of all together."""
    squares = [f("ReduceSum", f("Mul", g, g), keepdims=0) for g in gradients.values()]
    norm = f("Sqrt", f("Sum", *squares))
    factor = f("Div", f.number(limit), f("Max", norm, f.number(limit)))
    return {w: f("Mul", g, factor) for w, g in gradients.items()}


def hyperparameters(optimizer: Optimizer, weights: Sequence[str]) -> dict[str, NDArray[Any]]:
    """Gives the values of the model's scalars."""
    import numpy as np

    return {f"{n}/{w}": np.array(v, np.float32) for w in weights for n, v in optimizer.of(w).items()}
