"""Tile builder: emits views of operands, variables and layouts, families and copies for the rules of a `*-to-poplar`
pass.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import TypeAlias

from xdsl.dialects.builtin import AnyFloat, FloatAttr, IntegerAttr, NameLoc, UnrealizedConversionCastOp, i64
from xdsl.dialects.builtin import TensorType as BuiltinTensorType
from xdsl.ir import Attribute, Block, Operation, OpResult, SSAValue, Use
from xdsl.rewriter import InsertPoint, Rewriter

from populus.dialects.data import block_format
from populus.dialects.expr import Expr, ExprAttr
from populus.dialects.poplar import (
    BroadcastOp,
    CallOp,
    CopyOp,
    DimShuffleOp,
    ExecuteOp,
    FamilyOp,
    Field,
    ParamOp,
    RepeatOp,
    ReshapeOp,
    SliceOp,
    StorageOp,
    StreamInOp,
    StreamOutOp,
    TensorType,
    VarOp,
    ViewOp,
    WhileOp,
)
from populus.dialects.poplar.memory import root_of, type_of, view_of
from populus.dialects.poplar.overlap import disjoint
from populus.dialects.poplar.partition import Access, Domain, Grid, Split, along, linear
from populus.dialects.poplar.target import Target
from populus.dialects.poplar.view import View
from populus.dialects.support.diagnostics import PopulusError, place, where
from populus.dialects.support.element_types import element_type_of, shape_of, tensor

Connection: TypeAlias = "tuple[str, str, SSAValue, Sequence[Access]]"  # kind, field, view, access


def poplar_type(type: Attribute) -> TensorType:
    """Returns the tile-level type of a tensor type."""
    return TensorType.of(shape_of(type), element_type_of(type), block_format(type))


def label_of(op: Operation) -> str:
    """Returns an op's name in the model."""
    location = op.location
    if isinstance(location, NameLoc):
        return location.desc.data
    return place(location) or op.name


