"""Several kernels for one op: a pass that chooses a kernel and layouts for each op, over the whole program, at the least cost.

populus-opt model.onnx --load kernels.py -p "..,popart-select-kernels{force=relu:blocked explain=true},popart-to-popops,.."
populus.compile("model.onnx", load=["kernels.py"], pipeline=kernels.inference("relu:blocked"))

Kernels of your own stand in this file, or in another that reads it:

kernels = extensions.read("kernels.py").module

class AcmeSelectKernelsPass(kernels.SelectKernelsPass):
    name = "acme-select-kernels"
    KERNELS = (Mine, Other)

Source: OpenVINO's MKLDNN extensions (`getSupportedConfigurations`, `init`, `execute`), Paddle's OpKernelType, oneDNN's nChw8c.
"""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from math import prod
from typing import ClassVar, TypeAlias

from xdsl.builder import Builder
from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp
from xdsl.ir import Attribute, Block, Operation, OpResult, SSAValue
from xdsl.passes import ModulePass
from xdsl.rewriter import InsertPoint

from populus.dialects.popart import ReluOp, calls
from populus.dialects.popart.base import PopartOp
from populus.dialects.popart.control_flow import LoopOp
from populus.dialects.support.diagnostics import PopulusError, between, did_you_mean, locate, where
from populus.dialects.support.element_types import element_type_of, is_float, shape_of, tensor
from populus.lowering.driver.pipeline import Pipeline

OWN = "own"  # an op's own `lower`: planar, and for every machine
REORDER = 1.0  # cycles to read an element and write it elsewhere
WIDEST = 12  # variables in one table; beyond this, one of them is decided by its least possible cost

Costs: TypeAlias = "dict[tuple[int, ...], float]"


