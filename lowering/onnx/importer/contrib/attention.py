"""Attention over several heads, and rotary embeddings, as functions of products and softmax.

    y = softmax(scale q k^T + masks) v, for each head

Heads are the second of four dimensions: [batch, heads, length, elements].
"""

from __future__ import annotations

from collections.abc import Mapping

from populus.dialects.support.diagnostics import PopulusError
from populus.lowering.onnx.importer.contrib.call import Body, Call, integers, number

LOWEST = -3.4028234663852886e38  # the least f32


def heads(name: str, source: str, count: int) -> str:
    """Writes `name`, the heads of `source`, which has three dimensions; of another rank it is refused."""
    lines = f"{name}_of_3_dimensions = Transpose <perm = [0, 1, 2]> ({source})\n{integers(f'{name}_s', 0, 0, count, -1)}"
    return lines + f"{name}_4 = Reshape ({name}_of_3_dimensions, {name}_s)\n{name} = Transpose <perm = [0, 2, 1, 3]> ({name}_4)\n"


def _rank_is(name: str, source: str, rank: int) -> str:
    """Writes `name`, true if `source` has this rank; known at compile time, so that only one branch is left."""
    size = f"{name}_sh = Shape ({source})\n{name}_r = Size ({name}_sh)\n"
    return f"{size}{name}_k = Constant <value_int = {rank}> ()\n{name} = Equal ({name}_r, {name}_k)\n"


def _heads_of_any(name: str, source: str, count: int) -> str:
    """Writes `name`, the heads of `source`, which has three dimensions or is in heads already."""
    inner = heads(f"{name}_b", source, count)
    return (
        _rank_is(f"{name}_is", source, 4)
        + f"{name} = If <then_branch = {name}_then () => ({name}_t) {{ {name}_t = Identity ({source}) }}, "
        + f"else_branch = {name}_else () => ({name}_b) {{ {inner} }}> ({name}_is)\n"
    )


def scaled(c: Call, given: str = "q", scaled: str = "qs") -> str:
    """Writes the scaled queries: by the attribute, or by 1 / root of the elements of a head."""
    scale = float(c.get("scale", 0.0))
    if scale:
        return f"{number(scale, 'scale', given)}{scaled} = Mul ({given}, scale)\n"
    return f"""head = Shape <start = 3> ({given})
head_f = Cast <to = 1> (head)
root = Sqrt (head_f)
root_t = CastLike (root, {given})
{scaled} = Div ({given}, root_t)
"""


def positions(queries: str = "q", keys: str = "k") -> str:
    """Writes `rows` [queries, 1] and `columns` [keys]: the positions of queries among themselves, and of keys."""
    return f"""rank0 = Constant <value = int64[0] {{}}> ()
p_zero = Constant <value = int64 {{0}}> ()
p_one = Constant <value = int64 {{1}}> ()
s_1 = Shape <start = 2, end = 3> ({queries})
t_1 = Shape <start = 2, end = 3> ({keys})
s_n = Reshape (s_1, rank0)
t_n = Reshape (t_1, rank0)
rows_1 = Range (p_zero, s_n, p_one)
columns = Range (p_zero, t_n, p_one)
{integers("after", 1)}rows = Unsqueeze (rows_1, after)
"""


def weighted(scores: str, values: str = "v") -> str:
    """Writes `y0`: the values weighted by the softmax of scores, with heads side by side."""
    return f"""p = Softmax <axis = -1> ({scores})
o = MatMul (p, {values})
ot = Transpose <perm = [0, 2, 1, 3]> (o)
{integers("side", 0, 0, -1)}y0 = Reshape (ot, side)
"""


def _causal(scores: str) -> str:
    """Writes `causal`: the scores of keys up to each query, whose last one is the last key."""
    return f"""later = Sub (t_n, s_n)
reach = Add (rows, later)
seen = LessOrEqual (columns, reach)
{number(LOWEST, "never", "q")}causal = Where (seen, {scores}, never)
"""


