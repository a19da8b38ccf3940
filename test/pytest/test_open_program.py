"""Programs of models with open dimensions: one for each size that arrives."""

from __future__ import annotations

import sys
from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import pytest
from onnx import TensorProto as T
from onnx import helper, load, numpy_helper, save
from xdsl.dialects.builtin import DYNAMIC_INDEX

import populus
from benchmarks.models import Graph
from populus.compare.levels import compare_levels
from populus.dialects import data
from populus.dialects.data import TABLE, blobs_of
from populus.dialects.support import constant_table
from populus.dialects.support.diagnostics import PopulusError, command_line
from populus.program import open_program
from populus.program.buckets import BUCKETS, bucket
from populus.program.open_program import OpenProgram
from populus.program.padding import Padding
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
    assert program.compilations == 3  # two buckets, and that size


def compiled_by(monkeypatch, order):
    """Gives the sizes that a program compiles for, if each is wanted in turn and three may be kept."""
    monkeypatch.setattr(open_program, "KEPT", 3)
    monkeypatch.setattr(open_program, "STALE", 12)
    made = []
    program = populus.compile(MODEL, tiles=4)
    monkeypatch.setattr(program, "specialise", lambda sizes: made.append(sizes["n"]) or SimpleNamespace())
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
    packed, pack = [], Product.fill
    monkeypatch.setattr(Product, "fill", lambda self, room, *rest: packed.append(room.nbytes) or pack(self, room, *rest))
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


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="Linux takes pages back at once, other systems when they want them")
@pytest.mark.parametrize("engine", ["numpy", "native"])
def test_programs_that_do_not_run_keep_no_memory_of_variables(engine):
    nodes = [helper.make_node("Mul", ["x", "x"], ["s"], "s"), helper.make_node("CumSum", ["s", "axis"], ["y"], "y")]
    model = made(nodes, [value("x", ["n", 1024])], [value("y", ["n", 1024])], [("axis", np.array(0, np.int64))])
    program = populus.compile(model, tiles=4, engine=engine)
    large, small = drawn(2000, 1024), drawn(2, 1024)
    expected = program.run({"x": large})["y"]
    arena = program.program_for({"x": large}).session._program._arena
    assert arena.any()
    program.run({"x": small})
    assert not arena.any()  # pages that the system took back read as zeros
    np.testing.assert_array_equal(program.run({"x": large})["y"], expected)


@pytest.mark.parametrize("size", [1, 64, 65, 1000])
def test_the_content_of_a_file_is_taken_in_by_pieces(tmp_path, monkeypatch, size):
    monkeypatch.setattr(constant_table, "PIECE", 64)
    content = np.random.default_rng(size).integers(0, 256, size).astype(np.uint8)
    content.tofile(tmp_path / "weights")
    handle = data.store(np.memmap(tmp_path / "weights", np.uint8, "r"))
    assert TABLE.is_mapped(handle)
    TABLE.take_in(handle)
    assert not TABLE.is_mapped(handle)
    (tmp_path / "weights").write_bytes(b"")
    np.testing.assert_array_equal(TABLE.bytes(handle), content)


def test_a_file_that_changes_between_two_sizes_is_refused(tmp_path):
    y = weighty(tmp_path / "m.onnx")
    program = populus.compile(tmp_path / "m.onnx", tiles=4)
    ids = np.arange(3, dtype=np.int64)
    before = program.run({"ids": ids})[y]
    (tmp_path / "m.onnx").write_bytes(b"")
    np.testing.assert_array_equal(program.run({"ids": ids})[y], before)
    with pytest.raises(PopulusError, match="the file has changed since it was read"):
        program.run({"ids": np.arange(9, dtype=np.int64)})


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
    for ask in (lambda: program.signature.random(0), lambda: program.module("popart"), program.profile):
        with pytest.raises(PopulusError, match="input 'x' .* its dimension 'n' is open; bind it with dims={'n': N}"):
            ask()
    with command_line(), pytest.raises(PopulusError, match="bind it with --dim n=N"):
        program.profile()
    assert str(program.signature) == "(x: f32[n, k], y: f32[k, y.1]) -> (z: f32[n, m])"
    assert [t.get_shape() for t in program.signature.inputs.values()] == [(DYNAMIC_INDEX, DYNAMIC_INDEX)] * 2
    sizes = {"n": 2, "k": 3, "y.1": 4}
    assert program.profile(**sizes).summary == program.sized(**sizes).profile().summary
    program.run({"x": ones(2, 3), "y": ones(3, 4)})
    last = program.program_for({"x": ones(2, 3), "y": ones(3, 4)})
    assert program.module("popart") is last.module("popart")
    assert program.profile().summary == last.profile().summary
    assert all(c.first is None for c in compare_levels(program, {"x": ones(2, 3), "y": ones(3, 4)}))
    bound = populus.compile(MODEL, dims={"n": 1, "k": 2, "y.1": 3})
    assert not isinstance(bound, OpenProgram)
    assert bound.profile().summary["fits"]


