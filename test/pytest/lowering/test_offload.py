"""Models that are too big for their tiles: they run by way of memory outside, or say what is too much."""

import itertools
import random
import re
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import populus
from benchmarks import more_memory
from benchmarks.models import LIGHT, randomised
from populus.dialects.poplar import CallOp, ConstOp, CopyOp, ExecuteOp, FamilyOp, StorageOp, StreamInOp
from populus.dialects.poplar.memory import storage_of
from populus.dialects.poplar.target import PRESETS
from populus.dialects.support.diagnostics import PopulusError
from populus.lowering.driver.pipeline import Pipeline
from populus.lowering.poplar.plan.pieces import width_of_steps

LAYERS, SIZE = 6, 32


def ones(seed: int, each: int) -> np.ndarray:
    """[SIZE, SIZE]: `each` elements of every row and of every column are 1 or -1, and the others are 0.

    Products of some of these are small integers, so every order of their sums gives the same bits.
    """
    rng = np.random.default_rng(seed)
    kept = (np.arange(SIZE)[:, None] + np.arange(SIZE)) % SIZE < each
    return (kept * rng.choice([-1, 1], (SIZE, SIZE)))[rng.permutation(SIZE)][:, rng.permutation(SIZE)].astype("f4")


def chain() -> onnx.ModelProto:
    """Products with constant weights, then of what all layers made, one after the other."""
    w = [numpy_helper.from_array(ones(i, 1), f"w{i}") for i in range(LAYERS)]
    nodes = [helper.make_node("MatMul", [f"x{i}", f"w{i}"], [f"x{i + 1}"], name=f"product{i}") for i in range(LAYERS)]
    back = [f"x{LAYERS}", *(f"y{i}" for i in range(LAYERS - 2)), "y"]
    nodes += [helper.make_node("MatMul", [back[i], f"x{i + 1}"], [back[i + 1]], name=f"back{i}") for i in range(LAYERS - 1)]
    info = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [SIZE, SIZE]) for n in ("x0", "y")]
    graph = helper.make_graph(nodes, "g", info[:1], info[1:], w)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def compiled(memory: int, engine: str = "numpy", **options: int):
    pipeline = Pipeline.named("inference").with_options("poplin-to-poplar", resident=0.0).with_options("poplar-offload", **options)
    return populus.compile(chain(), target=f"gc200, tile_bytes={memory}", tiles=4, engine=engine, pipeline=pipeline)


X = ones(LAYERS, 8)  # each row of the result sums up to at most 8 ** LAYERS, which f32 has exactly


@pytest.mark.parametrize("engine", ["numpy", "strict", "native"])
def test_what_waits_outside_changes_no_result(engine):
    roomy = compiled(64 * 1024, engine)
    expected = roomy.run({"x0": X})["y"]
    needed = roomy.profile().summary["liveness_bound"]
    for share in (0.98, 0.9, 0.7, 0.5):
        small = compiled(4096 + int(share * needed), engine)
        assert small.run({"x0": X})["y"].tobytes() == expected.tobytes()
        summary = small.profile().summary
        assert summary["peak_tile_bytes"] <= share * needed
        assert summary["host_bytes"] > roomy.profile().summary["host_bytes"]


def test_constants_and_variables_wait_outside_and_only_copies_reach_them():
    graph = compiled(64 * 1024, tile_bytes=8192).module("poplar")
    outside = {op for op in graph.walk() if isinstance(op, StorageOp) and op.outside is not None}
    assert {type(op).__name__ for op in outside} == {"ConstOp", "VarOp"}
    assert not any(storage_of(v) in outside for op in graph.walk() if isinstance(op, FamilyOp) for v in op.views)
    assert all(any(storage_of(v) in outside for v in op.operands) for op in graph.walk() if isinstance(op, CopyOp))


def test_a_program_that_fits_stays_as_it_is():
    kept, without = (str(compiled(n).module("poplar")) for n in (64 * 1024, 128 * 1024))
    assert "outside" not in kept
    assert kept == without.replace(str(128 * 1024), str(64 * 1024))


