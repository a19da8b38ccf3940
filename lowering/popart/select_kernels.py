"""Which kernel computes each op: chosen for the whole program, so that as little as possible is reordered between them."""

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
from populus.dialects.popart.kernel import OWN, Config, KernelOp, Known, any_kernels, kernels_of
from populus.dialects.popart.layout import PLANAR, Layout, LayoutAttr, PackOp, UnpackOp
from populus.dialects.support.diagnostics import PopulusError, did_you_mean, where
from populus.dialects.support.element_types import element_type_of, is_float, shape_of
from populus.lowering.poplar.plan.choices import WIDEST, Table, least

REORDER = 1.0  # cycles for an element to be read and written elsewhere


@dataclass(frozen=True)
class PopartSelectKernelsPass(ModulePass):
    """Ops that have kernels are put into the one that is chosen; values are packed and unpacked where layouts meet that differ.

    Chosen is what makes the kernels' costs and those of the reorders between them least, over the whole program; exactly, unless the
    choices of more than 12 ops meet at once. A kernel may veto its choice, then the next best is taken. The op says why
    it is computed as it is. `force`: `op:kernel`, what to take whatever it costs.
    Raises PopulusError where no kernel is left, with each kernel's reason, and for a forced one that there is not or that refuses.
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
    """A kernel in one of its configurations. `cost`: cycles."""

    known: Known
    config: Config
    cost: float

    @property
    def name(self) -> str:
        return self.known.kernel.name


@dataclass
class Candidates:
    """What may compute one op, and why others may not."""

    op: PopartOp
    choices: list[Choice]
    refusals: dict[str, str] = field(default_factory=dict[str, str])


def candidates(ctx: Context, op: PopartOp, target: str | None, forced: str | None = None) -> Candidates:
    """The kernels of an op. Raises PopulusError for a forced kernel that there is not, or that refuses."""
    found = Candidates(op, [])
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
            found.refusals[k.kernel.name] = reason
            continue
        for config in k.kernel.configs(op):
            ends = (*zip(config.inputs, op.operands), *zip(config.outputs, op.results))
            if len(config.inputs) != len(op.operands) or len(config.outputs) != len(op.results):
                found.refusals[k.kernel.name] = f"its configuration {config} is not for {len(op.operands)} operands"
            elif unfit := [layout for layout, v in ends if not layout.fits(shape_of(v.type))]:
                found.refusals[k.kernel.name] = f"{unfit[0]} has no dimension {unfit[0].dim}"
            elif any(layout.block and not is_float(element_type_of(v.type)) for layout, v in ends):
                found.refusals[k.kernel.name] = "only floats are in blocks"
            else:
                found.choices.append(Choice(k, config, config.cost * elements))
    if not found.choices:
        raise PopulusError(f"{where(op)}: no kernel computes {op.name}: {_reasons(found.refusals)}")
    return found


def put(op: PopartOp, choice: Choice) -> None:
    """Replaces one op by the kernel of a choice, with reorders around it; nothing else of its block is chosen."""
    block = op.parent_block()
    assert block is not None, op
    _Rewrite({op: choice}, {op: Candidates(op, [choice])}).apply(block)


def _reasons(refusals: Mapping[str, str]) -> str:
    return "; ".join(f"{name}: {reason}" for name, reason in refusals.items())


class Selection:
    """The choices of one function."""

    def __init__(self, ctx: Context, block: Block, target: str | None, forced: Mapping[str, str]):
        self.block, self.target = block, target
        self.found: dict[PopartOp, Candidates] = {}
        for op in block.ops:
            if isinstance(op, PopartOp) and not isinstance(op, KernelOp):
                name = forced.get(op.name, forced.get(op.name.partition(".")[2]))
                if name is not None or len(kernels_of(ctx, type(op))) > 1:
                    self.found[op] = candidates(ctx, op, target, name)

    def apply(self) -> None:
        """Chooses, asks each kernel, and puts the ops into their kernels."""
        while True:
            chosen = self.best()
            for op, choice in chosen.items():
                veto = choice.known.kernel.init(op, choice.config)
                if veto is not None:
                    of = self.found[op]
                    of.choices.remove(choice)
                    of.refusals[choice.name] = f"vetoed: {veto}"
                    if not of.choices:
                        raise PopulusError(f"{where(op)}: no kernel computes {op.name}: {_reasons(of.refusals)}")
                    break
            else:
                break
        _Rewrite(chosen, self.found).apply(self.block)

    def best(self) -> dict[PopartOp, Choice]:
        """The choices that together cost least."""
        ops = list(self.found)
        number = {op: i for i, op in enumerate(ops)}

        def chosen(of: Sequence[int], picks: Sequence[int]) -> dict[PopartOp, Choice]:
            return {ops[i]: self.found[ops[i]].choices[p] for i, p in zip(of, picks)}

        tables = [Table((i,), lambda picks, i=i: self.found[ops[i]].choices[picks[0]].cost) for i in range(len(ops))]
        for value in self._values:
            maker = [number[value.owner]] if isinstance(value.owner, PopartOp) and value.owner in number else []
            users = [u.operation for u in value.uses]
            readers = list(dict.fromkeys(number[op] for op in users if isinstance(op, PopartOp) and op in number))
            around = tuple(dict.fromkeys([*maker, *readers]))
            # Of a value that very many read, each reader is asked apart: then a reorder that several share counts for each.
            for of in [around] if len(around) <= WIDEST else [tuple(dict.fromkeys([*maker, r])) for r in readers]:
                tables.append(Table(of, lambda picks, of=of, value=value: self._reorders(value, chosen(of, picks))))
        picks = least([len(self.found[op].choices) for op in ops], tables)
        return chosen(range(len(ops)), picks)

    @cached_property
    def _values(self) -> list[SSAValue]:
        found = dict.fromkeys(v for op in self.found for v in (*op.operands, *op.results))
        return list(found)

    def _reorders(self, value: SSAValue, chosen: Mapping[PopartOp, Choice]) -> float:
        """What it costs to have a value in every layout that the chosen read it in, from that in which it is made."""
        made = PLANAR
        if isinstance(value, OpResult) and isinstance(value.op, PopartOp) and value.op in chosen:
            made = chosen[value.op].config.outputs[value.index]
        wanted: set[Layout] = set()
        for use in value.uses:
            op = use.operation
            if isinstance(op, PopartOp) and op in chosen:
                wanted.add(chosen[op].config.inputs[use.index])
            elif not (isinstance(op, PopartOp) and op in self.found):
                wanted.add(PLANAR)
        return len(wanted - {made}) * REORDER * prod(shape_of(value.type))


class _Rewrite:
    """Ops into kernels, reorders between them."""

    def __init__(self, chosen: Mapping[PopartOp, Choice], found: Mapping[PopartOp, Candidates]):
        self.chosen, self.found = chosen, found
        self.versions: dict[tuple[SSAValue, Layout], SSAValue] = {}
        self.unpacked: list[UnpackOp] = []

    def apply(self, block: Block) -> None:
        for op in list(block.ops):
            choice = self.chosen.get(op) if isinstance(op, PopartOp) else None
            if choice is None or not isinstance(op, PopartOp) or choice.name == OWN:
                continue
            operands = [self._in(v, layout, op) for v, layout in zip(op.operands, choice.config.inputs)]
            made = KernelOp.of(op, choice.name, choice.config, operands, self._reason(op, choice))
            block.insert_op_before(made, op)
            for old, new, layout in zip(op.results, made.results, choice.config.outputs):
                self._replace(old, new, layout, made, op)
            op.detach()
            op.erase()
        for unpack in self.unpacked:
            if not unpack.y.uses:
                unpack.detach()
                unpack.erase()

    def _in(self, value: SSAValue, layout: Layout, before: PopartOp) -> SSAValue:
        """A planar value in a layout, made once."""
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
        """Readers that want the kernel's own layout get it from `versions`; for the others it is unpacked, once."""
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
        others = sorted((c.cost, f"{c.name} {c.config}") for c in self.found[op].choices if c is not choice)
        said = [f"{choice.cost:g} cycles in {choice.config}", *(f"{name} {cost:g}" for cost, name in others)]
        return "; ".join([*said, *(f"{name}: {reason}" for name, reason in self.found[op].refusals.items())])


