"""Steps of a program that tiles do not compute: functions of the host, and collectives of replicas."""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.dialects.builtin import DictionaryAttr, IntegerAttr, StringAttr, i64
from xdsl.ir import Attribute, SSAValue
from xdsl.irdl import IRDLOperation, irdl_op_definition, opt_prop_def, prop_def, var_operand_def
from xdsl.utils.exceptions import VerifyException

from populus.dialects.poplar.memory import unwritable
from populus.dialects.poplar.types import TensorType
from populus.dialects.support.diagnostics import PlainErrors


class OutsideOp(PlainErrors, IRDLOperation):
    """A step that tiles do not compute, between two that they do: the first views are its inputs, the rest its outputs."""

    function = prop_def(StringAttr)
    inputs = prop_def(IntegerAttr.constr(i64))
    params = opt_prop_def(DictionaryAttr)
    views = var_operand_def(TensorType)
    assembly_format = "$function `(` $views `)` `inputs` $inputs (`params` $params^)? attr-dict `:` type($views)"

    def __init__(self, function: str, inputs: Sequence[SSAValue], outputs: Sequence[SSAValue], params: dict[str, Attribute] | None = None):
        properties: dict[str, Attribute] = {"function": StringAttr(function), "inputs": IntegerAttr(len(inputs), i64)}
        if params:
            properties["params"] = DictionaryAttr(params)
        super().__init__(operands=[[*inputs, *outputs]], properties=properties)

    def verify_(self) -> None:
        if not 0 <= self.inputs.value.data <= len(self.views):
            raise VerifyException(f"{self.inputs.value.data} inputs among {len(self.views)} views")
        for view in self.views[self.inputs.value.data :]:
            if why := unwritable(view):
                raise VerifyException(f"an output {why} may not be written")


@irdl_op_definition
class HostCallOp(OutsideOp):
    """A function that runs on the host. It makes visible the work that tiles cannot do. `populus check` lists host calls."""

    name = "poplar.host_call"


@irdl_op_definition
class CollectiveOp(OutsideOp):
    """An op of `gcl`, in which all replicas of a group meet: `params` has its properties, the group's stride and size among them."""

    name = "poplar.collective"