class TileBuilder:
    """Builder for a rule: emits before the op that is being lowered, at its location."""

    def __init__(self, target: Target, position: Mapping[Operation, int] | None = None):
        self.target = target
        self._op: Operation | None = None
        self._place: Operation | None = None  # insertion point of new ops
        self._position = position or {}
        self._readers: dict[SSAValue, Operation | None] = {}  # the last reader of a root
        self._past: dict[SSAValue, Use] = {}  # the latest use of a view that, with all before it, no later step reads through
        self._new: set[Operation] = set()  # ops of the rule that is running, which may yet use them
        self._carried: dict[VarOp, Operation] = {}  # variables that a loop overwrites before each iteration
        self._ends: dict[Operation, Callable[[], None]] = {}

    def at(self, op: Operation) -> None:
        """Sets the insertion point before `op`, with its location."""
        self._op = self._place = op
        self._new.clear()

    @property
    def op(self) -> Operation:
        """The op that is being lowered."""
        assert self._op is not None
        return self._op

    @property
    def label(self) -> str:
        """The op's name in the model."""
        return label_of(self.op)

    @contextmanager
    def inside(self, block: Block) -> Generator[None, None, None]:
        """Sets the insertion point to the start of a block inside the context, with the same location."""
        assert block.first_op is not None
        self._place = block.first_op
        try:
            yield
        finally:
            self._place = self.op

    def insert(self, op: Operation, before: Operation | None = None) -> None:
        """Inserts an op at the insertion point, or before another op, with the current location."""
        op.location = self.op.location
        self._new.add(op)
        Rewriter.insert_op(op, InsertPoint.before(before or self._place or self.op))

    # -- tensors and views

    def view(self, tensor: SSAValue) -> SSAValue:
        """Returns the view that holds a tensor; a cast, if its producer is not lowered yet."""
        owner = tensor.owner
        if isinstance(owner, UnrealizedConversionCastOp):
            return owner.inputs[0]
        cast = UnrealizedConversionCastOp.create(operands=[tensor], result_types=[poplar_type(tensor.type)])
        self.insert(cast)
        return cast.outputs[0]

    def tensor(self, view: SSAValue) -> SSAValue:
        """Returns the tensor that a view holds. A tensor stays as it is."""
        if isinstance(view.type, BuiltinTensorType):
            return view
        assert isinstance(view.type, TensorType), view.type
        cast = UnrealizedConversionCastOp.create(operands=[view], result_types=[tensor(view.type.shape, view.type.element)])
        self.insert(cast)
        return cast.outputs[0]

    def var(self, shape: Sequence[int], element: Attribute, grid: Grid | None = None, suffix: str = "", block: str = "") -> SSAValue:
        """Makes a variable; without a grid, `poplar-map` chooses one. Raises PopulusError if the target cannot hold
        `element`. `block`: the block format of copied constants.
        """
        if not self.target.holds(element):
            raise PopulusError(f"{where(self.op)}: {self.op.name} makes {element}, which target {self.target.name} cannot hold")
        op = VarOp(self.label + suffix, TensorType.of(shape, element, block), grid)
        self.insert(op)
        return op.result

    def slice(self, x: SSAValue, begins: Sequence[int], ends: Sequence[int], steps: Sequence[int]) -> SSAValue:
        """Makes a view from `begins` to `ends` by `steps`, one of each for each dimension."""
        shape = _shape(x)
        if list(begins) == [0] * len(shape) and tuple(ends) == shape and all(s == 1 for s in steps):
            return x
        return self._view(SliceOp(x, begins, ends, steps))

    def dim_shuffle(self, x: SSAValue, permutation: Sequence[int]) -> SSAValue:
        """Makes a view with permuted dimensions."""
        return x if list(permutation) == list(range(len(permutation))) else self._view(DimShuffleOp(x, permutation))

    def broadcast(self, x: SSAValue, shape: Sequence[int]) -> SSAValue:
        """Makes a view that repeats dimensions of 1, and adds leading ones, up to `shape`."""
        return x if _shape(x) == tuple(shape) else self._view(BroadcastOp(x, shape))

    def reshape(self, x: SSAValue, shape: Sequence[int]) -> SSAValue:
        """Returns x with another shape: a view if strides can express it, else a copy."""
        shape = tuple(shape)
        while isinstance(x.owner, ReshapeOp) and _shape(x) != shape and view_of(x.owner.x).reshape(shape) is not None:
            x = x.owner.x
        if _shape(x) == shape:
            return x
        if view_of(x).reshape(shape) is not None:
            return self._view(ReshapeOp(x, shape))
        return self._view(ReshapeOp(self.copied(x), shape))

    def _view(self, op: ViewOp) -> SSAValue:
        self.insert(op)
        return op.y

    def copied(self, x: SSAValue) -> SSAValue:
        """Copies x to a new variable."""
        shape = _shape(x)
        grid = self.layout_of(x) or self.linear(shape, _element(x))
        y = self.var(shape, _element(x), grid, ".copy", type_of(x).block)
        self.copy(x, y)
        return y

    # -- layouts

    def linear(self, shape: Sequence[int], element: Attribute) -> Grid:
        """Makes a linear grid over all tiles."""
        return linear(tuple(shape), self.target.tiles, self.target.grain(element))

    def layout_of(self, x: SSAValue) -> Grid | None:
        """Returns the grid of a view's variable in the view's dimensions; None if it cannot be expressed, or does
        not exist yet.
        """
        owner = root_of(x).owner
        grid = owner.layout if isinstance(owner, StorageOp) else None
        if grid is None or grid.copies > 1:
            return None
        view = view_of(x)
        accesses = view.through([along(str(d)) for d in range(len(view.shape))])
        if accesses is None:
            return None
        splits = [Split(n) for n in view.shape]
        dimension: dict[int, int] = {}  # dimension of the variable -> dimension of the view
        for d, (access, split) in enumerate(zip(accesses, grid.splits)):
            if split.parts == 1:
                continue
            if len(access.terms) != 1 or access.offset or access.terms[0][1] != 1:
                return None
            shown = int(access.terms[0][0])
            if view.shape[shown] != split.n:
                return None
            splits[shown] = split
            dimension[d] = shown
        return Grid(tuple(splits), tuple(dimension[d] for d in grid.order if d in dimension), grid.start)

    # -- steps

    def copy(self, src: SSAValue, dst: SSAValue) -> None:
        """Copies `src` to `dst`, through a temporary variable if they may overlap."""
        if 0 in _shape(src):
            return
        if root_of(src) is root_of(dst) and not disjoint(view_of(src), view_of(dst)):
            src = self.copied(src)
        self.insert(CopyOp(src, dst))

    def execute(
        self, codelet: str, domain: Domain, fields: Sequence[Connection], params: dict[str, Attribute] | None = None, suffix: str = ""
    ) -> FamilyOp | None:
        """Emits a superstep of one family. Returns None, without a step, if a parallel axis is empty."""
        family = FamilyOp(codelet, domain, [(Field(kind, name, tuple(access)), view) for kind, name, view, access in fields], params)
        family.location = self.op.location
        if any(s.n == 0 for a, s in domain.axes if not family.declaration.is_contracted(a)):
            return None
        self.insert(ExecuteOp(self.label + suffix, [family]))
        return family

    def fill(self, y: SSAValue, value: Attribute | None = None) -> None:
        """Fills y with a value, zero by default."""
        shape, element = _shape(y), _element(y)
        if value is None:
            value = FloatAttr(0.0, element) if isinstance(element, AnyFloat) else IntegerAttr(0, i64)
        names = [f"d{i}" for i in range(len(shape))]
        grid = self.layout_of(y) or self.linear(shape, element)
        domain = Domain(tuple(zip(names, grid.splits)), tuple(names[d] for d in grid.order), grid.start)
        self.execute("fill", domain, [("out", "y", y, list(map(along, names)))], {"value": value}, ".fill")

    def scalar(self, e: Expr, y: SSAValue, inputs: Sequence[SSAValue]) -> None:
        """Emits `y = e` of single elements; y may be an input."""
        fields: list[Connection] = [("inout" if x is y else "in", f"x{i}", x, []) for i, x in enumerate(inputs, 1)]
        fields += [] if any(x is y for x in inputs) else [("out", "y", y, [])]
        self.execute("map", Domain((), ()), fields, {"expr": ExprAttr(e)})

    # -- memory that can be used again

    def overwritable(self, x: SSAValue) -> bool:
        """Tells whether the op being lowered may overwrite x: a variable of the program without later reads.

        Input streams, constants and values of unlowered ops are never overwritten. In a loop, neither is a value
        that the next iteration reads again.
        """
        root = root_of(x)
        variable = root.owner
        if not isinstance(variable, VarOp) or view_of(x).repeats:
            return False
        here = loop_around(self.op)
        if self._carried.get(variable) is here is not None:
            return self._reader(root, here) is None
        return loop_around(variable) is here and not self._needed(root)

    def _needed(self, root: SSAValue) -> bool:
        """Tells whether a later step reads this memory, or the host wrote it. The last that is found is kept, until it has been lowered."""
        known = self._readers.get(root)
        if known is None or self._when(known) <= self._position[self.op]:
            known = self._readers[root] = self._reader(root)
        return known is not None

    def _when(self, step: Operation) -> float:
        """Returns a step's place in the order of lowering: none, -1, for those that this pass emitted, and the end for streams."""
        return math.inf if isinstance(step, StreamInOp | StreamOutOp) else self._position.get(step, -1)

    def _reader(self, view: SSAValue, within: Operation | None = None) -> Operation | None:
        """Finds the last later step that reads this memory, or the stream of the host that wrote it; None if there is none.

        `within`: ops outside of it do not count. Uses are listed with the latest first. The earliest, which are past, are not
        asked again: else each step of a chain in place would ask about all before it.
        """
        last, begun, past = None, self._past.get(view), None
        for use in view.uses:
            if use is begun:
                break
            found, over = self._read_by(use.operation, within)
            past = (past or use) if over else None
            if found is not None and (last is None or self._when(found) > self._when(last)):
                last = found
        if past is not None:
            self._past[view] = past
        return last

    def _read_by(self, user: Operation, within: Operation | None) -> tuple[Operation | None, bool]:
        """Finds the last later step that reads memory through one user of it, and tells whether no later step ever will."""
        if within is not None and not within.is_ancestor(user):
            return None, False
        if isinstance(user, ViewOp):
            found = self._reader(user.y, within)
            return found, user not in self._new and user.y.first_use is self._past.get(user.y)
        if isinstance(user, UnrealizedConversionCastOp):
            readers = user.outputs[0].uses
            others = (u.operation for u in readers if u.operation is not self.op)
            return max(others, key=self._when, default=None), user not in self._new and not readers
        step = user.parent_op() if isinstance(user, FamilyOp) else user
        # Ops emitted by this pass have no position: they run before the op being lowered.
        when = -1 if step is None else self._when(step)
        return (step if when > self._position[self.op] else None), step is not None and when < self._position[self.op]

    # -- programs inside programs

    def carry(self, variable: SSAValue, loop: Operation) -> None:
        """Lets ops in this loop overwrite the variable, because each iteration leaves in it the value for the next."""
        assert isinstance(variable.owner, VarOp), variable
        self._carried[variable.owner] = loop

    def at_end(self, end: Operation, emit: Callable[[], None]) -> None:
        """Registers `emit`, to be called when the end of a region is reached."""
        self._ends[end] = emit

    def ended(self) -> None:
        """Calls the registered functions; the op being lowered is the end of a region."""
        self._ends.pop(self.op)()

    def first(self, shape: Sequence[int], element: Attribute, grid: Grid) -> OpResult:
        """Makes a variable at the top of the graph, so that it dominates earlier results that move into it."""
        op = VarOp(self.label, TensorType.of(shape, element), grid)
        block = self.op.parent
        assert block is not None
        self.insert(op, next(inner for inner in block.ops if not isinstance(inner, ParamOp)))
        return op.result

    def move(self, x: SSAValue, home: SSAValue, begins: Sequence[int] | None = None, outwards: bool = False) -> bool:
        """Replaces the variable of view x by `home`, a variable at the top of the graph; its readers and writers use
        `home`.

        `begins`: x becomes the slice of `home` from these indices on; without it, all of `home` in another shape.
        `outwards`: `home` may be outside the region that has the variable.

        Returns False, with nothing changed, if x is not a whole variable of the program, or strides cannot
        express the views.
        """
        root = root_of(x)
        variable = root.owner
        if not isinstance(variable, VarOp) or root is home or any(isinstance(u.operation, StreamInOp) for u in root.uses):
            return False
        assert isinstance(home.owner, Operation), home
        if variable.parent is not home.owner.parent and not outwards:
            return False  # the home's live range is longer, or it is filled more often
        seen = view_of(x)
        if seen.repeats or math.prod(seen.shape) != math.prod(seen.base):
            return False
        chain: list[ViewOp] = []
        value = x
        while isinstance(value.owner, ViewOp):
            chain.append(value.owner)
            value = value.owner.x
        if any(not isinstance(view, DimShuffleOp | ReshapeOp) for view in chain):
            return False
        shape = _shape(x)
        whole = View.whole(_shape(home))
        if begins is not None:
            view = whole.slice(begins, [b + n for b, n in zip(begins, shape)], [1] * len(shape))
        else:
            view = whole.reshape(shape)
            assert view is not None, (whole, shape)
        for step in chain:  # views to undo, the outermost first
            undone = view.dim_shuffle(_inverse(step)) if isinstance(step, DimShuffleOp) else view.reshape(_shape(step.x))
            if undone is None:
                return False
            view = undone
        if not _still_valid(root, view, home):
            return False
        op, place = self.op, self._place
        self._op = self._place = variable
        if begins is not None:
            target = self.slice(home, begins, [b + n for b, n in zip(begins, shape)], [1] * len(shape))
        else:
            target = self.reshape(home, shape)
        for step in chain:
            target = self.dim_shuffle(target, _inverse(step)) if isinstance(step, DimShuffleOp) else self.reshape(target, _shape(step.x))
        self._op, self._place = op, place
        root.replace_all_uses_with(target)
        Rewriter.erase_op(variable)
        return True


