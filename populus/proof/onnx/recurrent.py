"""ONNX's recurrent layers by their definitions: a cell's formulas, and the recurrence of its states over the steps.

Sequences of a few steps are executed step by step, as programs of them have no loop. Else the cell is executed once, on symbols for what it
carries, as the body of any loop is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from xdsl.dialects.builtin import f32

from populus.dialects import expr
from populus.dialects.expr import Expr
from populus.dialects.poplar.affine import box, read_map, within
from populus.proof.codelets import row_of
from populus.proof.loops import Part, looped
from populus.proof.onnx.formulas import FORMULAS
from populus.proof.onnx.node import Node, Results
from populus.proof.pieces import over
from populus.proof.report import Undecided
from populus.proof.terms import Terms
from populus.proof.trees import Pieces

FEW = 8  # steps that are executed one by one

_1, _2, _3 = expr.Arg(1), expr.Arg(2), expr.Arg(3)

States: TypeAlias = "list[Pieces]"
"""h, and c of an LSTM: each [batch, hidden]."""
Step: TypeAlias = Callable[[Pieces, Sequence[Pieces]], States]
"""Makes the states after a step of those before it and its row of x W', [batch, gates * hidden]."""

WAYS = {"forward": (False,), "foward": (False,), "reverse": (True,), "bidirectional": (False, True)}
"""Of each direction, whether it runs backwards. GRU-1 misspells its default."""
GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}
FUNCTIONS = {"RNN": ("Tanh",), "GRU": ("Sigmoid", "Tanh"), "LSTM": ("Sigmoid", "Tanh", "Tanh")}
SETTINGS: Mapping[str, Mapping[str, float | None]] = {
    "Affine": {"alpha": None, "beta": None},
    "Elu": {"alpha": 1.0},
    "HardSigmoid": {"alpha": 0.2, "beta": 0.5},
    "LeakyRelu": {"alpha": 0.01},
    "Relu": {},
    "ScaledTanh": {"alpha": None, "beta": None},
    "Sigmoid": {},
    "Softplus": {},
    "Softsign": {},
    "Tanh": {},
    "ThresholdedRelu": {"alpha": 1.0},
}
"""The attributes of each activation, with ONNX's defaults."""


@dataclass(frozen=True)
class _Layer:
    """One direction of a node. `steps`, `batch`, `hidden` and `gates` are its sizes."""

    n: Node
    direction: int
    steps: int
    batch: int
    hidden: int
    gates: int

    @property
    def t(self) -> Terms:
        """The terms of the proof."""
        return self.n.t

    def of(self, e: Expr, *operands: Pieces, width: int | None = None) -> Pieces:
        """Makes an expression of values [batch, width]. `width`: by default that of a state."""
        return self.t.elementwise(e, box((self.batch, self.hidden if width is None else width)), operands, True)

    def gate(self, x: Pieces, number: int) -> Pieces:
        """Gives a gate of [batch, gates * hidden]."""
        return self.t.seen(x, read_map(f"{{ [b, j] -> [b, j + {number * self.hidden}] : {within('bj', (self.batch, self.hidden))} }}"))

    def row(self, i: int, begin: int, count: int) -> Pieces:
        """Gives elements of an input's row for this direction, of which each sample has the same."""
        where = within("bj", (self.batch, count))
        return self.t.seen(self.n.x(i), read_map(f"{{ [b, j] -> [{self.direction}, j + {begin}] : {where} }}"))

    def biases(self, begin: int, count: int) -> tuple[Pieces, Pieces]:
        """Gives elements of the biases of inputs and of states: 0 without B."""
        if not self.n.has(3):
            zeros = self.t.number(0.0, (self.batch, count))
            return zeros, zeros
        return self.row(3, begin, count), self.row(3, begin + self.gates * self.hidden, count)

    def inputs(self) -> Pieces:
        """Makes x W' of all steps, [steps, batch, gates * hidden]."""
        full = (self.steps, self.batch, self.gates * self.hidden)
        where = within("tbgk", (*full, self.n.shape(0)[2]))
        to_x = "b, t, k" if self.n.get("layout") else "t, b, k"
        points, x, w = (
            read_map(f"{{ [{given}] -> [{image}] : {where} }}")
            for given, image in (("t, b, g", "t, b, g, k"), ("t, b, g, k", to_x), ("t, b, g, k", f"{self.direction}, g, k"))
        )
        return self.t.product(box(full), points, self.n.x(0), self.n.x(1), x, w)

    def recurred(self, h: Pieces, begin: int, count: int) -> Pieces:
        """Makes h R' for some rows of R: [batch, count]."""
        where = within("bgk", (self.batch, count, self.hidden))
        points, x, w = (
            read_map(f"{{ [{given}] -> [{image}] : {where} }}")
            for given, image in (("b, g", "b, g, k"), ("b, g, k", "b, k"), ("b, g, k", f"{self.direction}, g + {begin}, k"))
        )
        return self.t.product(box((self.batch, count)), points, h, self.n.x(2), x, w)

    def initial(self, i: int) -> Pieces:
        """Gives the state before the first step: an input, or zeros."""
        if not self.n.has(i):
            return self.t.number(0.0, (self.batch, self.hidden))
        image = f"b, {self.direction}" if self.n.get("layout") else f"{self.direction}, b"
        return self.t.seen(self.n.x(i), read_map(f"{{ [b, j] -> [{image}, j] : {within('bj', (self.batch, self.hidden))} }}"))

    def functions(self) -> list[Expr]:
        """Gives the activations of this direction, of an operand within the node's `clip`. Lists of alpha and beta have entries, in order,
        for those that have the attribute."""
        n, count = self.n, len(FUNCTIONS[self.n.op.OP_TYPE])
        listed: list[str] = n.get("activations") or [*FUNCTIONS[n.op.OP_TYPE]] * (self.direction + 1)
        stated: dict[str, list[float]] = {key: list(n.get(f"activation_{key}") or []) for key in ("alpha", "beta")}
        found: list[Expr] = []
        for name in listed[: (self.direction + 1) * count]:
            known = next((k for k in SETTINGS if k.lower() == name.lower()), None)
            if known is None:
                raise Undecided(f"the activation {name}")
            given = {key: stated[key].pop(0) if stated[key] else default for key, default in SETTINGS[known].items()}
            settings = {key: value for key, value in given.items() if value is not None}
            if len(settings) < len(given):
                raise Undecided(f"the activation {known}, which has no default")
            found.append(_activation(known, settings, n.get("clip")))
        return found[self.direction * count :]


