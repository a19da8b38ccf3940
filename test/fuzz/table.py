"""The table of fuzzers: each judges a seed, and keeps what was judged."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from fuzz import (
    binary_files,
    codelets,
    edits,
    faults,
    gradients,
    judging,
    levels,
    patterns,
    proofs,
    stablehlo,
    states,
    texts,
    tile_programs,
)
from fuzz.children import Outcome
from fuzz.graphs import graph


@dataclass(frozen=True)
class Fuzzer:
    """`judge(seed)` says how a seed ended; `kept(seed)` is its case as the content of a file, whose name ends with `suffix`.

    `weight`: the share of the time that it has among those that run together; 0 for one that only runs where it is named.
    """

    name: str
    about: str
    judge: Callable[[int], Outcome]
    kept: Callable[[int], str | bytes]
    suffix: str
    weight: float = 1.0


def _graphs(seed: int, everywhere: bool = False) -> Outcome:
    verdict = None
    for configuration in judging.CONFIGURATIONS if everywhere else (None,):
        verdict = judging.judge(seed, configuration)
        if verdict.found:
            return {"refused": "wrongly refused"}.get(verdict.outcome, verdict.outcome), f"{verdict.engine}: {verdict.reason}"
    assert verdict is not None
    return verdict.outcome, verdict.reason


def _native(seed: int) -> Outcome:
    verdict = judging.judge_native(seed)
    return {"refused": "wrongly refused"}.get(verdict.outcome, verdict.outcome), verdict.reason


def _native_model(seed: int) -> bytes:
    return graph(seed, wide=seed % 2 == 0).SerializeToString()


def _levels(seed: int) -> Outcome:
    found = levels.compared(seed)
    return found.kind, found.reason


def _codelets(seed: int) -> Outcome:
    with tempfile.TemporaryDirectory() as folder:
        kind, _, why = codelets.judge(seed, Path(folder)).partition(":")
    return kind if kind in ("agrees", "refused", "failed") else "wrong", why


def _codelet(seed: int) -> str:
    return codelets.case(seed).text


def _nothing(seed: int) -> str:
    """A seed draws all of its case: there is no file to keep."""
    return f"seed {seed}"


def _model(seed: int) -> bytes:
    return graph(seed).SerializeToString()


TABLE = {
    f.name: f
    for f in (
        Fuzzer("graphs", "random ONNX graphs against onnxruntime", _graphs, _model, ".onnx"),
        Fuzzer("graphs-everywhere", "the same on every engine and number of tiles", partial(_graphs, everywhere=True), _model, ".onnx", 0),
        Fuzzer("graphs-native", "the same on the native engine by name, half of them with large values", _native, _native_model, ".onnx"),
        Fuzzer("levels", "every level of random graphs against the one above", _levels, _model, ".onnx"),
        Fuzzer("proofs", "random graphs proved pass by pass, and run", proofs.judge, _model, ".onnx"),
        Fuzzer("edits", "random graphs and the same with one edit, proved to be one or not, and run", edits.judge, _model, ".onnx"),
        Fuzzer("gradients", "gradients of random graphs against differences", gradients.judge, _model, ".onnx"),
        Fuzzer("stablehlo", "random programs of StableHLO against XLA", stablehlo.judge, stablehlo.described, ".mlir"),
        Fuzzer("states", "programs with states in random sequences of calls", states.judge, states.described, ".txt"),
        Fuzzer("codelets", "random codelets in Python by every way that runs them", _codelets, _codelet, ".py"),
        Fuzzer("tiles", "mutated tile programs on every engine", tile_programs.judge, tile_programs.mutated, ".mlir"),
        Fuzzer("patterns", "programs at the edges of rewrite patterns' conditions", patterns.judge, patterns.mutated, ".mlir"),
        Fuzzer("texts", "mutated texts of every level", texts.judge, texts.mutated, ".mlir"),
        Fuzzer("files", "mutated models, arrays, weights, checkpoints and cached programs", binary_files.judge, binary_files.mutated, ""),
        Fuzzer("faults", "writes, threads and memory that fail while commands write files", faults.judge, _nothing, ".txt", 0.5),
        Fuzzer("limits", "files and memory that the system refuses, in child processes", faults.judge_limit, _nothing, ".txt", 0.5),
        Fuzzer("signals", "signals at any moment while commands write files", faults.judge_signal, _nothing, ".txt", 0.5),
    )
}
