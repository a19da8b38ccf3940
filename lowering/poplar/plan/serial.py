"""Serial splits: contractions whose temporaries exceed a tile run in several steps, over output channels or rows."""

from __future__ import annotations

import itertools
from dataclasses import replace

from xdsl.dialects.builtin import UnrealizedConversionCastOp
from xdsl.ir import Attribute, Operation, SSAValue
from xdsl.rewriter import InsertPoint, Rewriter

from populus.dialects.base.tensor_op import TensorOp, ints
from populus.dialects.data import array_attribute
from populus.dialects.poplar import ConstOp, GraphOp
from populus.dialects.poplar.partition import Split
from populus.dialects.poplar.target import Target
from populus.dialects.poplar.types import TensorType
from populus.dialects.poplin import ConvolutionOp, MatMulOp
from populus.dialects.popops import ConcatOp, SliceOp
from populus.dialects.support.element_types import element_type_of, shape_of, tensor
from populus.lowering.poplar.plan.contraction import Contraction, cheapest, options, shape_of_contraction
from populus.lowering.poplar.plan.weights import Arguments, constants_of

MOST = 64  # steps of one contraction


def split_serially(
    graph: GraphOp, partials: str = "", room: float = 0, arguments: Arguments | None = None, traffic: float = 0.0
) -> None:
    """Replaces each contraction without a plan that fits by contractions of slices, and their concatenation.

    `partials`: the type that halves are summed in. `room`: bytes of a tile for resident weights. `arguments`: of the
    parameters of functions. `traffic`: with it, the plans are those that the caller asks for next; whether one fits does not depend
    on it. The cut and the number of steps are the cheapest of a few. If up to 64 steps do not suffice,
    the contraction stays, and `poplar-allocate` reports that the program does not fit.
    """
    for op in list(graph.walk()):
        if isinstance(op, MatMulOp | ConvolutionOp) and (shape := shape_of_contraction(op, partials)).macs:
            element = element_type_of(op.operands[0].type)
            if options(shape, element, graph.machine, None, traffic)[0].fits:
                continue
            left = room if constants_of(op.operands[1], arguments or {}) else 0
            found = [f for cut in ("channels", "rows") for f in _priced(op, shape, element, graph.machine, cut, left)]
            if found:
                _, cut, steps = min(found, key=lambda f: (f[0], f[2]))
                replace_by_steps(op, cut, steps)


def _priced(
    op: MatMulOp | ConvolutionOp, shape: Contraction, element: Attribute, target: Target, cut: str, room: float
) -> list[tuple[float, str, int]]:
    """Computes the cost of one cut: the cycles of all steps, for the least power of two of steps that fit and for numbers near it.

    Steps over rows share their resident weights. Each step over channels has its own, and `room` must hold all.
    """

    def cycles(steps: int) -> float | None:
        """Computes the cycles of all steps, or None if they do not fit."""
        smaller = _smaller(op, shape, cut, steps)
        if smaller is None or not (found := options(smaller, element, target))[0].fits:
            return None
        return steps * cheapest(found, 0.0, room if cut == "rows" else room / steps).cycles

    least = next((s for s in (2**i for i in range(1, MOST.bit_length())) if cycles(s) is not None), None)
    if least is None:
        return []
    n = shape.out_channels if cut == "channels" else shape.windows[0] if isinstance(op, MatMulOp) else shape.batch
    near = sorted({least, *(-(-least * eighths // 8) for eighths in (5, 6, 12, 16))})
    even = [s for s in near if n % s == 0] or near  # equal steps have results of one layout, which a concatenation keeps
    return [(c, cut, s) for s in even if 1 < s <= MOST and (c := cycles(s)) is not None]


def _smaller(op: MatMulOp | ConvolutionOp, shape: Contraction, cut: str, steps: int) -> Contraction | None:
    """Returns the contraction of one of `steps` steps over output channels (`cut` is "channels") or rows; None if there is none.

    The rows of a batch are its images.
    """
    if cut == "channels":
        whole = isinstance(op, MatMulOp) or shape.groups == 1
        return replace(shape, out_channels=-(-shape.out_channels // steps)) if whole and shape.out_channels >= steps else None
    if isinstance(op, MatMulOp):
        return replace(shape, windows=(-(-shape.windows[0] // steps),)) if shape.windows[0] >= steps else None
    return replace(shape, batch=-(-shape.batch // steps)) if shape.batch >= steps else None


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
