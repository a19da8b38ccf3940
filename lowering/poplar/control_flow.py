"""Control flow on tiles: branches and loops carry values in variables, and access table rows by number.

A region is lowered in place, between the step that enters it and the ops at its end.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from xdsl.dialects.builtin import UnrealizedConversionCastOp, i1, i32
from xdsl.ir import Attribute, Block, Operation, Region, SSAValue

from populus.dialects.base.control_flow import Branch, Loop, Yield
from populus.dialects.expr import Arg
from populus.dialects.poplar.memory import StorageOp, VarOp, ViewOp, root_of, view_of
from populus.dialects.poplar.partition import ALL, Domain, Grid, Split, along
from populus.dialects.poplar.program import IfOp, RepeatOp, WhileOp
from populus.dialects.poplar.types import TensorType
from populus.dialects.support.element_types import element_type_of, shape_of
from populus.lowering.poplar.tile_builder import Connection, TileBuilder


def branch(op: Branch, t: TileBuilder) -> Sequence[SSAValue]:
    """Lowers a branch; both regions write the variables of the results."""
    homes = [t.var(shape_of(r.type), element_type_of(r.type)) for r in op.results]
    condition = t.view(op.condition)
    regions = [_moved(region) for region in (op.then, op.otherwise)]
    for region in regions:
        end = _end(region.block)
        t.at_end(end, lambda end=end: _leave(t, end, list(zip(end.operands, homes))))
    t.insert(IfOp(condition, *regions))
    return homes


def loop(op: Loop, t: TileBuilder) -> Sequence[SSAValue]:
    """Lowers a loop to a `repeat`, or to a `while` with a flag.

    Carried values are in variables, written before the loop and at the end of each iteration.
    """
    most, states = op.most, [t.var(shape_of(v.type), element_type_of(v.type)) for v in op.carried]
    for value, state in zip(op.carried, states):
        t.copy(t.view(value), state)
    tables = [_table(t, table, row) for table, row in zip(op.tables, op.rows)]
    collected = [_rows(t, r) for r in op.results[len(states) :]]
    index = _counter(t) if op.index.uses or tables or collected or (op.go and most is not None) else None
    flag = None
    if op.go is not None:
        flag = t.var((), i1, suffix=".go")
        t.copy(t.view(op.go), flag)
    block, end = op.body.block, _end(op.body.block)
    region = _moved(op.body)
    if flag is None:
        assert most is not None, op
        made: Operation = RepeatOp(most, region)
    else:
        made = WhileOp(flag, Region(), region, most)
    t.insert(made)
    for state in states:
        t.carry(state, made)
    _enter(t, block, index, states, tables)

    def leave() -> None:
        """Writes the flag, the carried variables and the table rows at the end of an iteration."""
        values, homes = list(end.operands), list(states)
        going = values.pop(0) if flag is not None else None
        for value, rows in zip(values[len(states) :], collected):
            assert index is not None
            _write_row(t, rows, index, t.view(value))
        if flag is not None and going is not None:
            if most is None:
                values, homes = [*values, going], [*homes, flag]
            else:
                assert index is not None
                t.scalar(Arg(1) & (Arg(2) < most - 1), flag, [t.view(going), index])
        _leave(t, end, list(zip(values, homes)))
        if index is not None:
            t.scalar(Arg(1) + 1, index, [index])

    t.at_end(end, leave)
    return [*states, *collected]


def end_of_region(op: Yield, t: TileBuilder) -> Sequence[SSAValue]:
    """Writes the results of a region at its end, and erases the yield."""
    t.ended()
    return []


def _end(block: Block) -> Yield:
    end = block.last_op
    assert isinstance(end, Yield), end
    return end


def _moved(region: Region) -> Region:
    """Moves the blocks of a region to a new one, so that its op can be erased."""
    new = Region()
    region.move_blocks(new)
    return new


def _enter(t: TileBuilder, block: Block, index: SSAValue | None, states: Sequence[SSAValue], tables: Sequence[SSAValue]) -> None:
    """Replaces a loop region's arguments: by views of variables, and by rows read when the iteration begins."""
    with t.inside(block):
        for argument, view in zip(block.args, [index, *states]):
            if argument.uses:
                assert view is not None
                argument.replace_all_uses_with(t.tensor(view))
        for argument, table in zip(block.args[1 + len(states) :], tables):
            if argument.uses:
                assert index is not None
                argument.replace_all_uses_with(t.tensor(_read_row(t, table, index)))
    while block.args:
        block.erase_arg(block.args[-1])


