"""Pipelines (`popart-pipeline`): the program of one stage of a model, which micro-batches pass through."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from xdsl.builder import Builder
from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp, i32
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import BlockArgument, Operation, SSAValue
from xdsl.passes import ModulePass
from xdsl.rewriter import InsertPoint, Rewriter

from populus.dialects import gcl, popart, poplin
from populus.dialects.base.control_flow import read_by
from populus.dialects.expr import Arg, cast
from populus.dialects.popart import calls
from populus.dialects.popart.optimizer import wide
from populus.dialects.poplar.target import Spec
from populus.dialects.signature import input_names, main_of, output_names, replace_results, return_of, state_names
from populus.dialects.support.diagnostics import PopulusError, did_you_mean, locate, named, where
from populus.dialects.support.element_types import tensor
from populus.lowering.popart.free import free_of
from populus.lowering.popart.loss import LOSS
from populus.lowering.popart.training_names import SENT, gradient_name, rows_name, scalar_name, updated_name


@dataclass(frozen=True)
class PopartPipelinePass(ModulePass):
    """Makes `@main`, a model with its loss and gradients, the program of one of its stages for several micro-batches.

    Replicas come in groups of `stages`: member s runs stage s, which has the ops between two cuts, and only its own
    weights. `micro_batches`: the parts of a batch; inputs of data become as many times as large. A stage runs them in
    the order 1F1B: as many forward parts as there are stages after it, then a forward and a backward one by turns,
    then the rest. Values that another stage reads are sent and received by `gcl.send` and `gcl.receive`; the chain of
    the ops' last operand keeps their order, and ends in the result `Sent`.

    `cuts`: the nodes after which a stage ends; without them, cuts are before ops with weights, so that the most
    cycles of a stage are as few as can be, by the matrix units and data path of `target`. The result `loss` is the
    mean over micro-batches, on all stages, and so is each `Gradient___w` of a weight of this stage.

    Raises PopulusError for more stages than layers, a cut that is no node, a weight that two stages read, gradients
    of rows, and a module without loss.
    """

    name = "popart-pipeline"

    stages: int = 1
    stage: int = 0
    micro_batches: int = 1
    cuts: tuple[str, ...] = ()
    target: str | None = None

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        if self.stages < 1 or self.micro_batches < 1 or not 0 <= self.stage < self.stages:
            raise PopulusError(f"stages = {self.stages}, stage = {self.stage}, micro_batches = {self.micro_batches}; no such stage")
        function = main_of(op)
        if LOSS not in output_names(function):
            raise PopulusError("the module has no result 'loss'; popart-loss and popart-autodiff come before this pass")
        if rows := [n for n in input_names(function) if rows_name(n) in output_names(function)]:
            raise PopulusError(f"the gradient of '{rows[0]}' is of rows, which stages do not sum; leave it dense")
        _Stage(self, function, Cut(self, function)).build()


class Cut:
    """The stage of each op and each weight. All stages' programs find the same."""

    def __init__(self, options: PopartPipelinePass, function: FuncOp):
        self.stages = options.stages
        self.names: dict[SSAValue, str] = dict(zip(function.body.block.args, input_names(function)))
        results = dict(zip(output_names(function), return_of(function).operands))
        self.weights = {a: n for a, n in self.names.items() if gradient_name(n) in results}
        self.statistics = {a: n for a, n in self.names.items() if updated_name(n) in results}
        self.loss = results[LOSS]
        assert isinstance(self.loss.owner, Operation), self.loss
        ops = [op for op in function.body.block.ops if not isinstance(op, ReturnOp)]
        self.free = free_of(ops)  # constants and what follows from them alone: each stage has its own
        paid = [op for op in ops if op not in self.free]
        last = paid.index(self.loss.owner)
        self.forward, self.backward = paid[: last + 1], paid[last + 1 :]
        self.stage: dict[Operation, int] = self._cut(options)
        self._place_backward()
        self.owner: dict[SSAValue, int] = {}
        for argument in (*self.weights, *self.statistics):
            read = sorted({self.stage[u.operation] for u in argument.uses if u.operation in self.stage and u.operation in self.forward})
            if len(read) > 1:
                raise PopulusError(f"'{self.names[argument]}' is read by stages {read[0]} and {read[-1]}; cut so that one stage reads it")
            self.owner[argument] = read[0] if read else 0
        wanted: dict[tuple[SSAValue, int], None] = {}
        for op in (*self.forward, *self.backward):
            for v in read_by(op):
                if isinstance(v.owner, Operation) and v.owner in self.stage and self.stage[v.owner] != self.stage[op]:
                    wanted[v, self.stage[op]] = None
        for argument, name in self.weights.items():
            g = results[gradient_name(name)]
            if isinstance(g.owner, Operation) and self.stage.get(g.owner, self.owner[argument]) != self.owner[argument]:
                wanted[g, self.owner[argument]] = None
        self.moved = {pair: n for n, pair in enumerate(wanted)}  # values that another stage reads, numbered

    def _cut(self, options: PopartPipelinePass) -> dict[Operation, int]:
        """Assigns forward ops to stages."""
        layers = [i for i, op in enumerate(self.forward) if any(v in self.weights and len(calls.shape(v)) > 1 for v in read_by(op))]
        if options.cuts:
            starts = self._named(options.cuts)
            if len(starts) != self.stages - 1:
                raise PopulusError(f"{len(starts)} cuts make {len(starts) + 1} stages; {self.stages} are asked for")
        else:
            if self.stages > len(layers):
                raise PopulusError(f"{self.stages} stages are more than the model's {len(layers)} layers (ops with a matrix of weights)")
            work = work_of(options.target)
            starts = balanced([work(op) for op in self.forward], layers[1:], self.stages)
        return {op: sum(i >= begin for begin in starts) for i, op in enumerate(self.forward)}

    def _named(self, cuts: Sequence[str]) -> list[int]:
        places = [where(op).strip("'") for op in self.forward]
        if strange := [c for c in cuts if c not in places]:
            raise PopulusError(f"there is no node '{strange[0]}' to cut after{did_you_mean(strange[0], places)}")
        return sorted(len(places) - places[::-1].index(c) for c in cuts)

    def _place_backward(self) -> None:
        """Assigns backward ops: to the last stage that has what they read, at or before those that give their gradients."""
        forward = set(self.forward)
        has: dict[SSAValue, set[int]] = {}  # stages that compute a forward value, or receive it for their forward part
        for op in self.forward:
            for v in (*op.results, *read_by(op)):
                has.setdefault(v, set()).add(self.stage[op])
        for op in self.backward:
            read = [v for v in read_by(op) if not isinstance(v.owner, Operation) or v.owner not in self.free]
            made = [v for v in read if isinstance(v.owner, Operation) and v.owner in forward]
            given = [v for v in read if isinstance(v, BlockArgument) and v in has]
            gradients = [v.owner for v in read if isinstance(v.owner, Operation) and v.owner not in forward]
            top = min((self.stage[owner] for owner in gradients), default=self.stages - 1)
            least = max((self.stage[v.owner] for v in made if isinstance(v.owner, Operation)), default=0)
            everywhere = [s for s in range(least, top + 1) if all(s in has[v] for v in (*made, *given))]
            self.stage[op] = max(everywhere, default=min(least, top))


