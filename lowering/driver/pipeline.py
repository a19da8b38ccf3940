"""Pipelines of passes: read by name or from text, edited in Python, printed, and run with dumps, timings and
checks.
"""

from __future__ import annotations

import json
import logging
import os
import sys
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from pathlib import Path
from time import perf_counter
from typing import Protocol, get_type_hints

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp
from xdsl.passes import ModulePass
from xdsl.utils.arg_spec import ArgSpec, ParameterType, parse_pipeline
from xdsl.utils.exceptions import ArgSpecParseError, DiagnosticException
from xdsl.utils.hints import type_repr

from populus.dialects.support.budget import check_growth, check_time, timed
from populus.dialects.support.diagnostics import PopulusError, did_you_mean, nearest, verify, where
from populus.dialects.support.garbage import no_garbage_collection
from populus.dialects.support.user_op_errors import of_a_file
from populus.dialects.support.walk import ops_of
from populus.lowering.driver.content_hash import content_hash
from populus.lowering.driver.dumper import Dumper
from populus.lowering.driver.files import decode, read_bytes
from populus.lowering.driver.passes import PASSES
from populus.lowering.driver.phases import LEVELS, PHASES, check_order, depths, phases_of

PassTable = Mapping[str, Callable[[], type[ModulePass]]]


class Watcher(Protocol):
    """An observer of the module before the first pass and after each."""

    def begin(self, module: ModuleOp) -> None:
        """Reads the module before the first pass."""
        ...

    def after(self, p: ModulePass, ctx: Context, module: ModuleOp) -> None:
        """Reads the module after a pass. An exception ends the pipeline."""
        ...


WATCHING: ContextVar[Watcher | None] = ContextVar("watcher of passes", default=None)

LOGGER = logging.getLogger("populus.passes")

FOLDER = Path(__file__).with_name("pipelines")


@dataclass(frozen=True)
class Timing:
    """Duration of a pass, and the number of ops before and after it. `changed`: None if it was not measured."""

    name: str
    seconds: float
    ops_before: int
    ops_after: int
    changed: bool | None = None


def names() -> list[str]:
    """Lists the named pipelines."""
    return sorted(path.stem for path in FOLDER.glob("*.txt"))


