"""A model that is too big for its tiles: what is not needed for a while waits in memory outside of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp, UnitAttr
from xdsl.ir import Block, Operation, SSAValue
from xdsl.passes import ModulePass
from xdsl.rewriter import InsertPoint, Rewriter

from populus.dialects.poplar import (
    CallOp,
    ConstOp,
    CopyOp,
    ExecuteOp,
    FuncOp,
    GraphOp,
    GridAttr,
    ParamOp,
    StorageOp,
    StreamOutOp,
    TensorType,
    VarOp,
    ViewOp,
)
from populus.dialects.poplar.memory import storage_of
from populus.dialects.support.diagnostics import PopulusError
from populus.lowering.poplar.allocate import highest, without_copies
from populus.runtime.memory import Tenant, layout, tenants, usage

ROUNDS = 200  # in each of which one step that was too full has room
SAFE = 0.8  # of a tile's memory, up to which no allocation was seen to fail
AIM = 0.95  # of a tile's memory: what an allocation may need beyond what is alive


@dataclass(frozen=True)
class PoplarOffloadPass(ModulePass):
    """Where more is alive than a tile holds, moves what the fullest step does not need to memory outside the tiles.

    A constant is loaded before each step that reads it; a variable is stored behind the last step that touched it and loaded
    before the next; copies, calls and streams that only read do so outside. The largest first. Programs that fit stay as
    they are; `tile_bytes`: of each tile, instead of the target's. Constants that lie on several tiles are spread before that.
    What does not fit even so `poplar-allocate` says.
    """

    name = "poplar-offload"
    tile_bytes: int | None = None

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        if self.tile_bytes is not None and self.tile_bytes < 1:
            raise PopulusError(f"tile_bytes = {self.tile_bytes}; a tile has at least 1")
        for graph in op.body.block.ops:
            if isinstance(graph, GraphOp):
                machine = graph.machine
                offload(graph, self.tile_bytes or machine.tile_bytes - machine.reserved_bytes)


def offload(graph: GraphOp, room: int) -> None:
    """Makes the steps of a graph fit `room` bytes of a tile, as far as that can be."""
    target, aim = graph.machine, room
    for _ in range(ROUNDS):
        found, steps = tenants(graph)
        used = usage(found, steps, target)
        over = used.peak_bytes - aim
        if over <= 0:
            if used.peak_bytes <= SAFE * room or (top := highest(found, target)) <= room:
                return
            aim = min(aim, used.peak_bytes) - (top - room)  # an allocation has gaps
            over = used.peak_bytes - aim
        else:
            aim = int(AIM * room)
        if without_copies(found, target, over):
            continue
        before = steps[used.step :: -1]  # the fullest step, and those before it
        there = [t for t in found if isinstance(t.op, ConstOp | VarOp) and any(a <= used.step <= b for a, b in t.spans)]
        moved = False
        for tenant in sorted(there, key=lambda t: -t.on(used.tile, target.tiles)):
            bytes = tenant.on(used.tile, target.tiles)
            if over <= 0 or not bytes:
                break
            if _moved_out(tenant, before):
                over, moved = over - bytes, True
        if not moved:
            return


def _moved_out(tenant: Tenant, steps: Sequence[Operation]) -> bool:
    """Whether a constant or variable could be moved outside during a step. `steps`: that one, and those before it, the last first."""
    storage = tenant.op
    assert isinstance(storage, StorageOp), storage
    users = _users(storage.result)
    if any(user is steps[0] for user, _ in users) or any(isinstance(user, ViewOp | ParamOp) for user, _ in users):
        return False
    if isinstance(storage, ConstOp):
        grid = GridAttr(layout(storage))
        storage.grid, storage.outside = None, UnitAttr()
        for user in dict.fromkeys(user for user, _ in users):
            if isinstance(user, ExecuteOp):  # any other step is a copy, which reaches outside
                _load(storage, grid, user, [inside for step, inside in users if step is user])
        return True
    block = storage.parent
    if block is None or any(_ancestor(user, block) is None for user, _ in users):
        return False
    # A step of a function runs where it is called: there the call is the latest step of the block.
    here = next((op for step in steps if (op := _ancestor(step, block)) is not None), None)
    if here is None:
        return False
    order = {op: i for i, op in enumerate(block.ops)}
    touching = sorted({order[a] for user, _ in users if (a := _ancestor(user, block)) is not None})
    before = [i for i in touching if i < order[here]]
    behind = [i for i in touching if i > order[here]]
    if not before or not behind or order[here] in touching:
        return False
    ops = list(block.ops)
    away = VarOp(f"{storage.label.data} (outside)", storage.type)
    away.outside = UnitAttr()
    store = CopyOp(storage.result, away.result)
    for op in (away, store):
        op.location = storage.location
    Rewriter.insert_op([away, store], InsertPoint.after(ops[before[-1]]))
    later = [(order[a], inside) for user, inside in users if (a := _ancestor(user, block)) is not None and order[a] >= behind[0]]
    # What only reads reaches outside by itself, until something else needs the variable on the tiles.
    needed = next((i for i in behind if not all(_reads(op, storage) for at, op in later if at == i)), None)
    _instead([op for at, op in later if needed is None or at < needed], storage, away.result, store)
    if needed is not None:
        assert storage.grid is not None, storage
        _load(away, storage.grid, ops[needed], [op for at, op in later if at >= needed], storage)
    return True


def _reads(op: Operation, storage: StorageOp) -> bool:
    """Whether a step only copies what is in a variable to somewhere else: to a function's parameter, a variable, the host."""
    mine = [i for i, v in enumerate(op.operands) if isinstance(v.type, TensorType) and storage_of(v) is storage]
    if isinstance(op, CallOp):
        kinds = [parameter for parameter, _ in op.bindings()]
        return all(not kinds[i].written for i in mine)
    return isinstance(op, StreamOutOp) or (isinstance(op, CopyOp) and mine == [0])


