"""Lowering of a codelet in `func`, `arith`, `math`, `scf`, `cf` and `memref` to the `llvm` dialect.

Memrefs become pointers, no two of which alias; indices become i64. Shapes are static, but for memrefs of one dimension.
Sums keep their order and products are not fused with them, so results are those of the codelet as written. A float that
becomes an integer is saturated. Functions of `math` that LLVM does not compute itself are those of C's library.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import cast

from xdsl.context import Context
from xdsl.dialects import arith, cf, func, llvm, math, memref
from xdsl.dialects.builtin import (
    ArrayAttr,
    DictionaryAttr,
    FloatAttr,
    IndexType,
    IntegerAttr,
    IntegerType,
    MemRefType,
    ModuleOp,
    NoneAttr,
    UnitAttr,
    f32,
    i64,
)
from xdsl.ir import Attribute, Operation, SSAValue
from xdsl.pattern_rewriter import PatternRewriter, PatternRewriteWalker, RewritePattern
from xdsl.rewriter import Rewriter
from xdsl.transforms.convert_scf_to_cf import ConvertScfToCf

from populus.dialects.support.diagnostics import PopulusError, where

BINARY: dict[type[Operation], Callable[[SSAValue, SSAValue], Operation]] = {
    arith.AddfOp: llvm.FAddOp,
    arith.AddiOp: llvm.AddOp,
    arith.AndIOp: llvm.AndOp,
    arith.DivfOp: llvm.FDivOp,
    arith.DivSIOp: llvm.SDivOp,
    arith.DivUIOp: llvm.UDivOp,
    arith.MulfOp: llvm.FMulOp,
    arith.MuliOp: llvm.MulOp,
    arith.OrIOp: llvm.OrOp,
    arith.RemSIOp: llvm.SRemOp,
    arith.RemUIOp: llvm.URemOp,
    arith.ShLIOp: llvm.ShlOp,
    arith.ShRSIOp: llvm.AShrOp,
    arith.ShRUIOp: llvm.LShrOp,
    arith.SubfOp: llvm.FSubOp,
    arith.SubiOp: llvm.SubOp,
    arith.XOrIOp: llvm.XOrOp,
}
CASTS: dict[type[Operation], Callable[[SSAValue, Attribute], Operation]] = {
    arith.BitcastOp: llvm.BitcastOp,
    arith.ExtFOp: llvm.FPExtOp,
    arith.ExtSIOp: llvm.SExtOp,
    arith.ExtUIOp: llvm.ZExtOp,
    arith.SIToFPOp: llvm.SIToFPOp,
    arith.TruncFOp: llvm.FPTruncOp,
    arith.TruncIOp: llvm.TruncOp,
}
INTRINSICS: dict[type[Operation], str] = {
    arith.MaxSIOp: "smax",
    arith.MaxUIOp: "umax",
    arith.MinSIOp: "smin",
    arith.MinUIOp: "umin",
    math.AbsFOp: "fabs",
    math.CeilOp: "ceil",
    math.CopySignOp: "copysign",
    math.FloorOp: "floor",
    math.FmaOp: "fma",
    math.RoundEvenOp: "rint",
    math.SqrtOp: "sqrt",
    math.TruncOp: "trunc",
}
CALLS: dict[type[Operation], str] = {
    math.AcosOp: "acos",
    math.AcoshOp: "acosh",
    math.AsinOp: "asin",
    math.AsinhOp: "asinh",
    math.Atan2Op: "atan2",
    math.AtanOp: "atan",
    math.AtanhOp: "atanh",
    math.CbrtOp: "cbrt",
    math.CosOp: "cos",
    math.CoshOp: "cosh",
    math.ErfOp: "erf",
    math.Exp2Op: "exp2",
    math.ExpM1Op: "expm1",
    math.ExpOp: "exp",
    math.Log10Op: "log10",
    math.Log1pOp: "log1p",
    math.Log2Op: "log2",
    math.LogOp: "log",
    math.PowFOp: "pow",
    math.SinOp: "sin",
    math.SinhOp: "sinh",
    math.TanOp: "tan",
    math.TanhOp: "tanh",
}

EXTERNAL = llvm.LinkageAttr("external")


def lower(ctx: Context, module: ModuleOp) -> None:
    """Lowers every function of the module. Raises PopulusError for an op or a form that codelets do not have."""
    ConvertScfToCf().apply(ctx, module)
    for op in [op for op in module.walk() if type(op) in CALLS]:
        _call(module, op)
    PatternRewriteWalker(_ToLlvm(), apply_recursively=False).rewrite_module(module)
    for op in module.walk():
        if op.name != "builtin.module" and not op.name.startswith("llvm."):
            raise PopulusError(
                f"{where(op)}: {op.name} has no lowering to llvm; codelets are made of func, arith, math, scf, cf and memref"
            )


def lowered_type(type: Attribute) -> Attribute:
    """Converts a type: memrefs to pointers, indices to i64."""
    match type:
        case IndexType():
            return i64
        case MemRefType():
            return llvm.LLVMPointerType()
        case _:
            return type


def _call(module: ModuleOp, op: Operation) -> None:
    """Replaces a function of `math` by a call of C's, and declares that."""
    type = op.results[0].type
    name = CALLS[op.__class__] + ("f" if type == f32 else "")
    if not any(isinstance(f, func.FuncOp) and f.sym_name.data == name for f in module.body.block.ops):
        module.body.block.insert_op_before(func.FuncOp.external(name, [o.type for o in op.operands], [type]), _first(module))
    call = func.CallOp(name, list(op.operands), [type])
    call.location = op.location
    Rewriter.replace_op(op, call)


