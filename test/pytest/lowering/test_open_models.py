"""Whole models with open sizes as one program: an encoder, a decoder with a cache, images of any size, lines of text of any width."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from onnx import ModelProto, TensorProto

from helpers.bounded_models import contrib, decoder, encoder, images, text_lines
from helpers.bounded_runs import compare, compare_gradients
from populus.dialects.signature import main_of
from populus.dialects.signature.bounded_dimensions import limits

MODELS: dict[str, tuple[Callable[[], ModelProto], dict[str, tuple[int, int]], list[tuple[int, ...]]]] = {
    "encoder": (encoder, {"batch": (1, 3), "seq": (1, 10)}, [(2, 7), (3, 10), (1, 1)]),
    "decoder": (decoder, {"batch": (1, 2), "past": (0, 6), "cur": (1, 4)}, [(2, 3, 1), (1, 0, 4), (2, 6, 4), (1, 5, 2)]),
    "images": (images, {"batch": (1, 2), "h": (5, 12), "w": (6, 12)}, [(2, 8, 12), (1, 5, 7), (2, 12, 11)]),
    "text lines": (text_lines, {"batch": (1, 2), "width": (4, 16)}, [(2, 9), (1, 4), (2, 16)]),
}


@pytest.mark.parametrize("name", MODELS)
def test_one_program_is_right_at_each_size(name: str):
    make, dims, every = MODELS[name]
    compare(make(), dims, [dict(zip(dims, sizes)) for sizes in every], level="popart")


@pytest.mark.parametrize("name", MODELS)
def test_no_vertex_reads_an_invalid_part_into_a_result(name: str):
    make, dims, every = MODELS[name]
    compare(make(), dims, [dict(zip(dims, every[0]))], engine="strict", tiles=16)


@pytest.mark.parametrize(("name", "wrt"), [("encoder", ["words", "wq", "g", "w1"]), ("images", ["x", "k1", "k2"])])
def test_gradients_of_weights_agree(name: str, wrt: list[str]):
    make, dims, every = MODELS[name]
    compare_gradients(make(), dims, [dict(zip(dims, every[0]))], wrt, level="popart")


@pytest.mark.parametrize("cur", [1, (1, 4)])
def test_a_cache_has_one_type_where_the_sum_of_its_sizes_is_bounded(cur: int | tuple[int, int]):
    most = 1 if isinstance(cur, int) else 4
    every = [{"batch": 2, "past": past, **({} if most == 1 else {"cur": n})} for past, n in ((3, 1), (0, most), (16 - most, most))]
    run = compare(decoder(), {"batch": (1, 2), "past": (0, 16), "cur": cur, "past + cur": (1, 16)}, every, level="popart")
    types = {**run.program.signature.inputs, **run.program.signature.outputs}
    assert types["p0"] == types["past_key"]
    assert limits(main_of(run.program.module("popart"))) == {"past + 1" if most == 1 else "cur + past": 16}


F, I = TensorProto.FLOAT, TensorProto.INT32
ROWS, CACHE = (F, ["b", "s", 8]), (F, ["b", 2, "t", 4])
CONTRIB = {
    "attention with a cache": contrib(
        "MultiHeadAttention",
        {"q": ROWS, "k": ROWS, "v": ROWS, "pk": CACHE, "pv": CACHE},
        ["q", "k", "v", "", "", "", "pk", "pv"],
        3,
        num_heads=2,
    ),
    "packed attention with a mask": contrib("Attention", {"x": ROWS, "m": (I, ["b", "s"])}, ["x", "w:8x24", "a:24", "m"], 1, num_heads=2),
    "embeddings": contrib(
        "EmbedLayerNormalization",
        {"i": (I, ["b", "s"]), "j": (I, ["b", "s"])},
        ["i", "j", "w:3x8", "p:16x8", "q:3x8", "g:8", "h:8"],
        2,
    ),
    "skip": contrib("SkipLayerNormalization", {"x": ROWS, "z": ROWS}, ["x", "z", "g:8", "h:8"], 1),
}


@pytest.mark.parametrize("name", CONTRIB)
def test_ops_of_onnxruntime_take_bounded_dimensions(name: str):
    dims, at = {"b": (1, 3), "s": (1, 6), "t": (1, 5)}, {"b": 2, "s": 4, "t": 3}
    read = [n for n in dims if any(d.dim_param == n for i in CONTRIB[name].graph.input for d in i.type.tensor_type.shape.dim)]
    compare(CONTRIB[name], {n: dims[n] for n in read}, [{n: at[n] for n in read}], level="popart")
