"""Shape rules of `stablehlo`: whether the result types that a text states follow from operands and attributes.

A rule looks at static tensors. Types with open dimensions, tuples and tokens are checked when they are resolved or refused.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from xdsl.dialects.builtin import ComplexType, NoneAttr, TensorType, i1, i32
from xdsl.ir import Attribute
from xdsl.utils.exceptions import VerifyException

from populus.dialects.stablehlo.attributes import ConvolutionDimensions, Named
from populus.dialects.support import shapes
from populus.dialects.support.element_types import element_type_of, shape_of, tensor, ui32

if TYPE_CHECKING:
    from populus.dialects.stablehlo.ops import HloOp

Rule: TypeAlias = "Callable[[HloOp], None]"
Types: TypeAlias = "Sequence[Attribute]"


def is_static(type: Attribute) -> bool:
    """Tells whether a type is a tensor of which all dimensions are known."""
    return isinstance(type, TensorType) and type.has_static_shape()


def _rule(infer: Callable[[Any], Types]) -> Rule:
    """Makes the rule of an op whose result types follow; `infer` gives them."""

    def rule(op: HloOp) -> None:
        if not all(is_static(v.type) for v in (*op.operands, *op.results)):
            return
        expected, found = [_bare(t) for t in infer(op)], [_bare(r.type) for r in op.results]
        if expected != found:
            said = (", ".join(map(str, types)) for types in (found, expected))
            raise VerifyException("the result is {}; operands and attributes give {}".format(*said))

    return rule


def _bare(type: Attribute) -> Attribute:
    """Gives a tensor type without its encoding, by which elements are quantized: operands and results may differ in it."""
    if not isinstance(type, TensorType):
        return type
    type = cast("TensorType[Attribute]", type)
    return type if isinstance(type.encoding, NoneAttr) else tensor(shape_of(type), element_type_of(type))


def _shape(op: HloOp, i: int = 0) -> tuple[int, ...]:
    return shape_of(op.operands[i].type)


def _element(op: HloOp, i: int = 0) -> Attribute:
    return element_type_of(op.operands[i].type)


def _like(op: HloOp, shape: Sequence[int]) -> Types:
    return [tensor(tuple(shape), _element(op))]


def _equal(op: HloOp, values: slice = slice(None)) -> None:
    """Raises VerifyException if operands differ in type."""
    if len(types := {_bare(v.type) for v in list(op.operands)[values]}) > 1:
        raise VerifyException(f"the operands are {', '.join(sorted(map(str, types)))}; equal types are expected")


def same(op: HloOp) -> Types:
    """Gives the type of the operands, which are equal."""
    _equal(op)
    return [op.operands[0].type]


def part(op: HloOp) -> Types:
    """Gives the type of an absolute value, or of a part of a complex number."""
    element = _element(op)
    return [tensor(_shape(op), cast("ComplexType[Any]", element).element_type if isinstance(element, ComplexType) else element)]


def pair(op: HloOp) -> Types:
    """Gives the complex type of two parts."""
    _equal(op)
    return [tensor(_shape(op), ComplexType(_element(op)))]  # pyright: ignore[reportArgumentType]


def test(op: HloOp) -> Types:
    """Gives the type of a comparison: booleans."""
    _equal(op)
    return [tensor(_shape(op), i1)]


def select(op: HloOp) -> Types:
    """Gives the type of the alternatives; the condition has their shape or is a scalar."""
    _equal(op, slice(1, None))
    if _element(op) != i1 or _shape(op) not in ((), _shape(op, 1)):
        raise VerifyException(f"the condition is {op.operands[0].type}, the alternatives are {op.operands[1].type}")
    return [op.operands[1].type]


def clamp(op: HloOp) -> Types:
    """Gives the type of the middle operand; the bounds have it or are scalars."""
    for i in (0, 2):
        if _element(op, i) != _element(op, 1) or _shape(op, i) not in ((), _shape(op, 1)):
            raise VerifyException(f"a bound is {op.operands[i].type}, the operand is {op.operands[1].type}")
    return [op.operands[1].type]


def convert(op: HloOp) -> None:
    """Raises VerifyException if the shape changes."""
    a, b = op.operands[0].type, op.results[0].type
    if is_static(a) and is_static(b) and shape_of(a) != shape_of(b):
        raise VerifyException(f"{a} cannot become {b}: the shapes differ")


def reshape(op: HloOp) -> Types:
    """Checks the number of elements."""
    result = op.results[0].type
    shapes.reshape(_shape(op), shape_of(result))
    return _like(op, shape_of(result))


def broadcast_in_dim(op: HloOp) -> Types:
    """Checks that each dimension of the operand is 1, or that of the result which it becomes."""
    dims, result = op.get("broadcast_dimensions"), shape_of(op.results[0].type)
    if len(dims) != len(_shape(op)) or len(set(dims)) < len(dims) or any(not 0 <= d < len(result) for d in dims):
        raise VerifyException(f"broadcast_dimensions is {list(dims)}, for {op.operands[0].type} and {op.results[0].type}")
    for n, d in zip(_shape(op), dims):
        if n not in (1, result[d]):
            raise VerifyException(f"a dimension of {n} cannot be broadcast to {result[d]}")
    return _like(op, result)


def iota(op: HloOp) -> None:
    """Raises VerifyException if the result has no such dimension."""
    if is_static(op.results[0].type):
        shapes.front(op.get("iota_dimension"), len(shape_of(op.results[0].type)))


def concatenate(op: HloOp) -> Types:
    """Gives the type of the operands one after the other."""
    if len({_element(op, i) for i in range(len(op.operands))}) > 1:
        _equal(op)
    return _like(op, shapes.concatenated([shape_of(v.type) for v in op.operands], op.get("dimension")))


def slice_(op: HloOp) -> Types:
    """Gives the type of a slice."""
    low, high, steps = (op.get(n) for n in ("start_indices", "limit_indices", "strides"))
    if any(step < 1 for step in steps):
        raise VerifyException(f"strides is {list(steps)}; each is at least 1")
    return _like(op, shapes.sliced(_shape(op), low, high, steps))


def pad(op: HloOp) -> Types:
    """Gives the type of a padded tensor."""
    low, high, inside = (op.get(n) for n in ("edge_padding_low", "edge_padding_high", "interior_padding"))
    if not len(low) == len(high) == len(inside) == len(_shape(op)):
        raise VerifyException(f"{len(low)}, {len(high)} and {len(inside)} pads for {op.operands[0].type}")
    sizes = [n + max(n - 1, 0) * i + a + b for n, a, b, i in zip(_shape(op), low, high, inside)]
    return _like(op, shapes.natural(tuple(sizes)))


def transpose(op: HloOp) -> Types:
    """Gives the type with dimensions in another order."""
    return _like(op, shapes.permuted(_shape(op), op.get("permutation")))


def reverse(op: HloOp) -> Types:
    """Checks that the dimensions exist."""
    shapes.axes(op.get("dimensions"), len(_shape(op)))
    return [op.operands[0].type]


def dot_general(op: HloOp) -> Types:
    """Gives batch dimensions, then the free ones of either side."""
    d = op.stated("dot_dimension_numbers")
    assert isinstance(d, Named)
    left, right = _shape(op), _shape(op, 1)
    names = ("lhs_batching_dimensions", "rhs_batching_dimensions", "lhs_contracting_dimensions", "rhs_contracting_dimensions")
    lb, rb, lc, rc = (d.ints(name) for name in names)
    _distinct((*lb, *lc), len(left))
    _distinct((*rb, *rc), len(right))
    if [left[i] for i in (*lb, *lc)] != [right[i] for i in (*rb, *rc)]:
        raise VerifyException(f"{shapes.text(left)} and {shapes.text(right)} disagree: {list(lb)} {list(lc)}, {list(rb)} {list(rc)}")
    free = [n for i, n in enumerate(left) if i not in (*lb, *lc)], [n for i, n in enumerate(right) if i not in (*rb, *rc)]
    return [tensor([*(left[i] for i in lb), *free[0], *free[1]], element_type_of(op.results[0].type))]


def convolution(op: HloOp) -> Types:
    """Gives the windows of each spatial dimension."""
    dims = op.stated("dimension_numbers")
    assert isinstance(dims, ConvolutionDimensions)
    x, w = _shape(op), _shape(op, 1)
    if not len(x) == len(w) == len(dims.data[0]) == len(dims.data[1]) == len(dims.data[2]):
        raise VerifyException(f"{op.operands[0].type}, {op.operands[1].type} and the dimension numbers differ in rank")
    (n, f, *size), (o, i, *kernel) = ([s[d] for d in dims.order(k, *ab)] for k, s, ab in ((0, x, ("b", "f")), (1, w, ("o", "i"))))
    rank, groups, batches = len(size), op.get("feature_group_count"), op.get("batch_group_count")
    if groups < 1 or batches < 1 or f != i * groups or n % batches or o % (groups * batches):
        raise VerifyException(f"{f} features of {n} inputs do not fit a kernel of {i} to {o} in {groups} and {batches} groups")
    ones = (1,) * rank
    strides, into, apart = (op.get(name, ones) for name in ("window_strides", "lhs_dilation", "rhs_dilation"))
    pads = op.get("padding") or (0,) * 2 * rank
    if not len(strides) == len(into) == len(apart) == len(pads) // 2 == rank:
        raise VerifyException(f"strides, dilations and pads are for {rank} spatial dimensions")
    out = [0] * len(x)
    places = dims.order(2, "b", "f")
    for place, value in zip(places, (n // batches, o)):
        out[place] = value
    for d, place in enumerate(places[2:]):
        room = shapes.reach(size[d], into[d], 1, 1) * (size[d] > 0) + pads[2 * d] + pads[2 * d + 1]
        reach = shapes.reach(1, 1, kernel[d], apart[d]) if kernel[d] else 0
        out[place] = (room - reach) // strides[d] + 1 if room >= reach and room > 0 else 0
    return [tensor(out, element_type_of(op.results[0].type))]


def _halves(op: HloOp) -> int:
    """Gives the number of tensors of an op that takes as many initial values after them."""
    count, odd = divmod(len(op.operands), 2)
    if odd or not count:
        raise VerifyException(f"{len(op.operands)} operands; as many tensors as initial values are expected")
    return count


def reduce(op: HloOp) -> Types:
    """Gives the types without the reduced dimensions."""
    count, dims = _halves(op), shapes.axes(op.get("dimensions"), len(_shape(op)))
    if len({_shape(op, i) for i in range(count)}) > 1:
        raise VerifyException("the operands differ in shape")
    return [tensor(shapes.reduced(_shape(op), dims, keep=False), element_type_of(r.type)) for r in op.results]


def window_sizes(op: HloOp) -> list[int]:
    """Gives the number of windows in each dimension of the first operand of a reduce_window or select_and_scatter."""
    shape, kernel = _shape(op), op.get("window_dimensions")
    ones = (1,) * len(shape)
    strides, base, apart = (op.get(name, ones) for name in ("window_strides", "base_dilations", "window_dilations"))
    pads = op.get("padding") or (0,) * 2 * len(shape)
    if not len(kernel) == len(strides) == len(base) == len(apart) == len(pads) // 2 == len(shape):
        raise VerifyException(f"windows, strides, dilations and pads are for the {len(shape)} dimensions of {op.operands[0].type}")
    sizes: list[int] = []
    for d, n in enumerate(shape):
        room = (shapes.reach(n, base[d], 1, 1) if n else 0) + pads[2 * d] + pads[2 * d + 1]
        reach = shapes.reach(1, 1, kernel[d], apart[d])
        sizes.append((room - reach) // strides[d] + 1 if room >= reach else 0)
    return sizes


def reduce_window(op: HloOp) -> Types:
    """Gives one element for each window."""
    _halves(op)
    sizes = window_sizes(op)
    return [tensor(sizes, element_type_of(r.type)) for r in op.results]


def select_and_scatter(op: HloOp) -> Types:
    """Checks that the source has an element for each window."""
    if (sizes := tuple(window_sizes(op))) != _shape(op, 1):
        raise VerifyException(f"the source is {op.operands[1].type}; there are {shapes.text(sizes)} windows")
    return [tensor(_shape(op), element_type_of(op.results[0].type))]


def dynamic_slice(op: HloOp) -> Types:
    """Gives the type of the slice, which is no larger than the operand."""
    sizes = op.get("slice_sizes")
    if len(sizes) != len(_shape(op)) or len(op.operands) != 1 + len(sizes) or any(not 0 <= s <= n for s, n in zip(sizes, _shape(op))):
        raise VerifyException(f"slices of {shapes.text(sizes)} at {len(op.operands) - 1} indices of {op.operands[0].type}")
    return _like(op, sizes)


def dynamic_update_slice(op: HloOp) -> Types:
    """Gives the operand's type; the update is no larger."""
    x, u = _shape(op), _shape(op, 1)
    if len(x) != len(u) or len(op.operands) != 2 + len(x) or any(m > n for m, n in zip(u, x)) or _element(op) != _element(op, 1):
        raise VerifyException(f"an update {op.operands[1].type} at {len(op.operands) - 2} indices of {op.operands[0].type}")
    return [op.operands[0].type]


