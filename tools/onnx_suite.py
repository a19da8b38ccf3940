"""ONNX's backend suite, case by case, with the outcome of each: `python -m populus.tools.onnx_suite --help`.

Each of the 2,033 cases for CPUs runs through `populus.onnx_backend`, and ONNX's own runner judges it. `--write` records the
outcomes in `test/pytest/onnx_suite.json`, with which the tests compare every case, and writes `docs/coverage.md` from it.

`--symbolic` names every dimension of every input; the sizes arrive when the case runs. `--write` then records the failures.
`--reference` stops at the level `popart`, which runs op by op on whole arrays; `--write` records the failures likewise.
`--asked` first asks `is_compatible`, as ONNX's runner does for models in files; a case that it refuses is `refused`.
`onnx.backend.test.BackendTest(populus.onnx_backend.Backend, __name__)` runs the same without our two additional judgements.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
import tempfile
import time
import warnings
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, cast
from unittest import SkipTest

import numpy as np
from onnx import ModelProto, NodeProto, TypeProto, defs
from onnx.backend.test.runner import Runner

from populus.dialects.poplar import CopyOp, ExecuteOp, HostCallOp
from populus.dialects.support.diagnostics import PopulusError
from populus.onnx_backend import Backend, Prepared
from populus.program.options import ENGINES
from populus.program.program import Program
from populus.tools.gradient_page import column
from populus.tools.operators import operators

CASES = 2033  # of onnx 1.23
PASSING = ("folded", "host")  # other outcomes that count as passed
ROOT = Path(__file__).resolve().parent.parent
RECORD = ROOT / "test/pytest/onnx_suite.json"
NAMES = ROOT / "test/pytest/onnx_suite_names.txt"  # of all cases, whose data take 6 s of a CPU to make
# Failures with all dimensions symbolic, and at the level popart.
OTHERS = {way: ROOT / f"test/pytest/onnx_suite_{way}.json" for way in ("symbolic", "reference")}
PAGE = ROOT / "docs/coverage.md"


@dataclass(frozen=True)
class Outcome:
    """The outcome of a case.

    `passed`; `folded`: passed, with nothing left for the tiles; `host`: passed, partly computed by the host (strings, images).
    `unsupported`, `wrong` and `error`: failed; `refused`: `is_compatible` was False.
    """

    status: str
    reason: str = ""


@dataclass(frozen=True)
class Case:
    """A case of the suite. `run` raises if the outputs differ from the expected ones."""

    name: str
    group: str
    run: Callable[[], None]
    node: NodeProto | None  # the node under test, if there is one
    domains: Mapping[str, int]


class Suite(Backend):
    """The backend that cases run through. It reports models that it cannot compile, and keeps its programs."""

    programs: list[Program] = []
    symbolic: bool = False  # models come without the sizes of their inputs
    asked: bool = False  # only cases that is_compatible accepts run

    @classmethod
    def prepare(cls, model: ModelProto, device: str = "CPU", **kwargs: Any) -> Prepared:
        if cls.asked and not super().is_compatible(model, device):
            raise SkipTest("is_compatible")
        prepared = super().prepare(symbolic(model) if cls.symbolic else model, device, **kwargs)
        compiled = prepared.program

        def program(inputs: Any) -> Any:
            found = compiled(inputs)
            cls.programs.append(found[0])
            return found

        prepared.program = program
        return prepared

    @classmethod
    def is_compatible(cls, model: ModelProto, device: str = "CPU", **kwargs: Any) -> bool:
        return True  # the runner calls is_compatible for some cases only; `asked` calls it for all


def symbolic(model: ModelProto) -> ModelProto:
    """Names each dimension of the model's inputs, and removes the stated shapes of intermediate values and outputs."""
    copy = ModelProto()
    copy.CopyFrom(model)
    for i in copy.graph.input:
        for type in _tensor_types(i.type):
            for d, dimension in enumerate(type.shape.dim):
                dimension.dim_param = f"{i.name}_{d}"
    for o in (*copy.graph.output, *copy.graph.value_info):
        for type in _tensor_types(o.type):
            type.ClearField("shape")
    return copy


def _tensor_types(type: TypeProto) -> Iterator[TypeProto.Tensor]:
    """Yields the types of the tensors in a type."""
    match type.WhichOneof("value"):
        case "tensor_type":
            yield type.tensor_type
        case "sequence_type":
            yield from _tensor_types(type.sequence_type.elem_type)
        case "optional_type":
            yield from _tensor_types(type.optional_type.elem_type)
        case _:
            return


