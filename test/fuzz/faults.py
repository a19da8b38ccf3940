"""Calls of the system that fail, and signals, while commands write files: what was there stays, or what is new is whole.

The calls are those of `failing_calls.py`; a signal comes at the n-th call of a function. `CASES` are the commands.
"""

from __future__ import annotations

import contextlib
import errno
import faulthandler
import io
import json
import os
import random
import resource
import shutil
import signal
import sys
import tempfile
import traceback
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from types import FrameType
from unittest import mock

import numpy as np
from onnx import TensorProto, helper, numpy_helper, save

from fuzz.children import Outcome, mapped
from fuzz.failing_calls import ERRORS, Disk, Fault, Memory, Threads
from populus.runtime.built import team
from populus.runtime.engine.native.codegen import jit
from populus.tools import main as commands
from populus.tools import populus_opt
from populus.training import checkpoint

# -- the commands ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Case:
    """A command that writes below its folder. `words(model, folder)`: its arguments.

    `continues`: it succeeds without what it could not write, and without threads. `apart`: its files may be of different runs.
    `loose`: names that end so have content that differs from run to run; `whole` raises an error if one of them is torn.
    """

    name: str
    words: Callable[[str, str], list[str]]
    tool: Callable[[list[str]], int] = commands.main
    continues: bool = False
    apart: bool = False
    loose: tuple[str, ...] = ()
    whole: Callable[[Path], object] = Path.read_bytes
    kinds: tuple[type[Fault], ...] = (Disk,)


def _run(*words: str) -> Callable[[str, str], list[str]]:
    def of(model: str, folder: str) -> list[str]:
        return [w.format(m=model, d=folder, data=Path(model).with_name("data.npz"), wide=Path(model).with_name("wide.onnx")) for w in words]

    return of


def _json(path: Path) -> None:
    json.loads(path.read_text(encoding="utf-8"))


def _page(path: Path) -> None:
    assert path.read_text(encoding="utf-8").rstrip().endswith("</html>"), path


PASSES = "onnx-infer-shapes,onnx-to-popart,popart-to-popops"
CASES = {
    c.name: c
    for c in (
        Case("outputs", _run("run", "{m}", "--engine", "numpy", "--tiles", "2", "--outputs", "{d}/y.npz"), kinds=(Disk, Memory)),
        Case("json", _run("run", "{m}", "--engine", "numpy", "--tiles", "2", "--json", "{d}/y.json"), loose=(".json",), whole=_json),
        Case("page", _run("profile", "{m}", "--tiles", "2", "--html", "{d}/page.html"), loose=(".html",), whole=_page),
        Case("module", _run("{m}", "-p", PASSES, "-o", "{d}/m.mlir"), populus_opt.main),
        Case("dump", _run("{m}", "-p", PASSES, "--dump-dir", "{d}/steps", "-o", "{d}/m.mlir"), populus_opt.main, apart=True),
        Case("export", _run("export", "{m}", "-o", "{d}/out.onnx")),
        Case(
            "train",
            _run(
                "train", "{m}", "--data", "{data}", "--loss", "mean_squared_error", "--batch", "4", "--epochs", "2", "--engine", "numpy",
                "--tiles", "2", "--checkpoint", "{d}/checkpoints", "--export", "{d}/out.onnx", "--history", "{d}/loss.csv",
            ),
            apart=True, loose=(".safetensors",), whole=checkpoint.read, kinds=(Disk, Memory),
        ),
        Case(
            "cache", _run("run", "{m}", "--engine", "native", "--tiles", "2", "--cache", "--outputs", "{d}.npz"), continues=True,
            apart=True, loose=("",), ),
        Case(
            "threads", _run("run", "{wide}", "--engine", "native", "--threads", "3", "--outputs", "{d}.npz"), continues=True, apart=True,
            kinds=(Threads, Memory),
        ),
        Case("build", _run("build", "{m}", "--tiles", "2", "--name", "net", "-o", "{d}"), loose=(".so",)),
    )
}  # fmt: skip


@dataclass
class Ran:
    """The exit status of a command, its lines on standard error, the files of its folder, and those that are torn."""

    status: int
    lines: list[str]
    files: dict[str, bytes] = field(default_factory=dict[str, bytes])
    torn: list[str] = field(default_factory=list[str])