# -- buckets and ranges


def made(nodes, inputs, outputs, weights=()):
    """A model of these nodes, in opset 20. Weights: (name, array)."""
    initial = [numpy_helper.from_array(array, name) for name, array in weights]
    return helper.make_model(helper.make_graph(nodes, "g", inputs, outputs, initial), opset_imports=[helper.make_opsetid("", 20)])


def value(name, shape, element=T.FLOAT):
    return helper.make_tensor_value_info(name, element, shape)


def drawn(*shape):
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


def test_the_number_of_programs_grows_with_the_logarithm_of_the_range():
    program = populus.compile(MODEL, tiles=4)
    for n in np.random.default_rng(0).permutation(np.arange(1, 49)):
        x, y = drawn(n, 5), drawn(5, 3)
        np.testing.assert_allclose(program.run({"x": x, "y": y})["z"], x @ y, rtol=1e-4, atol=1e-5)
    assert program.sizes == "buckets"
    assert program.compilations == len([b for b in BUCKETS if b <= 48]) == 9
    assert "n, k, y.1: buckets, 9 programs" in repr(program)


def test_buckets_of_the_user_and_exact_sizes():
    for keywords, compilations in (({"buckets": [8, 20]}, 3), ({"exact": True}, 5)):
        program = populus.compile(MODEL, tiles=4, **keywords)
        for n in (5, 8, 9, 20, 21):
            x, y = drawn(n, 2), drawn(2, 2)
            np.testing.assert_allclose(program.run({"x": x, "y": y})["z"], x @ y, rtol=1e-4, atol=1e-5)
        assert program.compilations == compilations, keywords
    for wrong in ([], [0, 1], [4, 4]):
        with pytest.raises(PopulusError, match="ascending sizes of at least 1 are expected"):
            populus.compile(MODEL, buckets=wrong)


@pytest.mark.parametrize(
    ("size", "found"),
    [(0, 0), (1, 1), (2, 2), (3, (3, 4)), (5, (5, 8)), (8, (5, 8)), (300, (257, 320)), (512, (449, 512)), (1 << 40, 1 << 40)],
)
def test_the_bucket_of_a_size(size, found):
    assert bucket(size) == found


def test_lengths_up_to_512_have_18_buckets():
    assert len([b for b in BUCKETS if b <= 512]) == 18
    assert max((high - low) / low for low, high in pairwise(BUCKETS[2:])) == 1
    assert max((high - low) / low for low, high in pairwise(BUCKETS[3:])) == 0.5