def _load(source: StorageOp, grid: GridAttr, step: Operation, users: list[Operation], storage: StorageOp | None = None) -> None:
    """Before a step, a copy of what is outside in a variable; `users` then use that instead of `storage` (or the source itself)."""
    var = VarOp(source.label.data.removesuffix(" (outside)") + " (loaded)", source.type, grid.data)
    copy = CopyOp(source.result, var.result)
    for op in (var, copy):
        op.location = source.location
    Rewriter.insert_op([var, copy], InsertPoint.before(step))
    _instead(users, storage or source, var.result, copy)


def _instead(users: Sequence[Operation], storage: StorageOp, new: SSAValue, behind: Operation) -> None:
    """Users of a variable's views see the same views of another, which are made behind an op."""
    made: dict[SSAValue, SSAValue] = {storage.result: new}
    last = behind

    def seen(value: SSAValue) -> SSAValue:
        nonlocal last
        if value not in made:
            view = value.owner
            assert isinstance(view, ViewOp), view
            inner = seen(view.x)
            same = view.clone()
            same.operands = [inner, *list(same.operands)[1:]]
            Rewriter.insert_op(same, InsertPoint.after(last))
            made[value], last = same.y, same
        return made[value]

    for user in users:
        for i, operand in enumerate(user.operands):
            if isinstance(operand.type, TensorType) and storage_of(operand) is storage:
                user.operands[i] = seen(operand)


def _users(value: SSAValue) -> list[tuple[Operation, Operation]]:
    """The steps that touch a variable through whatever views, and in each what has it as an operand: a family, or the step."""
    found: dict[tuple[Operation, Operation], None] = {}
    for use in value.uses:
        user = use.operation
        if isinstance(user, ViewOp):
            found.update(dict.fromkeys(_users(user.y)))
        else:
            parent = user.parent_op()
            found[(parent if isinstance(parent, ExecuteOp) else user, user)] = None
    return list(found)


def _ancestor(op: Operation, block: Block) -> Operation | None:
    """The op of a block that holds `op`, or is it; None for an op elsewhere, or of a function that stands in the block."""
    inner: Operation | None = op
    while inner is not None and inner.parent is not block:
        inner = inner.parent_op()
    return None if isinstance(inner, FuncOp) else inner