def test_what_does_not_fit_even_so_says_by_how_much_and_what_is_to_blame():
    with pytest.raises(PopulusError) as caught:
        compiled(6144)
    assert re.fullmatch(
        r"the model needs \d+ KiB on tile \d at step '[^']+' \+ \d+ more, \d+ KiB more than the 2 KiB of gc200; "
        r"largest: '[^']+' \d+ KiB, .*; use more of its 1,472 tiles \(in poplar-allocate\)",
        str(caught.value),
    ), caught.value


def test_a_budget_that_no_tile_has():
    with pytest.raises(PopulusError, match=r"tile_bytes = 0; a tile has at least 1"):
        compiled(65536, tile_bytes=0)


def wide(kind: str) -> onnx.ModelProto:
    """One contraction with large constant weights."""
    rng = np.random.default_rng(0)
    if kind == "matmul":
        shapes, node = ([16, 64], [64, 512], [16, 512]), helper.make_node("MatMul", ["x", "w"], ["y"], name="wide")
    else:
        shapes, node = ([4, 8, 6, 6], [96, 8, 3, 3], [4, 96, 6, 6]), helper.make_node("Conv", ["x", "w"], ["y"], name="wide", pads=[1] * 4)
    w = numpy_helper.from_array((rng.standard_normal(shapes[1]) / 8).astype("f4"), "w")
    info = [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in (("x", shapes[0]), ("y", shapes[2]))]
    graph = helper.make_graph([node], "g", info[:1], info[1:], [w])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def tall(rows: int = 512) -> onnx.ModelProto:
    """Makes a product of many rows by a small constant."""
    w = numpy_helper.from_array(np.random.default_rng(0).standard_normal((32, 32)).astype("f4"), "w")
    info = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [rows, 32]) for n in "xy"]
    graph = helper.make_graph([helper.make_node("MatMul", ["x", "w"], ["y"], name="tall")], "g", info[:1], info[1:], [w])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.mark.parametrize("rows", [512, 509])
def test_steps_over_rows_share_resident_weights_and_concatenate_without_exchange(rows: int):
    x = np.random.default_rng(1).standard_normal((rows, 32)).astype("f4")
    whole, *stepped = (
        populus.compile(tall(rows), target=f"gc200, tile_bytes={n}", tiles=4, engine=engine)
        for n, engine in ((512 * 1024, "strict"), (60 * 1024, "strict"), (60 * 1024, "numpy"))
    )
    expected = whole.run({"x": x})["y"]
    for program in stepped:
        module = program.module("poplar")
        (weights,) = (op for op in module.walk() if isinstance(op, ConstOp))
        assert weights.layout is not None and weights.layout.copies > 1
        assert sum(isinstance(op, FamilyOp) and op.codelet.data == "matmul" for op in module.walk()) > 1
        assert not any(isinstance(op, CopyOp) for op in module.walk())
        np.testing.assert_allclose(program.run({"x": x})["y"], expected, rtol=0, atol=1e-5 * np.abs(expected).max())


@pytest.mark.parametrize("kind", ["matmul", "conv"])
def test_a_contraction_that_is_too_much_at_once_runs_in_steps(kind):
    results = []
    for memory in (512 * 1024, 4096 + 24 * 1024):
        program = populus.compile(wide(kind), target=f"gc200, tile_bytes={memory}", tiles=4, engine="strict")
        shape, dtype = program.session.inputs["x"]
        results.append(program.run({"x": np.random.default_rng(1).standard_normal(shape).astype(dtype)})["y"])
        products = sum(isinstance(op, FamilyOp) and op.codelet.data == kind for op in program.module("poplar").walk())
        assert (products > 1) == (memory < 64 * 1024)
        assert program.profile().summary["fits"]
    np.testing.assert_allclose(results[1], results[0], rtol=0, atol=1e-5 * np.abs(results[0]).max())
    pipeline = Pipeline.named("inference").with_options("poplin-to-poplar", serial=False)
    with pytest.raises(PopulusError, match=r"more than the 24 KiB of gc200; largest: '"):
        populus.compile(wide(kind), target="gc200, tile_bytes=28672", tiles=4, pipeline=pipeline)


