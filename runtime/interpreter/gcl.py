"""The values of `gcl` ops: those of the replica that runs."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from xdsl.dialects.builtin import DictionaryAttr
from xdsl.ir import Operation

from populus.dialects import gcl
from populus.dialects.support.diagnostics import PopulusError, where
from populus.dialects.support.element_types import dtype_of, element_type_of, shape_of
from populus.runtime.gcl import Collective
from populus.runtime.views import params_of

Array = NDArray[Any]


def _collective(op: Operation, *arrays: Array) -> list[Array]:
    params = {name: value for name, value in op.properties.items() if name != "element"}
    (type,) = op.result_types
    made = np.empty(shape_of(type), dtype_of(element_type_of(type)))
    step = Collective(op.name.removeprefix("gcl."), params_of(DictionaryAttr(params)), where(op), made)
    try:
        return [step.result(arrays)]
    except PopulusError as error:
        raise PopulusError(f"{where(op)}: {error}") from None


FUNCTIONS = dict.fromkeys(gcl.OPS, _collective)
