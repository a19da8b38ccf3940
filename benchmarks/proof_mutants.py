"""Wrong edits of patterns, lowerings, fusion and planner, drawn by a seed: how many does a proof refute, or the verifier refuse?

    python -m benchmarks.proof_mutants                  # until 200 edits that change a result are judged
    python -m benchmarks.proof_mutants --count 20       # some
    python -m benchmarks.proof_mutants --skip 500 --drawn 250   # the third part of a run in parts
    python -m benchmarks.proof_mutants --only 17 --all  # every program that reaches an edit, by its number

The programs are those of the patterns' FileCheck tests, and the small models of the proofs. An edit stands on a line that one of them
runs. It is planted in the code of a running compiler, in a child process. Programs that run the line are compiled, the quick ones first.
Those that come out as another program are compiled again under proof, and run. An edit is wrong if a program is refuted or refused, or if a
result differs by more than rounding. Others change no result of these programs, or end in an exception of Python, and are not judged.
Exit status 1 if less than 95 of 100 are caught.
"""

# pyright: basic

from __future__ import annotations

import argparse
import functools
import gc
import hashlib
import inspect
import json
import os
import random
import resource
import select
import signal
import sys
import time
import types
import warnings
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import import_module
from types import CodeType, FrameType
from typing import Any, TypeAlias

import numpy as np

from benchmarks.drawn_mistakes import COSTS, ROOT, Edit, changes, edits, files

SHARES = {"lowering/popart/patterns": 0.4, "lowering/popops": 0.1, "lowering/poplar": 0.4, "lowering/poplar/plan": 0.1}
"""The folders, and the share of the edits in each."""
EACH = 12  # programs of an edit
CHANGED = 4  # programs of an edit that are another one, after which it is left
TILES = 16
SECONDS = 60  # of a processor, for an edit

OUTCOMES = ("missed", "refuted", "refused", "crashed", "not decided", "another program", "same")
"""The outcome of an edit: the first of these that one of its programs comes to, but that it is caught if one catches it."""


@dataclass
class Known:
    """A program as right sources compile it: the digest of its text, the passes that are not decided, the lines that it runs, how long its
    proof takes, and what it computes."""

    digest: str
    open: list[str]
    lines: set[tuple[str, int]]
    seconds: float
    outputs: Outputs


Outputs: TypeAlias = "dict[str, dict[str, Any] | str]"


def result(name: str) -> Any:
    """Compiles a program. Gives the module after the last pass."""
    import populus
    from helpers.pattern_programs import PROGRAMS
    from helpers.proof_models import MODELS
    from populus.dialects.table import context
    from populus.lowering.driver.pipeline import Pipeline

    if name in MODELS:
        return populus.compile(MODELS[name](), tiles=TILES, engine="numpy", cache=False).module("poplar")
    module = PROGRAMS[int(name)].clone()
    Pipeline.from_text("popart-fuse").run(context(), module)
    return module


def outputs(module: Any) -> Outputs:
    """Runs a program, one of tiles on the native engine. Gives the outputs by kind of inputs and name; a text where they are refused."""
    from populus.compare.validation import MODERATE, inputs_of
    from populus.dialects.signature import input_names, main_of
    from populus.dialects.support.diagnostics import PopulusError
    from populus.dialects.support.element_types import dtype_of, element_type_of, shape_of
    from populus.program.source import level_of
    from populus.runtime.interpreter import run_function
    from populus.runtime.session import Session

    session = Session(module, "native") if level_of(module) == "poplar" else None
    if session is not None:
        types = session.inputs
    else:
        main = main_of(module)
        types = {n: (shape_of(a.type), dtype_of(element_type_of(a.type))) for n, a in zip(input_names(main), main.body.block.args)}
    found: Outputs = {}
    for kind in MODERATE:
        given = inputs_of(kind, types)
        try:
            with np.errstate(all="ignore"):
                found[kind] = dict(run_function(module, given) if session is None else session.run(given))
        except PopulusError as error:
            found[kind] = str(error)
    return found


