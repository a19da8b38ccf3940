"""Lowering of a codelet in `func`, `arith`, `math`, `scf` and `memref` to the `llvm` dialect.

Memrefs become pointers, no two of which alias; indices become i64. An access names one element: codelets multiply by
strides themselves. Sums keep their order and products are not fused with them, so results are those of the codelet as
written.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
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
    UnitAttr,
    i64,
)
from xdsl.ir import Attribute, Operation, SSAValue
from xdsl.pattern_rewriter import PatternRewriter, PatternRewriteWalker, RewritePattern
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
    math.FloorOp: "floor",
    math.FmaOp: "fma",
    math.RoundEvenOp: "rint",
    math.SqrtOp: "sqrt",
    math.TruncOp: "trunc",
}


def lower(ctx: Context, module: ModuleOp) -> None:
    """Lowers every function of the module. Raises PopulusError for an op or a form that codelets do not have."""
    ConvertScfToCf().apply(ctx, module)
    PatternRewriteWalker(_ToLlvm(), apply_recursively=False).rewrite_module(module)
    for op in module.walk():
        if op.name != "builtin.module" and not op.name.startswith("llvm."):
            raise PopulusError(f"{where(op)}: {op.name} has no lowering to llvm; codelets are made of func, arith, math, scf and memref")


def lowered_type(type: Attribute) -> Attribute:
    """Converts a type: memrefs to pointers, indices to i64."""
    match type:
        case IndexType():
            return i64
        case MemRefType():
            return llvm.LLVMPointerType()
        case _:
            return type


@dataclass(eq=False, repr=False)
class _ToLlvm(RewritePattern):
    elements: dict[SSAValue, Attribute] = field(default_factory=dict[SSAValue, Attribute])  # pointers' element types

    def match_and_rewrite(self, op: Operation, rewriter: PatternRewriter, /) -> None:
        for block in (b for region in op.regions for b in region.blocks):
            for arg in block.args:
                type, lowered = arg.type, lowered_type(arg.type)
                if lowered != type:
                    value = rewriter.replace_value_with_new_type(arg, lowered)
                    if isinstance(type, MemRefType):
                        self.elements[value] = cast("MemRefType", type).element_type
        new = self.lowered(op, rewriter)
        if new is not None:
            new.location = op.location
            rewriter.replace(op, new)

    def lowered(self, op: Operation, rewriter: PatternRewriter) -> Operation | None:
        o = op.operands
        if type(op) in BINARY:
            return BINARY[type(op)](o[0], o[1])
        if type(op) in CASTS:
            return CASTS[type(op)](o[0], lowered_type(op.results[0].type))
        if type(op) in INTRINSICS:
            result = op.results[0].type
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
            case memref.LoadOp():
                return llvm.LoadOp(self.address(op, o[0], o[1:], rewriter), op.res.type)
            case memref.StoreOp():
                return llvm.StoreOp(o[0], self.address(op, o[1], o[2:], rewriter))
            case cf.BranchOp():
                return llvm.BrOp(op.successor, *o)
            case cf.ConditionalBranchOp():
                return llvm.CondBrOp(op.cond, op.then_block, op.then_arguments, op.else_block, op.else_arguments)
            case func.ReturnOp():
                return llvm.ReturnOp(*o)
            case func.FuncOp():
                return _function(op)
            case _:
                return None

    def address(self, op: Operation, base: SSAValue, indices: Sequence[SSAValue], rewriter: PatternRewriter) -> SSAValue:
        if base not in self.elements or len(indices) != 1:
            raise PopulusError(f"{where(op)}: a memref of a codelet is an argument of one dimension, this has {len(indices)} indices")
        return rewriter.insert(llvm.GEPOp.from_mixed_indices(base, list(indices), self.elements[base], inbounds=True)).result


def _function(op: func.FuncOp) -> Operation:
    inputs = [lowered_type(t) for t in op.function_type.inputs]
    results = [lowered_type(t) for t in op.function_type.outputs] or [llvm.LLVMVoidType()]
    alone = DictionaryAttr({"llvm.noalias": UnitAttr()})
    attributes = [alone if isinstance(t, llvm.LLVMPointerType) else DictionaryAttr({}) for t in inputs]
    return llvm.FuncOp(
        op.sym_name,
        llvm.LLVMFunctionType(inputs, results[0]),
        llvm.LinkageAttr("external"),
        body=op.detach_region(op.body),
        other_props={"arg_attrs": ArrayAttr(attributes)},
    )
