"""Values of ops that compute shapes, where sizes are bounded: the same ops as `shape_arithmetic`, on arrays of `Size`.

    Shape -> Gather -> Unsqueeze -> Concat        # [batch, seq * 2, 64]

Floats that exporters compute sizes in are exact here. A result that depends on how sizes compare is decided by their bounds, or not known.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from xdsl.dialects.builtin import i64
from xdsl.ir import Attribute, SSAValue

from populus.dialects.onnx.schema import OnnxOp
from populus.dialects.onnx.sizes import Bounds, Size, as_size
from populus.dialects.onnx.types import element_numbered
from populus.dialects.support import shapes
from populus.dialects.support.diagnostics import PopulusError
from populus.dialects.support.element_types import dtype_of, element_type_of, is_float, is_integer
from populus.lowering.onnx.shape_arithmetic import evaluate
from populus.lowering.onnx.valid_sizes import ValidSizes, size_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array: TypeAlias = NDArray[Any]
    Known: TypeAlias = Callable[[SSAValue], Array | None]

MOST = 64  # elements of an array of sizes: shapes, and the positions that exporters index them by


def sizes_of(op: OnnxOp, valid: ValidSizes, known: Known) -> tuple[Array, Attribute] | None:
    """Computes an op on sizes: the array of its result, and its element type. None if the op is not one of those.

    The array has the op's own dtype if no element depends on a dimension, and is of `Size` otherwise.
    """
    if op.DOMAIN or len(op.results) != 1:
        return None
    if op.OP_TYPE in ("Shape", "Size"):
        return _measured(op, valid)
    if not any(v in valid.symbols for v in op.operands):
        return None
    inputs = [None if v is None else _array(v, valid, known) for v in op.inputs]
    if any(v is not None and a is None for v, a in zip(op.inputs, inputs)):
        return None
    element = _element(op)
    if element is None:
        return None
    try:
        result = _computed(op, inputs, valid.bounds)
    except (ValueError, IndexError, TypeError, AssertionError, PopulusError):
        return None  # the op's conversion reports what is wrong
    return None if result is None or result.size > MOST else (plain(result, element), element)


def plain(array: Array, element: Attribute) -> Array:
    """Makes an array of numbers of an array of sizes, if none depends on a dimension."""
    import numpy as np

    if array.dtype != object:
        return array.astype(dtype_of(element))
    numbers = [v.constant if isinstance(v, Size) else v for v in array.reshape(-1)]
    if any(n is None for n in numbers):
        return array
    return np.array(numbers).reshape(array.shape).astype(dtype_of(element))


def _measured(op: OnnxOp, valid: ValidSizes) -> tuple[Array, Attribute] | None:
    """Computes Shape or Size of a tensor that is partly valid, or made of sizes."""
    import numpy as np

    x = op.operands[0]
    if not valid.concerns([x]):
        return None
    sizes = [size_of(a) for a in valid.of(x)]
    if op.OP_TYPE == "Size":
        total = as_size(1)
        for s in sizes:
            total = total * s
        return plain(_objects([total]).reshape(()), i64), i64
    found = _objects(sizes)[slice(op.property("start"), op.property("end"))]
    return (plain(found, i64) if found.size else np.zeros(0, np.int64)), i64


def _objects(values: Sequence[Any]) -> Array:
    """Makes an array of objects: [n]."""
    import numpy as np

    array = np.empty(len(values), object)
    array[:] = values
    return array


def _array(value: SSAValue, valid: ValidSizes, known: Known) -> Array | None:
    """Gives the array of a value, of `Size` or of numbers; None if it is known only at run time."""
    if (found := valid.symbols.get(value)) is not None:
        return found
    array = None if value in valid.axes else known(value)
    return None if array is None or array.size > MOST else array


def _element(op: OnnxOp) -> Attribute | None:
    """Gives the element type of the result."""
    if op.OP_TYPE == "Cast":
        to = op.property("to")
        return element_numbered(to) if isinstance(to, int) else None
    if op.OP_TYPE in _COMPARED:
        from xdsl.dialects.builtin import i1

        return i1
    value = op.inputs[1 if op.OP_TYPE == "Where" else 0]
    assert value is not None, op
    return element_type_of(value.type)


def _computed(op: OnnxOp, inputs: Sequence[Array | None], bounds: Bounds) -> Array | None:
    """Computes the result; None if the op is not known here or bounds do not decide it."""
    if op.OP_TYPE in _MOVING:
        found = evaluate(op, inputs)
        return None if found is None else _objects([found[0]]).reshape(()) if isinstance(found[0], Size) else found[0]
    rule = _RULES.get(op.OP_TYPE)
    return None if rule is None else rule(op, [a for a in inputs if a is not None], bounds)


def _each(f: Callable[..., Any], arrays: Sequence[Array]) -> Array | None:
    """Applies a function to the elements of broadcast arrays; None if it gives None for one."""
    import numpy as np

    together = np.broadcast_arrays(*arrays)
    values = [f(*elements) for elements in zip(*(a.reshape(-1).tolist() for a in together))]
    return None if any(v is None for v in values) else _objects(values).reshape(together[0].shape)


def _whole(value: Any) -> Size | None:
    """Gives an element as a size; None if it is no whole number."""
    if isinstance(value, Size):
        return value
    return as_size(int(value)) if value == int(value) else None


def _multiplied(op: OnnxOp, arrays: Sequence[Array], bounds: Bounds) -> Array | None:
    """Computes Mul. A factor such as 0.5 divides, if that leaves no rest."""

    def element(a: Any, b: Any) -> Size | None:
        if isinstance(b, Size) and not isinstance(a, Size):
            a, b = b, a
        x, y = _whole(a), _whole(b)
        if x is not None and y is not None:
            return x * y
        if x is None or isinstance(b, Size) or not b or 1 / b != int(1 / b):
            return None
        return x.exactly(as_size(int(1 / b)))

    return _each(element, arrays)


def _divided(op: OnnxOp, arrays: Sequence[Array], bounds: Bounds) -> Array | None:
    """Computes Div: exactly for floats; integers round towards zero, which for sizes is down."""
    first = op.inputs[0]
    assert first is not None
    whole = is_integer(element_type_of(first.type))

    def element(a: Any, b: Any) -> Size | None:
        x, y = _whole(a), _whole(b)
        if x is None or y is None:
            return None
        if (exact := x.exactly(y)) is not None:
            return exact
        return x // y if whole and x.lower(bounds) >= 0 and y.lower(bounds) > 0 else None

    return _each(element, arrays)


def _remainder(op: OnnxOp, arrays: Sequence[Array], bounds: Bounds) -> Array | None:
    """Computes Mod of sizes that are not negative."""

    def element(a: Any, b: Any) -> Size | None:
        x, y = _whole(a), _whole(b)
        return x - x // y * y if x is not None and y is not None and x.lower(bounds) >= 0 and y.lower(bounds) > 0 else None

    return _each(element, arrays)


def _extreme(name: str) -> Callable[..., Array | None]:
    """Makes the rule of Min or Max."""

    def rule(op: OnnxOp, arrays: Sequence[Array], bounds: Bounds) -> Array | None:
        def element(*values: Any) -> Size | None:
            sizes = [_whole(v) for v in values]
            result = sizes[0]
            for s in sizes[1:]:
                result = None if s is None or result is None else getattr(result, name)(s).decided(bounds)
            return result

        return _each(element, arrays)

    return rule


def _compared(holds: Callable[[int, int], bool | None]) -> Callable[..., Array | None]:
    """Makes the rule of a comparison. `holds`: decides it by the bounds of `a - b`, or gives None."""

    def rule(op: OnnxOp, arrays: Sequence[Array], bounds: Bounds) -> Array | None:
        def element(a: Any, b: Any) -> bool | None:
            x, y = _whole(a), _whole(b)
            return None if x is None or y is None else holds(*(x - y).interval(bounds))

        found = _each(element, arrays)
        return None if found is None else found.astype(bool)

    return rule


def _equal(low: int, high: int) -> bool | None:
    return True if low == high == 0 else False if low > 0 or high < 0 else None


def _below(low: int, high: int) -> bool | None:
    return True if high < 0 else False if low >= 0 else None


def _above(low: int, high: int) -> bool | None:
    return True if low > 0 else False if high <= 0 else None


def _not_above(low: int, high: int) -> bool | None:
    above = _above(low, high)
    return None if above is None else not above


def _not_below(low: int, high: int) -> bool | None:
    below = _below(low, high)
    return None if below is None else not below


def _where(op: OnnxOp, arrays: Sequence[Array], bounds: Bounds) -> Array | None:
    """Computes Where with a known condition."""

    def element(condition: Any, a: Any, b: Any) -> Any:
        return None if isinstance(condition, Size) else a if condition else b

    return _each(element, arrays)


def _cast(op: OnnxOp, arrays: Sequence[Array], bounds: Bounds) -> Array | None:
    """Computes Cast between numbers that hold sizes exactly."""
    to = element_numbered(op.property("to"))
    wide = to is not None and (is_integer(to) or is_float(to)) and dtype_of(to).itemsize >= 4
    return arrays[0] if wide else None


def _kept(op: OnnxOp, arrays: Sequence[Array], bounds: Bounds) -> Array | None:
    """Computes Floor, Ceil or Round: sizes are whole."""
    return arrays[0] if all(isinstance(v, Size) or v == int(v) for v in arrays[0].reshape(-1)) else None


def _range(op: OnnxOp, arrays: Sequence[Array], bounds: Bounds) -> Array | None:
    """Computes a Range of a known number of elements."""
    start, limit, step = (_whole(a.reshape(-1)[0]) for a in arrays)
    if start is None or limit is None or step is None or not (k := step.constant):
        return None
    count = ((limit - start).ceildiv(k) if k > 0 else (start - limit).ceildiv(-k)).constant
    return None if count is None or count > MOST else _objects([start + i * k for i in range(max(count, 0))])


def axes_of(op: OnnxOp, i: int, attribute: str, rank: int, known: Known) -> tuple[int, ...] | None:
    """Gives the axes that an attribute or input `i` names, from the front and sorted; None if neither is there or known."""
    listed = op.property(attribute) if attribute in op.KINDS else None
    if listed is None and i < len(op.inputs) and (value := op.inputs[i]) is not None:
        array = known(value)
        listed = None if array is None else array.reshape(-1).tolist()
    return None if listed is None else shapes.axes([int(a) for a in listed], rank)


_MOVING = frozenset(
    (
        "Add", "Concat", "Expand", "Gather", "Identity", "Neg", "ReduceProd", "ReduceSum", "Reshape", "Slice", "Split", "Squeeze", "Sub",
        "Tile", "Transpose", "Unsqueeze",
    )
)  # fmt: skip
_COMPARED = {
    "Equal": _compared(_equal),
    "Greater": _compared(_above),
    "GreaterOrEqual": _compared(_not_below),
    "Less": _compared(_below),
    "LessOrEqual": _compared(_not_above),
}
_RULES: dict[str, Callable[..., Array | None]] = {
    **_COMPARED,
    "Cast": _cast,
    "Ceil": _kept,
    "Div": _divided,
    "Floor": _kept,
    "Max": _extreme("max"),
    "Min": _extreme("min"),
    "Mod": _remainder,
    "Mul": _multiplied,
    "Range": _range,
    "Round": _kept,
    "Where": _where,
}
