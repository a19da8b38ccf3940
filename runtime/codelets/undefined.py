"""Memory that holds nothing yet, and the variable that makes runs check themselves."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
from numpy.typing import NDArray

VARIABLE = "POPULUS_CHECK"


def checks() -> bool:
    """Tells if the environment asks that programs be checked when they are loaded."""
    return os.environ.get(VARIABLE, "") not in ("", "0")


def marked(memory: NDArray[Any]) -> NDArray[Any]:
    """Sets all bits of memory that holds nothing yet, in runs that check: NaN, -1 or 255, so that reading it is no quiet 0."""
    if checks():
        memory.view(np.uint8).fill(0xFF)
    return memory