def _first(module: ModuleOp) -> Operation:
    first = module.body.block.first_op
    assert first is not None, module
    return first


@dataclass(eq=False, repr=False)
class _ToLlvm(RewritePattern):
    memrefs: dict[SSAValue, MemRefType] = field(default_factory=dict[SSAValue, MemRefType])  # what pointers were

    def match_and_rewrite(self, op: Operation, rewriter: PatternRewriter, /) -> None:
        for block in (b for region in op.regions for b in region.blocks):
            for arg in block.args:
                type, lowered = arg.type, lowered_type(arg.type)
                if lowered != type:
                    value = rewriter.replace_value_with_new_type(arg, lowered)
                    if isinstance(type, MemRefType):
                        self.memrefs[value] = cast("MemRefType", type)
        if isinstance(op, arith.IndexCastOp) and _width(op.input.type) == _width(op.result.type):
            rewriter.replace(op, [], [op.input])
            return
        new = self.lowered(op, rewriter)
        if new is not None:
            new.location = op.location
            rewriter.replace(op, new)
            if isinstance(op, memref.AllocaOp):
                self.memrefs[new.results[0]] = op.memref.type

    def lowered(self, op: Operation, rewriter: PatternRewriter) -> Operation | None:
        o = op.operands
        if type(op) in BINARY:
            return BINARY[type(op)](o[0], o[1])
        if type(op) in CASTS:
            return CASTS[type(op)](o[0], lowered_type(op.results[0].type))
        if type(op) in INTRINSICS:
            result = lowered_type(op.results[0].type)
            return llvm.CallIntrinsicOp(f"llvm.{INTRINSICS[type(op)]}.{result}", list(o), [result])
        match op:
            case arith.NegfOp():
                return llvm.FNegOp(o[0])
            case arith.CmpfOp():  # both dialects number predicates alike
                return llvm.FCmpOp(o[0], o[1], IntegerAttr(op.predicate.value.data, i64))
            case arith.CmpiOp():
                return llvm.ICmpOp(o[0], o[1], IntegerAttr(op.predicate.value.data, i64))
            case arith.SelectOp():
                return llvm.SelectOp(o[0], o[1], o[2])
            case arith.ConstantOp():
                value, type_ = op.value, lowered_type(op.result.type)
                assert isinstance(value, IntegerAttr | FloatAttr), value
                if isinstance(value, IntegerAttr):
                    assert isinstance(type_, IntegerType), type_
                    integer = cast("IntegerType", type_)
                    return llvm.ConstantOp(IntegerAttr(value.value.data, integer), integer)
                return llvm.ConstantOp(value, type_)
            case arith.FPToSIOp():
                result = op.result.type
                return llvm.CallIntrinsicOp(f"llvm.fptosi.sat.{result}.{op.input.type}", [op.input], [result])
            case arith.IndexCastOp():
                to = lowered_type(op.result.type)
                return llvm.TruncOp(op.input, to) if _width(to) < _width(op.input.type) else llvm.SExtOp(op.input, to)
            case arith.FloorDivSIOp():
                return _floored(op, rewriter)
            case memref.AllocaOp():
                held = op.memref.type
                count = rewriter.insert(llvm.ConstantOp(IntegerAttr(prod(held.get_shape()), i64), i64))
                return llvm.AllocaOp(count, lowered_type(held.element_type), alignment=8)
            case memref.LoadOp():
                return llvm.LoadOp(self.address(op, o[0], o[1:], rewriter), lowered_type(op.res.type))
            case memref.StoreOp():
                return llvm.StoreOp(o[0], self.address(op, o[1], o[2:], rewriter))
            case cf.BranchOp():
                return llvm.BrOp(op.successor, *o)
            case cf.ConditionalBranchOp():
                return llvm.CondBrOp(op.cond, op.then_block, op.then_arguments, op.else_block, op.else_arguments)
            case func.CallOp():
                return llvm.CallOp(op.callee, *o, return_type=op.results[0].type)
            case func.ReturnOp():
                return llvm.ReturnOp(*o)
            case func.FuncOp():
                return _function(op)
            case _:
                return None

    def address(self, op: Operation, base: SSAValue, indices: Sequence[SSAValue], rewriter: PatternRewriter) -> SSAValue:
        type = self.memrefs.get(base)
        strides = None if type is None else [1] if len(indices) == 1 and type.layout == NoneAttr() else type.get_strides()
        if type is None or strides is None or None in strides:
            raise PopulusError(f"{where(op)}: a memref of a codelet has one dimension or static strides; this is {base.type}")
        if not indices:
            return base
        place: SSAValue | None = None
        for index, stride in zip(indices, strides, strict=True):
            step = index
            if stride != 1:
                step = rewriter.insert(llvm.MulOp(index, rewriter.insert(llvm.ConstantOp(IntegerAttr(stride or 0, i64), i64)).result)).res
            place = step if place is None else rewriter.insert(llvm.AddOp(place, step)).res
        assert place is not None, op
        element = lowered_type(type.element_type)
        return rewriter.insert(llvm.GEPOp.from_mixed_indices(base, [place], element, inbounds=True)).result


