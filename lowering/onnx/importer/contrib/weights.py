"""Weights quantized in blocks, several to a byte."""

from __future__ import annotations

from collections.abc import Mapping

from populus.dialects.support.diagnostics import PopulusError
from populus.lowering.onnx.importer.contrib.call import Body, Call, integers


def _unpacked(name: str, source: str, bits: int, shape: str) -> str:
    """Writes f32 elements from bytes whose last axis has 8 / bits of them each, the lowest bits first."""
    if bits == 8:
        return f"{name}_u = Identity ({source})\n{name}_r = Reshape ({name}_u, {shape})\n{name} = Cast <to = 1> ({name}_r)\n"
    each = 8 // bits
    amounts = ", ".join(str(bits * i) for i in range(each))
    return f"""{name}_ax = Constant <value = int64[1] {{-1}}> ()
{name}_by = Unsqueeze ({source}, {name}_ax)
{name}_am = Constant <value = uint8[{each}] {{{amounts}}}> ()
{name}_sh = BitShift <direction = "RIGHT"> ({name}_by, {name}_am)
{name}_mask = Constant <value = uint8 {{{2**bits - 1}}}> ()
{name}_u = BitwiseAnd ({name}_sh, {name}_mask)
{name}_r = Reshape ({name}_u, {shape})
{name} = Cast <to = 1> ({name}_r)
"""


def _matmul_bits(c: Call) -> str:
    """Writes MatMulNBits: `A ((q - z) s)^T + bias`, with a scale and a zero point for each block of a row of weights.

    The product is one of floats at any `accuracy_level`. Source: onnxruntime, ContribOperators.md.
    Raises PopulusError for other elements than of 2, 4 and 8 bits.
    """
    bits, block, inner, columns = int(c.get("bits", 4)), int(c.get("block_size", 32)), int(c.required("K")), int(c.required("N"))
    if bits not in (2, 4, 8) or block < 1 or block * bits % 8:
        raise PopulusError(f"MatMulNBits of {bits} bits in blocks of {block} is not supported; 2, 4 and 8 bits in whole bytes are")
    c.refuse("weight_prepacked")
    c.refuse_input(4, "g_idx")
    blocks = -(-inner // block)
    lines = integers("rows", columns, blocks, block) + integers("each", columns, blocks, 1) + integers("flat", columns, blocks * block)
    lines += f"{_unpacked('q', 'x1', bits, 'rows')}sc = Cast <to = 1> (x2)\nscale = Reshape (sc, each)\n"
    lines += _zero_points(c, bits, blocks, columns)
    lines += f"d = Sub (q, zero)\nv = Mul (d, scale)\nv_flat = Reshape (v, flat)\n{integers('start', 0)}{integers('end', inner)}"
    lines += f"{integers('ax', 1)}w = Slice (v_flat, start, end, ax)\n"
    lines += "wt = Transpose <perm = [1, 0]> (w)\na = Cast <to = 1> (x0)\np = MatMul (a, wt)\n"
    if c.has(5):
        lines += "b = Cast <to = 1> (x5)\npb = Add (p, b)\n"
    return lines + f"y0 = CastLike ({'pb' if c.has(5) else 'p'}, x0)\n"


def _zero_points(c: Call, bits: int, blocks: int, columns: int) -> str:
    """Writes `zero`, one for each block: from packed bytes, or from numbers of the scale's type; the middle if absent.

    Raises PopulusError if the file does not state the element type, which tells bytes from numbers.
    """
    if not c.has(3):
        return f"m = Constant <value = float {{{float(2 ** (bits - 1))}}}> ()\nzero = Expand (m, each)\n"
    element = c.element(3)
    if element is None:
        raise PopulusError("MatMulNBits with zero points that a node without a stated type computes is not supported; constants are")
    if element != "ui8":
        return "zc = Cast <to = 1> (x3)\nzero = Reshape (zc, each)\n"
    packed = -(-blocks * bits // 8)  # bytes of a row
    lines = integers("z_bytes", columns, packed) + integers("z_all", columns, packed * 8 // bits, 1)
    lines += f"zb = Reshape (x3, z_bytes)\n{_unpacked('z', 'zb', bits, 'z_all')}"
    return lines + f"{integers('z0', 0)}{integers('z1', blocks)}{integers('zx', 1)}zero = Slice (z, z0, z1, zx)\n"


FUNCTIONS: Mapping[str, Body] = {"MatMulNBits": _matmul_bits}
