"""Strings and images through whole programs: on tiles as handles, on the host where they are looked into."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto as T
from onnx import helper

import populus
from populus import onnx_backend
from populus.dialects.support.diagnostics import PopulusError
from populus.lowering.driver.inventory import inventory

ENGINES = ("numpy", "strict", "native")


def model(nodes, inputs, outputs, initializers=(), opset=20, ml=4):
    graph = helper.make_graph(nodes, "g", inputs, outputs, list(initializers))
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset), helper.make_opsetid("ai.onnx.ml", ml)], ir_version=9)


def strings(name, *shape):
    return helper.make_tensor_value_info(name, T.STRING, list(shape))


def text(name, values, shape=None):
    return helper.make_tensor(name, T.STRING, shape or [len(values)], [v.encode() for v in values])


def objects(values):
    return np.array(values, object)


MIXED = model(
    [
        helper.make_node("StringConcat", ["x", "suffix"], ["joined"], "join"),
        helper.make_node("Concat", ["x", "joined"], ["all"], axis=0),
        helper.make_node("Equal", ["joined", "x"], ["same"]),
        helper.make_node(
            "LabelEncoder", ["all"], ["n"], domain="ai.onnx.ml", keys_strings=["a", "b!"], values_int64s=[7, 9], default_int64=-1
        ),
        helper.make_node("LabelEncoder", ["n"], ["word"], domain="ai.onnx.ml", keys_int64s=[7, 9], values_strings=["seven", "nine"]),
    ],
    [strings("x", 3)],
    [
        strings("all", 6),
        helper.make_tensor_value_info("same", T.BOOL, [3]),
        helper.make_tensor_value_info("n", T.INT64, [6]),
        strings("word", 6),
    ],
    [text("suffix", ["", "!", "ü"])],
)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("tiles", [1, 16])
def test_strings_come_and_go_and_every_engine_and_level_agrees(engine, tiles):
    program = populus.compile(MIXED, engine=engine, tiles=tiles)
    x = objects(["a", "b", "a"])
    for level in ("popart", "popops", "poplar"):
        found = program.run_at(level, {"x": x})
        assert found["all"].tolist() == ["a", "b", "a", "a", "b!", "aü"]
        assert found["same"].tolist() == [True, False, False]
        assert found["n"].tolist() == [7, -1, 7, 7, 9, -1]
        assert found["word"].tolist() == ["seven", "_Unused", "seven", "seven", "nine", "_Unused"]
    assert program.run({"x": np.array(["", "", "q"])})["all"].tolist() == ["", "", "q", "", "!", "qü"]


def test_what_the_host_does_is_listed_and_refused_without_it():
    program = populus.compile(MIXED)
    assert program.host_calls == [
        "text.concat of 'join'", "strings of input 'x'", "strings of output 'all'", "strings of output 'word'",
    ]  # fmt: skip
    with pytest.raises(
        PopulusError, match=r"the model needs the host, which host=False forbids: text.concat of 'join', strings of .* and 1 more"
    ):
        populus.compile(MIXED, host=False)

    class Alone(onnx_backend.Backend):
        host = False

    with pytest.raises(onnx_backend.UnsupportedError, match="the model needs the host, which host=False forbids"):
        Alone.run_model(MIXED, [objects(["a", "b", "c"])])
    assert [(r.op_type, r.status, r.reason) for r in inventory(MIXED)] == [
        ("StringConcat", "host", "text.concat"),
        ("Concat", "tile", ""),
        ("Equal", "tile", ""),
        ("LabelEncoder", "tile", ""),
        ("LabelEncoder", "tile", ""),
    ]


def test_inputs_that_are_no_strings_are_refused_and_the_program_stays_usable():
    program = populus.compile(MIXED)
    for wrong, said in [
        (np.zeros(3), "input 'x' is float64, expected strings"),
        (objects(["a", 1, "b"]), "input 'x' has an element of int, expected strings"),
        (objects(["a"]), r"input 'x' has shape \[1\], expected \[3\]"),
    ]:
        with pytest.raises(PopulusError, match=said):
            program.run({"x": wrong})
    assert program.run({"x": objects(["a", "b", "c"])})["n"].tolist() == [7, -1, -1, 7, 9, -1]


def test_casts_go_both_ways():
    nodes = [helper.make_node("Cast", ["x"], ["s"], to=T.STRING), helper.make_node("Cast", ["s"], ["y"], to=T.FLOAT)]
    both = model(
        nodes, [helper.make_tensor_value_info("x", T.FLOAT, [5])], [strings("s", 5), helper.make_tensor_value_info("y", T.FLOAT, [5])]
    )
    x = np.array([1, 0.1, -1e-20, np.inf, np.nan], np.float32)
    found = populus.compile(both).run({"x": x})
    assert found["s"].tolist() == ["1", "0.1", "-1e-20", "INF", "NaN"]
    np.testing.assert_array_equal(found["y"], x)
    numbers = model(
        [helper.make_node("Cast", ["s"], ["y"], to=T.INT64)], [strings("s", 2)], [helper.make_tensor_value_info("y", T.INT64, [2])]
    )
    program = populus.compile(numbers)
    assert program.run({"s": objects(["9007199254740993", "-2"])})["y"].tolist() == [9007199254740993, -2]
    with pytest.raises(PopulusError, match=r"'y': the string 'two' is no number, which its cast to int64 needs"):
        program.run({"s": objects(["1", "two"])})
    assert program.run({"s": objects(["3", "1e2"])})["y"].tolist() == [3, 100]


def test_a_size_that_values_decide_is_compiled_for_them():
    split = model(
        [helper.make_node("StringSplit", ["x"], ["y", "n"], delimiter=",")],
        [strings("x", 2)],
        [strings("y", 2, None), helper.make_tensor_value_info("n", T.INT64, [2])],
    )
    prepared = onnx_backend.prepare(split)
    for given, wanted in [(["a,b", "c"], [["a", "b"], ["c", ""]]), (["", "x,,"], [["", "", ""], ["x", "", ""]])]:
        y, n = prepared.run([objects(given)])
        assert y.tolist() == wanted
        assert n.tolist() == [len(g.split(",")) for g in given]
    assert [(r.status, r.reason) for r in inventory(split)] == [("host", "text.split")]


def test_ops_that_would_order_strings_are_refused():
    unique = model([helper.make_node("Unique", ["x"], ["y"])], [strings("x", 2)], [strings("y", None)])
    with pytest.raises(PopulusError, match="Unique-11: on strings it is not supported; tiles move and compare them, and do not order them"):
        populus.compile(unique)
    assert inventory(unique)[0].status == "missing"


def test_an_image_is_decoded_and_a_broken_one_is_empty():
    image = pytest.importorskip("PIL.Image")
    import io

    pixels = np.arange(2 * 3 * 3, dtype=np.uint8).reshape(2, 3, 3)
    file = io.BytesIO()
    image.fromarray(pixels).save(file, "PNG")
    for order, wanted in [("RGB", pixels), ("BGR", pixels[..., ::-1])]:
        decode = model(
            [helper.make_node("ImageDecoder", ["x"], ["y"], pixel_format=order)],
            [helper.make_tensor_value_info("x", T.UINT8, [None])],
            [helper.make_tensor_value_info("y", T.UINT8, [None, None, 3])],
        )
        data = np.frombuffer(file.getvalue(), np.uint8)
        np.testing.assert_array_equal(onnx_backend.run_model(decode, [data])[0], wanted)
        assert onnx_backend.run_model(decode, [data[:20]])[0].shape == (0, 0, 3)
