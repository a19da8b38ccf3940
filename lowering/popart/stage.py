"""Stages of a model that runs (`popart-stage`): the program of one chip of a pipeline, without gradients."""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.builder import Builder
from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp, i32
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Operation, SSAValue
from xdsl.passes import ModulePass
from xdsl.rewriter import InsertPoint

from populus.dialects import gcl
from populus.dialects.base.control_flow import read_by
from populus.dialects.popart import calls
from populus.dialects.poplar.target import HOST
from populus.dialects.signature import input_names, main_of, output_names, replace_results, return_of, state_names
from populus.dialects.support.dead_code import erase_dead
from populus.dialects.support.diagnostics import PopulusError
from populus.lowering.popart.free import free_of
from populus.lowering.popart.pipeline import balanced, work_of
from populus.lowering.popart.splits import PRODUCTS
from populus.lowering.popart.training_names import SENT


@dataclass(frozen=True)
class PopartStagePass(ModulePass):
    """Makes `@main` the program of one stage of a pipeline: the ops between two cuts, with the constants that they read.

    Cuts are before products and convolutions by weights, so that the most cycles of a stage are as few as can be, by
    the matrix units and data path of the preset of `target`. A value that another stage reads is sent by `gcl.send`, whose last
    token is the result `Sent`. Inputs and results are those that the stage reads and makes.

    `chips`: the chips of each stage, as many as `popart-tensor-parallel` has parts: stage s has the replicas from
    `s chips` on. Raises PopulusError for more stages than products by weights. Bit for bit.
    """

    name = "popart-stage"

    stages: int = 1
    stage: int = 0
    chips: int = 1
    target: str | None = None

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        if not 0 <= self.stage < self.stages or self.chips < 1:
            raise PopulusError(f"stage = {self.stage} of stages = {self.stages}, chips = {self.chips}; there is no such stage")
        if self.stages > 1:
            self._keep(main_of(op))

    def _keep(self, function: FuncOp) -> None:
        """Leaves the ops of the stage in a function."""
        ops = [op for op in function.body.block.ops if not isinstance(op, ReturnOp)]
        free = free_of(ops)
        stage = self._stages([op for op in ops if op not in free], free)
        results = dict(zip(output_names(function), return_of(function).operands))
        b = Builder(InsertPoint.at_start(function.body.block))
        token = calls.fill(b, 0, i32)
        moved: dict[tuple[SSAValue, int], int] = {}
        for op in stage:
            for v in read_by(op):
                if isinstance(v.owner, Operation) and v.owner in stage and stage[v.owner] != stage[op]:
                    moved.setdefault((v, stage[op]), len(moved) + 1)
        for (v, to), tag in moved.items():
            assert isinstance(v.owner, Operation), v
            offset = (to - stage[v.owner]) * self.chips
            if to == self.stage:
                b = Builder(InsertPoint.after(v.owner))
                got = b.insert(gcl.ReceiveOp(token, offset=-offset, tag=tag, shape=calls.shape(v), element=calls.element(v)))
                got.location = v.owner.location
                v.replace_uses_with_if(got.y, lambda use: stage.get(_outermost(use.operation, function)) == self.stage)
            elif stage[v.owner] == self.stage:
                b = Builder(InsertPoint.before(return_of(function)))
                sent = b.insert(gcl.SendOp(v, token, offset=offset, tag=tag))
                sent.location, token = v.owner.location, sent.y
        mine = {name: v for name, v in results.items() if self._of(v, stage) == self.stage}
        replace_results(function, {**mine, SENT: token} if isinstance(token.owner, gcl.SendOp) else mine)
        erase_dead(function.body.block)
        self._drop_arguments(function)

    def _stages(self, ops: list[Operation], free: set[Operation]) -> dict[Operation, int]:
        """Assigns ops to stages."""
        layers = [i for i, op in enumerate(ops) if isinstance(op, PRODUCTS) and any(v.owner in free for v in op.operands)]
        if self.stages > len(layers):
            raise PopulusError(f"{self.stages} stages are more than the model's {len(layers)} products and convolutions by weights")
        work = work_of((self.target or HOST.name).partition(",")[0])  # other numbers of a machine do not move the cuts
        starts = balanced([work(op) for op in ops], layers[1:], self.stages)
        return {op: sum(i >= begin for begin in starts) for i, op in enumerate(ops)}

    @staticmethod
    def _of(v: SSAValue, stage: dict[Operation, int]) -> int:
        """Gives the stage that has a result; the first one an input or a constant."""
        return stage.get(v.owner, 0) if isinstance(v.owner, Operation) else 0

    @staticmethod
    def _drop_arguments(function: FuncOp) -> None:
        block, names = function.body.block, input_names(function)
        kept = [name for name, argument in zip(names, block.args) if argument.first_use is not None]
        for argument in [a for a in block.args if a.first_use is None]:
            block.erase_arg(argument)
        state_names(function, inputs=kept)
        function.attributes.pop("dim_names", None)
        function.update_function_type()


def _outermost(op: Operation, function: FuncOp) -> Operation:
    """Gives the op of a function's own block that an op is in."""
    while op.parent is not function.body.block:
        parent = op.parent_op()
        assert parent is not None, op.name
        op = parent
    return op
