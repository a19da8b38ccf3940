"""Tasks of a program: a product, the sum of its slices, and the map that reads the sums first, for one launch."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import groupby, islice

from xdsl.dialects.builtin import StringAttr, f16, f32
from xdsl.ir import Attribute, Block, Operation, Region, SSAValue
from xdsl.rewriter import InsertPoint, Rewriter

from populus.dialects.expr import ExprAttr
from populus.dialects.poplar import CallOp, ConstOp, ExecuteOp, FamilyOp, FuncOp, GraphOp, StorageOp, TaskOp, TensorType, ViewOp
from populus.dialects.poplar.memory import storage_of, type_of, view_of
from populus.dialects.poplar.overlap import disjoint
from populus.dialects.poplar.task import WHOLE_SUMS, Chain, shows, users_of
from populus.dialects.support.diagnostics import fused
from populus.dialects.support.element_types import dtype_of, is_byte, size_in_bytes
from populus.dialects.support.walk import ops_of
from populus.runtime.endings import MOST, ending_tape


def make_tasks(graph: GraphOp) -> None:
    """Puts families that one launch can compute into tasks.

    Families move to the place of the product, or of the map if a step between them touches another operand of the map. Such a task
    is made only if no step between touches what moves. Of several products that a map reads, the last one takes it.
    """
    inside = [inner for inner in ops_of(graph) if not isinstance(inner, ExecuteOp | TaskOp)]
    for block in [block for inner in inside for region in inner.regions for block in region.blocks]:
        _Fusing(block).run()


def with_tasks(graph: GraphOp) -> GraphOp:
    """Gives the program that the native engine runs: the graph itself if its machine joins families, as its pipeline has made tasks.

    A program of another machine is copied, and the copy has tasks and no addresses.
    """
    if graph.machine.joins:
        return graph
    copy = graph.clone()
    for op in copy.walk():
        if isinstance(op, StorageOp):
            op.address = None
    make_tasks(copy)
    return copy


def _leaves_sums(family: FamilyOp) -> bool:
    return (family.declaration.is_product or family.codelet.data in WHOLE_SUMS) and "partials" not in family.params.data


@dataclass
class _Fusing:
    """The steps of one block while tasks are made.

    `position`: of each op at first; what stands in its place has the same. `origin`: the execute that a part of one was, with its `size`.
    """

    block: Block
    position: dict[Operation, int] = field(default_factory=dict[Operation, int])
    origin: dict[ExecuteOp, ExecuteOp] = field(default_factory=dict[ExecuteOp, ExecuteOp])
    size: dict[ExecuteOp, int] = field(default_factory=dict[ExecuteOp, int])

    def run(self) -> None:
        """Makes the tasks of the block, the last products first."""
        steps = [op for op in self.block.ops if isinstance(op, ExecuteOp)]
        products = [family for step in steps for family in step.families() if _leaves_sums(family)]
        if products:
            self.position = {op: i for i, op in enumerate(self.block.ops)}
            self.origin = {step: step for step in steps}
            self.size = {step: len(step.families()) for step in steps}
        for product in reversed(products):
            if (found := self.chain(product)) is not None:
                self.join(*found)

    # -- what can be a task

    def chain(self, product: FamilyOp) -> tuple[Chain, FamilyOp] | None:
        """Finds the longest chain of a product, and the family at whose place it runs."""
        pair = Chain(product, self.total(product))
        if pair.total is None and pair.sums_problem():
            return None
        ended = self.ended(pair)
        return (pair, product) if ended is None and pair.total is not None else ended

    def total(self, product: FamilyOp) -> FamilyOp | None:
        """Finds the sum of a product's slices, if no step between the two touches the sum's view."""
        alone = Chain(product)
        if not alone.parts or any(size_in_bytes(e) == 2 for e in _elements(product)):
            return None  # partial results of halves are rounded
        users = dict.fromkeys(islice(users_of(storage_of(alone.sums).result), 4))
        total = next((op for op in users if op is not product), None)
        if len(users) != 2 or not isinstance(total, FamilyOp) or total.codelet.data != "reduce" or not self.is_free(total):
            return None
        pair = Chain(product, total)
        if pair.sums_problem() or pair.touched_elsewhere() or pair.sums_seen() is None:
            return None
        between = self.between(product, total)
        return None if between is None or any(touches(op, pair.sums) for op in between) else total

    def ended(self, chain: Chain) -> tuple[Chain, FamilyOp] | None:
        """Finds the map that reads the sums of a chain first, and where the two can run."""
        last, storage = chain.families[-1], storage_of(chain.sums)
        if not _can_be_ended(chain) or all(op is last for op in islice(users_of(storage.result), 2)):
            return None
        ending = next((op for op in following(last) if op.regions or _shown(op, storage) or captures(op, storage)), None)
        if not isinstance(ending, FamilyOp) or ending.codelet.data != "map" or not self.is_free(ending):
            return None
        chain = replace(chain, ending=ending)
        if chain.ending_problem() or chain.touched_elsewhere() or not _can_end(chain) or chain.ending_seen() is None:
            return None
        between = [op for op in self.between(chain.product, ending) or () if op is not chain.total]
        others = [v for v in ending.operands if not shows(v, chain.sums) and not isinstance(storage_of(v), ConstOp)]
        if not any(touches(op, v) for op in between for v in others):
            return chain, chain.product
        read = [v for f, v in chain.product.connections() if f.kind == "in" and not isinstance(storage_of(v), ConstOp)]
        stays = any(touches(op, v) and not _only_reads(op, v) for op in between for v in read)
        return None if stays else (chain, ending)

    def is_free(self, family: FamilyOp) -> bool:
        """Tells whether a family is in an execute of the block, and in no task."""
        step = family.parent_op()
        return step is not None and step.parent is self.block

    def between(self, first: FamilyOp, last: FamilyOp) -> list[Operation] | None:
        """Lists the families and steps between two families; None if the second does not follow."""
        met: list[Operation] = []
        for op in following(first):
            if op is last:
                return met
            met.append(op)
        return None

    # -- moving

    def join(self, chain: Chain, place: FamilyOp) -> None:
        """Makes a chain's task at the place of one of its families."""
        step = _step_of(place)
        at, families = self.position[step], chain.families
        head = self.head(step)
        for value in [v for family in families for v in family.views]:
            self.hoist(value, at, head)
        own = list(step.families())
        after = [family for family in own[own.index(place) + 1 :] if family not in families]
        before = any(family not in families for family in own[: own.index(place)])
        emptied = dict.fromkeys(_step_of(family) for family in families)
        label = storage_of(chain.sums).label.data
        task = TaskOp(label, Region(Block(self.moved(families, label))))
        task.location = fused(*(inner.location for inner in task.body.block.ops))
        self.insert(task, step, at, before)
        if before and after:
            for family in after:
                family.detach()
            rest = _like(step, after)
            self.origin[rest] = self.origin[step]
            self.insert(rest, task, at, True)
        for left in emptied:
            if not left.families():
                Rewriter.erase_op(left)

    def moved(self, families: list[FamilyOp], label: str) -> list[ExecuteOp]:
        """Moves families to executes, together where they were together. Parts of an execute get the label and their own location."""
        made: list[ExecuteOp] = []
        origins = [self.origin[_step_of(family)] for family in families]
        for origin, group in groupby(zip(origins, families), key=lambda found: found[0]):
            own = [family for _, family in group]
            for family in own:
                family.detach()
            made.append(_like(origin, own))
            if len(own) < self.size[origin]:
                made[-1].label, made[-1].location = StringAttr(label), fused(*(family.location for family in own))
        return made

    def insert(self, op: Operation, beside: Operation, at: int, after: bool) -> None:
        """Inserts a step before or after another."""
        Rewriter.insert_op(op, InsertPoint.after(beside) if after else InsertPoint.before(beside))
        self.position[op] = at

    def head(self, step: Operation) -> Operation:
        """Gives the first of the steps that stand in the place of one."""
        while (earlier := step.prev_op) is not None and self.position[earlier] == self.position[step] and earlier.regions:
            step = earlier
        return step

    def hoist(self, value: SSAValue, at: int, head: Operation) -> None:
        """Moves a view or variable that stands after a place, and the values that it reads, before that place."""
        owner = value.owner
        if isinstance(owner, Operation) and self.position.get(owner, -1) > at:
            for operand in owner.operands:
                self.hoist(operand, at, head)
            owner.detach()
            Rewriter.insert_op(owner, InsertPoint.before(head))
            self.position[owner] = at


