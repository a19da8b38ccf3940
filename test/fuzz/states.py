"""Programs that keep states, in random sequences of run, set, reset and get, against plain arrays: `make fuzz FUZZERS=states`.

A seed draws how the states change in a run, which dimensions have one size, a range or any size, and sizes at the edges of buckets.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random

import numpy as np
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

import populus
from fuzz.children import Outcome
from fuzz.drawing import Array
from populus.dialects.support.diagnostics import PopulusError
from populus.program.state import Stateful

Size = int | tuple[int, int] | None
"""Of a dimension: a number, a range that the user states, or any."""

ROWS = (0, 1, 1, 1, 2, 3, 3, 4, 5, 7, 8, 9, 12, 13)
BATCHES = (0, 1, 2, 3, 4, 5)
STEPS = 9
ELEMENTS = {TensorProto.FLOAT: np.float32, TensorProto.FLOAT16: np.float16, TensorProto.INT32: np.int32}


@dataclass(frozen=True)
class Change:
    """How a state changes in a run: as nodes from `past` and `new` to `present`, and on arrays. Both take the axis of the rows."""

    nodes: Callable[[int], list[NodeProto]]
    arrays: Callable[[Array, Array, int], Array]


def _join(*names: str) -> Change:
    def arrays(past: Array, new: Array, axis: int) -> Array:
        return np.concatenate([{"past": past, "new": new}[name] for name in names], axis)

    return Change(lambda axis: [helper.make_node("Concat", list(names), ["present"], "join", axis=axis)], arrays)


def _rest(axis: int) -> list[NodeProto]:
    numbers = {"one": 1, "end": 1 << 40, "axis": axis}
    given = [
        helper.make_node("Constant", [], [name], name, value=numpy_helper.from_array(np.array([n]), name)) for name, n in numbers.items()
    ]
    joined = helper.make_node("Concat", ["past", "new"], ["joined"], "join", axis=axis)
    return [*given, joined, helper.make_node("Slice", ["joined", "one", "end", "axis"], ["present"], "rest")]


CHANGES = {
    "append": _join("past", "new"),
    "put before": _join("new", "past"),
    "append twice": _join("past", "new", "new"),
    "double": _join("past", "past", "new"),
    "drop the first": Change(_rest, lambda past, new, axis: np.delete(np.concatenate([past, new], axis), slice(0, 1), axis)),
    "replace": Change(lambda axis: [helper.make_node("Neg", ["new"], ["present"], "replace")], lambda past, new, axis: -new),
    "add": Change(lambda axis: [helper.make_node("Add", ["past", "past"], ["present"], "add")], lambda past, new, axis: past + past),
}


@dataclass(frozen=True)
class Case:
    """A model with one or two states, which change alike, how it is compiled, and what its inputs may be."""

    change: str
    states: tuple[str, ...]
    axis: int
    element: int
    sizes: dict[str, Size]
    engine: str
    tiles: int
    buckets: Sequence[int] | None
    exact: bool

    @property
    def model(self) -> ModelProto:
        """A model of `past` and `new` -> `present`, `seen` = 2 past, and the sum of `present`."""

        def shape(along: str | None) -> list[str | int | None]:
            batch = self.sizes["batch"]
            found: list[str | int | None] = ["batch" if not isinstance(batch, int) else batch, 2]
            return [*found[: self.axis], along, *found[self.axis :]]

        def value(name: str, along: str | None) -> object:
            return helper.make_tensor_value_info(name, self.element, shape(along))

        nodes: list[NodeProto] = []
        for state in self.states:
            made = CHANGES[self.change].nodes(self.axis)
            made += [helper.make_node("Add", ["past", "past"], ["seen"], "seen"), helper.make_node("Cast", ["present"], ["f"], to=1)]
            made += [helper.make_node("ReduceSum", ["f"], ["sum"], "sum", keepdims=0)]
            for node in made:
                for names in (node.input, node.output):
                    names[:] = [name if name == "new" else f"{state}.{name}" for name in names]
            nodes += made
        inputs = [*(value(f"{s}.past", "past") for s in self.states), value("new", "cur")]
        outputs = [value(f"{s}.{o}", None) for s in self.states for o in ("present", "seen")]
        outputs += [helper.make_tensor_value_info(f"{s}.sum", TensorProto.FLOAT, []) for s in self.states]
        return helper.make_model(helper.make_graph(nodes, "states", inputs, outputs), opset_imports=[helper.make_opsetid("", 20)])

    def shape(self, batch: int, rows: int) -> tuple[int, ...]:
        """Gives the shape of an array of so many rows."""
        return (*(batch, 2)[: self.axis], rows, *(batch, 2)[self.axis :])

    def allows(self, name: str, size: int) -> bool:
        """Tells whether a dimension may have a size."""
        stated = self.sizes[name]
        return stated is None or (size == stated if isinstance(stated, int) else stated[0] <= size <= stated[1])


def case(seed: int) -> Case:
    """Draws the case of a seed."""
    rng = Random(seed)

    def size(lows: Sequence[int], highs: Sequence[int]) -> Size:
        return None if rng.random() < 0.55 else (rng.choice(lows), rng.choice(highs))

    change = rng.choice([*CHANGES, "append", "append"])
    sizes: dict[str, Size] = {
        "batch": rng.choice((1, 2, 3)) if rng.random() < 0.4 else size((0, 1), (1, 2, 3, 4, 5)),
        "past": size((0,), (1, 2, 3, 8, 13, 30)),
        "cur": size((0, 1), (1, 2, 3, 5, 13)),
    }
    return Case(
        change,
        ("a",) if rng.random() < 0.6 else ("a", "b"),
        rng.choice((0, 1, 1, 2)),
        rng.choice(list(ELEMENTS)),
        sizes,
        rng.choice(("numpy", "native", "strict")),
        rng.choice((1, 2, 5)),
        rng.choice((None, None, (1, 3, 6), (4, 20))),
        rng.random() < 0.1,
    )


def described(seed: int) -> str:
    """Gives the case of a seed as text."""
    return f"{case(seed)}\n"


def judge(seed: int) -> Outcome:
    """Compares each state and each output, after each of a sequence of calls, with those of plain arrays."""
    drawn, rng = case(seed), Random(f"calls of {seed}")
    dims = {name: size for name, size in drawn.sizes.items() if isinstance(size, tuple)}
    options = {} if drawn.buckets is None else {"buckets": drawn.buckets}
    program = populus.compile(drawn.model, dims=dims, tiles=drawn.tiles, engine=drawn.engine, exact=drawn.exact, **options)
    kept = program.stateful({f"{s}.past": f"{s}.present" for s in drawn.states})
    calls = Calls(drawn, kept, rng)
    for _ in range(STEPS):
        rng.choice([calls.run, calls.run, calls.run, calls.run, calls.set, calls.reset])()
        if calls.wrong is None:
            calls.get()
        if calls.wrong is not None:
            return calls.wrong[0], f"{calls.wrong[1]} after {'; '.join(calls.done)} of {drawn}"
    return "agrees", ""


class Calls:
    """Calls of a program with states, and what its states should be. `wrong`: the first finding; `done`: the calls so far."""

    def __init__(self, case: Case, kept: Stateful, rng: Random):
        self.case, self.kept, self.rng = case, kept, rng
        self.states: dict[str, Array] = {}  # of those that were set, or left by a run
        self.done: list[str] = []
        self.wrong: Outcome | None = None

    def drawn(self, batch: int, rows: int) -> Array:
        """Draws an array of small integers."""
        elements = [self.rng.randrange(-3, 4) for _ in range(batch * rows * 2)]
        return np.array(elements, ELEMENTS[self.case.element]).reshape(self.case.shape(batch, rows))

    def batch(self) -> int:
        """Draws a batch: mostly that of the states."""
        stated = self.case.sizes["batch"]
        if isinstance(stated, int):
            return stated
        at = 0 if self.case.axis else 1
        if self.states and self.rng.random() < 0.9:
            return next(iter(self.states.values())).shape[at]
        return self.rng.choice([b for b in BATCHES if self.case.allows("batch", b) or self.rng.random() < 0.1] or [1])

    def set(self) -> None:
        """Replaces a state."""
        name = self.rng.choice(self.case.states)
        value = self.drawn(self.batch(), self.rng.choice(ROWS))
        self.done.append(f"set {name} {list(value.shape)}")
        self.kept.set(f"{name}.past", value)
        self.states[name] = value

    def reset(self) -> None:
        """Makes the states what they were at first."""
        self.done.append("reset")
        self.kept.reset()
        self.states = {}

    def get(self) -> None:
        """Compares the states."""
        for name, value in self.states.items():
            found = self.kept.get(f"{name}.past")
            if found.dtype != value.dtype or not np.array_equal(found, value):
                self.wrong = "wrong", f"state {name} is {found.shape} {found.ravel().tolist()[:40]}, and not {value.shape}"

    def run(self) -> None:
        """Runs, and compares the outputs."""
        case = self.case
        new = self.drawn(self.batch(), self.rng.choice([n for n in ROWS if case.allows("cur", n) or self.rng.random() < 0.1] or [1]))
        self.done.append(f"run {list(new.shape)}")
        at = 0 if case.axis else 1
        batch = new.shape[at]
        begun = {name: np.zeros(case.shape(batch, 0), new.dtype) for name in case.states}
        before = {**begun, **self.states}
        try:
            after = {name: CHANGES[case.change].arrays(past, new, case.axis) for name, past in before.items()}
        except ValueError:  # batches that disagree
            after = {}
        rows = [a.shape[case.axis] for a in before.values()]
        fits = len({a.shape[at] for a in (*before.values(), new)}) == 1 and len(set(rows)) == 1
        fits = fits and case.allows("batch", batch) and case.allows("cur", new.shape[case.axis])
        fits = fits and all(case.allows("past", a.shape[case.axis]) for a in (*before.values(), *after.values()))
        try:
            found = self.kept.run({"new": new})
        except PopulusError as error:
            if fits:
                self.wrong = "wrongly refused", str(error)
            return
        if not fits:
            self.wrong = "wrong", "a run is not refused"
            return
        for name, past in before.items():
            if not np.array_equal(found[f"{name}.seen"], past + past):
                self.wrong = "wrong", f"the run saw another state {name}"
            elif found[f"{name}.sum"] != after[name].sum(dtype=np.float64):
                self.wrong = "wrong", f"the sum of {name} is {found[f'{name}.sum']} for {after[name].sum()}"
        self.states = after
