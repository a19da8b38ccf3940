"""Kernel selection (`popart-select-kernels`): the kernel of each op, chosen for the whole program to minimise
reorders.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import prod

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp
from xdsl.ir import Block, OpResult, SSAValue
from xdsl.passes import ModulePass

from populus.dialects.popart.base import PopartOp
from populus.dialects.popart.control_flow import LoopOp
from populus.dialects.popart.kernel import OWN, Config, KernelOp, Known, any_kernels, kernels_of
from populus.dialects.popart.layout import PLANAR, Layout, LayoutAttr, PackOp, UnpackOp
from populus.dialects.support.diagnostics import PopulusError, did_you_mean, where
from populus.dialects.support.element_types import element_type_of, is_float, shape_of
from populus.lowering.poplar.plan.choices import WIDEST, Table, least

REORDER = 1.0  # cycles to read an element and write it elsewhere


@dataclass(frozen=True)
class PopartSelectKernelsPass(ModulePass):
    """Replaces ops that have kernels by the chosen kernels, and packs or unpacks values where layouts differ.

    The choice minimises the sum of the kernels' costs and of the reorders between them, over the whole program with its branches
    and loops. The cost in a loop counts once for each iteration that it may have; a loop without a bound counts once.
    It is exact unless the choices of more than 12 ops meet at once. If a kernel vetoes its choice, the next best
    is taken. Each op records the reason for its kernel. `force`: `op:kernel`, a kernel to take at any cost.
    Raises PopulusError with each kernel's reason if no kernel is left, and for a forced kernel that is unknown or
    refuses. To rounding.
    """

    name = "popart-select-kernels"
    target: str | None = None
    force: tuple[str, ...] = ()

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        forced = dict(_forced(self.force))
        if not any_kernels(ctx) and not forced:
            return
        for function in op.ops:
            if isinstance(function, FuncOp) and function.body.blocks:
                Selection(ctx, function.body.block, self.target, forced).apply()


@dataclass(frozen=True)
class Choice:
    """Kernel in one of its configurations. `cost`: cycles."""

    known: Known
    config: Config
    cost: float

    @property
    def name(self) -> str:
        """The kernel's name."""
        return self.known.kernel.name


@dataclass
class Candidates:
    """Possible kernels of an op, and the reasons why the others refuse."""

    op: PopartOp
    choices: list[Choice]
    refusals: dict[str, str] = field(default_factory=dict[str, str])


def candidates(ctx: Context, op: PopartOp, target: str | None, forced: str | None = None) -> Candidates:
    """Collects the kernels of an op. Raises PopulusError if none is left, or a forced kernel is unknown or refuses."""
    possible = Candidates(op, [])
    known = kernels_of(ctx, type(op))
    names = [k.kernel.name for k in known]
    if forced is not None and forced not in names:
        raise PopulusError(f"{where(op)}: {op.name} has no kernel '{forced}' to be forced{did_you_mean(forced, names)}")
    elements = prod(shape_of(op.results[0].type)) if op.results else 1
    for k in known:
        reason = k.refusal(op, target)
        if reason is None and forced is not None and k.kernel.name != forced:
            reason = f"{forced} is forced"
        if reason is not None:
            possible.refusals[k.kernel.name] = reason
            continue
        for config in k.kernel.configs(op):
            ends = (*zip(config.inputs, op.operands), *zip(config.outputs, op.results))
            if len(config.inputs) != len(op.operands) or len(config.outputs) != len(op.results):
                possible.refusals[k.kernel.name] = f"its configuration {config} is not for {len(op.operands)} operands"
            elif unfit := [layout for layout, v in ends if not layout.fits(shape_of(v.type))]:
                possible.refusals[k.kernel.name] = f"{unfit[0]} has no dimension {unfit[0].dim}"
            elif any(layout.block and not is_float(element_type_of(v.type)) for layout, v in ends):
                possible.refusals[k.kernel.name] = "only floats are in blocks"
            else:
                possible.choices.append(Choice(k, config, config.cost * elements))
    if not possible.choices:
        raise PopulusError(f"{where(op)}: no kernel computes {op.name}: {_reasons(possible.refusals)}")
    return possible


def put(op: PopartOp, choice: Choice) -> None:
    """Replaces one op by the chosen kernel, with reorders around it; the rest of its block stays."""
    block = op.parent_block()
    assert block is not None, op
    _Rewrite({op: choice}, {op: Candidates(op, [choice])}).apply(block)


