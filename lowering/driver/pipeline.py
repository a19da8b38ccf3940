"""A pipeline of passes: named, read from text, changed in Python, printed back, run with dumps, times and checks."""

from __future__ import annotations

import gc
import json
import os
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from pathlib import Path
from time import perf_counter
from typing import get_type_hints

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.passes import ModulePass
from xdsl.utils.arg_spec import ArgSpec, ParameterType, parse_pipeline
from xdsl.utils.exceptions import ArgSpecParseError, DiagnosticException
from xdsl.utils.hints import type_repr

from populus.dialects.data import Blob, blobs_of, save_blobs
from populus.dialects.support.diagnostics import PopulusError, did_you_mean, verify
from populus.lowering.driver.content_hash import content_hash
from populus.lowering.driver.files import decode, read_bytes, replacing, text_of
from populus.lowering.driver.passes import PASSES
from populus.lowering.driver.phases import LEVELS, PHASES, check_order, depths, phases_of

PassTable = Mapping[str, Callable[[], type[ModulePass]]]

FOLDER = Path(__file__).with_name("pipelines")


@dataclass(frozen=True)
class Timing:
    """How long a pass took, and how many ops it was given and left. `changed`: whether the module is another; None if not asked."""

    name: str
    seconds: float
    ops_before: int
    ops_after: int
    changed: bool | None = None


def names() -> list[str]:
    """The named pipelines."""
    return sorted(path.stem for path in FOLDER.glob("*.txt"))


