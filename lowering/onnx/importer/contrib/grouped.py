"""Attention of groups of query heads that share a head of keys and values, with a cache of the past.

The batch `b` has `past = max(seqlens_k[b] + 1 - S, 0)` cached positions; its S new keys and values follow them.
Outputs of queries beyond the length of a batch attend to the new rows before them. onnxruntime reads scores there that it has not computed.
"""

from __future__ import annotations

from collections.abc import Mapping

from populus.dialects.support.diagnostics import PopulusError
from populus.lowering.onnx.importer.contrib.attention import LOWEST, heads, positions, rotated, scaled, weighted
from populus.lowering.onnx.importer.contrib.call import Body, Call, integers, number

_INPUTS = {9: "position_ids", 11: "head_sink", 12: "k_scale", 13: "v_scale", 14: "q_norm_weight", 15: "k_norm_weight"}


def _checked(c: Call) -> None:
    """Raises PopulusError for attributes, inputs and outputs that are not supported."""
    c.refuse("kv_cache_bit_width", "sliding_window_cache", "qk_output")
    if c.get("smooth_softmax", 0) == 1:
        c.refuse("smooth_softmax")
    if not c.get("causal", 1):
        raise PopulusError("GroupQueryAttention that is not causal is not supported")
    for i, name in _INPUTS.items():
        c.refuse_input(i, name)
    for name in ("k_quant_type", "v_quant_type"):
        if c.get(name, "NONE") != "NONE":
            raise PopulusError(f"GroupQueryAttention with {name} is not supported")
    if c.has(1) != c.has(2) or c.has(3) != c.has(4) or not (c.has(5) and c.has(6)):
        raise PopulusError("GroupQueryAttention needs keys with values, a past of both, seqlens_k and total_sequence_length")


def _separate(queries: int, keys: int) -> str:
    """Writes `q_in`, `k_in` and `v_in`, the parts of packed inputs."""
    return f"""d = Shape <start = 2> (x0)
count = Constant <value = int64[1] {{{queries + 2 * keys}}}> ()
head_d = Div (d, count)
{integers("times", queries, keys, keys)}parts = Mul (head_d, times)
q_in, k_in, v_in = Split <axis = 2> (x0, parts)
"""


def _placed(c: Call, letter: str, past: int) -> str:
    """Writes `k` or `v`: the past of each batch, then its new rows, then zeros, of as many rows as the present has."""
    new = f"{letter}_new"
    if not c.has(past):
        joined = f"{letter}_all = Identity ({new})\n"
    else:
        joined = f"{letter}_all = Concat <axis = 2> (x{past}, {new})\n"
    return f"""{joined}{letter}_sh = Shape ({new})
{letter}_bn = Shape <end = 2> ({new})
{letter}_h = Shape <start = 3> ({new})
{letter}_shape = Concat <axis = 0> ({letter}_bn, present_1, {letter}_h)
{letter}_at = Expand (source, {letter}_shape)
{letter}_rows = GatherElements <axis = 2> ({letter}_all, {letter}_at)
{number(0.0, f"{letter}_0", new)}{letter} = Where (filled, {letter}_rows, {letter}_0)
"""


def _source(c: Call) -> str:
    """Writes `before` [batch, 1], the past rows; `source` and `filled` [batch, 1, present, 1], a row's place and presence."""
    buffer = "buffer = Shape <start = 2, end = 3> (x3)\n" if c.has(3) else integers("buffer", 0)
    return f"""{buffer}{integers("one_1", 1)}{integers("each", -1, 1)}{integers("all_of", 0)}fresh = Shape <start = 2, end = 3> (k_new)
total = Cast <to = 7> (x6)
total_1 = Reshape (total, one_1)
present_1 = Max (total_1, buffer)
lengths_64 = Cast <to = 7> (x5)
lengths = Reshape (lengths_64, each)
past_1 = Sub (lengths, fresh)
past_2 = Add (past_1, one_1)
before = Max (past_2, all_of)
n_shape = Constant <value = int64[0] {{}}> ()
present = Reshape (present_1, n_shape)
n_0 = Constant <value = int64 {{0}}> ()
n_1 = Constant <value = int64 {{1}}> ()
slots = Range (n_0, present, n_1)
old = Less (slots, before)
end = Add (before, fresh)
filled_2 = Less (slots, end)
shift = Sub (buffer, before)
moved = Add (slots, shift)
place = Where (old, slots, moved)
safe = Where (filled_2, place, all_of)
{integers("middle", 1, 3)}source = Unsqueeze (safe, middle)
filled = Unsqueeze (filled_2, middle)
"""