def _masked(c: Call, i: int, lengths: bool) -> str:
    """Writes `mask` of input `i`: 0 for what counts, else mask_filter_value, for each key or each query and key.

    `lengths`: it may be the number of keys that count, for each batch. Another mask of one dimension is refused.
    """
    full = f"""m_b = Shape <end = 1> (x{i})
m_rest = Shape <start = 1> (x{i})
{integers("m_from", -1)}{integers("m_to", 9)}m_last = Slice (m_rest, m_from, m_to)
{integers("m_one", 1)}{integers("m_any", -1)}m_shape = Concat <axis = 0> (m_b, m_one, m_any, m_last)
m_4 = Reshape (x{i}, m_shape)
mask_of_2_or_3_dimensions = Transpose <perm = [0, 1, 2, 3]> (m_4)
m_0 = CastLike (p_zero, mask_of_2_or_3_dimensions)
m_full = Greater (mask_of_2_or_3_dimensions, m_0)
"""
    if lengths:
        counted = f"""l_b = Shape <end = 1> (q)
{integers("l_ones", 1, 1, 1)}l_shape = Concat <axis = 0> (l_b, l_ones)
l_64 = Cast <to = 7> (x{i})
l_n = Reshape (l_64, l_shape)
m_len = Less (columns, l_n)
"""
        chosen = f"{_rank_is('m_is', f'x{i}', 1)}m = If <then_branch = m_then () => (m_len) {{ {counted} }}, "
        lines = f"{chosen}else_branch = m_else () => (m_full) {{ {full} }}> (m_is)\n"
    else:
        lines = f"{full}m = Identity (m_full)\n"
    filtered = number(float(c.get("mask_filter_value", -10000.0)), "filtered", "q")
    return f"{lines}{number(0.0, 'kept', 'q')}{filtered}mask = Where (m, kept, filtered)\n"


def _attended(c: Call, mask: int, bias: int, lengths: bool) -> str:
    """Writes `y0` from the heads `q`, `k` and `v`, with an optional mask and bias, and causal if the node is."""
    lines = f"{scaled(c)}kt = Transpose <perm = [0, 1, 3, 2]> (k)\nscores = MatMul (qs, kt)\n{positions()}"
    last = "scores"
    if c.has(bias):
        lines += f"biased = Add ({last}, x{bias})\n"
        last = "biased"
    if c.has(mask):
        lines += f"{_masked(c, mask, lengths)}masked = Add ({last}, mask)\n"
        last = "masked"
    if c.get("unidirectional", 0):
        lines += _causal(last)
        last = "causal"
    return lines + weighted(last)


def _multi_head(c: Call) -> str:
    """Writes MultiHeadAttention of separate queries, keys and values; keys and values may be in heads already.

    Raises PopulusError for packed inputs, shared buffers and the fourth output.
    """
    if not (c.has(1) and c.has(2)):
        raise PopulusError("MultiHeadAttention with packed keys or values is not supported; three separate inputs are")
    c.refuse_input(8, "past_sequence_length")
    c.refuse_input(9, "cache_indirection")
    if c.wants(3):
        raise PopulusError("MultiHeadAttention with the output qk is not supported")
    count, lines, names = int(c.required("num_heads")), "", ["x0", "x1", "x2"]
    if c.has(3):
        lines += "d_q = Shape <start = -1> (x0)\nd_k = Shape <start = -1> (x1)\nd_v = Shape <start = -1> (x2)\n"
        lines += "d = Concat <axis = 0> (d_q, d_k, d_v)\nb0, b1, b2 = Split <axis = 0> (x3, d)\n"
        lines += "".join(f"w{i} = Add (x{i}, b{i})\n" for i in range(3))
        names = ["w0", "w1", "w2"]
    make = heads if c.has(3) else _heads_of_any
    lines += heads("q", names[0], count) + make("k_new", names[1], count) + make("v_new", names[2], count)
    for letter, past in (("k", 6), ("v", 7)):
        lines += f"{letter} = {f'Concat <axis = 2> (x{past}, {letter}_new)' if c.has(past) else f'Identity ({letter}_new)'}\n"
    ends = "".join(f"y{i} = Identity ({letter})\n" for i, letter in ((1, "k"), (2, "v")) if c.wants(i))
    return lines + _attended(c, 4, 5, False) + ends