def _ascending(name: str, dims: Sequence[int], rank: int) -> None:
    if any(not 0 <= d < rank for d in dims) or list(dims) != sorted(set(dims)):
        raise VerifyException(f"{name} is {list(dims)}; dimensions of a rank of {rank} in ascending order are expected")


def _distinct(dims: Sequence[int], rank: int) -> None:
    if any(not 0 <= i < rank for i in dims) or len(set(dims)) < len(dims):
        raise VerifyException(f"dimensions {list(dims)} of a rank of {rank} are outside of it, or twice")


def _places(d: Named, x: Sequence[int], indices: Sequence[int], start_map: str, own: str, theirs: str) -> list[int]:
    """Gives the batch of indices. Raises VerifyException if a dimension of the operand or of the indices is none of theirs, or twice."""
    vector: int = d.entry("index_vector_dim", 0)
    if not 0 <= vector <= len(indices):
        raise VerifyException(f"index_vector_dim is {vector}; indices of {shapes.text(indices)} have 0 to {len(indices)}")
    _distinct((*d.ints(start_map), *d.ints(own)), len(x))
    _distinct((*d.ints(theirs), vector), len(indices) + 1)
    if [x[i] for i in d.ints(own)] != [indices[i] for i in d.ints(theirs)]:
        raise VerifyException(f"batches {list(d.ints(own))} of {shapes.text(x)}, {list(d.ints(theirs))} of {shapes.text(indices)} differ")
    depth = indices[vector] if vector < len(indices) else 1
    if depth != len(d.ints(start_map)):
        raise VerifyException(f"indices of {depth} coordinates; {start_map} has {len(d.ints(start_map))}")
    return [n for i, n in enumerate(indices) if i != vector]