@pytest.mark.parametrize("engine", ["native", "strict"])
def test_what_waits_before_it_is_whole_is_stored_as_far_as_it_is_written(engine):
    """A product in steps over columns, between which its result waits outside. The last has fewer, so some of it is never written."""
    rng = np.random.default_rng(41)
    w = rng.standard_normal((352, 96)).astype("f4")
    nodes = [
        helper.make_node("Concat", ["a", "b"], ["ab"], axis=1),
        helper.make_node("Tanh", ["ab"], ["t"]),
        helper.make_node("Concat", ["t", "b", "b"], ["x"], axis=1),
        helper.make_node("MatMul", ["x", "w"], ["p"]),
        helper.make_node("Relu", ["p"], ["r"]),
        helper.make_node("Concat", ["r", "b"], ["y"], axis=1),
    ]
    a, b, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, [16, size]) for n, size in (("a", 64), ("b", 96), ("y", 192)))
    graph = helper.make_graph(nodes, "g", [a, b], [y], [numpy_helper.from_array(w, "w")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    given = {"a": rng.standard_normal((16, 64)).astype("f4"), "b": rng.standard_normal((16, 96)).astype("f4")}
    program = populus.compile(model, target="gc200, tile_bytes=21504", tiles=4, engine=engine, cache=False)
    assert '"p (outside)"' in str(program.module("poplar"))
    x = np.concatenate([np.tanh(np.concatenate([given["a"], given["b"]], 1)), given["b"], given["b"]], 1)
    expected = np.concatenate([np.maximum(x @ w, 0), given["b"]], 1)
    np.testing.assert_allclose(program.run(given)["y"], expected, rtol=1e-4, atol=1e-4)


def test_fast_plans_of_a_model_that_nearly_fills_the_tiles_load_nothing_from_outside():
    """Transformed weights and resident copies once took the room of others, which were then loaded in each run."""
    program = populus.compile(randomised(LIGHT / "light_vgg19.onnx"), target="bow", optimise="cycles")
    assert not [op for op in program.module("poplar").walk() if isinstance(op, StorageOp) and op.outside is not None]


ARRAY = """
from populus.dialects.poplar.machine import machine

MACHINE = machine(
    kind="mesh", name="array", tiles=1, grid=(1, 1), tile_bytes=8 << 20, clock_hz=1e9, launch_cycles=0, signal_cycles=1,
    unicast_bytes=128.0, row_bytes=128.0, column_bytes=128.0, multicast_cycles=1, issue_cycles=0, dram_size=8 << 30, dram_tile_bytes=32.0,
    dram_read_bytes=32.0, dram_write_bytes=32.0, dram_stream_bytes=32.0, dram_cycles=1, matrix_macs=1024, formats=("f32",),
    phases={"f32": 1}, sub_block=16, unpack_bytes=(1024.0, 1024.0), pack_bytes=1024.0,
)
"""


def layers(*sizes: int, rows: int) -> onnx.ModelProto:
    """Products of `rows` rows by constants of integers, each with a Relu."""
    nodes, weights, x = [], [], "x"
    for i, shape in enumerate(itertools.pairwise(sizes)):
        w = np.random.default_rng(i).integers(-1, 2, shape).astype("f4")
        weights.append(numpy_helper.from_array(w, f"w{i}"))
        nodes += [helper.make_node("MatMul", [x, f"w{i}"], [f"p{i}"], name=f"p{i}"), helper.make_node("Relu", [f"p{i}"], [f"a{i}"])]
        x = f"a{i}"
    info = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [rows, n]) for name, n in (("x", sizes[0]), (x, sizes[-1]))]
    graph = helper.make_graph(nodes, "layers", info[:1], info[1:], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def on_array(model: onnx.ModelProto, bytes: int, folder: Path, engine: str = "numpy") -> populus.Program:
    path = folder / "array.py"
    path.write_text(ARRAY)
    return populus.compile(model, target=f"array, tile_bytes={bytes}", load=[path], engine=engine, cache=False)


def loads(program: populus.Program) -> list[str]:
    """Lists the constants that copies bring from outside."""
    copies = (op for op in program.module("poplar").walk() if isinstance(op, CopyOp))
    return [source.label.data for op in copies if isinstance(source := storage_of(op.src), ConstOp)]


@pytest.mark.parametrize("sizes", [(128, 256, 512, 384), (256, 512, 384, 512), (384, 256, 384)])
def test_each_constant_that_waits_outside_is_loaded_once_for_all_steps_in_turn(sizes, tmp_path):
    model = layers(*sizes, rows=64)
    total = 4 * (sum(a * b for a, b in itertools.pairwise(sizes)) + 64 * sum(sizes))
    roomy = on_array(model, 2 * total, tmp_path)
    assert not loads(roomy)
    x = {"x": np.random.default_rng(9).integers(-2, 3, (64, sizes[0])).astype("f4")}
    expected = roomy.run(x)
    steps = 0
    for eighths in (4, 6, 7):
        small = on_array(model, eighths * total // 8, tmp_path, "strict")
        found = loads(small)
        assert found
        assert len(found) == len(set(found))
        products = [op for op in small.module("poplar").walk() if isinstance(op, FamilyOp) and op.codelet.data == "matmul"]
        steps += len(products) - len(sizes) + 1
        assert all(small.run(x)[name].tobytes() == e.tobytes() for name, e in expected.items())
    assert steps > 0


@pytest.mark.parametrize("seed", range(6))
def test_a_tile_of_more_memory_takes_no_more_cycles(seed, tmp_path):
    """By the model, for drawn layers: half of what they need, three quarters, all of it."""
    rng = random.Random(seed)
    rows, sizes = rng.choice([16, 64, 128]), [rng.choice([128, 256, 384, 512]) for _ in range(rng.randint(3, 5))]
    model = layers(*sizes, rows=rows)
    total = 4 * (sum(a * b for a, b in itertools.pairwise(sizes)) + rows * sum(sizes))
    cycles = [on_array(model, quarters * total // 4, tmp_path).profile().summary["cycles"] for quarters in (2, 3, 4, 6)]
    assert cycles == sorted(cycles, reverse=True)


@pytest.mark.parametrize("seed", [1, 8])
def test_sixteen_cores_of_more_memory_take_no_more_cycles(seed, tmp_path):
    """Pieces of weights lie on the cores that a plan cuts them over, which may be half of all."""
    rows, sizes = more_memory.drawn(seed, 4)
    (tmp_path / "array.py").write_text(more_memory.MACHINE.format(side=4))
    total = 4 * (sum(a * b for a, b in itertools.pairwise(sizes)) + rows * sum(sizes)) // 16
    model = more_memory.chain(rows, sizes)
    cycles = [more_memory.cycles_of(model, tmp_path / "array.py", eighths * total // 8) for eighths in (7, 8, 9, 10)]
    assert None not in cycles
    assert cycles == sorted(cycles, reverse=True)


def test_a_function_whose_arguments_exceed_the_tiles_is_inlined_and_the_places_stay():
    """Ten layers, which are calls of one function where its weights fit."""
    model = layers(*[64] * 61, rows=8)
    kinds, profiles = [], []
    for bytes in (1 << 20, 4096 + 40 * 1024):
        program = populus.compile(model, target=f"gc200, tile_bytes={bytes}", tiles=4)
        kinds.append(any(isinstance(op, CallOp) for op in program.module("poplar").walk()))
        profiles.append({step.place for step in program.profile().steps})
    assert kinds == [True, False]
    assert {f"p{i}" for i in range(60)} <= {name for place in profiles[1] for name in re.findall(r"p\d+", place)}


def test_training_steps_are_the_same_with_weights_outside():
    """Layers that are functions, arguments that wait outside, and updates that are streamed out from there."""
    model = chain()
    names = tuple(i.name for i in model.graph.initializer)
    passes = Pipeline.named("training").with_options("onnx-expose-weights", names=names).with_options("popart-autodiff", wrt=names)
    passes = passes.with_options("popart-loss", loss="mean_squared_error").with_options("poplin-to-poplar", resident=0.0)
    passes = passes.with_options("popart-optimize", optimizer="sgd")
    roomy = populus.compile(model, target="gc200", tiles=4, pipeline=passes)
    # Integers throughout but for the mean's factor and the rate, which are powers of two.
    shapes = {name: shape for name, (shape, _) in roomy.session.inputs.items()}
    inputs = {name: ones(i, 1 + (name == "x0")) if shape else np.float32(2**-6) for i, (name, shape) in enumerate(shapes.items())}
    expected, needed = roomy.run(inputs), roomy.profile().summary["liveness_bound"]
    for engine in ("numpy", "strict"):
        small = populus.compile(model, target=f"gc200, tile_bytes={4096 + 3 * needed // 4}", tiles=4, pipeline=passes, engine=engine)
        assert small.profile().summary["host_bytes"] > roomy.profile().summary["host_bytes"]
        found = small.run(inputs)
        assert all(found[name].tobytes() == e.tobytes() for name, e in expected.items())


def ahead(program: populus.Program) -> list[CopyOp]:
    """Lists the copies that move under the steps after them."""
    return [step.op for step in program.profile().steps if isinstance(step.op, CopyOp) and step.op.under is not None]


@pytest.mark.parametrize("sizes", [(128, 256, 512, 384), (256, 512, 384, 512), (384, 256, 384)])
def test_the_next_weights_are_loaded_while_the_present_ones_are_multiplied(sizes, tmp_path):
    model = layers(*sizes, rows=64)
    total = 4 * (sum(a * b for a, b in itertools.pairwise(sizes)) + 64 * sum(sizes))
    x = {"x": np.random.default_rng(9).integers(-2, 3, (64, sizes[0])).astype("f4")}
    expected = on_array(model, 2 * total, tmp_path).run(x)
    for eighths in (4, 6):
        programs = [on_array(model, eighths * total // 8, tmp_path, engine) for engine in ("numpy", "strict", "native")]
        assert all(program.run(x)[name].tobytes() == e.tobytes() for program in programs for name, e in expected.items())
        profile = programs[0].profile()
        steps = {step.op: step for step in profile.steps}
        copies = [op for op in steps if isinstance(op, CopyOp) and op.under is not None]
        computed = {op for copy in copies for op in copy.steps_under() if isinstance(op, ExecuteOp)}
        hidden = sum(steps[copy].hidden for copy in copies)
        assert 0 < hidden <= sum(steps[op].compute - steps[op].hidden for op in computed)
        assert profile.summary["peak_tile_bytes"] <= eighths * total // 8


def test_a_machine_with_one_buffer_loads_nothing_ahead(tmp_path):
    sizes = (128, 256, 512, 384)
    total = 4 * (sum(a * b for a, b in itertools.pairwise(sizes)) + 64 * sum(sizes))
    path = tmp_path / "array.py"
    path.write_text(ARRAY.replace("sub_block=16", "sub_block=16, buffers=1"))
    program = populus.compile(layers(*sizes, rows=64), target=f"array, tile_bytes={total // 2}", load=[path], cache=False)
    assert loads(program)
    assert not ahead(program)
    assert not program.profile().summary["hidden_cycles"]


def test_loads_move_less_far_where_no_allocation_holds_what_they_bring(tmp_path):
    """All that is live at once fits, but the first addresses that are tried for loads as far up as memory is free do not."""
    sizes, rows = (512, 128, 128), 64
    total = 4 * (sum(a * b for a, b in itertools.pairwise(sizes)) + rows * sum(sizes))
    model, x = layers(*sizes, rows=rows), {"x": np.random.default_rng(9).integers(-2, 3, (rows, sizes[0])).astype("f4")}
    expected = on_array(model, 2 * total, tmp_path).run(x)
    small = on_array(model, total // 2, tmp_path, "strict")
    assert ahead(small)
    assert small.profile().summary["peak_tile_bytes"] <= total // 2
    assert all(small.run(x)[name].tobytes() == e.tobytes() for name, e in expected.items())


def test_loads_of_one_step_share_the_steps_before_it(tmp_path):
    """The later one moves to where the earlier one begins, and hides under what that leaves."""
    sizes = (384, 128, 512, 256)
    total = 4 * (sum(a * b for a, b in itertools.pairwise(sizes)) + 128 * sum(sizes))
    for eighths in range(3, 8):
        profile = on_array(layers(*sizes, rows=128), eighths * total // 8, tmp_path).profile()
        steps = {step.op: step for step in profile.steps}
        hidden = dict.fromkeys(steps, 0)
        for copy in (op for op in steps if isinstance(op, CopyOp) and op.under is not None):
            assert all(isinstance(op, ExecuteOp) or op.under is not None for op in copy.steps_under())
            hidden[copy] = steps[copy].hidden
        assert sum(hidden.values()) <= sum(s.compute - s.hidden for s in profile.steps if isinstance(s.op, ExecuteOp))


def test_weights_that_exceed_a_mesh_are_cut_so_that_computing_hides_their_loads(tmp_path):
    """In half of its bytes, a chain with as much computing as loading takes at most 5 % more cycles."""
    sizes, rows = (256, 384, 512), 128
    total = 4 * (sum(a * b for a, b in itertools.pairwise(sizes)) + rows * sum(sizes))
    roomy, small = (on_array(layers(*sizes, rows=rows), n * total // 8, tmp_path) for n in (16, 4))
    assert len(loads(small)) > len(sizes)
    assert small.profile().summary["cycles"] <= 1.05 * roomy.profile().summary["cycles"]


def test_steps_of_a_mesh_are_whole_blocks_where_as_many_remain():
    """Nine blocks in four steps would be three of three."""
    mesh, ipu = PRESETS["n150"], PRESETS["gc200"]
    assert [width_of_steps(128256, 32, machine) for machine in (mesh, ipu)] == [126 * 32, 4008]
    assert [width_of_steps(9 * 32, steps, mesh) for steps in (3, 4, 5, 9)] == [96, 72, 64, 32]


def waiting() -> onnx.ModelProto:
    """Products that widen, an input that the last step reads, and a row of what the first step joins that only the host reads."""
    shapes = list(itertools.pairwise((128, 512, 512, 128)))
    w = [numpy_helper.from_array(np.random.default_rng(i).integers(-1, 2, shape).astype("f4"), f"w{i}") for i, shape in enumerate(shapes)]
    nodes = [helper.make_node("Neg", ["row"], ["new"]), helper.make_node("Concat", ["x", "new"], ["a0"], axis=0)]
    nodes += [helper.make_node("MatMul", [f"a{i}", f"w{i}"], [f"a{i + 1}"], name=f"p{i}") for i in range(3)]
    nodes += [helper.make_node("Add", ["a3", "late"], ["y"])]
    sizes = {"x": 255, "row": 1, "late": 256, "y": 256, "new": 1}
    x, row, late, y, new = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [n, 128]) for name, n in sizes.items())
    graph = helper.make_graph(nodes, "waiting", [x, row, late], [y, new], w)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.mark.parametrize("engine", ["numpy", "strict", "native"])
def test_an_input_that_waits_goes_to_dram_at_once_and_of_a_result_what_the_host_reads(engine, tmp_path):
    """Such an input was loaded to the cores and stored, and so was all of the variable of which the result is a row."""
    shapes = {"x": (255, 128), "row": (1, 128), "late": (256, 128)}
    inputs = {name: np.random.default_rng(i).integers(-2, 3, shape).astype("f4") for i, (name, shape) in enumerate(shapes.items())}
    expected = on_array(waiting(), 8 << 20, tmp_path).run(inputs)
    small = on_array(waiting(), 1250 << 10, tmp_path, engine)
    found = small.run(inputs)
    assert list(found) == list(expected)
    assert all(found[name].tobytes() == e.tobytes() for name, e in expected.items())
    copies = [op for op in small.module("poplar").walk() if isinstance(op, CopyOp) and storage_of(op.dst).outside is not None]
    streams = [op for op in small.module("poplar").walk() if isinstance(op, StreamInOp) and storage_of(op.dst).outside is not None]
    assert [storage_of(op.dst).type.shape[0] for op in copies] == [1]
    assert [op.stream.data for op in streams] == ["late"]