def _grouped(c: Call) -> str:
    """Writes GroupQueryAttention. Its present has max(total_sequence_length, rows of the past) rows, zeros after the last.

    Raises PopulusError for quantized caches, sinks, given positions and outputs of scores.
    """
    _checked(c)
    queries, keys = int(c.required("num_heads")), int(c.required("kv_num_heads"))
    if keys < 1 or queries % keys:
        raise PopulusError(f"GroupQueryAttention has {queries} heads of queries and {keys} of keys; a multiple is expected")
    names = ("x0", "x1", "x2") if c.has(1) else ("q_in", "k_in", "v_in")
    lines = "" if c.has(1) else _separate(queries, keys)
    lines += heads("q_raw", names[0], queries) + heads("k_raw", names[1], keys) + heads("v_new", names[2], keys)
    turned = bool(c.get("do_rotary", 0))
    lines += "k_new = Identity (k_raw)\n" if not turned else ""
    source = _source(c).replace("(k_new)", "(k_raw)")
    lines += source + positions("q_raw", "k_raw")
    lines += "now = Unsqueeze (rows_1, all_of)\nat = Add (before, now)\n"  # [batch, S]: the positions of the new tokens
    if turned:
        for letter in "qk":
            name = "q" if letter == "q" else "k_new"
            lines += rotated(name, f"{letter}_raw", "at", "x7", "x8", bool(c.get("rotary_interleaved", 0)))
    else:
        lines += "q = Identity (q_raw)\n"
    lines += _placed(c, "k", 3) + _placed(c, "v", 4)
    ends = "".join(f"y{i} = Identity ({letter})\n" for i, letter in ((1, "k"), (2, "v")) if c.wants(i))
    return lines + ends + _scores(c, queries, keys)


def _scores(c: Call, queries: int, keys: int) -> str:
    """Writes `y0` from `q`, and from `k` and `v` of the present; each head of keys serves its group of queries."""
    shared = integers("serving", *(i * keys // queries for i in range(queries)))
    lines = f"{shared}ks = Gather <axis = 1> (k, serving)\nvs = Gather <axis = 1> (v, serving)\n{scaled(c)}"
    lines += "kt = Transpose <perm = [0, 1, 3, 2]> (ks)\nscores = MatMul (qs, kt)\n"
    last = "scores"
    if cap := float(c.get("softcap", 0.0)):
        lines += f"{number(cap, 'cap', 'q')}small = Div (scores, cap)\nbent = Tanh (small)\ncapped = Mul (bent, cap)\n"
        last = "capped"
    if c.has(10):
        lines += f"biased = Add ({last}, x10)\n"
        last = "biased"
    lines += f"{integers('at_ax', 1, 3)}reach = Unsqueeze (at, at_ax)\nseen_0 = LessOrEqual (slots, reach)\n"
    window = int(c.get("local_window_size", -1))
    if window > 0:
        lines += f"w_n = Constant <value_int = {window}> ()\nlow = Sub (reach, w_n)\n"
        lines += "near = Greater (slots, low)\nseen = And (seen_0, near)\n"
    else:
        lines += "seen = Identity (seen_0)\n"
    return f"{lines}{number(LOWEST, 'never', 'q')}causal = Where (seen, {last}, never)\n{weighted('causal', 'vs')}"


FUNCTIONS: Mapping[str, Body] = {"GroupQueryAttention": _grouped}
