"""The cost of checks that keep a tile program inside of its memory: a table of docs/reliability.md.

    python -m benchmarks.safety
    python -m benchmarks.safety squeezenet

*compilation*, *text that is read*: the share of processor time that the verifier of families takes, the least of three; a program that is
compiled here is not verified, one that is read from a text or a cache is. *checked launches*: those of the native engine that compare
indices as they run; all others have the code of a program without checks.
"""

# pyright: basic
from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from typing import Any
from unittest import mock

import populus
from benchmarks.models import LIGHT, NETS, randomised, transformer
from populus.dialects.poplar.compute import FamilyOp
from populus.dialects.table import context
from populus.lowering.driver.files import parse_text, text_of
from populus.runtime.engine.native.run.program import NativeProgram

MODELS: dict[str, Callable[[], Any]] = {
    **{name: lambda name=name: randomised(LIGHT / f"light_{name}.onnx") for name in NETS},
    "bert layer": lambda: transformer(batch=1, sequence=128),
}


def timed(function: Callable[..., Any], times: list[float]) -> Callable[..., Any]:
    """Wraps a function so that its processor time is added to the last of the times."""

    def run(*arguments: Any) -> Any:
        begun = time.process_time()
        try:
            return function(*arguments)
        finally:
            times[-1] += time.process_time() - begun

    return run


def shares(run: Callable[[], Any], turns: int = 3) -> tuple[float, Any]:
    """Gives the least share of the verifier of families in some runs, and the last result."""
    found, result, verifier = list[float](), None, [0.0]
    with mock.patch.object(FamilyOp, "verify_", timed(FamilyOp.verify_, verifier)):
        for _ in range(turns):
            verifier[-1] = 0.0
            begun = time.process_time()
            result = run()
            found.append(verifier[-1] / (time.process_time() - begun))
    return min(found), result


def main(names: Sequence[str]) -> None:
    """Prints a row for each model."""
    print("| model | compilation | text that is read | launches | checked launches |\n|---|---|---|---|---|")
    for name in names or MODELS:
        model = MODELS[name]()
        compiling, program = shares(lambda model=model: populus.compile(model, target="host", tiles=16, engine="native"))
        module = program.module("poplar")
        text, [graph] = text_of(module, locations=True), module.body.block.ops
        reading, _ = shares(lambda text=text: parse_text(context(), text, "text"))
        launches = NativeProgram(graph).table.launches.values()
        checked = sum(launch.refused is not None for launch in launches)
        print(f"| {name} | {100 * compiling:.1f} % | {100 * reading:.1f} % | {len(launches)} | {checked} |", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
