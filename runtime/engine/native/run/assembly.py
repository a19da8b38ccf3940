"""Assembler of a program's control tree to a table of steps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from numpy.typing import NDArray
from xdsl.ir import Operation

from populus.dialects.poplar.compute import ExecuteOp
from populus.dialects.support.diagnostics import PopulusError, where
from populus.runtime.built.steps import Step
from populus.runtime.codelets.task import Run
from populus.runtime.engine.native.codegen.jit import Library
from populus.runtime.engine.native.kernels.launch import Launch
from populus.runtime.engine.native.run.image import Blocks, Transfer
from populus.runtime.engine.native.run.step_table import Table
from populus.runtime.engine.program import BlockNode, CallNode, IfNode, Node, RepeatNode, StepNode, SwitchNode, WhileNode, raise_located

Array = NDArray[Any]


def assembled(library: Library, body: BlockNode, blocks: Blocks, loading: Sequence[Launch] = ()) -> tuple[Table, list[int]]:
    """Assembles the table of a program whose memories are `blocks`. Returns it, and the estimated number of runs of each step.

    `loading`: launches of its loading.
    """
    assembler = _Assembler(library, blocks)
    assembler.node(body)
    assembler.functions()
    assembler.table.finish(loading)
    assembler.times += [0] * (len(assembler.table) - len(assembler.times))
    return assembler.table, assembler.times


class _Assembler:
    def __init__(self, library: Library, blocks: Blocks):
        self.table = Table(library, blocks)
        self.times: list[int] = []  # runs of each step: the product of the enclosing loops' counts
        self._around = 1
        self._functions: dict[int, _Function] = {}

    def step(self, kind: Step, *words: int | Array) -> int:
        """Adds a step and records the number of times it runs."""
        number = self.table.step(kind, *words)
        self.times += [self._around] * (number + 1 - len(self.times))
        return number

    def node(self, node: Node) -> None:
        """Adds the steps of a node of the control tree."""
        match node:
            case BlockNode():
                for inner in node.nodes:
                    self.node(inner)
            case StepNode():
                for run in node.runs:
                    self.run(run, node.op)
            case RepeatNode():
                self.repeat(node)
            case WhileNode():
                again = len(self.table)
                self.node(node.before)
                leave = self.step(Step.UNLESS, node.read())
                self.node(node.body)
                self.step(Step.JUMP, again)
                self.table.aim(leave, 2, len(self.table))
            case IfNode():
                other = self.step(Step.UNLESS, node.read())
                self.node(node.then)
                leave = self.step(Step.JUMP)
                self.table.aim(other, 2, len(self.table))
                self.node(node.otherwise)
                self.table.aim(leave, 1, len(self.table))
            case SwitchNode():
                self.switch(node)
            case CallNode():
                function = self._functions.get(id(node.body)) or self.function(node.body)
                function.calls.append(self.step(Step.CALL, function.place))
                function.times += self._around
            case _:
                raise AssertionError(node)

    def run(self, run: Run, op: Operation) -> None:
        """Adds a run: a launch, or a stop that returns to Python."""
        if isinstance(run, Launch):
            if run.refused is not None:
                run.refused = _placed(run.refused, op)
            self.table.launch(run, op.label.data if isinstance(op, ExecuteOp) else where(op))
        elif isinstance(run, Transfer):
            self.table.step(run.kind, *run.words)
        else:
            self.table.stop(_placed(run, op), op)
        self.times.append(self._around)

    def repeat(self, node: RepeatNode) -> None:
        """Adds a counted loop."""
        if node.count <= 0:
            return
        place = self.table.place()
        self.step(Step.SET, place, node.count)
        begin, around = len(self.table), self._around
        self._around *= node.count
        self.node(node.body)
        self._around = around
        self.step(Step.LOOP, place, begin)

    def switch(self, node: SwitchNode) -> None:
        """Adds a switch."""
        control = node.read()
        cases = [self.step(Step.CASE, control, case) for case in node.cases]
        default = self.step(Step.JUMP)
        leaves: list[int] = []
        for case, program in zip([*cases, default], node.programs, strict=True):
            self.table.aim(case, 1 if case == default else 3, len(self.table))
            self.node(program)
            leaves.append(self.step(Step.JUMP))
        for leave in leaves:
            self.table.aim(leave, 1, len(self.table))

    def function(self, body: BlockNode) -> _Function:
        """Notes a called body, whose steps `functions` adds."""
        return self._functions.setdefault(id(body), _Function(body, self.table.place()))

    def functions(self) -> None:
        """Adds the called bodies after the program's end; a body may call others."""
        leave = self.step(Step.JUMP)
        done: set[int] = set()
        while left := [key for key in self._functions if key not in done]:
            function = self._functions[left[0]]
            function.begin, self._around = len(self.table), function.times
            self.node(function.body)
            self.step(Step.RETURN, function.place)
            done.add(left[0])
        for function in self._functions.values():
            for call in function.calls:
                self.table.aim(call, 2, function.begin)
        self._around = 1
        self.table.aim(leave, 1, len(self.table))
        self.times.append(1)  # for the final stop


class _Function:
    """Called body. `place` holds the return address; one place suffices because no function calls itself."""

    def __init__(self, body: BlockNode, place: Array):
        self.body, self.place = body, place
        self.calls: list[int] = []
        self.begin = 0
        self.times = 0


def _placed(run: Callable[[], object], op: Operation) -> Callable[[], None]:
    """Wraps a call so that its PopulusError names the step."""

    def placed() -> None:
        try:  # a context would cost as much as a small stream
            run()
        except PopulusError as error:
            raise_located(op, error)

    return placed