@dataclass(frozen=True)
class Pipeline:
    """Passes in order. The object is immutable: a method that changes something returns a new pipeline.

    Pipeline.named("inference").remove("popops-fuse").with_options("popops-to-poplar", target="gc200", tiles=16)
    """

    passes: tuple[ModulePass, ...]

    @staticmethod
    def named(name: str, passes: PassTable = PASSES) -> Pipeline:
        """Reads `lowering/driver/pipelines/<name>.txt`, or selects a phase of `inference`.

        Raises PopulusError, with the nearest name, if there is no such pipeline.
        """
        if name in PHASES and name not in names():
            return Pipeline.named("inference", passes).phase(name)
        if name not in names():
            raise PopulusError(f"no pipeline '{name}'{did_you_mean(name, names())}")
        return Pipeline.from_text((FOLDER / f"{name}.txt").read_text(), passes, f"pipeline '{name}'")

    @staticmethod
    def read(name_or_file: str | os.PathLike[str], passes: PassTable = PASSES) -> Pipeline:
        """Reads a named pipeline, or a text file if the argument contains a dot or a slash.

        Raises PopulusError if there is no such pipeline or file, and as `from_text` does.
        """
        name = os.fspath(name_or_file)
        if "." in name or os.sep in name:
            return Pipeline.from_text(decode(read_bytes(name), name), passes, name)
        return Pipeline.named(name, passes)

    @staticmethod
    def from_text(text: str, passes: PassTable = PASSES, source: str = "pipeline") -> Pipeline:
        """Parses passes written `name{option=value other="a b"}`, separated by commas or line ends; `#` begins a
        comment.

        Raises PopulusError for an unknown pass or option, with the nearest name, and for a value of the wrong
        type.
        """
        return Pipeline(tuple(_pass(_spec(item, source), passes, source) for item in _items(text)))

    def __str__(self) -> str:
        """Formats the pipeline as text, one pass on each line, which parses back to it."""
        return "\n".join(_text(p.spec()) for p in self.passes)

    def __len__(self) -> int:
        return len(self.passes)

    def index(self, name: str) -> int:
        """Returns the position of the first pass called `name`. Raises PopulusError if there is none."""
        for i, p in enumerate(self.passes):
            if p.name == name:
                return i
        raise PopulusError(f"the pipeline has no pass '{name}'{did_you_mean(name, {p.name for p in self.passes})}")

    def insert_before(self, name: str, *passes: ModulePass) -> Pipeline:
        """Inserts `passes` before the first pass called `name`. Raises PopulusError if there is none."""
        i = self.index(name)
        return Pipeline(self.passes[:i] + passes + self.passes[i:])

    def insert_after(self, name: str, *passes: ModulePass) -> Pipeline:
        """Inserts `passes` after the first pass called `name`. Raises PopulusError if there is none."""
        i = self.index(name) + 1
        return Pipeline(self.passes[:i] + passes + self.passes[i:])

    def replace(self, name: str, *passes: ModulePass) -> Pipeline:
        """Replaces the first pass called `name` by `passes`. Raises PopulusError if there is none."""
        i = self.index(name)
        return Pipeline(self.passes[:i] + passes + self.passes[i + 1 :])

    def remove(self, name: str) -> Pipeline:
        """Removes the first pass called `name`. Raises PopulusError if there is none."""
        return self.replace(name)

    def with_options(self, name: str, **options: ParameterType | None) -> Pipeline:
        """Sets options of the first pass called `name`. Raises PopulusError if it does not exist or lacks an
        option.
        """
        old = self.passes[self.index(name)]
        for option in options:
            _check_option(type(old), option, "pipeline")
        return self.replace(name, replace(old, **options))

    def with_defaults(self, **options: ParameterType | None) -> Pipeline:
        """Sets options in every pass that has them. An option that some pass already sets, to other than None,
        stays.

        Thus a compilation's target reaches the passes that need one, and a pipeline may state its own.
        """
        having = {k: [p for p in self.passes if k in {f.name for f in fields(p)}] for k in options}
        open = {k: v for k, v in options.items() if v is not None and all(getattr(p, k) is None for p in having[k])}
        return Pipeline(tuple(replace(p, **{k: v for k, v in open.items() if p in having[k]}) for p in self.passes))

    def phase(self, name: str) -> Pipeline:
        """Selects the passes of a phase: `select`, `schedule`, `allocate` or `emit`. Raises PopulusError for
        another name.
        """
        _check_phase(name)
        return Pipeline(tuple(p for p, phase in zip(self.passes, phases_of(self.passes)) if phase == name))

    def replace_phase(self, name: str, phase: Pipeline) -> Pipeline:
        """Replaces the passes of a phase by those of another pipeline. Raises PopulusError for an unknown phase."""
        _check_phase(name)
        of = phases_of(self.passes)
        before = [i for i, other in enumerate(of) if PHASES.index(other) < PHASES.index(name)]
        at = max(before, default=-1) + 1
        rest = [(i, p) for i, p in enumerate(self.passes) if of[i] != name]
        return Pipeline((*(p for i, p in rest if i < at), *phase.passes, *(p for i, p in rest if i >= at)))

    def until(self, name: str) -> Pipeline:
        """Keeps the passes up to the last of a phase, or up to the first pass called `name`.

        Raises PopulusError if there is neither.
        """
        if name in PHASES:
            ends = [i for i, phase in enumerate(phases_of(self.passes)) if PHASES.index(phase) <= PHASES.index(name)]
            return Pipeline(self.passes[: max(ends, default=-1) + 1])
        return Pipeline(self.passes[: self.index(name) + 1])

    def since(self, name: str) -> Pipeline:
        """Keeps the passes from the first of a phase, or from the first pass called `name`, to the end.

        Raises PopulusError if there is neither.
        """
        if name in PHASES:
            return Pipeline(self.passes[len(self.until(PHASES[i - 1])) :] if (i := PHASES.index(name)) else self.passes)
        return Pipeline(self.passes[self.index(name) :])

    def check(self, source: str = "pipeline") -> None:
        """Checks the order of the passes. Raises PopulusError for a pass that comes before one that it needs."""
        check_order(self.passes, source)

    def down_to(self, level: str) -> Pipeline:
        """Keeps the passes that lower a module to `level` (`onnx`, `popart`, `popops` or `poplar`), and none
        below it.
        """
        deepest = list(LEVELS).index(level)
        for i, p in enumerate(self.passes):
            if max(depths(p), default=0) > deepest:
                return Pipeline(self.passes[:i])
        return self

    def from_level(self, level: str) -> Pipeline:
        """Keeps the passes that a module at `level` still needs; drops those that read a higher level."""
        depth = list(LEVELS).index(level)
        for i, p in enumerate(self.passes):
            if min(depths(p), default=depth) >= depth:
                return Pipeline(self.passes[i:])
        return Pipeline(())

    def run(
        self,
        ctx: Context,
        module: ModuleOp,
        *,
        verify_each: bool = False,
        dump: str | os.PathLike[str] | None = None,
        timings: list[Timing] | None = None,
        statistics: bool = False,
        progress: Callable[[int, str], None] | None = None,
    ) -> None:
        """Runs the passes on `module`, in place.

        `verify_each`: verify the module after every pass, not only where a pass asks for it. `dump`: a folder
        that gets a numbered file of text after every pass, and one `weights.safetensors` for all. `timings`:
        a list that gets one entry for each finished pass; with `statistics`, its `changed` is set.
        `progress`: called with the number and the name of each pass before it runs.

        Raises PopulusError naming the failing pass, or the dump folder if it is not writable.
        """
        if any(depths(p) for p in self.passes):
            _check_functions(module)
        dumper = Dumper(Path(dump)) if dump is not None else None
        if dumper is not None:
            dumper.write("input", module)
        watcher = WATCHING.get()
        if watcher is not None:
            watcher.begin(module)
        with no_garbage_collection(), timed():
            ops, results = _counts(module)
            for i, p in enumerate(self.passes):
                if progress is not None:
                    progress(i, p.name)
                hash_before = content_hash(module) if statistics else ""
                start = perf_counter()
                with _named(p.name):
                    check_time()
                    p.apply(ctx, module)
                    seconds = perf_counter() - start
                    before, ops_before = max(ops, results), ops
                    ops, results = _counts(module)
                    check_growth(before, ops)
                    if verify_each:
                        verify(module)
                LOGGER.info("%s: %.3f s, %d to %d ops", p.name, seconds, ops_before, ops)
                if watcher is not None:
                    watcher.after(p, ctx, module)
                if timings is not None:
                    changed = content_hash(module) != hash_before if statistics else None
                    timings.append(Timing(p.name, seconds, ops_before, ops, changed))
                if dumper is not None:
                    dumper.write(p.name, module)

    def run_until_nothing_changes(self, ctx: Context, module: ModuleOp, limit: int = 16) -> int:
        """Repeats the pipeline until a round changes nothing. Returns the number of rounds, including the last.

        Raises PopulusError if the module still changes in round `limit`.
        """
        for turn in range(limit):
            timings: list[Timing] = []
            self.run(ctx, module, timings=timings, statistics=True)
            if not any(t.changed for t in timings):
                return turn + 1
        raise PopulusError(f"{', '.join(p.name for p in self.passes)} still change the module after {limit} rounds; leave one of them out")


