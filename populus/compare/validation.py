"""`--verify-each=run`: runs a program before and after each pass, and names the first pass and op that change a result.

with validating() as passes:
    populus.compile("model.onnx")
print(passes.compared)  # [("popart-fuse", 7), ...]

A pass says in its docstring whether it keeps results bit for bit or to rounding. Programs of the levels `popart` and `popops` are
interpreted, tile programs run on the numpy engine. Between two levels there is no program; the passes from one to the other are one.
After the last pass, the native engine runs the tile program on the same inputs.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import TYPE_CHECKING, Any, TypeAlias, cast

import numpy as np
from ml_dtypes import finfo
from xdsl.context import Context
from xdsl.dialects.builtin import FileLineColLoc, ModuleOp
from xdsl.ir import Operation
from xdsl.passes import ModulePass

from populus.compare.engines import Engines
from populus.compare.levels import first_difference
from populus.dialects.signature import input_names, main_of, output_names, return_of
from populus.dialects.support.diagnostics import PopulusError, named, place
from populus.dialects.support.element_types import dtype_of, element_type_of, shape_of
from populus.lowering.driver.content_hash import content_hash
from populus.lowering.driver.pipeline import WATCHING
from populus.lowering.popart.fuse import PopartFusePass
from populus.lowering.popart.rewriting import Pattern
from populus.program.source import level_of
from populus.runtime.differences import RTOL, largest_difference
from populus.runtime.engine.native import NoMachineCodeError
from populus.runtime.interpreter import run_function
from populus.runtime.session import Session, graph_of
from populus.runtime.traces import TensorTrace, TileTrace, Trace
from populus.runtime.traces import place as place_of_result

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array: TypeAlias = NDArray[Any]
    Arrays: TypeAlias = dict[str, Array]

ADVERSARIAL = ("zeros", "ties", "denormals", "extremes", "infinities", "not a number")
"""Kinds of inputs beside the drawn ones."""
MODERATE = ("drawn", "zeros", "ties", "denormals")
"""Kinds on which a pass that rounds may not make a finite result infinite, or none of a number."""
ENGINE = "the native engine"
NOT_TILES = {"popart", "popops", "poplin", "popnn", "poprand", "gcl"}


def inputs_of(kind: str, types: Mapping[str, tuple[tuple[int, ...], np.dtype[Any]]], seed: int = 0) -> Arrays:
    """Draws the inputs of a kind, each by its name, so that it is the same before and after a pass that adds others."""
    return {name: _drawn(kind, name, shape, dtype, seed) for name, (shape, dtype) in types.items()}


def _drawn(kind: str, name: str, shape: tuple[int, ...], dtype: np.dtype[Any], seed: int) -> Array:
    rng = np.random.default_rng(int.from_bytes(sha256(f"{seed} {name}".encode()).digest()[:8], "little"))
    floats = dtype.kind == "f" or dtype.kind == "V"
    if not floats:
        found = np.zeros(shape) if kind == "zeros" else rng.integers(0, 2, shape) if kind == "ties" else rng.integers(0, 4, shape)
        return found.astype(dtype)
    values = rng.standard_normal(shape)
    if kind == "zeros":
        values = rng.choice([0.0, -0.0], shape)
    elif kind == "ties":
        values = rng.integers(-2, 3, shape).astype(np.float64)
    wide = values.astype(dtype)
    info = cast("Any", finfo(dtype))
    some = rng.random(shape) < 0.2
    special = {
        "denormals": [float(info.smallest_subnormal), -float(info.smallest_subnormal), 3 * float(info.smallest_subnormal)],
        "extremes": [float(info.max), -float(info.max), float(info.tiny), float(info.eps)],
        "infinities": [np.inf, -np.inf],
        "not a number": [np.nan],
    }.get(kind)
    return wide if special is None else np.where(some, rng.choice(special, shape).astype(dtype), wide)


@dataclass
class _Stage:
    """A program that runs: its copy, the outputs by kind of inputs (a text where they are refused), and the values by place."""

    module: ModuleOp
    level: str
    hash: str
    outputs: dict[str, Arrays | str]
    values: Trace


class Validator:
    """Compares the results before and after each pass. `compared`: for each, its name and on how many kinds of inputs.

    `kinds`: of inputs, beside drawn ones. `skipped`: passes that left a program of no level, with those that came after.
    """

    def __init__(self, kinds: tuple[str, ...] = ADVERSARIAL, seed: int = 0):
        self.kinds, self.seed = ("drawn", *kinds), seed
        self.compared: list[tuple[str, int]] = []
        self.unrun: list[str] = []
        self._last: _Stage | None = None
        self._pending: list[ModulePass] = []
        self._judged = set[str]()

    @property
    def outputs(self) -> Arrays:
        """The outputs of the last program on drawn inputs, by name; none if it refused them."""
        found = {} if self._last is None else self._last.outputs["drawn"]
        return {} if isinstance(found, str) else found

    def lines(self) -> list[str]:
        """Says on how many kinds of inputs each pass kept the results."""
        return [f"{name} keeps the results on {kinds} kinds of inputs" for name, kinds in self.compared]

    def begin(self, module: ModuleOp) -> None:
        """Runs the program before the first pass, unless it is that after the last one."""
        if self._last is not None and self._last.hash == content_hash(module, every=True):
            return
        self._pending = []
        self._last = self._stage(module)

    def after(self, p: ModulePass, ctx: Context, module: ModuleOp) -> None:
        """Runs the program after a pass. Raises PopulusError if a result changed by more than the pass may."""
        self._pending.append(p)
        if self._last is not None and self._last.hash == content_hash(module, every=True):
            self._pending = []
            return
        if (stage := self._stage(module)) is None:
            return
        passes, self._pending = self._pending, []
        before, self._last = self._last, stage
        if before is None:
            self.unrun += [q.name for q in passes]
            return
        why = self._exact_difference(p, ctx, before) if isinstance(p, PopartFusePass) else None
        if why := why or self._difference(before, stage, all(keeps_bits(q) for q in passes)):
            self._last = None
            name = " to ".join(dict.fromkeys((passes[0].name, passes[-1].name)))
            if isinstance(p, PopartFusePass) and (pattern := self._pattern(p, ctx, before)) is not None:
                name = f"{name} (pattern {pattern})"
            raise PopulusError(f"{name} changes {why}")
        self.compared.append((passes[-1].name, sum(isinstance(o, dict) for o in stage.outputs.values())))

    def end(self) -> None:
        """Runs the last program on the native engine, if it is one of tiles. Raises PopulusError for a result that differs from numpy's."""
        if self._last is None or self._last.level != "poplar" or self._last.hash in self._judged:
            return
        self._judged.add(self._last.hash)
        try:
            engines = Engines(graph_of(self._last.module))
        except NoMachineCodeError:
            return
        kinds = [kind for kind, found in self._last.outputs.items() if kind in MODERATE and isinstance(found, dict)]
        for kind in kinds:
            found = engines.compare(inputs_of(kind, engines.inputs, self.seed))
            if found.first is not None:
                raise PopulusError(f"{found} (inputs: {kind})")
        self.compared.append((ENGINE, len(kinds)))

    def _stage(self, module: ModuleOp) -> _Stage | None:
        """Runs a program on each kind of inputs; None for one that has no level."""
        level = level_of(module)
        found = {op.name.partition(".")[0] for op in module.walk()}
        if level == "onnx" or (level != "poplar" and "poplar" in found) or (level == "poplar" and found & NOT_TILES):
            return None
        copy = module.clone()
        for op in copy.walk():
            if isinstance(op.location, FileLineColLoc):
                op.location = named(place(op.location) or "")  # so that a text's lines are places
        try:
            runner = _Runner(copy, level)
        except PopulusError:
            return None
        outputs = {kind: runner.run(inputs_of(kind, runner.types, self.seed)) for kind in self.kinds}
        values = {} if isinstance(outputs["drawn"], str) else runner.trace(inputs_of("drawn", runner.types, self.seed))
        return _Stage(copy, level, content_hash(module, every=True), outputs, values)

    def _difference(self, before: _Stage, after: _Stage, bits: bool) -> str | None:
        """Describes the first result that changed: op, output, kind of inputs; None if none did."""
        first = first_difference(after.values, before.values, RTOL)
        at = "" if first is None else f"'{first}' first, and so "
        for kind in self.kinds:
            a, b = before.outputs[kind], after.outputs[kind]
            if isinstance(a, str) or isinstance(b, str):
                if isinstance(b, str) and not isinstance(a, str) and kind in MODERATE:
                    return f"what runs into what is refused: {b} (inputs: {kind})"
                continue
            for name in a.keys() & b.keys():
                if why := changed(a[name], b[name], bits, kind):
                    at = at or _maker(before, name)
                    keeps = f"it keeps results {'bit for bit' if bits else 'to rounding'}"
                    return f"{at}the output '{name}': {why} (inputs: {kind}; {keeps})"
        return None if first is None else f"'{first}' first (inputs: drawn; no output shows it)"

    def _exact_difference(self, p: PopartFusePass, ctx: Context, before: _Stage) -> str | None:
        """Describes the first bit that the patterns change which say that they change none."""
        module = before.module.clone()
        replace(p, exact=True).apply(ctx, module)
        stage = self._stage(module)
        return None if stage is None else self._difference(before, stage, True)

    def _pattern(self, p: PopartFusePass, ctx: Context, before: _Stage) -> str | None:
        """Finds the first pattern that changes a result by itself, or else one without which none changes.

        That is one that does nothing by itself, if there is such a pattern: others prepare what it rewrites.
        """

        def judged(passes: PopartFusePass, bits: bool) -> str:
            module = before.module.clone()
            passes.apply(ctx, module)
            stage = self._stage(module)
            if stage is None or stage.hash == before.hash:
                return "idle"
            return "wrong" if self._difference(before, stage, bits) else "right"

        alone: dict[str, str] = {}
        for pattern in p.chosen(ctx):
            name = type(pattern).__name__
            alone[name] = judged(replace(p, patterns=(name,), without=()), isinstance(pattern, Pattern) and pattern.EXACT)
            if alone[name] == "wrong":
                return name
        idle_first = sorted(alone, key=lambda name: alone[name])
        return next((name for name in idle_first if judged(replace(p, without=(*p.without, name)), False) != "wrong"), None)


