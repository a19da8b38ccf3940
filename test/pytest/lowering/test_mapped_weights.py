"""Large initializers stay in the model's file: they are mapped, given back when read, and packed or copied when a program is loaded."""

from __future__ import annotations

import ctypes
import os
import re
import subprocess
import sys
import weakref

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

import populus
from benchmarks.models import Graph
from populus.dialects.data import TABLE, StoredAttr
from populus.dialects.poplar.memory import ConstOp
from populus.dialects.support.diagnostics import PopulusError
from populus.dialects.support.mmap_file import Mapped, mapped
from populus.lowering.onnx.importer.read import Folder, read_tensor
from populus.lowering.onnx.importer.stripped import LARGE, stripped
from populus.runtime.session import Session


def model(path, seed=0):
    """Gather from a table, a product, an addition of a large constant."""
    g = Graph(seed)
    table = g.weight(300, 128, scale=1.0)
    rows = g.op("Gather", table, g.constant(np.arange(0, 260, 2), np.int64))
    y = g.op("Add", g.op("MatMul", g.op("Add", rows, "x"), g.weight(128, 256, scale=1.0)), g.weight(130, 256, scale=1.0))
    made = g.model("stored", y, [130, 256], inputs=[128])
    onnx.save(made, path)
    return made


X = {"x": np.linspace(-1, 1, 128, dtype="f4")}


def expected(made):
    table, indices, w, b = (numpy_helper.to_array(i) for i in made.graph.initializer)
    return ((table[indices] + X["x"]).astype("f8") @ w + b).astype("f4")


@pytest.mark.parametrize("engine", ["numpy", "native"])
def test_a_loaded_program_needs_its_file_no_more(tmp_path, engine):
    path = tmp_path / "m.onnx"
    made = model(path)
    program = populus.compile(path, tiles=4, engine=engine)
    found = program.run(X)["y"]
    np.testing.assert_allclose(found, expected(made), rtol=1e-4, atol=1e-3)
    model(path, seed=1)  # in place: the mapped pages are other numbers now
    np.testing.assert_array_equal(program.run(X)["y"], found)
    path.write_bytes(b"")
    np.testing.assert_array_equal(program.run(X)["y"], found)


@pytest.mark.parametrize("change", [lambda p: model(p, seed=1), lambda p: p.write_bytes(b""), lambda p: p.unlink()])
def test_a_file_that_changed_before_its_program_was_loaded_is_refused(tmp_path, change):
    path = tmp_path / "m.onnx"
    model(path)
    program = populus.compile(path, tiles=4)
    change(path)
    with pytest.raises(PopulusError, match=r"m.onnx: the file has changed since it was read; compile the model again"):
        program.run(X)


def test_large_tensors_are_mapped_and_small_ones_are_not(tmp_path):
    path = tmp_path / "m.onnx"
    made = model(path)
    found = stripped(path)
    assert found is not None
    for a, b in zip(made.graph.initializer, found.graph.initializer, strict=True):
        assert (a.name, a.dims, a.data_type) == (b.name, b.dims, b.data_type)
        assert b.HasField("raw_data") == (len(a.raw_data) < LARGE), a.name
        array = read_tensor(b, Folder(tmp_path))
        assert (mapped(array) is None) == b.HasField("raw_data")
        np.testing.assert_array_equal(array, numpy_helper.to_array(a))


def test_the_tensors_of_a_file_share_one_map(tmp_path):
    path = tmp_path / "m.onnx"
    model(path)
    tensors = [t for t in stripped(path).graph.initializer if not t.HasField("raw_data")]
    folder = Folder(tmp_path)
    arrays = [read_tensor(t, folder) for t in tensors]
    assert len(tensors) > 1
    assert len({mapped(array) for array in arrays}) == 1
    file = weakref.ref(mapped(arrays[0]))
    del arrays
    assert file() is None


