"""Offloading (`poplar-offload`): if a model exceeds its tiles, idle variables wait in memory outside of them."""

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
    FamilyOp,
    FuncOp,
    GraphOp,
    GridAttr,
    ParamOp,
    StorageOp,
    StreamInOp,
    StreamOutOp,
    TensorType,
    VarOp,
    ViewOp,
)
from populus.dialects.poplar.memory import storage_of, view_of
from populus.dialects.poplar.overlap import covered
from populus.dialects.support.diagnostics import PopulusError
from populus.dialects.support.walk import ops_of
from populus.lowering.poplar.allocate import highest, without_copies
from populus.lowering.poplar.keep_loaded import Load, keep_loaded
from populus.lowering.poplar.load_ahead import load_ahead
from populus.runtime.memory import Tenant, bytes_of, layout, temporary_bytes, tenants, usage

ROUNDS = 200  # rounds, each of which makes one overfull step fit
SAFE = 0.8  # share of a tile's memory: no allocation was seen to fail below it
SMALL = 1 / 1024  # share of a tile's memory: a smaller constant stays unless it must not
AIM = 0.95  # share of a tile's memory: an allocation may need this much more than the live bytes


@dataclass(frozen=True)
class PoplarOffloadPass(ModulePass):
    """Moves variables that the fullest step does not access to memory outside the tiles, the largest first.

    A constant is loaded before each step that reads it. A variable is stored after its last access and loaded
    before the next. Copies, calls and streams that only read it do so outside. Programs that fit stay unchanged.
    Replicated constants are spread first. `tile_bytes`: bytes of each tile, instead of the target's.

    A machine without memory outside is left alone. A program that still does not fit is left to `poplar-allocate`, which reports
    it. Raises PopulusError if `tile_bytes` is below 1. Bit for bit.
    """

    name = "poplar-offload"
    tile_bytes: int | None = None

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        if self.tile_bytes is not None and self.tile_bytes < 1:
            raise PopulusError(f"tile_bytes = {self.tile_bytes}; a tile has at least 1")
        for graph in op.body.block.ops:
            if isinstance(graph, GraphOp):
                machine = graph.machine
                if machine.mesh is not None and not machine.mesh.dram_size:
                    continue  # there is no memory outside
                offload(graph, self.tile_bytes or machine.room)


def offload(graph: GraphOp, room: int) -> None:
    """Makes the steps of a graph fit `room` bytes of a tile, if possible; what then is free keeps loaded constants, and loads ahead."""
    if _has_room(graph, room):
        return
    loads: list[Load] = []
    _make_room(graph, room, loads)
    keep_loaded(graph, loads, room)
    if loads:
        load_ahead(graph, room)


def _has_room(graph: GraphOp, room: int) -> bool:
    """Tells whether a graph fits even if all of its variables live throughout, beside the step that needs the most."""
    ops = ops_of(graph)
    storages = [op for op in ops if isinstance(op, StorageOp) and op.outside is None]
    if any(op.layout is None for op in storages):
        return False
    free = SAFE * room - sum(int(bytes_of(op).max(initial=0)) for op in storages)
    tiles = graph.machine.tiles
    return free >= 0 and all(int(temporary_bytes(op, tiles).max()) <= free for op in ops if isinstance(op, ExecuteOp))


def _make_room(graph: GraphOp, room: int, loads: list[Load]) -> None:
    """Moves variables outside until the steps of a graph fit, if possible. Records the loads of constants."""
    target, aim = graph.machine, room
    constants_first = target.mesh is not None
    for _ in range(ROUNDS):
        all_tenants, steps = tenants(graph)
        used = usage(all_tenants, steps, target)
        over = used.peak_bytes - aim
        if over <= 0:
            if used.peak_bytes <= SAFE * room or (top := highest(all_tenants, target)) <= room:
                return
            aim = min(aim, used.peak_bytes) - (top - room)  # an allocation has gaps
            over = used.peak_bytes - aim
        else:
            aim = int(AIM * room)
        if constants_first:  # what is stored and loaded costs twice, and may not return
            _all_outside(graph, room, loads)
            constants_first, aim = False, room
            continue
        if without_copies(all_tenants, target, over):
            continue
        before = steps[used.step :: -1]  # the fullest step, and the steps before it
        there = [t for t in all_tenants if isinstance(t.op, ConstOp | VarOp) and any(a <= used.step <= b for a, b in t.spans)]
        moved = False
        for tenant in sorted(there, key=lambda t: -t.on(used.tile, target.tiles)):
            bytes = tenant.on(used.tile, target.tiles)
            if over <= 0 or not bytes:
                break
            if _moved_out(tenant, before, loads):
                over, moved = over - bytes, True
        if not moved:
            return