def work_of(target: str | None) -> Callable[[Operation], float]:
    """Gives the predicted cycles of an op on one tile: products by the matrix unit, all else by the data path."""
    machine = Spec.of(target or "host").target()

    def cycles(op: Operation) -> float:
        shapes = [calls.shape(v) for v in op.operands]
        made = sum(math.prod(calls.shape(r)) for r in op.results)
        match op:
            case popart.MatMulOp() | poplin.MatMulOp():
                return made * shapes[0][-1] / machine.macs_per_cycle(calls.element(op.operands[0]))
            case popart.GemmOp():
                return made * shapes[0][0 if op.trans_a else 1] / machine.macs_per_cycle(calls.element(op.operands[0]))
            case popart.ConvOp():
                return made * math.prod(shapes[1][1:]) / machine.macs_per_cycle(calls.element(op.operands[0]))
            case _:
                return sum(map(math.prod, shapes)) / machine.vector_width(calls.element(op.results[0])) if shapes else 0

    return cycles


def balanced(work: Sequence[float], starts: Sequence[int], parts: int) -> list[int]:
    """Chooses `parts - 1` of these starts so that the largest sum of work between two is least; the earliest such."""
    ends = [0, *starts, len(work)]
    sums = [sum(work[a:b]) for a, b in pairwise(ends)]  # of the stretches between possible cuts
    best: list[tuple[float, list[int]]] = [(sum(sums[: n + 1]), []) for n in range(len(sums))]
    for _ in range(parts - 1):
        best = [
            min(((max(best[c][0], sum(sums[c + 1 : n + 1])), [*best[c][1], c + 1]) for c in range(n)), default=(math.inf, list[int]()))
            for n in range(len(sums))
        ]
    return [ends[c] for c in best[-1][1]]


