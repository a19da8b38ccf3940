"""A program whose families run as machine code where there is a kernel for them, and on NumPy where not."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache, partial

import numpy as np
from xdsl.ir import Block, Operation

from populus.dialects.diagnostics import PopulusError
from populus.dialects.poplar.compute import CopyOp, ExecuteOp, FamilyOp
from populus.dialects.poplar.memory import ConstOp, StorageOp, VarOp, ViewOp, storage_of
from populus.dialects.poplar.program import FuncOp, GraphOp
from populus.dialects.poplar.types import TensorType
from populus.runtime.codelets.task import Piece, Run, Task, seen_as
from populus.runtime.engine.binding import collapsed, params_of, piece_of
from populus.runtime.engine.native.assembly import assembled
from populus.runtime.engine.native.copies import copy
from populus.runtime.engine.native.jit import library
from populus.runtime.engine.native.kernels import NATIVE
from populus.runtime.engine.native.launch import Launch
from populus.runtime.engine.native.partials import partial_sums
from populus.runtime.engine.native.products import conv, matmul
from populus.runtime.engine.native.team import team, threads_of
from populus.runtime.engine.numpy import NumpyProgram
from populus.runtime.engine.program import BlockNode, Node, Observer, StepNode
from populus.runtime.liveness import liveness


class NativeProgram(NumpyProgram):
    """A graph whose steps between two of the host's, loops and branches among them, are one native call.

    `fallbacks`: how many families of each codelet run on the NumPy kernel, for want of a native one for their types or form.
    `cpu`: as `machine.machine` takes it; `threads`: as `threads_of` does. Raises PopulusError if llvmlite is not installed.
    """

    def __init__(self, graph: GraphOp, cpu: str | None = None, threads: int | None = None):
        try:
            self.library = library(cpu)
        except ImportError:
            raise PopulusError("the native engine needs llvmlite, which is not installed; install xdsl[llvm], or use numpy") from None
        self._touching: dict[StorageOp, set[Operation]] | None = None
        self.team = team(self.library, threads_of(threads))
        super().__init__(graph)

    def load(self) -> None:
        super().load()
        self.table = assembled(self.library, self.body, self.array, self.team.size)

    def walk(self) -> None:
        self.table.run(self.team)

    def family(self, family: FamilyOp) -> list[Run]:
        launches = self.launches(family)
        if launches is not None:
            return list[Run](launches)
        codelet = family.codelet.data
        self.fallbacks[codelet] = self.fallbacks.get(codelet, 0) + 1
        return super().family(family)

    def launches(self, family: FamilyOp) -> list[Launch] | None:
        """The native kernel, bound to each box; None if there is none for the family."""
        native = NATIVE.get(family.codelet.data)
        if native is None:
            return None
        params = params_of(family.params)
        fields = [(field, self.array(value), isinstance(storage_of(value), ConstOp)) for field, value in family.connections()]
        launches: list[Launch] = []
        for box in collapsed(family).boxes():
            pieces = {field.name: piece_of(family, field, array, box, constant) for field, array, constant in fields}
            found = native(self.library, Task(params, box, pieces, self.workspace))
            if found is None:
                return None
            launches += found
        return launches

    def copy(self, op: CopyOp) -> StepNode:
        source, target = self.array(op.src), self.array(op.dst)
        launches = copy(self.library, source, target)
        return super().copy(op) if launches is None else StepNode(op, launches, [(op.dst, target)])

    def spans(self) -> dict[VarOp, tuple[int, int]]:
        """Those of the steps as stated, but that a sum's memory is there when its product begins."""
        spans, steps = super().spans(), liveness(self.graph).steps
        for i, (first, second) in enumerate(itertools.pairwise(steps)):
            if (found := partial_sums(first, second)) is not None:
                ((_, total),) = found.sum.written()
                storage = storage_of(total)
                if isinstance(storage, VarOp):
                    spans[storage] = min(i, spans[storage][0]), spans[storage][1]
        return spans

    def sums(self, first: Operation, second: Operation) -> list[Launch] | None:
        """A product in slices of k and the sum of its slices as one product, which keeps partial results in registers.

        The arithmetic is the same. None where the two steps are not that, or where the sum's memory is still read by the product.
        """
        found = partial_sums(first, second)
        if found is None or self._users(found.partials) != {found.product, found.sum}:
            return None
        family = found.product
        (out,) = family.written()
        (total,) = found.sum.written()
        y, partials = self.array(total[1]), self.array(out[1])
        target = seen_as(y, partials.shape[len(found.parts) :])
        if target is None or y.dtype != partials.dtype:
            return None
        [box] = family.space.collapse(frozenset()).boxes()
        pieces: dict[str, Piece] = {}
        for field, value in family.connections():
            if field is out[0]:
                pieces[field.name] = Piece(target, tuple(a for a in field.access if not a.part), ((0, 0),) * target.ndim)
                continue
            array = self.array(value)
            if np.may_share_memory(array, y):
                return None
            pieces[field.name] = piece_of(family, field, array, box, isinstance(storage_of(value), ConstOp))
        made = conv if family.codelet.data == "conv" else matmul
        return made(self.library, Task(params_of(family.params), box, pieces, self.workspace), found.slices())

    def _users(self, storage: StorageOp) -> set[Operation]:
        """The ops that touch a variable, through whatever views."""
        if self._touching is None:
            self._touching = {}
            for op in self.graph.walk():
                if not isinstance(op, ViewOp):
                    for operand in op.operands:
                        if isinstance(operand.type, TensorType):
                            self._touching.setdefault(storage_of(operand), set()).add(op)
        return self._touching[storage]

    def _block(self, block: Block) -> BlockNode:
        steps = [op for op in block.ops if not isinstance(op, StorageOp | ViewOp | FuncOp)]
        nodes: list[Node] = []
        while steps:
            step = steps.pop(0)
            launches = self.sums(step, steps[0]) if steps else None
            if launches is None:
                nodes += self._nodes(step)
            else:
                pair = step, steps.pop(0)
                nodes.append(_Sums(pair[1], launches, apart=cache(partial(self._apart, pair))))
        return BlockNode(nodes)

    def _apart(self, steps: Iterable[Operation]) -> list[StepNode]:
        """Steps that run as one, each by itself, for who observes them. What they leave to NumPy is not counted: it does not run else."""
        counted = dict(self.fallbacks)
        nodes = [self.execute(step) for step in steps if isinstance(step, ExecuteOp)]
        self.fallbacks = counted
        return nodes


@dataclass
class _Sums(StepNode):
    """Two steps as one; who observes sees both."""

    apart: Callable[[], list[StepNode]] = list[StepNode]

    def observed(self, observe: Observer) -> None:
        for step in self.apart():
            step.observed(observe)
