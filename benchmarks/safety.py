"""The cost of checks that keep a tile program inside of its memory: a table of docs/reliability.md.

    python -m benchmarks.safety
    python -m benchmarks.safety squeezenet
    python -m benchmarks.safety --indices

*compilation*, *text that is read*: the share of processor time that the verifier of families takes, the least of three; a program that is
compiled here is not verified, one that is read from a text or a cache is. *checked launches*: those of the native engine that compare
indices as they run; all others have the code of a program without checks.

`--indices`: the least time of 2,000 runs with those launches, of that of runs whose kernels do not compare, in turns.
"""

# pyright: basic
from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any
from unittest import mock

import numpy as np
from onnx import TensorProto, helper, numpy_helper

import populus
from benchmarks.models import LIGHT, NETS, randomised, transformer
from populus.dialects.poplar.compute import FamilyOp
from populus.dialects.table import context
from populus.lowering.driver.files import parse_text, text_of
from populus.runtime.engine.native.codegen.cpu import Machine
from populus.runtime.engine.native.codegen.jit import Kernel
from populus.runtime.engine.native.kernels import tables
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


def unchecked(name: str, build: Callable[[str, Machine], str], *rest: Any, **options: Any) -> Kernel:
    """Makes a kernel that does not compare its indices: its branch to the refusal is gone, and LLVM drops what decided it."""

    def without(name: str, machine: Machine) -> str:
        text, count = re.subn(r"br i1 [^\n]*, label %refuse, label %(copy|update)", r"br label %\1", build(name, machine))
        assert count == 1, text
        return text

    return Kernel(f"{name} unchecked", without, *rest, **options)


# By op: the shape of the table, that of the indices, and the attributes. Updates have the shape of the indices.
INDEXED: dict[str, tuple[str, tuple[int, ...], tuple[int, ...], dict[str, int]]] = {
    "Gather, 384 rows of 768": ("Gather", (30522, 768), (384,), {}),
    "Gather, 100,000 of 30,522 numbers": ("Gather", (30522,), (100_000,), {}),
    "GatherElements, 120 x 120": ("GatherElements", (120, 120), (120, 120), {"axis": 1}),
    "ScatterElements, 120 x 120": ("ScatterElements", (120, 120), (120, 120), {"axis": 1}),
}


def indexed(op: str, table: tuple[int, ...], indices: tuple[int, ...], attributes: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    """Gives a model of one op, and its inputs."""
    g = np.random.default_rng(0)
    inputs: dict[str, Any] = {
        "x": g.standard_normal(table).astype(np.float32),
        "i": g.integers(0, table[attributes.get("axis", 0)], indices),
        "u": g.standard_normal(indices).astype(np.float32),
    }
    constant = [numpy_helper.from_array(inputs.pop("x"), "x")]
    if not op.startswith("Scatter"):
        del inputs["u"]
    info, y = helper.make_tensor_value_info, table if op.startswith("Scatter") else indices + table[1:] * (op == "Gather")
    given = [info(name, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape) for name, a in inputs.items()]
    graph = helper.make_graph(
        [helper.make_node(op, ["x", *inputs], ["y"], **attributes)], "g", given, [info("y", TensorProto.FLOAT, y)], constant
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8), inputs


def compared(turns: int = 2000) -> None:
    """Prints the table of launches that compare indices."""
    print("| op | least time of a run, us | of that without the comparison |\n|---|---|---|")
    for name, row in INDEXED.items():
        model, inputs = indexed(*row)
        runs: list[Callable[[], Any]] = []
        for kernels in (Kernel, unchecked):
            with mock.patch.object(tables, "Kernel", kernels):
                program = populus.compile(model, target="host", engine="native", threads=1)
                program.run(inputs)
            runs.append(partial(program.run, inputs))
        least = [float("inf")] * 2
        for _ in range(turns):
            for i, run in enumerate(runs):
                begun = time.perf_counter()
                run()
                least[i] = min(least[i], time.perf_counter() - begun)
        print(f"| {name} | {1e6 * least[0]:.0f} | {least[0] / least[1]:.2f} |", flush=True)


def main(names: Sequence[str]) -> None:
    """Prints a row for each model, or the table of indices."""
    if list(names) == ["--indices"]:
        return compared()
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
