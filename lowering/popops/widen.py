"""Widening (`popops-widen`): values that are halves are held as f32, and rounded to halves where they were."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp, StringAttr, bf16, f16, f32, i1
from xdsl.dialects.func import CallOp, FuncOp, ReturnOp
from xdsl.ir import Attribute, Block, Operation, OpResult, SSAValue
from xdsl.passes import ModulePass
from xdsl.rewriter import InsertPoint, Rewriter

from populus.dialects import expr
from populus.dialects.base.control_flow import blocks_of
from populus.dialects.data import ConstantOp, array_attribute
from populus.dialects.poplin import ConvolutionOp, MatMulOp
from populus.dialects.popnn import PoolOp, WhitenOp
from populus.dialects.popops import BroadcastOp, ConcatOp, DimShuffleOp, MapOp, MultiSliceOp, PadOp, ReduceOp, ReshapeOp, SliceOp
from populus.dialects.support.dead_code import erase_dead
from populus.dialects.support.element_types import dtype_of, element_type_of, shape_of, tensor

HALVES = f16, bf16
EXACT = {"abs", "ceil", "floor", "max", "min", "nearbyint", "neg", "rem", "select", "signum", "trunc"}  # of halves they give halves
PRODUCTS = ConvolutionOp, MatMulOp
SUMS = (*PRODUCTS, PoolOp, ReduceOp, WhitenOp)  # computed in f32, and rounded once; a softmax rounds its exponentials too
VIEWS = BroadcastOp, DimShuffleOp, ReshapeOp, SliceOp
MOVES = (*VIEWS, ConcatOp, MultiSliceOp, PadOp)


@dataclass(frozen=True)
class PopopsWidenPass(ModulePass):
    """Holds the halves of a program with products as f32. Each function and sum rounds as before.

    `halves`: `f32`, or None to leave the program as it is.
    For a CPU that widens what it multiplies: no step is left that only converts, and formulas of halves end products as those of f32 do.
    Streams, branches and loops, and ops that add to memory in the type of their elements, keep halves.
    Bit for bit.
    """

    name = "popops-widen"
    halves: str | None = None

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        if self.halves == "f32" and any(isinstance(o, PRODUCTS) and _is_half(o.results[0]) for o in op.walk()):
            widening = _Widening()
            functions = [f for f in op.body.block.ops if isinstance(f, FuncOp)]
            for argument in (a for f in functions if _is_private(f) for a in f.body.block.args if _is_half(a)):
                widening.retype(argument)
            for block in list(blocks_of(op.body.block)):
                widening.block(block)
            for function in functions:
                function.update_function_type()
            for block in reversed(list(blocks_of(op.body.block))):
                erase_dead(block, lambda op: isinstance(op, (*MOVES, *SUMS, MapOp, ConstantOp)))


@dataclass
class _Widening:
    """The values in f32 that hold halves, by the halves."""

    wide: dict[SSAValue, SSAValue] = field(default_factory=dict[SSAValue, SSAValue])

    def retype(self, x: SSAValue) -> None:
        """Makes a value f32, which its users read as the halves that it was."""
        element = element_type_of(x.type)
        self.hold(Rewriter.replace_value_with_new_type(x, _wide_type(x)), element)

    def hold(self, wide: SSAValue, element: Attribute) -> None:
        """Lets the users of a value in f32 read it as halves."""
        half = MapOp(wide, expr=expr.Cast(expr.Arg(1), element))
        wide.replace_all_uses_with(half.y)
        half.operands[0] = wide
        self.insert(half, wide)
        self.wide[half.y] = wide

    def block(self, block: Block) -> None:
        """Lets the ops of a block compute in f32."""
        for op in list(block.ops):
            if isinstance(op, CallOp) or (isinstance(op, ReturnOp) and _is_private(op.parent_op())):
                op.operands = [self.of(x) for x in op.operands]
                for result in filter(_is_half, list(op.results)):
                    self.retype(result)
            elif isinstance(op, MapOp):
                self.map(op)
            elif isinstance(op, SUMS) and _is_half(op.operands[0]):
                self.sum(op)

    def map(self, op: MapOp) -> None:
        """Computes a map in f32, unless it takes the bits of halves."""
        try:
            e, element = _widened(op.expr.data, [element_type_of(x.type) for x in op.operands])
        except _BitsError:
            return
        if (
            isinstance(e, expr.Arg)
            and element == f32
            and _is_half(x := op.operands[e.index - 1])
            and shape_of(x.type) == shape_of(op.y.type)
        ):
            op.y.replace_all_uses_with(self.of(x))  # it widened
            Rewriter.erase_op(op)
        elif op.y not in self.wide and any(map(_is_half, (*op.operands, op.y))):
            assert element is not None, e
            self.replace(op, self.copy(op, f32 if element in HALVES else element, {**op.properties, "expr": expr.ExprAttr(e)}))

    def sum(self, op: Operation) -> None:
        """Computes sums in f32, and rounds them where they were halves."""
        properties = {name: p for name, p in op.properties.items() if name != "to" or p != f32}
        new, result = self.copy(op, f32 if _is_half(op.results[0]) else element_type_of(op.results[0].type), properties), op.results[0]
        kind = new.properties.get("kind", new.properties.get("op"))
        if _is_half(result) and not (isinstance(kind, StringAttr) and kind.data in EXACT):
            self.insert(new, result, op)
            new = MapOp(new.results[0], expr=expr.Cast(expr.Cast(expr.Arg(1), element_type_of(result.type)), f32))
        self.replace(op, new)

    def replace(self, op: Operation, new: Operation) -> None:
        """Replaces an op by one whose result may be f32 instead of halves."""
        (old,), (result,) = op.results, new.results
        self.insert(new, old, op)
        old.replace_all_uses_with(result)
        if _is_half(old):
            self.hold(result, element_type_of(old.type))
        Rewriter.erase_op(op)

    def of(self, x: SSAValue) -> SSAValue:
        """Gives a value in f32."""
        if not _is_half(x):
            return x
        if x not in self.wide:
            owner = x.owner
            if isinstance(owner, ConstantOp):
                halves = owner.array()
                same = halves.size > 1 and not any(halves.strides)  # equal elements stay one element of memory
                array = np.broadcast_to(halves.reshape(-1)[0].astype(np.float32), halves.shape) if same else halves.astype(np.float32)
                new: Operation = ConstantOp.create(properties={"value": array_attribute(array)}, result_types=[_wide_type(x)])
            elif isinstance(owner, VIEWS) or (isinstance(owner, MOVES) and self.is_held(x)):
                new = self.copy(owner, f32)
            else:
                new = MapOp(x, expr=expr.Cast(expr.Arg(1), f32))
            self.insert(new, x)
            self.wide[x] = new.results[0]
        return self.wide[x]

    def is_held(self, x: SSAValue) -> bool:
        """Tells whether f32 holds a value, or one that is moved to it."""
        return x in self.wide or (isinstance(x.owner, MOVES) and any(map(self.is_held, x.owner.operands)))

    def copy(self, op: Operation, element: Attribute, properties: Mapping[str, Attribute] | None = None) -> Operation:
        """Makes the same op on values in f32, with these properties instead of its own."""
        operands, result = [self.of(x) for x in op.operands], tensor(shape_of(op.results[0].type), element)
        given = op.properties if properties is None else properties
        return type(op).create(operands=operands, properties=given, attributes=op.attributes, result_types=[result])

    def insert(self, new: Operation, x: SSAValue, before: Operation | None = None) -> None:
        """Inserts an op whose result stands for x: right after x, or before an op."""
        new.results[0].name_hint = x.name_hint
        if isinstance(x, OpResult):
            new.location = x.op.location
            Rewriter.insert_op(new, InsertPoint.after(x.op) if before is None else InsertPoint.before(before))
        elif isinstance(x.owner, Block):
            Rewriter.insert_op(new, InsertPoint.at_start(x.owner))


class _BitsError(Exception):
    """An expression takes the bits of halves."""


def _widened(e: expr.Expr, elements: Sequence[Attribute], expected: Attribute | None = None) -> tuple[expr.Expr, Attribute | None]:
    """Gives an expression on halves in f32, with their roundings, and the type that it had. `expected`: the type of literals."""
    match e:
        case expr.Arg(index):
            return e, elements[index - 1]
        case expr.Const(value):
            if expected not in HALVES or isinstance(value, bool):
                return e, i1 if isinstance(value, bool) else expected
            with np.errstate(over="ignore"):
                return expr.Const(float(dtype_of(expected).type(value))), expected
        case expr.Cast(x, to, bits):
            inner, source = _widened(x, elements)
            if bits and (to in HALVES or source in HALVES):
                raise _BitsError
            if to == source or (source in HALVES and to == f32):
                return inner, to
            return expr.Cast(expr.Cast(inner, to), f32) if to in HALVES else expr.Cast(inner, to, bits), to
        case expr.Call(function, args):
            typed = args[:2] if function == "select" else args
            found = [_widened(a, elements) for a in typed]
            element = next((t for _, t in found if t is not None), expected)
            made = [_widened(a, elements, element)[0] if t is None else x for a, (x, t) in zip(typed, found)]
            y = expr.Call(function, (*made, *(_widened(a, elements)[0] for a in args[len(typed) :])))
            if expr.FUNCTIONS[function].result == "bool":
                return y, i1
            return expr.Cast(expr.Cast(y, element), f32) if element in HALVES and function not in EXACT else y, element
        case _:
            raise AssertionError(e)


def _is_half(x: SSAValue) -> bool:
    return element_type_of(x.type) in HALVES


def _is_private(function: Operation | None) -> bool:
    return isinstance(function, FuncOp) and function.sym_visibility is not None


def _wide_type(x: SSAValue) -> Attribute:
    return tensor(shape_of(x.type), f32)
