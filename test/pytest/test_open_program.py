"""Programs of models with open dimensions: one for each size that arrives."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto as T
from onnx import helper, load, save

import populus
from benchmarks.models import Graph
from populus import open_program
from populus.dialects.data import blobs_of
from populus.dialects.support.diagnostics import PopulusError
from populus.open_program import OpenProgram
from populus.runtime.engine.native.kernels.contraction import Product

INFOS = [helper.make_tensor_value_info(n, T.FLOAT, d) for n, d in (("x", ["n", "k"]), ("y", ["k", None]), ("z", ["n", "m"]))]
GRAPH = helper.make_graph([helper.make_node("MatMul", ["x", "y"], ["z"], "product")], "g", INFOS[:2], INFOS[2:])
MODEL = helper.make_model(GRAPH, opset_imports=[helper.make_opsetid("", 20)])


def ones(*shape):
    return np.ones(shape, np.float32)


def test_a_program_is_compiled_for_each_size_and_kept():
    program = populus.compile(MODEL, tiles=4)
    assert isinstance(program, OpenProgram)
    for n, k, m in [(2, 3, 4), (1, 5, 2), (2, 3, 4)]:
        z = program.run({"x": ones(n, k), "y": ones(k, m)})["z"]
        np.testing.assert_array_equal(z, np.full((n, m), k))
    first = program.sized(n=2, k=3, **{"y.1": 4})
    assert program.sized(n=2, k=3, **{"y.1": 4}) is first
    assert first.signature.outputs["z"].get_shape() == (2, 4)
    assert program.compilations == 2


def compiled_by(monkeypatch, order):
    """Gives the sizes that a program compiles for, if each is wanted in turn and three may be kept."""
    monkeypatch.setattr(open_program, "KEPT", 3)
    monkeypatch.setattr(open_program, "STALE", 12)
    made = []
    program = populus.compile(MODEL, tiles=4)
    monkeypatch.setattr(program, "specialise", lambda sizes: made.append(sizes["n"]) or object())
    for n in order:
        program.sized(n=n)
    return made


def test_a_cycle_of_more_sizes_than_are_kept_finds_most_of_them(monkeypatch):
    made = compiled_by(monkeypatch, [1, 2, 3, 4] * 10)
    assert made[:4] == [1, 2, 3, 4]
    assert len(made) <= 4 + 9 * 4 // 2  # dropping the oldest would compile all 40


def test_sizes_out_of_use_make_room(monkeypatch):
    made = compiled_by(monkeypatch, [1, 2, 3] + [4, 5, 6] * 20)
    assert len(made) < 3 + 3 * 8
    assert compiled_by(monkeypatch, [1, 2] * 20 + [3, 3, 3]) == [1, 2, 3]


def weighty(path):
    """A product whose two matrices are joined, a table and a bias, in a file: about 600 KiB."""
    g = Graph()
    rows = g.op("Gather", g.weight(300, 256), "ids")
    y = g.op("Concat", g.linear(rows, 256, 128), g.linear(rows, 256, 192), axis=-1)
    ids, out = helper.make_tensor_value_info("ids", T.INT64, ["n"]), helper.make_tensor_value_info(y, T.FLOAT, ["n", 320])
    graph = helper.make_graph(g.nodes, "weighty", [ids], [out], g.initializers)
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10), path)
    return y


@pytest.mark.parametrize("stored", [True, False])
def test_programs_of_one_model_share_its_weights(tmp_path, monkeypatch, stored):
    packed, pack = [], Product._fill
    monkeypatch.setattr(Product, "_fill", lambda self, room, *rest: packed.append(room.nbytes) or pack(self, room, *rest))
    y = weighty(tmp_path / "m.onnx")
    program = populus.compile(tmp_path / "m.onnx" if stored else load(tmp_path / "m.onnx"), tiles=4, engine="native")
    results, arrays = {}, set()
    for n in (3, 40, 7):
        ids = np.arange(n, dtype=np.int64) * 7 % 300
        results[n] = program.run({"ids": ids})[y]
        np.testing.assert_array_equal(results[n], program.sized(n=n).run({"ids": ids})[y])
        blobs = blobs_of(program.sized(n=n).module("poplar"))
        arrays.add(tuple(sorted(map(id, blobs.values()))))
    assert sum(packed) == 256 * 320 * 4, "each matrix is packed once, for all sizes"
    assert len(arrays) == 1
    alone = populus.compile(tmp_path / "m.onnx", dims={"n": 7}, tiles=4, engine="native")
    np.testing.assert_array_equal(alone.run({"ids": np.arange(7, dtype=np.int64) * 7 % 300})[y], results[7])


def test_a_file_that_changes_between_two_sizes_is_refused(tmp_path):
    y = weighty(tmp_path / "m.onnx")
    program = populus.compile(tmp_path / "m.onnx", tiles=4)
    ids = np.arange(3, dtype=np.int64)
    before = program.run({"ids": ids})[y]
    (tmp_path / "m.onnx").write_bytes(b"")
    np.testing.assert_array_equal(program.run({"ids": ids})[y], before)
    with pytest.raises(PopulusError, match="the file has changed since it was read"):
        program.run({"ids": np.arange(4, dtype=np.int64)})


@pytest.mark.parametrize(
    ("inputs", "said"),
    [
        ({"x": ones(2, 3)}, "input 'y' is missing"),
        ({"x": ones(2, 3), "y": ones(4, 4)}, "dimension 'k' is 3 in input 'x' and 4 in 'y'"),
        ({"x": ones(2), "y": ones(4, 4)}, r"input 'x' has shape \[2\]; the model states a dimension 'k' at 1"),
        ({"x": ones(2, 3).astype(np.float64), "y": ones(3, 4)}, "input 'x' is float64, expected float32"),
        ({"x": ones(2, 3), "y": ones(3, 4), "w": ones(1)}, "the model has no input 'w'"),
    ],
)
def test_inputs_that_do_not_fit_are_refused_and_the_program_stays_usable(inputs, said):
    program = populus.compile(MODEL, tiles=4)
    with pytest.raises(PopulusError, match=said):
        program.run(inputs)
    assert program.run({"x": ones(1, 1), "y": ones(1, 1)})["z"] == 1


def test_what_is_of_one_program_says_which_dimension_to_bind():
    program = populus.compile(MODEL)
    for ask in (lambda: program.signature, lambda: program.module("popart"), program.profile):
        with pytest.raises(PopulusError, match="input 'x' .* its dimension 'n' is open; bind it with --dim n=N"):
            ask()
    bound = populus.compile(MODEL, dims={"n": 1, "k": 2, "y.1": 3})
    assert not isinstance(bound, OpenProgram)
    assert bound.profile().summary["fits"]
