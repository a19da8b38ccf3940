"""Conversions of DFT, STFT and MelWeightMatrix: products with matrices of cosines and sines, in f64."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from xdsl.dialects.builtin import f64
from xdsl.ir import SSAValue

from populus.dialects import popart
from populus.dialects.support import shapes
from populus.dialects.support.diagnostics import PopulusError
from populus.dialects.support.element_types import dtype_of
from populus.lowering.onnx.to_popart.conversion import Conversion, Output, Rules, element, shape
from populus.lowering.onnx.to_popart.formula import Term
from populus.lowering.onnx.to_popart.tensor import gathered, sliced

if TYPE_CHECKING:
    from numpy.typing import NDArray


MOST = 1 << 28  # elements of a matrix


def waves(n: int, frequencies: int) -> tuple[NDArray[Any], NDArray[Any]]:
    """Computes the cosines and sines of 2 pi j k / n: two arrays [n, frequencies].

    The product j k is reduced modulo n first, so that the angle is exact. Raises PopulusError for matrices above 2 GiB.
    """
    import numpy as np

    if n * frequencies > MOST:
        raise PopulusError(f"{frequencies} frequencies of {n} samples take a matrix of {n * frequencies} cosines; at most {MOST}, 2^28")

    angle = 2 * np.pi * (np.outer(np.arange(n), np.arange(frequencies)) % n) / n
    return np.cos(angle), np.sin(angle)


def spectrum(c: Conversion, real: SSAValue, imaginary: SSAValue | None, n: int, frequencies: int, inverse: bool) -> list[SSAValue]:
    """Transforms along the last dimension of n elements (f64): the real and the imaginary part of the result.

    `imaginary`: None for a real input. An inverse transform is divided by n.
    """
    cosine, sine = (c.constant(v) for v in waves(n, frequencies))

    def product(x: SSAValue, w: SSAValue) -> Term:
        return Term(c, c.insert(popart.MatMulOp(x, w)))

    sign = 1.0 if inverse else -1.0
    parts = [product(real, cosine), product(real, sine) * sign]
    if imaginary is not None:
        parts = [parts[0] - product(imaginary, sine) * sign, parts[1] + product(imaginary, cosine)]
    return [(v / n if inverse else v).value for v in parts]


def halves(c: Conversion, x: SSAValue) -> list[SSAValue]:
    """Splits [.., 1] or [.., 2] into its real and, if present, imaginary part: f64, without the last dimension."""
    last = len(shape(x)) - 1
    return [c.reshape(sliced(c, c.cast(x, f64), {last: (i, i + 1, 1)}), shape(x)[:-1]) for i in range(shape(x)[-1])]


def joined(c: Conversion, parts: list[SSAValue]) -> SSAValue:
    """Joins the parts along a new last dimension."""
    return c.insert(popart.ConcatOp(*(c.reshape(v, (*shape(v), 1)) for v in parts), axis=len(shape(parts[0]))))


def dft(c: Conversion) -> Output:
    """Converts DFT. Raises PopulusError if its axis is the last dimension.

    Source: ONNX DFT-20; in DFT-17 the axis is an attribute.
    """
    x = c.input(0)
    rank = len(shape(x))
    if c.version < 20:
        axis = c.axis(rank, 1)
    else:
        axis = shapes.axis(int(c.number(2)) if c.has(2) else -2, rank)
    if axis == rank - 1:
        raise PopulusError("axis is the last dimension, which has the real and the imaginary part")
    inverse, onesided = bool(c.get("inverse")), bool(c.get("onesided"))
    size = shape(x)[axis]
    n = int(c.number(1)) if c.has(1) else 2 * (size - 1) if inverse and onesided else size
    if inverse and onesided:
        # The other half is the reversed conjugate of this one.
        parts = halves(c, x)
        half = n // 2 + 1
        parts = [fitted(c, v, axis, half) for v in parts]
        mirror = [n - k for k in range(half, n)]
        whole = [c.insert(popart.ConcatOp(v, gathered(c, v, mirror, axis), axis=axis)) if mirror else v for v in parts]
        if len(whole) > 1 and mirror:
            flipped = (Term(c, gathered(c, parts[1], mirror, axis)) * -1).value
            whole[1] = c.insert(popart.ConcatOp(parts[1], flipped, axis=axis))
        result = transformed(c, whole, axis, n, n, inverse=True)[:1]
    else:
        parts = [fitted(c, v, axis, n) for v in halves(c, x)]
        result = transformed(c, parts, axis, n, n // 2 + 1 if onesided else n, inverse)
    return c.cast(joined(c, result) if len(result) > 1 else c.reshape(result[0], (*shape(result[0]), 1)), element(x))


def fitted(c: Conversion, x: SSAValue, axis: int, n: int) -> SSAValue:
    """Cuts dimension `axis` of `x` to n elements, or pads it with zeros."""
    missing = n - shape(x)[axis]
    if missing <= 0:
        return sliced(c, x, {axis: (0, n, 1)})
    upper = tuple(missing if d == axis else 0 for d in range(len(shape(x))))
    return c.insert(popart.PadOp(x, None, lower=(0,) * len(upper), upper=upper, mode="constant"))


def transformed(c: Conversion, parts: list[SSAValue], axis: int, n: int, frequencies: int, inverse: bool) -> list[SSAValue]:
    """Transforms along any dimension; see `spectrum`."""
    rank = len(shape(parts[0]))
    order = [*(d for d in range(rank) if d != axis), axis]
    rows = [c.transpose(v, order) for v in parts]
    spectra = spectrum(c, rows[0], rows[1] if len(rows) > 1 else None, n, frequencies, inverse)
    return [c.transpose(v, [order.index(d) for d in range(rank)]) for v in spectra]


def stft(c: Conversion) -> Output:
    """Converts STFT: frames, each multiplied by the window and transformed.

    Raises PopulusError for frames that are longer than the signal, and for a step below 1. Source: ONNX STFT-17.
    """
    import numpy as np

    x, window = c.input(0), c.optional(2)
    if len(shape(x)) == 2:  # PyTorch's exporter omits the last dimension of a real signal
        x = c.reshape(x, (*shape(x), 1))
    step = int(c.number(1))
    length = int(c.number(3)) if c.has(3) else shape(window)[0] if window is not None else shape(x)[1]
    if step < 1:
        raise PopulusError(f"frame_step is {step}; at least 1 is expected")
    if not 1 <= length <= shape(x)[1]:
        raise PopulusError(f"frame_length is {length}; 1 to {shape(x)[1]}, the length of the signal, is expected")
    frames = 1 + (shape(x)[1] - length) // step
    places = c.constant((np.arange(frames)[:, None] * step + np.arange(length)).astype(np.int32))
    rows = [Term(c, c.insert(popart.GatherOp(v, places, axis=1))) for v in halves(c, x)]
    if window is not None:
        rows = [v * Term(c, c.cast(window, f64)) for v in rows]
    frequencies = length // 2 + 1 if c.get("onesided") else length
    parts = spectrum(c, rows[0].value, rows[1].value if len(rows) > 1 else None, length, frequencies, inverse=False)
    return c.cast(joined(c, parts), element(x))


def mel_weight_matrix(c: Conversion) -> Output:
    """Converts MelWeightMatrix: triangles with corners equally spaced on the mel scale.

    The result is [spectrogram bins, mel bins]. Raises PopulusError for frequencies or sizes that make no matrix.
    Source: ONNX MelWeightMatrix-17.
    """
    import numpy as np

    bins, length, rate, lowest, highest = (float(c.known(i).reshape(-1)[0]) for i in range(5))
    bins = int(bins)
    if bins < 1 or length < 1 or rate <= 0 or not 0 <= lowest <= highest:
        raise PopulusError(f"{bins} mel bins of {length:g} samples at {rate:g} Hz between {lowest:g} and {highest:g} Hz make no matrix")
    low, high = 2595 * np.log10(1 + np.array([lowest, highest]) / 700)
    hertz = 700 * (10 ** ((low + np.arange(bins + 2) * (high - low) / (bins + 2)) / 2595) - 1)
    left, centre, right = (np.floor((length + 1) * hertz / rate)[i : i + bins] for i in range(3))
    j = np.arange(int(length) // 2 + 1)[:, None]
    with np.errstate(all="ignore"):
        rising = np.where((j >= left) & (j <= centre), np.where(centre == left, 1.0, (j - left) / (centre - left)), 0.0)
        falling = np.where((j > centre) & (j < right), (right - j) / (right - centre), 0.0)
    output = c.op.output(0)
    assert output is not None
    return c.constant((rising + falling).astype(dtype_of(element(output))))


RULES: Rules = {"DFT": dft, "MelWeightMatrix": mel_weight_matrix, "STFT": stft}
