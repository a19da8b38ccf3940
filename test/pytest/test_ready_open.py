"""Models with open dimensions are kept by buckets: another process runs those it finds without the compiler, with the same bits."""

from __future__ import annotations

import os
import subprocess
import sys
import threading

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import populus
from populus.dialects.support.diagnostics import PopulusError
from populus.lowering.onnx.importer.opened import OpenedModel
from populus.program import building, ready
from populus.program.open_program import OpenProgram
from populus.program.program import Program
from populus.program.ready import ReadyProgram
from populus.program.ready_open import ReadyOpenProgram

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="programs are kept on Linux")


def info(name, *sizes, type=TensorProto.FLOAT):
    return helper.make_tensor_value_info(name, type, sizes)


def net(slope=2.0, n="n", m="m"):
    """`y = [x; z] w`, and sums over each open axis, in which what lies behind the valid part must not count."""
    nodes = [
        helper.make_node("Concat", ["x", "z"], ["xz"], axis=0),
        helper.make_node("MatMul", ["xz", "w"], ["y"]),
        helper.make_node("Softmax", ["x"], ["s"], axis=0),
        helper.make_node("ReduceMean", ["xz", "axes"], ["mean"], keepdims=0),
        helper.make_node("ReduceMax", ["z", "axes"], ["top"], keepdims=0),
    ]
    weights = [numpy_helper.from_array(slope * np.eye(4, 3, dtype=np.float32) + 1, "w"), numpy_helper.from_array(np.array([0]), "axes")]
    outputs = [info("y", "rows", 3), info("s", n, 4), info("mean", 4), info("top", 4)]
    graph = helper.make_graph(nodes, "g", [info("x", n, 4), info("z", m, 4)], outputs, weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)


def drawn(n, m, seed=0):
    rng = np.random.default_rng([seed, n, m])
    return {"x": rng.standard_normal((n, 4), np.float32), "z": rng.standard_normal((m, 4), np.float32)}


@pytest.fixture
def path(tmp_path, monkeypatch):
    """A model's file, which counts as old; programs are kept below the same folder, as users have it."""
    monkeypatch.setattr(ready, "SETTLED", 0)
    monkeypatch.setenv("POPULUS_CACHE", str(tmp_path / "cache"))
    for name in ("POPULUS_CHECK", "POPULUS_GUARD"):
        monkeypatch.delenv(name, raising=False)
    onnx.save(net(), tmp_path / "net.onnx")
    return tmp_path / "net.onnx"


def kept(path, kind="ready"):
    ready.finish()
    return sorted((path.parent / "cache" / "populus-programs").glob(f"*.{kind}"))


def same(found, expected):
    assert list(found) == list(expected)
    for name, array in expected.items():
        assert found[name].tobytes() == array.tobytes(), name
        assert found[name].shape == array.shape


@pytest.fixture
def no_compiler(monkeypatch):
    """Makes the model's file unreadable, which whatever compiles needs."""

    def forbid():
        monkeypatch.setattr(OpenedModel, "__init__", lambda *a, **k: pytest.fail("the model is read"))

    return forbid


