"""Tensors as attributes of an op: `kernel: NDArray = array(np.ones(3))`. The accessor gives a read-only array."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, cast

from xdsl.dialects.builtin import TensorType
from xdsl.ir import Attribute, ParametrizedAttribute
from xdsl.irdl import VerificationContext, irdl_attr_definition, prop_def
from xdsl.utils.exceptions import VerifyException

from populus.dialects.data import array_attribute, attribute_array, value_problem
from populus.dialects.support.attribute_values import TypedConstraint
from populus.dialects.support.element_types import element_of, tensor

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray


@irdl_attr_definition
class TensorValueAttr(ParametrizedAttribute):
    """`#popart.array<dense<[1, 2]> : tensor<2xi64>, tensor<2xi64>>`: a tensor; a large one is stored outside the IR."""

    name = "popart.array"
    value: Attribute
    type: Attribute

    def verify(self) -> None:
        if not isinstance(self.type, TensorType):
            raise VerifyException(f"a tensor type is expected, found {self.type}")
        if why := value_problem(self.value, cast("TensorType[Attribute]", self.type)):
            raise VerifyException(why)

    @property
    def array(self) -> NDArray[Any]:
        """The elements, read-only."""
        return attribute_array(self.value, self.type)


@dataclass(frozen=True)
class AnyArray(TypedConstraint[TensorValueAttr]):
    """A tensor of numbers or booleans, of any shape."""

    KIND: ClassVar = "tensor"
    PLAIN: ClassVar = object

    def verify(self, attr: Attribute, constraint_context: VerificationContext) -> None:
        if not isinstance(attr, TensorValueAttr):
            raise VerifyException(f"a tensor is expected, found {attr}")

    def attribute_of(self, value: Any) -> Attribute:
        import numpy as np

        a = np.asarray(value)
        return TensorValueAttr(array_attribute(a), tensor(a.shape, element_of(a.dtype)))

    def value_of(self, attribute: Attribute) -> Any:
        return cast("TensorValueAttr", attribute).array

    def get_bases(self) -> set[type[Attribute]] | None:
        return {TensorValueAttr}

    def mapping_type_vars(self, type_var_mapping: object) -> AnyArray:
        return self


def array(default: ArrayLike | None = None) -> NDArray[Any]:
    """Declares a tensor attribute of an op, `kernel: NDArray[Any] = array(np.ones(3))`; required without `default`."""
    of = AnyArray()
    return cast("NDArray[Any]", prop_def(of, default_value=None if default is None else of.attribute_of(default)))