def test_an_op_that_ranges_do_not_have_makes_a_program_exact():
    """Unique compares all elements with each other."""
    nodes = [helper.make_node("Unique", ["x"], ["at"], "at")]
    program = populus.compile(made(nodes, [value("x", ["n"])], [value("at", ["m"])]), tiles=4)
    for n in (9, 10, 11):
        np.testing.assert_array_equal(program.run({"x": np.arange(n, dtype=np.float32) // 2})["at"], np.arange((n + 1) // 2))
    assert program.sizes.startswith("exact: ")
    assert "Unique" in program.sizes
    assert program.compilations == 3


ROWS = made([helper.make_node("Softmax", ["x"], ["y"], "rows", axis=0)], [value("x", ["n", 3])], [value("y", ["n", 3])])


@pytest.mark.parametrize("engine", ["numpy", "native", "strict"])
def test_one_program_serves_a_range(engine):
    program = populus.compile(ROWS, dims={"n": (1, 7)}, tiles=4, engine=engine)
    assert not isinstance(program, OpenProgram)
    assert list(program.signature.inputs) == ["x"]
    for n in range(1, 8):
        e = np.exp(drawn(n, 3).astype(np.float64))
        np.testing.assert_allclose(program.run({"x": drawn(n, 3)})["y"], e / e.sum(0), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("dims", "shape", "said"),
    [
        ((2, 8), (9, 3), r"dimension 'n' is 9, above its bound 8; compile with dims={'n': \(2, 9\)}"),
        ((2, 8), (1, 3), "dimension 'n' is 1, below its least size 2"),
        ((2, 8), (4, 4), r"input 'x' has shape \[4, 4\], expected \[n, 3\]"),
        ((2, 8), (4,), r"input 'x' has shape \[4\], expected \[n, 3\]"),
    ],
)
def test_arrays_out_of_a_range_are_refused(dims, shape, said):
    with pytest.raises(PopulusError, match=said):
        populus.compile(ROWS, dims={"n": dims}, tiles=4).run({"x": drawn(*shape)})


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ((0, 0), r"dims\['n'\] is \(0, 0\); expected a least size of at least 0 and a greatest of at least 1"),
        ((-1, 4), r"dims\['n'\] is \(-1, 4\); expected"),
        ((5, 4), r"dims\['n'\] is \(5, 4\); expected"),
        (-2, r"dims\['n'\] is -2; expected at least 0"),
        ("4", r"dims\['n'\] is '4'; a size is expected, or a pair"),
        ((1, 2, 3), r"dims\['n'\] is \(1, 2, 3\); a size is expected, or a pair"),
    ],
)
def test_ranges_that_no_size_has_are_refused(entry, said):
    with pytest.raises(PopulusError, match=said):
        populus.compile(ROWS, dims={"n": entry})


def test_inputs_that_disagree_on_a_bounded_dimension_are_refused():
    program = populus.compile(MODEL, dims={"n": 2, "k": (1, 8), "y.1": 2}, tiles=4)
    with pytest.raises(PopulusError, match="dimension 'k' is 3 in input 'x' and 4 in 'y'"):
        program.run({"x": ones(2, 3), "y": ones(4, 2)})


def test_a_size_that_follows_from_others_is_checked():
    nodes = [helper.make_node("Concat", ["past", "x"], ["all"], "all", axis=0), helper.make_node("Add", ["all", "mask"], ["y"], "y")]
    inputs = [value("past", ["past"]), value("x", ["cur"]), value("mask", ["past + cur"])]
    model = made(nodes, inputs, [value("y", ["past + cur"])])
    for program in (populus.compile(model, dims={"past": (0, 9), "cur": (1, 4)}, tiles=4), populus.compile(model, tiles=4)):
        for past, cur in ((5, 2), (7, 1), (0, 3)):
            found = program.run({"past": drawn(past), "x": drawn(cur), "mask": drawn(past + cur)})["y"]
            np.testing.assert_allclose(found, np.concatenate([drawn(past), drawn(cur)]) + drawn(past + cur), rtol=1e-6)
    program = populus.compile(model, dims={"past": (0, 9), "cur": (1, 4)}, tiles=4)
    with pytest.raises(PopulusError, match=r"input 'mask' has 6 elements along '.*', which is 7 for cur = 2, past = 5"):
        program.run({"past": drawn(5), "x": drawn(2), "mask": drawn(6)})


def test_a_bound_that_does_not_fit_names_the_largest_that_does():
    tight = {"target": "gc200, tile_bytes=12000", "tiles": 1}
    with pytest.raises(PopulusError, match="'n' is bounded by 400, and the largest bound that fits is ([0-9]+)") as caught:
        populus.compile(ROWS, dims={"n": (1, 400)}, **tight)
    most = int(str(caught.value).split()[-1])
    populus.compile(ROWS, dims={"n": (1, most)}, **tight)
    with pytest.raises(PopulusError, match="the largest bound that fits"):
        populus.compile(ROWS, dims={"n": (1, most + 1)}, **tight)


def test_a_bucket_that_does_not_fit_is_served_by_exact_programs():
    program = populus.compile(ROWS, target="gc200, tile_bytes=12000", tiles=1, buckets=[2, 400])
    for n in (3, 4):
        np.testing.assert_allclose(program.run({"x": drawn(n, 3)})["y"].sum(0), np.ones(3), rtol=1e-5)
    assert program.sizes == "buckets"
    assert program.compilations == 2


def test_sizes_are_computed_once_for_runs_of_the_same_shapes(monkeypatch):
    """Sizes of a small net with three dimensions took as long as its steps."""
    program, asked = populus.compile(ROWS, tiles=4), []

    def counted(owner, name):
        old = getattr(owner, name)
        monkeypatch.setattr(owner, name, lambda self, arrays: asked.append(name) or old(self, arrays))

    counted(OpenProgram, "_sizes")
    counted(Padding, "sizes")
    for n in (5, 5, 7, 5, 7, 7):
        e = np.exp(drawn(n, 3).astype(np.float64))
        np.testing.assert_allclose(program.run({"x": drawn(n, 3)})["y"], e / e.sum(0), rtol=1e-5, atol=1e-6)
    assert asked == ["_sizes", "sizes"] * 2
    for _ in range(2):
        with pytest.raises(PopulusError, match="expected"):
            program.run({"x": drawn(5, 4)})