@dataclass(frozen=True)
class Pipeline:
    """Passes in order. Every method that changes something gives another pipeline.

    Pipeline.named("inference").remove("popops-fuse").with_options("popops-to-poplar", target="gc200", tiles=16)
    """

    passes: tuple[ModulePass, ...]

    @staticmethod
    def named(name: str, passes: PassTable = PASSES) -> Pipeline:
        """The pipeline `lowering/driver/pipelines/<name>.txt`, or a phase of `inference`. Raises PopulusError if there is none."""
        if name in PHASES and name not in names():
            return Pipeline.named("inference", passes).phase(name)
        if name not in names():
            raise PopulusError(f"no pipeline '{name}'{did_you_mean(name, names())}")
        return Pipeline.from_text((FOLDER / f"{name}.txt").read_text(), passes, f"pipeline '{name}'")

    @staticmethod
    def read(name_or_file: str | os.PathLike[str], passes: PassTable = PASSES) -> Pipeline:
        """A named pipeline, or one from a text file (what has a dot or a slash in it). Raises PopulusError."""
        name = os.fspath(name_or_file)
        if "." in name or os.sep in name:
            return Pipeline.from_text(decode(read_bytes(name), name), passes, name)
        return Pipeline.named(name, passes)

    @staticmethod
    def from_text(text: str, passes: PassTable = PASSES, source: str = "pipeline") -> Pipeline:
        """Passes as `name{option=value other="a b"}`, separated by commas or line ends; `#` begins a remark.

        Raises PopulusError for an unknown pass, an unknown option, and a value of the wrong type, naming the nearest that exists.
        """
        return Pipeline(tuple(_pass(_spec(item, source), passes, source) for item in _items(text)))

    def __str__(self) -> str:
        """Text that parses back to this pipeline, one pass on each line."""
        return "\n".join(_text(p.spec()) for p in self.passes)

    def __len__(self) -> int:
        return len(self.passes)

    def index(self, name: str) -> int:
        """The place of the first pass of this name. Raises PopulusError if there is none."""
        for i, p in enumerate(self.passes):
            if p.name == name:
                return i
        raise PopulusError(f"the pipeline has no pass '{name}'{did_you_mean(name, {p.name for p in self.passes})}")

    def insert_before(self, name: str, *passes: ModulePass) -> Pipeline:
        """With `passes` before the first pass called `name`."""
        i = self.index(name)
        return Pipeline(self.passes[:i] + passes + self.passes[i:])

    def insert_after(self, name: str, *passes: ModulePass) -> Pipeline:
        """With `passes` behind the first pass called `name`."""
        i = self.index(name) + 1
        return Pipeline(self.passes[:i] + passes + self.passes[i:])

    def replace(self, name: str, *passes: ModulePass) -> Pipeline:
        """With `passes` in place of the first pass called `name`."""
        i = self.index(name)
        return Pipeline(self.passes[:i] + passes + self.passes[i + 1 :])

    def remove(self, name: str) -> Pipeline:
        """Without the first pass called `name`."""
        return self.replace(name)

    def with_options(self, name: str, **options: ParameterType | None) -> Pipeline:
        """With these options of the first pass called `name`. Raises PopulusError if it has no such option."""
        old = self.passes[self.index(name)]
        for option in options:
            _check_option(type(old), option, "pipeline")
        return self.replace(name, replace(old, **options))

    def with_defaults(self, **options: ParameterType | None) -> Pipeline:
        """With these options in every pass that has them, unless some pass states another value than None itself.

        This is how the target of a compilation reaches the passes that ask for one, and how a pipeline may have its own.
        """
        having = {k: [p for p in self.passes if k in {f.name for f in fields(p)}] for k in options}
        open = {k: v for k, v in options.items() if v is not None and all(getattr(p, k) is None for p in having[k])}
        return Pipeline(tuple(replace(p, **{k: v for k, v in open.items() if p in having[k]}) for p in self.passes))

    def phase(self, name: str) -> Pipeline:
        """The passes of a phase: `select`, `schedule`, `allocate` or `emit`. Raises PopulusError for another."""
        _check_phase(name)
        return Pipeline(tuple(p for p, phase in zip(self.passes, phases_of(self.passes)) if phase == name))

    def replace_phase(self, name: str, phase: Pipeline) -> Pipeline:
        """With other passes in place of those of a phase. Raises PopulusError for no phase's name."""
        _check_phase(name)
        of = phases_of(self.passes)
        before = [i for i, found in enumerate(of) if PHASES.index(found) < PHASES.index(name)]
        at = max(before, default=-1) + 1
        kept = [(i, p) for i, p in enumerate(self.passes) if of[i] != name]
        return Pipeline((*(p for i, p in kept if i < at), *phase.passes, *(p for i, p in kept if i >= at)))

    def until(self, name: str) -> Pipeline:
        """The passes up to the last of a phase, or up to the first pass called `name`. Raises PopulusError if there is neither."""
        if name in PHASES:
            ends = [i for i, found in enumerate(phases_of(self.passes)) if PHASES.index(found) <= PHASES.index(name)]
            return Pipeline(self.passes[: max(ends, default=-1) + 1])
        return Pipeline(self.passes[: self.index(name) + 1])

    def since(self, name: str) -> Pipeline:
        """The passes from the first of a phase on, or from the first pass called `name`. Raises PopulusError if there is neither."""
        if name in PHASES:
            return Pipeline(self.passes[len(self.until(PHASES[i - 1])) :] if (i := PHASES.index(name)) else self.passes)
        return Pipeline(self.passes[self.index(name) :])

    def check(self, source: str = "pipeline") -> None:
        """Raises PopulusError for a pass that stands before what it needs."""
        check_order(self.passes, source)

    def down_to(self, level: str) -> Pipeline:
        """The passes that leave a module at `level` (`onnx`, `popart`, `popops` or `poplar`), and none below it."""
        deepest = list(LEVELS).index(level)
        for i, p in enumerate(self.passes):
            if max(depths(p), default=0) > deepest:
                return Pipeline(self.passes[:i])
        return self

    def from_level(self, level: str) -> Pipeline:
        """The passes that a module at `level` still needs: without those that read a level above it."""
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

        `verify_each`: check the module after every pass, not only where a pass does itself. `dump`: a folder for a numbered file of text
        after every pass, with one `weights.safetensors` for all. `timings`: filled as the passes end; with `statistics`, they
        say which changed something. `progress`: told the number and
        name of the pass that begins.
        Raises PopulusError naming the pass.
        """
        dumper = _Dumper(Path(dump)) if dump is not None else None
        if dumper is not None:
            dumper.write("input", module)
        with no_garbage_collection():
            ops = _count(module) if timings is not None else 0
            for i, p in enumerate(self.passes):
                if progress is not None:
                    progress(i, p.name)
                ops_before = ops
                hash_before = content_hash(module) if statistics else ""
                start = perf_counter()
                with _named(p.name):
                    p.apply(ctx, module)
                    seconds = perf_counter() - start
                    if verify_each:
                        verify(module)
                if timings is not None:
                    changed = content_hash(module) != hash_before if statistics else None
                    ops = _count(module)
                    timings.append(Timing(p.name, seconds, ops_before, ops, changed))
                if dumper is not None:
                    dumper.write(p.name, module)

    def run_until_nothing_changes(self, ctx: Context, module: ModuleOp, limit: int = 16) -> int:
        """Runs the passes again and again until a round changes nothing; how many rounds that took, the last included.

        Raises PopulusError if `limit` rounds are not enough.
        """
        for turn in range(limit):
            timings: list[Timing] = []
            self.run(ctx, module, timings=timings, statistics=True)
            if not any(t.changed for t in timings):
                return turn + 1
        raise PopulusError(f"{', '.join(p.name for p in self.passes)} still change the module after {limit} rounds; leave one of them out")


class _Dumper:
    """Numbered files of a module on its way, and the stored constants that any of them refers to."""

    def __init__(self, folder: Path):
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise PopulusError(f"{folder}: not a folder that can be written to: {error.strerror}") from error
        self.folder = folder
        self.count = 0
        self.blobs: dict[str, Blob] = {}

    def write(self, name: str, module: ModuleOp) -> None:
        new = {key: blob for key, blob in blobs_of(module).items() if key not in self.blobs}
        if new:  # written again only when a pass made new ones, so that every file can be read even if a later pass fails
            self.blobs.update(new)
            with replacing(self.folder / "weights.safetensors") as partial:
                save_blobs(self.blobs, partial)
        with replacing(self.folder / f"{self.count:02}-{name}.mlir") as partial:
            partial.write_text(text_of(module, locations=True))
        self.count += 1


def _check_phase(name: str) -> None:
    if name not in PHASES:
        raise PopulusError(f"no phase '{name}'{did_you_mean(name, PHASES)}")


@contextmanager
def no_garbage_collection() -> Generator[None, None, None]:
    """IR is full of cycles that live until the end: collecting meanwhile costs a fifth of the time and finds little."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