def _check_functions(module: ModuleOp) -> None:
    """Raises PopulusError for a function without a body or of several blocks, which the passes of our levels do not read."""
    for op in module.body.block.ops:
        if isinstance(op, FuncOp) and (count := len(op.body.blocks)) != 1:
            raise PopulusError(f"{where(op)}: the function @{op.sym_name.data} has {count} blocks, expected one")


def _check_phase(name: str) -> None:
    if name not in PHASES:
        raise PopulusError(f"no phase '{name}'{did_you_mean(name, PHASES)}")


@contextmanager
def _named(name: str) -> Generator[None, None, None]:
    """Appends the pass's name to a PopulusError that is raised inside. A fault in a loaded file becomes one, with its line."""
    try:
        yield
    except PopulusError as error:
        error.args = (f"{' '.join(str(error).split())} (in {name})",)
        raise
    except DiagnosticException as error:
        raise PopulusError(f"{' '.join(str(error).split())} (in {name})") from error
    except Exception as error:
        if not isinstance(error, MemoryError | OSError) and (said := of_a_file(error)) is not None:
            raise PopulusError(f"{said} (in {name})") from error
        error.add_note(f"in the pass {name}")
        raise


def _counts(module: ModuleOp) -> tuple[int, int]:
    """Counts the ops inside of a module and their results."""
    ops = ops_of(module)
    return len(ops) - 1, sum([len(op.results) for op in ops])


