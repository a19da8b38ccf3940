"""Serial splits: contractions whose temporaries exceed a tile run in several steps, over output channels or rows."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import lru_cache

import numpy as np
from xdsl.dialects.builtin import UnrealizedConversionCastOp
from xdsl.ir import Attribute, Operation, SSAValue
from xdsl.rewriter import InsertPoint, Rewriter

from populus.dialects.base.tensor_op import TensorOp, ints
from populus.dialects.data import array_attribute
from populus.dialects.poplar import ConstOp, GraphOp
from populus.dialects.poplar.target import Target
from populus.dialects.poplin import ConvolutionOp, MatMulOp
from populus.dialects.popops import ConcatOp, DimShuffleOp, ReshapeOp, SliceOp
from populus.dialects.support.block_floats import bytes_an_element
from populus.dialects.support.element_types import element_type_of, shape_of, size_in_bytes, tensor
from populus.dialects.support.walk import ops_of
from populus.lowering.poplar.plan.contraction import MEMORY_SHARE, Contraction, block_of, fitting, options, promising, shape_of_contraction
from populus.lowering.poplar.plan.pieces import Way, Weights, in_pieces, width_of_steps
from populus.lowering.poplar.plan.residency import Room
from populus.lowering.poplar.plan.stated import Names, Stated
from populus.lowering.poplar.plan.weights import Arguments, constants_of

MOST = 64  # steps of one contraction
STEPS = {  # of which the cheapest is taken, as eighths of the least power of two of steps that fit
    "rows": (*range(5, 15), 16, 20),
    "channels": (5, 6, 8, 12, 16),
}
FULL = 0.5  # share of a tile from which a product of resident weights is also priced in several steps, which cut its rows more evenly
GAIN = 0.98  # of the cycles in one step: several are more program


def split_serially(
    graph: GraphOp,
    partials: str = "",
    room: Room | None = None,
    arguments: Arguments | None = None,
    traffic: float = 0.0,
    names: Names | None = None,
) -> None:
    """Replaces contractions by contractions of slices, and their concatenation: those without a plan that fits, and products of many
    rows that then take fewer cycles.

    `partials`: the type that halves are summed in. `room`: the memory for resident weights, of which each contraction counts on a
    share by the size of its own. `arguments`: of the parameters of functions. `traffic`: with it, the plans are those that the
    caller asks for next; whether one fits does not depend on it. `names`: of the contractions; those with a stated plan have the
    steps that it states. The cut and the number of steps are the cheapest of a few. If up
    to 64 steps do not suffice, the contraction stays, and `poplar-allocate` reports that the program does not fit.
    """
    room, arguments, names = room or Room(0, 0), arguments or {}, names or Names(())
    contractions = [op for op in ops_of(graph) if isinstance(op, MatMulOp | ConvolutionOp) and shape_of_contraction(op).macs]
    constant = {op.operands[1]: len(constants_of(op.operands[1], arguments)) > 0 for op in contractions}
    weights = sum(_bytes(w) for w, is_constant in constant.items() if is_constant)
    mesh = graph.machine.mesh
    steps: dict[MatMulOp | ConvolutionOp, tuple[str, int]] = {}
    waiting: dict[MatMulOp | ConvolutionOp, Weights] = {}
    for op in contractions:
        shape, element, w = shape_of_contraction(op, partials), element_type_of(op.operands[0].type), op.operands[1]
        if (stated := names.stated(op)) is not None:
            if stated.steps is not None:
                _check_steps(op, shape, graph.machine, stated, *stated.steps)
                names.in_steps(op, *stated.steps, replace_by_steps(op, *stated.steps, graph.machine))
            continue
        own = room.share(_bytes(w) / weights) if constant[w] else Room(0, 0)
        steps[op] = cut, n = _fewest_steps(op, shape, element, graph.machine, own, traffic)
        if constant[w] and mesh is not None and mesh.dram_size:
            step = (_smaller(op, shape, cut, n, graph.machine) if n > 1 else None) or shape
            way = Way.of(step, n, n if cut == "channels" else 1, element, graph.machine, traffic)
            cuts = _is_view_of_constant(w) and (isinstance(op, MatMulOp) or shape.groups == 1)
            waiting[op] = Weights(shape, element, _bytes(w) / graph.machine.tiles, way, cuts)
    for op, n in zip(waiting, in_pieces(list(waiting.values()), MOST, graph.machine, traffic)):
        if n > 1:
            steps[op] = "channels", n
    for op, (cut, n) in steps.items():
        if n > 1:
            names.in_steps(op, cut, n, replace_by_steps(op, cut, n, graph.machine))


def _fewest_steps(
    op: MatMulOp | ConvolutionOp, shape: Contraction, element: Attribute, target: Target, room: Room, traffic: float
) -> tuple[str, int]:
    """Returns the cut and the steps of a contraction that does not fit, or has many rows and then takes fewer cycles; else one step."""
    best, cuts = (math.inf, "", 1), tuple(STEPS)
    first, *_ = found = options(shape, element, target, None, traffic)
    if first.fits:
        whole = min((o for o in found if room.holds(o.resident_bytes, o.working_bytes)), key=lambda o: o.cycles)
        held = whole.resident_bytes and whole.resident_bytes + whole.working_bytes
        if not isinstance(op, MatMulOp) or held <= FULL * target.room:
            return "", 1
        best, cuts = (GAIN * whole.cycles, "", 1), ("rows",)
    for cut in cuts:
        best = min((best, *_priced(op, shape, element, target, cut, room, traffic)), key=lambda f: (f[0], f[2]))
    return best[1:]


def _check_steps(op: MatMulOp | ConvolutionOp, shape: Contraction, target: Target, stated: Stated, cut: str, steps: int) -> None:
    """Raises PopulusError for steps that a contraction does not have."""
    if steps > MOST or _smaller(op, shape, cut, steps, target) is None:
        raise stated.of(f"steps={cut}:{steps}; it has fewer {cut}, or groups that steps do not cut, and at most {MOST} steps are made")


def _priced(
    op: MatMulOp | ConvolutionOp, shape: Contraction, element: Attribute, target: Target, cut: str, room: Room, traffic: float
) -> list[tuple[float, str, int]]:
    """Computes the cost of one cut: the cycles of all steps, for the least power of two of steps that fit and for numbers near it.

    Steps over rows share their resident weights. Each step over channels has its own, and `room` must hold all.
    """
    tried: dict[int, float] = {}

    def cycles(steps: int) -> float:
        """Computes the cycles of all steps, infinite if they do not fit."""
        if steps not in tried:
            smaller = _smaller(op, shape, cut, steps, target)
            copies = 1 if cut == "rows" else steps
            tried[steps] = math.inf if smaller is None else steps * _fewest(smaller, element, target, copies, room, traffic)
        return tried[steps]

    least = next((s for s in (2**i for i in range(1, MOST.bit_length())) if cycles(s) < math.inf), None)
    if least is None:
        return []
    near = sorted({-(-least * eighths // 8) for eighths in STEPS[cut]})
    return [(c, cut, s) for s in near if 1 < s <= MOST and (c := cycles(s)) < math.inf]


@lru_cache(None)
def _fewest(shape: Contraction, element: Attribute, target: Target, copies: int, room: Room, traffic: float) -> float:
    """Computes the cycles of the fastest plan, with weights resident if `room` holds so many copies of them; infinite if none fits."""
    everything = fitting(shape, element, target, None, traffic)
    if everything.temporary_bytes()[0] > MEMORY_SHARE * target.room:
        return math.inf
    held = np.nonzero(room.holds(copies * everything.bytes()[1], everything.working_bytes(True)))[0]
    best = float(promising(everything.where(held), True).cycles(True).min()) if len(held) else math.inf
    spread = everything.where(everything.products() < best)
    spread = spread.where(spread.bound(False) < best)
    return min(best, float(promising(spread, False).cycles(False).min())) if len(spread.depth) else best


def _bytes(tensor: SSAValue) -> int:
    size = bytes_an_element(block) if (block := block_of(tensor)) else size_in_bytes(element_type_of(tensor.type))
    return math.ceil(math.prod(shape_of(tensor.type)) * size)


def _smaller(op: MatMulOp | ConvolutionOp, shape: Contraction, cut: str, steps: int, target: Target) -> Contraction | None:
    """Returns the contraction of one of `steps` steps over output channels (`cut` is "channels") or rows; None if there is none.

    The rows of a batch are its images.
    """
    if cut == "channels":
        whole = isinstance(op, MatMulOp) or shape.groups == 1
        n = shape.out_channels
        return replace(shape, out_channels=width_of_steps(n, steps, target)) if whole and n >= steps else None
    if isinstance(op, MatMulOp):
        return replace(shape, windows=(-(-shape.windows[0] // steps),)) if shape.windows[0] >= steps else None
    return replace(shape, batch=-(-shape.batch // steps)) if shape.batch >= steps else None


def replace_by_steps(op: MatMulOp | ConvolutionOp, cut: str, steps: int, target: Target) -> list[Operation]:
    """Replaces a contraction by `steps` of them, over output channels (`cut` is "channels") or rows. Returns these."""
    x, w = op.operands
    y_dim = (2 if isinstance(op, MatMulOp) else 1) if cut == "channels" else (1 if isinstance(op, MatMulOp) else 0)
    w_dim = 2 if isinstance(op, MatMulOp) else 0
    n = shape_of(op.results[0].type)[y_dim]
    most = width_of_steps(n, steps, target) if cut == "channels" else -(-n // steps)  # of a step; the last may have fewer
    parts: list[SSAValue] = []
    for begin, end in ((begin, min(begin + most, n)) for begin in range(0, n, most)):
        a, b = (x, _slice(op, w, w_dim, begin, end)) if cut == "channels" else (_slice(op, x, y_dim, begin, end), w)
        if isinstance(op, MatMulOp):
            parts.append(_insert(op, MatMulOp(a, b)))
        else:
            attributes = {name: ints(getattr(op, name)) for name in ("strides", "pads", "dilations")}
            parts.append(_insert(op, ConvolutionOp(a, b, groups=op.groups, **attributes)))
    op.results[0].replace_all_uses_with(_insert(op, ConcatOp(*parts, dim=y_dim)))
    Rewriter.erase_op(op)
    return [part.owner for part in parts if isinstance(part.owner, Operation)]


def _slice(op: Operation, x: SSAValue, dim: int, begin: int, end: int) -> SSAValue:
    """Slices an operand; a slice of a constant is a constant of its own, which can be offloaded separately.

    So is one that is seen permuted or with dimensions of 1: the constant is sliced, and the slice is seen as the operand was.
    """
    shape = shape_of(x.type)
    cast = x.owner
    if isinstance(cast, DimShuffleOp) and _is_view_of_constant(x):
        permutation = ints(cast.permutation)
        return _insert(op, DimShuffleOp(_slice(op, cast.x, permutation[dim], begin, end), permutation=permutation))
    if isinstance(cast, ReshapeOp) and _is_view_of_constant(x):
        before = [d for d, n in enumerate(shape_of(cast.x.type)) if n != 1]
        at = [d for d, n in enumerate(shape) if n != 1].index(dim)
        inner = _slice(op, cast.x, before[at], begin, end)
        return _insert(op, ReshapeOp(inner, shape=[end - begin if d == dim else n for d, n in enumerate(shape)]))
    if isinstance(cast, UnrealizedConversionCastOp) and isinstance(constant := cast.inputs[0].owner, ConstOp):
        array = constant.array()[tuple(slice(begin, end) if d == dim else slice(None) for d in range(len(shape)))]
        new = ConstOp(f"{constant.label.data}.{begin}", array_attribute(array), constant.type.reshaped(array.shape))
        made = UnrealizedConversionCastOp.create(operands=[new.result], result_types=[tensor(array.shape, element_type_of(x.type))])
        for inserted in (new, made):
            inserted.location = constant.location
            Rewriter.insert_op(inserted, InsertPoint.before(op))
        return made.outputs[0]
    begins, ends = [0] * len(shape), list(shape)
    begins[dim], ends[dim] = begin, end
    return _insert(op, SliceOp(x, begins=begins, ends=ends, steps=[1] * len(shape)))


def _is_view_of_constant(x: SSAValue) -> bool:
    """Tells whether a value is a constant whose dimensions are permuted, or differ by ones."""
    match x.owner:
        case DimShuffleOp():
            return _is_view_of_constant(x.owner.x)
        case ReshapeOp():
            without = [[n for n in shape_of(v.type) if n != 1] for v in (x, x.owner.x)]
            return without[0] == without[1] and _is_view_of_constant(x.owner.x)
        case UnrealizedConversionCastOp():
            return isinstance(x.owner.inputs[0].owner, ConstOp)
        case _:
            return False


def _insert(op: Operation, new: TensorOp) -> SSAValue:
    new.location = op.location
    Rewriter.insert_op(new, InsertPoint.before(op))
    return new.results[0]
