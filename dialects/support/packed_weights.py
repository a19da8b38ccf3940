"""The form of weights of a few bits, which have a scale and a zero point for each block."""

from __future__ import annotations

from xdsl.dialects.builtin import f32
from xdsl.ir import Attribute
from xdsl.utils.exceptions import VerifyException

from populus.dialects.support import shapes
from populus.dialects.support.element_types import element_type_of, shape_of, ui8
from populus.dialects.support.shapes import ShapeError


def check_packed(k: int, codes: Attribute, scale: Attribute, zero: Attribute, bits: int) -> None:
    """Raises VerifyException unless these are weights of k rows: codes [n, blocks, bytes] in ui8, with scales and zeros [n, blocks]."""
    if bits not in (2, 4, 8):
        raise VerifyException(f"weights of {bits} bits; 2, 4 or 8 are expected")
    sizes, blocks = shape_of(codes), shape_of(scale)
    if element_type_of(codes) != ui8 or element_type_of(scale) != f32 or element_type_of(zero) not in (ui8, f32):
        raise VerifyException(f"codes are {codes}, scales {scale}, zero points {zero}; ui8, f32, and ui8 or f32 are expected")
    if len(sizes) != 3 or blocks != sizes[:2] or shape_of(zero) != blocks:
        found = ", ".join(map(shapes.text, (sizes, blocks, shape_of(zero))))
        raise ShapeError(f"codes, scales and zero points are {found}; [n, blocks, bytes], [n, blocks] and [n, blocks] are expected")
    size = sizes[2] * 8 // bits
    if size < 4 or size & (size - 1) or sizes[2] % 4:
        raise ShapeError(f"blocks of {size} elements of {bits} bits; a power of two in whole words of 32 bits is expected")
    if sizes[1] != -(-k // size):
        raise ShapeError(f"{sizes[1]} blocks of {size} elements for {k} rows; {-(-k // size)} are expected")
