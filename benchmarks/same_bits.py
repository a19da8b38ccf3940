"""Models that are built and run elsewhere, whose outputs are held against the native engine's bits: the loop over cases, and its counts."""

# pyright: basic
from __future__ import annotations

import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from onnx.backend.test.loader import load_model_tests

import populus
from populus.dialects.support.diagnostics import PopulusError
from populus.lowering.onnx.shape_inputs import deciding_inputs

NOT_RUN = "not run, by an assertion of the emulator"
OTHER_NANS = "equal, with NaNs of other bits"  # an invalid operation gives a NaN with its sign set on x86-64, and without on others
GOOD = ("equal", "refuse the inputs alike", NOT_RUN, OTHER_NANS)
"""Results of a case. Inputs that the native engine refuses, as an index outside of its table, have to be refused there too."""


@dataclass(frozen=True)
class Case:
    """A program that was built in `folder`, the inputs that it runs on, and the native engine's outputs: None where it refuses these."""

    name: str
    folder: Path
    given: dict
    expected: dict | None

    def judged(self, outputs: dict[str, bytes] | None, error: str = "") -> tuple[str, str]:
        """Returns what the outputs of another run are, or its `error`, and a text for the list of what is wrong."""
        if self.expected is None:
            return ("refuse the inputs alike" if error else "differ"), self.name
        if outputs is None:
            return "error", f"{self.name}: {error[:120]}"
        pairs = [(array.tobytes(), outputs[name], array.dtype) for name, array in self.expected.items()]
        if all(a == b for a, b, _ in pairs):
            return "equal", self.name
        return (OTHER_NANS if all(_alike(np.frombuffer(a, t), np.frombuffer(b, t)) for a, b, t in pairs) else "differ"), self.name


def _alike(a: np.ndarray, b: np.ndarray) -> bool:
    """Tells whether two arrays are equal bit for bit but where both are NaN."""
    nan = np.isnan(a) & np.isnan(b) if a.dtype.kind not in "biu" else np.zeros(a.shape, bool)
    rows = [x[~nan].tobytes() for x in (a, b)]
    return rows[0] == rows[1]


def node_tests(first: int = 0, step: int = 1) -> Iterator[tuple[str, Callable[[], populus.Program]]]:
    """Gives names of ONNX's node tests and what compiles them.

    Inputs that decide shapes, such as the sizes of a Resize, are constants in a built program: they have the values of the test's data.
    """
    for case in load_model_tests(kind="node")[first::step]:
        yield case.name, lambda case=case: _compiled(case)


def _compiled(case) -> populus.Program:
    try:
        program = populus.compile(case.model, target="host", engine="native")
        if not program.signature.required and not program.signature.bounded:
            return program
        refused = None
    except PopulusError as error:
        refused = error
    given = {i.name: array for i, array in zip(case.model.graph.input, case.data_sets[0][0]) if hasattr(array, "dtype")}
    for every in (False, True):
        values = {name: given[name] for name in deciding_inputs(case.model, every) if name in given}
        try:
            if values:
                return populus.compile(case.model, target="host", engine="native", values=values)
        except PopulusError:
            continue
    if refused is None:
        return program
    raise refused


def nets(names: Sequence[str]) -> Iterator[tuple[str, Callable[[], populus.Program]]]:
    """Gives names of the benchmark's models and what compiles them."""
    from benchmarks.models import MODELS

    for name in names:
        yield name, lambda name=name: populus.compile(MODELS[name](), target="host", engine="native")


def compared(
    models: Iterable[tuple[str, Callable[[], populus.Program]]],
    build: Callable[[populus.Program, Path], object],
    judged: Callable[[list[Case]], list[tuple[str, str]]],
    chunk: int,
) -> int:
    """Builds models, judges them `chunk` at a time, and prints counts as they grow. Gives 0 if all that was built has the same bits."""
    count, reasons, listed, begun = Counter[str](), Counter[str](), [], time.monotonic()
    bad: list[bool] = []
    made: list[Case] = []
    number = 0
    with tempfile.TemporaryDirectory(prefix="populus-bits-") as place:

        def judge() -> None:
            for kind, what in judged(made):
                count[kind] += 1
                if not kind.endswith(("equal", "alike")):
                    listed.append(f"{kind}: {what}")
                bad.append(not kind.endswith(GOOD))
            for case in made:
                shutil.rmtree(case.folder)
            made.clear()
            counts = ", ".join(f"{n} {kind}" for kind, n in sorted(count.items()))
            print(f"{number} cases: {counts}, {time.monotonic() - begun:.0f} s", flush=True)

        for name, compile in models:
            number += 1
            try:
                program = compile()
                build(program, Path(place, name))
            except PopulusError as error:
                count["refused"] += 1
                reasons[" ".join(str(error).split()[-6:])] += 1
                continue
            given = program.signature.random()
            try:
                expected = program.run(given)
            except PopulusError:
                expected = None
            made.append(Case(name, Path(place, name), given, expected))
            if len(made) == chunk:
                judge()
        judge()
    print(*(f"{n} refused: .. {why}" for why, n in reasons.most_common(12)), *listed, sep="\n")
    return int(any(bad))
