"""Limits on tensor sizes: a larger tensor, stated by mistake or to do harm, is refused before any planning or computation."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from xdsl.dialects.builtin import TensorType
from xdsl.ir import Attribute, Operation

from populus.dialects.support.diagnostics import PopulusError, where

# Elements of one tensor: 32 GiB of f32. All tiles of the largest machine here have 0.9 GiB, and the host's 16 GiB.
LARGEST_TENSOR = 1 << 33
# Elements of all inputs and results of a module's ops together: four thousand of the largest.
LARGEST_TOTAL = 1 << 45
# Elements that are computed while compiling, where an op makes more elements than it reads.
LARGEST_FOLDED = 1 << 24
# Elements of a constant that an op of few numbers stands for, such as a Range, or the places that a Resize reads along a dimension.
LARGEST_CONSTANT = 1 << 28


def elements(shape: Sequence[int]) -> int:
    """Multiplies dimensions exactly, in Python's integers. An open dimension, which is negative, counts as 1."""
    return math.prod(n for n in shape if n >= 0)


def check_shape(shape: Sequence[int], subject: str) -> None:
    """Raises PopulusError if a tensor would have more elements than LARGEST_TENSOR. `subject`: that of the message."""
    if (count := elements(shape)) > LARGEST_TENSOR:
        most = f"2^{LARGEST_TENSOR.bit_length() - 1}"
        raise PopulusError(f"{subject} is of shape {list(shape)}, {count} elements; a tensor has at most {most}")


def check_constant(count: int, subject: str) -> None:
    """Raises PopulusError if a constant that is made while compiling would have more than LARGEST_CONSTANT elements."""
    if count > LARGEST_CONSTANT:
        raise PopulusError(f"{subject} has {count} elements; at most 2^{LARGEST_CONSTANT.bit_length() - 1} are made while compiling")


def check_types(types: Iterable[Attribute], subject: str) -> int:
    """Counts the elements of these types together; types that are no tensors have none. Raises PopulusError as `check_shape` does."""
    total = 0
    for type in types:
        if isinstance(type, TensorType):
            check_shape(type.get_shape(), subject)
            total += elements(type.get_shape())
    return total


def check_budget(module: Operation) -> None:
    """Raises PopulusError, naming the op, for a tensor of a module that is too large, or for too many that are large."""
    total = 0
    for op in module.walk():
        try:
            total += check_types((r.type for r in op.results), "its result")
            for region in op.regions:
                for block in region.blocks:
                    total += check_types((a.type for a in block.args), "an argument")
        except PopulusError as error:
            raise PopulusError(f"{where(op)}: {op.name}: {error}") from error
    if total > LARGEST_TOTAL:
        raise PopulusError(f"the tensors have {total} elements together; at most 2^{LARGEST_TOTAL.bit_length() - 1} are planned for")