def _width(type: Attribute) -> int:
    lowered = lowered_type(type)
    assert isinstance(lowered, IntegerType), type
    return cast("IntegerType", lowered).bitwidth


def _floored(op: arith.FloorDivSIOp, rewriter: PatternRewriter) -> Operation:
    """Makes a quotient that is rounded down of one that is rounded towards 0."""

    def insert(made: Operation) -> SSAValue:
        return rewriter.insert(made).results[0]

    a, b = op.lhs, op.rhs
    type = lowered_type(op.result.type)
    zero = insert(llvm.ConstantOp(IntegerAttr(0, cast("IntegerType", type)), type))
    quotient, rest = insert(llvm.SDivOp(a, b)), insert(llvm.SRemOp(a, b))
    some = insert(llvm.ICmpOp(rest, zero, IntegerAttr(1, i64)))  # ne
    apart = insert(llvm.ICmpOp(insert(llvm.XOrOp(rest, b)), zero, IntegerAttr(2, i64)))  # slt
    return llvm.SubOp(quotient, insert(llvm.ZExtOp(insert(llvm.AndOp(some, apart)), type)))


def _function(op: func.FuncOp) -> Operation:
    inputs = [lowered_type(t) for t in op.function_type.inputs]
    if not op.body.blocks:
        return llvm.FuncOp(op.sym_name, llvm.LLVMFunctionType(inputs, lowered_type(op.function_type.outputs.data[0])), linkage=EXTERNAL)
    results = [lowered_type(t) for t in op.function_type.outputs] or [llvm.LLVMVoidType()]
    alone = DictionaryAttr({"llvm.noalias": UnitAttr()})
    attributes = [alone if isinstance(t, llvm.LLVMPointerType) else DictionaryAttr({}) for t in inputs]
    return llvm.FuncOp(
        op.sym_name,
        llvm.LLVMFunctionType(inputs, results[0]),
        EXTERNAL,
        body=op.detach_region(op.body),
        other_props={"arg_attrs": ArrayAttr(attributes)},
    )
