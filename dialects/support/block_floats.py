"""Block floats: 16 elements in a row share the exponent of the largest; each has a sign and a few bits of magnitude.

    bfp8: 7 bits of magnitude, 1 + 1/16 bytes an element;  bfp4: 3 bits, 1/2 + 1/16 bytes

The value of an element is its magnitude times 2^(e - bits + 1), where 2^e is the largest power of two in the block's largest element.
Source: tenstorrent/tt-metal@034fc8c7 `tt_metal/impl/data_format/blockfloat_common.cpp`, by which the host rounds weights.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from numpy.typing import NDArray

BLOCK = 16  # elements that share an exponent
MAGNITUDES = {"bfp8": 7, "bfp4": 3}  # bits of magnitude, the leading one included
PIECE = 1 << 18  # elements that are rounded at a time


def bytes_an_element(format: str) -> float:
    """Returns the bytes of an element of a whole block: its sign and magnitude, and its share of the exponent."""
    return (1 + MAGNITUDES[format]) / 8 + 1 / BLOCK


def rounded(array: NDArray[Any], format: str, dimension: int) -> NDArray[Any]:
    """Rounds floats to a block format; the blocks are 16 elements along `dimension`, the last one filled up with zeros.

    Magnitudes are cut to 24 bits of the largest exponent, then rounded to nearest, ties to even. One that would need another bit
    becomes the largest. Numbers below 2^-126 become 0, before and after, and no zero has a sign. Infinities and NaN stay.
    The result has the dtype of `array`, f32 or bf16, which holds it exactly.
    """
    import numpy as np

    assert array.dtype.name in ("float32", "bfloat16"), array.dtype
    if array.size == 0:
        return array
    if all(s == 0 for s in array.strides):  # equal elements, of which a part of a block is a block
        one = _blocks(np.asarray(array.reshape(-1)[:1], np.float32)[None], MAGNITUDES[format])
        return np.broadcast_to(one.astype(array.dtype).reshape(()), array.shape)
    result = np.zeros(array.shape, array.dtype)  # of which pieces that stay zeros take no memory: absent weights are such
    rows, out = np.moveaxis(array, dimension, -1), np.moveaxis(result, dimension, -1)
    length = rows.shape[-1]
    at_once = max(PIECE // length, 1)
    for index in np.ndindex(rows.shape[:-2]):
        source, into = np.atleast_2d(rows[index]), np.atleast_2d(out[index])
        for begin in range(0, len(source), at_once):
            if not source[begin : begin + at_once].any():
                continue
            part = np.asarray(source[begin : begin + at_once], np.float32)
            padded: NDArray[Any] = np.pad(part, ((0, 0), (0, -length % BLOCK)))
            into[begin : begin + at_once] = _blocks(padded.reshape(-1, BLOCK), MAGNITUDES[format]).reshape(padded.shape)[:, :length]
    return result


def _blocks(x: NDArray[Any], digits: int) -> NDArray[Any]:
    """Rounds blocks of f32: [blocks, elements]."""
    import numpy as np

    bits = np.ascontiguousarray(x).view(np.uint32)
    exponents = ((bits >> 23) & 0xFF).astype(np.int32)
    shared = exponents.max(axis=-1, keepdims=True)
    whole = np.where(exponents > 0, (bits & 0x7FFFFF) | 0x800000, 0).astype(np.int32) >> np.minimum(shared - exponents, 31)
    cut, tie = 24 - digits, 1 << (23 - digits)
    rest, magnitude = whole & (2 * tie - 1), whole >> cut
    magnitude += (rest > tie) | ((rest == tie) & (magnitude % 2 == 1))
    with np.errstate(over="ignore", under="ignore"):
        value: NDArray[Any] = np.ldexp(np.minimum(magnitude, (1 << digits) - 1).astype(np.float32), shared - 127 - digits + 1)
    value = np.where(value < 2.0**-126, np.float32(0), np.where((bits >> 31 == 1) & (value > 0), -value, value))
    return np.where(np.isfinite(x), value, x)