def test_another_process_runs_the_buckets_that_were_met_and_imports_no_compiler(path):
    first = populus.compile(path)
    y = first.run(drawn(3, 5))["y"]
    assert len(kept(path)) == len(kept(path, "open")) == 1
    given = [array.tobytes().hex() for array in drawn(3, 5).values()]
    code = (
        "import sys, populus, numpy as np\n"
        f"program = populus.compile({str(path)!r})\n"
        f"x, z = (np.frombuffer(bytes.fromhex(t), np.float32).reshape(-1, 4) for t in {given})\n"
        "y = program.run({'x': x, 'z': z})['y']\n"
        "print([m for m in ('xdsl', 'onnx', 'llvmlite', 'ml_dtypes') if m in sys.modules], y.shape, y.tobytes().hex())"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert said == f"[] (8, 3) {y.tobytes().hex()}\n"


def test_runs_of_any_sizes_have_the_bits_of_the_compiled_program_in_both_processes(path, no_compiler):
    plain, sizes = populus.compile(path, cache=False), [(3, 5), (8, 8), (3, 5), (5, 6), (4, 5), (1, 1), (7, 8), (5, 6)]
    expected = [plain.run(drawn(n, m)) for n, m in sizes]
    first = populus.compile(path)
    nans = {name: np.full_like(array, np.nan) for name, array in drawn(8, 8).items()}
    for (n, m), wanted in zip(sizes, expected):
        first.run(nans)  # leaves NaNs where the next run's inputs end
        same(first.run(drawn(n, m)), wanted)
    assert len(kept(path)) == 3
    no_compiler()
    second = populus.compile(path)
    for (n, m), wanted in zip(sizes, expected):
        same(second.run(drawn(n, m)), wanted)
        same(second(drawn(n, m)), wanted)


@pytest.mark.parametrize(("n", "m"), [("batch-size", "batch"), ("two words", "2d")])
def test_names_of_dimensions_are_not_read_as_sums(path, n, m):
    onnx.save(net(n=n, m=m), path)
    names, expected = {"x": {0: n}, "z": {0: m}}, populus.compile(net()).run(drawn(3, 5))
    for options in ({"cache": False}, {"dims": {n: (1, 4), m: (2, 8)}}, {"dims": {n: (1, 4), m: (2, 8)}}):
        program = populus.compile(path, **options)
        same(program.run(drawn(3, 5)), expected)
        assert {name: {0: found[0]} for name, found in program.names.items()} == names
        ready.finish()
    with pytest.raises(PopulusError, match=f"dimension '{n}' is 5, above its bound 4"):
        program.run(drawn(5, 5))


def test_a_range_is_kept_as_one_program_and_refuses_what_is_outside(path, no_compiler):
    options = {"dims": {"n": (2, 6), "m": 3}}
    expected = [populus.compile(path, cache=False, **options).run(drawn(n, 3)) for n in (2, 6, 4)]
    program = populus.compile(path, **options)
    for _ in range(2):
        assert type(program) is ReadyProgram
        for n, wanted in zip((2, 6, 4), expected):
            same(program.run(drawn(n, 3)), wanted)
        assert str(program.signature) == str(populus.compile(path, cache=False, **options).signature)
        assert program.signature.padding == populus.compile(path, cache=False, **options).signature.padding
        ready.finish()
        program = populus.compile(path, **options)
    for n, m, message in ((7, 3, "dimension 'n' is 7, above its bound 6"), (1, 3, "below its least size 2"), (3, 4, r"expected \[3, 4\]")):
        with pytest.raises(PopulusError, match=message):
            program.run(drawn(n, m))
    same(program.run(drawn(2, 3)), expected[0])
    assert len(kept(path)) == 1
    no_compiler()
    same(populus.compile(path, **options).run(drawn(6, 3)), expected[1])


def test_it_is_an_open_program_which_reads_the_model_for_what_only_compiling_gives(path):
    populus.compile(path).run(drawn(3, 5))
    kept(path)
    program = populus.compile(path)
    assert type(program) is ReadyOpenProgram
    assert isinstance(program, OpenProgram)
    program.run(drawn(3, 5))
    assert program._full is None
    plain = populus.compile(path, cache=False)
    plain.run(drawn(3, 5))
    assert program.profile().summary == plain.profile().summary  # of the program that ran last, in this process too
    assert str(program.signature) == str(plain.signature)
    assert program.sized(n=1, m=2).signature.outputs["y"].get_shape() == (3, 3)


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ({"x": drawn(2, 2)["x"]}, "input 'z' is missing"),
        ({**drawn(2, 2), "w": 1}, "no input 'w'"),
        ({"x": drawn(2, 2)["x"][:, :3], "z": drawn(2, 2)["z"]}, "has shape"),
        ({"x": drawn(2, 2)["x"][0], "z": drawn(2, 2)["z"]}, "has shape"),
        ({"x": drawn(2, 2)["x"].astype(np.float64), "z": drawn(2, 2)["z"]}, "input 'x' is float64, expected float32"),
    ],
)
def test_a_mistake_has_the_message_of_the_compiled_program(path, inputs, message):
    for _ in range(2):
        program = populus.compile(path)
        before = program.run(drawn(2, 2))
        with pytest.raises(PopulusError, match=message):
            program.run(inputs)
        same(program.run(drawn(2, 2)), before)
        ready.finish()


