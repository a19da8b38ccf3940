"""Reads modules of any level, and texts and bytecode of StableHLO.

The generic form is read by xDSL alone. The pretty form, bytecode and portable artefacts are read by jaxlib, an extra, which
prints them in the generic form (`jaxlib_reader.py`).
"""

from __future__ import annotations

import re

from xdsl.context import Context
from xdsl.dialects.builtin import FileLineColLoc, IntAttr, LocationAttr, ModuleOp, StringAttr
from xdsl.ir import Attribute

from populus.dialects.support.diagnostics import named
from populus.dialects.support.parser import LocatingParser
from populus.lowering.stablehlo.jaxlib_reader import BYTECODE, PLACE
from populus.lowering.stablehlo.quantized_types import readable

_PRETTY = re.compile(rb"^\s*(?:%[\w:, %#]+=\s*)?(?:stablehlo|chlo|vhlo)\.\w", re.MULTILINE)


def needs_jaxlib(content: bytes) -> bool:
    """Tells whether xDSL cannot read the content of a file: it is bytecode, or has ops in their pretty form."""
    return content.startswith(BYTECODE) or bool(_PRETTY.search(content))


def is_stablehlo(content: bytes) -> bool:
    """Tells whether the content of a file is bytecode, or has an op of StableHLO in any form."""
    return content.startswith(BYTECODE) or re.search(rb"\b(?:stablehlo|chlo|vhlo)\.\w", content) is not None


def read_text(ctx: Context, text: str, name: str) -> ModuleOp:
    """Parses a module of any level; places that `prepare` noted become locations. Raises ParseError as the parser does."""
    module = LocatingParser(ctx, readable(text), name).parse_module()
    for op in module.walk() if PLACE in text else ():
        stated: Attribute | None = op.attributes.pop(PLACE, None)
        if isinstance(stated, StringAttr):
            op.location = _location(stated.data, name)
    return module


def _location(place: str, name: str) -> LocationAttr:
    at = re.fullmatch(r":(\d+):(\d+)", place)
    return named(place) if at is None else FileLineColLoc(StringAttr(name), IntAttr(int(at[1])), IntAttr(int(at[2])))
