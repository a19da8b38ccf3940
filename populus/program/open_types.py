"""The types of a program of StableHLO with open dimensions, as its file states them."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from xdsl.parser import Parser

from populus.dialects.table import context
from populus.lowering.driver.files import in_file, read_bytes
from populus.lowering.stablehlo.importer import is_stablehlo
from populus.lowering.stablehlo.jaxlib_reader import open_types
from populus.lowering.stablehlo.refinement import Given, check_sizes, open_places

if TYPE_CHECKING:
    from xdsl.dialects.builtin import TensorType
    from xdsl.ir import Attribute


@dataclass(frozen=True)
class OpenTypes:
    """The types of inputs and results by name; an open dimension has the size -1. `dimensions`: names of the open ones, by position."""

    inputs: Mapping[str, TensorType[Attribute]]
    results: Mapping[str, Attribute]
    dimensions: Mapping[str, Mapping[int, str]]


def read_open_types(path: str | os.PathLike[str], dims: Mapping[str, int | tuple[int, int]]) -> OpenTypes | None:
    """Reads the types of a file; None if no input has an open dimension. Raises PopulusError for sizes of others, and for ranges."""
    content = read_bytes(path)
    if not is_stablehlo(content) or (found := open_types(content, os.fspath(path))) is None:
        return None
    inputs, results = found
    dimensions = {name: {d: f"{name}.{d}" for d in open_places(text)} for name, text in inputs.items()}
    with in_file(path):
        check_sizes(Given(dims), [name for named in dimensions.values() for name in named.values()])
    return OpenTypes(
        {name: cast("TensorType[Attribute]", _type(text)) for name, text in inputs.items()},
        {f"output_{i}": _type(text) for i, text in enumerate(results)},
        dimensions,
    )


def _type(text: str) -> Attribute:
    """Parses a type without its bounds, which are checked when its sizes are known."""
    return Parser(context(), re.sub(r", #stablehlo\.bounds<[^<>]*>", "", text)).parse_type()
