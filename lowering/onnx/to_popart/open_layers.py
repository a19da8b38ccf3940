"""Layers that count positions where dimensions are bounded: recurrent layers, Resize, Pad, TopK, Einsum."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from xdsl.dialects.builtin import StringAttr, f32, f64, i32, i64
from xdsl.ir import SSAValue

from populus.dialects import popart
from populus.dialects.data import constant
from populus.dialects.onnx.sizes import Size, as_size
from populus.dialects.support import shapes
from populus.dialects.support.budget import check_constant
from populus.dialects.support.diagnostics import PopulusError
from populus.dialects.support.element_types import is_float
from populus.lowering.onnx.to_popart import nn, rnn
from populus.lowering.onnx.to_popart.conversion import Conversion, Output, element, shape
from populus.lowering.onnx.to_popart.einsum import labels_of
from populus.lowering.onnx.to_popart.formula import Term
from populus.lowering.onnx.to_popart.masked_ops import picked
from populus.lowering.onnx.to_popart.masks import Masks, filler
from populus.lowering.onnx.to_popart.open_shapes import Rule, agreed, compacted, masks_of, numbers
from populus.lowering.onnx.to_popart.resize import coordinates, interpolates_doubles, sampled
from populus.lowering.onnx.to_popart.tensor import element_positions
from populus.lowering.onnx.valid_sizes import Axes, Axis, bound_of, is_whole, prefix, size_of


def as_whole(c: Conversion, x: SSAValue) -> SSAValue:
    """Gives the buffer of a value as a tensor that is valid as a whole, for rules that select its valid part themselves."""
    m = masks_of(c)
    return m.plain(c, popart.ReshapeOp(x, shape=shape(x))) if x in m.valid.axes else x


def recurrent(c: Conversion) -> list[Output]:
    """Converts RNN, GRU or LSTM over a bounded number of steps: a sequence ends at the number of steps at the latest."""
    import numpy as np

    m, first = masks_of(c), bool(c.get("layout"))
    values = [compacted(c, v) for v in c.op.operands]
    present = [i for i, v in enumerate(c.inputs) if v is not None]
    at = {i: k for k, i in enumerate(present)}
    batches: list[int | None] = [{0: 0 if first else 1, 4: 0, 5: 0 if first else 1, 6: 0 if first else 1}.get(i) for i in present]
    values = agreed(c, values, [batches])
    x = m.valid.of(values[at[0]])
    steps, batch = (x[1], x[0]) if first else (x[0], x[1])
    if any(not is_whole(a) for i, v in zip(present, values) for d, a in enumerate(m.valid.of(v)) if d != batches[at[i]] and (i or d > 1)):
        raise PopulusError("its weights or features are of a bounded dimension; bind it to one size")
    inputs: list[SSAValue | None] = [as_whole(c, values[at[i]]) if i in at else None for i in range(max(5, len(c.inputs)))]
    if not is_whole(steps):
        lengths = inputs[4]
        if lengths is None:
            lengths = m.plain(c, constant(np.full(bound_of(batch), bound_of(steps), np.int32)))
        inputs[4] = m.plain(c, popart.MinOp(lengths, m.scalar(c, size_of(steps), i32)))
    c.inputs = inputs
    made = rnn.RULES[c.op.OP_TYPE](c)
    assert isinstance(made, list), made
    y, *states = made
    assert y is not None
    over: Axes = (batch, steps, *m.valid.of(y)[2:]) if first else (steps, m.valid.of(y)[1], batch, m.valid.of(y)[3])
    results: list[Output] = [m.state(y, over)]
    for state in states:
        assert state is not None
        own = m.valid.of(state)
        results.append(m.state(state, (batch, *own[1:]) if first else (own[0], batch, own[2])))
    return results


def top_k(c: Conversion) -> list[Output]:
    """Converts TopK of at most as many elements as are valid. Raises PopulusError for more at some size."""
    m, x = masks_of(c), compacted(c, c.input(0))
    rank = len(shape(x))
    axis = c.axis(rank, -1)
    k = as_size(int(c.get("k"))) if c.version < 10 else (numbers(c, 1) or [])[0]
    n = size_of(m.valid.of(x)[axis])
    if k.min(n) != k and (n - k).decided(m.valid.bounds).lower(m.valid.bounds) < 0:
        raise PopulusError(f"k is {k}, and dimension {axis} has {n} elements, fewer for some sizes; bind the dimension to one size")
    count = min(m.valid.upper(k), shape(x)[axis])
    order = [*(d for d in range(rank) if d != axis), axis]
    chosen = c.insert(popart.TopKOp(c.transpose(x, order), k=count, largest=c.get("largest") != 0))
    indices = c.transpose(chosen, [order.index(d) for d in range(rank)])
    axes = m.valid.of(indices)
    m.state(indices, (*axes[:axis], prefix(count, k), *axes[axis + 1 :]))
    flat = c.reshape(x, (_product(shape(x)),))
    values = c.insert(popart.GatherOp(flat, element_positions(c, x, indices, axis), axis=0))
    return [values, c.cast(indices, i64)]


def _product(values: Sequence[int]) -> int:
    """Multiplies numbers."""
    total = 1
    for v in values:
        total *= v
    return total


def pad(c: Conversion) -> Output:
    """Converts Pad with pads that may be sizes, in any mode. Source: ONNX Pad-21."""
    m, x, mode = masks_of(c), compacted(c, c.input(0)), c.get("mode") or "constant"
    rank = len(shape(x))
    if c.version < 11:
        stated = [as_size(int(v)) for v in c.list("paddings" if c.version == 1 else "pads")]
    else:
        stated = numbers(c, 1) or []
    axes = list(range(rank)) if not c.has(3) else [shapes.axis(int(a), rank) for a in c.known(3).reshape(-1)]
    if len(stated) != 2 * len(axes):
        raise PopulusError(f"there are {len(stated)} pads for {len(axes)} dimensions; twice as many are expected")
    value = c.reshape(c.input(2), ()) if c.version >= 11 and c.has(2) else c.scalar(c.get("value") or 0, x)
    for i, d in enumerate(axes):
        low, high = stated[i], stated[len(axes) + i]
        if low.constant == 0 and high.constant == 0:
            continue
        numbered = low.constant is not None and high.constant is not None
        if numbered and (is_whole(m.valid.of(x)[d]) or mode == "constant"):
            x = _at_bound(c, x, d, int(low.constant or 0), int(high.constant or 0), mode, value)
        else:
            x = _padded(c, x, d, low, high, mode, value)
    return x


def _at_bound(c: Conversion, x: SSAValue, d: int, low: int, high: int, mode: str, value: SSAValue) -> SSAValue:
    """Pads one axis by numbers."""
    if mode == "wrap":
        return _padded(c, x, d, as_size(low), as_size(high), mode, value)
    lower, upper = ([p if e == d else 0 for e in range(len(shape(x)))] for p in (low, high))
    return c.insert(popart.PadOp(x, value if mode == "constant" else None, lower=lower, upper=upper, mode=mode))


def _padded(c: Conversion, x: SSAValue, d: int, low: Size, high: Size, mode: str, value: SSAValue) -> SSAValue:
    """Pads one axis: each element of the result is read at a place that depends on sizes."""
    m = masks_of(c)
    return placed(c, x, d, low, (size_of(m.valid.of(x)[d]) + low + high).decided(m.valid.bounds), mode, value)


def placed(c: Conversion, x: SSAValue, d: int, low: Size, size: Size, mode: str, value: SSAValue) -> SSAValue:
    """Pads one axis by `low` elements at its front, to `size` elements."""
    m = masks_of(c)
    axes = m.valid.of(x)
    n, axis = size_of(axes[d]), m.axis(size)
    at = m.plain(c, popart.SubOp(m.iota(c, bound_of(axis)), m.scalar(c, low)))
    zero, last = m.scalar(c, as_size(0)), m.scalar(c, n - 1)
    inside = None
    match mode:
        case "reflect":
            at = m.plain(c, popart.AbsOp(at))
            back = m.plain(c, popart.SubOp(m.plain(c, popart.AddOp(last, last)), at))
            at = m.plain(c, popart.MinOp(at, back))
        case "edge":
            at = m.plain(c, popart.MinOp(at, last))
        case "wrap":
            at = m.plain(c, popart.ModOp(at, m.plain(c, popart.MaxOp(m.scalar(c, n), m.scalar(c, as_size(1)))), fmod=False))
        case _:
            before = m.plain(c, popart.GreaterOrEqualOp(at, zero))
            inside = m.plain(c, popart.AndOp(before, m.plain(c, popart.LessOp(at, m.scalar(c, n)))))
    result = picked(m, c, x, at, d)
    if inside is not None:
        form = [shape(result)[d] if e == d else 1 for e in range(len(axes))]
        result = m.plain(c, popart.WhereOp(m.plain(c, popart.ReshapeOp(inside, shape=form)), result, value))
    return m.state(result, (*axes[:d], axis, *axes[d + 1 :]))


def same_windows(c: Conversion) -> list[Output]:
    """Converts Conv or MaxPool whose `auto_pad` pads by amounts that depend on the size: the padding is made first.

    Axes have `ceil(n / stride)` windows. Source: ONNX Conv-22, MaxPool-22.
    """
    m, x = masks_of(c), compacted(c, c.input(0))
    kernel = shape(c.input(1))[2:] if c.op.OP_TYPE == "Conv" else tuple(int(v) for v in c.get("kernel_shape"))
    strides, dilations = ([int(v) for v in c.list(name) or [1] * len(kernel)] for name in ("strides", "dilations"))
    value = m.plain(c, constant(filler("zero" if c.op.OP_TYPE == "Conv" else "lowest", element(x))))
    counts: list[Size] = []
    for d, (k, stride, dilation) in enumerate(zip(kernel, strides, dilations), 2):
        n, extent = size_of(m.valid.of(x)[d]), shapes.reach(1, stride, k, dilation)
        counts.append(n.ceildiv(stride))
        whole = ((counts[-1] - 1) * stride + extent).max(n).decided(m.valid.bounds)
        more = whole - n
        low = more // 2 if c.get("auto_pad") == "SAME_UPPER" else more.ceildiv(2)
        x = m.safe(c, placed(c, x, d, low, whole, "constant", value))
    c.op.operands = [x, *c.op.operands[1:]]
    c.inputs = c.op.inputs
    if len(c.op.outputs) > 1 and c.used(1):
        raise PopulusError("positions of the largest elements depend on the padding, and that on sizes; bind them to one size")
    c.op.properties["auto_pad"] = StringAttr("VALID")
    c.op.properties.pop("ceil_mode", None)  # all of the padding is there
    made = nn.RULES[c.op.OP_TYPE](c)
    first, *rest = made if isinstance(made, list) else [made]
    assert first is not None
    axes = m.valid.of(first)
    return [m.state(first, (*axes[:2], *(prefix(bound_of(a), n) for a, n in zip(axes[2:], counts)))), *rest]


SAMPLED = ("half_pixel", "pytorch_half_pixel", "asymmetric", "tf_half_pixel_for_nn")


def resize(c: Conversion) -> Output:
    """Converts Resize or Upsample. A bounded dimension is scaled by a whole number, or by a power of 1/2.

    Elements beyond the valid part are those of its edge, as ONNX samples them. Raises PopulusError for coordinates that depend on
    the size otherwise.
    """
    m, x = masks_of(c), compacted(c, c.input(0))
    rank = len(shape(x))
    dims = [shapes.axis(a, rank) for a in c.get("axes") or range(rank)]
    scales = _scales(c)
    sizes = numbers(c, 3) if not scales and c.version > 10 else None
    transformation = c.get("coordinate_transformation_mode") or "asymmetric"
    if len(scales or sizes or []) != len(dims) or (c.get("keep_aspect_ratio_policy") or "stretch") != "stretch":
        raise PopulusError(f"its scales or sizes do not name each of {len(dims)} dimensions; one for each is expected")
    for k, d in enumerate(dims):
        n = size_of(m.valid.of(x)[d])
        ratio = _ratio(n, scales[k] if scales else None, sizes[k] if sizes else None)
        if ratio == (1, 1) and transformation != "tf_crop_and_resize":
            continue
        if blendable(c, x, transformation) and (ratio is None or (transformation == "align_corners" and (sizes or ratio[1] == 1))):
            out = sizes[k] if sizes else n * (ratio or (1, 1))[0]
            x = blended(c, x, d, transformation, out)
            continue
        if ratio is None:
            raise PopulusError(f"a dimension of {n} is resized by no factor that all sizes share; linear interpolation is supported then")
        up, down = ratio
        if transformation not in SAMPLED:
            raise PopulusError(f"coordinates by {transformation} depend on the size {n}; bind its dimensions to one size")
        if c.get("exclude_outside"):
            raise PopulusError(f"exclude_outside weighs elements by the size {n}; bind its dimensions to one size")
        out = n * up // down
        if transformation == "pytorch_half_pixel" and down > 1 and out.lower(m.valid.bounds) <= 1:
            raise PopulusError(f"a result of one element is sampled elsewhere than others, and its size is {out}")
        x = _resized(c, x, d, up, down, transformation, out)
    return x


def _scales(c: Conversion) -> list[float] | None:
    """Gives the scales; None if the node has sizes."""
    if c.get("scales"):
        return [float(v) for v in c.get("scales")]
    position = 1 if c.op.OP_TYPE == "Upsample" or c.version == 10 else 2
    if not c.has(position) or shape(c.input(position)) == (0,):
        return None
    return [float(v) for v in c.known(position)]


def _ratio(n: Size, scale: float | None, out: Size | None) -> tuple[int, int] | None:
    """Gives the factor of a dimension as two numbers; None if a stated size is none that all sizes share.

    Raises PopulusError for a scale whose product with a size is rounded.
    """
    if out is not None:
        if out == n:
            return 1, 1
        for whole, part, turned in ((out, n, False), (n, out, True)):
            k = whole.exactly(part)
            if k is not None and (number := k.constant) is not None and number > 0:
                return (1, number) if turned else (number, 1)
        return None
    assert scale is not None
    if scale >= 1 and scale == int(scale):
        return int(scale), 1
    up, down = float(scale).as_integer_ratio()
    if down > 64 or down & (down - 1):
        raise PopulusError(f"a dimension of {n} is scaled by {scale}; whole numbers and powers of 1/2 are supported")
    return up, down


def blendable(c: Conversion, x: SSAValue, transformation: str) -> bool:
    """Tells whether a Resize interpolates floats linearly, between two elements."""
    plain = not c.get("antialias") and not c.get("exclude_outside") and c.get("mode") == "linear"
    return plain and is_float(element(x)) and transformation in (*SAMPLED[:3], "align_corners")


def blended(c: Conversion, x: SSAValue, d: int, transformation: str, out: Size) -> SSAValue:
    """Samples `out` elements along axis `d`, linearly between two elements, at run-time coordinates, f32 or f64. Source: ONNX Resize-19."""
    m = masks_of(c)
    axes, kind = m.valid.of(x), element(x)
    wide = f64 if kind == f64 else f32
    axis = m.axis(out)
    if is_whole(axis):
        axis = prefix(bound_of(axis), out)
    n, count = Term(c, m.scalar(c, size_of(axes[d]), wide)), Term(c, m.scalar(c, out, wide))
    i = Term(c, c.cast(m.iota(c, bound_of(axis)), wide))
    match transformation:
        case "align_corners":
            at = i * (n - 1) / (count - 1).max(1)
        case "asymmetric":
            at = i * n / count
        case _:
            at = (i + 0.5) * n / count - 0.5
            if transformation == "pytorch_half_pixel":
                at = (count > 1).where(at, 0)
    at = at.max(0).min(n - 1)
    low = at.floor()
    form = [bound_of(axis) if e == d else 1 for e in range(len(axes))]
    share = c.reshape((at - low).value, form)
    first = picked(m, c, x, c.cast(low.value, i32), d)
    second = picked(m, c, x, c.cast((low + 1).min(n - 1).value, i32), d)
    over = (*axes[:d], axis, *axes[d + 1 :])
    near, far = (Term(c, c.cast(m.state(v, over), wide)) for v in (first, second))
    between = Term(c, share)
    # On an element its neighbour is no tap, and a difference of two infinities is no number.
    return c.cast((between > 0).where(near * (1 - between) + far * between, near).value, kind)


def _resized(c: Conversion, x: SSAValue, d: int, up: int, down: int, transformation: str, out: Size) -> SSAValue:
    """Resizes one axis by `up / down`."""
    m = masks_of(c)
    axes, bound = m.valid.of(x), shape(x)[d]
    final: Axis = prefix(bound * up // down, out)
    check_constant(bound_of(final), "a dimension of its result")
    if not is_whole(axes[d]):
        edge = m.plain(c, popart.MinOp(m.iota(c, bound), m.scalar(c, size_of(axes[d]) - 1)))
        x = m.state(picked(m, c, x, edge, d), axes)
    whole = (*axes[:d], prefix(bound, bound), *axes[d + 1 :])
    x = m.state(m.plain(c, popart.ReshapeOp(x, shape=shape(x))), whole)
    factor = up / down
    rounding = c.get("nearest_mode") or ("ceil" if factor < 1 and c.version == 10 else "floor")
    at = coordinates(transformation, bound, bound_of(final), factor, None, wide=interpolates_doubles(c, x))
    y = sampled(c, x, d, at, c.get("mode") or "nearest", rounding, factor)
    found = m.valid.of(y)
    return m.state(m.plain(c, popart.ReshapeOp(y, shape=shape(y))), (*found[:d], final, *found[d + 1 :]))


def einsum(c: Conversion) -> None:
    """Makes the axes of equal labels alike."""
    values = [compacted(c, v) for v in c.op.operands]
    terms = labels_of(c.get("equation").replace(" ", ""), values)
    names = sorted({label for labels in terms for label in labels})
    if any(labels.count(n) > 1 for labels in terms for n in names):
        values = _undivided(masks_of(c), values)
    c.op.operands = agreed(c, values, [[labels.index(n) if n in labels else None for labels in terms] for n in names])
    c.inputs = c.op.inputs


def _undivided(m: Masks, values: list[SSAValue]) -> list[SSAValue]:
    """Refuses diagonals of bounded dimensions."""
    if any(m.valid.sized(v) for v in values):
        raise PopulusError("it takes a diagonal of a bounded dimension; bind it to one size")
    return values


def elements(c: Conversion) -> None:
    """Moves valid elements to the front, and makes axes of data, indices and updates alike but for the one that is indexed."""
    values = [compacted(c, v) for v in c.op.operands]
    axis, rank = c.axis(len(shape(values[0]))), len(shape(values[0]))
    groups: list[list[int | None]] = [[None, *[d] * (len(values) - 1)] for d in range(rank)]
    c.op.operands = agreed(c, values, groups)
    c.inputs = c.op.inputs
    m = masks_of(c)
    for d in range(rank):
        own, index = m.valid.of(c.input(0))[d], m.valid.of(c.input(1))[d]
        if d != axis and bound_of(own) < bound_of(index):
            raise PopulusError(f"indices have {bound_of(index)} elements along axis {d}, of {bound_of(own)}")


RULES: Mapping[str, Rule] = {
    "GRU": recurrent,
    "LSTM": recurrent,
    "Pad": pad,
    "RNN": recurrent,
    "Resize": resize,
    "TopK": top_k,
    "Upsample": resize,
}
