"""Proofs of whole compiles: for each model and target the passes that are proved, refuted and not decided, and seconds of one core.

    python -m benchmarks.proofs                     # the table of docs/proof-measured.md: nets, layers, loops, steps, on three machines
    python -m benchmarks.proofs --launches          # with the native engine's launches, which are loaded for it
    python -m benchmarks.proofs --quick             # small ones, half a minute
    python -m benchmarks.proofs --nodes 100         # ONNX's node tests, each of which is compiled to tiles; every 100th
    python -m benchmarks.proofs --nodes 1 --shard 1/2   # the first half of all of them, for a process of its own

Exit status 1 if a pass is refuted. Needs `islpy`.
"""

from __future__ import annotations

import argparse
import gc
import runpy
import signal
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Generator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from time import process_time
from typing import Any

import onnx

import populus
from benchmarks.models import LIGHT, MODELS, NETS, cached_layer, conv_net, lstm, mlp, randomised
from populus.dialects.support.diagnostics import PopulusError
from populus.onnx_backend import Prepared
from populus.program.program import Program
from populus.proof.launches import prove_launches
from populus.proof.passes import Prover, proving
from populus.proof.report import PROVED, REFUTED, UNDECIDED
from populus.runtime.session import graph_of
from populus.training.session import TrainingSession

QUICK = ("squeezenet", "bert_layer", "gpt_layer", "lstm of 16")
TARGETS: dict[str, dict[str, Any]] = {"host": {}, "gc200": {"target": "gc200", "tiles": 1472}, "n150": {"target": "n150"}}


DEVICES = {"host": "cpu", "gc200": "ipu_model"}
"""Devices of PopXL."""
IN_POPXL = "step in PopXL"


def compiled(make: Callable[[], onnx.ModelProto]) -> Callable[[dict[str, Any]], object]:
    """Compiles a model, which is made once, with options."""
    kept = cache(make)
    return lambda options: populus.compile(kept(), **options)


def net(name: str) -> Callable[[], onnx.ModelProto]:
    """Loads a net that ends in logits, as a saturated softmax hides differences."""
    return lambda: randomised(LIGHT / f"light_{name}.onnx", logits=True)


def eight_bits() -> onnx.ModelProto:
    """Makes resnet50 of 8 bits with onnxruntime, in the form QDQ."""
    from benchmarks.quantized import build

    with TemporaryDirectory() as folder:
        build("resnet50", "QDQ", path := Path(folder, "model.onnx"))
        return onnx.load(path)  # pyright: ignore[reportUnknownMemberType]


def popxl_step(options: dict[str, Any]) -> object:
    """Compiles the step of training of examples/popxl/mnist.py."""
    from populus import popxl
    from populus.aliases import installed

    with installed():
        ir = runpy.run_path(str(Path(__file__).parents[1] / "examples/popxl/mnist.py"))["program"]()[0]
    return popxl.Session(ir, DEVICES[options.get("target", "host")])


def trained(make: Callable[[], onnx.ModelProto]) -> Callable[[dict[str, Any]], object]:
    """Compiles the step that trains a model, which is made once, with options."""
    kept = cache(make)
    return lambda options: TrainingSession(kept(), loss="cross_entropy", optimizer="adam", **options)


ALL: dict[str, Callable[[dict[str, Any]], object]] = {
    **{name: compiled(net(name)) for name in NETS},
    **{name: compiled(MODELS[name]) for name in ("bert_layer", "bert_12", "gpt_layer")},
    "gpt layer with a cache": compiled(cached_layer),
    "lstm of 16": compiled(lambda: lstm(sequence=40, inputs=16, hidden=16)),
    "resnet50 in 8 bits": compiled(eight_bits),
    "training step (mlp)": trained(mlp),
    "training step (conv_net)": trained(conv_net),
    **{f"training step ({name})": trained(net(name)) for name in ("squeezenet", "resnet50", "shufflenet")},
    IN_POPXL: popxl_step,
}


class TooLong(Exception):
    """Raised where a model takes longer than its limit."""


@contextmanager
def limited(seconds: int) -> Generator[None]:
    """Raises TooLong after so many seconds of the CPU, also where a library has made another exception of it."""
    late: list[TooLong] = []

    def stop(*_: object) -> None:
        late.append(TooLong(f"longer than {seconds} s"))
        raise late[-1]

    before = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    except Exception as error:
        if late:
            raise late[-1] from error
        raise
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def proved(make: Callable[[], object], limit: int) -> tuple[Prover | None, str]:
    """Proves what is compiled by `make`. Returns the prover, and why there is none or a pass is refuted."""
    prover = None
    try:
        with limited(limit), proving(run=False) as prover:
            make()
    except (PopulusError, TooLong) as why:
        return prover, str(why).splitlines()[0]
    return prover, ""