def test_what_is_no_model_is_left_to_the_reader_that_says_why(tmp_path):
    path = tmp_path / "m.onnx"
    model(path)
    whole = path.read_bytes()
    for damaged in (whole[:-9], whole[: len(whole) // 2], b"\xff" * LARGE, b"\x0b" + whole, whole[5:]):
        path.write_bytes(damaged)
        with pytest.raises(PopulusError, match="not an ONNX model"):
            populus.compile(path)
    link = tmp_path / "link.onnx"
    model(path)
    link.symlink_to(path)
    assert stripped(link) is None
    assert populus.compile(link, tiles=4).run(X)


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_native_program_of_large_weights_takes_little_more_than_them(tmp_path):
    """64 MiB of weights in two products; neither the file nor the packed originals stay."""
    g = Graph()
    side = 2048
    y = "x"
    for _ in range(4):
        y = g.op("MatMul", y, g.constant(np.ones((side, side), np.float32) + np.arange(side, dtype=np.float32)))
    path = tmp_path / "large.onnx"
    onnx.save(g.model("large", y, [1, side]), path)
    code = f"""
import resource, numpy as np, populus
from benchmarks.models import Graph
g = Graph()
program = populus.compile(g.model("small", g.op("MatMul", "x", g.weight(64, 64)), [1, 64]), tiles=4, engine="native")
program.run({{"x": np.ones((1, 64), "f4")}})
base = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
program = populus.compile({str(path)!r}, tiles=4, engine="native")
program.run({{"x": np.ones((1, {side}), "f4")}})
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - base) / 1024)
"""
    env = {**os.environ, "POPULUS_THREADS": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=env)
    assert float(done.stdout) < 1.5 * 64


def test_the_pages_of_a_weight_go_back_when_it_is_packed(tmp_path, monkeypatch):
    g = Graph()
    weights = [g.weight(n, n + 64) for n in (256, 320, 384)]
    y = "x"
    for weight in weights:
        y = g.op("MatMul", y, weight)
    path = tmp_path / "m.onnx"
    made = g.model("pages", y, [4, 448], inputs=[4, 256])
    onnx.save(made, path)
    given, whole = [], Mapped.release_part

    def seen(file, address, bytes):
        part = np.ctypeslib.as_array((ctypes.c_uint8 * bytes).from_address(address))
        given.append(part.copy())
        whole(file, address, bytes)
        np.testing.assert_array_equal(part, given[-1])  # they come again when they are read

    monkeypatch.setattr(Mapped, "release_part", seen)
    program = populus.compile(path, tiles=4, engine="native", threads=1)
    assert not given
    _ = program.session
    assert [part.tobytes() for part in given] == [i.raw_data for i in made.graph.initializer]


def test_weights_that_a_file_gives_again_are_not_kept_beside_their_transforms(tmp_path):
    """A normalisation scales weights of a Winograd convolution, from which its transformed weights do not come back."""
    g = Graph()
    x = g.op("Conv", "x", g.weight(64, 64, 3, 3), pads=[1, 1, 1, 1])
    x = g.op("Mul", x, g.constant(np.linspace(0.5, 2, 64, dtype=np.float32).reshape(1, 64, 1, 1)))
    made = g.model("scaled", x, [1, 64, 24, 24], inputs=[1, 64, 24, 24])
    path = tmp_path / "m.onnx"
    onnx.save(made, path)
    image = {"x": np.random.default_rng(0).standard_normal((1, 64, 24, 24)).astype("f4")}
    results = []
    for model, given_again in ((path, True), (made, False)):
        program = populus.compile(model, tiles=4, engine="native", threads=1)
        constants = (op for op in program.module("poplar").walk() if isinstance(op, ConstOp) and isinstance(op.value, StoredAttr))
        [op] = [op for op in constants if op.array().size == 64 * 64 * 9]
        before = op.array().copy()
        results.append(program.run(image)["y"])
        assert [launch.kernel.key for launch in program.session._program.table.launches.values()] == ["winograd"]
        assert (not TABLE.is_here(op.value.data)) == given_again
        results.append(Session(program.module("poplar"), "native", threads=1).run(image)["y"])
        np.testing.assert_array_equal(op.array(), before)
        results.append(Session(program.module("poplar"), "native", threads=1).run(image)["y"])
    for result in results:
        np.testing.assert_array_equal(result, results[0])


@pytest.mark.parametrize("last", [np.float32(2), np.float32(3e38)])
def test_scaled_weights_are_made_when_they_are_read(tmp_path, last):
    """As long as no element becomes infinite: then the factor stays."""
    g = Graph()
    x = g.op("Conv", "x", g.weight(64, 64, 3, 3), pads=[1, 1, 1, 1])
    factor = np.linspace(0.5, 2, 64, dtype=np.float32)
    factor[-1] = last
    x = g.op("Mul", x, g.constant(factor.reshape(1, 64, 1, 1)))
    x = g.op("Mul", g.op("Add", x, g.weight(64, 1, 1)), g.constant(factor[::-1].reshape(1, 64, 1, 1)))
    made = g.model("scaled", x, [1, 64, 24, 24], inputs=[1, 64, 24, 24])
    weights = numpy_helper.to_array(made.graph.initializer[0]) * (np.float32(1000) if last > 1e38 else np.float32(1))
    made.graph.initializer[0].CopyFrom(numpy_helper.from_array(weights, made.graph.initializer[0].name))
    onnx.save(made, tmp_path / "m.onnx")
    file, memory = (populus.compile(m, tiles=4).module("poplar") for m in (tmp_path / "m.onnx", made))
    [handle] = [op.value.data for op in file.walk() if isinstance(op, ConstOp) and isinstance(op.value, StoredAttr)]
    with np.errstate(over="ignore"):
        expected = weights
        for each in (factor, factor[::-1]):
            expected = (expected * each.astype(np.float64).reshape(64, 1, 1, 1)).astype(np.float32)
    finite = bool(np.isfinite(expected).all())
    assert finite == (last < 1e38)
    assert TABLE.is_here(handle) != finite
    assert str(file) == str(memory)
    np.testing.assert_array_equal(TABLE.bytes(handle).view(np.float32).reshape(weights.shape), expected if finite else weights)


def test_a_packed_constant_is_let_go_and_comes_back_bit_for_bit():
    g = Graph()
    x = g.op("Conv", "x", g.weight(8, 3, 3, 3), pads=[1, 1, 1, 1])
    x = g.op("Conv", g.op("Relu", x), g.weight(12, 4, 3, 3), group=2, strides=[2, 2])
    x = g.op("Gemm", g.op("Flatten", g.op("Relu", x)), g.weight(50, 12 * 49), transB=1)
    model = g.model("packed", g.op("MatMul", x, g.weight(50, 70)), [1, 70], inputs=[1, 3, 16, 16])
    native = populus.compile(model, tiles=4, engine="native")
    constants = [op for op in native.module("poplar").walk() if isinstance(op, ConstOp) and isinstance(op.value, StoredAttr)]
    before = [op.array().copy() for op in constants]
    image = {"x": np.random.default_rng(0).standard_normal((1, 3, 16, 16)).astype("f4")}
    found = native.run(image)["y"]
    assert sum(not TABLE.is_here(op.value.data) for op in constants) == 4
    expected = Session(native.module("poplar"), "numpy").run(image)["y"]
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)
    for op, array in zip(constants, before, strict=True):
        np.testing.assert_array_equal(op.array(), array)
    np.testing.assert_array_equal(native.run(image)["y"], found)


def table_model(folder, rows, offset=0):
    """Looks four rows up in a table of external data: a sparse file, with some rows in it."""
    table = onnx.TensorProto(name="table", data_type=1, dims=[rows, 256], data_location=onnx.TensorProto.EXTERNAL)
    for key, value in (("location", "rows.bin"), ("offset", offset), ("length", rows * 1024)):
        table.external_data.add(key=key, value=str(value))
    with open(folder / "rows.bin", "wb") as file:
        file.truncate(offset + rows * 1024)
        for i in (0, 5, rows - 1):
            file.seek(offset + 1024 * i)
            file.write(np.arange(i, i + 256, dtype=np.float32).tobytes())
    infos = [onnx.helper.make_tensor_value_info("i", 7, [4]), onnx.helper.make_tensor_value_info("y", 1, [4, 256])]
    node = onnx.helper.make_node("Gather", ["table", "i"], ["y"], name="rows")
    graph = onnx.helper.make_graph([node], "g", infos[:1], infos[1:], [table])
    onnx.save(onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8), folder / "m.onnx")
    return folder / "m.onnx"


