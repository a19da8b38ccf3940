"""The decoder of image files."""

from __future__ import annotations

import io
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from populus.dialects.support.diagnostics import PopulusError

Array = NDArray[Any]

FORMATS = ("BMP", "JPEG", "JPEG2000", "PNG", "PPM", "TIFF", "WEBP")
LARGEST = 1 << 26  # pixels: a limit against small files that decode to huge images


def decode(params: Mapping[str, Any], arrays: list[Array]) -> list[Array]:
    """Decodes an image, given as bytes: [n], u8. Returns its pixels [height, width, channels], empty if it cannot be
    decoded.

    Raises PopulusError without Pillow (`pip install pillow`) and for more than 2^26 pixels. Source: ONNX
    ImageDecoder-20.
    """
    try:
        from PIL import Image, UnidentifiedImageError
    except ImportError as error:
        raise PopulusError("images are decoded by Pillow, which is not installed; pip install pillow") from error
    format = params.get("pixel_format", "RGB")
    if format not in ("RGB", "BGR", "Grayscale"):
        raise PopulusError(f"pixel_format is '{format}'; RGB, BGR and Grayscale are expected")
    channels = 1 if format == "Grayscale" else 3
    try:
        image = Image.open(io.BytesIO(arrays[0].tobytes()), formats=FORMATS)
        if image.width * image.height > LARGEST:
            raise PopulusError(f"the image has {image.width} x {image.height} pixels; up to {LARGEST} are decoded")
        pixels = np.asarray(image.convert("L" if channels == 1 else "RGB"))
    except (UnidentifiedImageError, OSError, SyntaxError, ValueError, Image.DecompressionBombError):
        return [np.zeros((0, 0, channels), np.uint8)]
    if channels == 1:
        pixels = pixels[..., None]
    return [np.ascontiguousarray(pixels[..., ::-1] if format == "BGR" else pixels)]