@contextmanager
def _named(name: str) -> Generator[None, None, None]:
    """What fails inside says that it did so in pass `name`."""
    try:
        yield
    except PopulusError as error:
        error.args = (f"{' '.join(str(error).split())} (in {name})",)
        raise
    except DiagnosticException as error:
        raise PopulusError(f"{' '.join(str(error).split())} (in {name})") from error
    except Exception as error:
        error.add_note(f"in the pass {name}")
        raise


def _count(module: ModuleOp) -> int:
    return sum(1 for _ in module.walk()) - 1


def _items(text: str) -> list[str]:
    """The passes of a pipeline's text, each on one line without remarks. Commas and line ends inside braces separate nothing."""
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
    """One pass of a pipeline's text. Raises PopulusError that quotes it."""
    try:
        (spec,) = parse_pipeline(item)
    except ArgSpecParseError as error:
        raise PopulusError(f"{source}: cannot read '{item}'; a pass is name, or name{{option=value option=\"text\"}}") from error
    return spec


def _pass(spec: ArgSpec, passes: PassTable, source: str) -> ModulePass:
    if spec.name not in passes:
        raise PopulusError(f"{source}: no pass '{spec.name}'{did_you_mean(spec.name, passes)}")
    made = passes[spec.name]()
    for option in spec.parameters:
        _check_option(made, option, source)
    try:
        return made.from_pass_spec(spec)
    except ValueError as error:
        raise PopulusError(f"{source}: '{_text(spec)}' does not fit; {_options(made)}") from error


def _check_option(made: type[ModulePass], option: str, source: str) -> None:
    known = {f.name for f in fields(made)}
    if option.replace("-", "_") not in known:
        raise PopulusError(f"{source}: {made.name} has no option '{option}'{did_you_mean(option, known)}")


def _options(made: type[ModulePass]) -> str:
    """`popops-to-poplar takes target: str | None, tiles: int | None`."""
    infos = [f"{f.name}: {type_repr(type)}" for f in fields(made) if (type := get_type_hints(made)[f.name])]
    return f"{made.name} takes {', '.join(infos) or 'no options'}"


def _text(spec: ArgSpec) -> str:
    """The text of a pass; unlike xDSL's, every string and small float in it reads back as it was."""
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
            return mantissa + (".0" if "." not in mantissa and e else "") + e + exponent  # 1e-05 would be read as a word
        case str():
            plain = value.isidentifier() and value.isascii() and value not in ("true", "false")
            return value if plain else json.dumps(value, ensure_ascii=False)
