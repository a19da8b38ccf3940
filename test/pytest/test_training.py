"""Training: that it learns, goes on to the bit, says what is wrong, and loses nothing that is saved."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import populus as front
from populus.dialects.support.diagnostics import PopulusError
from populus.training import checkpoint as checkpoints
from populus.training.epochs import train
from populus.training.session import NotFinite, TrainingSession

ROOT = Path(__file__).parents[2]


def net(hidden: int = 16, batch: int | str = "n", softmax: bool = False) -> onnx.ModelProto:
    g = np.random.default_rng(0)

    def weight(name: str, *shape: int) -> onnx.TensorProto:
        return numpy_helper.from_array((g.standard_normal(shape) * np.sqrt(2 / shape[-1])).astype(np.float32), name)

    nodes = [
        helper.make_node("BatchNormalization", ["x", "scale", "shift", "mean", "variance"], ["u"], name="norm"),
        helper.make_node("Gemm", ["u", "fc1.weight", "fc1.bias"], ["h"], transB=1, name="fc1"),
        helper.make_node("Relu", ["h"], ["r"], name="relu"),
        helper.make_node("Gemm", ["r", "fc2.weight"], ["z" if softmax else "y"], transB=1, name="fc2"),
    ]
    if softmax:
        nodes.append(helper.make_node("Softmax", ["z"], ["y"], axis=1, name="softmax"))
    ones = {n: numpy_helper.from_array(np.full(6, v, np.float32), n) for n, v in (("scale", 1), ("shift", 0), ("mean", 0), ("variance", 1))}
    weights = [*ones.values(), weight("fc1.weight", hidden, 6), weight("fc1.bias", hidden), weight("fc2.weight", 3, hidden)]
    info = helper.make_tensor_value_info
    graph = helper.make_graph(nodes, "net", [info("x", TensorProto.FLOAT, [batch, 6])], [info("y", TensorProto.FLOAT, [batch, 3])], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def data(samples: int = 96) -> dict[str, np.ndarray]:
    g = np.random.default_rng(1)
    x = g.standard_normal((samples, 6)).astype(np.float32)
    return {"x": x, "labels": (x @ g.standard_normal((6, 3))).argmax(1)}


DATA = data()


def reference(steps: int, lr: float = 0.1, batch: int = 8) -> tuple[list[float], dict[str, np.ndarray]]:
    """SGD on the same net, by formulas in NumPy (f64)."""
    weights = {i.name: numpy_helper.to_array(i).astype(np.float64) for i in net().graph.initializer}
    names = ["scale", "shift", "fc1.weight", "fc1.bias", "fc2.weight"]
    order = np.random.default_rng([0, 0]).permutation(96)
    losses = []
    for step in range(steps):
        rows = order[step * batch : (step + 1) * batch]
        x, y = DATA["x"][rows].astype(np.float64), DATA["labels"][rows]
        s, t, w1, b1, w2 = (weights[n] for n in names)
        n = x / np.sqrt(1 + 1e-5)
        u = n * s + t
        h = u @ w1.T + b1
        r = np.maximum(h, 0)
        z = r @ w2.T
        p = np.exp(z - z.max(1, keepdims=True))
        p /= p.sum(1, keepdims=True)
        losses.append(-np.log(p[np.arange(batch), y]).mean())
        dz = (p - np.eye(3)[y]) / batch
        dh = (dz @ w2) * (h > 0)
        du = dh @ w1
        for name, g in zip(names, [(du * n).sum(0), du.sum(0), dh.T @ u, dh.sum(0), dz.T @ r]):
            weights[name] = weights[name] - lr * g
    return losses, weights


@pytest.mark.parametrize("softmax", [False, True])
def test_steps_of_sgd_are_those_of_the_formulas(softmax):
    session = train(net(softmax=softmax), DATA, optimizer="sgd", lr=0.1, batch=8)
    losses, weights = reference(12)
    np.testing.assert_allclose(session.losses, losses, rtol=1e-5)
    assert set(session.weights) == {"scale", "shift", "fc1.weight", "fc1.bias", "fc2.weight"}
    for name, array in session.weights.items():
        np.testing.assert_allclose(array, weights[name], rtol=1e-4, atol=1e-5)


def test_every_optimizer_learns():
    from populus.lowering.popart.optimize import OPTIMIZERS

    for optimizer in OPTIMIZERS:
        session = train(net(), DATA, optimizer=optimizer, batch=32, epochs=4, level="popops", clip_norm=5.0)
        assert np.mean(session.losses[-3:]) < np.mean(session.losses[:3]), optimizer


def test_gradients_are_clipped_to_a_norm_of_all_together():
    start = {i.name: numpy_helper.to_array(i) for i in net().graph.initializer}

    def moved(**options) -> float:
        session = train(net(), DATA, optimizer="sgd", lr=1.0, batch=96, **options)
        return float(np.sqrt(sum(((a - start[n]).astype(np.float64) ** 2).sum() for n, a in session.weights.items())))

    free = moved()
    assert moved(clip_norm=2 * free) == free
    np.testing.assert_allclose(moved(clip_norm=free / 4), free / 4, rtol=1e-4)


def test_levels_and_tiles_train_alike():
    losses = [
        train(net(), DATA, batch=32, epochs=2, **how).losses
        for how in ({"level": "popart"}, {"tiles": 3}, {"engine": "strict", "tiles": 2})
    ]
    np.testing.assert_allclose(losses[1], losses[0], rtol=1e-5)
    np.testing.assert_allclose(losses[2], losses[0], rtol=1e-5)


TWICE = {
    "numpy": [{"engine": "numpy"}, {"engine": "numpy"}],
    "native": [{"engine": "native", "threads": 1}, {"engine": "native", "threads": 2}],
}


@pytest.mark.parametrize("how", TWICE.values(), ids=TWICE)
def test_training_twice_gives_the_same_bits_on_any_number_of_threads(how):
    first, second = (train(net(64), DATA, batch=16, epochs=2, tiles=4, **options) for options in how)
    assert same(first, second)


def test_validation_counts_each_sample_once():
    held = data(50)
    session = train(net(), DATA, batch=32, epochs=1, validate=held)
    (scores,) = session.validations
    program = front.compile(net(batch=50))
    trained = net(batch=50)
    for i in trained.graph.initializer:
        if i.name in session.weights:
            i.CopyFrom(numpy_helper.from_array(session.weights[i.name], i.name))
    y = front.compile(trained).run({"x": held["x"]})["y"].astype(np.float64)
    assert program.signature.outputs.keys() == {"y"}
    p = np.exp(y) / np.exp(y).sum(1, keepdims=True)
    np.testing.assert_allclose(scores["loss"], -np.log(p[np.arange(50), held["labels"]]).mean(), rtol=1e-5)
    assert scores["accuracy"] == (y.argmax(1) == held["labels"]).mean()


def test_mean_squared_error_fits_numbers():
    target = {"x": DATA["x"], "labels": DATA["x"] @ np.random.default_rng(3).standard_normal((6, 3)).astype(np.float32)}
    session = train(net(64), target, loss="mean_squared_error", batch=32, epochs=60, lr=1e-2)
    assert session.losses[-1] < 0.05 * session.losses[0]
    assert "accuracy" not in session.evaluate(session.samples(target))


def test_only_the_parameters_that_are_named_change():
    session = train(net(), DATA, batch=32, parameters=["fc2.*"])
    assert list(session.weights) == ["fc2.weight"]


def test_the_schedule_is_a_factor_by_the_share_that_is_done():
    seen: list[float] = []
    train(net(), DATA, batch=32, epochs=2, schedule=lambda done: seen.append(done) or 1 - done)
    assert seen == [i / 6 for i in range(6)]
    still = train(net(), DATA, batch=32, schedule=lambda done: 0.0)
    assert all(np.array_equal(a, numpy_helper.to_array(i)) for i in net().graph.initializer if (a := still.weights.get(i.name)) is not None)


def test_the_exported_model_computes_with_the_trained_weights(tmp_path):
    session = train(net(), DATA, batch=32, epochs=2)
    session.export(tmp_path / "trained.onnx")
    made = onnx.load(tmp_path / "trained.onnx")
    onnx.checker.check_model(made)
    found = {i.name: numpy_helper.to_array(i) for i in made.graph.initializer}
    assert all(np.array_equal(found[n], a) for n, a in session.weights.items())
    assert found["variance"].tolist() == [1] * 6


# -- going on --------------------------------------------------------------------------------------------------------


def same(a: TrainingSession, b: TrainingSession) -> bool:
    return (
        a.losses == b.losses
        and all(np.array_equal(a.weights[n], b.weights[n]) for n in b.weights)
        and all(np.array_equal(a.state[n], b.state[n]) for n in b.state)
    )


class Stop(Exception):
    pass


@pytest.mark.parametrize("steps", [1, 4, 7])
def test_interrupted_training_goes_on_to_the_bit(tmp_path, steps):
    whole = train(net(), DATA, batch=16, epochs=2)

    def stop(p):
        if p.step + (p.epoch - 1) * p.steps == steps:
            raise Stop

    with pytest.raises(Stop):
        train(net(), DATA, batch=16, epochs=2, checkpoint=tmp_path, every=2, report=stop)
    assert same(train(net(), DATA, batch=16, epochs=2, checkpoint=tmp_path), whole)
    assert len(checkpoints.files(tmp_path)) <= checkpoints.KEPT


def test_a_killed_process_loses_nothing_that_was_saved(tmp_path):
    """Twenty times, at random moments: compiling, in a step, writing."""
    options = {"batch": 4, "epochs": 16, "level": "popops"}

    def run() -> None:
        train(net(), DATA, checkpoint=tmp_path / "run", every=1, **options)
        os._exit(0)  # what pytest would do at its end is not this process' business

    g, killed, steps = np.random.default_rng(5), 0, 0
    fork = multiprocessing.get_context("fork")
    while killed < 20:
        process = fork.Process(target=run)
        process.start()
        process.join(float(g.uniform(0.05, 0.3)))
        if process.exitcode is None:
            os.kill(process.pid, signal.SIGKILL)
            killed += 1
        process.join()
        newest, skipped = checkpoints.read_newest(tmp_path / "run")
        assert not skipped
        assert newest is None or newest.step >= steps
        steps = 0 if newest is None else newest.step
        if steps == 384:  # all are done: begin again, from another moment
            for path in checkpoints.files(tmp_path / "run"):
                path.unlink()
            steps = 0
    assert same(train(net(), DATA, checkpoint=tmp_path / "run", **options), train(net(), DATA, **options))
    assert not list((tmp_path / "run").glob("*.partial"))


def test_a_killed_command_goes_on(tmp_path):
    onnx.save(net(), tmp_path / "net.onnx")
    np.savez(tmp_path / "train.npz", **DATA)
    arguments = ["train", "net.onnx", "--data", "train.npz", "--batch", "4", "--epochs", "20", "--checkpoint", "run", "--every", "5"]
    process = subprocess.Popen(
        [sys.executable, "-m", "populus.tools.main", *arguments],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    process.stdout.readline()  # an epoch is done
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    found = train(tmp_path / "net.onnx", DATA, batch=4, epochs=20, checkpoint=tmp_path / "run")
    assert same(found, train(net(), DATA, batch=4, epochs=20))


@pytest.mark.parametrize("damage", [lambda content: content[:-10], lambda content: content[:-1] + bytes([content[-1] ^ 1])])
def test_a_damaged_checkpoint_is_passed_over_for_the_one_before(tmp_path, damage):
    whole = train(net(), DATA, batch=32, epochs=3, checkpoint=tmp_path)
    newest = checkpoints.files(tmp_path)[0]
    newest.write_bytes(damage(newest.read_bytes()))
    lines: list[str] = []
    again = train(net(), DATA, batch=32, epochs=3, checkpoint=tmp_path, warn=lines.append)
    assert same(again, whole)
    assert len(lines) == 1
    assert "a damaged checkpoint" in lines[0]
    assert "going on from the one before" in lines[0]
    for path in checkpoints.files(tmp_path):
        path.write_bytes(b"nothing")
    with pytest.raises(PopulusError, match="a damaged checkpoint.*; no other in .* can be read"):
        train(net(), DATA, batch=32, epochs=3, checkpoint=tmp_path)


@pytest.mark.parametrize("written", [0, 1000])
def test_a_disk_that_is_full_leaves_the_last_checkpoint(tmp_path, monkeypatch, written):
    """Full before anything is written, or in the middle of a file."""
    train(net(), DATA, batch=32, epochs=1, checkpoint=tmp_path)
    before = checkpoints.files(tmp_path)
    opened = Path.open

    def full(self: Path, *args: str, **kwargs: str):
        file = opened(self, *args, **kwargs)
        if self.suffix == ".partial":
            whole = file.write

            def write(content: bytes) -> int:
                whole(content[:written])
                raise OSError(28, "No space left on device")

            return _File(file, write)
        return file

    with monkeypatch.context() as patch:
        patch.setattr(Path, "open", full)
        with pytest.raises(PopulusError, match=r"step-000000006.safetensors: cannot be written: No space left on device") as caught:
            train(net(), DATA, batch=32, epochs=2, checkpoint=tmp_path)
    assert "\n" not in str(caught.value)
    assert checkpoints.files(tmp_path) == before == list(tmp_path.iterdir())
    assert same(train(net(), DATA, batch=32, epochs=2, checkpoint=tmp_path), train(net(), DATA, batch=32, epochs=2))


class _File:
    """A file of which only `write` is another."""

    def __init__(self, file, write):
        self.file, self.write = file, write

    def __enter__(self):
        return self

    def __exit__(self, *args) -> None:
        self.file.close()


def test_a_checkpoint_of_another_model_or_other_settings_is_refused(tmp_path):
    train(net(), DATA, batch=32, checkpoint=tmp_path)
    with pytest.raises(
        PopulusError, match=r"is of another model: 'weight:fc1.weight' is float32\[16, 6\], expected float32\[8, 6\], .* and \d+ more"
    ):
        train(net(8), DATA, batch=32, epochs=2, checkpoint=tmp_path)
    with pytest.raises(PopulusError, match="was made with batch 32, now it is 16"):
        train(net(), DATA, batch=16, epochs=2, checkpoint=tmp_path)
    with pytest.raises(PopulusError, match="was made with optimizer adam, now it is sgd"):
        train(net(), DATA, batch=32, epochs=2, optimizer="sgd", checkpoint=tmp_path)


def test_training_that_diverges_stops_and_says_where(tmp_path):
    line = r"step \d+: (the loss is \S+|a new weight is not finite): \S+ of '.*' is the first to give"
    with pytest.raises(NotFinite, match=line) as caught:
        train(net(), DATA, optimizer="sgd", lr=1e25, batch=32, epochs=3, checkpoint=tmp_path)
    assert "\n" not in str(caught.value)


# -- what is wrong ---------------------------------------------------------------------------------------------------


def changed(**arrays) -> dict[str, np.ndarray]:
    made = {n: a.copy() for n, a in {**DATA, **arrays}.items() if a is not None}
    return made


def with_value(name: str, at: tuple, value: float) -> dict[str, np.ndarray]:
    made = changed()
    made[name][at] = value
    return made


@pytest.mark.parametrize(
    ("arrays", "options", "message"),
    [
        (DATA, {"loss": "crossentropy"}, "no loss 'crossentropy'; did you mean 'cross_entropy'"),
        (DATA, {"optimizer": "adem"}, "no optimizer 'adem'; did you mean 'adam"),
        (DATA, {"parameters": ["fc3.*"]}, r"no parameter 'fc3.\*'"),
        (DATA, {"hyper": {"beta3": 1}}, "adam has no hyperparameter 'beta3'; did you mean 'beta"),
        (DATA, {"output": "z"}, "there is no output 'z'"),
        (DATA, {"batch": 200}, "there are 96 samples, fewer than a batch of 200"),
        (DATA, {"batch": 0}, "batch = 0; a step has at least 1 sample"),
        (DATA, {"epochs": 0}, "epochs = 0"),
        (with_value("labels", (3,), 3), {}, "the label of sample 3 is 3; there are 3 classes, 0 to 2"),
        (with_value("labels", (5,), -1), {}, "the label of sample 5 is -1"),
        (with_value("x", (7, 2), np.nan), {}, "'x' is not finite in sample 7"),
        (changed(x=DATA["x"][:, :5]), {}, r"'x' is \[96, 5\], expected \[samples, 6\]"),
        (changed(x=DATA["x"][:90]), {}, "different numbers of samples: x 90, labels 96"),
        (changed(x=DATA["labels"][:, None] + np.zeros((96, 6), np.int64)), {}, "'x' is int64, expected float32"),
        (changed(labels=DATA["x"][:, 0]), {}, "the labels 'labels' are float32; whole numbers from 0 to 2 are expected"),
        (changed(labels=DATA["x"]), {"loss": "mean_squared_error"}, r"'labels' is \[96, 6\], expected \[samples, 3\]"),
        (changed(z=DATA["x"]), {}, "the model has no input 'z'"),
        (changed(x=None, v=DATA["x"]), {}, "there is no array 'x' for the model's input"),
        (changed(labels=None), {}, "there are no labels; its arrays are x"),
    ],
)
def test_mistakes_are_one_line(arrays, options, message):
    with pytest.raises(PopulusError, match=message) as caught:
        train(net(), arrays, **options)
    assert "\n" not in str(caught.value)


def test_a_fixed_batch_is_the_default_and_another_is_refused():
    assert train(net(batch=24), DATA).batch == 24
    with pytest.raises(PopulusError, match=r"'x' is tensor<24x6xf32>, whose first dimension is not the batch of 8"):
        train(net(batch=24), DATA, batch=8)


def test_the_command_trains_validates_and_exports(populus, tmp_path):
    onnx.save(net(), tmp_path / "net.onnx")
    np.savez(tmp_path / "train.npz", **DATA)
    common = [tmp_path / "net.onnx", "--data", tmp_path / "train.npz", "--batch", 32]
    more = ["--validate", tmp_path / "train.npz", "--checkpoint", tmp_path / "run", "--history", tmp_path / "h.csv", "--schedule", "cosine"]
    done = populus("train", *common, *more, "--epochs", 2, "--export", tmp_path / "t.onnx", "--hyper", "weight_decay=0.1")
    assert (done.status, done.err) == (0, "")
    lines = done.out.splitlines()
    assert lines[0].startswith("epoch 1/2  loss ") and " samples/s  validation:  loss " in lines[0] and "accuracy" in lines[0]
    assert len((tmp_path / "h.csv").read_text().splitlines()) == 7
    assert (tmp_path / "t.onnx").is_file()
    again = populus("train", *common, "--checkpoint", tmp_path / "run", "--epochs", 2)
    assert "nothing to do" in again.out
    for wrong, message in (
        (["--optimizer", "sdg"], "no optimizer 'sdg'; did you mean 'sgd'?"),
        (["--hyper", "eps=small"], "--hyper eps=small: expected NAME=X with a number X"),
        (["--every", 3], "--every 3 needs --checkpoint"),
        (["--export", tmp_path / "none" / "t.onnx"], "there is no folder"),
        (["--labels", "answers"], "train.npz: there are no labels; its arrays are x, labels"),
    ):
        refused = populus("train", *common, *wrong)
        status = 2 if wrong[0] in ("--hyper", "--optimizer") else 1  # a value of another form is a mistake of use
        assert refused.status == status and message in refused.err and refused.err.count("\n") == 1
