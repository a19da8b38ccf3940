"""Native forms of codelets, as their records in `runtime/codelets` name them."""

from __future__ import annotations

from functools import partial
from importlib import import_module

from populus.dialects.poplar.codelets import CODELETS
from populus.runtime.codelets import IMPLEMENTATIONS
from populus.runtime.engine.native.kernels.f16 import Native


def native_form(codelet: str) -> Native | None:
    """Returns the function from a task to the launches that run it; None if a codelet has only a NumPy kernel.

    The function returns None for a task whose element types or strides it has no code for.
    """
    place = IMPLEMENTATIONS[codelet].native
    if not place:
        return None
    file, _, function = place.partition(".")
    form = getattr(import_module(f"{__name__}.{file}"), function)
    code = CODELETS[codelet].code
    return form if code is None else partial(form, code)