def _like(step: ExecuteOp, families: list[FamilyOp]) -> ExecuteOp:
    """Makes an execute with the label and location of another."""
    made = ExecuteOp(step.label.data, families)
    made.location = step.location
    return made


def _step_of(family: FamilyOp) -> ExecuteOp:
    step = family.parent_op()
    assert isinstance(step, ExecuteOp), step
    return step


def following(family: FamilyOp) -> Iterator[Operation]:
    """Lists the families and other steps after a family of an execute, in order."""
    op: Operation | None = family
    while (op := op.next_op) is not None:
        yield op
    step: Operation | None = family.parent_op()
    while step is not None and (step := step.next_op) is not None:
        if isinstance(step, ExecuteOp | TaskOp):
            yield from step.families()
        elif not isinstance(step, StorageOp | ViewOp | FuncOp):
            yield step


def touches(op: Operation, value: SSAValue) -> bool:
    """Tells whether a family or another step may touch the elements of a view."""
    storage, view = storage_of(value), view_of(value)
    views = [v for v in op.operands if isinstance(v.type, TensorType)]
    return (
        bool(op.regions)
        or not views
        or any(storage_of(v) is storage and not disjoint(view_of(v), view) for v in views)
        or captures(op, storage)
    )


def captures(op: Operation, storage: StorageOp) -> bool:
    """Tells whether a step is a call of a function that uses a variable around it, beside its arguments."""
    return isinstance(op, CallOp) and storage.result in op.target().captured()


