"""Conversions of ONNX's `rnn` category: a loop over the steps, or a few steps unrolled.

The inputs of all steps are multiplied by their weights at once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

from xdsl.builder import Builder
from xdsl.ir import Block, Region, SSAValue
from xdsl.rewriter import InsertPoint

from populus.dialects import popart
from populus.dialects.base.control_flow import INDEX
from populus.dialects.base.tensor_op import TensorOp
from populus.dialects.support import shapes
from populus.dialects.support.diagnostics import PopulusError
from populus.dialects.support.element_types import dtype_of, tensor
from populus.lowering.onnx.to_popart.conversion import Conversion, Output, Rule, Rules, element, shape
from populus.lowering.onnx.to_popart.formula import Term
from populus.lowering.onnx.to_popart.tensor import sliced

State: TypeAlias = "list[SSAValue]"  # h, and c of an LSTM; each [batch, hidden]
Gate: TypeAlias = Callable[[SSAValue], SSAValue]
Activation: TypeAlias = Callable[[Conversion, SSAValue, Mapping[str, float]], SSAValue]  # the last: alpha and beta
CellStep: TypeAlias = Callable[[SSAValue, State], State]
"""Computes the state after a step from the state before it and a row of the input product, [batch, gates * hidden]."""

UNROLLED = 8  # steps: a longer sequence becomes a loop, so that the program does not grow with it

# For each direction, true if it runs backwards. The schema of GRU-1 misspells its default.
WAYS = {"forward": [False], "foward": [False], "reverse": [True], "bidirectional": [False, True]}
GATES = {"RNN": "i", "GRU": "zrh", "LSTM": "iofc"}
DEFAULTS = {"RNN": ("Tanh",), "GRU": ("Sigmoid", "Tanh"), "LSTM": ("Sigmoid", "Tanh", "Tanh")}


def _op(kind: type[TensorOp]) -> Activation:
    """Makes the activation that is one op."""
    return lambda c, x, settings: c.insert(kind(x, **settings))


def _affine(c: Conversion, x: SSAValue, settings: Mapping[str, float]) -> SSAValue:
    """Computes `alpha x + beta`."""
    return (Term(c, x) * settings["alpha"] + settings["beta"]).value


def _scaled_tanh(c: Conversion, x: SSAValue, settings: Mapping[str, float]) -> SSAValue:
    """Computes `alpha tanh(beta x)`."""
    return (Term(c, c.insert(popart.TanhOp((Term(c, x) * settings["beta"]).value))) * settings["alpha"]).value


# ONNX's defaults for alpha and beta; None where ONNX has none. Source: ONNX LSTM-22.
ACTIVATIONS: dict[str, tuple[Activation, dict[str, float | None]]] = {
    "Affine": (_affine, {"alpha": None, "beta": None}),
    "Elu": (_op(popart.EluOp), {"alpha": 1.0}),
    "HardSigmoid": (_op(popart.HardSigmoidOp), {"alpha": 0.2, "beta": 0.5}),
    "LeakyRelu": (_op(popart.LeakyReluOp), {"alpha": 0.01}),
    "Relu": (_op(popart.ReluOp), {}),
    "ScaledTanh": (_scaled_tanh, {"alpha": None, "beta": None}),
    "Sigmoid": (_op(popart.SigmoidOp), {}),
    "Softplus": (_op(popart.SoftplusOp), {}),
    "Softsign": (_op(popart.SoftsignOp), {}),
    "Tanh": (_op(popart.TanhOp), {}),
    "ThresholdedRelu": (_op(popart.ThresholdedReluOp), {"alpha": 1.0}),
}


class _Layer:
    """A node, with the helpers that RNN, GRU and LSTM share."""

    def __init__(self, c: Conversion):
        self.c = c
        self.states = 2 if c.op.OP_TYPE == "LSTM" else 1
        self.hidden = shape(c.input(2))[-1]
        self.batch_first = bool(c.get("layout"))
        x = c.input(0)
        self.x = c.transpose(x, (1, 0, 2)) if self.batch_first else x
        self.steps, self.batch, _ = shape(self.x)
        self._check()

    def _check(self) -> None:
        """Checks the shapes of weights, biases and states. Raises PopulusError if one is not as ONNX defines it."""
        directions, gates, n = 2 if self.c.get("direction") == "bidirectional" else 1, len(GATES[self.c.op.OP_TYPE]), self.hidden
        rows = gates * n
        state = (self.batch, directions, n) if self.batch_first else (directions, self.batch, n)
        expected = {"W": (directions, rows, shape(self.x)[2]), "R": (directions, rows, n), "B": (directions, 2 * rows)}
        expected |= {"sequence_lens": (self.batch,), "initial_h": state, "initial_c": state, "P": (directions, 3 * n)}
        if (stated := self.c.get("hidden_size")) is not None and stated != n:
            raise PopulusError(f"hidden_size is {stated}, and R is {shapes.text(shape(self.c.input(2)))}: {n} for each gate")
        for parameter, value in zip(self.c.op.INPUTS[1:], self.c.inputs[1:]):
            if value is not None and shape(value) != expected[parameter.name]:
                wanted = shapes.text(expected[parameter.name])
                raise PopulusError(f"{parameter.name} is {shapes.text(shape(value))}; {wanted} is expected, of {n} hidden elements")

    def add(self, a: SSAValue, b: SSAValue) -> SSAValue:
        """Adds two values."""
        return self.c.insert(popart.AddOp(a, b))

    def mul(self, a: SSAValue, b: SSAValue) -> SSAValue:
        """Multiplies two values."""
        return self.c.insert(popart.MulOp(a, b))

    def part(self, value: SSAValue, axis: int, i: int, size: int) -> SSAValue:
        """Slices part `i` of `size` elements along an axis."""
        return sliced(self.c, value, {axis: (i * size, (i + 1) * size, 1)})

    def one(self, value: SSAValue, i: int) -> SSAValue:
        """Takes value[i]."""
        return self.c.reshape(self.part(value, 0, i, 1), shape(value)[1:])

    def activations(self, direction: int) -> list[Gate]:
        """Makes the activation functions of a direction.

        Raises PopulusError for an unknown name, or for an alpha or beta that has no default and is absent.
        """
        names: list[str] | None = self.c.get("activations")
        listed = names or list(DEFAULTS[self.c.op.OP_TYPE]) * (direction + 1)
        count = len(DEFAULTS[self.c.op.OP_TYPE])
        stated = {key: list(self.c.get(f"activation_{key}") or []) for key in ("alpha", "beta")}
        gates: list[Gate] = []
        for i, name in enumerate(listed[: (direction + 1) * count]):
            known = {n.lower(): n for n in ACTIVATIONS}.get(name.lower())
            if known is None:
                raise PopulusError(f"the activation '{name}' is not one of {', '.join(ACTIVATIONS)}")
            activation, defaults = ACTIVATIONS[known]
            settings: dict[str, float] = {}
            for key, default in defaults.items():
                # The lists have entries, in order, for the activations that have the attribute.
                value = stated[key].pop(0) if stated[key] else default
                if value is None:
                    raise PopulusError(f"the activation {known} has no default {key}; state it in activation_{key}")
                settings[key] = value
            if i >= direction * count:
                gates.append(self._gate(activation, settings))
        return gates

    def _gate(self, activation: Activation, settings: Mapping[str, float]) -> Gate:
        """Makes the function of a gate: the activation of x within the node's `clip`."""
        limit = self.c.get("clip")

        def gate(x: SSAValue) -> SSAValue:
            if limit:
                x = self.c.insert(popart.MaxOp(x, self.c.scalar(-limit, x)))
                x = self.c.insert(popart.MinOp(x, self.c.scalar(limit, x)))
            return activation(self.c, x, settings)

        return gate

    def initial(self, position: int, direction: int) -> SSAValue:
        """Gives the state before the first step: an input, or zeros."""
        import numpy as np

        if not self.c.has(position):
            return self.c.constant(np.zeros((self.batch, self.hidden), dtype_of(element(self.x))))
        value = self.c.input(position)
        return self.one(self.c.transpose(value, (1, 0, 2)) if self.batch_first else value, direction)

    def inputs(self, direction: int) -> tuple[SSAValue, SSAValue, SSAValue | None, SSAValue | None]:
        """Computes x W' of all steps, [steps, batch, gates * hidden], and gives R', [hidden, gates * hidden].

        The last two results are the biases of inputs and of states, [gates * hidden] each; None without B.
        """
        w, r = self.one(self.c.input(1), direction), self.one(self.c.input(2), direction)
        product = self.c.insert(popart.MatMulOp(self.x, self.c.transpose(w, (1, 0))))
        if not self.c.has(3):
            return product, self.c.transpose(r, (1, 0)), None, None
        bias = self.one(self.c.input(3), direction)
        size = shape(bias)[0] // 2
        return product, self.c.transpose(r, (1, 0)), self.part(bias, 0, 0, size), self.part(bias, 0, 1, size)