def _reasons(refusals: Mapping[str, str]) -> str:
    return "; ".join(f"{name}: {reason}" for name, reason in refusals.items())


class Selection:
    """Kernel choices of one function."""

    def __init__(self, ctx: Context, block: Block, target: str | None, forced: Mapping[str, str]):
        self.block, self.target = block, target
        self.candidates: dict[PopartOp, Candidates] = {}
        for op in block.walk():
            if isinstance(op, PopartOp) and not isinstance(op, KernelOp) and not isinstance(op.parent_op(), KernelOp):
                name = forced.get(op.name, forced.get(op.name.partition(".")[2]))
                if name is not None or len(kernels_of(ctx, type(op))) > 1:
                    self.candidates[op] = candidates(ctx, op, target, name)

    def apply(self) -> None:
        """Chooses kernels until none vetoes, and puts the ops into them."""
        while True:
            chosen = self.best()
            for op, choice in chosen.items():
                veto = choice.known.kernel.init(op, choice.config)
                if veto is not None:
                    of = self.candidates[op]
                    of.choices.remove(choice)
                    of.refusals[choice.name] = f"vetoed: {veto}"
                    if not of.choices:
                        raise PopulusError(f"{where(op)}: no kernel computes {op.name}: {_reasons(of.refusals)}")
                    break
            else:
                break
        _Rewrite(chosen, self.candidates).apply(self.block)

    def best(self) -> dict[PopartOp, Choice]:
        """Finds the choices of least total cost."""
        ops = list(self.candidates)
        number = {op: i for i, op in enumerate(ops)}

        def chosen(of: Sequence[int], picks: Sequence[int]) -> dict[PopartOp, Choice]:
            """Maps ops to choices, by their numbers."""
            return {ops[i]: self.candidates[ops[i]].choices[p] for i, p in zip(of, picks)}

        runs = [_runs(op.parent) for op in ops]
        tables = [Table((i,), lambda picks, i=i: runs[i] * self.candidates[ops[i]].choices[picks[0]].cost) for i in range(len(ops))]
        for value in self._values:
            maker = [number[value.owner]] if isinstance(value.owner, PopartOp) and value.owner in number else []
            users = [u.operation for u in value.uses]
            readers = list(dict.fromkeys(number[op] for op in users if isinstance(op, PopartOp) and op in number))
            around = tuple(dict.fromkeys([*maker, *readers]))
            # With too many readers, each has a table of its own, and a reorder that several share counts for each.
            for of in [around] if len(around) <= WIDEST else [tuple(dict.fromkeys([*maker, r])) for r in readers]:
                tables.append(Table(of, lambda picks, of=of, value=value: self._reorders(value, chosen(of, picks))))
        picks = least([len(self.candidates[op].choices) for op in ops], tables)
        return chosen(range(len(ops)), picks)

    @cached_property
    def _values(self) -> list[SSAValue]:
        values = dict.fromkeys(v for op in self.candidates for v in (*op.operands, *op.results))
        return list(values)

    def _reorders(self, value: SSAValue, chosen: Mapping[PopartOp, Choice]) -> float:
        """Computes the cost to reorder a value from its producer's layout to every layout in which it is read."""
        made = PLANAR
        if isinstance(value, OpResult) and isinstance(value.op, PopartOp) and value.op in chosen:
            made = chosen[value.op].config.outputs[value.index]
        wanted: set[Layout] = set()
        for use in value.uses:
            op = use.operation
            if isinstance(op, PopartOp) and op in chosen:
                wanted.add(chosen[op].config.inputs[use.index])
            elif not (isinstance(op, PopartOp) and op in self.candidates):
                wanted.add(PLANAR)
        home = value.owner if isinstance(value.owner, Block) else value.owner.parent
        return len(wanted - {made}) * REORDER * prod(shape_of(value.type)) * _runs(home)


def _runs(block: Block | None) -> int:
    """Gives the most times that a block runs, as far as its loops say it."""
    count = 1
    while block is not None and (op := block.parent_op()) is not None:
        count *= (op.most or 1) if isinstance(op, LoopOp) else 1
        block = op.parent
    return count