def gather(op: HloOp) -> Types:
    """Gives batch dimensions and offset dimensions. Source: StableHLO's specification, gather."""
    d = op.stated("dimension_numbers")
    assert isinstance(d, Named)
    offset, sizes = d.ints("offset_dims"), op.get("slice_sizes")
    hidden = (*d.ints("collapsed_slice_dims"), *d.ints("operand_batching_dims"))
    x, indices = _shape(op), _shape(op, 1)
    if len(sizes) != len(x) or any(not 0 <= s <= n for s, n in zip(sizes, x)):
        raise VerifyException(f"slices of {shapes.text(sizes)} of {op.operands[0].type}")
    _distinct(hidden, len(x))
    batch = _places(d, x, indices, "start_index_map", "operand_batching_dims", "start_indices_batching_dims")
    inner = [s for i, s in enumerate(sizes) if i not in hidden]
    if len(inner) != len(offset):
        raise VerifyException(f"offset_dims is {list(offset)}; the slices have {len(inner)} dimensions")
    rank = len(batch) + len(inner)
    _ascending("offset_dims", offset, rank)
    return _like(op, [inner.pop(0) if i in offset else batch.pop(0) for i in range(rank)])


def scatter(op: HloOp) -> Types:
    """Gives the types of the inputs; the updates have batch and window dimensions."""
    count, odd = divmod(len(op.operands) - 1, 2)
    if odd or count < 1:
        raise VerifyException(f"{len(op.operands)} operands; inputs, indices and as many updates are expected")
    d = op.stated("scatter_dimension_numbers")
    assert isinstance(d, Named)
    x, indices, updates = _shape(op), _shape(op, count), _shape(op, count + 1)
    windows, hidden = d.ints("update_window_dims"), (*d.ints("inserted_window_dims"), *d.ints("input_batching_dims"))
    _ascending("update_window_dims", windows, len(updates))
    _distinct(hidden, len(x))
    batch = _places(d, x, indices, "scatter_dims_to_operand_dims", "input_batching_dims", "scatter_indices_batching_dims")
    outer = [n for i, n in enumerate(updates) if i not in windows]
    inner = [n for i, n in enumerate(updates) if i in windows]
    kept = [n for i, n in enumerate(x) if i not in hidden]
    if outer != batch or len(inner) != len(kept):
        raise VerifyException(f"updates {shapes.text(updates)} do not follow from {shapes.text(x)} and indices {shapes.text(indices)}")
    if any(m > n for m, n in zip(inner, kept)):
        raise VerifyException(f"windows of {shapes.text(inner)} exceed {shapes.text(kept)}")
    return [op.operands[i].type for i in range(count)]