def _rnn(layer: _Layer, direction: int) -> tuple[SSAValue, CellStep]:
    """Makes the step of an RNN, and the products of its inputs. Source: ONNX RNN-22."""
    (f,) = layer.activations(direction)
    x, r, wb, rb = layer.inputs(direction)

    def step(row: SSAValue, state: State) -> State:
        total = layer.add(row, layer.c.insert(popart.MatMulOp(state[0], r)))
        for bias in (wb, rb):
            total = total if bias is None else layer.add(total, bias)
        return [f(total)]

    return x, step


def _gru(layer: _Layer, direction: int) -> tuple[SSAValue, CellStep]:
    """Makes the step of a GRU, with gates z, r, h. Source: ONNX GRU-22."""
    f, g = layer.activations(direction)
    x, r, wb, rb = layer.inputs(direction)
    n = layer.hidden

    def step(row: SSAValue, state: State) -> State:
        (h,) = state
        here = row if wb is None else layer.add(row, wb)
        both = layer.c.insert(popart.MatMulOp(h, layer.part(r, 1, 0, 2 * n)))
        if rb is not None:
            both = layer.add(both, layer.part(rb, 0, 0, 2 * n))
        gates = layer.add(layer.part(here, 1, 0, 2 * n), both)
        z, reset = f(layer.part(gates, 1, 0, n)), f(layer.part(gates, 1, 1, n))
        last, bias = layer.part(r, 1, 2, n), None if rb is None else layer.part(rb, 0, 2, n)
        if layer.c.get("linear_before_reset"):
            inner = layer.c.insert(popart.MatMulOp(h, last))
            inner = layer.mul(reset, inner if bias is None else layer.add(inner, bias))
        else:
            inner = layer.c.insert(popart.MatMulOp(layer.mul(reset, h), last))
            inner = inner if bias is None else layer.add(inner, bias)
        new = g(layer.add(layer.part(here, 1, 2, n), inner))
        # (1 - z) new + z h
        return [layer.add(new, layer.mul(z, layer.c.insert(popart.SubOp(h, new))))]

    return x, step