def _all_outside(graph: GraphOp, room: int, loads: list[Load]) -> None:
    """Moves all constants outside that loads can bring, but small ones: which of them return is decided together."""
    for op in ops_of(graph):
        if isinstance(op, ConstOp) and op.outside is None and bytes_of(op).max(initial=0) >= SMALL * room:
            users = _users(op.result)
            if users and all(isinstance(user, ExecuteOp) for user, _ in users):
                _constant_out(op, users, loads)


def _constant_out(constant: ConstOp, users: Sequence[tuple[Operation, Operation]], loads: list[Load]) -> None:
    """Moves a constant outside, from where it is loaded before each execute that reads it. Other steps copy it, and can do so there."""
    grid = GridAttr(layout(constant))
    constant.grid, constant.outside = None, UnitAttr()
    for user in dict.fromkeys(user for user, _ in users):
        if isinstance(user, ExecuteOp):
            copy, var = _load(constant, grid, user, [inside for step, inside in users if step is user])
            loads.append(Load(constant, copy, var))


def _moved_out(tenant: Tenant, steps: Sequence[Operation], loads: list[Load]) -> bool:
    """Moves a constant or variable outside during a step; returns False if it cannot.

    `steps`: that step and the ones before it, the last first. `loads`: of constants, to which these are added.
    """
    storage = tenant.op
    assert isinstance(storage, StorageOp), storage
    users = _users(storage.result)
    if any(user is steps[0] for user, _ in users) or any(isinstance(user, ViewOp | ParamOp) for user, _ in users):
        return False
    if isinstance(storage, ConstOp):
        _constant_out(storage, users, loads)
        return True
    block = storage.parent
    if block is None or any(_ancestor(user, block) is None for user, _ in users):
        return False
    # A function's step runs where it is called: there, the call is the latest step of the block.
    here = next((op for step in steps if (op := _ancestor(step, block)) is not None), None)
    if here is None:
        return False
    order = {op: i for i, op in enumerate(block.ops)}
    touching = sorted({order[a] for user, _ in users if (a := _ancestor(user, block)) is not None})
    before = [i for i in touching if i < order[here]]
    after = [i for i in touching if i > order[here]]
    ops = list(block.ops)
    if not before or not after or order[here] in touching or all(_is_load(op) for op in ops[before[-1] + 1 : after[0]]):
        return False
    placed = [(order[a], inside) for user, inside in users if (a := _ancestor(user, block)) is not None]
    later = [(at, inside) for at, inside in placed if at >= after[0]]
    # Steps that only read access outside memory, until another step needs the variable on the tiles.
    needed = next((i for i in after if not all(_reads(op, storage) for at, op in later if at == i)), None)
    read = [op for at, op in later if needed is None or at < needed]
    seen = list(dict.fromkeys(v for op in read for v in op.operands if isinstance(v.type, TensorType) and storage_of(v) is storage))
    given = ops[before[0]]
    direct = len(before) == 1 and isinstance(given, StreamInOp)
    part = seen[0] if needed is None and len(seen) == 1 and not direct else storage.result
    assert isinstance(part.type, TensorType), part
    done = [inside for at, inside in placed if at <= before[-1]]
    parts = [part] if part is not storage.result or direct else _written(done, storage, block)
    away = VarOp(f"{storage.label.data} (outside)", part.type)
    store: Operation = given  # the last one
    away.outside = UnitAttr()
    away.location = storage.location
    if direct:  # the host's data goes there at once
        Rewriter.insert_op(away, InsertPoint.before(store))
        _instead([store], storage, away.result, away)
    else:
        Rewriter.insert_op(away, InsertPoint.after(ops[before[-1]]))
        own = _Same(storage, storage.result, away)
        sources = [own.of(v) for v in parts]
        there = _Same(storage, away.result, own.last)
        copies = [CopyOp(v, there.of(old) if part is storage.result else away.result) for v, old in zip(sources, parts)]
        for store in copies:
            store.location = storage.location
        Rewriter.insert_op(copies, InsertPoint.after(there.last))
    if part is storage.result:
        _instead(read, storage, away.result, store)
    else:  # all that is read is stored, and no more
        for op in read:
            op.operands = [away.result if v is part else v for v in op.operands]
    if needed is not None:
        assert storage.grid is not None, storage
        _load(away, storage.grid, ops[needed], [op for at, op in later if at >= needed], storage, parts)
    return True