def _forced(texts: Sequence[str]) -> Iterator[tuple[str, str]]:
    for text in texts:
        op, colon, kernel = text.rpartition(":")
        if not colon or not op or not kernel:
            raise PopulusError(f"force = '{text}'; expected OP:KERNEL, such as conv:direct")
        yield op, kernel


def described(ctx: Context, module: ModuleOp, target: str | None) -> Iterator[str]:
    """A line for each configuration of each op that has kernels: layouts, key, cycles; or why a kernel is not eligible."""
    for op in module.walk():
        if not isinstance(op, PopartOp) or isinstance(op, KernelOp) or len(kernels_of(ctx, type(op))) < 2:
            continue
        try:
            found = candidates(ctx, op, target)
        except PopulusError as error:
            yield str(error)
            continue
        for choice in found.choices:
            kernel = choice.known.kernel
            yield f"{where(op)}: {op.name} {choice.name} {choice.config} {kernel.key(op, choice.config, target)}: {choice.cost:g} cycles"
        yield from (f"{where(op)}: {op.name} {name}: not eligible: {reason}" for name, reason in found.refusals.items())


def report(module: ModuleOp) -> list[str]:
    """What was chosen: a line for each op in a kernel with the reason, and one for each reorder."""
    lines: list[str] = []
    for op in module.walk():
        if isinstance(op, KernelOp):
            lines.append(f"{where(op)}: {op.inner.name}: {op.kernel.data}: {op.reason.data}")
        elif isinstance(op, PackOp | UnpackOp):
            layout = op.layout.data
            lines.append(f"{where(op)}: reorder {'into' if isinstance(op, PackOp) else 'out of'} {layout} of {op.x.type}")
    return lines
