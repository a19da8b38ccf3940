"""Sessions of PopXL: devices, compiled programs that are kept, mapped variables, drawings and messages."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from populus import popart, popxl
from populus.popxl import ops
from populus.popxl.utils import _to_device_info


def counting(data: object = 1.0) -> tuple[popxl.Ir, popxl.Variable]:
    """Gives a program that adds one to a variable."""
    ir = popxl.Ir()
    with ir.main_graph:
        x = popxl.variable(data, name="x")
        ops.var_updates.accumulate_(x, popxl.constant(np.ones(x.shape, np.float32)))
    return ir, x


def test_a_session_runs_on_a_device_of_popart():
    device = popart.DeviceManager().createIpuModelDevice({"tilesPerIPU": 4})
    ir, x = counting()
    session = popxl.Session(ir, device)
    assert session.program.options.tiles == 4
    with session:
        assert session.device is device
        assert device.isAttached
        session.run()
    assert not device.isAttached
    assert session.get_tensor_data(x) == 2


@pytest.mark.parametrize(
    ("compiled", "found", "fits"),
    [("ipu_model", "ipu_model", True), ("ipu_model", "cpu", True), ("cpu", "ipu_hw", False), ("ipu_hw", "cpu", False)],
)
def test_a_session_attaches_to_devices_that_it_was_compiled_for(compiled: str, found: str, fits: bool):
    session = popxl.Session(counting()[0], compiled, tiles=2)
    session.device = _to_device_info(found)
    if fits:
        with session:
            pass
    else:
        with pytest.raises(ValueError, match="the session was compiled for 1 of .*; it cannot be attached to 1 of"), session:
            pass


def test_a_device_of_another_size_is_refused():
    session = popxl.Session(counting()[0], "ipu_model", tiles=2)
    session.device = _to_device_info("ipu_model", 2)
    with pytest.raises(ValueError, match="compiled for 1 of IpuModel; it cannot be attached to 2 of IpuModel"), session:
        pass
    with pytest.raises(ValueError, match="no device 'ipu_modl'; did you mean 'ipu_model'"):
        popxl.Session(counting()[0], "ipu_modl")


def test_values_of_the_device_want_an_attached_session():
    session = popxl.Session(*counting()[:1], "cpu", tiles=2)
    for wrong in (session.weights_to_host, session.weights_from_host):
        with pytest.raises(ValueError, match="not attached to its device"):
            wrong()


def test_a_compiled_program_is_kept(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("POPART_LOG_LEVEL", "DEBUG")
    said: list[str] = []
    for options in ({}, {}, {"opt.enableInlining": "true"}):
        ir, x = counting()
        ir.session_options.enableEngineCaching = True
        ir.session_options.cachePath = str(tmp_path)
        ir.session_options.engineOptions = options
        with popxl.Session(ir, "ipu_model", tiles=2) as session:
            session.run()
            assert session.get_tensor_data(x) == 2
        said.append(capsys.readouterr().err)
    assert ["Starting compilation" in s for s in said] == [True, False, True]
    assert ["Loading serialized PopART executable" in s for s in said] == [False, True, False]


def test_values_go_to_the_host_when_they_are_asked_for(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("POPART_LOG_LEVEL", "DEBUG")
    ir, x = counting()
    with popxl.Session(ir, "cpu", tiles=2) as session:
        session.get_tensor_data(x)
        assert "weights to host" not in capsys.readouterr().err
        session.run()
        assert [float(session.get_tensor_data(x)) for _ in range(2)] == [2, 2]
        assert capsys.readouterr().err.count("Writing weights to host complete") == 1


def test_a_mapped_file_is_written_when_values_go_to_the_host(tmp_path: Path):
    data = np.memmap(tmp_path / "x", np.float32, "w+", shape=(3,))
    data[:] = 1
    ir, x = counting(data)
    with popxl.Session(ir, "cpu", tiles=2) as session:
        session.run()
        assert data.tolist() == [1, 1, 1]
    assert session.get_tensor_data(x) is data
    assert np.fromfile(tmp_path / "x", np.float32).tolist() == [2, 2, 2]
    ir, _ = counting(np.memmap(tmp_path / "x", np.float32, "r", shape=(3,)))
    with popxl.Session(ir, "cpu", tiles=2) as session:
        session.run()
        with pytest.raises(ValueError, match="read-only"):
            session.weights_to_host()


def test_mapped_files_that_would_be_copied_are_refused(tmp_path: Path):
    def mapped(dtype: str, order: str = "C") -> np.memmap:
        return np.memmap(tmp_path / "x", dtype, "w+", shape=(2, 2), order=order)

    with popxl.Ir().main_graph:
        with pytest.raises(ValueError, match="the `dtype` parameter is float32 too"):
            popxl.variable(mapped("float32"), popxl.float16)
        with pytest.raises(ValueError, match="it must already be in C-ordered and aligned form"):
            popxl.variable(mapped("float32", "F"))
        with pytest.raises(ValueError, match="the dtype None is not supported, as it requires downcasting to float32"):
            popxl.variable(mapped("float64"))


@pytest.mark.parametrize(
    ("checks", "files"), [("", []), ("final", ["FINAL"]), ("before:AFTER", ["after", "before"]), ("ALL", ["FINAL", "after", "before"])]
)
def test_graphs_are_drawn_at_the_checkpoints_that_are_wanted(
    tmp_path: Path, checks: str, files: list[str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("POPART_DOT_CHECKS", checks)
    ir = popxl.Ir()
    with ir.main_graph:
        x = popxl.variable(1.0, name="x")
        ir.dot_checkpoint("before", tmp_path)
        ops.call(ir.create_graph(ops.exp, x), ops.relu(x))
        ir.dot_checkpoint("after")
    popxl.Session(ir, "cpu", tiles=2)
    assert sorted(p.stem for p in tmp_path.iterdir()) == files
    if "after" in files:
        drawn = (tmp_path / "after.dot").read_text()
        assert 'g0_in0 [label="x", shape=ellipse]' in drawn
        assert 'g0_in0 -> g0_0 [label="f32"]' in drawn
        assert (drawn.count("_in0 ["), drawn.count(" -> ")) == (2, 3)  # x and the input of exp; into relu, the call and exp


def test_a_session_of_popart_runs_an_ir():
    ir = popxl.Ir()
    with ir.main_graph:
        x = popxl.variable(1.0)
        given = popxl.h2d_stream((), popxl.float32, "given")
        out = popxl.d2h_stream((), popxl.float32, "out")
        ops.host_store(out, ops.var_updates.accumulate_(x, ops.host_load(given)))
    device = popart.DeviceManager().createIpuModelDevice({"tilesPerIPU": 2})
    session = popart.InferenceSession.fromIr(ir=ir._pb_ir, deviceInfo=device)
    with pytest.raises(popart.popart_exception, match="call prepareDevice first"):
        session.initAnchorArrays()
    session.prepareDevice()
    anchors = session.initAnchorArrays()
    session.weightsFromHost()
    for expected in (4, 7):
        session.run(popart.PyStepIO({given.tensor_id: np.float32(3)}, anchors))
        assert anchors[out.tensor_id] == expected
    with pytest.raises(popart.popart_exception, match="'givn' is no stream from the host; did you mean 'given'"):
        session.run(popart.PyStepIO({"givn": np.float32(3)}, anchors))


def test_a_mapped_file_of_shards_is_written_whole(tmp_path: Path):
    data = np.memmap(tmp_path / "x", np.float32, "w+", shape=(4,))
    data[:] = np.arange(4)
    ir = popxl.Ir(replication=2)
    with ir.main_graph:
        whole, shard = popxl.replica_sharded_variable(data)
        ops.var_updates.accumulate_(shard, shard)
    with popxl.Session(ir, "ipu_model", tiles=2) as session:
        session.run()
    assert session.get_tensor_data(whole) is data
    assert np.fromfile(tmp_path / "x", np.float32).tolist() == [0, 2, 4, 6]


def test_groups_of_no_constant_distance_copy_a_mapped_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    data = np.memmap(tmp_path / "x", np.float32, "w+", shape=(2, 1))
    ir = popxl.Ir(replication=4)
    with ir.main_graph:
        x = popxl.variable(data, replica_grouping=ir.replica_grouping_from_assignments([0, 1, 1, 0]))
        ops.var_updates.accumulate_(x, popxl.constant(np.ones(1, np.float32)))
    assert "np.memmap data and a non-const replica grouping" in capsys.readouterr().err
    with popxl.Session(ir, "ipu_model", tiles=2) as session:
        session.run()
        assert session.get_tensor_data(x).tolist() == [[1], [1]]
    assert data.tolist() == [[0], [0]]


def test_replicas_are_a_device_s_machines():
    ir = popxl.Ir(replication=2)
    with ir.main_graph:
        popxl.variable(1.0)
    session = popxl.Session(ir, "ipu_model", tiles=2)
    assert session.device.numIpus == 2
    session.device = _to_device_info("ipu_model", 1)
    with pytest.raises(ValueError, match="compiled for 2 of IpuModel; it cannot be attached to 1 of IpuModel"), session:
        pass


@pytest.mark.parametrize("replicas", [1, 2])
def test_what_a_run_is_given_wrongly_is_said_in_one_line(replicas: int):
    ir = popxl.Ir(replication=replicas)
    with ir.main_graph:
        x, y = popxl.h2d_stream((2,), popxl.float32, name="x"), popxl.d2h_stream((2,), popxl.float32)
        ops.host_store(y, ops.host_load(x))
    with popxl.Session(ir, "cpu") as session:
        with pytest.raises(TypeError, match="inputs are by the streams that popxl.h2d_stream gave, and 'x' is a str"):
            session.run({"x": np.ones(2)})  # pyright: ignore[reportArgumentType]
        shape = r"\[3\]; \[2, 2\] is expected, for 2 replicas" if replicas == 2 else r"\[3\], expected \[2\]"
        with pytest.raises(popart.popart_exception, match=rf"input 'x' has shape {shape}"):
            session.run({x: np.ones(3)})
        if replicas == 2:  # as many elements as there are replicas, and no dimension of replicas
            with pytest.raises(ValueError, match=r"input 'x' has shape \[2\]; \[2, 2\] is expected, for 2 replicas"):
                session.run({x: np.ones(2)})


def test_an_argument_that_an_op_does_not_have_is_named_with_those_that_it_has():
    with popxl.Ir().main_graph:
        w = popxl.variable(np.ones((1, 1, 1, 1)))
        with pytest.raises(TypeError, match=r"conv\(\): got an unexpected keyword argument 'pads'; it is conv\(t, weight, stride, padding"):
            ops.conv(w, w, pads=(1, 1, 1, 1))  # pyright: ignore[reportCallIssue]
