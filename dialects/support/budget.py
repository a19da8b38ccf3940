"""Limits on sizes, growth and time: what is beyond, stated by mistake or to do harm, is refused before it is planned or computed.

`POPULUS_LIMITS=elements=2^30,bytes=4G,seconds=60` sets some of them ([docs/command-line.md](../../docs/command-line.md#limits)).
"""

from __future__ import annotations

import math
import os
import re
import time
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, fields
from functools import lru_cache
from typing import cast

from xdsl.dialects.builtin import TensorType
from xdsl.ir import Attribute, Operation

from populus.dialects.support.diagnostics import PopulusError, did_you_mean, where
from populus.dialects.support.element_types import shape_of
from populus.dialects.support.walk import ops_of

VARIABLE = "POPULUS_LIMITS"

# Elements of all inputs and results of a module's ops together: four thousand of the largest.
LARGEST_TOTAL = 1 << 45
# Elements that are computed while compiling, where an op makes more elements than it reads.
LARGEST_FOLDED = 1 << 24
# Elements of a constant that an op of few numbers stands for, such as a Range, or the places that a Resize reads along a dimension.
LARGEST_CONSTANT = 1 << 28
# Elements of the other dimensions of an empty tensor: NumPy counts their bytes in 63 bits.
LARGEST_BESIDE = 1 << 56
# Dimensions of a tensor. NumPy has at most 64, and some steps need a few more than their operands.
LARGEST_RANK = 48


@dataclass(frozen=True)
class Limits:
    """The limits that POPULUS_LIMITS may set. 0 seconds are none at all; infinity is no limit."""

    elements: float = 1 << 33  # of one tensor: 32 GiB of f32. All tiles of the largest machine here have 0.9 GiB, and the host's 16 GiB
    bytes: float = 1 << 36  # of the arrays that one file states, and of the variables of a program
    nesting: float = 64  # regions inside of each other, and subgraphs of an ONNX model
    growth: float = 1000  # ops after a pass for each before it, if there are more than ten thousand
    seconds: float = math.inf  # of the passes of one compilation


GROWN = 10_000
"""Ops that a pass may make of any module."""
_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}


def limits() -> Limits:
    """Returns the limits. Raises PopulusError if POPULUS_LIMITS has something else than NAME=NUMBER,..."""
    return _limits(os.environ.get(VARIABLE, ""))


@lru_cache(8)
def _limits(text: str) -> Limits:
    known = {f.name for f in fields(Limits)}
    found: dict[str, float] = {}
    for item in filter(None, (part.strip() for part in text.split(","))):
        name, _, number = item.partition("=")
        if name not in known:
            raise PopulusError(f"{VARIABLE}: no limit '{name}'{did_you_mean(name, known)}")
        match = re.fullmatch(r"(?:(\d{1,18})([KMGT]?)|2\^(\d{1,2}))", number, re.ASCII)
        if match is None:
            raise PopulusError(f"{VARIABLE}: {item}; expected a whole number, such as {name}=4096, {name}=4G or {name}=2^30")
        found[name] = 1 << int(match[3]) if match[3] else int(match[1]) * _UNITS[match[2]]
    return Limits(**found)


def _number(n: float) -> str:
    """Formats a limit: powers of two as such."""
    whole = int(n)
    return f"2^{whole.bit_length() - 1}" if whole > 4096 and whole & (whole - 1) == 0 else str(whole)


def elements(shape: Sequence[int]) -> int:
    """Multiplies dimensions exactly, in Python's integers. An open dimension, which is negative, counts as 1."""
    return math.prod(n for n in shape if n >= 0)


def check_shape(shape: Sequence[int], subject: str) -> None:
    """Raises PopulusError if a tensor would have more elements than the limit, or too many dimensions. `subject`: that of the message."""
    if len(shape) > LARGEST_RANK:
        raise PopulusError(f"{subject} has {len(shape)} dimensions; a tensor has at most {LARGEST_RANK}")
    if 0 in shape and (beside := math.prod(n for n in shape if n > 0)) > LARGEST_BESIDE:
        raise PopulusError(f"{subject} is empty, of shape {list(shape)}; its other dimensions have {beside} elements, at most 2^56")
    if (count := elements(shape)) > (most := limits().elements):
        raise PopulusError(f"{subject} is of shape {list(shape)}, {count} elements; a tensor has at most {_number(most)}")


def check_bytes(count: int, subject: str) -> None:
    """Raises PopulusError if arrays or variables would take more bytes than the limit. `subject`: that of the message."""
    if count > (most := limits().bytes):
        raise PopulusError(f"{subject} take {count} bytes; at most {_number(most)} are taken ({VARIABLE}=bytes=N says another limit)")


def check_nesting(depth: int, subject: Callable[[], str]) -> None:
    """Raises PopulusError if regions or graphs lie deeper inside of each other than the limit."""
    if depth > (most := limits().nesting):
        raise PopulusError(f"{subject()}: nested deeper than {_number(most)} regions ({VARIABLE}=nesting=N says another limit)")


def check_growth(before: int, after: int) -> None:
    """Raises PopulusError if more ops are made of so many ops, results or nodes than the limit."""
    if after > max(GROWN, (most := limits().growth) * max(before, 1)):
        raise PopulusError(f"{after} ops are made of {before}; at most {_number(most)} times as many are ({VARIABLE}=growth=N)")


_END: ContextVar[float] = ContextVar("end of the compilation", default=math.inf)


@contextmanager
def timed() -> Generator[None, None, None]:
    """Begins the time of a compilation; one inside of another has the other's."""
    if _END.get() != math.inf or limits().seconds == math.inf:
        yield
        return
    token = _END.set(time.monotonic() + limits().seconds)
    try:
        yield
    finally:
        _END.reset(token)


def check_time() -> None:
    """Raises PopulusError if the time of the compilation is over. Loops call it that may take long for a small module."""
    if (end := _END.get()) != math.inf and time.monotonic() >= end:
        raise PopulusError(f"the compilation takes longer than {_number(limits().seconds)} seconds ({VARIABLE}=seconds=N)")


def check_constant(count: int, subject: str) -> None:
    """Raises PopulusError if a constant that is made while compiling would have more than LARGEST_CONSTANT elements."""
    if count > LARGEST_CONSTANT:
        raise PopulusError(f"{subject} has {count} elements; at most 2^{LARGEST_CONSTANT.bit_length() - 1} are made while compiling")


def check_types(types: Iterable[Attribute], subject: str) -> int:
    """Counts the elements of these types together; types that are no tensors have none. Raises PopulusError as `check_shape` does."""
    total = 0
    for type in types:
        if isinstance(type, TensorType):
            check_shape(shape := shape_of(cast("Attribute", type)), subject)
            total += elements(shape)
    return total


def check_budget(module: Operation) -> None:
    """Raises PopulusError, naming the op, for a tensor of a module that is too large, or for too many that are large."""
    total = 0
    for op in ops_of(module):
        try:
            total += check_types((r.type for r in op.results), "its result")
            for region in op.regions:
                for block in region.blocks:
                    total += check_types((a.type for a in block.args), "an argument")
        except PopulusError as error:
            raise PopulusError(f"{where(op)}: {op.name}: {error}") from error
    if total > LARGEST_TOTAL:
        raise PopulusError(f"the tensors have {total} elements together; at most 2^{LARGEST_TOTAL.bit_length() - 1} are planned for")