def _shown(op: Operation, storage: StorageOp) -> bool:
    """Tells whether an operand of a step shows a variable."""
    return any(isinstance(v.type, TensorType) and storage_of(v) is storage for v in op.operands)


def _only_reads(op: Operation, view: SSAValue) -> bool:
    """Tells whether a step reads the memory of a view and does not write it."""
    return isinstance(op, FamilyOp) and all(storage_of(v) is not storage_of(view) for _, v in op.written())


def _elements(family: FamilyOp) -> set[Attribute]:
    return {type_of(v).element for v in family.views}


def _can_be_ended(chain: Chain) -> bool:
    """Tells whether launches compute maps on the sums of a product: of 8-bit integers, of f32, or of f16 that is not cut."""
    family = chain.product
    inputs = [type_of(v).element for f, v in family.connections() if f.kind == "in"]
    halves = family.declaration.is_product and chain.total is None and _elements(family) == {f16}
    return all(map(is_byte, inputs)) or _elements(family) == {f32} or halves


def _can_end(chain: Chain) -> bool:
    """Tells whether launches have code for a map on the sums of f32; of other sums they have, but for rare functions."""
    assert chain.ending is not None, chain
    read = [v for f, v in chain.ending.connections() if f.kind != "out"]
    ((_, y),) = chain.ending.written()
    expression = chain.ending.params.data["expr"]
    assert isinstance(expression, ExprAttr), expression
    if _elements(chain.product) != {f32}:
        return True
    dtypes = tuple(dtype_of(type_of(v).element) for v in read)
    return len(read) - 1 <= MOST and ending_tape(expression.data, dtypes, dtype_of(type_of(y).element)) is not None
