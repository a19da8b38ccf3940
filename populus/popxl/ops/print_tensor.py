"""`print_tensor`: values that the host prints after a run."""

from __future__ import annotations

import sys
from functools import partial
from typing import TYPE_CHECKING, Any

from populus.dialects.support.errors import printable
from populus.popxl.context import get_current_graph
from populus.popxl.internals.recording import recorded
from populus.popxl.ops.shape import identity
from populus.popxl.printing import FloatFormat, PrintFormat
from populus.popxl.tensor import Tensor
from populus.popxl.watch import watch

if TYPE_CHECKING:
    from numpy.typing import NDArray


@recorded("PrintTensor")
def print_tensor(
    t: Tensor,
    title: str | None = None,
    print_self: bool = True,
    print_gradient: bool = False,
    summarise_threshold: int = 1000,
    edge_items: int = 3,
    max_line_width: int = 75,
    digits: int = 8,
    float_format: FloatFormat = "auto",
    separator: str = " ",
    open_bracket: str = "[",
    close_bracket: str = "]",
) -> Tensor:
    """Prints a tensor, and gives a copy of it. `print_gradient`: prints the copy's gradient where `autodiff` computes it.

    A session writes `title: values` to the standard error after the run in which the program came here, in the program's order. The other
    arguments are those of `PrintFormat`. Raises ValueError for brackets and separators of another length than 1, and KeyError for
    another `float_format`.
    """
    format = PrintFormat(summarise_threshold, edge_items, max_line_width, digits, float_format, separator, open_bracket, close_bracket)
    name = f"print_{t.name}" if title is None else title
    made = identity(t, "print_out")
    if print_self:
        _print(made, name, format)
    if print_gradient:
        get_current_graph().printed_gradients[made] = partial(_print, title=f"{name}_gradient", format=format)
    return made


def _print(t: Tensor, title: str, format: PrintFormat) -> None:
    def look(array: NDArray[Any]) -> None:
        print(printable(f"{title}: {format.text(array)}"), file=sys.stderr)

    watch(t, look, title)