@dataclass(frozen=True)
class Layout:
    """`block` elements of dimension `dim` side by side, innermost, the last block filled with zeros; planar without a block.

    nChw8c of [N, C, H, W] is a tensor [N, ceil(C / 8), H, W, 8], so no other level knows of layouts.
    """

    block: int = 0
    dim: int = 1

    def __str__(self) -> str:
        return f"blocked {self.block} at {self.dim}" if self.block else "planar"

    def fits(self, shape: Sequence[int]) -> bool:
        """Tells whether a tensor of a shape can have this layout."""
        return not self.block or len(shape) > self.dim

    def physical(self, shape: Sequence[int]) -> tuple[int, ...]:
        """Computes the shape of a tensor in this layout."""
        if not self.block:
            return tuple(shape)
        return (*shape[: self.dim], -(-shape[self.dim] // self.block), *shape[self.dim + 1 :], self.block)

    def packed(self, b: Builder, x: SSAValue) -> SSAValue:
        """Reorders a planar value into this layout."""
        if not self.block:
            return x
        d, shape = self.dim, shape_of(x.type)
        rest = -shape[d] % self.block
        x = calls.pad(b, x, [0] * len(shape), [rest if i == d else 0 for i in range(len(shape))])
        x = calls.reshape(b, x, (*shape[:d], (shape[d] + rest) // self.block, self.block, *shape[d + 1 :]))
        return calls.transpose(b, x, [i for i in range(len(shape) + 1) if i != d + 1] + [d + 1])

    def unpacked(self, b: Builder, x: SSAValue, extent: int) -> SSAValue:
        """Reorders a value of this layout into a planar one, whose dimension `dim` has `extent` elements."""
        if not self.block:
            return x
        d, shape = self.dim, shape_of(x.type)
        last = len(shape) - 1
        x = calls.transpose(b, x, [*range(d + 1), last, *range(d + 1, last)])
        x = calls.reshape(b, x, (*shape[:d], shape[d] * self.block, *shape[d + 1 : last]))
        return calls.slice_dim(b, x, d, 0, extent)


PLANAR = Layout()
NCHW8C = Layout(8)


@dataclass(frozen=True)
class Config:
    """Layouts of the operands and results with which a kernel works, and what an element costs it, in cycles."""

    inputs: tuple[Layout, ...]
    outputs: tuple[Layout, ...]
    cost: float = 1.0

    def __str__(self) -> str:
        ins, outs = (", ".join(map(str, layouts)) for layouts in (self.inputs, self.outputs))
        return f"({ins}) -> ({outs})"


class Kernel(ABC):
    """One way to compute `op`. Its members besides `lower` are requirements; an op that does not meet them goes to other kernels.

    `targets`: names of machines; all without any. `arity`: (operands, results). `rank`: of all operands. `dtypes`: of all operands of
    floats.
    """

    op: ClassVar[type[PopartOp]]
    name: ClassVar[str]
    targets: ClassVar[tuple[str, ...]] = ()
    arity: ClassVar[tuple[int, int] | None] = None
    rank: ClassVar[int | None] = None
    dtypes: ClassVar[tuple[Attribute, ...]] = ()

    def configs(self, op: PopartOp) -> Sequence[Config]:
        """Lists the configurations that it supports, in order of preference. The default is planar."""
        return [Config((PLANAR,) * len(op.operands), (PLANAR,) * len(op.results))]

    def init(self, op: PopartOp, config: Config) -> str | None:
        """Accepts or vetoes the chosen configuration, once. A reason is a veto; then the next best is chosen."""
        return None

    @abstractmethod
    def lower(self, b: Builder, op: PopartOp, operands: Sequence[SSAValue], config: Config) -> Sequence[SSAValue]:
        """Builds the results from the operands, both in the configuration's layouts; inserts library calls or other ops at `b`.

        Read attributes and types from `op`, but not its operands, which are planar.
        """

    def refusal(self, op: PopartOp, target: str | None) -> str | None:
        """Returns the reason why this kernel cannot compute an op on a target; None if it can."""
        assert isinstance(op, self.op), f"kernel {self.name} is for {self.op.name}, and is asked about {op.name}"
        if self.targets and target is not None and target not in self.targets:
            return f"it is for {', '.join(self.targets)}"
        if self.arity is not None and (found := (len(op.operands), len(op.results))) != self.arity:
            return f"it takes {self.arity[0]} operands and gives {self.arity[1]}, the op has {found[0]} and {found[1]}"
        for i, operand in enumerate(op.operands):
            shape, element = shape_of(operand.type), element_type_of(operand.type)
            if min(shape, default=0) < 0:
                return f"operand {i} is {operand.type}; a static shape is expected"
            if self.rank is not None and len(shape) != self.rank:
                return f"operand {i} has {len(shape)} dimensions; {self.rank} are expected"
            if self.dtypes and is_float(element) and element not in self.dtypes:
                return f"operand {i} is of {element}; {', '.join(map(str, self.dtypes))} is expected"
        return None


class Own(Kernel):
    """An op's own `lower`: what remains when no other kernel is taken."""

    name = OWN

    def __init__(self, op: type[PopartOp]):
        self.op = op

    def refusal(self, op: PopartOp, target: str | None) -> str | None:
        return f"{op.name} has no `lower`" if type(op).lower is PopartOp.lower else None

    def lower(self, b: Builder, op: PopartOp, operands: Sequence[SSAValue], config: Config) -> Sequence[SSAValue]:
        raise AssertionError("an op that is computed in its own way is lowered as itself")


@dataclass(frozen=True)
class Choice:
    """A kernel in one of its configurations. `cost`: cycles."""

    kernel: Kernel
    config: Config
    cost: float


@dataclass
class Candidates:
    """The possible kernels of an op, and the reasons why the others refuse."""

    op: PopartOp
    choices: list[Choice] = field(default_factory=list)
    refusals: dict[str, str] = field(default_factory=dict)

    @staticmethod
    def of(op: PopartOp, kernels: Sequence[Kernel], target: str | None, forced: str | None = None) -> Candidates:
        """Collects the kernels of an op. Raises PopulusError if none is left, or a forced kernel is unknown or refuses."""
        found, known = Candidates(op), [*(k for k in kernels if k.op is type(op)), Own(type(op))]
        names = [k.name for k in known]
        if forced is not None and forced not in names:
            raise PopulusError(f"{where(op)}: {op.name} has no kernel '{forced}' to be forced{did_you_mean(forced, names)}")
        for kernel in known:
            reason = kernel.refusal(op, target)
            if reason is None and forced is not None and kernel.name != forced:
                reason = f"{forced} is forced"
            if reason is not None:
                found.refusals[kernel.name] = reason
            else:
                found._add(kernel)
        found.need()
        return found

    def _add(self, kernel: Kernel) -> None:
        elements = prod(shape_of(self.op.results[0].type)) if self.op.results else 1
        for config in kernel.configs(self.op):
            ends = (*zip(config.inputs, self.op.operands), *zip(config.outputs, self.op.results))
            if (len(config.inputs), len(config.outputs)) != (len(self.op.operands), len(self.op.results)):
                self.refusals[kernel.name] = f"its configuration {config} is not for {len(self.op.operands)} operands"
            elif unfit := [layout for layout, v in ends if not layout.fits(shape_of(v.type))]:
                self.refusals[kernel.name] = f"{unfit[0]} has no dimension {unfit[0].dim}"
            elif any(layout.block and not is_float(element_type_of(v.type)) for layout, v in ends):
                self.refusals[kernel.name] = "only floats are in blocks"
            else:
                self.choices.append(Choice(kernel, config, config.cost * elements))

    def veto(self, choice: Choice, why: str) -> None:
        """Leaves out a choice that its kernel vetoes. Raises PopulusError if none is left."""
        self.choices.remove(choice)
        self.refusals[choice.kernel.name] = f"vetoed: {why}"
        self.need()

    def need(self) -> None:
        """Raises PopulusError, with each kernel's reason, if no choice is left."""
        if not self.choices:
            reasons = "; ".join(f"{name}: {reason}" for name, reason in self.refusals.items())
            raise PopulusError(f"{where(self.op)}: no kernel computes {self.op.name}: {reasons}")

    def said(self, choice: Choice) -> str:
        """Explains a choice: its cost, what the others cost, and why the rest refuse."""
        others = sorted((c.cost, f"{c.kernel.name} {c.config}") for c in self.choices if c is not choice)
        costs = [f"{choice.cost:g} cycles in {choice.config}", *(f"{name} {cost:g}" for cost, name in others)]
        reasons = [f"{name}: {reason}" for name, reason in self.refusals.items()]
        return f"{where(self.op)}: {self.op.name}: {choice.kernel.name}: {'; '.join([*costs, *reasons])}"


@dataclass(frozen=True)
class Table:
    """Cost of the joint picks of some variables. `cost` takes the picks in the order of `of`; at most 12 variables."""

    of: tuple[int, ...]
    cost: Callable[[tuple[int, ...]], float]


def least(sizes: Sequence[int], tables: Sequence[Table]) -> list[int]:
    """Finds for each variable, with `sizes` picks each, the pick of least total cost; the first of equals.

    Exact while at most 12 variables meet at once. Source: bucket elimination (Dechter 1999), the variable that
    meets the fewest others first.
    """
    left: list[tuple[tuple[int, ...], Costs]] = [
        (t.of, {picks: t.cost(picks) for picks in product(*(range(sizes[v]) for v in t.of))}) for t in tables
    ]
    solved: list[tuple[int, tuple[int, ...], Mapping[tuple[int, ...], int]]] = []
    open = set(range(len(sizes)))
    while open:
        met = {v: {u for of, _ in left if v in of for u in of} - {v} for v in open}
        v = min(open, key=lambda v: (len(met[v]), v))
        mine, left = [t for t in left if v in t[0]], [t for t in left if v not in t[0]]
        others = tuple(sorted(met[v])) if len(met[v]) < WIDEST else ()
        if others or not met[v]:
            costs, picks = _without(v, sizes, others, mine)
            if others:
                left.append((others, costs))
        else:
            pick = min(range(sizes[v]), key=lambda p: sum(min(c for k, c in table.items() if k[of.index(v)] == p) for of, table in mine))
            picks = {(): pick}
            left += [_given(v, pick, of, table) for of, table in mine if len(of) > 1]
        solved.append((v, others, picks))
        open.remove(v)
    chosen: dict[int, int] = {}
    for v, others, picks in reversed(solved):
        chosen[v] = picks[tuple(chosen[u] for u in others)]
    return [chosen[v] for v in range(len(sizes))]


def _without(
    v: int, sizes: Sequence[int], others: tuple[int, ...], tables: Sequence[tuple[tuple[int, ...], Costs]]
) -> tuple[Costs, dict[tuple[int, ...], int]]:
    """Computes, for all picks of the others, the cost of the best pick of `v`, and that pick."""
    costs: Costs = {}
    picks: dict[tuple[int, ...], int] = {}
    for around in product(*(range(sizes[u]) for u in others)):
        at = dict(zip(others, around))
        sums = [sum(table[tuple(p if u == v else at[u] for u in of)] for of, table in tables) for p in range(sizes[v])]
        costs[around] = min(sums)
        picks[around] = sums.index(costs[around])
    return costs, picks


def _given(v: int, pick: int, of: tuple[int, ...], table: Costs) -> tuple[tuple[int, ...], Costs]:
    """Fixes the variable at its pick; returns the table without it."""
    at = of.index(v)
    return of[:at] + of[at + 1 :], {k[:at] + k[at + 1 :]: c for k, c in table.items() if k[at] == pick}


class Selection:
    """The kernels of one function: those of least total cost, none of which vetoes."""

    def __init__(self, block: Block, kernels: Sequence[Kernel], target: str | None, forced: dict[str, str]):
        named = {k.op for k in kernels}
        self.block = block
        self.candidates: dict[PopartOp, Candidates] = {}
        for op in block.walk():
            if isinstance(op, PopartOp):
                name = forced.get(op.name, forced.get(op.name.partition(".")[2]))
                if name is not None or type(op) in named:
                    self.candidates[op] = Candidates.of(op, kernels, target, name)
        self.chosen = self._best()
        while vetoed := self._vetoed():
            op, why = vetoed
            self.candidates[op].veto(self.chosen[op], why)
            self.chosen = self._best()

    def _vetoed(self) -> tuple[PopartOp, str] | None:
        for op, choice in self.chosen.items():
            if (why := choice.kernel.init(op, choice.config)) is not None:
                return op, why
        return None

    def explained(self) -> list[str]:
        """Explains each choice in a line."""
        return [self.candidates[op].said(choice) for op, choice in self.chosen.items()]

    def _best(self) -> dict[PopartOp, Choice]:
        """Finds the choices of least total cost. It is exact unless the choices of more than 12 ops meet at once."""
        ops = list(self.candidates)
        number = {op: i for i, op in enumerate(ops)}

        def chosen(of: Sequence[int], picks: Sequence[int]) -> dict[PopartOp, Choice]:
            return {ops[i]: self.candidates[ops[i]].choices[p] for i, p in zip(of, picks)}

        runs = [_runs(op.parent) for op in ops]
        tables = [Table((i,), lambda picks, i=i: runs[i] * self.candidates[ops[i]].choices[picks[0]].cost) for i in range(len(ops))]
        for value in dict.fromkeys(v for op in ops for v in (*op.operands, *op.results)):
            maker = [number[value.owner]] if value.owner in number else []
            readers = list(dict.fromkeys(number[u.operation] for u in value.uses if u.operation in number))
            around = tuple(dict.fromkeys([*maker, *readers]))
            # With too many readers, each has a table of its own, and a reorder that several share counts for each.
            for of in [around] if len(around) <= WIDEST else [tuple(dict.fromkeys([*maker, r])) for r in readers]:
                tables.append(Table(of, lambda picks, of=of, value=value: self._reorders(value, chosen(of, picks))))
        picks = least([len(self.candidates[op].choices) for op in ops], tables)
        return chosen(range(len(ops)), picks)

    def _reorders(self, value: SSAValue, chosen: dict[PopartOp, Choice]) -> float:
        """Computes the cost to reorder a value from its producer's layout to every layout in which it is read."""
        made = PLANAR
        if isinstance(value, OpResult) and value.op in chosen:
            made = chosen[value.op].config.outputs[value.index]
        wanted: set[Layout] = set()
        for use in value.uses:
            if use.operation in chosen:
                wanted.add(chosen[use.operation].config.inputs[use.index])
            elif use.operation not in self.candidates:
                wanted.add(PLANAR)
        home = value.owner if isinstance(value.owner, Block) else value.owner.parent
        return len(wanted - {made}) * REORDER * prod(shape_of(value.type)) * _runs(home)


def _runs(block: Block | None) -> int:
    """Gives the most times that a block runs, as far as its loops say it; a loop without a bound counts once."""
    count = 1
    while block is not None and (op := block.parent_op()) is not None:
        count *= (op.most or 1) if isinstance(op, LoopOp) else 1
        block = op.parent
    return count


class Rewrite:
    """Puts ops into their kernels, and reorders the values between them, each once for a layout."""

    def __init__(self) -> None:
        self.versions: dict[tuple[SSAValue, Layout], SSAValue] = {}
        self.unpacking: list[Operation] = []

    def apply(self, block: Block, chosen: dict[PopartOp, Choice]) -> None:
        """Replaces the chosen ops of a block and of the branches and loops in it."""
        for op in list(block.walk()):
            if isinstance(op, PopartOp) and (choice := chosen.get(op)) is not None and choice.kernel.name != OWN:
                self._replace(op, choice.kernel, choice.config)
        for made in reversed(self.unpacking):
            if not any(r.first_use for r in made.results):
                made.detach()
                made.erase()

    def _replace(self, op: PopartOp, kernel: Kernel, config: Config) -> None:
        home, before = op.parent, op.prev_op
        assert home is not None, op
        operands = [self._in(v, layout, op) for v, layout in zip(op.operands, config.inputs)]
        made = list(kernel.lower(Builder(InsertPoint.before(op)), op, operands, config))
        expected = [tensor(la.physical(shape_of(r.type)), element_type_of(r.type)) for la, r in zip(config.outputs, op.results)]
        if [v.type for v in made] != expected:
            gives, of = ", ".join(str(v.type) for v in made), ", ".join(map(str, expected))
            raise PopulusError(f"{where(op)}: {op.name}: kernel '{kernel.name}' gives {gives or 'nothing'}; {of} is expected")
        last = op.prev_op
        for old, new, layout in zip(op.results, made, config.outputs):
            extent = shape_of(old.type)[layout.dim] if layout.block else 0
            planar = layout.unpacked(Builder(InsertPoint.before(op)), new, extent)
            planar.name_hint = old.name_hint
            old.replace_all_uses_with(planar)
            self.versions[planar, layout] = new
        locate(between(home, before, op), op.location)
        self.unpacking += between(home, last, op)
        op.detach()
        op.erase()

    def _in(self, value: SSAValue, layout: Layout, before: PopartOp) -> SSAValue:
        """Gives a value in a layout, reordered where it is made, once for each layout."""
        if (known := self.versions.get((value, layout))) is not None:
            return known
        owner = value.owner
        block, maker = (owner, None) if isinstance(owner, Block) else (owner.parent, owner)
        following = block.first_op if maker is None else maker.next_op
        self.versions[value, layout] = packed = layout.packed(Builder(InsertPoint(block, following)), value)
        locate(between(block, maker, following), before.location)
        return packed


class BlockedRelu(Kernel):
    """`max(x, 0)` in blocks of 8 channels: what fills the last block stays zero."""

    op, name, rank = ReluOp, "blocked", 4

    def configs(self, op: PopartOp) -> Sequence[Config]:
        return [Config((NCHW8C,), (NCHW8C,), cost=0.125)]

    def lower(self, b: Builder, op: PopartOp, operands: Sequence[SSAValue], config: Config) -> Sequence[SSAValue]:
        return [calls.map(b, op.formula(), *operands)]


@dataclass(frozen=True)
class SelectKernelsPass(ModulePass):
    """Replaces ops that have kernels by the chosen kernels' library calls, and reorders values where layouts differ.

    The choice minimises the sum of the kernels' costs and of the reorders between them, over a function with its branches and loops.
    `force`: `op:kernel`, a kernel to take at any cost. `explain`: prints the reason for each choice. Raises PopulusError with each
    kernel's reason if no kernel is left, and for a forced kernel that is unknown or refuses.
    """

    name = "popart-select-kernels"
    KERNELS: ClassVar[tuple[type[Kernel], ...]] = (BlockedRelu,)
    target: str | None = None
    force: tuple[str, ...] = ()
    explain: bool = False

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        for selection in self.selections(op):
            if self.explain:
                print(*selection.explained(), sep="\n", file=sys.stderr)
            Rewrite().apply(selection.block, selection.chosen)

    def selections(self, module: ModuleOp) -> list[Selection]:
        """Chooses the kernels of each function. The module does not change."""
        kernels, forced = [kernel() for kernel in self.KERNELS], dict(_forced(self.force))
        bodies = [f.body.block for f in module.ops if isinstance(f, FuncOp) and f.body.blocks]
        return [Selection(block, kernels, self.target, forced) for block in bodies]


def _forced(texts: Sequence[str]) -> Iterator[tuple[str, str]]:
    for text in texts:
        op, colon, kernel = text.rpartition(":")
        if not colon or not op or not kernel:
            raise PopulusError(f"force = '{text}'; expected OP:KERNEL, such as relu:blocked")
        yield op, kernel


def inference(*force: str, select: type[SelectKernelsPass] = SelectKernelsPass, name: str = "inference") -> Pipeline:
    """Gives a named pipeline with the selection before the ops are lowered, some kernels forced."""
    return Pipeline.named(name).insert_before("popart-to-popops", select(force=force))
