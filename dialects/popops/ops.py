"""Element-wise maps, reductions, rearrangements and slices: what PopLibs' `popops` does, on immutable tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from xdsl.dialects.builtin import (
    AnyFloatConstr,
    ArrayAttr,
    DenseArrayBase,
    DictionaryAttr,
    FloatAttr,
    IntegerAttr,
    StringAttr,
    TensorType,
    i1,
    i64,
)
from xdsl.ir import Attribute
from xdsl.irdl import irdl_op_definition, operand_def, opt_prop_def, prop_def, result_def, var_operand_def, var_result_def
from xdsl.utils.exceptions import VerifyException

from populus.dialects import expr
from populus.dialects.base.tensor_op import TensorOp, ints
from populus.dialects.poplar.codelets import CODELETS
from populus.dialects.poplar.meaning import RESULT, Meaning, Whole, moved, numbered, plain, stretched
from populus.dialects.poplar.partition import ALL, Access
from populus.dialects.poplar.tile_program import TileCode
from populus.dialects.support import shapes
from populus.dialects.support.constraints import whole
from populus.dialects.support.diagnostics import did_you_mean
from populus.dialects.support.element_types import element_type_of, is_float, is_integer, shape_of, size_in_bytes, tensor
from populus.dialects.support.shapes import ShapeError

REDUCTIONS = ("add", "mul", "min", "max", "and", "or", "square_add")


@irdl_op_definition
class MapOp(TensorOp):
    """`y[i] = e(x1[i], x2[i], ...)`: any element-wise expression, operands broadcast against each other.

    Source: popops::map.
    """

    name = "popops.map"
    expr = prop_def(expr.ExprAttr)
    operands_ = var_operand_def(TensorType)
    y = result_def(TensorType)
    assembly_format = "$expr `(` $operands_ `)` attr-dict `:` functional-type(operands, results)"

    def infer(self) -> Sequence[TensorType[Attribute]]:
        elements = [element_type_of(o.type) for o in self.operands]
        element = expr.infer(self.expr.data, elements, literals=True)
        if unread := set(range(1, len(self.operands) + 1)) - expr.args_of(self.expr.data):
            raise VerifyException(f"operand _{min(unread)} is not read by {self.expr.data}")
        return [tensor(shapes.broadcast(*(shape_of(o.type) for o in self.operands)), element)]

    def meaning(self) -> Meaning:
        """Says what the result is."""
        shape = shape_of(self.y.type)
        axes = numbered("d", len(shape))
        inputs = [(f"x{i + 1}", i, stretched(axes, shape_of(x.type), shape)) for i, x in enumerate(self.operands)]
        return [Whole("map", tuple(zip(axes, shape)), (*inputs, ("y", RESULT, plain(*axes))), {"expr": self.expr})]


@irdl_op_definition
class ReduceOp(TensorOp):
    """`y = op over dims of x`; the dims are gone from the result. An empty reduction gives the op's neutral element.

    `square_add` sums squares. `to`: the type of the result, a wider float than x's, without which it is x's. Source: popops::reduce.
    """

    name = "popops.reduce"
    x = operand_def(TensorType)
    op = prop_def(StringAttr)
    dims = prop_def(DenseArrayBase.constr(i64))
    to = opt_prop_def(AnyFloatConstr)
    y = result_def(TensorType)

    def infer(self) -> Sequence[TensorType[Attribute]]:
        if self.op.data not in REDUCTIONS:
            raise VerifyException(f"'{self.op.data}' is not one of {', '.join(REDUCTIONS)}")
        shape, element = shape_of(self.x.type), element_type_of(self.x.type)
        dims = shapes.axes(ints(self.dims), len(shape))
        if self.to is not None and (not is_float(element) or size_in_bytes(self.to) <= size_in_bytes(element)):
            raise VerifyException(f"to = {self.to} of {element}; a wider float than that of x is expected")
        return [tensor(shapes.reduced(shape, dims, keep=False), self.to or element)]

    def meaning(self) -> Meaning:
        """Says what the result is."""
        shape, dims = shape_of(self.x.type), ints(self.dims)
        axes = [f"{'r' if d in dims else 'd'}{d}" for d in range(len(shape))]
        kept = plain(*(a for d, a in enumerate(axes) if d not in dims))
        return [Whole("reduce", tuple(zip(axes, shape)), (("x", 0, plain(*axes)), ("y", RESULT, kept)), {"op": self.op})]


class _ViewOp(TensorOp):
    """Shows x in another way."""

    def aliases(self) -> Sequence[tuple[int, int]]:
        return ((0, 0),)

    @property
    def is_view(self) -> bool:
        return True


@irdl_op_definition
class ReshapeOp(_ViewOp):
    """The same elements in row-major order under another shape. Source: poplar::Tensor::reshape."""

    name = "popops.reshape"
    x = operand_def(TensorType)
    shape = prop_def(DenseArrayBase.constr(i64))
    y = result_def(TensorType)

    def infer(self) -> Sequence[TensorType[Attribute]]:
        return [tensor(shapes.reshape(shape_of(self.x.type), ints(self.shape)), element_type_of(self.x.type))]


@irdl_op_definition
class DimShuffleOp(_ViewOp):
    """Dimension i of the result is dimension permutation[i] of x. Source: poplar::Tensor::dimShuffle."""

    name = "popops.dim_shuffle"
    x = operand_def(TensorType)
    permutation = prop_def(DenseArrayBase.constr(i64))
    y = result_def(TensorType)

    def infer(self) -> Sequence[TensorType[Attribute]]:
        return [tensor(shapes.permuted(shape_of(self.x.type), ints(self.permutation)), element_type_of(self.x.type))]


@irdl_op_definition
class BroadcastOp(_ViewOp):
    """x stretched to `shape` as NumPy would (right-aligned, 1 repeats). Source: poplar::Tensor::broadcast."""

    name = "popops.broadcast"
    x = operand_def(TensorType)
    shape = prop_def(DenseArrayBase.constr(i64))
    y = result_def(TensorType)

    def infer(self) -> Sequence[TensorType[Attribute]]:
        shape = ints(self.shape)
        if shapes.broadcast(shape_of(self.x.type), shape) != shape:
            raise ShapeError(f"{shapes.text(shape_of(self.x.type))} does not stretch to {shapes.text(shape)}")
        return [tensor(shape, element_type_of(self.x.type))]


@irdl_op_definition
class SliceOp(_ViewOp):
    """`x[begins : ends : steps]` in every dimension; a negative step walks backwards (`ends` may then be -1, before the first).

    Bounds are within the dimension: nothing is clamped here. Source: poplar::Tensor::slice, subSample, reverse.
    """

    name = "popops.slice"
    x = operand_def(TensorType)
    begins = prop_def(DenseArrayBase.constr(i64))
    ends = prop_def(DenseArrayBase.constr(i64))
    steps = prop_def(DenseArrayBase.constr(i64))
    y = result_def(TensorType)

    def infer(self) -> Sequence[TensorType[Attribute]]:
        shape = shapes.sliced(shape_of(self.x.type), ints(self.begins), ints(self.ends), ints(self.steps))
        return [tensor(shape, element_type_of(self.x.type))]


@irdl_op_definition
class ConcatOp(TensorOp):
    """The operands one after the other along `dim`. Source: poplar::concat."""

    name = "popops.concat"
    parts = var_operand_def(TensorType)
    dim = whole()
    y = result_def(TensorType)

    def infer(self) -> Sequence[TensorType[Attribute]]:
        shape = shapes.concatenated([shape_of(o.type) for o in self.operands], self.dim)
        if len({element_type_of(o.type) for o in self.operands}) > 1:
            raise VerifyException("the operands' element types differ")
        return [tensor(shape, element_type_of(self.operands[0].type))]

    def meaning(self) -> Meaning:
        """Says what the result is: the operands, one after the other."""
        found: list[Whole] = []
        begin = 0
        for i, part in enumerate(self.operands):
            shape = shape_of(part.type)
            axes = numbered("d", len(shape))
            to = [Access(((a, 1),), begin if d == self.dim else 0) for d, a in enumerate(axes)]
            found.append(moved(i, list(zip(axes, shape)), plain(*axes), to))
            begin += shape[self.dim]
        return found


@irdl_op_definition
class PadOp(TensorOp):
    """x with `lower` and `upper` elements of `value` around it and `interior` between neighbours; all are at least 0.

    Source: popops::pad, XLA's Pad for `interior`.
    """

    name = "popops.pad"
    x = operand_def(TensorType)
    lower = prop_def(DenseArrayBase.constr(i64))
    upper = prop_def(DenseArrayBase.constr(i64))
    interior = prop_def(DenseArrayBase.constr(i64))
    value = operand_def(TensorType)
    y = result_def(TensorType)

    def infer(self) -> Sequence[TensorType[Attribute]]:
        shape, lower, upper, interior = shape_of(self.x.type), ints(self.lower), ints(self.upper), ints(self.interior)
        if not len(shape) == len(lower) == len(upper) == len(interior):
            raise ShapeError(f"{len(lower)}, {len(upper)} and {len(interior)} pads for the {len(shape)} dimensions of {shapes.text(shape)}")
        if min((*lower, *upper, *interior), default=0) < 0:
            raise ShapeError("a pad is negative; slice instead")
        if shape_of(self.value.type) != () or element_type_of(self.value.type) != element_type_of(self.x.type):
            raise VerifyException(f"the value is {self.value.type}, not a scalar {element_type_of(self.x.type)}")
        result = [a + b + n + c * max(n - 1, 0) for n, a, b, c in zip(shape, lower, upper, interior)]
        return [tensor(result, element_type_of(self.x.type))]

    def meaning(self) -> Meaning:
        """Says what the result is: the value everywhere, and then x over it."""
        shape, full = shape_of(self.x.type), shape_of(self.y.type)
        axes = numbered("d", len(shape))
        to = [Access(((a, 1 + c),), low) for a, low, c in zip(axes, ints(self.lower), ints(self.interior))]
        return [moved(1, list(zip(axes, full)), (), plain(*axes)), moved(0, list(zip(axes, shape)), plain(*axes), to)]


@irdl_op_definition
class MultiSliceOp(TensorOp):
    """`y[.., i.., ..] = table[.., indices[i..], ..]` along `dim`: rows picked by index, each within 0 .. n.

    Source: popops::multiSlice.
    """

    name = "popops.multi_slice"
    table = operand_def(TensorType)
    indices = operand_def(TensorType)
    dim = whole()
    y = result_def(TensorType)

    def infer(self) -> Sequence[TensorType[Attribute]]:
        table, d = shape_of(self.table.type), self.dim
        shapes.front(d, len(table))
        if not is_integer(element_type_of(self.indices.type)):
            raise VerifyException(f"the indices are {self.indices.type}, not integers")
        return [tensor((*table[:d], *shape_of(self.indices.type), *table[d + 1 :]), element_type_of(self.table.type))]

    def meaning(self) -> Meaning:
        """Says what the result is."""
        table, indices = shape_of(self.table.type), shape_of(self.indices.type)
        i, d = numbered("i", len(indices)), numbered("d", len(table))
        before, after = d[: self.dim], d[self.dim + 1 :]
        sizes = dict(zip(d, table)) | dict(zip(i, indices))
        fields = (
            ("table", 0, (*plain(*before), ALL, *plain(*after))),
            ("indices", 1, plain(*i)),
            ("y", RESULT, plain(*before, *i, *after)),
        )
        return [Whole("multi_slice", tuple((a, sizes[a]) for a in (*before, *i, *after)), fields)]


@irdl_op_definition
class IotaOp(TensorOp):
    """`y[i] = start + step i`: a vector of `count` elements. Source: popops::iota."""

    name = "popops.iota"
    count = whole()
    start = prop_def(FloatAttr | IntegerAttr)
    step = prop_def(FloatAttr | IntegerAttr)
    element = prop_def(Attribute)
    y = result_def(TensorType)
    assembly_format = "attr-dict `:` type($y)"

    def infer(self) -> Sequence[TensorType[Attribute]]:
        return [tensor((self.count,), self.element)]

    def meaning(self) -> Meaning:
        """Says what the result is."""
        params = {"start": self.start, "step": self.step}
        return [Whole("iota", (("d0", self.count),), (("y", RESULT, plain("d0")),), params)]


@irdl_op_definition
class CodeletOp(TensorOp):
    """The call of a codelet written in Python: results of the types `outputs` from the operands and `params`, its scalars.

    Axes whose elements are independent are split over vertices: as an operand is laid out, else evenly. `parts` overrides this: it
    gives axes their numbers of parts and leaves the others whole. Source: poplar::Graph::addVertex, setTileMapping.
    """

    name = "popops.codelet"
    codelet = prop_def(StringAttr)
    params = prop_def(DictionaryAttr)
    outputs = prop_def(ArrayAttr[Attribute])
    parts = opt_prop_def(DictionaryAttr)
    operands_ = var_operand_def(TensorType)
    ys = var_result_def(TensorType)
    assembly_format = "$codelet `(` $operands_ `)` attr-dict `:` functional-type(operands, results)"

    @property
    def code(self) -> TileCode:
        """Returns the code of a vertex. Raises VerifyException for an unknown codelet, or one of the machine's own."""
        found = CODELETS.get(self.codelet.data)
        if found is None or found.code is None:
            known = [name for name, c in CODELETS.items() if c.code is not None]
            raise VerifyException(f"there is no codelet '{self.codelet.data}' in Python{did_you_mean(self.codelet.data, known)}")
        return found.code

    def types(self) -> list[TensorType[Attribute]]:
        """Lists the types of the results."""
        return [cast("TensorType[Attribute]", t) for t in self.outputs.data]

    def infer(self) -> Sequence[TensorType[Attribute]]:
        code = self.code
        if len(code.inputs) != len(self.operands):
            raise VerifyException(
                f"codelet {code.name} reads {', '.join(code.inputs) or 'nothing'}; {len(self.operands)} operands are given"
            )
        if len(code.outputs) != len(self.outputs.data):
            raise VerifyException(f"codelet {code.name} writes {', '.join(code.outputs)}; {len(self.outputs.data)} types are given")
        sizes: dict[str, int] = {}
        for vector, type in (*zip(code.inputs, (o.type for o in self.operands)), *zip(code.outputs, self.types())):
            found, element = shape_of(type), element_type_of(type)
            kind = "float" if is_float(element) else "int" if is_integer(element) else "bool"
            if kind != code.kinds[vector]:
                raise VerifyException(f"codelet {code.name}: {vector} holds {code.kinds[vector]}, and is given {element}")
            if len(found) != len(code.axes[vector]):
                raise VerifyException(
                    f"codelet {code.name}: {vector} has axes {' '.join(code.axes[vector])}, and is given {shapes.text(found)}"
                )
            for axis, n in zip(code.axes[vector], found):
                if sizes.setdefault(axis, n) != n:
                    raise VerifyException(f"codelet {code.name}: axis {axis} of {vector} has {n} elements, and {sizes[axis]} before")
        self._verify_params(code)
        if why := self.cut_problem():
            raise VerifyException(why)
        return self.types()

    def cut_problem(self) -> str | None:
        """Returns the reason why the axes cannot be split into `parts`; None if they can."""
        code = self.code
        sizes = dict(zip(code.axes[code.outputs[0]], shape_of(self.types()[0])))
        for axis, n in self.cut.items():
            if axis not in code.lanes or axis not in sizes:
                apart = ", ".join(a for a in code.lanes if a in sizes) or "none"
                return f"codelet {code.name} is to have {n} parts of axis {axis}; its vertices may share {apart}"
            if not 1 <= n <= max(sizes[axis], 1):
                return f"codelet {code.name} is to have {n} parts of axis {axis}, which has {sizes[axis]} elements"
        return None

    @property
    def cut(self) -> dict[str, int]:
        """The parts of axes that are given."""
        if self.parts is None:
            return {}
        return {axis: cast("IntegerAttr[Any]", n).value.data for axis, n in self.parts.data.items() if isinstance(n, IntegerAttr)}

    def _verify_params(self, code: TileCode) -> None:
        given = self.params.data
        if odd := sorted(given.keys() ^ code.scalars.keys()):
            what = "needs" if odd[0] in code.scalars else "has no"
            raise VerifyException(f"codelet {code.name} {what} parameter '{odd[0]}'; it takes {', '.join(code.scalars) or 'none'}")
        for name, value in given.items():
            kind = (
                "float"
                if isinstance(value, FloatAttr)
                else ""
                if not isinstance(value, IntegerAttr)
                else "bool"
                if cast("IntegerAttr[Any]", value).type == i1
                else "int"
            )
            if kind != code.scalars[name]:
                raise VerifyException(f"codelet {code.name}: parameter '{name}' is {code.scalars[name]}, and is given {value}")