def _attention(c: Call) -> str:
    """Writes Attention: one product gives queries, keys and values. Raises PopulusError for rotation and shared buffers."""
    c.refuse_input(6, "past_sequence_length")
    return "qkv_p = MatMul (x0, x1)\n" + _of_product(c, mask=3, past=4, bias=5)


def _quantized_attention(c: Call) -> str:
    """Writes QAttention, whose product is one of integers. Raises PopulusError for rotation and shared buffers."""
    zeros = f", {'x6' if c.has(6) else ''}{c.optional(7)}" if c.has(6) or c.has(7) else ""
    lines = f"whole = MatMulInteger (x0, x1{zeros})\nwhole_f = Cast <to = 1> (whole)\nwhole_s = Mul (x3, x4)\n"
    return f"{lines}qkv_p = Mul (whole_f, whole_s)\n" + _of_product(c, mask=5, past=8, bias=9)


def _of_product(c: Call, mask: int, past: int, bias: int) -> str:
    """Writes the attention of `qkv_p`; the inputs of a mask, of past keys and values, and of a bias of scores are given."""
    c.refuse("do_rotary", "past_present_share_buffer")
    count, sizes = int(c.required("num_heads")), list(c.get("qkv_hidden_sizes", []))
    lines = "qkv = Add (qkv_p, x2)\n" if c.has(2) else "qkv = Identity (qkv_p)\n"
    if sizes:
        lines += f"{integers('sizes', *sizes)}q_in, k_in, v_in = Split <axis = 2> (qkv, sizes)\n"
    else:
        lines += "q_in, k_in, v_in = Split <axis = 2, num_outputs = 3> (qkv)\n"
    lines += heads("q", "q_in", count) + heads("k_new", "k_in", count) + heads("v_new", "v_in", count)
    if c.has(past):
        lines += f"pk_1, pv_1 = Split <axis = 0, num_outputs = 2> (x{past})\n{integers('first', 0)}pk = Squeeze (pk_1, first)\n"
        lines += "pv = Squeeze (pv_1, first)\nk = Concat <axis = 2> (pk, k_new)\nv = Concat <axis = 2> (pv, v_new)\n"
    else:
        lines += "k = Identity (k_new)\nv = Identity (v_new)\n"
    lines += _attended(c, mask, bias, True)
    if c.wants(1):
        lines += f"{integers('front', 0)}k_5 = Unsqueeze (k, front)\nv_5 = Unsqueeze (v, front)\ny1 = Concat <axis = 0> (k_5, v_5)\n"
    return lines


