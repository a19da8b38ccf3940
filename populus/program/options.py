"""The options of `compile`, `vjp` and training, as frozen classes."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, Concatenate, Generic, Literal, ParamSpec, TypeAlias, TypeVar, cast

from populus.dialects.poplar.target import HOST, PARTIALS, Spec, check_block_format
from populus.dialects.signature.bounded_dimensions import EXPECTED, are_bounds
from populus.dialects.support.diagnostics import PopulusError, did_you_mean
from populus.lowering.driver import extensions
from populus.lowering.driver.files import decode, read_bytes
from populus.lowering.driver.passes import PASSES
from populus.lowering.driver.phases import LEVELS
from populus.lowering.driver.pipeline import Pipeline
from populus.lowering.driver.program_cache import ProgramCache
from populus.lowering.poplar.plan.aims import aim_of
from populus.lowering.poplar.plan.stated import Stated, as_option, parse
from populus.program.buckets import BUCKETS, check_buckets
from populus.runtime.engine import choice

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

CHOICES = cast("tuple[EngineName, ...]", tuple(choice.ENGINES))
ENGINES: tuple[EngineName, ...] = tuple(name for name in CHOICES if name != "auto")

ACCURACIES = {"exact": 0, "standard": 2, "fast": 4}  # largest side of a tile of Winograd's algorithm

EngineName: TypeAlias = Literal["auto", "native", "numpy", "strict"]
"""An engine of ours. One of a loaded file is a text, too, of which a type checker does not know."""

LevelName: TypeAlias = Literal["onnx", "popart", "popops", "poplar"]
AccuracyName: TypeAlias = Literal["exact", "standard", "fast"]

A = TypeVar("A")
B = TypeVar("B")
R = TypeVar("R")
O = TypeVar("O")
P = ParamSpec("P")

Dims: TypeAlias = Mapping[str, int | tuple[int, int]]
"""The size of each dimension, or its least and its greatest size, both inclusive."""


def check_partials(partials: str | None) -> None:
    """Raises PopulusError for a type that halves are not summed in."""
    if partials not in (None, *PARTIALS):
        raise PopulusError(f"partials = {partials}; halves are summed in {' or '.join(PARTIALS)}{did_you_mean(partials, PARTIALS)}")


def stated_in(path: str | os.PathLike[str]) -> Sequence[Stated]:
    """Reads the plans of a file. Raises PopulusError, with the line, for one that is none."""
    return parse(decode(read_bytes(path), os.fspath(path)), os.fspath(path))


def check_size(name: str, entry: object) -> None:
    """Raises PopulusError for an entry of `dims` that is neither a size nor a pair of sizes."""
    entries: Sequence[object] = cast("Sequence[object]", entry) if isinstance(entry, tuple | list) else (entry,)
    numbers = [n for n in entries if isinstance(n, int) and not isinstance(n, bool)]
    if len(numbers) != len(entries) or len(numbers) not in (1, 2) or (len(numbers) == 1 and isinstance(entry, tuple | list)):
        raise PopulusError(f"dims['{name}'] is {entry!r}; a size is expected, or a pair of the least and the greatest size")
    if len(numbers) == 2 and not are_bounds(*numbers):
        raise PopulusError(f"dims['{name}'] is {entry!r}; expected {EXPECTED}, as in (1, 512)")
    if numbers[0] < 0:
        raise PopulusError(f"dims['{name}'] is {entry!r}; expected at least 0")


def check_value(name: str, value: object, kind: type | tuple[type, ...], expected: str) -> None:
    """Raises PopulusError for a value of another type, which a user may give all the same."""
    if not isinstance(value, kind) or isinstance(value, bool):
        raise PopulusError(f"{name} = {value!r}; expected {expected}")


def check_kind(options: object, name: str, kind: type | tuple[type, ...], expected: str) -> None:
    """Raises PopulusError for an option of another type; None is of each."""
    if getattr(options, name) is not None:
        check_value(name, getattr(options, name), kind, expected)


@dataclass(frozen=True, kw_only=True)
class MachineOptions:
    """The machine, the engine, and the user's files.

    `target` and `tiles`: the machine. `dims`: sizes of symbolic dimensions; a pair is the least and the greatest of several sizes.
    `engine`: `native` runs machine code, `numpy` runs NumPy, and `strict` checks every vertex.
    `auto` is native, and numpy for a sample and without llvmlite.
    `level`: the level to run (`popart`, `popops`, `poplar`). `load`: Python files that define ops.
    `threads`: number of threads of the native engine; default: POPULUS_THREADS, or the number of CPUs of this process.
    `optimise`: `balanced` (default), `cycles` or `memory`: what plans of products and convolutions spare.
    `partials`: the type that products of halves are summed in, `f32` (default) or `f16`, as docs/machine-model.md says.
    `fidelity`: `LoFi`, `HiFi2`, `HiFi3` or `HiFi4`, the phases in which a mesh multiplies floats (docs/machine-of-your-own.md).
    """

    target: str = "host"
    tiles: int | None = None
    dims: Dims | None = None
    engine: EngineName = "auto"
    level: LevelName = "poplar"
    load: Sequence[str | os.PathLike[str]] = ()
    threads: int | None = None
    partials: Literal["f32", "f16"] | None = None
    optimise: Literal["balanced", "cycles", "memory"] | None = None
    fidelity: Literal["LoFi", "HiFi2", "HiFi3", "HiFi4"] | None = None

    def extensions(self) -> tuple[extensions.Extension, ...]:
        """Loads the files of `load`; gives them after the extensions that the process already has. Raises PopulusError."""
        if isinstance(self.load, str | os.PathLike):
            raise PopulusError(f"load = {os.fspath(self.load)!r}; expected a list of files, such as [{os.fspath(self.load)!r}]")
        return tuple({e.module.__name__: e for e in (*extensions.known(), *map(extensions.read, self.load))}.values())

    def check(self) -> None:
        """Raises PopulusError for unknown names and values that do not fit together. A loaded file may define target and engine."""
        for name in ("target", "engine", "level", "partials", "optimise", "fidelity"):
            check_kind(self, name, str, "a text")
        for name in ("tiles", "threads"):
            check_kind(self, name, int, "a whole number")
        check_kind(self, "dims", Mapping, "a dict of sizes by name")
        if self.engine not in choice.ENGINES:
            raise PopulusError(f"no engine '{self.engine}'{did_you_mean(self.engine, choice.ENGINES)}")
        if self.level not in LEVELS:
            raise PopulusError(f"no level '{self.level}'{did_you_mean(self.level, LEVELS)}")
        if self.tiles is not None and self.tiles < 1:
            raise PopulusError(f"tiles = {self.tiles}; expected at least 1")
        for name, entry in (self.dims or {}).items():
            check_size(name, entry)
        if self.threads is not None and (self.threads < 1 or self.engine not in ("auto", "native")):
            raise PopulusError(
                f"threads = {self.threads} with engine {self.engine}; the native engine runs on 1 thread or more, the others on one"
            )
        check_partials(self.partials)
        aim_of(self.optimise)
        Spec.of(self.target, self.tiles, self.fidelity)

    def compiling(self, pipeline: Pipeline, dims: Dims | None) -> CompileOptions:
        """Gives the options for a program with this pipeline and these sizes on the same machine."""
        return CompileOptions(
            target=self.target,
            tiles=self.tiles,
            dims=dims,
            engine=self.engine,
            level=self.level,
            load=self.load,
            threads=self.threads,
            partials=self.partials,
            optimise=self.optimise,
            fidelity=self.fidelity,
            pipeline=pipeline,
        )


@dataclass(frozen=True, kw_only=True)
class CompileOptions(MachineOptions):
    """The machine, the passes and the engine of a program: the keywords of `compile` and `vjp`.

    `pipeline`: a name, a file, or a Pipeline. `sample`: number of vertices per family that `strict` checks; default: all.
    `values`: inputs that are constants, by name, such as `{"sr": 16000}`: those that decide branches or shapes. `run` may be
    given them too, with these values.
    `bounds`: the most iterations of Loops, by name, that grow what they carry or collect rows; a run of more is refused.
    `narrow`: computes 64-bit types as 32-bit ones if the target lacks them, and checks for overflow.
    `host`: False refuses models that need the host (strings, images).
    `cache`: by default, programs of `.onnx` files are kept as libraries in the folder of POPULUS_CACHE (docs/build.md); False: nothing is.
    True, or a folder: programs of other models too, as texts, reused for equal content. They keep the node names of their first model.
    `buckets`: for open dimensions, the greatest sizes of the ranges that each have a program; default: 1, 2, 4, 8, 12, 16, ..
    `exact`: a program for each size that arrives, instead of for each range of sizes.
    `example_inputs`: the arguments with which torch exports an `nn.Module`.
    `accuracy`: `exact` computes each convolution as sums of products in order. `standard` computes 3x3 convolutions by constants in
    tiles of 2 by 2 outputs where that is faster, with errors as small (docs/performance-native.md). `fast` also has tiles of 4 by 4,
    with errors of a few 1e-6 of the largest output.
    `plan`: a file of plans of products and convolutions, by name or pattern (docs/plans.md); the others are planned as always.
    `weight_format`: `bfp8` or `bfp4`, to which constants that products multiply are rounded, on a machine that has it.
    `apart`: a child process compiles, and this one runs the built form without the compiler in its memory (docs/compile-apart.md).
    `progress`: called with the number and name of each pass before it runs.
    """

    pipeline: str | os.PathLike[str] | Pipeline = "inference"
    sample: int | None = None
    values: Mapping[str, ArrayLike] | None = None
    bounds: Mapping[str, int] | None = None
    narrow: bool = False
    host: bool = True
    cache: bool | str | os.PathLike[str] | None = None
    buckets: Sequence[int] = BUCKETS
    exact: bool = False
    example_inputs: Sequence[object] | None = None
    accuracy: AccuracyName = "standard"
    plan: str | os.PathLike[str] | None = None
    weight_format: Literal["bfp8", "bfp4"] | None = None
    apart: bool = False
    progress: Callable[[int, str], None] | None = None

    def check(self) -> None:
        """Raises PopulusError for an invalid machine, and for a sample that the engine does not support."""
        super().check()
        check_kind(self, "accuracy", str, "a text")
        check_kind(self, "weight_format", str, "a text")
        if self.weight_format is not None:
            check_block_format(self.weight_format, Spec.of(self.target).target())
        check_kind(self, "sample", int, "a whole number")
        check_kind(self, "plan", (str, os.PathLike), "a file")
        for name in ("values", "bounds"):
            check_kind(self, name, Mapping, "a dict by name")
        check_kind(self, "pipeline", (str, os.PathLike, Pipeline), "a name, a file or a Pipeline")
        if not isinstance(self.cache, bool):
            check_kind(self, "cache", (str, os.PathLike), "True, False or a folder")
        check_buckets(self.buckets)
        for name, most in (self.bounds or {}).items():
            if not isinstance(most, int) or isinstance(most, bool) or most < 0:  # pyright: ignore[reportUnnecessaryIsInstance], of users
                raise PopulusError(f"bounds['{name}'] is {most!r}; a number of iterations is expected")
        if self.accuracy not in ACCURACIES:
            raise PopulusError(f"no accuracy '{self.accuracy}'{did_you_mean(self.accuracy, ACCURACIES)}")
        if self.sample is not None and self.sample < 1:
            raise PopulusError(f"sample = {self.sample}; expected at least 1 vertex per family")
        if self.sample is not None and self.engine == "native":
            raise PopulusError(
                f"sample = {self.sample} with engine native, which runs whole families; use engine strict to check a sample of vertices"
            )

    def passes(self, loaded: Sequence[extensions.Extension]) -> Pipeline:
        """Gives the pipeline with the passes that other options add, for the machine. Raises PopulusError."""
        known = dict(PASSES)
        for extension in loaded:
            known.update(extension.passes)
        chosen = self.pipeline if isinstance(self.pipeline, Pipeline) else Pipeline.read(self.pipeline, known)
        if self.narrow:
            chosen = chosen.insert_before("poplin-to-poplar", PASSES["popops-narrow"]()())
        if self.weight_format is not None:
            before = next((p.name for p in chosen.passes if p.name in ("popart-outline", "popart-inplace", "popart-to-popops")), None)
            if before is None:
                raise PopulusError(f"weight_format = {self.weight_format} is for pipelines with popart-to-popops; this one has none")
            chosen = chosen.insert_before(before, PASSES["popart-encode"]()()).with_options("popart-encode", weights=self.weight_format)
        if self.accuracy != "standard" and any(p.name == "poplin-to-poplar" for p in chosen.passes):
            chosen = chosen.with_options("poplin-to-poplar", winograd=ACCURACIES[self.accuracy])
        if self.plan is not None:
            chosen = chosen.with_options("poplin-to-poplar", plans=as_option(stated_in(self.plan)))
        chosen.check()
        machine = {"target": self.target, "tiles": self.tiles, "fidelity": self.fidelity}
        halves = "f32" if self.target == HOST.name and self.engine in ("auto", "native") and choice.widens_halves() else None
        return chosen.with_defaults(**machine, partials=self.partials, optimise=self.optimise, halves=halves)

    def program_cache(self) -> ProgramCache | None:
        """Opens the cache on disk, if `cache` is set."""
        if self.cache is None or self.cache is False:
            return None
        return ProgramCache.default() if self.cache is True else ProgramCache(Path(self.cache))


class Keywords(Generic[P, O]):
    """Turns a function of an options object into a function of keywords that type checkers understand.

    `Keywords(CompileOptions).after_one` makes `f(model, options)` callable as `f(model, target=.., tiles=..)`.
    """

    def __init__(self, options: Callable[P, O]):
        self._options: Callable[..., O] = options

    def after_one(self, function: Callable[[A, O], R]) -> Callable[Concatenate[A, P], R]:
        """Wraps a function of one argument and the options."""
        return self._wrap(function)

    def after_two(self, function: Callable[[A, B, O], R]) -> Callable[Concatenate[A, B, P], R]:
        """Wraps a function of two arguments and the options."""
        return self._wrap(function)

    def _wrap(self, function: Callable[..., Any]) -> Any:
        own = list(inspect.signature(function).parameters.values())[:-1]
        fields = inspect.signature(self._options).parameters
        signature = inspect.Signature([*own, *fields.values()])
        name = function.__qualname__.removesuffix(".__init__")

        @wraps(function)
        def call(*args: Any, **keywords: Any) -> Any:
            for keyword in keywords:
                if keyword not in signature.parameters:
                    raise TypeError(f"{name}() got an unexpected keyword argument '{keyword}'{did_you_mean(keyword, fields)}")
            bound = signature.bind(*args, **keywords).arguments
            given = [bound.pop(p.name) for p in own if p.name in bound]
            return function(*given, self._options(**bound))

        described = (f"{kind.__doc__}".partition("\n")[2] for kind in reversed(inspect.getmro(cast("type", self._options))[:-1]))
        call.__doc__ = "\n\n".join([inspect.getdoc(function) or "", *(inspect.cleandoc(text) for text in described)])
        call.__signature__ = signature  # pyright: ignore[reportAttributeAccessIssue], which help() and IDEs read
        return call


WITH_OPTIONS = Keywords(CompileOptions)