def _lstm(layer: _Layer, direction: int) -> tuple[SSAValue, CellStep]:
    """Makes the step of an LSTM, with gates i, o, f, c. Source: ONNX LSTM-22."""
    f, g, out = layer.activations(direction)
    x, r, wb, rb = layer.inputs(direction)
    n = layer.hidden
    peepholes = layer.one(layer.c.input(7), direction) if layer.c.has(7) else None
    coupled = bool(layer.c.get("input_forget"))

    def seen(value: SSAValue, cell: SSAValue, i: int) -> SSAValue:
        return value if peepholes is None else layer.add(value, layer.mul(layer.part(peepholes, 0, i, n), cell))

    def step(row: SSAValue, state: State) -> State:
        h, cell = state
        total = layer.add(row, layer.c.insert(popart.MatMulOp(h, r)))
        for bias in (wb, rb):
            total = total if bias is None else layer.add(total, bias)
        i = f(seen(layer.part(total, 1, 0, n), cell, 0))
        forget = f(seen(layer.part(total, 1, 2, n), cell, 2))
        if coupled:
            forget = layer.c.insert(popart.SubOp(layer.c.scalar(1, i), i))
        new = layer.add(layer.mul(forget, cell), layer.mul(i, g(layer.part(total, 1, 3, n))))
        o = f(seen(layer.part(total, 1, 1, n), new, 1))
        return [layer.mul(o, out(new)), new]

    return x, step


