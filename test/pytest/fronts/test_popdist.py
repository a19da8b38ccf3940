"""`populus poprun` and `popdist`: instances of a PopXL program, each with the inputs and results of its own replicas."""

import json
import os
import socket
import subprocess
import sys

import pytest

from helpers.ranks import needs_mpi
from populus import popart, popdist, popxl
from populus.dialects.support.diagnostics import PopulusError
from populus.popdist.popart import configureSessionOptions

PROGRAM = """
import json
import numpy as np
import popdist
import popxl
import popxl.ops as ops

ir = popxl.Ir(replication="popdist")
ir.num_host_transfers = 1
with ir.main_graph:
    groups = ir.replica_grouping(stride=2, group_size=2)
    w = popxl.variable(np.arange(8, dtype=np.float32).reshape(2, 4), name="w", replica_grouping=groups)
    stream = popxl.h2d_stream((4,), popxl.float32, name="x")
    x = ops.host_load(stream, "x")
    ops.add_(w, ops.collectives.replicated_all_reduce(x, group=groups))
    out = popxl.d2h_stream((4,), popxl.float32, name="y")
    ops.host_store(out, w + x)
local, first = popdist.getNumLocalReplicas(), popdist.getReplicaIndexOffset()
assert (ir.replication_factor, ir.instance_replication_factor) == (popdist.getNumTotalReplicas(), local)
assert ir._pb_ir.getSessionOptions().globalReplicaOffset == first
mine = np.arange(16, dtype=np.float32).reshape(4, 4)[first : first + local]
with popxl.Session(ir, "ipu_model", tiles=2) as session:
    given = {stream: mine if local > 1 else mine[0]}
    assert session.create_host_outputs()[out].shape == given[stream].shape
    rows = session.run(given)[out]
popdist.synchronize("the end")
print(json.dumps([first, rows.reshape(-1, 4).tolist(), session.get_tensor_data(w).tolist()]))
"""


def poprun(*arguments: object) -> list[str]:
    """Gives the lines that a command prints."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "populus", "poprun", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.fixture
def program(tmp_path):
    path = tmp_path / "train.py"
    path.write_text(PROGRAM)
    return path


def results(lines: list[str]) -> tuple[list[list[float]], list[list[float]]]:
    """Gives the rows of all replicas, in their order, and the weights, which all instances read alike."""
    found = sorted(map(json.loads, lines))
    assert all(weights == found[0][2] for _, _, weights in found)
    return [row for _, rows, _ in found for row in rows], found[0][2]


def expected() -> tuple[list[list[float]], list[list[float]]]:
    """Computes what four replicas in two groups of every second one have."""
    x = [[4.0 * k + i for i in range(4)] for k in range(4)]
    w = [[4.0 * g + i + x[g][i] + x[g + 2][i] for i in range(4)] for g in range(2)]
    return [[w[k % 2][i] + x[k][i] for i in range(4)] for k in range(4)], w


def test_one_instance_has_all_replicas(program):
    assert results(poprun("--num-replicas", 4, "python", program)) == expected()


@needs_mpi
def test_instances_have_the_results_of_one_for_their_own_replicas(program):
    """Two replicas in each of two instances, of which one alone prints where that is asked."""
    places = ("--ipus-per-replica", 1, "--vipu-partition=p", "--mpi-local-args=-x TMPDIR -x PATH", "-vv")
    assert results(poprun("--num-replicas", 4, "--num-instances", 2, *places, "python3", program)) == expected()
    (line,) = poprun("--num-replicas=4", "--num-instances=2", "--only-output-from-instance=1", sys.executable, program)
    assert json.loads(line)[:2] == [2, expected()[0][2:]]


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="sockets of packets that pass between processes are those of Linux")
def test_each_line_of_an_instance_is_one_write_without_python_s_buffer_too(tmp_path):
    """A launcher puts the pieces of its processes together as they come; a socket of packets keeps them apart."""
    path = tmp_path / "a.py"
    path.write_text("import sys\nprint('a', 1, flush=True)\nprint('b', 2)\nprint('c', 3, file=sys.stderr)\n")
    near, far = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    environment = {**os.environ, "PYTHONUNBUFFERED": "1", "PMI_SIZE": "2", "PMI_RANK": "0"}
    with near, far:
        command = [sys.executable, "-m", "populus", "run-program", path]
        subprocess.run(command, stdout=far, stderr=far, timeout=60, env=environment, check=True)
        assert [near.recv(100) for _ in range(3)] == [b"a 1\n", b"b 2\n", b"c 3\n"]


def test_without_poprun_a_program_is_alone(monkeypatch):
    monkeypatch.delenv(popdist.TOTAL, raising=False)
    assert not popdist.isPopdistEnvSet() and not popdist.isBackendInitialized()
    assert (popdist.getNumInstances(), popdist.getInstanceIndex(), popdist.getReplicaIndexOffset()) == (1, 0, 0)
    assert popxl.Ir(replication="popdist").replication_factor == 1
    assert popdist.execute_on_instances({0}, max, 1, 2) == 2 and popdist.execute_on_instances({1}, max, 1, 2) is None
    monkeypatch.setenv(popdist.TOTAL, "4")
    ir = popxl.Ir(replication="popdist")
    assert ir.replication_factor == ir.instance_replication_factor == popdist.getNumLocalReplicas() == 4
    options = popart.SessionOptions()
    configureSessionOptions(options)
    assert options.getGlobalReplicationFactor() == 4
    monkeypatch.setattr(popdist, "launched", lambda: (1, 2))
    with pytest.raises(PopulusError, match="2 instances; a PopART program states replicas, and runs by"):
        configureSessionOptions(options)


def test_options_of_poptorch_have_the_replicas_of_one_instance(monkeypatch):
    pytest.importorskip("populus.poptorch", reason="needs PyTorch and onnxscript, which are optional", exc_type=ImportError)
    from populus.popdist.poptorch import Options

    monkeypatch.setenv(popdist.TOTAL, "4")
    assert Options().replication_factor == 4
    monkeypatch.setattr(popdist, "launched", lambda: (1, 2))
    with pytest.raises(PopulusError, match="2 instances; a PopTorch program states replicas, and runs by"):
        Options()


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        ("--num-replicas 3 --num-instances 2 python a.py", 1, "3 replicas cannot be dealt to 2 instances in equal numbers"),
        ("--num-replicas 0 python a.py", 2, "argument --num-replicas: expected a whole number from 1 on, found '0'"),
        ("--only-output-from-instance 1 python a.py", 1, "--only-output-from-instance 1: instances are 0 to 0"),
        ("--num-replicas 2", 2, "no program is given: populus poprun --num-replicas 2 --num-instances 2 python train.py"),
        ("--host a,b python a.py", 2, "unrecognized arguments: --host"),
        ("./nothing here", 1, "./nothing: no such file or directory"),
    ],
)
def test_a_mistake_is_one_line(arguments, status, message, populus):
    outcome = populus("poprun", *arguments.split())
    assert (outcome.status, outcome.err.partition(" (")[0].strip()) == (status, f"populus: {message}")