def _items(text: str) -> list[str]:
    """Splits a pipeline's text into passes, each on one line without comments. Separators inside braces do not
    count.
    """
    items, item, depth, quoted, remark = list[str](), "", 0, False, False
    for c in text + "\n":
        if remark:
            remark = c != "\n"
            if remark:
                continue
        if quoted:
            quoted = c != '"'
        elif c == '"':
            quoted = True
        elif c == "#":
            remark = True
            continue
        elif c in "{}":
            depth += 1 if c == "{" else -1
        elif c.isspace():
            if depth > 0:
                c = " " if item[-1:] not in ("{", " ", ",", "=") else ""
            elif c == "\n" and item:
                items.append(item)
                item = ""
                continue
            else:
                continue
        elif c == "," and depth <= 0:
            if item:
                items.append(item)
            item = ""
            continue
        item += c
    if item:
        items.append(item)
    return [i.replace(" }", "}") for i in items]


def _spec(item: str, source: str) -> ArgSpec:
    """Parses one pass of a pipeline's text. Raises PopulusError quoting it."""
    try:
        (spec,) = parse_pipeline(item)
    except ArgSpecParseError as error:
        found = " ".join(item.split())
        raise PopulusError(f"{source}: cannot read '{found}'; a pass is name, or name{{option=value option=\"text\"}}") from error
    except ValueError:  # of Python, which reads integers of so many digits and no more
        raise PopulusError(f"{source}: a number of more than {sys.get_int_max_str_digits()} digits is given to a pass") from None
    return spec


def _pass(spec: ArgSpec, passes: PassTable, source: str) -> ModulePass:
    if spec.name not in passes:
        raise PopulusError(f"{source}: no pass '{spec.name}'{nearest(spec.name, passes) or '; populus-opt --list-passes prints ours'}")
    made = passes[spec.name]()
    for option in spec.parameters:
        _check_option(made, option, source)
    try:
        return _from_text(made, _text(spec))
    except ValueError as error:
        raise PopulusError(f"{source}: '{_text(spec)}' does not fit; {_options(made)}") from error


@lru_cache(1024)
def _from_text(made: type[ModulePass], text: str) -> ModulePass:
    """Makes a pass, which is immutable, once for each text: evaluating its fields' types takes most of the time, which no options need."""
    if text == made.name:
        with suppress(TypeError):  # of a pass that needs an option, which xDSL names
            return made()
    return made.from_pass_spec(_spec(text, made.name))


def _check_option(made: type[ModulePass], option: str, source: str) -> None:
    known = {f.name for f in fields(made)}
    if option.replace("-", "_") not in known:
        raise PopulusError(f"{source}: {made.name} has no option '{option}'{did_you_mean(option, known)}")


def _options(made: type[ModulePass]) -> str:
    """Formats the options of a pass, such as `popops-to-poplar takes target: str | None, tiles: int | None`."""
    infos = [f"{f.name}: {type_repr(type)}" for f in fields(made) if (type := get_type_hints(made)[f.name])]
    return f"{made.name} takes {', '.join(infos) or 'no options'}"


def _text(spec: ArgSpec) -> str:
    """Formats a pass. Unlike xDSL's text, every string and small float reads back exactly."""
    options = [f"{k}={','.join(map(_value, v))}" if v else k for k, v in spec.parameters.items()]
    return f"{spec.name}{{{' '.join(options)}}}" if options else spec.name


def _value(value: ParameterType) -> str:
    match value:
        case bool():
            return str(value).lower()
        case int():
            return str(value)
        case float():
            mantissa, e, exponent = repr(value).partition("e")
            return mantissa + (".0" if "." not in mantissa and e else "") + e + exponent  # 1e-05 is a word
        case str():
            plain = value.isidentifier() and value.isascii() and value not in ("true", "false")
            return value if plain else json.dumps(value, ensure_ascii=False)
