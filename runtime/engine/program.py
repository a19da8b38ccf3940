"""A loaded program: the control tree of a graph as nodes that run, with the steps in it bound by an engine.

An engine says how an execute, a copy and a stream become calls; order, loops, branches and calls are the same for all.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from operator import length_hint
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from xdsl.ir import Attribute, Block, Operation, SSAValue

from populus.dialects.poplar.compute import CopyOp, ExecuteOp
from populus.dialects.poplar.memory import ParamOp, StorageOp, ViewOp, type_of
from populus.dialects.poplar.program import (
    CallOp,
    FuncOp,
    GraphOp,
    HostCallOp,
    IfOp,
    RepeatOp,
    SequenceOp,
    StreamInOp,
    StreamOutOp,
    SwitchOp,
    WhileOp,
    element_of,
)
from populus.dialects.poplar.types import TensorType
from populus.dialects.support.diagnostics import PopulusError, where
from populus.dialects.support.element_types import dtype_of
from populus.runtime.codelets.task import Run
from populus.runtime.engine.views import PlacedError, params_of
from populus.runtime.host import call as host_call
from populus.runtime.host import function_named
from populus.runtime.interpreter.check import host_check_close

Array: TypeAlias = NDArray[Any]
Arrays: TypeAlias = dict[str, Array]
Written: TypeAlias = list[tuple[SSAValue, Array]]
Observer: TypeAlias = Callable[[Operation, Written], None]


class Node(ABC):
    """A piece of program that runs."""

    @abstractmethod
    def calls(self) -> Sequence[tuple[Run, Operation | None]]:
        """What to call, and the step that each call belongs to (None: the call names its step itself)."""

    @abstractmethod
    def observed(self, observe: Observer) -> None:
        """Runs it, telling `observe` after each step."""


@dataclass
class StepNode(Node):
    """One step: its calls, and the views that it writes."""

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
    """Nodes in order."""

    def __init__(self, nodes: Sequence[Node]):
        self.nodes = tuple(nodes)
        pairs = [pair for node in nodes for pair in node.calls()]
        self._runs = tuple(run for run, _ in pairs)
        self._ops = tuple(op for _, op in pairs)

    def calls(self) -> Sequence[tuple[Run, Operation | None]]:
        return list(zip(self._runs, self._ops))

    def run(self) -> None:
        left = iter(self._runs)
        try:
            for run in left:
                run()
        except Exception as error:
            op = self._ops[len(self._runs) - length_hint(left) - 1]
            if op is None:
                raise
            _raise_located(op, error)

    def observed(self, observe: Observer) -> None:
        for node in self.nodes:
            node.observed(observe)


Walk: TypeAlias = Callable[[BlockNode], None]


class ControlNode(Node):
    """A loop or a branch."""

    @abstractmethod
    def control(self, walk: Walk) -> None:
        """Runs the blocks inside, each by `walk`."""

    def calls(self) -> Sequence[tuple[Run, Operation | None]]:
        return [(lambda: self.control(BlockNode.run), None)]

    def observed(self, observe: Observer) -> None:
        self.control(lambda block: block.observed(observe))


@dataclass
class RepeatNode(ControlNode):
    """`body`, `count` times."""

    count: int
    body: BlockNode

    def control(self, walk: Walk) -> None:
        for _ in range(self.count):
            walk(self.body)


@dataclass
class WhileNode(ControlNode):
    """`before`; while what `read` gives then holds, `body` and `before` again."""

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
    """`then` if what `read` gives holds, else `otherwise`."""

    read: Callable[[], Array]
    then: BlockNode
    otherwise: BlockNode

    def control(self, walk: Walk) -> None:
        walk(self.then if self.read().item() else self.otherwise)


@dataclass
class SwitchNode(ControlNode):
    """The program of the case that `read` gives; the last one for all others."""

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
    """Gives a PopulusError that a step raises the step's place."""

    def __init__(self, op: Operation):
        self.op = op

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, PopulusError):
            _raise_located(self.op, error)


def _raise_located(op: Operation, error: Exception) -> None:
    if isinstance(error, PlacedError) or not isinstance(error, PopulusError):
        raise error
    label = f" in execute '{op.label.data}'" if isinstance(op, ExecuteOp) else ""
    raise PlacedError(f"{where(op)}: {error}{label}") from error


