"""The `poprand` dialect: random numbers that depend on the seed and the element, not on the machine."""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.dialects.builtin import DenseArrayBase, StringAttr, TensorType, i64
from xdsl.ir import Attribute, Dialect
from xdsl.irdl import irdl_op_definition, operand_def, prop_def, result_def
from xdsl.utils.exceptions import VerifyException

from populus.dialects.base.tensor_op import TensorOp, ints
from populus.dialects.poplar.meaning import RESULT, Meaning, Whole, numbered, plain
from populus.dialects.poplar.partition import ALL
from populus.dialects.support.constraints import number, whole
from populus.dialects.support.element_types import element_type_of, is_float, shape_of, tensor, ui32

DISTRIBUTIONS = ("uniform", "normal", "bernoulli")


@irdl_op_definition
class RandomOp(TensorOp):
    """Numbers of a distribution: `uniform` in [a, b), `normal` with mean a and deviation b, `bernoulli` with probability a.

    Element i is made from Philox4x32-10 with the key `seed` (two words) and the counter (i, stream), so that results do not
    depend on tiles, engines or threads (poprand's do). `stream` tells several ops with one seed apart.
    """

    name = "poprand.random"
    seed = operand_def(TensorType)
    distribution = prop_def(StringAttr)
    a = number()
    b = number()
    stream = whole()
    shape = prop_def(DenseArrayBase.constr(i64))
    element = prop_def(Attribute)
    y = result_def(TensorType)

    def infer(self) -> Sequence[TensorType[Attribute]]:
        if self.distribution.data not in DISTRIBUTIONS:
            raise VerifyException(f"'{self.distribution.data}' is not one of {', '.join(DISTRIBUTIONS)}")
        if shape_of(self.seed.type) != (2,) or element_type_of(self.seed.type) != ui32:
            raise VerifyException(f"the seed is {self.seed.type}, not tensor<2xui32>")
        if not is_float(self.element):
            raise VerifyException(f"random numbers are floats, not {self.element}")
        return [tensor(ints(self.shape), self.element)]

    def meaning(self) -> Meaning:
        """Says what the result is: a function of the seed and of the element's place in row-major order."""
        shape = ints(self.shape)
        axes = numbered("d", len(shape))
        params = {name: self.properties[name] for name in ("distribution", "a", "b", "stream")}
        return [Whole("random", tuple(zip(axes, shape)), (("seed", 0, (ALL,)), ("y", RESULT, plain(*axes))), params)]


POPRAND = Dialect("poprand", [RandomOp], [])