def order(stage: int, stages: int, micro_batches: int) -> Iterator[tuple[str, int]]:
    """Yields the parts of a stage's program in the order 1F1B. Source: PipeDream-Flush (Narayanan et al., 2020)."""
    ahead = min(stages - 1 - stage, micro_batches)
    for m in range(ahead):
        yield "forward", m
    for m in range(micro_batches - ahead):
        yield "forward", m + ahead
        yield "backward", m
    for m in range(micro_batches - ahead, micro_batches):
        yield "backward", m


class _Stage:
    """The program of one stage under construction, at the end of `@main`; what was there is erased."""

    def __init__(self, options: PopartPipelinePass, function: FuncOp, cut: Cut):
        self.options, self.function, self.cut, self.me = options, function, cut, options.stage
        self.results = dict(zip(output_names(function), return_of(function).operands))
        self.b = Builder(InsertPoint.before(return_of(function)))
        self.same: dict[SSAValue, SSAValue] = {}  # what all micro-batches share: weights, constants, running statistics
        self.each: list[dict[SSAValue, SSAValue]] = [{} for _ in range(options.micro_batches)]
        self.token = calls.fill(self.b, 0, i32)
        self.old = [op for op in function.body.block.ops if not isinstance(op, ReturnOp) and op is not self.token.owner]

    def build(self) -> None:
        """Builds the program in the place of the old one."""
        data = [a for a in self.cut.names if a not in self.cut.owner and not self.cut.names[a].startswith(scalar_name(""))]
        self._deal(data)
        for argument in self.cut.names:
            if argument not in data:
                self.same[argument] = argument
        for part, m in order(self.me, self.options.stages, self.options.micro_batches):
            self._part(self.cut.forward if part == "forward" else self.cut.backward, m)
            if part == "forward":
                for argument, name in self.cut.statistics.items():
                    if self.cut.owner[argument] == self.me:  # the next micro-batch goes on from them
                        self.same[argument] = self._now(self.results[updated_name(name)], m)
        self._finish()

    def _deal(self, data: Sequence[SSAValue]) -> None:
        """Makes inputs of data as many times as large, and cuts them into micro-batches."""
        count = self.options.micro_batches
        for old in data:
            shape = calls.shape(old)
            if not shape:
                self.same[old] = old
                continue
            whole = Rewriter.replace_value_with_new_type(old, tensor((count * shape[0], *shape[1:]), calls.element(old)))
            self.cut.names[whole] = self.cut.names.pop(old)
            for m, values in enumerate(self.each):
                values[whole] = calls.slice_dim(self.b, whole, 0, m * shape[0], (m + 1) * shape[0])

    def _now(self, v: SSAValue, m: int) -> SSAValue:
        """Gives a value of a micro-batch in this program: received from another stage, if that is where it is made."""
        if v in self.same or v in self.each[m]:
            return self.each[m].get(v, self.same.get(v, v))
        owner = v.owner
        assert isinstance(owner, Operation), v
        if owner in self.cut.free:
            for made in self._clone(owner, m):
                self.same[made[0]] = made[1]
            return self.same[v]
        source = self.cut.stage[owner]
        assert source != self.me, (where(owner), m)
        number = m * len(self.cut.moved) + self.cut.moved[v, self.me] + 1
        shape, element = calls.shape(v), calls.element(v)
        got = self.b.insert(gcl.ReceiveOp(self.token, offset=source - self.me, tag=number, shape=shape, element=element))
        got.location = owner.location
        self.each[m][v] = got.y
        return got.y

    def _clone(self, op: Operation, m: int) -> list[tuple[SSAValue, SSAValue]]:
        mapped = {v: self._now(v, m) for v in read_by(op)}
        made = op.clone(mapped)
        made.location = op.location
        self.b.insert(made)
        return list(zip(op.results, made.results))

    def _part(self, ops: Sequence[Operation], m: int) -> None:
        """Builds the ops of this stage for a micro-batch, and sends what other stages read."""
        mine = [op for op in ops if self.cut.stage[op] == self.me]
        for op in mine:
            self.each[m].update(self._clone(op, m))
            for v in op.results:
                for (moved, to), number in self.cut.moved.items():
                    if moved is v:
                        tag = m * len(self.cut.moved) + number + 1
                        self.token = calls.insert(self.b, gcl.SendOp(self.each[m][v], self.token, offset=to - self.me, tag=tag))
                        locate([self.token.owner], op.location) if isinstance(self.token.owner, Operation) else None

    def _mean(self, v: SSAValue) -> SSAValue:
        """Builds the mean of a value over micro-batches, in the type that gradients are summed in."""
        element, share = wide(calls.element(v)), 1 / self.options.micro_batches
        total: SSAValue | None = None
        for m in range(self.options.micro_batches):
            part = self._now(v, m)
            inside = Arg(1) if calls.element(part) == element else cast(Arg(1), element)
            scaled = calls.map(self.b, inside * share, part)
            total = scaled if total is None else calls.map(self.b, Arg(1) + Arg(2), total, scaled)
        assert total is not None
        return total

    def _finish(self) -> None:
        """Builds the results, and erases the whole model and the arguments of other stages."""
        zero = calls.fill(self.b, 0, wide(calls.element(self.cut.loss)))
        loss = self._mean(self.cut.loss) if self.me == self.options.stages - 1 else zero
        loss = calls.reshape(self.b, loss, calls.shape(self.cut.loss))
        if self.options.stages > 1:
            loss = calls.insert(self.b, popart.AllReduceOp(loss, reduction="add", size=self.options.stages))
        new = {LOSS: loss}
        for argument, name in self.cut.weights.items():
            if self.cut.owner[argument] == self.me:
                new[gradient_name(name)] = self._mean(self.results[gradient_name(name)])
        for argument, name in self.cut.statistics.items():
            if self.cut.owner[argument] == self.me:
                new[updated_name(name)] = self.same[argument]
        locate([v.owner for v in new.values() if isinstance(v.owner, Operation)], named(LOSS))
        replace_results(self.function, {**new, SENT: self.token})
        for op in reversed(self.old):
            op.detach()
            for result in op.results:
                assert all(u.operation not in self.function.body.block.ops for u in result.uses), op
            op.drop_all_references()
            op.erase(safe_erase=False)
        self._drop_arguments()

    def _drop_arguments(self) -> None:
        block, names = self.function.body.block, self.cut.names
        for argument in list(block.args):
            if self.cut.owner.get(argument, self.me) != self.me:
                block.erase_arg(argument)
        state_names(self.function, inputs=[names[a] for a in block.args])
        self.function.attributes.pop("dim_names", None)
        self.function.update_function_type()
