"""The `host` dialect: what runs on the host between two steps of a program, at every level at which tensors are values.

    %y = host.call "text.concat"(%a, %b) : (tensor<2xi32>, tensor<2xi32>) -> tensor<2xi32>

Below the tensors it is `poplar.host_call`. Functions are named in the table of `runtime/host`; there is nothing else to call.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from xdsl.dialects.builtin import DictionaryAttr, StringAttr
from xdsl.ir import Attribute, Dialect, SSAValue
from xdsl.irdl import (
    IRDLOperation,
    ParsePropInAttrDict,
    irdl_op_definition,
    opt_prop_def,
    prop_def,
    traits_def,
    var_operand_def,
    var_result_def,
)
from xdsl.traits import Pure

from populus.dialects.support.diagnostics import PlainErrors

REFUSE = "run.refuse"  # the function of a branch that was not compiled; reaching it ends the run


@irdl_op_definition
class CallOp(PlainErrors, IRDLOperation):
    """The results of a host function. Its parameters are plain attributes; strings among operands and results are handles."""

    name = "host.call"
    function = prop_def(StringAttr)
    params = opt_prop_def(DictionaryAttr)
    inputs = var_operand_def()
    outputs = var_result_def()
    irdl_options = (ParsePropInAttrDict(),)
    traits = traits_def(Pure())
    assembly_format = "$function `(` $inputs `)` (`params` $params^)? attr-dict `:` functional-type(operands, results)"

    def __init__(self, function: str, inputs: Sequence[SSAValue], outputs: Sequence[Attribute], params: Mapping[str, Attribute] = {}):
        properties: dict[str, Attribute] = {"function": StringAttr(function)}
        if params:
            properties["params"] = DictionaryAttr(dict(params))
        super().__init__(operands=[list(inputs)], result_types=[list(outputs)], properties=properties)


HOST = Dialect("host", [CallOp], [])