class Judge(Runner):
    """ONNX's runner with two additional judgements: scalars in sequences, and random numbers, which no two generators share."""

    drawn: bool = False  # the case draws random numbers

    @classmethod
    def assert_similar_outputs(
        cls, ref_outputs: Sequence[Any], outputs: Sequence[Any], rtol: float, atol: float, model_dir: str | None = None
    ) -> None:
        """Raises AssertionError for outputs that are not similar. Random ones need the right shape and dtype, and values of 0 or 1."""
        if Judge.drawn:
            for wanted, found in zip(ref_outputs, outputs, strict=True):
                assert (wanted.shape, wanted.dtype) == (found.shape, found.dtype), "Shape or dtype mismatch"
                assert set(np.unique(found).tolist()) <= {0, 1}, "Mismatch: not 0 or 1"
            return
        if any(isinstance(o, list) for o in ref_outputs):
            np.testing.assert_equal(len(outputs), len(ref_outputs))
            for wanted, found in zip(ref_outputs, outputs):
                assert isinstance(wanted, list) == isinstance(found, list), "Mismatch: a sequence, and something else"
                lists = isinstance(wanted, list)
                cls.assert_similar_outputs(cast("list[Any]", wanted if lists else [wanted]), found if lists else [found], rtol, atol)
            return
        super().assert_similar_outputs([np.asarray(o) for o in ref_outputs], [np.asarray(o) for o in outputs], rtol, atol, model_dir)


@lru_cache(1)
def cases() -> dict[str, Case]:
    """Lists the cases by name. Node cases are generated here, with ONNX's expected values."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        items = cast("dict[str, dict[str, Any]]", Judge(Suite)._test_items)  # pyright: ignore[reportPrivateUsage]
        models = _node_models()
    found: dict[str, Case] = {}
    for title, tests in items.items():
        group = title.removesuffix("Model")
        for full, item in tests.items():
            name = full.removesuffix("_cpu")
            if name == full:
                continue
            assert name not in found, name
            model = models.get(name)
            base = models.get(re.sub(r"_expanded(_ver\d+)?$", "", name), model)
            node = base.graph.node[0] if base is not None and group == "Node" else None
            domains = {o.domain: o.version for o in base.opset_import} if base is not None else {}
            found[name] = Case(name, group, _runner(item.func), node, domains)
    return dict(sorted(found.items()))


def _node_models() -> dict[str, ModelProto]:
    from onnx.backend.test.loader import load_model_tests

    return {case.name: case.model for case in load_model_tests(kind="node") if case.model is not None}


def _runner(function: Callable[..., Any]) -> Callable[[], None]:
    return lambda: function(None)


def outcome(case: Case, way: str = "") -> Outcome:
    """Runs a case, optionally in another way: with `symbolic` dimensions, at the `reference` level, or `asked` first."""
    Suite.programs.clear()
    Suite.symbolic = way == "symbolic"
    Suite.asked = way == "asked"
    Suite.level = "popart" if way == "reference" else "poplar"
    Judge.drawn = case.node is not None and case.node.op_type == "Bernoulli"
    with warnings.catch_warnings(), tempfile.TemporaryDirectory() as folder:
        warnings.simplefilter("ignore")
        os.environ["ONNX_MODELS"] = folder  # the folder of the runner's model data
        try:
            case.run()
        except SkipTest:
            return Outcome("refused")
        except PopulusError as error:
            return Outcome("unsupported", plain(str(error)))
        except AssertionError as error:
            text = str(error).strip().splitlines()
            return Outcome(
                "wrong", next((line for line in text if "Mismatch" in line or "rror" in line or "hape" in line), "") or "asserted"
            )
        except Exception as error:
            return Outcome("error", f"{type(error).__name__}: {' '.join(str(error).split())}")
    if any(program.host_calls for program in Suite.programs):
        return Outcome("host")
    if way != "reference" and all(_without_steps(program) for program in Suite.programs):
        return Outcome("folded")
    return Outcome("passed")


def _without_steps(program: Program) -> bool:
    """Tells whether a program has no step: it runs no vertex and moves no data."""
    return not any(isinstance(op, ExecuteOp | CopyOp | HostCallOp) for op in program.module("poplar").walk())


def plain(message: str) -> str:
    """Strips a message of its place, the pass's name, and parts that vary between cases."""
    message = re.sub(r" \(in [a-z-]+\)$", "", message)
    message = re.sub(r"^(test_\w+: )?'[^']*': ", "", message)
    return re.sub(r"tensor<[^>]*?(!onnx\.string)?>", lambda m: "a tensor of strings" if m[1] else "a tensor", message)