def resident(file):
    """Counts the bytes of a mapped file that this process has touched."""
    with open("/proc/self/smaps") as maps:
        areas = re.split(r"\n(?=[0-9a-f]+-[0-9a-f]+ )", maps.read())
    return sum(1024 * int(area.partition("Rss:")[2].split()[0]) for area in areas if str(file) in area)


@pytest.mark.skipif(not os.path.exists("/proc/self/smaps"), reason="needs /proc")
@pytest.mark.parametrize("engine", ["numpy", "native"])
def test_four_rows_of_a_large_table_are_all_that_is_read_of_it(tmp_path, engine):
    rows = 1 << 18  # 256 MiB
    path = table_model(tmp_path, rows)
    program = populus.compile(path, target="host", engine=engine)
    assert resident(tmp_path / "rows.bin") < 8 << 20
    y = program.run({"i": np.array([5, 0, rows - 1, 77])})["y"]
    assert [y[0, 3], y[1, 3], y[2, 255], y[3, 0]] == [8, 3, rows + 254, 0]
    assert 0 < resident(tmp_path / "rows.bin") < 8 << 20
    os.utime(tmp_path / "rows.bin", ns=(1, 1))
    with pytest.raises(PopulusError, match="rows.bin: the file has changed since it was read; compile the model again"):
        program.run({"i": np.array([5, 0, 1, 77])})


