"""Codelets from Python: the code of one tile is a function on vectors, whose source `@codelet` reads.

    @codelet(axes={"x": "row n", "y": "row"})
    def row_norm(x: Vector, y: Vector) -> None:
        for i in range(len(y)):
            total = 0.0
            for k in range(x.shape[1]):
                total += x[i, k] * x[i, k]
            y[i] = sqrt(total)

The syntax tree is checked and becomes the statements of `tile_program.py`, which engines run, cycles are counted from, and
`tile_mlir.py` makes ops of, for machine code. `docs/tile-code.md` has the language. Vectors are `Vector` (floats), `IntVector`,
`BoolVector`; scalars `float`, `int`, `bool` are parameters. The vectors that are written are the outputs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Protocol, TypeAlias

from populus.dialects.poplar.tile_program import TileCode
from populus.dialects.poplar.tile_reader import Reader
from populus.dialects.poplar.tile_source import Source, read_file
from populus.dialects.support.diagnostics import PopulusError

Index: TypeAlias = "int | tuple[int, ...]"


class Vector(Protocol):
    """Floats of one dimension or more."""

    shape: tuple[int, ...]

    def __len__(self) -> int: ...
    def __getitem__(self, index: Index, /) -> float: ...
    def __setitem__(self, index: Index, value: float, /) -> None: ...


class IntVector(Protocol):
    """Integers of one dimension or more."""

    shape: tuple[int, ...]

    def __len__(self) -> int: ...
    def __getitem__(self, index: Index, /) -> int: ...
    def __setitem__(self, index: Index, value: int, /) -> None: ...


class BoolVector(Protocol):
    """Booleans of one dimension or more."""

    shape: tuple[int, ...]

    def __len__(self) -> int: ...
    def __getitem__(self, index: Index, /) -> bool: ...
    def __setitem__(self, index: Index, value: bool, /) -> None: ...


def floats(*shape: int) -> Vector:
    """Makes a scratch vector of zeros, in the precision of the codelet's floats; doubles where Python itself calls it."""
    import numpy as np

    return np.zeros(shape)  # pyright: ignore[reportReturnType]


def ints(*shape: int) -> IntVector:
    """Makes a scratch vector of integers of 64 bits, all 0."""
    import numpy as np

    return np.zeros(shape, np.int64)  # pyright: ignore[reportReturnType]


def bools(*shape: int) -> BoolVector:
    """Makes a scratch vector of booleans, all False."""
    import numpy as np

    return np.zeros(shape, np.bool_)  # pyright: ignore[reportReturnType]


def random_bits(seed: int, counter: int) -> int:
    """Gives 32 random bits for a counter: the same on any tile and in any order.

    The first word of Philox4x32-10 for the counter's and the seed's 64 bits. Source: Salmon, Moraes, Dror, Shaw (2011).
    """
    c0 = counter & 0xFFFFFFFF
    c1 = counter >> 32 & 0xFFFFFFFF
    c2 = 0
    c3 = 0
    k0 = seed & 0xFFFFFFFF
    k1 = seed >> 32 & 0xFFFFFFFF
    for _ in range(10):
        p0 = c0 * 0xD2511F53
        p1 = c2 * 0xCD9E8D57
        c0, c1, c2, c3 = p1 >> 32 & 0xFFFFFFFF ^ c1 ^ k0, p1 & 0xFFFFFFFF, p0 >> 32 & 0xFFFFFFFF ^ c3 ^ k1, p0 & 0xFFFFFFFF
        k0 = k0 + 0x9E3779B9 & 0xFFFFFFFF
        k1 = k1 + 0xBB67AE85 & 0xFFFFFFFF
    return c0


def uniform(seed: int, counter: int) -> float:
    """Gives a float in [0, 1), a multiple of 2^-24, from `random_bits`."""
    return float(random_bits(seed, counter) >> 8) / 16777216.0


LIBRARY = (floats, ints, bools, random_bits, uniform)


def codelet(
    function: Callable[..., None] | None = None,
    *,
    axes: Mapping[str, str] | None = None,
    whole: str = "",
    cycles: Callable[..., Any] | None = None,
    steps: int | None = None,
) -> Any:
    """Makes a codelet of a function: see this file's beginning.

    `axes`: for each vector the names of its dimensions' axes; equal names are equal sizes; `i` for all without it. `whole`: axes that are
    not to be cut, beside those that cannot be. `cycles`: tile cycles of one vertex from the sizes of axes, by the names of its
    parameters; counted from the body without it. `steps`: the most turns of one loop whose end the data decide; ten million without it.
    Raises PopulusError, with file and line, for what is not allowed.
    """
    if function is None:
        return partial(codelet, axes=axes, whole=whole, cycles=cycles, steps=steps)
    return Reader(Source.of(function), axes, whole, cycles, steps, LIBRARY).read()


def read_codelet(text: str, file: str) -> TileCode:
    """Reads a codelet from the file that `TileCode.text` has. Its cycles are counted from the body.

    `file`: its name in messages. Raises PopulusError as `codelet` does, and for a file of another form.
    """
    source, options = read_file(text, file, LIBRARY)
    try:
        code = Reader(source, options.get("axes"), options.get("whole", ""), None, options.get("steps"), LIBRARY).read()
        assert code.symbol, file  # computed here, as it walks over the expressions too
        return code
    except RecursionError:
        raise PopulusError(f"{file}: codelet {source.name}: its expressions are nested too deeply") from None