def outcomes(names: Iterable[str], way: str = "", processes: int = 2) -> dict[str, Outcome]:
    """Runs these cases and gives their outcomes in order."""
    chosen = list(names)
    with ProcessPoolExecutor(processes) as pool:
        return dict(zip(chosen, pool.map(partial(_named, way), chosen, chunksize=16)))


def _named(way: str, name: str) -> Outcome:
    return outcome(cases()[name], way)


# -- the record and the page


def names() -> list[str]:
    """Reads the names of all cases, in order. None is made."""
    return NAMES.read_text().split()


def recorded() -> dict[str, Outcome]:
    """Reads the recorded outcomes of all cases other than `passed`."""
    found = json.loads(RECORD.read_text())
    return {name: Outcome(status, reason) for status, entries in found.items() for name, reason in entries.items()}


def record(found: Mapping[str, Outcome]) -> str:
    """Formats the record: by status, name -> reason."""
    groups: dict[str, dict[str, str]] = {status: {} for status in ("unsupported", "wrong", "error", *PASSING)}
    for name, o in sorted(found.items()):
        if o.status != "passed":
            groups[o.status][name] = o.reason
    return json.dumps({status: entries for status, entries in groups.items() if entries}, indent=1) + "\n"


def failing(way: str) -> list[str]:
    """Lists the recorded failures of one of the other ways."""
    return [name for entries in json.loads(OTHERS[way].read_text()).values() for name in entries]


def page(exceptions: Mapping[str, Outcome]) -> str:
    """Renders the page of coverage from the cases and the outcomes other than `passed`."""
    statuses = Counter(exceptions[name].status if name in exceptions else "passed" for name in cases())
    passed = statuses["passed"] + statuses["folded"] + statuses["host"]
    groups = "\n".join(_row(group, [c for c in cases().values() if c.group == group], exceptions) for group in _groups())
    by_op: dict[str, list[Case]] = defaultdict(list)
    reference = set(failing("reference"))
    for case in cases().values():
        if case.node is not None:
            by_op[f"{case.node.domain}.{case.node.op_type}".removeprefix(".")].append(case)
    rows = "\n".join(_row(op, by_op[op], exceptions, _version(by_op[op][0]), reference) for op in sorted(by_op, key=str.lower))
    return f"""# Coverage of ONNX

Written by `python -m populus.tools.onnx_suite --write`; the tests hold every case to it.

ONNX's backend suite (onnx 1.23) has {len(cases()):,} cases for CPUs. Through `populus.onnx_backend`, on 16 tiles of target `host`:
{passed:,} pass, {statuses["unsupported"]} are refused in one line, {statuses["wrong"]} differ from the expected numbers,
{statuses["error"]} fail otherwise.
Of those that pass, {statuses["folded"]} leave nothing to compute: all their inputs decide shapes, or their outputs are their inputs.
In {statuses["host"]} the host computes a part, strings and images (`populus check` lists such ops, `--no-host` refuses them).

`is_compatible` refuses no case that runs (`python -m populus.tools.onnx_suite --asked`; the tests hold a sample to it).
The two inverse DFTs differ by the rounding of sums whose true value is 0, for which a relative tolerance allows no error.

The six cases of Bernoulli draw random numbers, which depend on the generator. They pass with values of 0 or 1 in the right shape.

With every dimension of every input symbolic, and sizes that come with the data, {len(cases()) - len(failing("symbolic")):,} pass
(`python -m populus.tools.onnx_suite --symbolic`; the tests hold a hundred to it): a program is specialised for the sizes that arrive.

| group | cases | pass | of which folded | with the host | fail |
|---|---|---|---|---|---|
{groups}

## By operator

A case counts for the operator that it tests, also if it has the operator's expanded function.
`opset`: the newest version that the cases have.

`popart`: yes if all cases pass at that level, too. It runs op by op on whole arrays and is the reference for tiles
(`--reference`; the tests hold a hundred to it). `gradients`: the cases whose gradients agree with differences ([list](gradients.md)).

| operator | opset | cases | pass | of which folded | with the host | `popart` | gradients | reason of the others |
|---|---|---|---|---|---|---|---|---|
{rows}

## Every operator, every version

Opsets 1 to 28 are supported; the rule of an operator depends on the version where versions differ. `com.microsoft` is in
[models](models.md), gradients are in [gradients](gradients.md). Every level from `popart` down runs all of these.

| operator | versions | where | element types that tiles do not hold |
|---|---|---|---|
{operators()}

{DIFFERENCES}"""