class _Runner:
    """A program that can be run: whole arrays, or tiles on the numpy engine."""

    def __init__(self, module: ModuleOp, level: str):
        self.module, self.session = module, Session(module, "numpy") if level == "poplar" else None
        if self.session is not None:
            self.types = self.session.inputs
        else:
            main = main_of(module)
            self.types = {n: (shape_of(a.type), dtype_of(element_type_of(a.type))) for n, a in zip(input_names(main), main.body.block.args)}

    def run(self, inputs: Arrays) -> Arrays | str:
        """Gives the outputs by name, or the line of a refusal."""
        try:
            with np.errstate(all="ignore"):
                return run_function(self.module, inputs) if self.session is None else self.session.run(inputs)
        except PopulusError as error:
            return str(error)

    def trace(self, inputs: Arrays) -> Trace:
        """Gives the values by place."""
        with np.errstate(all="ignore"):
            if self.session is None:
                tensors = TensorTrace()
                run_function(self.module, inputs, tensors.observe)
                return tensors.results
            tiles = TileTrace(self.session.graph)
            self.session.run(inputs, tiles.observe)
            return tiles.results


def _maker(stage: _Stage, output: str) -> str:
    """Names the op that makes an output, for a message in which no op before it differs; empty where it has no name."""
    if stage.level == "poplar":
        return ""
    main = main_of(stage.module)
    owner = dict(zip(output_names(main), return_of(main).operands))[output].owner
    found = place_of_result(owner) if isinstance(owner, Operation) else None
    return "" if found is None else f"'{found}' first, and so "


