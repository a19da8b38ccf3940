"""`--verify-each=prove`: proves for each pass that the program after it computes the same as before, and that tiles share no memory.

with proving() as proofs:
    populus.compile("model.onnx")
print(proofs.rows)  # [Row("popart-fuse", "proved", "2 claims", 0.02), ...]

A program of the level `onnx` means what ONNX's definitions of its ops say, and one of the level `popart` what its library calls do.
Between two levels there is no program; the passes from one to the other are one. A later pass that is not decided is judged
by running (`populus.compare.validation`), unless `run` is false.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from time import perf_counter
from weakref import finalize

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp, TensorType
from xdsl.ir import Attribute, Operation
from xdsl.passes import ModulePass

from populus.compare.validation import NOT_TILES, Validator
from populus.dialects.poplar.compute import CopyOp, FamilyOp
from populus.dialects.poplar.memory import type_of
from populus.dialects.poplar.program import CallOp, GraphOp, IfOp, RepeatOp, StreamInOp, StreamOutOp, WhileOp
from populus.dialects.signature import main_of, output_names, return_of
from populus.dialects.support.diagnostics import PopulusError
from populus.dialects.support.element_types import element_type_of
from populus.dialects.table import context
from populus.lowering.driver.pipeline import WATCHING
from populus.program.source import level_among
from populus.proof.equivalence import compare
from populus.proof.memory import prove_memory
from populus.proof.programs import Results, execute
from populus.proof.report import REFUTED, UNDECIDED, Invalid, Report, Undecided, verified
from populus.proof.terms import Terms
from populus.runtime.session import graph_of

STEPS = (FamilyOp, CopyOp, CallOp, IfOp, RepeatOp, WhileOp, StreamInOp, StreamOutOp)


@dataclass(frozen=True)
class Row:
    """The outcome for one pass, or for passes between which nothing was decided: a verdict, its reason, and the seconds that it took."""

    passes: str
    verdict: str
    why: str
    seconds: float
    ran: bool = False  # compared by running


@dataclass
class _Stage:
    level: str
    content: list[tuple[object, ...]]  # what a pass that changes something changes
    results: Results | Undecided | Invalid
    types: dict[str, Attribute]  # of the elements of each output
    module: ModuleOp | None  # a copy, for running
    memory: bool = False  # its claims are proved


class Prover:
    """Proves each pass of the pipelines that it watches. `rows`: what came out. A refuted pass raises PopulusError."""

    def __init__(self, run: bool = True):
        self.run, self.terms = run, Terms()
        finalize(self, vars(self.terms).clear).atexit = False  # terms and their facts hold each other
        self.rows: list[Row] = []
        self._last: _Stage | None = None
        self._pending: list[str] = []

    def lines(self) -> list[str]:
        """Gives the verdict on each pass."""
        return [
            f"{row.passes}: {row.verdict}"
            + (f" ({row.why})" if row.verdict == UNDECIDED else "")
            + ("; compared by running" if row.ran else "")
            for row in self.rows
        ]

    def begin(self, module: ModuleOp) -> None:
        """Executes the program before the first pass."""
        self._pending, self._last = [], self._stage(context(), module)

    def after(self, p: ModulePass, ctx: Context, module: ModuleOp) -> None:
        """Proves a pass. Raises PopulusError that names it, an output, an element and both terms, if it is refuted."""
        begin = perf_counter()
        self._pending.append(p.name)
        if (stage := self._stage(ctx, module)) is None:
            return
        before, self._last = self._last, stage
        if stage.level == "onnx" and isinstance(stage.results, Undecided):
            return  # what is after the last pass of ONNX is told
        names, self._pending = self._pending, []
        name = " to ".join(dict.fromkeys((names[0], names[-1])))
        report = Report() if stage is before else self._compared(before, stage)
        if stage.level == "poplar" and not stage.memory:
            stage.memory = True
            memory = prove_memory(graph_of(module), terms=self.terms)
            report.claims += memory.claims
            report.refuted += memory.refuted
        ran = report.verdict == UNDECIDED and self.run and before is not None and before.module is not None
        row = Row(name, report.verdict, next(iter(report.refuted or report.undecided), ""), perf_counter() - begin, ran)
        if before is not None or stage.level == "poplar":
            self.rows.append(row)
        if row.verdict == REFUTED:
            self._last = None
            raise PopulusError(f"{name} is refuted: {row.why}")
        if ran and before is not None and before.module is not None:
            judge = Validator()
            judge.begin(before.module)
            judge.after(p, ctx, module)

    def _compared(self, before: _Stage | None, after: _Stage) -> Report:
        if isinstance(after.results, Invalid):
            return Report(refuted=[str(after.results)])
        if before is None:
            return Report()
        if isinstance(before.results, Exception):
            return Report(undecided=[str(before.results)])
        if isinstance(after.results, Undecided):
            return Report(undecided=[str(after.results)])
        report = compare(self.terms, before.results, after.results)
        for name, element in before.types.items():
            if after.types.get(name, element) != element:
                report.refuted.append(f"output '{name}' is of {after.types[name]}, where {element} is meant")
        return report

    def _stage(self, ctx: Context, module: ModuleOp) -> _Stage | None:
        """Executes a program symbolically. Gives the last stage if nothing has changed, and None for a program that has no level."""
        ops = list(module.walk())
        found = {name.partition(".")[0] for name in {op.name for op in ops}}
        level = level_among(found)
        if level == "onnx" and not all(isinstance(v.type, TensorType) for op in ops for v in op.results):
            return None  # before shapes are inferred
        if (level != "poplar" and "poplar" in found) or (level == "poplar" and found & NOT_TILES):
            return None
        if level == "poplar" and not any(isinstance(op, GraphOp) for op in module.body.block.ops):
            return None
        content = [_content(op) for op in ops]
        if self._last is not None and content == self._last.content:
            return self._last
        try:
            if level == "poplar":
                self._verify(ops)
            results: Results | Undecided | Invalid = execute(self.terms, module)
        except (Undecided, Invalid) as why:
            results = why
        return _Stage(level, content, results, _types(module), module.clone() if self.run and level != "onnx" else None)

    def _verify(self, ops: list[Operation]) -> None:
        """Verifies steps of tiles, once for equal attributes and types: what views show is proved. Raises Invalid."""
        for op in ops:
            if isinstance(op, STEPS):
                objects = (*op.properties.values(), *op.operand_types)
                self.terms.once.of(("verified", op.name, *op.properties), objects, partial(verified, op))


def _types(module: ModuleOp) -> dict[str, Attribute]:
    """Gives the element type of each output of a program."""
    if any(isinstance(op, GraphOp) for op in module.body.block.ops):
        return {op.stream.data: type_of(op.src).element for op in graph_of(module).walk() if isinstance(op, StreamOutOp)}
    main = main_of(module)
    return {name: element_type_of(v.type) for name, v in zip(output_names(main), return_of(main).operands)}


def _content(op: Operation) -> tuple[object, ...]:
    """Lists all that an op is: objects of which each is only equal to itself, and attributes, which never change."""
    inner = (argument.type for region in op.regions for block in region.blocks for argument in block.args)
    named = ((*of, *of.values()) for of in (op.properties, op.attributes))
    return (op, op.parent, *op.operands, *op.result_types, *named, *inner)


@contextmanager
def proving(run: bool = True) -> Generator[Prover, None, None]:
    """Proves each pass of every pipeline that runs inside. `run`: judges what is not decided by running."""
    prover = Prover(run)
    token = WATCHING.set(prover)
    try:
        yield prover
    finally:
        WATCHING.reset(token)
