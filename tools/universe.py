"""Populus as xDSL sees it: every tool that looks for the entry point `xdsl.universe` knows our dialects and passes."""

from __future__ import annotations

from xdsl.universe import Universe

from populus.dialects.table import DIALECTS, context
from populus.lowering.driver.passes import PASSES

__all__ = ["POPULUS", "context"]

POPULUS = Universe(all_dialects=dict(DIALECTS), all_passes=dict(PASSES))
