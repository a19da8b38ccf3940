"""Map fusion (`popops-fuse`): substitutes expressions of element-wise maps; equal constants become literals."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import IntegerAttr, ModuleOp, i64
from xdsl.ir import Attribute, Operation, SSAValue
from xdsl.passes import ModulePass
from xdsl.rewriter import InsertPoint, Rewriter
from xdsl.utils.exceptions import VerifyException

from populus.dialects import expr
from populus.dialects.base.control_flow import blocks_of
from populus.dialects.base.tensor_op import INPLACE
from populus.dialects.data import ConstantOp, reshaped_type, retyped
from populus.dialects.popops import BroadcastOp, MapOp, ReduceOp, ReshapeOp
from populus.dialects.support import shapes
from populus.dialects.support.dead_code import erase_dead
from populus.dialects.support.diagnostics import fused
from populus.dialects.support.element_types import element_type_of, is_float, shape_of, size_in_bytes
from populus.dialects.support.walk import ops_of
from populus.lowering.popops.powers import with_roots

MOST_OPERANDS = 20  # Source: popops::map has placeholders _1 to _20
MOST_FUNCTIONS = 64  # the code of a fused codelet must not outweigh the saved memory traffic


@dataclass(frozen=True)
class PopopsFusePass(ModulePass):
    """Substitutes each `popops.map` whose only user is a map of the same shape into that user.

    A stretched operand is read as it was before, if another operand has the shape of the result.
    A map that only widens halves is substituted into each user if all are such maps or reductions: they read the halves.
    Results stay bit for bit the same, because each function of an expression rounds as its original map did.
    `literals`: constants of equal elements become literals of the expression. `roots`: whole powers up to the third become
    products, and powers of quarters of sums of squares square roots. To rounding.
    """

    name = "popops-fuse"
    literals: bool = True
    roots: bool = True

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        widening = set[Operation]()
        for inner in ops_of(op):
            if isinstance(inner, ReshapeOp):
                reshape_constant(inner)
            elif isinstance(inner, MapOp) and widens(inner):
                widening.add(inner)
            elif isinstance(inner, MapOp):
                fuse(inner, self.literals, widening)
            elif isinstance(inner, ReduceOp) and inner.x.owner in widening:
                read_halves(inner)
        for inner in ops_of(op) if self.roots else ():
            if isinstance(inner, MapOp) and inner.expr.data != (e := with_roots(inner.expr.data, inner.operands)):
                inner.expr = expr.ExprAttr(e)
        for block in reversed(list(blocks_of(op.body.block))):
            erase_dead(block, lambda op: isinstance(op, BroadcastOp | MapOp | ConstantOp | ReshapeOp))


def reshape_constant(op: ReshapeOp) -> None:
    """Replaces a reshape by a reshaped constant, if its operand is a constant without other uses."""
    constant = op.x.owner
    if isinstance(constant, ConstantOp) and op.x.has_one_use() and (type := reshaped_type(op.x.type, shape_of(op.y.type))):
        new = ConstantOp.create(properties={"value": retyped(constant.value, type)}, result_types=[type])
        new.location = constant.location
        new.result.name_hint = op.x.name_hint
        Rewriter.insert_op(new, InsertPoint.before(op))
        op.y.replace_all_uses_with(new.result)
        Rewriter.erase_op(op)
        Rewriter.erase_op(constant)


def fuse(op: MapOp, literals: bool, widening: Collection[Operation] = ()) -> None:
    """Substitutes into `op` its producers without other uses. Producers come first, so they are already fused.

    `literals`: also substitute constants of equal elements. `widening`: producers that are substituted whatever uses they have.
    """
    shape = shape_of(op.y.type)
    operands = list(op.operands)
    e = op.expr.data
    location = op.location
    changed = False
    for i, value in enumerate(list(operands)):
        if literals and (literal := _literal(value)) is not None:
            e = expr.substitute(e, {i + 1: literal})
            changed = True
            continue
        producer = value.owner
        if isinstance(producer, BroadcastOp) and shapes.broadcast(*(shape_of(o.type) for j, o in enumerate(operands) if j != i)) == shape:
            operands[i] = producer.x
            changed = True
            continue
        if not isinstance(producer, MapOp) or shape_of(value.type) != shape:
            continue
        if producer.parent is not op.parent or (producer not in widening and any(use.operation is not op for use in value.uses)):
            continue  # an op outside a loop runs once; it stays there
        inner = producer.expr.data
        functions = len(expr.functions_of(e)) + len(expr.functions_of(inner))
        if len(operands) + len(producer.operands) > MOST_OPERANDS or functions > MOST_FUNCTIONS:
            continue
        renumbered = {j + 1: expr.Arg(len(operands) + j + 1) for j in range(len(producer.operands))}
        e = expr.substitute(e, {i + 1: expr.substitute(inner, renumbered)})
        operands.extend(producer.operands)
        location = fused(producer.location, location)
        changed = True
    if not changed:
        return
    marked = _marked(op)
    e, operands = _compacted(e, operands)
    if not operands or shapes.broadcast(*(shape_of(o.type) for o in operands)) != shape:
        return  # a substituted literal determined the result's shape
    try:
        if expr.infer(e, [element_type_of(o.type) for o in operands]) != element_type_of(op.y.type):
            return
    except VerifyException:
        return  # a substituted literal determined a function's type
    new = MapOp(*operands, expr=e)
    new.location = location
    new.y.name_hint = op.y.name_hint
    if marked is None:
        new.attributes[INPLACE] = IntegerAttr(-1, i64)
    elif marked in operands:
        new.attributes[INPLACE] = IntegerAttr(operands.index(marked), i64)
    Rewriter.insert_op(new, InsertPoint.before(op))
    op.y.replace_all_uses_with(new.y)
    Rewriter.erase_op(op)


def widens(op: MapOp) -> bool:
    """Tells whether a map is but a conversion to a wider float that every user can make as it reads, and has several or reduces."""
    e, y = op.expr.data, op.y.type
    if op.y.has_one_use() and isinstance(next(iter(op.y.uses)).operation, MapOp):
        return False  # it is fused with what comes before it, too
    if not isinstance(e, expr.Cast) or not isinstance(e.x, expr.Arg) or shape_of(op.operands[0].type) != shape_of(y):
        return False
    narrow, wide = element_type_of(op.operands[0].type), element_type_of(y)
    if not (is_float(narrow) and is_float(wide) and size_in_bytes(narrow) < size_in_bytes(wide)):
        return False
    return all(use.operation.parent is op.parent and _reads_halves(use.operation, y) for use in op.y.uses)


def _reads_halves(user: Operation, type: Attribute) -> bool:
    return isinstance(user, ReduceOp) or (isinstance(user, MapOp) and shape_of(user.y.type) == shape_of(type))


def read_halves(op: ReduceOp) -> None:
    """Lets a reduction in a wider type read the halves that a map widens for it."""
    producer = op.x.owner
    assert isinstance(producer, MapOp), producer
    new = ReduceOp(producer.operands[0], op=op.op, dims=op.dims, to=element_type_of(op.y.type))
    new.location = fused(producer.location, op.location)
    new.y.name_hint = op.y.name_hint
    Rewriter.insert_op(new, InsertPoint.before(op))
    op.y.replace_all_uses_with(new.y)
    Rewriter.erase_op(op)


def _marked(op: MapOp) -> SSAValue | None:
    """Returns the value that a chain of fused maps is marked to overwrite: its own result for any, None for none."""
    mark = op.attributes.get(INPLACE)
    if not isinstance(mark, IntegerAttr):
        return op.y
    if mark.value.data < 0:
        return None
    value = op.operands[mark.value.data]
    inner = value.owner
    return _marked(inner) if isinstance(inner, MapOp) and value.has_one_use() else value


def _literal(value: SSAValue) -> expr.Const | None:
    """Returns the literal for a float constant of equal elements; None for another value."""
    owner = value.owner
    if not isinstance(owner, ConstantOp) or not is_float(element_type_of(value.type)):
        return None
    array = owner.array()
    if array.size == 0 or (array.size > 1 and any(array.strides)):
        return None
    return expr.Const(float(array.reshape(-1)[0]))


def _compacted(e: expr.Expr, operands: list[SSAValue]) -> tuple[expr.Expr, list[SSAValue]]:
    """Removes unread and duplicate operands, and renumbers the rest by first use."""
    number: dict[SSAValue, int] = {}
    renumbered: dict[int, expr.Expr] = {}
    for i in sorted(expr.args_of(e)):
        renumbered[i] = expr.Arg(number.setdefault(operands[i - 1], len(number) + 1))
    return expr.substitute(e, renumbered), list(number)