def recurrent(kind: Callable[[_Layer, int], tuple[SSAValue, CellStep]]) -> Rule:
    """Makes the rule of a recurrent op from the function that makes its step.

    Results: Y, [steps, directions, batch, hidden], then the last states, [directions, batch, hidden].
    Raises PopulusError for an unknown direction.
    """

    def rule(c: Conversion) -> Output | list[Output]:
        way = c.get("direction") or "forward"
        if way not in WAYS:
            raise PopulusError(f"direction is '{way}'; forward, reverse or bidirectional is expected")
        layer, backwards = _Layer(c), WAYS[way]
        run = _loop if layer.steps > UNROLLED else _unrolled
        ran = [run(layer, *kind(layer, direction), direction, back) for direction, back in enumerate(backwards)]
        y = _joined(c, [c.reshape(rows, (layer.steps, 1, layer.batch, layer.hidden)) for rows, _ in ran], 1)
        last = [_joined(c, [c.reshape(f[s], (1, layer.batch, layer.hidden)) for _, f in ran], 0) for s in range(layer.states)]
        if layer.batch_first:
            y, last = c.transpose(y, (2, 0, 1, 3)), [c.transpose(v, (1, 0, 2)) for v in last]
        return [y, *last]

    return rule


def _masked(layer: _Layer, number: SSAValue, new: State, before: State) -> tuple[SSAValue, State]:
    """Gives the output of a step and the state after it.

    Beyond its length, a sequence keeps its state and outputs 0. Backwards, these rows come first, so that the
    state they keep is the initial one.
    """
    c = layer.c
    if not c.has(4):
        return new[0], new
    going = c.reshape(c.insert(popart.GreaterOp(c.input(4), number)), (layer.batch, 1))
    held = [c.insert(popart.WhereOp(going, a, b)) for a, b in zip(new, before)]
    return c.insert(popart.WhereOp(going, new[0], c.scalar(0, new[0]))), held


def _unrolled(layer: _Layer, rows: SSAValue, step: CellStep, direction: int, back: bool) -> tuple[SSAValue, State]:
    """Unrolls the steps: the outputs, [steps, batch, hidden], and the state after the last."""
    import numpy as np

    c = layer.c
    state = [layer.initial(5 + s, direction) for s in range(layer.states)]
    outputs: list[SSAValue] = []
    for t in reversed(range(layer.steps)) if back else range(layer.steps):
        y, state = _masked(layer, c.constant(np.array(t, np.int32)), step(layer.one(rows, t), state), state)
        outputs.append(c.reshape(y, (1, layer.batch, layer.hidden)))
    return _joined(c, outputs[::-1] if back else outputs, 0), state


def _loop(layer: _Layer, rows: SSAValue, step: CellStep, direction: int, back: bool) -> tuple[SSAValue, State]:
    """Makes a loop over the rows, with the results of `_unrolled`."""
    c, outside = layer.c, layer.c.builder
    state = [layer.initial(5 + s, direction) for s in range(layer.states)]
    rows = _turned(c, rows) if back else rows
    block = Block(arg_types=[INDEX, *(v.type for v in state), tensor(shape(rows)[1:], element(rows))])
    number, row, before = block.args[0], block.args[-1], list[SSAValue](block.args[1:-1])
    c.builder = Builder(InsertPoint.at_end(block))
    if back and c.has(4):
        number = c.insert(popart.SubOp(c.scalar(layer.steps - 1, number), number))
    y, following = _masked(layer, number, step(row, before), before)
    block.add_op(end := popart.YieldOp(*following, y))
    end.location = c.op.location
    c.builder = outside
    loop = popart.LoopOp(state, Region(block), trips=layer.steps, scanned=[rows])
    loop.location = c.op.location
    *final, ys = outside.insert(loop).results
    return _turned(c, ys) if back else ys, list(final)


def _turned(c: Conversion, x: SSAValue) -> SSAValue:
    """Reverses the rows of `x`."""
    return sliced(c, x, {0: (shape(x)[0] - 1, -1, -1)})


def _joined(c: Conversion, parts: Sequence[SSAValue], axis: int) -> SSAValue:
    """Concatenates the parts along an axis."""
    return parts[0] if len(parts) == 1 else c.insert(popart.ConcatOp(*parts, axis=axis))


RULES: Rules = {"GRU": recurrent(_gru), "LSTM": recurrent(_lstm), "RNN": recurrent(_rnn)}
