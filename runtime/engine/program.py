"""A loaded program: the control tree of a graph as nodes that run, whose steps an engine has bound.

An engine defines the calls of executes, copies and streams. Order, loops, branches and calls are the same for all
engines.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from operator import length_hint
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from xdsl.ir import Attribute, Block, Operation, SSAValue

from populus.dialects.poplar.compute import CopyOp, ExecuteOp
from populus.dialects.poplar.memory import ParamOp, StorageOp, ViewOp, type_of
from populus.dialects.poplar.outside import CollectiveOp, HostCallOp, OutsideOp
from populus.dialects.poplar.program import (
    CallOp,
    FuncOp,
    GraphOp,
    IfOp,
    RepeatOp,
    SequenceOp,
    StreamInOp,
    StreamOutOp,
    SwitchOp,
    WhileOp,
    element_of,
)
from populus.dialects.poplar.task import TaskOp
from populus.dialects.poplar.types import TensorType
from populus.dialects.support.diagnostics import PopulusError, where
from populus.dialects.support.element_types import dtype_of
from populus.runtime.addresses import check_addresses
from populus.runtime.codelets.task import Run
from populus.runtime.engine.states import States
from populus.runtime.gcl import Collective
from populus.runtime.host import call as host_call
from populus.runtime.host import function_named
from populus.runtime.interpreter.check import host_check_close
from populus.runtime.views import PlacedError, params_of

Array: TypeAlias = NDArray[Any]
Arrays: TypeAlias = dict[str, Array]
Written: TypeAlias = list[tuple[SSAValue, Array]]
Observer: TypeAlias = Callable[[Operation, Written], None]


class Node(ABC):
    """A piece of program that runs."""

    @abstractmethod
    def calls(self) -> Sequence[tuple[Run, Operation | None]]:
        """Gives the calls that run the node, each with its step; None if the call names its step in errors itself."""

    @abstractmethod
    def observed(self, observe: Observer) -> None:
        """Runs the node, and calls `observe` after each step."""


@dataclass
class StepNode(Node):
    """One step: its calls, and the views that it writes with their arrays."""

    op: Operation
    runs: Sequence[Run]
    written: Written = field(default_factory=list[tuple[SSAValue, Array]])

    def calls(self) -> Sequence[tuple[Run, Operation | None]]:
        return [(run, self.op) for run in self.runs]

    def observed(self, observe: Observer) -> None:
        with located(self.op):
            for run in self.runs:
                run()
        observe(self.op, [(value, array.copy()) for value, array in self.written])


class BlockNode(Node):
    """Nodes that run in order."""

    def __init__(self, nodes: Sequence[Node]):
        self.nodes = tuple(nodes)
        pairs = [pair for node in nodes for pair in node.calls()]
        self._runs = tuple(run for run, _ in pairs)
        self._ops = tuple(op for _, op in pairs)

    def calls(self) -> Sequence[tuple[Run, Operation | None]]:
        return list(zip(self._runs, self._ops))

    def run(self) -> None:
        """Runs the nodes. A PopulusError without a place gets the place of the step that raised it."""
        remaining = iter(self._runs)
        try:
            for run in remaining:
                run()
        except Exception as error:
            op = self._ops[len(self._runs) - length_hint(remaining) - 1]
            if op is None:
                raise
            raise_located(op, error)

    def observed(self, observe: Observer) -> None:
        for node in self.nodes:
            node.observed(observe)


Walk: TypeAlias = Callable[[BlockNode], None]


class ControlNode(Node):
    """A loop or a branch."""

    @abstractmethod
    def control(self, walk: Walk) -> None:
        """Runs the inner blocks, each through `walk`."""

    def calls(self) -> Sequence[tuple[Run, Operation | None]]:
        return [(lambda: self.control(BlockNode.run), None)]

    def observed(self, observe: Observer) -> None:
        self.control(lambda block: block.observed(observe))


@dataclass
class RepeatNode(ControlNode):
    """A loop that runs `body` `count` times."""

    count: int
    body: BlockNode

    def control(self, walk: Walk) -> None:
        for _ in range(self.count):
            walk(self.body)


@dataclass
class WhileNode(ControlNode):
    """A loop that runs `before`, reads the predicate, and while it is true runs `body` and `before` again."""

    read: Callable[[], Array]
    before: BlockNode
    body: BlockNode

    def control(self, walk: Walk) -> None:
        walk(self.before)
        while self.read().item():
            walk(self.body)
            walk(self.before)


@dataclass
class IfNode(ControlNode):
    """A branch that runs `then` if the predicate is true, else `otherwise`."""

    read: Callable[[], Array]
    then: BlockNode
    otherwise: BlockNode

    def control(self, walk: Walk) -> None:
        walk(self.then if self.read().item() else self.otherwise)


@dataclass
class SwitchNode(ControlNode):
    """A branch that runs the program of the case that `read` gives. The last program is the default."""

    read: Callable[[], Array]
    cases: Sequence[int]
    programs: Sequence[BlockNode]

    def control(self, walk: Walk) -> None:
        walk(dict(zip(self.cases, self.programs)).get(self.read().item(), self.programs[-1]))


@dataclass
class CallNode(Node):
    """The body of a function without parameters, which all calls share."""

    body: BlockNode

    def calls(self) -> Sequence[tuple[Run, Operation | None]]:
        return self.body.calls()

    def observed(self, observe: Observer) -> None:
        self.body.observed(observe)


class located:
    """A context that adds a step's place to a PopulusError raised inside it."""

    def __init__(self, op: Operation):
        self.op = op

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, PopulusError):
            raise_located(self.op, error)