def difference(right: Outputs, wrong: Outputs) -> str:
    """Describes an output that differs by more than rounding; nothing if none does."""
    from populus.compare.validation import changed

    for kind, a in right.items():
        b = wrong[kind]
        if isinstance(a, str) or isinstance(b, str):
            if type(a) is not type(b):
                return f"{b if isinstance(b, str) else a} (inputs: {kind})"
            continue
        for name in a:
            if name not in b or (why := changed(a[name], b[name], False, kind)):
                return f"'{name}': {why if name in b else 'it is lost'} (inputs: {kind})"
    return ""


def digest(text: str) -> str:
    """Tells texts apart."""
    return hashlib.sha256(text.encode()).hexdigest()


def undecided(name: str) -> list[str]:
    """Compiles a program under proof. Gives the passes that are not decided."""
    from populus.proof.passes import proving
    from populus.proof.report import PROVED

    with proving(run=False) as prover:
        result(name)
    return [row.passes for row in prover.rows if row.verdict != PROVED]


def verdict(name: str, right: Known) -> str:
    """Tells how a program ends that mistaken sources compile."""
    from xdsl.utils.exceptions import VerifyException

    from populus.dialects.support.diagnostics import PopulusError

    try:
        if digest(str(module := result(name))) == right.digest:
            return "same"
        open_ = undecided(name)
    except PopulusError as error:
        return f"{'refuted' if ' is refuted' in str(error) else 'refused'}: {error}"
    except VerifyException as error:
        return f"refused: {error}"
    except Exception as error:
        return f"crashed: {type(error).__name__}: {error}"
    try:
        if why := difference(right.outputs, outputs(module)):
            return f"missed: {'not decided' if open_ else 'proved'}, but {why}"
    except Exception as error:
        return f"crashed: {type(error).__name__}: {error}"
    return "not decided" if {*open_} - {*right.open} else "another program"


def judged(programs: dict[str, Known], every: bool) -> list[str]:
    """Tells how programs end, until one is refuted or refused."""
    found: list[str] = []
    changed = 0
    for name, right in programs.items():
        said = verdict(name, right)
        changed += said != "same"
        found.append(f"{name}: {said}"[:300])
        if not every and (said.startswith(("refuted", "refused")) or changed == CHANGED):
            break
    return found


# -- child processes


def child(make: Callable[[], Any], seconds: int = SECONDS) -> Any:
    """Calls a function in a child process. Gives its result, or a text that begins with `crashed`."""
    read, write = os.pipe()
    sys.stdout.flush()
    sys.stderr.flush()
    if (process := os.fork()) == 0:
        try:
            os.close(read)
            null = os.open(os.devnull, os.O_WRONLY)
            os.dup2(null, 1)
            os.dup2(null, 2)
            resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            try:
                said = make()
            except BaseException as error:
                said = f"crashed: {type(error).__name__}: {' '.join(str(error).split())[:200]}"
            with os.fdopen(write, "w") as pipe:
                json.dump(said, pipe)
        finally:
            os._exit(0)
    os.close(write)
    text, end = b"", time.monotonic() + 20 * seconds
    while select.select([read], [], [], max(end - time.monotonic(), 0))[0] and (more := os.read(read, 1 << 16)):
        text += more
    os.close(read)
    if time.monotonic() > end:
        os.kill(process, signal.SIGKILL)
    os.waitpid(process, 0)
    return json.loads(text) if text else "crashed: does not end"


# -- what programs run


def reached(run: Callable[[], Any]) -> tuple[Any, set[tuple[str, int]]]:
    """Calls a function. Gives its result, and the lines under `lowering` that it runs: file and number."""
    codes = dict[CodeType, str | None]()
    found = set[tuple[str, int]]()

    def lines(frame: FrameType, event: str, arg: object) -> Any:
        found.add((codes[frame.f_code] or "", frame.f_lineno))
        return lines

    def calls(frame: FrameType, event: str, arg: object) -> Any:
        code = frame.f_code
        if code not in codes:
            at = code.co_filename.rfind("/lowering/")
            codes[code] = code.co_filename[at + 1 :] if at >= 0 else None
        return lines if codes[code] else None

    sys.settrace(calls)
    try:
        return run(), found
    finally:
        sys.settrace(None)


def listed(array: Any) -> tuple[str, list[int], list[Any]]:
    """Gives an array as a value of JSON."""
    return str(array.dtype), list(array.shape), array.reshape(-1).tolist()