class Stage:
    """A folder with two models of one form, on which the commands run."""

    def __init__(self, folder: Path):
        self.folder = folder
        rng = np.random.default_rng(0)
        for name in ("before", "after"):
            w = numpy_helper.from_array(rng.standard_normal((8, 64), dtype=np.float32), "w")
            info = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [4, size]) for n, size in (("x", 8), ("y", 64))]
            nodes = [helper.make_node("MatMul", ["x", "w"], ["h"]), helper.make_node("Tanh", ["h"], ["y"])]
            graph = helper.make_graph(nodes, "g", info[:1], info[1:], [w])
            model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
            (folder / name).mkdir()
            save(model, folder / name / "net.onnx")
            for value in (*model.graph.input, *model.graph.output):
                value.type.tensor_type.shape.dim[0].dim_value = 4096  # work that threads share
            save(model, folder / name / "wide.onnx")
            data = {"x": rng.standard_normal((8, 8), dtype=np.float32), "labels": rng.standard_normal((8, 64), dtype=np.float32)}
            np.savez(folder / name / "data.npz", allow_pickle=True, **data)

    @cache  # noqa: B019, one stage in a process
    def clean(self, name: str) -> tuple[Ran, Ran, dict[type[Fault], int]]:
        """Runs a command on the first model, then on the second. Returns both, and the number of calls of each kind in the second."""
        case, calls = CASES[name], dict[type[Fault], int]()
        place = self.folder / f"{name}-clean"
        before = Ran(0, []) if case.continues else self.run(case, "before", place)
        assert before.status == 0, before
        before.files = {file: content for file, content in before.files.items() if not file.startswith("checkpoints")}  # it would resume
        after = before
        for kind in case.kinds:
            fault = kind()
            with self.prepared(f"{name}-count", before.files) as place:
                after = self.run(case, "after", place, fault)
            calls[kind] = fault.calls
        assert after.status == 0, after
        return before, after, calls

    @contextlib.contextmanager
    def prepared(self, name: str, files: Mapping[str, bytes]) -> Generator[Path, None, None]:
        """Makes a folder with these files, for a block."""
        place = Path(tempfile.mkdtemp(prefix=f"{name}-", dir=self.folder)) / "d"
        place.mkdir()
        for file, content in files.items():
            (place / file).parent.mkdir(parents=True, exist_ok=True)
            (place / file).write_bytes(content)
        try:
            yield place
        finally:
            shutil.rmtree(place.parent, ignore_errors=True)

    def run(self, case: Case, model: str, place: Path, fault: Fault | None = None) -> Ran:
        """Runs a command in this process, as a new process would: without code and threads of earlier runs."""
        place.mkdir(exist_ok=True)
        if case.continues:
            jit.library_of.cache_clear()
            team.forget()
        words = case.words(str(self.folder / model / "net.onnx"), str(place))
        out, err = io.StringIO(), io.StringIO()
        caches = str(place) if case.continues else ""
        calls = contextlib.nullcontext() if fault is None else fault.armed(place)
        streams = contextlib.redirect_stdout(out), contextlib.redirect_stderr(err)
        with mock.patch.dict(os.environ, {"POPULUS_CACHE": caches}), streams[0], streams[1], calls:
            status = case.tool(words)
        return self.ended(case, place, status, err.getvalue())

    def ended(self, case: Case, place: Path, status: int, said: str) -> Ran:
        """Reads what a command has left."""
        files, torn = contents(place), list[str]()
        for file in files:
            if case.loose and file.endswith(case.loose) and "partial" not in file and file != "outputs":
                try:
                    case.whole(place / file)
                except Exception as error:
                    torn.append(f"{file}: {error}")
        return Ran(status, said.splitlines(), files, torn)


def contents(folder: Path) -> dict[str, bytes]:
    """Reads all files of a folder."""
    found = {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}
    return found | ({"outputs": beside.read_bytes()} if (beside := Path(f"{folder}.npz")).exists() else {})


