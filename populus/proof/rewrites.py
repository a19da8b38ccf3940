"""`--prove-rewrites`: proves each rewrite of a pattern when it happens. A value for a result is the same term of the same inputs.

with proving_rewrites() as proofs:
    populus.compile("model.onnx")
print(proofs.lines())  # ["ConvBias: 26 rewrites proved", ...]

A block is executed once, symbolically, before its first rewrite; then only ops that patterns insert or change. So a refuted rewrite
names its pattern, where `--verify-each=prove` names the pass.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from xdsl.ir import Block, Operation, SSAValue

from populus.dialects.support.diagnostics import PopulusError, where
from populus.dialects.support.element_types import element_type_of, is_float, shape_of
from populus.lowering.popart.rewriting import JUDGE
from populus.proof.calls import Calls
from populus.proof.equivalence import compare
from populus.proof.report import PROVED, REFUTED, UNDECIDED, Invalid, Undecided, walked
from populus.proof.terms import Terms
from populus.proof.trees import Pieces


@dataclass
class Row:
    """The rewrites of one pattern: how many are proved, and why others are not decided."""

    proved: int = 0
    undecided: list[str] = field(default_factory=list[str])


class RewriteProver:
    """Proves each rewrite of the blocks that it watches. `rows`: by pattern. A refuted one raises PopulusError."""

    def __init__(self) -> None:
        self.terms = Terms()
        self.rows: dict[str, Row] = {}
        self._values: dict[SSAValue, Pieces] = {}
        self._open: dict[Operation, str] = {}  # why an op has no term
        self._arguments = 0  # of blocks, each an input of its own

    def lines(self) -> list[str]:
        """Gives for each pattern the number of its rewrites that are proved, and that are not decided, with the first reason."""
        found: list[str] = []
        for name, row in sorted(self.rows.items()):
            open_ = f"; {len(row.undecided)} not decided ({row.undecided[0]})" if row.undecided else ""
            found.append(f"{name}: {row.proved} rewrites proved{open_}")
        return found

    def begin(self, block: Block) -> None:
        """Executes a block before its first rewrite."""
        for op in block.ops:
            for result in op.results:
                try:
                    self.of(result)
                except (Undecided, Invalid):
                    break  # a rewrite that needs it says so

    def replaced(self, pattern: str, op: Operation, values: Sequence[SSAValue | None]) -> None:
        """Proves that values are the results of an op. Raises PopulusError that names the pattern, an element and both terms."""
        row = self.rows.setdefault(pattern, Row())
        pairs = [(result, value) for result, value in zip(op.results, values) if value is not None]
        try:
            sides = [(self.of(result), self._put(pattern, op, value)) for result, value in pairs]
        except Undecided as why:
            row.undecided.append(str(why))
            return
        if self._judge(pattern, op, [(*side, shape_of(result.type)) for side, (result, _) in zip(sides, pairs)]):
            row.proved += 1

    def modified(self, pattern: str, op: Operation) -> None:
        """Proves that an op whose operands or attributes a pattern has set gives what it gave."""
        if not op.results or op.results[0] not in self._values:
            self._open.pop(op, None)
            return
        before = [self._values.pop(result) for result in op.results]
        try:
            after = [self._put(pattern, op, result) for result in op.results]
        except Undecided as why:
            self.rows.setdefault(pattern, Row()).undecided.append(str(why))
            return
        if any(a is not b for a, b in zip(before, after)):
            self._judge(pattern, op, [(b, a, shape_of(r.type)) for b, a, r in zip(before, after, op.results)])

    def _judge(self, pattern: str, op: Operation, results: Sequence[tuple[Pieces, Pieces, tuple[int, ...]]]) -> bool:
        row = self.rows.setdefault(pattern, Row())
        names = [op.results[k].name_hint or f"result {k}" for k in range(len(results))]
        wanted = {name: (want, shape) for name, (want, _, shape) in zip(names, results)}
        report = compare(self.terms, wanted, {name: (have, shape) for name, (_, have, shape) in zip(names, results)})
        if report.verdict == REFUTED:
            raise PopulusError(f"the pattern {pattern} is refuted at {where(op)} ({op.name}): {report.refuted[0]}")
        if report.verdict == UNDECIDED:
            row.undecided.append(report.undecided[0])
        return report.verdict == PROVED

    def _put(self, pattern: str, op: Operation, value: SSAValue) -> Pieces:
        try:
            return self.of(value)
        except Invalid as why:
            raise PopulusError(f"the pattern {pattern} is refuted at {where(op)} ({op.name}): {why}") from None

    def of(self, value: SSAValue) -> Pieces:
        """Gives the term of a value; of a block's argument, an input of its own. Raises Undecided, which names the op that has none."""
        if value in self._values:
            return self._values[value]
        if isinstance(value.owner, Block):
            self._arguments += 1
            name, floats = f"{value.name_hint or 'argument'} {self._arguments}", is_float(element_type_of(value.type))
            found = self._values[value] = self.terms.input(name, shape_of(value.type), floats)
            return found
        op = value.owner
        if op in self._open:
            raise Undecided(self._open[op])
        try:
            for inner in op.walk():
                for read in inner.operands:
                    if not op.is_ancestor(read.owner):
                        self.of(read)
            with walked():
                results = Calls(self.terms, self._values).op(op)
        except Undecided as why:
            self._open[op] = str(why)
            raise
        self._values.update(zip(op.results, results))
        return self._values[value]


@contextmanager
def proving_rewrites() -> Generator[RewriteProver, None, None]:
    """Proves each rewrite of every pattern that runs inside."""
    prover = RewriteProver()
    token = JUDGE.set(prover)
    try:
        yield prover
    finally:
        JUDGE.reset(token)
