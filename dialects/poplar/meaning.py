"""The definition of a library call as families of one vertex over whole axes: a proof holds tile programs against it.

A call's result is written by its families in order, a later one over an earlier one. Unlike a lowering, they know no machine, no cut
and no layout. An access may walk backwards here, and an output may be clipped: what falls outside is not written.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from xdsl.ir import Attribute

from populus.dialects.poplar.partition import Access, Domain, Split

RESULT = -1
"""The field that is the call's result."""


@dataclass(frozen=True)
class Whole:
    """A codelet over whole axes. `fields`: name, number of the operand or RESULT, and the accesses; the result is the last."""

    codelet: str
    axes: tuple[tuple[str, int], ...]
    fields: tuple[tuple[str, int, tuple[Access, ...]], ...]
    params: Mapping[str, Attribute] = field(default_factory=dict[str, Attribute])

    @property
    def domain(self) -> Domain:
        """The iteration space, in one part."""
        return Domain(tuple((a, Split(n)) for a, n in self.axes), ())


Meaning: TypeAlias = "Sequence[Whole]"


def plain(*axes: str) -> tuple[Access, ...]:
    """Makes accesses to one axis each."""
    return tuple(Access(((a, 1),)) for a in axes)


def numbered(stem: str, count: int) -> tuple[str, ...]:
    """Lists axes: d0, d1, ..."""
    return tuple(f"{stem}{d}" for d in range(count))


def stretched(axes: Sequence[str], shape: Sequence[int], full: Sequence[int]) -> tuple[Access, ...]:
    """Makes the accesses to an operand that is broadcast to `full`, right-aligned, whose dimensions are `axes`."""
    lead = len(full) - len(shape)
    return tuple(Access() if n == 1 and full[lead + d] != 1 else Access(((axes[lead + d], 1),)) for d, n in enumerate(shape))


def moved(operand: int, axes: Sequence[tuple[str, int]], source: Sequence[Access], to: Sequence[Access]) -> Whole:
    """Makes the family that writes an operand's elements elsewhere."""
    from populus.dialects.expr import Arg, ExprAttr

    return Whole("map", tuple(axes), (("x1", operand, tuple(source)), ("y", RESULT, tuple(to))), {"expr": ExprAttr(Arg(1))})


def windows(
    outs: Sequence[str], taps: Sequence[str], strides: Sequence[int], dilations: Sequence[int], pads: Sequence[int]
) -> tuple[Access, ...]:
    """Makes the accesses `o stride + k dilation - pad` of windows."""
    return tuple(Access(((o, s), (k, d)), -p) for o, k, s, d, p in zip(outs, taps, strides, dilations, pads))