def sort(op: HloOp) -> Types:
    """Gives the operands' types, which have one shape."""
    if len({shape_of(v.type) for v in op.operands}) > 1:
        raise VerifyException("the operands differ in shape")
    shapes.axis(op.get("dimension", -1), len(_shape(op)))
    return [v.type for v in op.operands]


SAME = """
add and atan2 cbrt ceil count_leading_zeros divide exponential exponential_minus_one floor log log_plus_one logistic maximum minimum
multiply negate not or popcnt power reduce_precision remainder round_nearest_afz round_nearest_even rsqrt shift_left
shift_right_arithmetic shift_right_logical sign sine cosine sqrt subtract tan tanh xor
"""
RULES: dict[str, Rule] = {
    **{name: _rule(same) for name in SAME.split()},
    **{name: _rule(part) for name in ("abs", "real", "imag")},
    "broadcast_in_dim": _rule(broadcast_in_dim),
    "clamp": _rule(clamp),
    "compare": _rule(test),
    "complex": _rule(pair),
    "concatenate": _rule(concatenate),
    "convert": convert,
    "convolution": _rule(convolution),
    "dot_general": _rule(dot_general),
    "dynamic_slice": _rule(dynamic_slice),
    "dynamic_update_slice": _rule(dynamic_update_slice),
    "gather": _rule(gather),
    "get_dimension_size": _rule(lambda op: [tensor((), i32)]),
    "iota": iota,
    "is_finite": _rule(test),
    "pad": _rule(pad),
    "partition_id": _rule(lambda op: [tensor((), ui32)]),
    "reduce": _rule(reduce),
    "reduce_window": _rule(reduce_window),
    "replica_id": _rule(lambda op: [tensor((), ui32)]),
    "reshape": _rule(reshape),
    "reverse": _rule(reverse),
    "scatter": _rule(scatter),
    "select": _rule(select),
    "select_and_scatter": _rule(select_and_scatter),
    "slice": _rule(slice_),
    "sort": _rule(sort),
    "transpose": _rule(transpose),
    "while": _rule(lambda op: [v.type for v in op.operands]),
}
