"""Random numbers follow from seed, stream and element alone, and have their distribution."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import helper, numpy_helper

import populus
from populus.runtime.engine.native.run.program import NativeProgram
from populus.runtime.poprand import draw, philox
from populus.runtime.session import Session

ONES = 0xFFFFFFFF


@pytest.mark.parametrize(
    ("counter", "key", "words"),
    [
        ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
        ((ONES,) * 4, (ONES, ONES), (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
        (
            (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
            (0xA4093822, 0x299F31D0),
            (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
        ),
    ],
    ids=["zeros", "ones", "digits of pi"],
)
def test_philox_gives_the_published_words(counter, key, words):
    """Known answers of Random123 1.14, kat_vectors, philox4x32 10."""
    c0, c1, c2, c3 = (np.array([c], np.uint32) for c in counter)
    assert tuple(int(w[0]) for w in philox((c0, c1, c2, c3), key)) == words


SEED = np.array([7, 9], np.uint32)


@pytest.mark.parametrize("distribution", ["uniform", "normal", "bernoulli"])
def test_a_part_is_a_part_of_the_whole(distribution):
    whole = draw(SEED, distribution, 0.25, 0.75, 3, 0, 1000)
    np.testing.assert_array_equal(draw(SEED, distribution, 0.25, 0.75, 3, 400, 100), whole[400:500])
    if distribution != "bernoulli":
        assert not np.array_equal(draw(SEED, distribution, 0.25, 0.75, 4, 0, 1000), whole)
        assert not np.array_equal(draw(SEED + 1, distribution, 0.25, 0.75, 3, 0, 1000), whole)


def test_uniform_numbers_are_even_and_within():
    v = draw(SEED, "uniform", -1.0, 3.0, 0, 0, 100_000)
    assert v.dtype == np.float32
    assert v.min() >= -1
    assert v.max() < 3
    counts, _ = np.histogram(v, 20, (-1, 3))
    assert np.abs(counts - 5000).max() < 5 * np.sqrt(5000)


def test_normal_numbers_have_mean_deviation_and_tails():
    v = draw(SEED, "normal", 2.0, 0.5, 0, 0, 100_000).astype(np.float64)
    assert np.isfinite(v).all()
    assert abs(v.mean() - 2) < 5 * 0.5 / np.sqrt(1e5)
    assert abs(v.std() - 0.5) < 0.01
    assert abs((np.abs(v - 2) > 1.0).mean() - 0.0455) < 0.004


def test_bernoulli_numbers_are_one_with_the_probability():
    v = draw(SEED, "bernoulli", 0.3, 0.0, 0, 0, 100_000)
    assert set(np.unique(v)) == {0, 1}
    assert abs(v.mean() - 0.3) < 5 * np.sqrt(0.21 / 1e5)
    assert draw(SEED, "bernoulli", 1.0, 0.0, 0, 0, 100).min() == 1


@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.float64])
@pytest.mark.parametrize("kind", ["RandomUniform", "RandomNormal", "Bernoulli"])
def test_machine_code_draws_the_numbers_of_numpy_in_every_type_and_layout(kind: str, dtype: type):
    to = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    p = numpy_helper.from_array(np.linspace(0, 1, 5 * 36, dtype=np.float32).reshape(5, 36), "p")
    like = kind == "Bernoulli"
    draw = helper.make_node(kind, ["p"] if like else [], ["x"], dtype=to, seed=3.0, **({} if like else {"shape": [5, 36]}))
    c = numpy_helper.from_array(np.ones((5, 3), dtype), "c")
    beside = helper.make_node("Concat", ["x", "c"], ["y"], axis=1)  # rows of x lie apart in y
    outputs = [helper.make_tensor_value_info(n, to, s) for n, s in (("x", [5, 36]), ("y", [5, 39]))]
    for wanted in (outputs[:1], outputs[1:], outputs):
        graph = helper.make_graph([draw, beside], "drawn", [], wanted, [p, c])
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)])
        module = populus.compile(model, target="host", tiles=3).module("poplar")
        native = Session(module, "native")
        assert isinstance(native._program, NativeProgram)
        assert not native._program.fallbacks
        found, expected = native.run({}), Session(module, "numpy").run({})
        for name, y in expected.items():
            assert found[name].dtype == dtype
            assert found[name].tobytes() == y.tobytes(), name
