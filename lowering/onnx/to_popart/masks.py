"""Masks of partly valid tensors: each `popart` op that a conversion inserts is right on the valid part of its result.

    %in = popart.less %positions, %size.seq          # [512], i1
    %z  = popart.where %in, %x, -inf                  # what softmax reads beyond the valid part

Sizes and masks stand at the start of the function, once for each size. `RULES` has a rule for each op class that may read a
partly valid operand; an op without one is refused.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from xdsl.builder import Builder
from xdsl.dialects.builtin import i1, i32, i64
from xdsl.dialects.func import FuncOp
from xdsl.ir import Attribute, Block, Operation, SSAValue
from xdsl.rewriter import InsertPoint

from populus.dialects import popart
from populus.dialects.data import constant
from populus.dialects.onnx.sizes import Atom, Size, as_size
from populus.dialects.popart import CastOp, ExpandOp, ReshapeOp, TransposeOp
from populus.dialects.poplar.target import sum_type
from populus.dialects.signature import input_names
from populus.dialects.signature.bounded_dimensions import PREFIX, require_equal
from populus.dialects.support.diagnostics import PopulusError, named
from populus.dialects.support.element_types import dtype_of, element_type_of, is_float, shape_of
from populus.lowering.onnx.valid_sizes import Axes, Axis, ValidSizes, bound_of, is_whole, prefix, size_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

Rule: TypeAlias = "Callable[[Masks, Place, Any], SSAValue]"
Fill: TypeAlias = "str | SSAValue"
FILLS = ("zero", "one", "lowest", "highest")
"""Elements that stand beyond a valid part, of any type (`filler`)."""


class Masks:
    """The sizes of a function at run time, masks of valid parts, and the insertion of ops that read such parts.

    `rules`: gives the rule of an op, or None. `sizes`: the i32 scalar of each dimension, an argument of the function.
    `zeroed`: floats are zero beyond the valid part of each value. Gradients are zero there too, by the gradient of `where`.
    """

    def __init__(self, valid: ValidSizes, rules: Callable[[Operation], Rule | None], zeroed: bool = False):
        self.valid = valid
        self.zeroed = zeroed
        self.rules = rules
        self.sizes: dict[str, SSAValue] = {}
        self.handled: set[Operation] = set()
        self._start: Builder | None = None
        self._places: dict[str, Builder] = {}  # after the definition of each size that the data decide, in order
        self._function: FuncOp | None = None
        self._numbers: dict[Size, SSAValue] = {}
        self._masks: dict[Axis, SSAValue] = {}
        self._filled: dict[SSAValue, dict[int, str]] = {}  # what stands beyond the valid part, by axis
        self._fills: dict[tuple[SSAValue, tuple[int, ...], str], tuple[Block | None, SSAValue]] = {}

    def enter(self, function: FuncOp) -> None:
        """Begins with a function: sizes are its arguments `size.NAME`, and masks go before its first op."""
        import numpy as np

        self._function, block = function, function.body.block
        for name, argument in zip(input_names(function), block.args):
            if name.startswith(PREFIX):
                self.sizes[name.removeprefix(PREFIX)] = argument
        if block.first_op is not None:
            marker = constant(np.array(0, np.int32))  # has no use, and goes with the others of that kind
            marker.location = named("sizes")
            block.insert_op_before(marker, block.first_op)
            self._start = Builder(InsertPoint.before(marker))

    def define(self, name: str, count: SSAValue, before: Operation) -> None:
        """Defines a size that the data decide, in front of an op: `count` is an i64 scalar."""
        self._places[name] = Builder(InsertPoint.before(before))
        self.sizes[name] = self._early(popart.CastOp(count, to=i32), [name])

    def _early(self, op: Operation, names: Iterable[str]) -> SSAValue:
        """Inserts an op that depends on these sizes: at the start of the function, or where the last of them is defined."""
        builder = next((b for name, b in reversed(self._places.items()) if name in names), self._start)
        assert builder is not None
        op.location = named("sizes")
        return builder.insert(op).results[0]

    def number(self, size: Size) -> SSAValue:
        """Gives a size at run time: an i32 scalar. Raises PopulusError for a dimension that has no argument."""
        import numpy as np

        if (found := self._numbers.get(size)) is not None:
            return found

        def early(op: Operation) -> SSAValue:
            return self._early(op, size.names())

        total: SSAValue | None = None
        for product, factor in size.terms:
            part = None if abs(factor) == 1 and product else early(constant(np.array(abs(factor), np.int32)))
            for atom in product:
                value = self._atom(atom)
                part = value if part is None else early(popart.MulOp(part, value))
            assert part is not None
            if total is None:
                total = part if factor > 0 else early(popart.NegOp(part))
            else:
                total = early((popart.AddOp if factor > 0 else popart.SubOp)(total, part))
        if total is None:
            total = early(constant(np.array(0, np.int32)))
        self._numbers[size] = total
        return total

    def _atom(self, atom: Atom) -> SSAValue:
        """Gives an atom at run time. Raises PopulusError for a dimension that has no argument."""
        if not atom.arguments:
            if atom.name not in self.sizes:
                raise PopulusError(f"the size '{atom.name}' is known only further down in the model; tiles need it here")
            return self.sizes[atom.name]

        def early(op: Operation) -> SSAValue:
            return self._early(op, atom.names())

        values = [self.number(a) for a in atom.arguments]
        if atom.name != "floordiv":
            result = values[0]
            for v in values[1:]:
                result = early((popart.MinOp if atom.name == "min" else popart.MaxOp)(result, v))
            return result
        dividend, divisor = values
        if atom.arguments[0].lower(self.valid.bounds) >= 0:
            return early(popart.DivOp(dividend, divisor))
        # Division rounds towards zero; of a negative number the floor is the negative of the ceiling.
        one = self.number(as_size(1))
        up = early(popart.SubOp(early(popart.SubOp(divisor, dividend)), one))
        below = early(popart.NegOp(early(popart.DivOp(up, divisor))))
        negative = early(popart.LessOp(dividend, self.number(as_size(0))))
        return early(popart.WhereOp(negative, below, early(popart.DivOp(dividend, divisor))))

    def mask(self, axis: Axis) -> SSAValue:
        """Gives the mask of the valid positions of an axis: [n], i1."""
        import numpy as np

        if (found := self._masks.get(axis)) is not None:
            return found

        def early(op: Operation) -> SSAValue:
            return self._early(op, {name for f in axis for name in f.size.names()})

        lengths = [f.bound for f in axis]
        result: SSAValue | None = None
        for k, f in enumerate(axis):
            if f.static:
                continue
            form = [n if i == k else 1 for i, n in enumerate(lengths)]
            positions = early(constant(np.arange(f.bound, dtype=np.int32).reshape(form)))
            inside = early(popart.LessOp(positions, self.number(f.size)))
            result = inside if result is None else early(popart.AndOp(result, inside))
        assert result is not None, axis
        if shape_of(result.type) != tuple(lengths):
            result = early(popart.ExpandOp(result, shape=lengths))
        if len(lengths) > 1:
            result = early(popart.ReshapeOp(result, shape=(math.prod(lengths),)))
        self._masks[axis] = result
        return result

    def masked(self, c: Place, axes: Axes, dims: Sequence[int]) -> SSAValue:
        """Gives the mask of the positions that are valid along `dims`; it broadcasts to the shape of `axes`."""
        result: SSAValue | None = None
        for d in dims:
            form = [bound_of(a) if d == e else 1 for e, a in enumerate(axes)]
            while form and form[0] == 1 and len(form) > 1:
                form.pop(0)
            inside = self.plain(c, popart.ReshapeOp(self.mask(axes[d]), shape=form)) if len(form) > 1 else self.mask(axes[d])
            result = inside if result is None else self.plain(c, popart.AndOp(result, inside))
        assert result is not None, (axes, dims)
        return result

    def filled(self, c: Place, x: SSAValue, dims: Sequence[int] | None, fill: Fill) -> SSAValue:
        """Replaces what stands beyond the valid part of `x` along `dims` (None: all axes).

        `fill`: `zero`, `one`, `lowest` or `highest` of the element type, or a scalar.
        """
        axes = self.valid.of(x)
        known = self._filled.get(x, {})
        dims = tuple(d for d in range(len(axes)) if (dims is None or d in dims) and not is_whole(axes[d]))
        dims = tuple(d for d in dims if not isinstance(fill, str) or known.get(d) != fill)
        if not dims:
            return x
        block = c.block
        if isinstance(fill, str):
            before, value = self._fills.get((x, dims, fill), (None, x))
            if before is not None and before is block:
                return value
        other = self.plain(c, constant(filler(fill, element_type_of(x.type)))) if isinstance(fill, str) else fill
        result = self.plain(c, popart.WhereOp(self.masked(c, axes, dims), x, other))
        self.valid.state(result, axes)
        if isinstance(fill, str):
            self._fills[(x, dims, fill)] = (block, result)
            self._filled[result] = {**({} if known and set(known.values()) != {fill} else known), **dict.fromkeys(dims, fill)}
        return result

    def plain(self, c: Place, op: Operation) -> SSAValue:
        """Inserts an op that reads its operands as they are, and gives its first result."""
        op.location = c.op.location
        self.handled.add(op)
        return c.builder.insert(op).results[0]

    def insert(self, c: Place, op: Operation) -> SSAValue:
        """Inserts an op by its rule. Raises PopulusError for an op that has none, and reads a partly valid operand."""
        if not any(v in self.valid.axes for v in op.operands):
            return self.plain(c, op)
        rule = self.rules(op)
        if rule is None:
            raise PopulusError(f"{op.name} has no rule for operands with a bounded dimension; bind the dimension to one size")
        result = rule(self, c, op)
        if op.parent is None:  # others took its place
            op.erase()
        return self.safe(c, result)

    def safe(self, c: Place, x: SSAValue) -> SSAValue:
        """Fills a value with zeros if all values have to be."""
        return self.filled(c, x, None, "zero") if self.zeroed and x in self.valid.axes and is_float(element_type_of(x.type)) else x

    def known(self, value: SSAValue, fills: Mapping[int, str]) -> None:
        """Records what stands beyond the valid part of a value, for each axis where that is known."""
        self._filled[value] = dict(fills)

    def known_of(self, value: SSAValue) -> Mapping[int, str]:
        """Gives what `known` recorded."""
        return self._filled.get(value, {})

    def iota(self, c: Place, n: int) -> SSAValue:
        """Gives the numbers from 0: [n], i32."""
        import numpy as np

        return self.plain(c, constant(np.arange(n, dtype=np.int32)))

    def state(self, value: SSAValue, axes: Axes) -> SSAValue:
        """Records the axes of a value, and gives the value."""
        self.valid.state(value, axes)
        return value

    def axis(self, size: Size) -> Axis:
        """Makes an axis whose first `size` elements are valid, of the upper bound of that."""
        return prefix(self.valid.upper(size), size)

    def require(self, first: str, second: str) -> None:
        """Records on the function that two sizes have to be equal in each run."""
        if self._function is not None:
            require_equal(self._function, first, second)

    def count(self, c: Place, axes: Axes, dims: Sequence[int], to: Attribute) -> SSAValue:
        """Counts the valid elements along `dims`: a scalar of the element type `to`."""
        total = as_size(1)
        for d in dims:
            for f in axes[d]:
                total = total * f.size
        return self.scalar(c, total, to)

    def scalar(self, c: Place, size: Size, to: Attribute = i32) -> SSAValue:
        """Gives a size at run time as a scalar of the element type `to`."""
        import numpy as np

        if (n := size.constant) is not None:
            return self.plain(c, constant(np.array(n, dtype_of(to))))
        number = self.number(size)
        return number if to == i32 else self.plain(c, popart.CastOp(number, to=to))

    def materialised(self, c: Place, array: NDArray[Any], to: Attribute) -> SSAValue:
        """Computes a tensor of sizes at run time, and records that it is one.

        array: of `Size` and numbers. Result: its shape, of the element type `to`.
        """
        parts = [self.scalar(c, as_size(v), to) for v in array.reshape(-1)]
        ones = [self.plain(c, popart.ReshapeOp(p, shape=(1,))) for p in parts]
        row = ones[0] if len(ones) == 1 else self.plain(c, popart.ConcatOp(*ones, axis=0))
        result = row if array.shape == (len(ones),) else self.plain(c, popart.ReshapeOp(row, shape=array.shape))
        self.valid.symbols[result] = array
        return result


class Place:
    """The insertion point of ops, with the location of `op`. `masks`: None if no operand is partly valid."""

    def __init__(self, op: Operation, builder: Builder, masks: Masks | None = None):
        self.op = op
        self.builder = builder
        self.masks = masks

    @staticmethod
    def before(op: Operation, masks: Masks) -> Place:
        """Makes the place in front of an op, for ops that no node asks for."""
        return Place(op, Builder(InsertPoint.before(op)), masks)

    @property
    def block(self) -> Block:
        """The block that ops are inserted into."""
        return self.builder.insertion_point.block

    def length(self, x: SSAValue, d: int) -> SSAValue:
        """Gives the size of a dimension, that of its valid part if it is bounded: an i64 scalar."""
        import numpy as np

        if self.masks is not None:
            return self.masks.scalar(self, size_of(self.masks.valid.of(x)[d]), i64)
        return self.constant(np.array(shape_of(x.type)[d], np.int64))

    def insert(self, op: Operation) -> SSAValue:
        """Inserts an op with the node's location, and gives its first result."""
        if self.masks is not None:
            return self.masks.insert(self, op)
        op.location = self.op.location
        return self.builder.insert(op).results[0]

    def constant(self, array: NDArray[Any]) -> SSAValue:
        """Inserts a constant."""
        return self.insert(constant(array))

    def scalar(self, value: float | int, like: SSAValue) -> SSAValue:
        """Inserts a scalar constant of the element type of `like`."""
        import numpy as np

        return self.constant(np.array(value, dtype_of(element_type_of(like.type))))

    def reshape(self, x: SSAValue, shape: Sequence[int]) -> SSAValue:
        """Reshapes `x`, unless it has the shape already."""
        return x if shape_of(x.type) == tuple(shape) else self.insert(ReshapeOp(x, shape=tuple(shape)))

    def transpose(self, x: SSAValue, permutation: Sequence[int]) -> SSAValue:
        """Transposes `x`, unless the permutation is the identity."""
        same = list(permutation) == list(range(len(permutation)))
        return x if same else self.insert(TransposeOp(x, permutation=tuple(permutation)))

    def expand(self, x: SSAValue, shape: Sequence[int]) -> SSAValue:
        """Broadcasts `x` to a shape, unless it has the shape already."""
        return x if shape_of(x.type) == tuple(shape) else self.insert(ExpandOp(x, shape=tuple(shape)))

    def cast(self, x: SSAValue, to: Attribute) -> SSAValue:
        """Casts `x` to an element type, unless it has the type already."""
        return x if element_type_of(x.type) == to else self.insert(CastOp(x, to=to))

    def wide(self, x: SSAValue) -> SSAValue:
        """Casts halves to the type that they are summed in, f32; docs/half-sums.md has the table."""
        return self.cast(x, sum_type(element_type_of(x.type)))


def filler(fill: str, kind: Attribute) -> NDArray[Any]:
    """Gives the scalar for `zero`, `one`, `lowest` or `highest` of an element type."""
    import numpy as np

    dtype = dtype_of(kind)
    if fill in ("zero", "one"):
        return np.array(int(fill == "one")).astype(dtype)
    if kind == i1:
        return np.array(fill == "highest")
    if is_float(kind):
        return np.array(-np.inf if fill == "lowest" else np.inf).astype(dtype)
    info = np.iinfo(dtype)
    return np.array(info.min if fill == "lowest" else info.max, dtype)


def by_class(rules: Mapping[type[Operation], Rule]) -> Callable[[Operation], Rule | None]:
    """Makes the function that finds the rule of an op by its class, or the nearest class that it derives from."""

    def rule(op: Operation) -> Rule | None:
        return next((rules[kind] for kind in type(op).__mro__ if kind in rules), None)

    return rule