def _leave(t: TileBuilder, end: Yield, moves: Sequence[tuple[SSAValue, SSAValue]]) -> None:
    """Writes a region's results to variables as one parallel assignment: a value that another move reads is saved
    first.
    """
    homes = {root_of(home) for _, home in moves}
    views = [t.view(value) for value, _ in moves]
    for i, (view, (_, home)) in enumerate(zip(views, moves)):
        if root_of(view) not in homes and all(root_of(other) is not root_of(view) for j, other in enumerate(views) if j != i):
            _settle(t, end, view, home)
    views = [t.view(value) for value, _ in moves]
    views = [t.copied(v) if root_of(v) in homes and not _same(v, home) else v for v, (_, home) in zip(views, moves)]
    for view, (_, home) in zip(views, moves):
        if not _same(view, home):
            t.copy(view, home)


def _same(view: SSAValue, home: SSAValue) -> bool:
    return root_of(view) is root_of(home) and view_of(view) == view_of(home)


def _settle(t: TileBuilder, end: Yield, view: SSAValue, home: SSAValue) -> None:
    """Makes a value's producer write to `home` directly, if it is in this region and runs after the last read of
    `home`.
    """
    root, block = root_of(view), end.parent
    assert block is not None
    if not isinstance(root.owner, VarOp) or root.owner.parent is not block:
        return
    order = {op: i for i, op in enumerate(block.ops)}
    reads = [i for op in _steps(home) if (i := _place(op, block, order)) is not None]
    made = [i for op in _steps(root) if (i := _place(op, block, order)) is not None]
    if max(reads, default=-1) < min(made, default=len(order)):
        t.move(view, home, outwards=True)


def _steps(value: SSAValue) -> Iterable[Operation]:
    """Yields the ops that read or write a variable, through views and the casts of unlowered ops."""
    for use in value.uses:
        user = use.operation
        if isinstance(user, ViewOp):
            yield from _steps(user.y)
        elif isinstance(user, UnrealizedConversionCastOp):
            yield from _steps(user.outputs[0])
        else:
            yield user


def _place(op: Operation, block: Block, order: dict[Operation, int]) -> int | None:
    """Returns the position in a block of the op that contains `op`; None if it is outside the block."""
    holder: Operation | None = op
    while holder is not None and holder.parent is not block:
        holder = holder.parent_op()
    return None if holder is None else order[holder]


# -- rows of tables ----------------------------------------------------------------------------------------------------


def _rows_grid(t: TileBuilder, n: int, shape: Sequence[int], element: Attribute) -> Grid:
    """Computes a layout in which all rows have the same tiles, so that access by row number moves no data."""
    row = t.linear(shape, element)
    return Grid((Split(n), *row.splits), tuple(d + 1 for d in row.order), row.start)


def _table(t: TileBuilder, table: SSAValue, row: SSAValue) -> SSAValue:
    """Gives a table whose rows are read a layout for this. It is moved or copied once, before the loop."""
    view = t.view(table)
    shape, element = shape_of(table.type), element_type_of(table.type)
    if not row.uses:
        return view
    grid, layout = _rows_grid(t, shape[0], shape[1:], element), t.layout_of(view)
    owner = root_of(view).owner
    unplaced = isinstance(owner, StorageOp) and owner.layout is None
    if layout == grid or unplaced:
        return view
    home = t.first(shape, element, grid)
    if not t.move(view, home):
        t.copy(view, home)
    return home


def _rows(t: TileBuilder, result: SSAValue) -> SSAValue:
    """Makes the table that a loop fills row by row; it starts as zeros."""
    shape, element = shape_of(result.type), element_type_of(result.type)
    y = t.var(shape, element, _rows_grid(t, shape[0], shape[1:], element))
    t.fill(y)
    return y


def _read_row(t: TileBuilder, table: SSAValue, index: SSAValue) -> SSAValue:
    assert isinstance(table.type, TensorType)
    shape = table.type.shape[1:]
    grid = t.linear(shape, table.type.element)
    y = t.var(shape, table.type.element, grid, ".row")
    names = [f"d{i}" for i in range(len(shape))]
    domain = Domain(tuple(zip(names, grid.splits)), tuple(names[d] for d in grid.order))
    inner = list(map(along, names))
    fields: list[Connection] = [("in", "table", table, [ALL, *inner]), ("in", "indices", index, []), ("out", "y", y, inner)]
    t.execute("multi_slice", domain, fields, suffix=".row")
    return y


def _write_row(t: TileBuilder, table: SSAValue, index: SSAValue, row: SSAValue) -> None:
    assert isinstance(row.type, TensorType)
    grid = t.linear(row.type.shape, row.type.element)
    names = [f"d{i}" for i in range(len(row.type.shape))]
    domain = Domain(tuple(zip(names, grid.splits)), tuple(names[d] for d in grid.order))
    inner = list(map(along, names))
    fields: list[Connection] = [("inout", "table", table, [ALL, *inner]), ("in", "index", index, []), ("in", "row", row, inner)]
    t.execute("dynamic_update", domain, fields, suffix=".collect")


def _counter(t: TileBuilder) -> SSAValue:
    """Makes the iteration number, from 0."""
    y = t.var((), i32, suffix=".index")
    t.fill(y)
    return y
