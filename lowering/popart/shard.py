"""Sharded optimizers (`popart-shard`): each replica updates a part of each weight, and keeps that part's states."""

from __future__ import annotations

import math
from dataclasses import dataclass

from xdsl.builder import Builder
from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import BlockArgument, Operation, SSAValue
from xdsl.passes import ModulePass
from xdsl.rewriter import InsertPoint, Rewriter

from populus.dialects import gcl, popart
from populus.dialects.popart import calls, train
from populus.dialects.popops import MapOp
from populus.dialects.signature import input_names, main_of, output_names, return_of
from populus.dialects.support.dead_code import erase_dead
from populus.dialects.support.diagnostics import PopulusError, named
from populus.dialects.support.element_types import element_type_of, tensor
from populus.lowering.popart.optimize import OPTIMIZERS
from populus.lowering.popart.replicate import check_group
from populus.lowering.popart.training_names import rows_name, updated_name


@dataclass(frozen=True)
class PopartShardPass(ModulePass):
    """Cuts the update of each weight over a group of replicas: reduce-scatter, update of a part, all-gather.

    A weight of `least` elements or more is flat, with zeros after its end, and each of the `replicas` members, which
    are `stride` apart, has an equal part. Inputs and results `State___w___..` of the weight's shape become such
    parts. The gradient's all-reduce becomes a reduce-scatter, unless something else reads the whole gradient, such as
    the norm of all gradients. With `weights`, the inputs w and the results `Updated___w` are parts too, and each op
    that reads w gathers it.

    The arithmetic of an element stays as it was, so results have the same bits. Raises PopulusError for an optimizer
    that reads whole weights, for gradients of rows, and if nothing is updated. Bit for bit.
    """

    name = "popart-shard"

    replicas: int = 1
    stride: int = 1
    least: int = 2
    weights: bool = False

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        check_group(self.replicas, self.stride)
        function = main_of(op)
        updates = [inner for inner in function.body.block.ops if isinstance(inner, train.OptimizerOp)]
        if not updates:
            raise PopulusError("no weight is updated; popart-optimize comes before this pass")
        whole = {o.op: name for name, o in OPTIMIZERS.items() if o.of_whole}
        if found := next((u for u in updates if type(u) in whole), None):
            raise PopulusError(f"{whole[type(found)]} scales by the norm of a whole weight, so no replica can update a part; use adamw")
        if rows := [n for n in input_names(function) if rows_name(n) in output_names(function)]:
            raise PopulusError(f"the gradient of '{rows[0]}' is of rows, which are not cut over replicas; leave it dense")
        if self.replicas == 1:
            return
        names: dict[SSAValue, str] = dict(zip(function.body.block.args, input_names(function)))
        cuts: list[_Cut] = []
        for update in updates:
            weight = update.operands[0]
            if weight not in names:
                raise PopulusError("a weight that is updated by rows is not cut over replicas; leave its gradient dense")
            if math.prod(calls.shape(weight)) >= self.least:
                cuts.append(_Cut(self, function, update, names[weight]))
                cuts[-1].apply()
        for cut in cuts:
            cut.finish()
        erase_dead(function.body.block)
        function.update_function_type()