class _Rewrite:
    """Rewriter that replaces ops by kernels and inserts the reorders between them."""

    def __init__(self, chosen: Mapping[PopartOp, Choice], candidates: Mapping[PopartOp, Candidates]):
        self.chosen, self.candidates = chosen, candidates
        self.versions: dict[tuple[SSAValue, Layout], SSAValue] = {}
        self.unpacked: list[UnpackOp] = []

    def apply(self, block: Block) -> None:
        """Replaces the chosen ops of a block and of the branches and loops in it."""
        for op in list(block.walk()):
            choice = self.chosen.get(op) if isinstance(op, PopartOp) else None
            if choice is None or not isinstance(op, PopartOp) or choice.name == OWN:
                continue
            operands = [self._in(v, layout, op) for v, layout in zip(op.operands, choice.config.inputs)]
            made = KernelOp.of(op, choice.name, choice.config, operands, self._reason(op, choice))
            home = op.parent
            assert home is not None, op
            home.insert_op_before(made, op)
            for old, new, layout in zip(op.results, made.results, choice.config.outputs):
                self._replace(old, new, layout, made, op)
            op.detach()
            op.erase()
        for unpack in self.unpacked:
            if not unpack.y.uses:
                unpack.detach()
                unpack.erase()

    def _in(self, value: SSAValue, layout: Layout, before: PopartOp) -> SSAValue:
        """Packs a planar value into a layout, once for each layout."""
        known = self.versions.get((value, layout))
        if known is not None:
            return known
        if layout == PLANAR:
            return value
        pack = PackOp(value, layout=LayoutAttr(layout))
        pack.location = before.location
        owner = value.owner
        if isinstance(owner, Block):
            first = owner.first_op
            assert first is not None
            owner.insert_op_before(pack, first)
        else:
            block = owner.parent_block()
            assert block is not None
            block.insert_op_after(pack, owner)
        self.versions[value, layout] = pack.y
        return pack.y

    def _replace(self, old: SSAValue, new: SSAValue, layout: Layout, made: KernelOp, op: PopartOp) -> None:
        """Replaces a result. Readers of the kernel's own layout take it from `versions`; for others it is unpacked
        once.
        """
        new.name_hint = old.name_hint
        if layout == PLANAR:
            old.replace_all_uses_with(new)
            return
        shape = shape_of(old.type)
        unpack = UnpackOp(new, layout=LayoutAttr(layout), extent=shape[layout.dim])
        unpack.location = op.location
        block = made.parent_block()
        assert block is not None
        block.insert_op_after(unpack, made)
        old.replace_all_uses_with(unpack.y)
        self.versions[unpack.y, layout] = new
        self.unpacked.append(unpack)

    def _reason(self, op: PopartOp, choice: Choice) -> str:
        others = sorted((c.cost, f"{c.name} {c.config}") for c in self.candidates[op].choices if c is not choice)
        said = [f"{choice.cost:g} cycles in {choice.config}", *(f"{name} {cost:g}" for cost, name in others)]
        return "; ".join([*said, *(f"{name}: {reason}" for name, reason in self.candidates[op].refusals.items())])


def _forced(texts: Sequence[str]) -> Iterator[tuple[str, str]]:
    for text in texts:
        op, colon, kernel = text.rpartition(":")
        if not colon or not op or not kernel:
            raise PopulusError(f"force = '{text}'; expected OP:KERNEL, such as conv:direct")
        yield op, kernel


def described(ctx: Context, module: ModuleOp, target: str | None) -> Iterator[str]:
    """Describes each configuration of each op that has kernels: layouts, key, cycles; or why a kernel is not
    eligible.
    """
    for op in module.walk():
        if not isinstance(op, PopartOp) or isinstance(op, KernelOp) or len(kernels_of(ctx, type(op))) < 2:
            continue
        try:
            possible = candidates(ctx, op, target)
        except PopulusError as error:
            yield str(error)
            continue
        for choice in possible.choices:
            kernel = choice.known.kernel
            yield f"{where(op)}: {op.name} {choice.name} {choice.config} {kernel.key(op, choice.config, target)}: {choice.cost:g} cycles"
        yield from (f"{where(op)}: {op.name} {name}: not eligible: {reason}" for name, reason in possible.refusals.items())


def report(module: ModuleOp) -> list[str]:
    """Describes the choice: a line for each op in a kernel with the reason, and one for each reorder."""
    lines: list[str] = []
    for op in module.walk():
        if isinstance(op, KernelOp):
            lines.append(f"{where(op)}: {op.inner.name}: {op.kernel.data}: {op.reason.data}")
        elif isinstance(op, PackOp | UnpackOp):
            layout = op.layout.data
            lines.append(f"{where(op)}: reorder {'into' if isinstance(op, PackOp) else 'out of'} {layout} of {op.x.type}")
    return lines