DIFFERENCES = """## Where ONNX and onnxruntime differ

`test_onnx_versions.py` holds most of these. All other operators agree with onnxruntime without its optimizations.

| operator | ONNX | onnxruntime | here |
|---|---|---|---|
| BatchNormalization before opset 14 | does not define `saved_var` | `1 / sqrt(variance + epsilon)` | as onnxruntime |
| ConvTranspose, `auto_pad` SAME with `output_padding` | the size includes it | the size is x's times the stride | as onnxruntime |
| Dropout before opset 12, inference mode | does not define the mask | false | as onnxruntime |
| DynamicQuantizeLinear of zeros | the scale is 0 | 1 | as ONNX |
| LSTM with `clip` | clips the input of every activation, including the cell's | clips the gates only | as ONNX |
| pools before opset 22, `ceil_mode` | counts windows that start in the end padding | does not | as onnxruntime and opset 22 |
| Resize by scales, Upsample | its inference computes sizes in f64: 4 of 6 and the f32 nearest to 5/6 | in f32: 5 | as onnxruntime |
| Resize by scales, `align_corners` and `tf_crop_and_resize` | the result's size is not rounded | rounded down | as ONNX |
| Resize by scales, `nearest`, with an unchanged size | selects elements | copies | as ONNX |
| MaxUnpool with `output_shape` | interprets indices in the default shape | in `output_shape` | as ONNX |
| ReduceMax, ReduceMin, MaxPool of NaN | undefined | NaN or its neighbour, depending on the position | NaN |
| Squeeze before opset 11, axes not sorted | its inference drops other dimensions | those axes | as onnxruntime |
"""


def _groups() -> list[str]:
    return list(dict.fromkeys(case.group for case in cases().values()))


def _row(title: str, chosen: list[Case], exceptions: Mapping[str, Outcome], version: str = "", reference: Iterable[str] = ()) -> str:
    found = [exceptions.get(c.name, Outcome("passed")) for c in chosen]
    failed = [o for o in found if o.status not in ("passed", *PASSING)]
    reasons = Counter(o.reason if o.status == "unsupported" else f"{o.status}: {o.reason}" for o in failed)
    why = "; ".join(f"{reason} ({n})" if n > 1 else reason for reason, n in sorted(reasons.items())).replace("|", "\\|")
    cells = [title, *([version] if version else []), len(found), len(found) - len(failed)]
    cells += [sum(o.status == status for o in found) for status in PASSING]
    if version:
        missing = sum(c.name in reference for c in chosen)
        cells += [f"not {missing}" if missing else "yes", column(title), why]
    else:
        cells.append(len(failed))
    return f"| {' | '.join(map(str, cells))} |"


def _version(case: Case) -> str:
    assert case.node is not None
    return str(defs.get_schema(case.node.op_type, case.domains[case.node.domain], case.node.domain).since_version)


def main(arguments: list[str] | None = None) -> int:
    """Runs the cases whose name matches and prints the failures. `--write` records all outcomes."""
    parser = argparse.ArgumentParser(prog="python -m populus.tools.onnx_suite", description="ONNX's backend suite, case by case.")
    parser.add_argument("patterns", nargs="*", metavar="PATTERN", help="run only the cases whose name contains each of these")
    parser.add_argument("--write", action="store_true", help="record the outcomes of all cases, and write the page of coverage")
    ways = parser.add_mutually_exclusive_group()
    ways.add_argument("--symbolic", action="store_true", help="make every dimension of every input symbolic")
    ways.add_argument("--reference", action="store_true", help="run at the level popart, op by op on whole arrays")
    ways.add_argument("--asked", action="store_true", help="run only the cases that is_compatible accepts")
    parser.add_argument("--engine", choices=ENGINES, help="the engine (auto)")
    args = parser.parse_args(arguments)
    if args.engine is not None:
        os.environ["POPULUS_ENGINE"] = args.engine  # each process reads it
    names = [name for name in cases() if all(re.search(p, name) for p in args.patterns)]
    start = time.perf_counter()
    way = "symbolic" if args.symbolic else "reference" if args.reference else "asked" if args.asked else ""
    found = outcomes(names, way)
    for name, o in found.items():
        if o.status not in ("passed", *PASSING):
            print(f"{name}: {o.status}: {o.reason}")
    print(f"{dict(Counter(o.status for o in found.values()))} in {time.perf_counter() - start:.0f} s")
    if args.write and not args.patterns and way in OTHERS:
        OTHERS[way].write_text(record({name: o for name, o in found.items() if o.status not in ("passed", *PASSING)}))
    elif args.write and not args.patterns and not way:
        RECORD.write_text(record(found))
        NAMES.write_text("".join(f"{name}\n" for name in cases()))
        PAGE.write_text(page({name: o for name, o in found.items() if o.status != "passed"}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