def wrong(case: Case, before: Ran, after: Ran, found: Ran, fault: Fault | None = None) -> str:
    """Says what a command has left that it must not leave; an empty text: nothing."""
    if strange := [f for f in found.files if "partial" in f or (f not in before.files and f not in after.files and not case.continues)]:
        return f"files are left: {strange}"
    if found.torn:
        return f"torn: {found.torn}"
    of_the_cache = sum(case.continues and "keeps no program" in line for line in found.lines)  # one limit may stop both files
    if len(found.lines) > 1 + of_the_cache or any("Traceback" in line or "internal error" in line for line in found.lines):
        return f"lines: {found.lines}"
    if found.status and (not found.lines or (case.continues and not isinstance(fault, Memory))):
        return f"status {found.status}, lines {found.lines}"
    strict = [f for f in sorted({*before.files, *after.files}) if f == "outputs" or not f.endswith(case.loose or ("\0",))]
    kinds: set[str] = set()
    for file in strict:
        old, new, now = before.files.get(file), after.files.get(file), found.files.get(file)
        if now not in (old, new):
            return f"{file} is neither the old nor the new one"
        if old != new:
            kinds.add("old" if now == old else "new")
    if not case.apart and len(kinds) > 1:
        return "some files are old, others new"
    if not found.status and kinds - {"new"}:
        return "status 0, and files are old"
    return ""


# -- fuzzers -----------------------------------------------------------------------------------------------------------


@cache
def stage() -> Stage:
    """Makes the stage of this process, in a folder that goes with it."""
    folder = tempfile.TemporaryDirectory(prefix="populus-faults-")
    _FOLDERS.append(folder)
    return Stage(Path(folder.name))


_FOLDERS: list[tempfile.TemporaryDirectory[str]] = []


def fail(name: str, kind: type[Fault], at: int, code: int) -> Outcome:
    """Runs a command with one fault. Returns how it ended."""
    case, (before, after, _) = CASES[name], stage().clean(name)
    said = f"{name}: {kind.__name__.lower()}, call {at}, {errno.errorcode.get(code, '')}"
    with stage().prepared(name, before.files) as place:
        fault = kind(at, code)
        found = stage().run(case, "after", place, fault)
    if why := wrong(case, before, after, found, fault):
        return "wrong", f"{said}: {why}"
    return ("refused" if found.status else "goes on") if fault.came else "no fault", said


def judge(seed: int) -> Outcome:
    """Draws a command and a call that fails."""
    rng = random.Random(seed)
    name = rng.choice(sorted(CASES))
    kind = rng.choice(CASES[name].kinds)
    return fail(name, kind, rng.randint(1, stage().clean(name)[2][kind]), rng.choice(ERRORS))


def judge_signal(seed: int) -> Outcome:
    """Draws a command, a signal and its moment: the n-th call of a function."""
    rng = random.Random(seed)
    name, number = rng.choice(sorted(CASES)), rng.choice((signal.SIGINT, signal.SIGTERM))
    return interrupt(name, number, rng.random())


def interrupt(name: str, number: signal.Signals, share: float) -> Outcome:
    """Runs a command in a child process, which gets a signal after a share of its calls. Returns how it ended."""
    case, (before, after, _) = CASES[name], stage().clean(name)
    moment = 1 + int(share * _calls(name))
    said = f"{name}: {number.name} at call {moment}"
    with stage().prepared(name, before.files) as place:
        status, lines = _child(case, place, _counting(moment, number, [0]))
        found = stage().ended(case, place, status, lines)
        if case.continues:  # a cache that was interrupted serves the next run
            found.files |= stage().run(case, "after", place).files
    shown = [line for line in found.lines if line]
    if unheard := found.status == 0 and bool(shown) and shown[0].startswith("Exception ignored in"):
        shown = found.lines = []  # Python drops an exception in a destructor, so the command went on to its end
    expected = {0: 0, 130: 1, 143: 1, -signal.SIGTERM: 0}
    if found.status not in expected or len(shown) > expected[found.status]:
        return "wrong", f"{said}: status {found.status}, lines {shown}"
    why = wrong(case, before, after, Ran(int(found.status != 0), shown or ["killed"], found.files, found.torn), Memory())
    if why:
        return "wrong", f"{said}: {why}"
    return {0: "unheard" if unheard else "ended", -signal.SIGTERM: "killed"}.get(found.status, "interrupted"), said


