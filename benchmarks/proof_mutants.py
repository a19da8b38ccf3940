"""Wrong edits of patterns, lowerings, fusion and planner, drawn by a seed: how many does a proof refute, or the verifier refuse?

    python -m benchmarks.proof_mutants                  # until 200 edits that change a result are judged
    python -m benchmarks.proof_mutants --count 20       # some
    python -m benchmarks.proof_mutants --seed 7 --count 1 --all   # every program that reaches the edit, not the first that catches it

Each is planted in a copy of the sources. The programs of the patterns' FileCheck tests, and the small models of the proofs, that call the
edited function are compiled under proof. An edit is wrong if a program is refuted or refused, or if its results differ when each pass is
run. Others change no result of these programs, or end in an exception of Python, and are not judged. Exit status 1 if less than 95 of
100 are caught.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import random
import shutil
import sys
import tempfile
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

from benchmarks import drawn_mutants
from benchmarks.drawn_mistakes import ROOT, Edit, drawn
from benchmarks.drawn_mutants import LEFT_OUT, failure, linked

SHARES = {"lowering/popart/patterns": 0.4, "lowering/popops": 0.15, "lowering/poplar": 0.45}
"""The folders, and the share of the edits in each."""
BESIDE = ("lowering/poplar/emit", "lowering/poplar/to_llvm", "lowering/poplar/from_gcl", "lowering/poplar/control_flow")
"""Files whose code these programs do not reach, or of which only a part: machine code of codelets, several machines, loops."""
EACH = 24  # programs of an edit
TILES = 16

Outcome = tuple[str, list[str]]


def result(name: str) -> str:
    """Compiles a program. Gives the text after the last pass."""
    import populus
    from helpers.pattern_programs import PROGRAMS
    from helpers.proof_models import MODELS
    from populus.dialects.table import context
    from populus.lowering.driver.pipeline import Pipeline

    if name in MODELS:
        return str(populus.compile(MODELS[name](), tiles=TILES, engine="numpy", cache=False).module("poplar"))
    module = PROGRAMS[int(name)].clone()
    Pipeline.from_text("popart-fuse").run(context(), module)
    return str(module)


def digest(text: str) -> str:
    """Tells texts apart."""
    return hashlib.sha256(text.encode()).hexdigest()


def outcome(name: str) -> Outcome:
    """Compiles a program under proof. Gives a digest of its text, and the passes that are not decided."""
    from populus.proof.passes import proving
    from populus.proof.report import PROVED

    with proving(run=False) as prover:
        text = result(name)
    return digest(text), [row.passes for row in prover.rows if row.verdict != PROVED]


def verdict(name: str, right: Outcome) -> str:
    """Tells how a program ends that mistaken sources compile."""
    from xdsl.utils.exceptions import VerifyException

    from populus.compare.validation import validating
    from populus.dialects.support.diagnostics import PopulusError

    try:
        if digest(result(name)) == right[0]:
            return "same"
        _, open_ = outcome(name)
    except PopulusError as error:
        return f"{'refuted' if ' is refuted' in str(error) else 'refused'}: {error}"
    except VerifyException as error:
        return f"refused: {error}"
    except Exception as error:
        return f"crashed: {type(error).__name__}: {error}"
    how = "not decided" if {*open_} - {*right[1]} else "proved"
    try:
        with validating():
            result(name)
    except PopulusError as error:
        return f"missed: {how}, but {error}"
    return "another program" if how == "proved" else "not decided"


def judged(rest: str) -> str:
    """Tells how programs end in a child process, until one catches. Gives verdicts as JSON."""
    warnings.simplefilter("ignore")
    programs, every = json.loads(rest)
    found: list[str] = []
    for name, right in programs:
        found.append(f"{name}: {verdict(name, right)}"[:300])
        if not every and any(f": {word}: " in found[-1] for word in ("refuted", "refused", "crashed")):
            break
    return json.dumps(found[-8:])


def reached(run: Callable[[], Any]) -> tuple[Any, set[tuple[str, str]]]:
    """Calls a function. Gives its result, and the functions under `lowering` that it calls: file and name."""
    found = set[tuple[str, str]]()

    def trace(frame: FrameType, event: str, arg: object) -> None:
        code = frame.f_code
        if "/lowering/" in code.co_filename:
            file = code.co_filename[code.co_filename.rindex("/lowering/") + 1 :]
            found.add((file, code.co_qualname.replace(".<locals>", "").partition(".<")[0]))

    sys.settrace(trace)
    try:
        return run(), found
    finally:
        sys.settrace(None)


def baseline() -> dict[str, tuple[Outcome, set[tuple[str, str]]]]:
    """Compiles all programs with the sources as they are."""
    from helpers.pattern_programs import PROGRAMS
    from helpers.proof_models import MODELS
    from populus.dialects.support.diagnostics import PopulusError

    found: dict[str, tuple[Outcome, set[tuple[str, str]]]] = {}
    for name in [*map(str, range(len(PROGRAMS))), *MODELS]:
        try:
            found[name] = reached(lambda name=name: outcome(name))
        except PopulusError as error:
            if "is not loaded" not in str(error):  # a program of a pattern of the user's
                raise
    return found


def edits(seed: int, count: int) -> Iterator[Edit]:
    """Draws edits of functions."""
    found = drawn(seed, count, shares=SHARES)
    random.Random(seed).shuffle(found)
    for edit in found:
        if edit.function and not edit.file.startswith(BESIDE):
            yield edit


def main() -> int:
    """Prints a line for each edit that is not caught, and counts."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.proof_mutants")
    parser.add_argument("--seed", type=int, default=30)
    parser.add_argument("--count", type=int, default=200, help="edits that change a result")
    parser.add_argument("--drawn", type=int, default=600, help="the most that are drawn")
    parser.add_argument("--all", action="store_true", help="judge every program that reaches an edit")
    options = parser.parse_args()
    sys.path.insert(0, str(ROOT / "test"))
    warnings.simplefilter("ignore")
    drawn_mutants.KINDS["proved"] = judged
    known = baseline()
    counts = Counter[str]()
    with tempfile.TemporaryDirectory() as folder:
        right, cache = Path(folder, "right"), Path(folder, "cache")
        shutil.copytree(ROOT, right, symlinks=True, ignore=shutil.ignore_patterns(*LEFT_OUT))
        for edit in edits(options.seed, options.drawn):
            programs = [(name, of) for name, (of, calls) in known.items() if (edit.file, edit.function) in calls]
            if not programs:
                counts["reached by no program"] += 1
                continue
            chosen = programs if options.all else programs[:: max(len(programs) // EACH, 1)][:EACH]
            root = Path(folder, "mutant")
            linked(right, root)
            path = root / edit.file
            text = path.read_text()
            path.unlink()
            path.write_text(edit.applied(text))
            said = failure(root, cache, f"proved {json.dumps([chosen, options.all])}")
            shutil.rmtree(root)
            lines = json.loads(said) if said.startswith("[") else [f"all: crashed: {said}"]
            kinds = {line.split(": ")[1] for line in lines}
            worst = next((k for k in ("refuted", "refused", "crashed", "missed", "not decided", "another program") if k in kinds), "same")
            counts[worst] += 1
            change = f"{' '.join(edit.old.split())} -> {' '.join(edit.new.split())}"
            where = f"{edit.file}:{edit.line(text)}, {edit.function}: {edit.kind}: {change}"
            if worst in ("missed", "not decided") or options.all:
                print(f"{worst}: {where[:200]}\n    " + "\n    ".join(lines), flush=True)
            if counts.total() % 25 == 0:
                print(f"{counts.total()} edits: {dict(counts)}", file=sys.stderr, flush=True)
            if sum(counts[k] for k in ("refuted", "refused", "missed")) >= options.count:
                break
    caught, missed = counts["refuted"] + counts["refused"], counts["missed"]
    print(", ".join(f"{n} {kind}" for kind, n in counts.most_common()))
    print(f"{caught} of {caught + missed} wrong edits are refuted by proof or refused")
    return int(caught < 0.95 * (caught + missed))


if __name__ == "__main__":
    sys.exit(main())
