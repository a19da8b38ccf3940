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

    With g_idx, the row `k` of the product's weights has the scale and zero point of block `g_idx[k]`.
    The product is one of floats at any `accuracy_level`. Source: onnxruntime, ContribOperators.md.
    Raises PopulusError for other elements than of 2, 4 and 8 bits, and for weights or scales of another size.
    """
    bits, block, inner, columns = int(c.get("bits", 4)), int(c.get("block_size", 32)), int(c.required("K")), int(c.required("N"))
    if bits not in (2, 4, 8) or block < 1 or block * bits % 8:
        raise PopulusError(f"MatMulNBits of {bits} bits in blocks of {block} is not supported; 2, 4 and 8 bits in whole bytes are")
    c.refuse("weight_prepacked")
    blocks = -(-inner // block)
    c.require_elements(1, "B", columns * blocks * block * bits // 8, f"N = {columns} by {blocks} blocks of {block} at {bits} bits")
    c.require_elements(2, "scales", columns * blocks, f"one for each of the {blocks} blocks of N = {columns} columns")
    if not c.has(4) and block & (block - 1) == 0 and block * bits % 32 == 0:
        return _packed_product(c, bits, block, blocks, columns)
    lines = integers("rows", columns, blocks, block) + integers("each", columns, blocks, 1) + integers("flat", columns, blocks * block)
    lines += f"{_unpacked('q', 'x1', bits, 'rows')}sc = Cast <to = 1> (x2)\nscale = Reshape (sc, each)\n"
    lines += _zero_points(c, bits, blocks, columns)
    lines += f"{integers('start', 0)}{integers('end', inner)}{integers('ax', 1)}"
    if c.has(4):
        lines += (
            f"q_flat = Reshape (q, flat)\nq_k = Slice (q_flat, start, end, ax)\n{integers('first', 0)}of = Slice (x4, start, end, first)\n"
        )
        lines += f"{integers('pair', columns, blocks)}z_b = Reshape (zero, pair)\ns_b = Reshape (scale, pair)\n"
        lines += "z_k = Gather <axis = 1> (z_b, of)\ns_k = Gather <axis = 1> (s_b, of)\nd = Sub (q_k, z_k)\nw = Mul (d, s_k)\n"
    else:
        lines += "d = Sub (q, zero)\nv = Mul (d, scale)\nv_flat = Reshape (v, flat)\nw = Slice (v_flat, start, end, ax)\n"
    lines += "wt = Transpose <perm = [1, 0]> (w)\na = Cast <to = 1> (x0)\np = MatMul (a, wt)\n"
    if c.has(5):
        lines += "b = Cast <to = 1> (x5)\npb = Add (p, b)\n"
    return lines + f"y0 = CastLike ({'pb' if c.has(5) else 'p'}, x0)\n"


def _packed_product(c: Call, bits: int, block: int, blocks: int, columns: int) -> str:
    """Writes MatMulNBits by one op, whose weights stay packed."""
    lines = integers("codes_to", columns, blocks, block * bits // 8) + integers("pair", columns, blocks)
    lines += integers("each", columns, blocks, 1)
    lines += "codes = Reshape (x1, codes_to)\nsc = Cast <to = 1> (x2)\nscale = Reshape (sc, pair)\n"
    element = c.element(3) if c.has(3) else None
    if not c.has(3):
        lines += f"m = Constant <value = uint8 {{{2 ** (bits - 1)}}}> ()\nzero = Expand (m, pair)\n"
    elif element == "ui8":
        lines += _zero_points(c, bits, blocks, columns).replace("zero = ", "zero_f = ")
        lines += "zero_u = Cast <to = 2> (zero_f)\nzero = Reshape (zero_u, pair)\n"
    else:
        lines += _zero_points(c, bits, blocks, columns).replace("zero = ", "zero_f = ") + "zero = Reshape (zero_f, pair)\n"
    lines += f"a = Cast <to = 1> (x0)\np = populus.PackedMatMul <bits = {bits}> (a, codes, scale, zero)\n"
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
    c.require_elements(3, "zero_points", columns * packed, f"{packed} bytes for the {blocks} blocks of each of N = {columns} columns")
    lines = integers("z_bytes", columns, packed) + integers("z_all", columns, packed * 8 // bits, 1)
    lines += f"zb = Reshape (x3, z_bytes)\n{_unpacked('z', 'zb', bits, 'z_all')}"
    return lines + f"{integers('z0', 0)}{integers('z1', blocks)}{integers('zx', 1)}zero = Slice (z, z0, z1, zx)\n"


def _apart(name: str, source: str, bits: int) -> str:
    """Writes `name`, in f32: the elements of bytes that have several along the last axis, the lowest bits first."""
    each = 8 // bits
    rows = f"""{name}_lead = Shape <start = 0, end = -1> ({source})
{name}_last = Shape <start = -1> ({source})
{name}_each = Constant <value = int64[1] {{{each}}}> ()
{name}_all = Mul ({name}_last, {name}_each)
{name}_to = Concat <axis = 0> ({name}_lead, {name}_all)
"""
    return rows + _unpacked(name, source, bits, f"{name}_to")


def _gather_blocks(c: Call) -> str:
    """Writes GatherBlockQuantized: rows of `(q - z) s`, with a scale and a zero point for each block of an axis.

    Bytes have 8 / bits elements along the last axis; their zero point is 2^(bits - 1) by default, and 0 of other elements.
    Source: onnxruntime, ContribOperators.md. Raises PopulusError for settings that onnxruntime refuses, and if the file
    does not state the data's element type.
    """
    bits, block, gather, axis = (int(c.get(k, v)) for k, v in (("bits", 4), ("block_size", 128), ("gather_axis", 0), ("quantize_axis", 1)))
    element = c.element(0)
    if element is None:
        raise PopulusError("GatherBlockQuantized of data that a node without a stated type computes is not supported; constants are")
    if element not in ("ui8", "ui4", "i4") or bits not in ((2, 4, 8) if element == "ui8" else (4,)) or block < 1:
        raise PopulusError(f"GatherBlockQuantized of {element} with {bits} bits in blocks of {block} is not supported; 2, 4 and 8 bits are")
    middle, lines = (2 ** (bits - 1), "") if element == "ui8" else (0, "")
    for name, i in (("all_q", 0), ("all_z", 3)):
        if c.has(i):
            lines += _apart(name, f"x{i}", bits) if element == "ui8" else f"{name} = Cast <to = 1> (x{i})\n"
    lines += "all_s = Cast <to = 1> (x2)\nranks = Shape (x2)\nrank = Size (ranks)\n"
    if not c.has(3):
        lines += f"m = Constant <value = float {{{float(middle)}}}> ()\nall_z0 = Expand (m, ranks)\n"
    else:  # the last byte of a row may have more elements than there are blocks
        lines += f"{integers('from', 0)}{integers('last', axis)}blocks = Gather (ranks, last)\nall_z0 = Slice (all_z, from, blocks, last)\n"
    lines += (
        f"places_end = Shape (all_q)\n{integers('on', axis)}length = Gather (places_end, on)\nrank0 = Constant <value = int64[0] {{}}> ()\n"
    )
    lines += "n = Reshape (length, rank0)\nz64 = Constant <value = int64 {0}> ()\no64 = Constant <value = int64 {1}> ()\n"
    lines += f"places = Range (z64, n, o64)\nsize = Constant <value = int64 {{{block}}}> ()\nblock = Div (places, size)\n"
    lines += f"z = Gather <axis = {axis}> (all_z0, block)\ns = Gather <axis = {axis}> (all_s, block)\n"
    for name, source in (("q_g", "all_q"), ("z_g", "z"), ("s_g", "s")):
        lines += f"{name} = Gather <axis = {gather}> ({source}, x1)\n"
    return lines + "d = Sub (q_g, z_g)\nv = Mul (d, s_g)\ny0 = CastLike (v, x2)\n"


FUNCTIONS: Mapping[str, Body] = {"GatherBlockQuantized": _gather_blocks, "MatMulNBits": _matmul_bits}