def rotated(name: str, source: str, places: str, cos: str, sin: str, interleaved: bool) -> str:
    """Writes `name`: the heads of `source` rotated by the angles at `places` [batch or 1, length].

    Pairs are the halves of the first elements, or neighbours if interleaved; elements beyond the angles stay.
    """
    n = name
    lines = f"""{n}_half = Shape <start = 1> ({cos})
{n}_two = Constant <value = int64[1] {{2}}> ()
{n}_all = Mul ({n}_half, {n}_two)
{n}_h = Shape <start = 3> ({source})
{n}_0 = Constant <value = int64[1] {{0}}> ()
{n}_1 = Constant <value = int64[1] {{1}}> ()
{n}_3 = Constant <value = int64[1] {{3}}> ()
{n}_turn = Slice ({source}, {n}_0, {n}_all, {n}_3)
{n}_stay = Slice ({source}, {n}_all, {n}_h, {n}_3)
{n}_cg = Gather ({cos}, {places})
{n}_sg = Gather ({sin}, {places})
{n}_c = Unsqueeze ({n}_cg, {n}_1)
{n}_s = Unsqueeze ({n}_sg, {n}_1)
"""
    if interleaved:
        lines += f"{n}_a = Slice ({n}_turn, {n}_0, {n}_all, {n}_3, {n}_two)\n{n}_b = Slice ({n}_turn, {n}_1, {n}_all, {n}_3, {n}_two)\n"
    else:
        lines += f"{n}_a, {n}_b = Split <axis = 3, num_outputs = 2> ({n}_turn)\n"
    lines += f"""{n}_ac = Mul ({n}_a, {n}_c)
{n}_bs = Mul ({n}_b, {n}_s)
{n}_as = Mul ({n}_a, {n}_s)
{n}_bc = Mul ({n}_b, {n}_c)
{n}_re = Sub ({n}_ac, {n}_bs)
{n}_im = Add ({n}_as, {n}_bc)
"""
    if interleaved:
        lines += f"""{n}_4 = Constant <value = int64[1] {{4}}> ()
{n}_re5 = Unsqueeze ({n}_re, {n}_4)
{n}_im5 = Unsqueeze ({n}_im, {n}_4)
{n}_pairs = Concat <axis = 4> ({n}_re5, {n}_im5)
{n}_as_was = Shape ({n}_turn)
{n}_new = Reshape ({n}_pairs, {n}_as_was)
"""
    else:
        lines += f"{n}_new = Concat <axis = 3> ({n}_re, {n}_im)\n"
    return lines + f"{n} = Concat <axis = 3> ({n}_new, {n}_stay)\n"


def _rotary(c: Call) -> str:
    """Writes RotaryEmbedding, at one first position or at a position for each token.

    Raises PopulusError for ragged batches and a scale.
    """
    c.refuse("is_packed_batching")
    if float(c.get("scale", 1.0)) != 1.0:
        raise PopulusError("RotaryEmbedding with scale is not supported")
    count = int(c.get("num_heads", 0))
    if count:
        inner = heads("h_b", "x0", count)
    else:
        inner = f"""h_c = Shape <start = 1> (x2)
h_two = Constant <value = int64[1] {{2}}> ()
h_size = Mul (h_c, h_two)
{integers("h_s", 0, 0, -1)}h_shape = Concat <axis = 0> (h_s, h_size)
h_4 = Reshape (x0, h_shape)
h_b = Transpose <perm = [0, 2, 1, 3]> (h_4)
"""
    lines = _rank_is("is", "x0", 4) + _rank_is("one", "x1", 1)
    lines += f"h = If <then_branch = h_then () => (h_t) {{ h_t = Identity (x0) }}, else_branch = h_else () => (h_b) {{ {inner} }}> (is)\n"
    lines += f"{positions('h', 'h')}first = Cast <to = 7> (x1)\n{integers('row', 0)}"
    lines += "at = If <then_branch = a_then () => (a_t) { a_1 = Add (columns, first)\na_t = Unsqueeze (a_1, row) }, "
    lines += "else_branch = a_else () => (a_b) { a_b = Identity (first) }> (one)\n"
    lines += rotated("r", "h", "at", "x2", "x3", bool(c.get("interleaved", 0)))
    lines += "size = Shape (x0)\ny0 = If <then_branch = y_then () => (y_t) { y_t = Identity (r) }, "
    return lines + "else_branch = y_else () => (y_b) { y_p = Transpose <perm = [0, 2, 1, 3]> (r)\ny_b = Reshape (y_p, size) }> (is)\n"


FUNCTIONS: Mapping[str, Body] = {
    "Attention": _attention,
    "MultiHeadAttention": _multi_head,
    "QAttention": _quantized_attention,
    "RotaryEmbedding": _rotary,
}