class _Cut:
    """The cut of one weight's update."""

    def __init__(self, options: PopartShardPass, function: FuncOp, update: train.OptimizerOp, name: str):
        self.options, self.function, self.update, self.name = options, function, update, name
        self.weight, self.shape = update.operands[0], calls.shape(update.operands[0])
        self.size = options.replicas
        self.elements = math.prod(self.shape)
        self.share = -(-self.elements // self.size)
        self.b = Builder(InsertPoint.before(update))
        self.parts: dict[SSAValue, SSAValue] = {}
        self.gathered: dict[int, SSAValue] = {}  # by number of the result

    def apply(self) -> None:
        """Replaces the update by one of a part."""
        readers = [use.operation for use in self.weight.uses]
        for state in self.update.operands[2 : 2 + len(self.update.STATE)]:
            if calls.shape(state) == self.shape:
                self._narrow(state)
        mine = self.weight
        if self.options.weights:
            self._narrow(mine)
            self._gather_where_read(mine, readers)
        operands = [self._part(v) if calls.shape(v) == self.shape else v for v in self.update.operands]
        made = self.b.insert(type(self.update)(*operands, **self.update.properties))
        made.location = self.update.location
        for old, new in zip(list(self.update.results), made.results):
            self._follow(old, new)
        self.update.detach()
        self.update.erase()

    def finish(self) -> None:
        """Makes new weights whole. All weights are gathered before, so that a bucket can take several."""
        last = return_of(self.function)
        for i, all in self.gathered.items():
            last.operands[i] = self._joined(Builder(InsertPoint.before(last)), all)

    def _narrow(self, argument: SSAValue) -> None:
        """Makes an argument a part."""
        assert isinstance(argument, BlockArgument), argument
        part = Rewriter.replace_value_with_new_type(argument, tensor((self.share,), element_type_of(argument.type)))
        self.parts[part] = part
        if argument is self.weight:
            self.weight = part

    def _gather_where_read(self, part: SSAValue, readers: list[Operation]) -> None:
        """Lets each reader of the weight but its update gather it."""
        part = self.weight
        updating = {self.update, *(use.operation for r in self.update.results for use in r.uses)}
        for reader in dict.fromkeys(readers):
            if reader not in updating and not isinstance(reader, ReturnOp):
                b = Builder(InsertPoint.before(reader))
                whole = self._joined(b, self._gathered(b, part))
                for i, operand in enumerate(reader.operands):
                    if operand is part:
                        reader.operands[i] = whole

    def _gathered(self, b: Builder, part: SSAValue) -> SSAValue:
        """Builds the parts of all members."""
        all = b.insert(popart.AllGatherOp(part, size=self.size, stride=self.options.stride))
        all.location = named(self.name)
        return all.y

    def _joined(self, b: Builder, all: SSAValue) -> SSAValue:
        """Builds a whole from its parts."""
        flat = calls.reshape(b, all, (self.size * self.share,))
        return calls.reshape(b, calls.slice(b, flat, [0], [self.elements]), self.shape)

    def _part(self, x: SSAValue) -> SSAValue:
        """Builds this replica's part of a value of the weight's shape, as early as nobody needs the whole."""
        if x in self.parts:
            return self.parts[x]
        owner = x.owner
        readers = {use.operation for use in x.uses}
        alone = len(readers) == 1
        if alone and isinstance(owner, popart.AllReduceOp) and (owner.size, owner.stride) == (self.size, self.options.stride):
            self.parts[x] = self._scattered(Builder(InsertPoint.before(owner)), owner.x, owner.reduction)
        elif alone and isinstance(owner, MapOp) and all(calls.shape(o) in ((), self.shape) for o in owner.operands):
            operands = [self._part(o) if calls.shape(o) == self.shape else o for o in owner.operands]
            self.parts[x] = calls.map(Builder(InsertPoint.before(self.update)), owner.expr.data, *operands)
        else:
            self.parts[x] = self._scattered(self.b, x, gcl.LOCAL)
        return self.parts[x]

    def _scattered(self, b: Builder, x: SSAValue, reduction: str) -> SSAValue:
        flat = calls.reshape(b, x, (self.elements,))
        flat = calls.pad(b, flat, (0,), (self.size * self.share - self.elements,))
        made = b.insert(popart.ReduceScatterOp(flat, reduction=reduction, size=self.size, stride=self.options.stride))
        made.location = named(self.name)
        return made.y

    def _follow(self, old: SSAValue, new: SSAValue) -> None:
        """Replaces a result of the update by its part: in maps that choose between it and the value before, and among the results."""
        if calls.shape(old) != self.shape:  # a count of steps
            old.replace_all_uses_with(new)
            return
        results = dict(zip(return_of(self.function).operands, output_names(self.function)))
        for use in list(old.uses):
            match use.operation:
                case MapOp() as chosen:
                    operands = [new if o is old else self._part(o) if calls.shape(o) == self.shape else o for o in chosen.operands]
                    self._follow(chosen.results[0], calls.map(Builder(InsertPoint.before(chosen)), chosen.expr.data, *operands))
                    chosen.detach()
                    chosen.erase()
                case ReturnOp() as last:
                    keep = results[old] != updated_name(self.name) or self.options.weights
                    if not keep:
                        new = self.gathered[use.index] = self._gathered(Builder(InsertPoint.before(last)), new)
                    last.operands[use.index] = new
                case other:
                    raise AssertionError(other)
