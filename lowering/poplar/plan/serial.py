"""Serial splits: contractions whose temporaries exceed a tile run in several steps, over output channels or rows."""

from __future__ import annotations

import itertools
from dataclasses import replace

from xdsl.dialects.builtin import UnrealizedConversionCastOp
from xdsl.ir import Operation, SSAValue
from xdsl.rewriter import InsertPoint, Rewriter

from populus.dialects.base.tensor_op import TensorOp, ints
from populus.dialects.data import array_attribute
from populus.dialects.poplar import ConstOp, GraphOp
from populus.dialects.poplar.partition import Split
from populus.dialects.poplar.types import TensorType
from populus.dialects.poplin import ConvolutionOp, MatMulOp
from populus.dialects.popops import ConcatOp, SliceOp
from populus.dialects.support.element_types import element_type_of, shape_of, tensor
from populus.lowering.poplar.plan.contraction import Contraction, options, shape_of_contraction

MOST = 64  # steps of one contraction


def split_serially(graph: GraphOp, partials: str = "") -> None:
    """Replaces each contraction without a plan that fits by contractions of slices, and their concatenation.

    `partials`: the type that halves are summed in. If up to 64 steps do not suffice, the contraction stays, and
    `poplar-allocate` reports that the program does not fit.
    """
    for op in list(graph.walk()):
        if isinstance(op, MatMulOp | ConvolutionOp) and (shape := shape_of_contraction(op, partials)).macs:
            element = element_type_of(op.operands[0].type)
            if options(shape, element, graph.machine)[0].fits:
                continue
            for steps in (2**i for i in range(1, MOST.bit_length())):
                fitting = [s for s in _smaller(op, shape, steps) if options(s[1], element, graph.machine)[0].fits]
                if fitting:
                    replace_by_steps(op, fitting[0][0], steps)
                    break


def _smaller(op: MatMulOp | ConvolutionOp, shape: Contraction, steps: int) -> list[tuple[str, Contraction]]:
    """Lists the contraction of one of `steps` steps, by the cut: output channels, or rows (for a batch: images)."""
    smaller: list[tuple[str, Contraction]] = []
    if shape.out_channels >= steps and (isinstance(op, MatMulOp) or shape.groups == 1):
        smaller.append(("channels", replace(shape, out_channels=-(-shape.out_channels // steps))))
    if isinstance(op, MatMulOp) and shape.windows[0] >= steps:
        smaller.append(("rows", replace(shape, windows=(-(-shape.windows[0] // steps),))))
    if isinstance(op, ConvolutionOp) and shape.batch >= steps:
        smaller.append(("rows", replace(shape, batch=-(-shape.batch // steps))))
    return smaller


def replace_by_steps(op: MatMulOp | ConvolutionOp, cut: str, steps: int) -> None:
    """Replaces a contraction by `steps` of them, over output channels (`cut` is "channels") or rows."""
    x, w = op.operands
    y_dim = (2 if isinstance(op, MatMulOp) else 1) if cut == "channels" else (1 if isinstance(op, MatMulOp) else 0)
    w_dim = 2 if isinstance(op, MatMulOp) else 0
    bounds = Split(shape_of(op.results[0].type)[y_dim], steps).bounds()
    parts: list[SSAValue] = []
    for begin, end in itertools.pairwise(bounds):
        a, b = (x, _slice(op, w, w_dim, begin, end)) if cut == "channels" else (_slice(op, x, y_dim, begin, end), w)
        if isinstance(op, MatMulOp):
            parts.append(_insert(op, MatMulOp(a, b)))
        else:
            attributes = {name: ints(getattr(op, name)) for name in ("strides", "pads", "dilations")}
            parts.append(_insert(op, ConvolutionOp(a, b, groups=op.groups, **attributes)))
    op.results[0].replace_all_uses_with(_insert(op, ConcatOp(*parts, dim=y_dim)))
    Rewriter.erase_op(op)


def _slice(op: Operation, x: SSAValue, dim: int, begin: int, end: int) -> SSAValue:
    """Slices an operand; a slice of a constant is a constant of its own, which can be offloaded separately."""
    shape = shape_of(x.type)
    cast = x.owner
    if isinstance(cast, UnrealizedConversionCastOp) and isinstance(constant := cast.inputs[0].owner, ConstOp):
        array = constant.array()[tuple(slice(begin, end) if d == dim else slice(None) for d in range(len(shape)))]
        new = ConstOp(f"{constant.label.data}.{begin}", array_attribute(array), TensorType.of(array.shape, constant.type.element))
        made = UnrealizedConversionCastOp.get([new.result], [tensor(array.shape, element_type_of(x.type))])
        for inserted in (new, made):
            inserted.location = constant.location
            Rewriter.insert_op(inserted, InsertPoint.before(op))
        return made.outputs[0]
    begins, ends = [0] * len(shape), list(shape)
    begins[dim], ends[dim] = begin, end
    return _insert(op, SliceOp(x, begins=begins, ends=ends, steps=[1] * len(shape)))


def _insert(op: Operation, new: TensorOp) -> SSAValue:
    new.location = op.location
    Rewriter.insert_op(new, InsertPoint.before(op))
    return new.results[0]
