"""Training by replicas: equal to one replica, whole or cut, in one process or by ranks; resumed by another number; refused in one line."""

import json
from pathlib import Path

import numpy as np
import onnx
import pytest

import populus
from helpers.ranks import mpiexec, needs_mpi
from helpers.replica_training import BATCH, data, digest, net, trained
from populus.dialects.support.diagnostics import PopulusError
from populus.program.replicas import Place
from populus.program.shares import Shares
from populus.training import checkpoint
from populus.training.session import NotFinite

PROGRAM = Path(__file__).parents[1] / "helpers/replica_training.py"

CASES = [
    ({"optimizer": "adam"}, (2, 4, 8), ("states", "weights")),
    ({"optimizer": "sgd", "loss_scale": 1024.0}, (2,), ("weights",)),
    ({"optimizer": "momentum", "clip_norm": 0.05, "clip_value": 0.01}, (4,), ("states",)),
    ({"optimizer": "adam", "accumulate": 2}, (4,), ("states",)),
    ({"optimizer": "adam", "norm": True, "synchronise_statistics": True}, (4,), ()),
]


@pytest.mark.parametrize(("options", "counts", "shards"), CASES, ids=[",".join(map(str, o.values())) for o, _, _ in CASES])
def test_replicas_train_as_one_with_the_whole_batch(options, counts, shards):
    one = trained(**options)
    several = [trained(replicas=count, **options) for count in counts]
    for count, session in zip(counts, several):
        for name, array in one.weights.items():
            np.testing.assert_allclose(session.weights[name], array, rtol=0, atol=1e-6, err_msg=f"{name} of {count} replicas")
    for shard in shards:
        cut = trained(replicas=counts[-1], shard=shard, **options)
        assert digest(cut) == digest(several[-1])