def row(name: str, target: str, limit: int, launches: bool) -> tuple[str, Counter[str]]:
    """Makes the line of a model and a target, and counts passes by verdict. `launches`: the engine's too, which are not timed."""

    def make() -> object:
        return ALL[name]({"engine": "numpy", **TARGETS[target]})

    start = process_time()
    try:
        program = make()
    except PopulusError as error:  # larger than the machine
        return f"| {name} | {target} | 0 | 0 | 0 | | | | | {str(error).splitlines()[0][:120]} |", Counter()
    first = process_time() - start
    gc.collect()  # what is left of the compile before is not counted with the next one
    begin = process_time()
    make()
    middle = process_time()
    gc.collect()
    again = process_time()
    prover, why = proved(make, limit)
    seconds = middle - begin
    taken = process_time() - again - seconds
    rows = [] if prover is None else prover.rows
    program = program.program if isinstance(program, TrainingSession) else program
    if launches and isinstance(program, Program):
        rows.append(prove_launches(graph_of(program.module("poplar"))))
    found = Counter(r.verdict for r in rows)
    reasons = "; ".join(f"{r.passes}: {r.why}" for r in rows if r.verdict != PROVED) or why
    share = f"{taken / seconds:.2f}" if rows and not why else ""  # of a compile that was stopped there is none
    times = (f"{t:.2f}" for t in (first, seconds, taken))
    cells = (name, target, found[PROVED], found[REFUTED], found[UNDECIDED], *times, share, reasons[:120])
    return f"| {' | '.join(map(str, cells))} |", found + Counter({REFUTED: int("is refuted" in why and not found[REFUTED])})


def nodes(step: int, shard: tuple[int, int], limit: int) -> bool:
    """Proves every `step`th of ONNX's node tests, and prints how many are proved, and the reasons of the others.

    `shard`: (k, n) for the kth of n processes, each of which has every nth of these.
    """
    from onnx.backend.test.loader import load_model_tests

    verdicts, passes, reasons = Counter[str](), Counter[str](), Counter[str]()
    cases = load_model_tests(kind="node")[::step][shard[0] - 1 :: shard[1]]
    for case in cases:
        assert case.data_sets, case.name
        model = case.model if case.model is not None else onnx.load(f"{case.model_dir}/model.onnx")  # pyright: ignore[reportUnknownMemberType]
        prepared = Prepared(model, "host", 16, "numpy")
        inputs = prepared.named(list(case.data_sets[0][0]))  # those that decide shapes are constants
        prover, why = proved(lambda prepared=prepared, inputs=inputs: prepared.program(inputs), limit)
        rows = [] if prover is None else prover.rows
        passes.update(r.verdict for r in rows)
        worst = next((v for v in (REFUTED, UNDECIDED) for r in rows if r.verdict == v), PROVED)
        verdict = worst if worst == REFUTED else "not compiled" if why or not rows else worst
        verdicts[verdict] += 1
        if verdict != PROVED:
            reason = why or next((f"{r.passes}: {r.why}" for r in rows if r.verdict == worst), "no tiles")
            reasons[f"{verdict}: {reason[:90]}"] += 1
            if verdict == REFUTED:
                print(f"{case.name}: {reason}")
    print(f"{len(cases)} node tests: {', '.join(f'{n} {v}' for v, n in verdicts.most_common())}")
    print(f"{passes.total()} pairs of a pass and a test: {', '.join(f'{n} {v}' for v, n in passes.most_common())}")
    print("\n".join(f"{n:5} {reason}" for reason, n in reasons.most_common(60)))
    return not verdicts[REFUTED]


def main(argv: list[str] | None = None) -> int:
    """Prints the table, or the counts of node tests."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="small models only")
    parser.add_argument("--nodes", type=int, metavar="N", help="every Nth of ONNX's node tests")
    parser.add_argument("--shard", default="1/1", metavar="K/N", help="the Kth of N parts of the node tests, for N processes")
    parser.add_argument("--models", nargs="+", choices=list(ALL), help="these models")
    parser.add_argument("--targets", nargs="+", choices=list(TARGETS), default=[*TARGETS], help="for these machines")
    parser.add_argument("--launches", action="store_true", help="prove the native engine's launches too")
    parser.add_argument("--limit", type=int, help="seconds for a model, by default 120, or 60 for a node test")
    args = parser.parse_args(argv)
    warnings.simplefilter("ignore")
    if args.nodes is not None:
        k, n = map(int, args.shard.split("/"))
        return 0 if nodes(args.nodes, (k, n), args.limit or 60) else 1
    print("| model | target | proved | refuted | not decided | first compile | compile (s) | prove (s) | ratio | not decided, or why not |")
    print("|---|---|---|---|---|---|---|---|---|---|")
    found = Counter[str]()
    for name in args.models or (QUICK if args.quick else ALL):
        for target in (t for t in args.targets if t in DEVICES or name != IN_POPXL):
            line, verdicts = row(name, target, args.limit or 120, args.launches)
            print(line, flush=True)
            found += verdicts
    print(f"{found.total()} pairs of a pass and a model: {', '.join(f'{n} {v}' for v, n in found.most_common())}")
    return 0 if not found[REFUTED] else 1


if __name__ == "__main__":
    sys.exit(main())
