"""Compares every level of every model that is there with the level above, and the native engine with numpy: `make levels`.

Each line is true, or ends with status 1.

The nine nets of the onnx wheel, with their weights as initializers and as `Constant` nodes, drawn at random and as shipped;
and the models of torch's exporters in test/data. The small models of the wheel are compared in CI.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from time import perf_counter

import numpy as np
import onnx
from onnx import ModelProto, helper

import populus
from benchmarks.models import randomised
from benchmarks.spread import check_spread
from populus.compare.engines import compare_engines
from populus.compare.levels import compare_levels
from populus.dialects.support.diagnostics import PopulusError

NETS = Path(onnx.__file__).parent / "backend/test/data/light"
EXPORTED = Path(__file__).parents[1] / "test/data/torch_models"


def with_constant_nodes(model: ModelProto, named: bool = True) -> ModelProto:
    """Turns the initializers of a model, which it changes, into `Constant` nodes; optionally without names of nodes."""
    graph = model.graph
    made = [helper.make_node("Constant", [], [t.name], name=f"constant {t.name}", value=t) for t in graph.initializer]
    nodes, names = list(graph.node), {t.name for t in graph.initializer}
    inputs = [i for i in graph.input if i.name not in names]
    del graph.node[:], graph.initializer[:], graph.input[:]
    graph.node.extend([*made, *nodes])
    graph.input.extend(inputs)
    if not named:
        for node in graph.node:
            node.name = ""
    return model


def variants(path: Path) -> Iterator[tuple[str, Callable[[], ModelProto]]]:
    """Gives the variants of a net, each with its name."""

    def shipped() -> ModelProto:
        return onnx.load(path)  # pyright: ignore[reportUnknownMemberType]

    yield "drawn, initializers", lambda: randomised(path, seed=3, logits=True)
    yield "drawn, Constant nodes", lambda: with_constant_nodes(randomised(path, seed=3, logits=True))
    yield "drawn, nodes without names", lambda: with_constant_nodes(randomised(path, seed=3, logits=True), named=False)
    yield "shipped", shipped
    yield "shipped, Constant nodes", lambda: with_constant_nodes(shipped())


def alarms(model: ModelProto | Path, drawn: bool = False) -> tuple[list[str], int]:
    """Compares the levels of a model on random inputs: the differences, and the number of places that were compared.

    `drawn`: its weights are random, so its outputs may not be saturated. The nets as shipped have equal weights.
    """
    data = None if not isinstance(model, Path) else model.with_name(f"{model.stem.rsplit('-', 2)[0]}.npz")
    program = populus.compile(model, target="gc200" if data is None else "host", tiles=None if data is None else 8)
    inputs = program.signature.random(4)
    if data is not None and data.exists():
        with np.load(data) as arrays:
            given = {name.removeprefix("input:"): arrays[name] for name in arrays.files if name.startswith("input:")}
        inputs = {name: given[name] if name in given and given[name].shape == a.shape else a for name, a in inputs.items()}
    if drawn:
        check_spread(program.run(inputs), "a drawn net")
    found = [*compare_levels(program, inputs), compare_engines(program, inputs)]
    return [str(c) for c in found if c.first is not None], sum(c.places for c in found)


def main(names: list[str]) -> int:
    """Compares the models whose names contain one of these texts, or all."""
    wrong = 0
    models: list[tuple[str, Callable[[], ModelProto | Path]]] = [
        (f"{path.stem}: {what}", make) for path in sorted(NETS.glob("light_*.onnx")) for what, make in variants(path)
    ]
    models += [(path.stem, lambda path=path: path) for path in sorted(EXPORTED.glob("*.onnx"))]
    for name, make in models:
        if names and not any(n in name for n in names):
            continue
        start = perf_counter()
        try:
            found, places = alarms(make(), ": drawn" in name)
        except PopulusError as error:
            print(f"{name}: not compared: {error}", flush=True)
            continue
        wrong += bool(found)
        said = "; ".join(found) or f"all levels agree at {places} places"
        print(f"{name}: {said} ({perf_counter() - start:.0f} s)", flush=True)
    print(f"{wrong} alarms")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