def known_of(text: str, open_: list[str], lines: list[list[Any]], seconds: float, found: dict[str, Any]) -> Known:
    """Reads what `baseline` gives of a program."""
    arrays: Outputs = {
        kind: o if isinstance(o, str) else {n: np.array(values, dtype).reshape(shape) for n, (dtype, shape, values) in o.items()}
        for kind, o in found.items()
    }
    return Known(text, open_, {(file, line) for file, line in lines}, seconds, arrays)


def baseline() -> tuple[dict[str, Any], list[str]]:
    """Compiles all programs with the sources as they are. Gives what each comes to, and the modules that this imports."""
    from helpers.pattern_programs import PROGRAMS
    from helpers.proof_models import MODELS
    from populus.dialects.support.diagnostics import PopulusError

    found: dict[str, Any] = {}
    for name in [*map(str, range(len(PROGRAMS))), *MODELS]:
        begin = time.process_time()
        try:
            open_ = undecided(name)
        except PopulusError as error:
            if "is not loaded" in str(error):  # a program of a pattern of the user's, or one whose constants are in another file
                continue
            raise
        seconds = time.process_time() - begin
        module, lines = reached(lambda name=name: result(name))
        of = {kind: o if isinstance(o, str) else {n: listed(a) for n, a in o.items()} for kind, o in outputs(module).items()}
        found[name] = (digest(str(module)), open_, sorted(lines), seconds, of)
    return found, [n for n in sys.modules if n.partition(".")[0] in ("populus", "helpers", "benchmarks")]


# -- mistakes in a running compiler


def codes(code: CodeType) -> Iterator[tuple[tuple[str, int], CodeType]]:
    """Yields the functions of a file's code by name and number, as some have one name."""
    count = Counter[str]()
    waiting = [code]
    while waiting:
        at = waiting.pop(0)
        for constant in at.co_consts:
            if isinstance(constant, CodeType):
                waiting.append(constant)
                if not constant.co_name.startswith("<"):
                    yield (constant.co_qualname, count[constant.co_qualname]), constant
                    count[constant.co_qualname] += 1


@dataclass
class File:
    """A file of the sources, and those functions of it that live, by name and number."""

    text: str
    path: str
    live: dict[tuple[str, int], list[types.FunctionType]]


def loaded() -> dict[str, File]:
    """Lists the files under `lowering` that are imported."""
    found = dict[str, File]()
    of = defaultdict[CodeType, list[types.FunctionType]](list)
    for function in gc.get_objects():
        if isinstance(function, types.FunctionType):
            of[function.__code__].append(function)
    for module in list(sys.modules.values()):
        path = getattr(module, "__file__", None) or ""
        if "/lowering/" in path and path.endswith(".py") and module.__name__.startswith("populus."):
            text = inspect.getsource(module) if os.path.getsize(path) else ""
            name = path[path.rindex("/lowering/") + 1 :]
            here = codes(compile(text, path, "exec", dont_inherit=True))
            found[name] = File(text, path, {key: of[code] for key, code in here if code in of})
    return found


def plant(file: File, text: str) -> bool:
    """Gives functions of a running compiler the code of another text. Tells whether one of them changes."""
    changed = False
    for key, code in codes(compile(text, file.path, "exec", dont_inherit=True)):
        for function in file.live.get(key, ()):
            if function.__code__ != code and len(code.co_freevars) == len(function.__code__.co_freevars):
                function.__code__ = code
                changed = True
    return changed


def caches() -> list[Any]:
    """Lists the caches of functions under `lowering`, which the right code may have filled."""
    kind = type(functools.cache(caches))
    return [c for c in gc.get_objects() if isinstance(c, kind) and "lowering" in str(getattr(c, "__module__", ""))]