def _activation(name: str, settings: Mapping[str, float], clip: float | None) -> Expr:
    """Makes the formula of an activation."""
    x: Expr = expr.minimum(expr.maximum(_1, -clip), clip) if clip else _1
    match name:
        case "Affine":
            return x * settings["alpha"] + settings["beta"]
        case "ScaledTanh":
            return expr.tanh(x * settings["beta"]) * settings["alpha"]
        case _:
            e = FORMULAS[name](settings.get, [f32])
            assert e is not None, name
            return expr.substitute(e, {1: x})


def _rnn(layer: _Layer) -> Step:
    """Makes h = f(x W' + h R' + Wb + Rb)."""
    (f,) = layer.functions()
    wb, rb = layer.biases(0, layer.hidden)

    def step(row: Pieces, states: Sequence[Pieces]) -> States:
        total = layer.of(_1 + _2 + _3 + expr.Arg(4), row, layer.recurred(states[0], 0, layer.hidden), wb, rb)
        return [layer.of(f, total)]

    return step


def _gru(layer: _Layer) -> Step:
    """Makes h of gates z, r and h. `(1 - z) new + z h` stands as `new + z (h - new)`."""
    f, g = layer.functions()
    n, two = layer.hidden, 2 * layer.hidden
    wb, rb = layer.biases(0, two)
    wbh, rbh = layer.biases(two, n)

    def step(row: Pieces, states: Sequence[Pieces]) -> States:
        [h] = states
        own = layer.t.seen(row, read_map(f"{{ [b, j] -> [b, j] : {within('bj', (layer.batch, two))} }}"))
        both = layer.of(_1 + _2 + _3 + expr.Arg(4), own, layer.recurred(h, 0, two), wb, rb, width=two)
        z, r = (layer.of(f, layer.gate(both, k)) for k in range(2))
        if layer.n.get("linear_before_reset"):
            inner = layer.of(_1 * (_2 + _3), r, layer.recurred(h, two, n), rbh)
        else:
            inner = layer.of(_1 + _2, layer.recurred(layer.of(_1 * _2, r, h), two, n), rbh)
        new = layer.of(g, layer.of(_1 + _2 + _3, layer.gate(row, 2), wbh, inner))
        return [layer.of(_1 + _2 * (_3 - _1), new, z, h)]

    return step