def test_own_statistics_of_replicas_are_those_of_accumulated_batches():
    parts = trained(norm=True, batch=BATCH // 4, accumulate=4, steps=5)
    several = trained(norm=True, replicas=4, steps=5)
    for name in ("w0", "w1", "scale", "shift"):
        np.testing.assert_allclose(several.weights[name], parts.weights[name], rtol=0, atol=1e-6)
    one = trained(norm=True, steps=1)
    first = trained(norm=True, replicas=4, steps=1)
    np.testing.assert_allclose(first.weights["mean"], one.weights["mean"], atol=1e-6)  # the mean of their means is that of all


def test_a_part_of_the_optimizer_is_what_a_replica_holds():
    session = trained(replicas=4, shard="weights", steps=1)
    whole = sum(a.nbytes for a in session.state.values())
    counts = 2 * sum(a.nbytes for a in session.state.values() if a.ndim == 0)
    assert session._states.bytes <= whole / 4 + counts
    assert session._weights.bytes <= sum(a.nbytes for a in session.weights.values()) / 4 + 3 * 3 * 4  # zeros after the end of each


def test_rows_of_an_embedding_are_gathered():
    from onnx import TensorProto, helper, numpy_helper

    table = np.random.default_rng(0).normal(size=(6, 3)).astype(np.float32)
    graph = helper.make_graph(
        [helper.make_node("Gather", ["table", "i"], ["y"])],
        "rows",
        [helper.make_tensor_value_info("i", TensorProto.INT64, ["n"])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 3])],
        [numpy_helper.from_array(table, "table")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    found = []
    for count in (1, 4):
        session = populus.TrainingSession(model, optimizer="sgd", batch=8, sparse=["table"], replicas=count, target="host", tiles=2)
        session.step({"i": np.array([0, 1, 1, 5, 0, 1, 4, 4])}, np.array([0, 1, 2, 0, 1, 2, 0, 0], np.int32))
        found.append(session.weights["table"])
    np.testing.assert_allclose(*found, rtol=0, atol=1e-6)
    assert not np.array_equal(found[0], table)


def test_a_loss_that_is_not_finite_names_the_op_on_several_replicas():
    session = populus.TrainingSession(net(), batch=4, replicas=2, optimizer="sgd", hyper={"lr": 3e38}, target="host", tiles=2)
    x = data()["x"][:4]
    session.step({"x": x}, np.zeros(4, np.int32))
    with pytest.raises(NotFinite, match=r"step 2: .* is the first to give"):
        session.step({"x": x}, np.zeros(4, np.int32))


def test_checkpoints_are_read_by_another_number_of_replicas(tmp_path):
    def run(folder, epochs, **options):
        session = populus.train(
            net(), data(3 * BATCH + 5), batch=BATCH, epochs=epochs, checkpoint=folder, target="host", tiles=2, engine="numpy", **options
        )
        return session

    whole = run(tmp_path / "whole", 3, replicas=4)
    run(tmp_path / "cut", 1, replicas=4, shard="weights")
    same = run(tmp_path / "cut", 3, replicas=4, shard="states")
    assert digest(same) == digest(whole)  # the same number: to the bit, however tensors were cut
    run(tmp_path / "other", 1, replicas=4)
    other = run(tmp_path / "other", 3, replicas=2)
    for name, array in whole.weights.items():
        np.testing.assert_allclose(other.weights[name], array, rtol=0, atol=1e-6)


@needs_mpi
def test_ranks_train_to_the_bits_of_one_process(tmp_path):
    options = [
        {"replicas": 4, "optimizer": "adam", "shard": "weights"},
        {"replicas": 4, "optimizer": "momentum", "clip_norm": 0.05, "accumulate": 2},
        {"replicas": 2, "norm": True, "synchronise_statistics": True, "shard": "states"},
    ]
    found = mpiexec(2, PROGRAM, *map(json.dumps, options))
    assert found.stdout.split() == [digest(trained(**o)) for o in options], found.stderr


def files(folder):
    onnx.save(net(), folder / "net.onnx")
    np.savez(folder / "a.npz", **data())
    changed = data()
    changed["x"][3, 2] += 1
    np.savez(folder / "b.npz", **changed)
    return ["-m", "populus.tools.main", "train", folder / "net.onnx", "--data"]


@needs_mpi
def test_the_command_trains_by_ranks_and_writes_once(tmp_path, populus):
    python = files(tmp_path)
    rest = ["--batch", "16", "--epochs", "2", "--validate", tmp_path / "a.npz", "--tiles", "2", "--engine", "numpy"]
    found = mpiexec(2, *python, tmp_path / "a.npz", *rest, "--shard", "--checkpoint", tmp_path / "ranks", "--export", tmp_path / "r.onnx")
    assert not found.returncode, found.stderr
    assert [line.split()[1] for line in found.stdout.splitlines() if line.startswith("epoch")] == ["1/2", "2/2"]
    assert populus(*map(str, [*python[2:], tmp_path / "a.npz", *rest, "--replicas", "2", "--checkpoint", tmp_path / "one"])).status == 0
    a, b = (checkpoint.read_newest(tmp_path / folder)[0] for folder in ("ranks", "one"))
    assert a is not None and b is not None
    assert a.validations == b.validations and all(np.array_equal(a.tensors[n], b.tensors[n]) for n in b.tensors)
    assert (tmp_path / "r.onnx").exists()


@needs_mpi
def test_a_rank_with_other_data_is_refused_before_the_first_step(tmp_path):
    python = files(tmp_path)
    (tmp_path / "main.py").write_text(
        "import os, sys\nfrom populus.tools.main import main\n"
        "sys.argv[4] = sys.argv[4].replace('a.npz', 'b.npz') if os.environ['PMI_RANK'] == '1' else sys.argv[4]\nsys.exit(main())\n"
    )
    rest = ["--batch", "16", "--tiles", "2", "--checkpoint", tmp_path / "c"]
    found = mpiexec(2, tmp_path / "main.py", *python[2:], tmp_path / "a.npz", *rest)
    assert found.returncode and not (tmp_path / "c").exists()
    assert found.stderr.splitlines() == ["populus: rank 1 has other data than rank 0; all ranks run one program on the same data"]


def test_samples_of_a_run_are_dealt_to_replicas(tmp_path, populus):
    onnx.save(net(), tmp_path / "net.onnx")
    np.savez(tmp_path / "x.npz", x=data(6)["x"])
    run = ["run", tmp_path / "net.onnx", "--inputs", tmp_path / "x.npz", "--tiles", 2, "--engine", "numpy"]
    assert populus(*run, "--outputs", tmp_path / "one.npz").status == 0
    assert populus(*run, "--outputs", tmp_path / "three.npz", "--replicas", 3).status == 0
    one, three = (np.load(tmp_path / f"{name}.npz")["y"] for name in ("one", "three"))
    np.testing.assert_allclose(three, one, rtol=0, atol=1e-6)
    found = populus(*run, "--replicas", 4)
    assert found.status == 2 and found.err.endswith("input 'x' is [6, 5]; its first dimension is not a multiple of 4 replicas\n")
    assert "leave out --replicas" in populus(*run, "--replicas", 2, "--check-levels").err


@needs_mpi
def test_programs_of_popxl_and_popart_run_by_ranks():
    fronts = PROGRAM.parents[1] / "pytest/fronts"
    chosen = "test_collectives_of_groups and gather or 2-Sum"
    rest = ["-q", "-p", "no:xdist", "-p", "no:cacheprovider", "-k", chosen]
    found = mpiexec(2, "-m", "pytest", fronts / "test_popxl_replicas.py", fronts / "test_popart_replicas.py", *rest)
    assert not found.returncode and found.stdout.count(" passed") == 2, found.stdout


@needs_mpi
def test_a_rank_that_is_killed_while_it_writes_leaves_whole_checkpoints(tmp_path, populus):
    python = files(tmp_path)
    (tmp_path / "main.py").write_text(
        "import os, sys\nfrom populus.training import checkpoint\nfrom populus.tools.main import main\n"
        "settle, count = checkpoint._sums, []\n"
        "def sums(*args):\n    count.append(0)\n    len(count) == 3 and os.kill(os.getpid(), 9)\n    return settle(*args)\n"
        "checkpoint._sums = sums\nsys.exit(main())\n"
    )
    rest = [*python[2:], tmp_path / "a.npz", "--batch", "16", "--tiles", "2", "--engine", "numpy", "--epochs", "2", "--every", "1"]
    lost = mpiexec(2, tmp_path / "main.py", *rest, "--shard", "--checkpoint", tmp_path / "c", timeout=60, left=True)
    lines = [line for line in lost.stderr.splitlines() if line.startswith("populus: ")]
    assert lost.returncode and len(lines) == 1 and lines[0].startswith("populus: rank 0 of 2 (process "), lost.stderr
    assert [checkpoint.read(path).step for path in checkpoint.files(tmp_path / "c")] == [2, 1]
    assert not mpiexec(2, *python, *rest[3:], "--checkpoint", tmp_path / "c").returncode
    assert populus(*rest, "--replicas", 2, "--checkpoint", tmp_path / "whole").status == 0
    a, b = (checkpoint.read_newest(tmp_path / folder)[0] for folder in ("c", "whole"))
    assert a.step == b.step == 8 and all(np.array_equal(a.tensors[n], b.tensors[n]) for n in b.tensors)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"batch": 15, "replicas": 2}, "batch = 15; 2 replicas have equal parts of a multiple of 2"),
        ({"replicas": 0}, "a program is run by at least 1 replica, not 0"),
        ({"shard": "state"}, "no shard 'state'; did you mean 'states'"),
        ({"shard": "weights", "accumulate": 2}, "weights are cut over replicas only without accumulated batches"),
        ({"shard": "states", "replicas": 2, "optimizer": "lamb"}, "lamb scales by the norm of a whole weight"),
    ],
)
def test_what_replicas_cannot_do_is_one_line(options, message):
    with pytest.raises(PopulusError, match=message):
        populus.TrainingSession(net(), target="host", tiles=2, **options)


def test_shares_are_equal_parts_with_zeros_after_the_end():
    shares = Shares(Place.of(4), {"w": np.arange(6.0).reshape(2, 3), "t": np.array(1.0)}, {"w": (2,), "t": ()}, {})
    assert [shares.of(k)["w"].tolist() for k in range(4)] == [[0, 1], [2, 3], [4, 5], [0, 0]]
    assert shares.whole()["w"].tolist() == [[0, 1, 2], [3, 4, 5]]
    moved = shares.taken([{"w": shares.of(k)["w"] + 1, "t": np.array(2.0)} for k in range(4)])
    assert moved.whole()["w"].tolist() == [[1, 2, 3], [4, 5, 6]] and moved.whole()["t"] == 2