def raise_located(op: Operation, error: Exception) -> None:
    """Raises an error about a step with its place, unless it has one or is none for users."""
    if isinstance(error, PlacedError) or not isinstance(error, PopulusError):
        raise error
    label = f" in execute '{op.label.data}'" if isinstance(op, ExecuteOp) else ""
    raise PlacedError(f"{where(op)}: {error}{label}") from error


class LoadedProgram(ABC):
    """A graph that an engine has loaded; it runs any number of times.

    `inputs` and `outputs`: (shape, dtype) of each stream by name. `views`: results are views of the program's own
    memory where it has their type. Raises PopulusError for ops that the engine cannot run.
    """

    name = ""
    views = False
    checks_addresses = True

    def __init__(self, graph: GraphOp):
        self.graph = graph
        self.inputs: dict[str, tuple[tuple[int, ...], np.dtype[Any]]] = {}
        self.outputs: dict[str, tuple[tuple[int, ...], np.dtype[Any]]] = {}
        for op in graph.walk():
            if isinstance(op, StreamInOp):
                _declare(self.inputs, op, op.stream.data, op.dst, op.host_element)
            elif isinstance(op, StreamOutOp):
                _declare(self.outputs, op, op.stream.data, op.src, op.host_element)
        self.states = States({})
        self.fallbacks: dict[str, int] = {}  # number of families, by codelet, that run on another engine's kernel
        self._run_inputs: Arrays = {}
        self._run_results: Arrays = {}
        self._functions: dict[str, BlockNode] = {}

    def load(self) -> None:
        """Binds the graph's steps. A subclass calls it after it has allocated memory.

        Raises PopulusError if two variables that are live at one time share an address, on any engine.
        """
        if self.checks_addresses:
            check_addresses(self.graph)
        self.body = self._block(self.graph.body.block)

    def run(self, inputs: Mapping[str, Array], observe: Observer | None = None, commit: bool = True) -> Arrays:
        """Runs the program and returns the outputs by name, as new arrays. Only one thread may run it at a time.

        `inputs` have the shapes and dtypes of `self.inputs`. `observe` is called after each step. Without `commit`, states
        keep their values until it is called.
        """
        self._run_inputs, self._run_results = dict(inputs), {}
        try:
            with np.errstate(all="ignore"):
                if observe is None:
                    self.walk()
                else:
                    self.observed(observe)
                if commit:
                    self.commit()
            return self._run_results
        finally:
            self._run_inputs, self._run_results = {}, {}

    def walk(self) -> None:
        """Runs the graph."""
        self.body.run()

    def observed(self, observe: Observer) -> None:
        """Runs the graph, and calls `observe` after each step."""
        self.body.observed(observe)

    def commit(self) -> None:
        """Replaces each state by the next value that the last run computed."""
        self.states.commit()

    def rest(self, states: bool) -> None:
        """Gives memory that only runs need back to the system, as far as the engine can.

        `states`: also that of states, which become zeros. Without it, a program with states keeps its memory.
        """
        return

    # -- defined by each engine

    @abstractmethod
    def execute(self, op: ExecuteOp) -> StepNode:
        """Binds an execute."""

    @abstractmethod
    def copy(self, op: CopyOp) -> StepNode:
        """Binds a copy."""

    @abstractmethod
    def read(self, op: Operation, value: SSAValue) -> Callable[[], Array]:
        """Gives a function that returns the current content of a view; the caller must not write to it."""

    @abstractmethod
    def write(self, op: Operation, value: SSAValue) -> Callable[[Array], None]:
        """Gives a function that overwrites a view."""

    @abstractmethod
    def array(self, value: SSAValue) -> Array:
        """Gives the memory of a view as an array of its shape."""

    @abstractmethod
    def bind(self, parameter: ParamOp, value: SSAValue) -> None:
        """Makes steps that are bound from now on use the memory of `value` for a parameter."""

    # -- the tree

    def _block(self, block: Block) -> BlockNode:
        return BlockNode([node for op in self.in_order(block) for node in self._nodes(op)])

    def in_order(self, block: Block) -> Iterable[Operation]:
        """Gives the ops of a block in the order in which they run."""
        return block.ops

    def _nodes(self, op: Operation) -> Iterator[Node]:
        match op:
            case StorageOp() | ViewOp() | FuncOp():
                return
            case ExecuteOp():
                yield self.execute(op)
            case CopyOp():
                yield self.copy(op)
            case SequenceOp():
                yield self._block(op.body.block)
            case StreamInOp() | StreamOutOp() | OutsideOp():
                yield self.host(op)
            case TaskOp():
                yield self.task(op)
            case RepeatOp():
                yield RepeatNode(op.count.value.data, self._block(op.body.block))
            case WhileOp():
                yield WhileNode(self.read(op, op.predicate), self._block(op.before.block), self._block(op.body.block))
            case IfOp():
                yield IfNode(self.read(op, op.predicate), self._block(op.then.block), self._block(op.otherwise.block))
            case SwitchOp():
                cases = [int(c) for c in op.cases.get_values()]
                yield SwitchNode(self.read(op, op.control), cases, [self._block(p.block) for p in op.programs])
            case CallOp():
                yield self._call(op)
            case _:
                raise PopulusError(f"{where(op)}: {op.name} is not an op of a tile program; lower it first")

    def task(self, op: TaskOp) -> Node:
        """Binds a task: its executes, in order."""
        return self._block(op.body.block)

    def _call(self, op: CallOp) -> Node:
        """Binds a function's steps to the arguments of this call, in place. Calls without arguments share one binding."""
        name, bindings = op.callee.data, list(op.bindings())
        for parameter, value in bindings:
            self.bind(parameter, value)
        if bindings:
            return self._block(op.target().body.block)
        if name not in self._functions:
            self._functions[name] = self._block(op.target().body.block)
        return CallNode(self._functions[name])

    def host(self, op: StreamInOp | StreamOutOp | OutsideOp) -> StepNode:
        """Binds a stream or a step that tiles do not compute."""
        if isinstance(op, StreamInOp):
            stream, write, dtype = op.stream.data, self.write(op, op.dst), dtype_of(element_of(op.dst))

            def put() -> None:
                write(converted(self._run_inputs[stream], dtype, stream))

            return StepNode(op, [put], [(op.dst, self.array(op.dst))])
        if isinstance(op, StreamOutOp):
            name, read, host, views = op.stream.data, self.read(op, op.src), dtype_of(op.host_element), self.views

            def take() -> None:
                content = read()
                self._run_results[name] = unwritable(content) if views and content.dtype == host else content.astype(host)

            return StepNode(op, [take])
        count = op.inputs.value.data
        reads = [self.read(op, v) for v in op.views[:count]]
        writes = [self.write(op, v) for v in op.views[count:]]
        function = _outside_function(op)

        def call() -> None:
            results = function([read().copy() for read in reads])
            for write, result in zip(writes, results, strict=True):
                write(result)

        return StepNode(op, [call], [(v, self.array(v)) for v in op.views[count:]])