def loop_around(op: Operation) -> Operation | None:
    """Returns the innermost loop that contains an op."""
    parent = op.parent_op()
    while parent is not None and not isinstance(parent, RepeatOp | WhileOp):
        parent = parent.parent_op()
    return parent


def _still_valid(root: SSAValue, view: View, home: SSAValue) -> bool:
    """Tells whether a variable may be `view` of `home`.

    Strides must express all its views, and no step may write elements that overlap its other operands.
    """
    shown: dict[Operation, dict[int, View]] = {}

    def visit(value: SSAValue, view: View) -> bool:
        """Checks a view and the views of it."""
        for use in value.uses:
            if isinstance(use.operation, ViewOp):
                inner = use.operation.apply(view)
                if inner is None or not visit(use.operation.y, inner):
                    return False
            elif isinstance(use.operation, FamilyOp | CopyOp | CallOp):
                if isinstance(use.operation, CallOp) and not view.is_contiguous:
                    return False
                shown.setdefault(use.operation, {})[use.index] = view
        return True

    return visit(root, view) and all(_apart(step, views, home) for step, views in shown.items())


def _apart(step: Operation, moved: Mapping[int, View], home: SSAValue) -> bool:
    """Tells whether a step's writes to `home` are disjoint from, or equal to, its other operands there.

    `moved`: the future views of its operands, by operand number.
    """
    views = {i: view_of(o) for i, o in enumerate(step.operands) if root_of(o) is home} | dict(moved)
    match step:
        case FamilyOp():
            written = {i for i, f in enumerate(step.fields.data) if f.kind != "in"}
        case CallOp():
            written = {i for i, (parameter, _) in enumerate(step.bindings()) if parameter.written}
        case _:
            written = {1}
    return all(i == j or views[i] == views[j] or disjoint(views[i], views[j]) for i in written & views.keys() for j in views)


def _inverse(op: DimShuffleOp) -> list[int]:
    permutation = [int(p) for p in op.permutation.get_values()]
    return [permutation.index(d) for d in range(len(permutation))]


def _shape(x: SSAValue) -> tuple[int, ...]:
    assert isinstance(x.type, TensorType), x.type
    return x.type.shape


def _element(x: SSAValue) -> Attribute:
    assert isinstance(x.type, TensorType), x.type
    return x.type.element