def draws(seed: int, of: dict[str, File], lines: set[tuple[str, int]]) -> Iterator[Edit]:
    """Draws edits on lines that are run: a folder, a file of it, a kind of what can be changed there, and a place. None is drawn twice."""
    rng = random.Random(seed)
    open_ = dict[str, dict[str, list[Edit]]]()
    for folder in SHARES:
        names = files(folder) if folder != "lowering/poplar/plan" else (n for n in of if n.startswith(folder))
        open_[folder] = {}
        for name in sorted(names):
            if name not in of:
                continue
            text = of[name].text
            found = [e for e in edits(name, text) if e.function and (name, e.line(text)) in lines and not COSTS.search(e.function)]
            if found:
                open_[folder][name] = found
    while any(open_.values()):
        folder = rng.choices([*open_], [SHARES[f] * bool(open_[f]) for f in open_])[0]
        name = rng.choice([*open_[folder]])
        left = open_[folder][name]
        kind = rng.choice(sorted({e.kind for e in left}))
        edit = rng.choice([e for e in left if e.kind == kind])
        left[:] = [e for e in left if (e.begin, e.end) != (edit.begin, edit.end)]
        if not left:
            del open_[folder][name]
        if changes(edit, of[name].text):
            yield edit


def outcome(lines: list[str]) -> str:
    """Tells what an edit comes to."""
    kinds = {line.partition(": ")[2].partition(":")[0] for line in lines}
    if kinds & {"refuted", "refused"}:
        return "refuted" if "refuted" in kinds else "refused"
    return next(kind for kind in OUTCOMES if kind in kinds)


def main() -> int:
    """Prints a line for each edit that is not caught, and counts."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.proof_mutants")
    parser.add_argument("--seed", type=int, default=30)
    parser.add_argument("--count", type=int, default=200, help="edits that change a result")
    parser.add_argument("--drawn", type=int, default=3000, help="the most that are drawn")
    parser.add_argument("--skip", type=int, default=0, help="the first edits that are left out")
    parser.add_argument("--only", type=int, nargs="*", help="edits by number")
    parser.add_argument("--all", action="store_true", help="judge every program that reaches an edit")
    options = parser.parse_args()
    sys.path.insert(0, str(ROOT / "test"))
    warnings.simplefilter("ignore")
    made = child(baseline, 600)
    if isinstance(made, str):
        sys.exit(f"the sources as they are: {made}")
    found, modules = made
    known = {name: known_of(*said) for name, said in found.items()}
    for name in modules:
        import_module(name)
    of = loaded()
    filled = caches()
    gc.freeze()
    counts = Counter[str]()
    drawn = enumerate(draws(options.seed, of, {line for k in known.values() for line in k.lines}))
    for number, edit in drawn:
        if (options.only is not None and number not in options.only) or number < options.skip:
            continue
        if number == options.skip + options.drawn:
            break
        file = of[edit.file]
        line = edit.line(file.text)
        programs = sorted((k.seconds, name) for name, k in known.items() if (edit.file, line) in k.lines)
        chosen = programs if options.all else programs[:: max(len(programs) // EACH, 1)][:EACH]

        def planted(file: File = file, edit: Edit = edit, chosen: list[tuple[float, str]] = chosen) -> list[str]:
            if not plant(file, edit.applied(file.text)):
                return ["all: crashed: no function that lives has this code"]
            for cache in filled:
                cache.cache_clear()
            return judged({name: known[name] for _, name in chosen}, options.all)

        said = child(planted)
        said = said if isinstance(said, list) else [f"all: {said}"]
        worst = outcome(said)
        counts[worst] += 1
        change = f"{' '.join(edit.old.split())} -> {' '.join(edit.new.split())}"
        print(f"{number}: {worst}: {edit.file}:{line}, {edit.function}: {edit.kind}: {change}"[:220], flush=True)
        shown = said if options.all else [text for text in said if not text.endswith(": same")][-2:] if worst != "same" else []
        print("".join(f"    {text}\n" for text in shown), end="", flush=True)
        if counts.total() % 50 == 0:
            print(f"{counts.total()} edits: {dict(counts)}", file=sys.stderr, flush=True)
        if sum(counts[k] for k in ("refuted", "refused", "missed")) >= options.count:
            break
    caught, missed = counts["refuted"] + counts["refused"], counts["missed"]
    print(", ".join(f"{n} {kind}" for kind, n in counts.most_common()))
    print(f"{caught} of {caught + missed} wrong edits are refuted by proof or refused")
    return int(caught < 0.95 * (caught + missed))


if __name__ == "__main__":
    sys.exit(main())
