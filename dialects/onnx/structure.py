"""The ops of the `onnx` dialect that no schema states: the end of a subgraph, a constant of strings, and a user's own op."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast

from xdsl.dialects.builtin import ArrayAttr, DenseArrayBase, DictionaryAttr, IntegerAttr, StringAttr, TensorType
from xdsl.ir import Attribute, SSAValue
from xdsl.irdl import (
    IRDLOperation,
    ParsePropInAttrDict,
    irdl_op_definition,
    opt_prop_def,
    prop_def,
    result_def,
    traits_def,
    var_operand_def,
    var_result_def,
)
from xdsl.traits import ConstantLike, IsTerminator, Pure
from xdsl.utils.exceptions import VerifyException

from populus.dialects.onnx.types import string
from populus.dialects.support.diagnostics import PlainErrors
from populus.dialects.support.element_types import shape_of

if TYPE_CHECKING:
    from numpy.typing import NDArray


@irdl_op_definition
class YieldOp(PlainErrors, IRDLOperation):
    """The terminator of a subgraph: passes its outputs to the If, Loop or Scan."""

    name = "onnx.yield"
    values = var_operand_def()
    traits = traits_def(IsTerminator(), Pure())
    assembly_format = "attr-dict ($values^ `:` type($values))?"

    def __init__(self, *values: SSAValue):
        super().__init__(operands=[values])

    def verify_(self) -> None:
        if (parent := self.parent_op()) is not None and not parent.name.startswith("onnx."):
            raise VerifyException(f"stands in {parent.name}; it ends a subgraph of an If, Loop or Scan")


@irdl_op_definition
class StringsOp(PlainErrors, IRDLOperation):
    """A constant of strings: `onnx.strings ["a", "b"] : tensor<2x!onnx.string>`."""

    name = "onnx.strings"
    value = prop_def(ArrayAttr[StringAttr])
    y = result_def(TensorType)
    traits = traits_def(ConstantLike(), Pure())
    assembly_format = "$value attr-dict `:` type($y)"

    @staticmethod
    def of(array: NDArray[Any]) -> StringsOp:
        """Makes the constant of an array of strings."""
        values = ArrayAttr([StringAttr(str(v)) for v in array.reshape(-1)])
        return StringsOp.create(properties={"value": values}, result_types=[TensorType(string, list(array.shape))])

    def verify_(self) -> None:
        if math.prod(self.y.type.get_shape()) != len(self.value):
            raise VerifyException(f"{len(self.value)} strings for {self.y.type}")

    def array(self) -> NDArray[Any]:
        """Returns the strings as an array of objects."""
        import numpy as np

        found = np.empty(len(self.value), object)
        found[:] = [s.data for s in self.value]
        return found.reshape(shape_of(self.y.type))


@irdl_op_definition
class CustomOp(PlainErrors, IRDLOperation):
    """A node of a domain that ONNX doesn't define; `node_attributes` are its attributes by name.

        %y = onnx.custom "my.domain" "Twice"(%x) {version = 1 : i64, node_attributes = {scale = 2.0 : f32}}
               : (tensor<2xf32>) -> !onnx.unknown

    A popart op class with `ONNX = ("my.domain", "Twice", 1)` defines its meaning. `absent`: the positions of inputs that are left out
    in front of others.
    """

    name = "onnx.custom"
    domain = prop_def(StringAttr)
    op_type = prop_def(StringAttr)
    version = prop_def(IntegerAttr)
    node_attributes = prop_def(DictionaryAttr)
    absent = opt_prop_def(DenseArrayBase)
    inputs = var_operand_def()
    outputs = var_result_def()
    irdl_options = (ParsePropInAttrDict(),)
    traits = traits_def(Pure())
    assembly_format = "$domain $op_type `(` $inputs `)` attr-dict `:` functional-type(operands, results)"

    def __init__(
        self,
        domain: str,
        op_type: str,
        version: int,
        inputs: Sequence[SSAValue | None],
        outputs: Sequence[Attribute],
        attributes: dict[str, Attribute],
    ):
        from xdsl.dialects.builtin import i64

        there = [v for v in inputs if v is not None]
        last = max((i for i, v in enumerate(inputs) if v is not None), default=-1)
        absent = [i for i, v in enumerate(inputs[:last]) if v is None]
        super().__init__(
            operands=[there],
            result_types=[list(outputs)],
            properties={
                "domain": StringAttr(domain),
                "op_type": StringAttr(op_type),
                "version": IntegerAttr(version, i64),
                "node_attributes": DictionaryAttr(attributes),
                **({"absent": DenseArrayBase.from_list(i64, absent)} if absent else {}),
            },
        )

    @property
    def given(self) -> list[SSAValue | None]:
        """The inputs by position; None for one that is left out."""
        found: list[SSAValue | None] = list(self.inputs)
        for i in () if self.absent is None else cast("DenseArrayBase[Any]", self.absent).get_values():
            found.insert(int(i), None)
        return found

    def verify_(self) -> None:
        last = -1
        for i in () if self.absent is None else cast("DenseArrayBase[Any]", self.absent).get_values():
            if not last < i <= len(self.given) - 1:
                raise VerifyException(f"the positions in `absent` have to rise, and to be in front of an input; found {i}")
            last = i