def _written(steps: Sequence[Operation], storage: StorageOp, block: Block) -> list[SSAValue]:
    """Lists views of a variable that steps have written: the variable itself if they have all of it, or are inside of other steps."""
    found: dict[SSAValue, None] = {}
    for op in steps:
        match op:
            case FamilyOp():
                values = [v for f, v in op.connections() if f.kind != "in"]
            case CopyOp() | StreamInOp():
                values = [op.dst]
            case CallOp():
                values = [v for parameter, v in op.bindings() if parameter.written]
            case _:
                values = []
        found.update((v, None) for v in values if storage_of(v) is storage)
    whole = view_of(storage.result)
    seen = all(isinstance(v.owner, Operation) and v.owner.parent is block for v in found)
    return list(found) if found and seen and not covered(whole, map(view_of, found)) else [storage.result]


def _is_load(op: Operation) -> bool:
    """Tells whether an op is part of a load, in which memory for the next step fills: what that step accesses is there with it."""
    return isinstance(op, StorageOp | ViewOp) or (isinstance(op, CopyOp) and storage_of(op.src).outside is not None)


def _reads(op: Operation, storage: StorageOp) -> bool:
    """Tells whether a step only copies a variable elsewhere: to a function's parameter, a variable, or the host."""
    mine = [i for i, v in enumerate(op.operands) if isinstance(v.type, TensorType) and storage_of(v) is storage]
    if isinstance(op, CallOp):
        kinds = [parameter for parameter, _ in op.bindings()]
        return all(not kinds[i].written for i in mine)
    return isinstance(op, StreamOutOp) or (isinstance(op, CopyOp) and mine == [0])


def _load(
    source: StorageOp,
    grid: GridAttr,
    step: Operation,
    users: list[Operation],
    storage: StorageOp | None = None,
    parts: Sequence[SSAValue] = (),
) -> tuple[CopyOp, VarOp]:
    """Copies outside memory to a variable before a step; `users` then use this instead of `storage` or the source.

    `parts`: views of `storage` that show what there is to load, by default all.
    """
    old = storage or source
    var = VarOp(source.label.data.removesuffix(" (outside)") + " (loaded)", source.type, grid.data)
    var.location = source.location
    Rewriter.insert_op(var, InsertPoint.before(step))
    away, here = _Same(old, source.result, var), _Same(old, var.result, var)
    copies = [CopyOp(away.of(v), here.of(v)) for v in parts or [old.result]]
    for copy in copies:
        copy.location = source.location
    Rewriter.insert_op(copies, InsertPoint.before(step))
    _instead(users, old, var.result, copies[-1])
    return copies[0], var


class _Same:
    """Views of another variable that show what the views of one do, inserted after an op."""

    def __init__(self, storage: StorageOp, new: SSAValue, after: Operation):
        self.made: dict[SSAValue, SSAValue] = {storage.result: new}
        self.last = after

    def of(self, value: SSAValue) -> SSAValue:
        """Returns the same view of the other variable."""
        if value not in self.made:
            view = value.owner
            assert isinstance(view, ViewOp), view
            inner = self.of(view.x)
            same = view.clone()
            same.operands = [inner, *list(same.operands)[1:]]
            Rewriter.insert_op(same, InsertPoint.after(self.last))
            self.made[value], self.last = same.y, same
        return self.made[value]


def _instead(users: Sequence[Operation], storage: StorageOp, new: SSAValue, after: Operation) -> None:
    """Redirects uses of a variable's views to the same views of another, inserted after an op."""
    same = _Same(storage, new, after)
    for user in users:
        for i, operand in enumerate(user.operands):
            if isinstance(operand.type, TensorType) and storage_of(operand) is storage:
                user.operands[i] = same.of(operand)


def _users(value: SSAValue) -> list[tuple[Operation, Operation]]:
    """Lists the steps that access a variable through views, each with the op that has it as an operand: a family, or
    the step.
    """
    users: dict[tuple[Operation, Operation], None] = {}
    for use in value.uses:
        user = use.operation
        if isinstance(user, ViewOp):
            users.update(dict.fromkeys(_users(user.y)))
        else:
            parent = user.parent_op()
            users[(parent if isinstance(parent, ExecuteOp) else user, user)] = None
    return list(users)


def _ancestor(op: Operation, block: Block) -> Operation | None:
    """Returns the op of a block that is, or contains, `op`; None if there is none, or if it is a function."""
    inner: Operation | None = op
    while inner is not None and inner.parent is not block:
        inner = inner.parent_op()
    return None if isinstance(inner, FuncOp) else inner