def _lstm(layer: _Layer) -> Step:
    """Makes h and c of gates i, o, f and c, and of peepholes i, o and f."""
    f, g, out = layer.functions()
    n, whole = layer.hidden, 4 * layer.hidden
    wb, rb = layer.biases(0, whole)

    def seen(x: Pieces, cell: Pieces, k: int) -> Pieces:
        return layer.of(_1 + _2 * _3, x, layer.row(7, k * n, n), cell) if layer.n.has(7) else x

    def step(row: Pieces, states: Sequence[Pieces]) -> States:
        h, cell = states
        total = layer.of(_1 + _2 + _3 + expr.Arg(4), row, layer.recurred(h, 0, whole), wb, rb, width=whole)
        i = layer.of(f, seen(layer.gate(total, 0), cell, 0))
        forget = layer.of(1.0 - _1, i) if layer.n.get("input_forget") else layer.of(f, seen(layer.gate(total, 2), cell, 2))
        new = layer.of(_1 * _2 + _3 * expr.Arg(4), forget, cell, i, layer.of(g, layer.gate(total, 3)))
        o = layer.of(f, seen(layer.gate(total, 1), new, 1))
        return [layer.of(_1 * _2, o, layer.of(out, new)), new]

    return step


def _direction(n: Node, cell: Callable[[_Layer], Step], direction: int, back: bool) -> tuple[Pieces, States]:
    """Gives the outputs of one direction, [steps, batch, hidden], and the states after its last step.

    Beyond its length, a sequence keeps its states and outputs 0. Backwards these steps come first.
    """
    steps, batch = n.shape(0)[:2][:: -1 if n.get("layout") else 1]
    layer = _Layer(n, direction, steps, batch, n.shape(2)[2], GATES[n.op.OP_TYPE])
    t, hidden, width = n.t, layer.hidden, layer.gates * layer.hidden
    step, rows = cell(layer), layer.inputs()
    states = [layer.initial(5 + k) for k in range(2 if n.op.OP_TYPE == "LSTM" else 1)]

    def stepped(row: Pieces, before: Sequence[Pieces], number: Pieces) -> tuple[States, Pieces]:
        new = step(row, before)
        if not n.has(4):
            return new, new[0]
        full = box((batch, hidden))
        lengths, at = (
            t.seen(x, read_map(f"{{ [b, j] -> [{image}] }}").intersect_domain(full)) for x, image in ((n.x(4), "b"), (number, ""))
        )
        going = t.elementwise(expr.call("gt", _1, _2), full, [lengths, at], False)
        held = [layer.of(expr.select(_1, _2, _3), a, b, going) for a, b in zip(new, before)]
        return held, layer.of(expr.select(_1, _2, _3), new[0], t.number(0.0, (batch, hidden)), going)

    if steps <= FEW:
        ys: Pieces = []
        for time in reversed(range(steps)) if back else range(steps):
            row = t.seen(rows, read_map(f"{{ [b, g] -> [{time}, b, g] : {within('bg', (batch, width))} }}"))
            states, y = stepped(row, states, t.number(time, ()))
            place = read_map(f"{{ [t, b, j] -> [b, j] : t = {time} and {within('bj', (batch, hidden))} }}")
            ys = over(ys, t.seen(y, place))
        return ys, states

    turned = read_map(f"{{ [t, b, j] -> [{steps - 1} - t, b, j] : 0 <= t < {steps} }}")
    rows = t.seen(rows, turned) if back else rows

    def body(index: Pieces, carried: Sequence[Pieces]) -> tuple[list[Pieces], list[Pieces]]:
        number = t.elementwise(steps - 1 - _1, box(()), [index], False) if back else index
        new, y = stepped(row_of(t, rows, (steps, batch, width), n.element(0), index), carried, number)
        return new, [y]

    parts = [Part(first, (batch, hidden), True) for first in states]
    finals, [table] = looped(t, steps, False, parts, body, [(batch, hidden)])
    return (t.seen(table, turned) if back else table), finals


def _layers(cell: Callable[[_Layer], Step]) -> Callable[[Node], Results]:
    """Makes the definition of a recurrent op: Y, [steps, directions, batch, hidden], then the last states, [directions, batch, hidden]."""

    def defined(n: Node) -> Results:
        ways = WAYS.get(n.get("direction") or "forward")
        if ways is None:
            raise Undecided(f"the direction {n.get('direction')}")
        outs = ("b, t, d, j", "b, d, j") if n.get("layout") else ("t, d, b, j", "d, b, j")
        found: Results = []
        for d, back in enumerate(ways):
            ys, finals = _direction(n, cell, d, back)
            own = [n.t.seen(ys, read_map(f"{{ [{outs[0]}] -> [t, b, j] : d = {d} }}"))]
            own += [n.t.seen(x, read_map(f"{{ [{outs[1]}] -> [b, j] : d = {d} }}")) for x in finals]
            found = [over(a, b) for a, b in zip(found, own)] if found else own
        return found

    return defined


RECURRENT: Mapping[str, Callable[[Node], Results]] = {"RNN": _layers(_rnn), "GRU": _layers(_gru), "LSTM": _layers(_lstm)}
"""The definition of each op."""