def low(kind):
    """A model that casts 64 KiB of elements of fewer bits than eight, or of an exponent alone, and their bytes."""
    bits = {21: 4, 22: 4, 23: 4, 24: 8, 25: 2, 26: 2}[kind]
    data = np.random.default_rng(kind).integers(1, 255, LARGE, np.uint8).tobytes()
    w = onnx.TensorProto(name="w", data_type=kind, dims=[256, LARGE // 256 * 8 // bits], raw_data=data)
    nodes = [onnx.helper.make_node("Cast", ["w"], ["f"], to=1), onnx.helper.make_node("MatMul", ["x", "f"], ["y"])]
    infos = [onnx.helper.make_tensor_value_info(name, 1, [1, n]) for name, n in (("x", 256), ("y", w.dims[1]))]
    opset = 24 if kind == 24 else 25 if kind > 24 else 23
    graph = onnx.helper.make_graph(nodes, "low", infos[:1], infos[1:], [w])
    return onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", opset)])


@pytest.mark.parametrize("kind", [21, 22, 23, 24, 25, 26])
def test_elements_of_few_bits_are_read_from_the_models_file_and_from_one_of_their_own(tmp_path, kind):
    made, inside, outside = low(kind), tmp_path / "inside.onnx", tmp_path / "outside.onnx"
    onnx.save(made, inside)
    found = stripped(inside)
    assert found is not None
    assert found.graph.initializer[0].data_location == onnx.TensorProto.EXTERNAL
    apart = onnx.ModelProto.FromString(made.SerializeToString())
    w = apart.graph.initializer[0]
    (tmp_path / "w.bin").write_bytes(bytes(64) + w.raw_data)
    w.ClearField("raw_data")
    w.data_location = onnx.TensorProto.EXTERNAL
    for key, value in (("location", "w.bin"), ("offset", "64"), ("length", str(LARGE))):
        w.external_data.add(key=key, value=value)
    outside.write_bytes(apart.SerializeToString())
    whole = numpy_helper.to_array(made.graph.initializer[0])
    for proto in (found.graph.initializer[0], w):
        array = read_tensor(proto, Folder(tmp_path))
        assert array.dtype == whole.dtype
        assert array.tobytes() == whole.tobytes()
    x = {"x": np.linspace(0, 1, 256, dtype="f4")[None]}
    programs = [populus.compile(model, tiles=2, engine="numpy") for model in (made, inside, outside)]
    first, *others = [program.run(x)["y"] for program in programs]
    assert np.isfinite(first).any()
    for other in others:
        np.testing.assert_array_equal(other, first)


def test_elements_of_few_bits_that_their_file_does_not_have_are_refused(tmp_path):
    w = onnx.TensorProto(name="w", data_type=22, dims=[3, 5], data_location=onnx.TensorProto.EXTERNAL)
    (tmp_path / "w.bin").write_bytes(bytes(7))
    w.external_data.add(key="location", value="w.bin")
    with pytest.raises(PopulusError, match="'w' needs the bytes 0 to 8 of 'w.bin', which has 7"):
        read_tensor(w, Folder(tmp_path))
    w.external_data.add(key="length", value="7")
    with pytest.raises(PopulusError, match="'w' is 15 elements of 4 bits, 8 bytes; its entry states 7 bytes at 0"):
        read_tensor(w, Folder(tmp_path))


@pytest.mark.parametrize("number", ["1_6", "\u0661", "-1", " 8", "1e1", "+8", "9" * 30])
@pytest.mark.parametrize("key", ["offset", "length"])
def test_a_place_in_external_data_is_decimal_digits(tmp_path, key, number):
    w = onnx.TensorProto(name="w", data_type=1, dims=[4], data_location=onnx.TensorProto.EXTERNAL)
    (tmp_path / "w.bin").write_bytes(bytes(64))
    for k, value in (("location", "w.bin"), (key, number)):
        w.external_data.add(key=k, value=value)
    with pytest.raises(PopulusError, match="'w' has an offset or length that is no number"):
        read_tensor(w, Folder(tmp_path))


def test_a_path_of_external_data_with_a_null_is_refused(tmp_path):
    w = onnx.TensorProto(name="w", data_type=1, dims=[4], data_location=onnx.TensorProto.EXTERNAL)
    w.external_data.add(key="location", value="w\0.bin")
    with pytest.raises(PopulusError, match="is not inside the model's folder"):
        read_tensor(w, Folder(tmp_path))