@cache
def _calls(name: str) -> int:
    """Counts the calls of functions of a command."""
    case, (before, _, _) = CASES[name], stage().clean(name)
    count = [0]
    counted = replace(case, tool=lambda words: print(case.tool(words), count[0], file=sys.stderr) or 0)
    with stage().prepared(name, before.files) as place:
        status, said = _child(counted, place, _counting(-1, signal.SIGINT, count))
    assert status == 0, said
    return int(said.split()[-1])


def limit(name: str, which: int, most: int) -> Outcome:
    """Runs a command in a child process in which the system refuses more: bytes of a file (RLIMIT_FSIZE), or of memory (RLIMIT_AS)."""

    def limited() -> None:
        begun = 0 if which == resource.RLIMIT_FSIZE else mapped()
        resource.setrlimit(which, (begun + most, resource.getrlimit(which)[1]))

    return begun_with(name, limited, f"{'files' if which == resource.RLIMIT_FSIZE else 'memory'} of at most {most} bytes")


def begun_with(name: str, begin: Callable[[], None], what: str) -> Outcome:
    """Runs a command in a child process after `begin`, which takes something away. LLVM's own end is not ours to word: its line, SIGABRT.

    `what`: what is taken away. Returns how the command ended; files are whole.
    """
    case, (before, after, _), said = CASES[name], stage().clean(name), f"{name}: {what}"
    with stage().prepared(name, before.files) as place:
        status, lines = _child(case, place, begin)
        found = stage().ended(case, place, status, lines)
    aborted = status == -signal.SIGABRT and len(found.lines) == 1 and found.lines[0].startswith("LLVM ERROR: ")
    if status not in (0, 1) and not aborted:
        return "wrong", f"{said}: status {status}, lines {found.lines}"
    if why := wrong(case, before, after, found, Memory()):
        return "wrong", f"{said}: {why}"
    return "aborted by LLVM" if aborted else "refused" if status else "goes on", said


def judge_limit(seed: int) -> Outcome:
    """Draws a command and a limit of the system."""
    rng = random.Random(seed)
    name, which = rng.choice(sorted(CASES)), rng.choice((resource.RLIMIT_FSIZE, resource.RLIMIT_AS))
    return limit(name, which, int(2 ** rng.uniform(4, 14 if which == resource.RLIMIT_FSIZE else 28)))


def _child(case: Case, place: Path, begin: Callable[[], None]) -> tuple[int, str]:
    """Runs a command in a fork of this process, after `begin`.

    Returns its status, or its signal as a negative number, and what it wrote on standard error.
    """
    read, write = os.pipe()
    if (child := os.fork()) == 0:
        status = 70
        try:
            os.close(read)
            os.dup2(write, 2)
            status = _command(case, place, begin)
        except BaseException:  # what no command may let through: its lines tell
            os.write(2, traceback.format_exc().encode())
        finally:
            sys.setprofile(None)
            sys.stderr.flush()
            os._exit(status)
    os.close(write)
    with os.fdopen(read, errors="replace") as lines:
        said = lines.read()
    _, ended = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(ended), said


def _command(case: Case, place: Path, begin: Callable[[], None]) -> int:
    faulthandler.disable()  # the parent reports a signal
    sys.unraisablehook = sys.__unraisablehook__  # pytest's would keep to itself what Python drops in a destructor
    sys.dont_write_bytecode = True  # Python keeps what a limit on files has cut, and each later process fails
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    if case.continues:
        jit.library_of.cache_clear()
        team.forget()
    words = case.words(str(stage().folder / "after" / "net.onnx"), str(place))
    os.environ["POPULUS_CACHE"] = str(place) if case.continues else ""
    sys.stdout, sys.stderr = open(os.devnull, "w"), open(2, "w", buffering=1, closefd=False)  # noqa: SIM115, until the process ends
    try:
        begin()
        return case.tool(words)
    except KeyboardInterrupt:  # before the command began, or after its end
        sys.setprofile(None)
        print("interrupted", file=sys.stderr)
        return 130


def _counting(moment: int, number: signal.Signals, count: list[int]) -> Callable[[], None]:
    """Makes what raises a signal at a call of a function, and counts calls."""

    def profile(frame: FrameType, event: str, argument: object) -> None:
        count[0] += event == "call"
        if count[0] == moment:
            sys.setprofile(None)
            signal.raise_signal(number)

    return lambda: sys.setprofile(profile)