def unwritable(array: Array) -> Array:
    """Gives a read-only view of an array."""
    view = array.view()
    view.flags.writeable = False
    return view


def _outside_function(op: OutsideOp) -> Callable[[list[Array]], Sequence[Array]]:
    """Gives the function of a step that tiles do not compute, from input arrays to output arrays."""
    if isinstance(op, CollectiveOp):
        step = Collective.of(op)
        return lambda arrays: [step.result(arrays)]
    assert isinstance(op, HostCallOp), op
    return _host_function(op)


def _host_function(op: HostCallOp) -> Callable[[list[Array]], Sequence[Array]]:
    """Gives the function that a host call runs, from input arrays to output arrays. Raises PopulusError for an unknown
    name.
    """
    name = op.function.data
    if name == "check.close":
        return lambda arrays: host_check_close(op, arrays)
    try:
        function_named(name)
    except PopulusError as error:
        raise PopulusError(f"{where(op)}: {error}") from None
    params = {} if op.params is None else params_of(op.params)
    types = [(type_of(v).shape, dtype_of(element_of(v))) for v in op.views[op.inputs.value.data :]]
    return lambda arrays: host_call(name, params, types, arrays)


def converted(array: Array, dtype: np.dtype[Any], stream: str) -> Array:
    """Converts the host's data to the tiles' element type.

    Raises PopulusError for an integer that the type cannot represent, and for a finite number that overflows.
    """
    if array.dtype == dtype:
        return array
    new = array.astype(dtype)
    lost = new.astype(array.dtype) != array if array.dtype.kind in "iu" else np.isfinite(array) & ~np.isfinite(new)
    if lost.any():
        raise PopulusError(f"input '{stream}' has {array[lost].reshape(-1)[0]}, which {dtype} cannot hold; the program was narrowed to it")
    return new


def _declare(streams: dict[str, tuple[tuple[int, ...], np.dtype[Any]]], op: Operation, name: str, value: SSAValue, host: Attribute) -> None:
    type = value.type
    assert isinstance(type, TensorType), type
    declared = type.shape, dtype_of(host)
    if streams.setdefault(name, declared) != declared:
        first = streams[name]
        raise PopulusError(f"{where(op)}: stream '{name}' has two types, {first} and {declared}; give one of them another name")