def test_sizes_that_a_bucket_needs_equal_are_compiled_exactly(path):
    sides = [info("x", "n", 4), info("z", "m", 4)], [info("y", "k", 4)]
    graph = helper.make_graph([helper.make_node("Add", ["x", "z"], ["y"])], "g", *sides)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8), path)
    for _ in range(2):
        program = populus.compile(path)
        for n, m in ((5, 5), (7, 7), (6, 6)):
            given = drawn(n, m)
            np.testing.assert_array_equal(program.run(given)["y"], given["x"] + given["z"])
        with pytest.raises(PopulusError):
            program.run(drawn(5, 6))
        ready.finish()


def test_a_changed_file_is_read_anew_and_never_beside_programs_of_the_old_one(path):
    populus.compile(path).run(drawn(3, 5))
    kept(path)
    program = populus.compile(path)
    onnx.save(net(-1.0), path)
    with pytest.raises(PopulusError, match="the file has changed since it was read"):
        program.run(drawn(60, 5))  # a bucket that was not met
    same(populus.compile(path).run(drawn(3, 5)), populus.compile(path, cache=False).run(drawn(3, 5)))


def test_other_options_and_exact_sizes_have_other_programs(path, monkeypatch):
    populus.compile(path, exact=True).run(drawn(3, 5))
    populus.compile(path, exact=True).run(drawn(4, 5))
    assert len(kept(path)) == 2
    populus.compile(path, buckets=[16, 64]).run(drawn(3, 5))
    populus.compile(path, buckets=[16, 64]).run(drawn(14, 16))
    assert len(kept(path)) == 3
    monkeypatch.setattr(building, "kept_as", lambda *a: pytest.fail("a program is compiled"))
    populus.compile(path, exact=True).run(drawn(3, 5))
    populus.compile(path, buckets=[16, 64]).run(drawn(9, 2))


def test_by_default_the_programs_of_a_model_take_no_more_than_one_may(path, monkeypatch):
    made, keep = [], building.kept_as
    monkeypatch.setattr(building, "kept_as", lambda *given: made.append(1) or keep(*given))
    populus.compile(path).run(drawn(3, 5))
    monkeypatch.setattr(building, "MOST", sum(file.stat().st_size for kind in ("bin", "code", "ready") for file in kept(path, kind)))
    program, plain = populus.compile(path), populus.compile(path, cache=False)
    for _ in range(3):
        same(program.run(drawn(30, 40)), plain.run(drawn(30, 40)))
    assert (len(kept(path)), len(made)) == (1, 2)  # what is not kept is tried once
    populus.compile(path, cache=True).run(drawn(30, 40))
    assert len(kept(path)) == 2


@pytest.mark.parametrize("kind", ["open", "ready", "code", "bin"])
def test_a_damaged_part_of_it_is_compiled_again(path, kind):
    expected = populus.compile(path).run(drawn(3, 5))
    (file,) = kept(path, kind)
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)
    program = populus.compile(path)
    same(program.run(drawn(3, 5)), expected)
    assert isinstance(program, Program)
    kept(path)
    again = populus.compile(path)
    again.run(drawn(3, 5))
    assert again._full is None


def test_a_forgotten_size_gives_its_memory_back(path):
    program = populus.compile(path)
    program.run(drawn(30, 40))
    (large,) = program._programs.values()
    memory = large._built._built._memory
    assert memory[:].strip(b"\0")
    program.run(drawn(1, 1))
    assert not memory[:].strip(b"\0")
    assert large._built._buffers == []


def test_threads_that_need_the_same_size_compile_it_once(path):
    program, found = populus.compile(path), []
    expected = populus.compile(path, cache=False).run(drawn(3, 5))
    threads = [threading.Thread(target=lambda: found.append(program.run(drawn(3, 5)))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert program._full.compilations == 1
    for outputs in found:
        same(outputs, expected)


def test_no_more_programs_stay_loaded_than_of_a_model_that_is_not_kept(path, monkeypatch):
    monkeypatch.setattr("populus.program.ready_open.MOST", 2)
    program = populus.compile(path)
    expected = {n: populus.compile(path, cache=False).run(drawn(n, 2)) for n in (1, 2, 3)}
    for n in (1, 2, 3, 1, 3, 2):
        same(program.run(drawn(n, 2)), expected[n])
        ready.finish()
        assert len(program._programs) <= 2
    assert program._full.compilations == 3
    assert len(os.listdir(path.parent / "cache" / "populus-programs")) == 3 * 3 + 1
