"""The entry point `xdsl.universe`: xDSL's tools load our dialects and passes through it."""

from __future__ import annotations

from xdsl.universe import Universe

from populus.dialects.table import DIALECTS, context
from populus.lowering.driver.passes import PASSES

__all__ = ["POPULUS", "context"]

POPULUS = Universe(all_dialects=dict(DIALECTS), all_passes=dict(PASSES))
