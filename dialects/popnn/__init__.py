"""The `popnn` dialect: pooling, softmax and whitening, the steps of neural nets that are more than one map or reduction."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from xdsl.dialects.builtin import DenseArrayBase, StringAttr, TensorType, i64
from xdsl.ir import Attribute, Dialect
from xdsl.irdl import irdl_op_definition, operand_def, prop_def, result_def
from xdsl.utils.exceptions import VerifyException

from populus.dialects.base.tensor_op import HIGH_VALUE, TensorOp, ints
from populus.dialects.poplar.meaning import RESULT, Meaning, Whole, numbered, plain, windows
from populus.dialects.support import shapes
from populus.dialects.support.constraints import flag, number
from populus.dialects.support.element_types import element_type_of, is_float, shape_of, tensor

POOLINGS = ("max", "average", "sum", "square_sum")


@irdl_op_definition
class PoolOp(TensorOp):
    """The largest, mean, sum or sum of squares of each window of x: [batch, channels, size..].

    Padding is never the largest, and adds 0 to a sum. A mean divides by the number of elements under the kernel that are
    in x (or in its padding too, where `count_padding`). `ceil`: see `shapes.window`; what then hangs over the padding is
    never counted. Source: popnn::pooling::pool; ONNX MaxPool-22, AveragePool-22.
    """

    name = "popnn.pool"
    x = operand_def(TensorType)
    kind = prop_def(StringAttr)
    kernel = prop_def(DenseArrayBase.constr(i64))
    strides = prop_def(DenseArrayBase.constr(i64))
    pads = prop_def(DenseArrayBase.constr(i64))
    dilations = prop_def(DenseArrayBase.constr(i64))
    ceil = flag()
    count_padding = flag()
    y = result_def(TensorType)

    def infer(self) -> Sequence[TensorType[Attribute]]:
        if self.kind.data not in POOLINGS:
            raise VerifyException(f"'{self.kind.data}' is not one of {', '.join(POOLINGS)}")
        x = shape_of(self.x.type)
        lists = (ints(self.kernel), ints(self.strides), ints(self.pads), ints(self.dilations))
        return [tensor((*x[:2], *shapes.windows(x, *lists, ceil=self.ceil)), element_type_of(self.x.type))]

    def meaning(self) -> Meaning:
        """Says what the result is."""
        y, kernel = shape_of(self.y.type), ints(self.kernel)
        outs, taps, pads = numbered("o", len(kernel)), numbered("k", len(kernel)), ints(self.pads)
        seen = windows(outs, taps, ints(self.strides), ints(self.dilations), pads)
        axes = (("n", y[0]), ("c", y[1]), *zip(outs, y[2:]), *zip(taps, kernel))
        fields = (("x", 0, (*plain("n", "c"), *seen)), ("y", RESULT, plain("n", "c", *outs)))
        after = DenseArrayBase.from_list(i64, list(pads[len(kernel) :]))
        return [Whole("pool", axes, fields, {"kind": self.kind, "after": after, "count_padding": self.properties["count_padding"]})]


class _RowOp(TensorOp):
    """An op on rows: the last dimension of x."""

    x = operand_def(TensorType)
    y = result_def(TensorType)

    def infer(self) -> Sequence[TensorType[Attribute]]:
        if not shape_of(self.x.type) or not is_float(element_type_of(self.x.type)):
            raise VerifyException(f"{self.x.type} has no rows of floats")
        return [tensor(shape_of(self.x.type), element_type_of(self.x.type))]

    def meaning(self) -> Meaning:
        """Says what the result is."""
        shape = shape_of(self.x.type)
        axes = (*numbered("d", len(shape) - 1), "r")
        fields = (("x", 0, plain(*axes)), ("y", RESULT, plain(*axes)))
        return [Whole(self.name.partition(".")[2], tuple(zip(axes, shape)), fields, dict(self.properties))]


@irdl_op_definition
class SoftmaxOp(_RowOp):
    """`y = exp(x - max) / sum of exp(x - max)` along the last dimension; with `log`, its logarithm.

    Source: popnn SOFTMAX_STABLE, logSoftmax.
    """

    name = "popnn.softmax"
    log = flag()


@irdl_op_definition
class WhitenOp(_RowOp):
    """`y = (x - mean) / sqrt(variance + epsilon)` along the last dimension; the variance is that of the population.

    Source: popnn::gn::groupNormWhiten with its statistics.
    """

    OUTLINE_VALUE: ClassVar[float] = HIGH_VALUE

    name = "popnn.whiten"
    epsilon = number()


POPNN = Dialect("popnn", [PoolOp, SoftmaxOp, WhitenOp], [])
