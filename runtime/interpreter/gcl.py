"""The values of `gcl` ops: those of the replica that runs."""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray
from xdsl.dialects.builtin import DictionaryAttr
from xdsl.ir import Operation

from populus.dialects import gcl
from populus.dialects.support.diagnostics import PopulusError, where
from populus.runtime.gcl import Collective
from populus.runtime.views import params_of

Array = NDArray[Any]


def _collective(op: Operation, *arrays: Array) -> list[Array]:
    step = Collective(op.name.removeprefix("gcl."), params_of(DictionaryAttr(op.properties)), where(op))
    try:
        return [step.result(arrays)]
    except PopulusError as error:
        raise PopulusError(f"{where(op)}: {error}") from None


FUNCTIONS = dict.fromkeys(gcl.OPS, _collective)