class Program(ABC):
    """A graph, loaded into an engine; runs any number of times.

    `inputs` and `outputs`: (shape, dtype) of each stream by name. `views`: results are the program's own memory where that
    has their type. Raises PopulusError for what the engine cannot run.
    """

    name = ""
    views = False

    def __init__(self, graph: GraphOp):
        self.graph = graph
        self.inputs: dict[str, tuple[tuple[int, ...], np.dtype[Any]]] = {}
        self.outputs: dict[str, tuple[tuple[int, ...], np.dtype[Any]]] = {}
        for op in graph.walk():
            if isinstance(op, StreamInOp):
                _declare(self.inputs, op, op.stream.data, op.dst, op.host_element)
            elif isinstance(op, StreamOutOp):
                _declare(self.outputs, op, op.stream.data, op.src, op.host_element)
        self.fallbacks: dict[str, int] = {}  # families that an engine leaves to another, by codelet
        self.given: Arrays = {}
        self.results: Arrays = {}
        self._functions: dict[str, BlockNode] = {}

    def load(self) -> None:
        """Binds the graph's steps; to be called once memory is there."""
        self.body = self._block(self.graph.body.block)

    def run(self, inputs: Mapping[str, Array], observe: Observer | None = None) -> Arrays:
        """The outputs by name, as new arrays. `inputs` have the shapes and dtypes that `self.inputs` says. For one thread at a time."""
        self.given, self.results = dict(inputs), {}
        try:
            with np.errstate(all="ignore"):
                if observe is None:
                    self.walk()
                else:
                    self.body.observed(observe)
            return self.results
        finally:
            self.given, self.results = {}, {}

    def walk(self) -> None:
        """Runs the graph."""
        self.body.run()

    # -- what engines say

    @abstractmethod
    def execute(self, op: ExecuteOp) -> StepNode:
        """An execute, bound."""

    @abstractmethod
    def copy(self, op: CopyOp) -> StepNode:
        """A copy, bound."""

    @abstractmethod
    def read(self, op: Operation, value: SSAValue) -> Callable[[], Array]:
        """What gives the present content of a view; not to be written."""

    @abstractmethod
    def write(self, op: Operation, value: SSAValue) -> Callable[[Array], None]:
        """What overwrites a view."""

    @abstractmethod
    def array(self, value: SSAValue) -> Array:
        """The memory of a view."""

    @abstractmethod
    def bind(self, parameter: ParamOp, value: SSAValue) -> None:
        """From now on, what is bound has the memory of `value` for a parameter."""

    # -- the tree

    def _block(self, block: Block) -> BlockNode:
        return BlockNode([node for op in block.ops for node in self._nodes(op)])

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
            case StreamInOp() | StreamOutOp() | HostCallOp():
                yield self._host(op)
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

    def _call(self, op: CallOp) -> Node:
        """The function's steps, bound to the arguments of this call where they are; without arguments, the same for all calls."""
        name, bindings = op.callee.data, list(op.bindings())
        for parameter, value in bindings:
            self.bind(parameter, value)
        if bindings:
            return self._block(op.target().body.block)
        if name not in self._functions:
            self._functions[name] = self._block(op.target().body.block)
        return CallNode(self._functions[name])

    def _host(self, op: StreamInOp | StreamOutOp | HostCallOp) -> StepNode:
        if isinstance(op, StreamInOp):
            stream, write, dtype = op.stream.data, self.write(op, op.dst), dtype_of(element_of(op.dst))
            return StepNode(op, [lambda: write(_converted(self.given[stream], dtype, stream))], [(op.dst, self.array(op.dst))])
        if isinstance(op, StreamOutOp):
            name, read, host, views = op.stream.data, self.read(op, op.src), dtype_of(op.host_element), self.views

            def take() -> None:
                found = read()
                self.results[name] = unwritable(found) if views and found.dtype == host else found.astype(host)

            return StepNode(op, [take])
        count = op.inputs.value.data
        reads = [self.read(op, v) for v in op.views[:count]]
        writes = [self.write(op, v) for v in op.views[count:]]
        function = _host_function(op)

        def call() -> None:
            results = function([read().copy() for read in reads])
            for write, result in zip(writes, results, strict=True):
                write(result)

        return StepNode(op, [call], [(v, self.array(v)) for v in op.views[count:]])


def unwritable(array: Array) -> Array:
    """A view that may only be read."""
    view = array.view()
    view.flags.writeable = False
    return view


def _host_function(op: HostCallOp) -> Callable[[list[Array]], Sequence[Array]]:
    """What a host call runs: from its inputs' content to its outputs'. Raises PopulusError for a function that there is not."""
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


def _converted(array: Array, dtype: np.dtype[Any], stream: str) -> Array:
    """The host's data in the element type of the tiles.

    Raises PopulusError for an integer that is not the same there, and for a finite number that is not finite there.
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
    found = type.shape, dtype_of(host)
    if streams.setdefault(name, found) != found:
        raise PopulusError(f"{where(op)}: stream '{name}' has two types, {streams[name]} and {found}; give one of them another name")
