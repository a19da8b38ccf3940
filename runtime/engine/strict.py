"""The `strict` engine: runs vertices one by one on isolated copies, in shuffled order, and checks every rule of the
machine.

Each vertex sees immutable copies of its operands as they were before the execute. It writes into poisoned memory of
its own. All results are committed at the end. A copy that moves under other steps is made after them. The engine records which
elements have been written.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from xdsl.ir import Block, Operation, SSAValue

from populus.dialects.poplar.compute import CopyOp, ExecuteOp, FamilyOp
from populus.dialects.poplar.memory import ConstOp, ParamOp, StorageOp, storage_of, view_of
from populus.dialects.poplar.program import CallOp, GraphOp
from populus.dialects.poplar.task import TaskOp
from populus.dialects.support.diagnostics import PopulusError, where
from populus.dialects.support.element_types import dtype_of
from populus.runtime.codelets.task import Workspace
from populus.runtime.engine.checked_vertices import Connection, Store, Vertices, count_elements
from populus.runtime.engine.program import BlockNode, LoadedProgram, Node, Observer, StepNode
from populus.runtime.engine.superstep import Superstep
from populus.runtime.memory import summary
from populus.runtime.views import view_array

Array: TypeAlias = NDArray[Any]


class StrictProgram(LoadedProgram):
    """A graph that runs vertex by vertex and checks every rule. `seed` determines the order of vertices.

    Loading or running raises PopulusError, which names execute, codelet, vertices, tiles and variable, in these cases:

    - two vertices write the same element, or one reads an element that another writes;
    - a vertex reads an element that nothing wrote, or leaves an element of its output unwritten;
    - a vertex writes its input, or its own fields overlap;
    - an access is out of bounds;
    - the memory of a tile is too small, or two live variables share an address.
    """

    name = "strict"

    def __init__(self, graph: GraphOp, seed: int = 0):
        super().__init__(graph)
        self.rng = random.Random(seed)  # a generator of NumPy has a lock, which a child that is forked meanwhile waits for
        self.workspace = Workspace()
        self.tiles = graph.machine.tiles
        check_tile_memory(graph)
        self._stores: dict[StorageOp, Store] = {}
        self._arguments: list[Store] = []  # of all calls
        self.load()

    def run(self, inputs: Mapping[str, Array], observe: Observer | None = None, commit: bool = True) -> dict[str, Array]:
        for store in (*self._stores.values(), *self._arguments):
            store.forget()
        return super().run(inputs, observe, commit)

    # -- memory

    def store(self, value: SSAValue) -> Store:
        """Gives the memory of the variable, constant or argument that a view shows."""
        op = storage_of(value)
        if op not in self._stores:
            if isinstance(op, ConstOp):
                array = op.array().reshape(-1)
                self._stores[op] = Store(op, array, np.broadcast_to(np.True_, array.size), True)
            else:
                memory = np.zeros(int(np.prod(op.type.shape)), dtype_of(op.type.element))
                self._stores[op] = Store(op, memory, np.zeros(memory.size, np.bool_), memory.size == 0)
        return self._stores[op]

    def bind(self, parameter: ParamOp, value: SSAValue) -> None:
        store, begin = self.store(value), view_of(value).offset
        part = slice(begin, begin + int(np.prod(parameter.type.shape)))
        self._stores[parameter] = Store(parameter, store.memory[part], store.defined[part], store.complete, store)
        self._arguments.append(self._stores[parameter])

    def array(self, value: SSAValue) -> Array:
        return view_array(self.store(value).memory, view_of(value))

    # -- steps

    def in_order(self, block: Block) -> Iterator[Operation]:
        """Yields the ops of a block; a copy that moves under others comes after the last of them, as late as it may."""
        late: dict[Operation, list[CopyOp]] = {}
        for op in block.ops:
            if isinstance(op, CopyOp) and (steps := op.steps_under()):
                late.setdefault(steps[-1], []).append(op)
            else:
                yield op
            yield from late.pop(op, ())

    def _call(self, op: CallOp) -> Node:
        """Binds a call, and marks the function's outputs as unwritten when it begins."""
        body = super()._call(op)
        outputs = [self._stores[parameter] for parameter, _ in op.bindings() if not parameter.read]
        return BlockNode([StepNode(op, [store.forget for store in outputs]), body])

    def read(self, op: Operation, value: SSAValue) -> Callable[[], Array]:
        store, view, array = self.store(value), view_of(value), self.array(value)

        def read() -> Array:
            if not store.complete and not (marks := view_array(store.defined, view)).all():
                missing = count_elements(int(marks.size - marks.sum()))
                raise PopulusError(f"{op.name} reads {missing} of '{store.op.label.data}' that nothing wrote")
            return array

        return read

    def write(self, op: Operation, value: SSAValue) -> Callable[[Array], None]:
        store, view, array = self.store(value), view_of(value), self.array(value)

        def write(source: Array) -> None:
            np.copyto(array, source.reshape(array.shape))
            store.define(view)
            store.settle()

        return write

    def copy(self, op: CopyOp) -> StepNode:
        read, write = self.read(op, op.src), self.write(op, op.dst)
        return StepNode(op, [lambda: write(read().copy())], [(op.dst, self.array(op.dst))])

    def execute(self, op: ExecuteOp) -> StepNode:
        stages = [[self.vertices(family) for family in families] for families in op.stages()]

        def run() -> None:
            earlier = dict[StorageOp, NDArray[np.int32]]()
            for families in stages:
                Superstep(self.rng, families, earlier).run()

        return StepNode(op, [run], [(v, self.array(v)) for f in op.families() for _, v in f.written()])

    def task(self, op: TaskOp) -> Node:
        """Binds a task's executes, and marks results that need not be stored as unwritten after it."""
        lost = [self.store(value) for value in op.chain.lost()]
        return BlockNode([super().task(op), StepNode(op, [store.forget for store in lost])])

    def vertices(self, family: FamilyOp) -> Vertices:
        """Gives the vertices of a family."""
        connections = [Connection(f, v, view_of(v), self.store(v), self.array(v)) for f, v in family.connections()]
        return Vertices(family, connections, self.workspace, self.tiles)


def check_tile_memory(graph: GraphOp) -> None:
    """Raises PopulusError, naming the step and the fullest tile, if the variables have layouts and do not fit.

    A tile's bytes are those of its live variables and constants and of the elements its vertices fetch from other
    tiles. Without layouts, nothing is checked.
    """
    if any(isinstance(op, StorageOp) and op.layout is None and op.outside is None for op in graph.walk()):
        return
    machine, used = graph.machine, summary(graph)
    room = machine.room
    if used.peak_bytes > room:
        largest = ", ".join(f"'{label}' {bytes}" for label, bytes in used.largest[:3])
        raise PopulusError(
            f"{where(graph)}: at '{used.label}', tile {used.tile} holds {used.peak_bytes} bytes ({largest}); {machine.name} has {room} "
            f"a tile (tile_bytes - reserved_bytes)"
        )