def keeps_bits(p: ModulePass) -> bool:
    """Tells if a pass keeps every bit, as its docstring says ("Bit for bit."), or as its option `exact` does."""
    return bool(getattr(p, "exact", False)) or "Bit for bit." in (type(p).__doc__ or "")


def changed(a: Array, b: Array, bits: bool, kind: str) -> str | None:
    """Describes how a result differs by more than is allowed; None if it does not."""
    if a.shape != b.shape:
        return f"its shape {list(a.shape)} becomes {list(b.shape)}"
    if bits:
        same = (a == b) | ((a != a) & (b != b))  # as they are: floats of 64 bits do not tell large integers apart
        if a.dtype.kind in "fV":
            x, y = a.astype(np.float64), b.astype(np.float64)
            same &= (np.signbit(x) == np.signbit(y)) | np.isnan(x)
        return None if same.all() else f"{int((~same).sum())} of {same.size} elements change"
    if kind not in MODERATE:  # sums in another order overflow elsewhere; what rounds is compared where both are moderate
        return None
    found = largest_difference(b, a)
    halves = a.dtype.itemsize <= 2 and a.dtype.kind not in "iub"
    if found.relative <= (2e-2 if halves else RTOL):
        return None
    return f"it changes by {found.absolute:.3g}, {found.relative:.3g} of its largest element"


@contextmanager
def validating(kinds: tuple[str, ...] = ADVERSARIAL, seed: int = 0) -> Generator[Validator, None, None]:
    """Validates each pass of every pipeline that runs inside. The pass that changes a result raises PopulusError."""
    validator = Validator(kinds, seed)
    token = WATCHING.set(validator)
    try:
        yield validator
        validator.end()
    finally:
        WATCHING.reset(token)
