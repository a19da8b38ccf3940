"""What is done to gradients before an update, and what trains beside weights: each against the same in NumPy or another setting."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from populus.dialects.support.diagnostics import PopulusError
from populus.training.epochs import train
from populus.training.session import NotFinite, TrainingSession

Array = NDArray[Any]
KINDS = {np.float64: TensorProto.DOUBLE, np.float32: TensorProto.FLOAT, np.float16: TensorProto.FLOAT16}


def made(nodes: list[onnx.NodeProto], weights: dict[str, Array], dtype: type, outputs: int = 3, opset: int = 15) -> onnx.ModelProto:
    initializers = [numpy_helper.from_array(a.astype(dtype) if a.dtype.kind == "f" else a, n) for n, a in weights.items()]
    infos = [helper.make_tensor_value_info(n, KINDS[dtype], ["n", w]) for n, w in (("x", 6), ("y", outputs))]
    graph = helper.make_graph(nodes, "net", infos[:1], infos[1:], initializers)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


def mlp(dtype: type = np.float64) -> onnx.ModelProto:
    g = np.random.default_rng(0)
    nodes = [
        helper.make_node("Gemm", ["x", "w1", "b1"], ["h"], transB=1, name="first"),
        helper.make_node("Tanh", ["h"], ["t"], name="tanh"),
        helper.make_node("Gemm", ["t", "w2"], ["y"], transB=1, name="second"),
    ]
    return made(nodes, {"w1": g.standard_normal((8, 6)), "b1": g.standard_normal(8), "w2": g.standard_normal((3, 8))}, dtype)


def data(dtype: type = np.float64, samples: int = 24) -> dict[str, Array]:
    g = np.random.default_rng(1)
    return {"x": g.standard_normal((samples, 6)).astype(dtype), "labels": g.integers(0, 3, samples)}


FAST: dict[str, Any] = {"level": "popops"}


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_gradients_of_parts_are_those_of_the_whole_batch(optimizer):
    options: dict[str, Any] = {**FAST, "optimizer": optimizer, "epochs": 3, "clip_norm": 0.5}
    whole = train(mlp(), data(), batch=12, **options)
    parts = train(mlp(), data(), batch=4, accumulate=3, **options)
    assert parts.samples_per_step == 12
    np.testing.assert_allclose(parts.losses, whole.losses, rtol=1e-13)
    for name, weight in whole.weights.items():
        np.testing.assert_allclose(parts.weights[name], weight, rtol=1e-12)


def test_accumulated_steps_run_on_tiles_too():
    options: dict[str, Any] = {"batch": 4, "accumulate": 3, "optimizer": "momentum"}
    tiles = train(mlp(), data(), tiles=3, **options)
    np.testing.assert_allclose(tiles.losses, train(mlp(), data(), **FAST, **options).losses, rtol=1e-12)


def test_a_loss_scale_that_is_a_power_of_two_changes_no_bit_of_a_step():
    plain, scaled = (train(mlp(), data(), batch=8, epochs=2, loss_scale=scale, **FAST) for scale in (None, 1024))
    assert plain.losses == scaled.losses
    assert all(np.array_equal(plain.weights[n], scaled.weights[n]) for n in plain.weights)


def test_an_automatic_loss_scale_halves_where_gradients_of_16_bits_overflow_and_skips_the_step():
    session = TrainingSession(mlp(np.float16), optimizer="sgd", batch=8, loss_scale="auto", hyper={"lr": 0.1}, **FAST)
    assert session.scale is not None
    arrays = {"x": 50 * data(np.float16)["x"][:8]}
    before, scales = session.weights, []
    for _ in range(8):
        session.step(arrays, data()["labels"][:8].astype(np.int32))
        scales.append(session.scale.value)
        if scales[-1] < 2**15 / 2 ** len(scales[:-1]):  # halved in this step too: it moved nothing
            assert all(np.array_equal(session.weights[n], before[n]) for n in before)
    assert session.skipped and scales[-1] == 2.0 ** (15 - session.skipped)
    assert not np.array_equal(session.weights["w1"], before["w1"])


def test_small_gradients_of_16_bits_are_kept_by_a_loss_scale():
    arrays = data(np.float16)
    arrays["x"] *= np.float16(1e-5)
    start = numpy_helper.to_array(mlp(np.float16).graph.initializer[0])
    moved = [
        train(mlp(np.float16), arrays, optimizer="adam", lr=0.1, batch=24, loss_scale=s, parameters=["w1"], **FAST) for s in (None, 1024)
    ]
    held = [(session.weights["w1"] == start).mean() for session in moved]
    assert held[1] < held[0] / 2


def test_a_fixed_loss_scale_under_which_gradients_overflow_is_an_error():
    with pytest.raises(NotFinite, match=r"step \d: gradients overflow: .* is the first to give "):
        train(mlp(np.float16), {**data(np.float16), "x": 50 * data(np.float16)["x"]}, batch=8, loss_scale=32768, **FAST)


def test_elements_of_gradients_are_clipped():
    free, clipped = (train(mlp(), data(), optimizer="sgd", lr=1.0, batch=24, **FAST, **o) for o in ({}, {"clip_value": 0.01}))
    for i in mlp().graph.initializer:
        start = numpy_helper.to_array(i)
        np.testing.assert_allclose(clipped.weights[i.name] - start, np.clip(free.weights[i.name] - start, -0.01, 0.01), atol=1e-15)


def test_frozen_weights_stay():
    session = train(mlp(), data(), batch=8, freeze=["w1", "b*"], **FAST)
    assert list(session.weights) == ["w2"]


def deep(layers: int = 16, width: int = 16) -> onnx.ModelProto:
    g = np.random.default_rng(9)
    weights = {f"w{i}": g.standard_normal((width, width)) / 4 for i in range(layers)}
    nodes: list[onnx.NodeProto] = []
    for i in range(layers):
        nodes.append(helper.make_node("MatMul", [f"x{i}", f"w{i}"], [f"h{i}"], name=f"product{i}"))
        nodes.append(helper.make_node("Tanh", [f"h{i}"], [f"t{i}"], name=f"tanh{i}"))
        nodes.append(helper.make_node("Add", [f"x{i}", f"t{i}"], [f"x{i + 1}"], name=f"add{i}"))
    info = [helper.make_tensor_value_info(n, TensorProto.FLOAT, ["n", width]) for n in ("x0", f"x{layers}")]
    initializers = [numpy_helper.from_array(a.astype(np.float32), n) for n, a in weights.items()]
    graph = helper.make_graph(nodes, "deep", info[:1], info[1:], initializers)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def test_recomputing_takes_less_memory_and_changes_no_bit():
    g = np.random.default_rng(10)
    x, labels = g.standard_normal((256, 16)).astype(np.float32), g.integers(0, 16, 256).astype(np.int32)
    peaks: list[int] = []
    weights: list[Array] = []
    for recompute in (1, 4, 0):
        session = TrainingSession(deep(), optimizer="sgd", batch=256, tiles=4, recompute=recompute, engine="native")
        session.step({"x0": x}, labels)
        peaks.append(session.program.profile().summary["peak_tile_bytes"])
        weights.append(session.weights["w0"])
    assert np.array_equal(weights[0], weights[1]) and np.array_equal(weights[0], weights[2])
    assert max(peaks[1:]) < 0.8 * peaks[0], peaks


# -- sparse gradients ----------------------------------------------------------------------------------------------------


def bag(twice: bool = False, tied: bool = False) -> onnx.ModelProto:
    """The mean of the embeddings of five words, and a layer."""
    g = np.random.default_rng(6)
    nodes = [
        helper.make_node("Gather", ["table", "x"], ["e"], name="embed"),
        helper.make_node("ReduceMean", ["e"], ["m"], axes=[1], keepdims=0, name="mean"),
    ]
    if twice:
        nodes += [
            helper.make_node("Gather", ["table", "first"], ["f"], name="again"),
            helper.make_node("Add", ["m", "f"], ["s"], name="sum"),
        ]
    nodes.append(helper.make_node("Gemm", ["s" if twice else "m", "table" if tied else "w"], ["y"], transB=1, name="out"))
    weights = {"table": g.standard_normal((9, 4)), "w": g.standard_normal((9, 4)), "first": np.array([2])}
    infos = [("x", TensorProto.INT64, ["n", 5]), ("y", TensorProto.DOUBLE, ["n", 9])]
    graph = helper.make_graph(nodes, "bag", [helper.make_tensor_value_info(*infos[0])], [helper.make_tensor_value_info(*infos[1])],
                              [numpy_helper.from_array(a, n) for n, a in weights.items()])  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 15)], ir_version=8)


def bag_table() -> Array:
    return numpy_helper.to_array(next(i for i in bag().graph.initializer if i.name == "table"))


def words(samples: int = 12) -> dict[str, Array]:
    """Of nine words, the last three are never there; negative numbers count from the end."""
    g = np.random.default_rng(7)
    x = g.integers(0, 6, (samples, 5))
    return {"x": np.where(g.random(x.shape) < 0.2, x - 9, x), "labels": g.integers(0, 9, samples)}


@pytest.mark.parametrize("twice", [False, True])
@pytest.mark.parametrize("level", ["popart", "poplar"])
def test_sparse_steps_of_sgd_are_the_dense_ones(twice, level):
    options: dict[str, Any] = {"optimizer": "sgd", "lr": 0.5, "batch": 4, "epochs": 2, "clip_norm": 0.3, "level": level}
    dense, sparse = (train(bag(twice), words(), sparse=s, **options) for s in ((), ["table"]))
    np.testing.assert_allclose(sparse.losses, dense.losses, rtol=1e-12)
    for name, weight in dense.weights.items():
        np.testing.assert_allclose(sparse.weights[name], weight, rtol=1e-11)


@pytest.mark.parametrize("options", [{"level": "poplar"}, {**FAST, "replicas": 2}, {**FAST, "optimizer": "adam"}], ids=repr)
def test_the_rows_of_several_batches_move_together(options):
    options = {"optimizer": "sgd", "lr": 0.5, "batch": 2, "accumulate": 3, "epochs": 2, "clip_norm": 0.3, **options}
    whole = {**options, "accumulate": 1, "batch": 6}
    dense, sparse, once = (train(bag(True), words(), sparse=s, **o) for s, o in (((), options), (["table"], options), (["table"], whole)))
    for name, weight in once.weights.items():
        np.testing.assert_allclose(sparse.weights[name], weight, rtol=1e-11)
        if options["optimizer"] == "sgd":
            np.testing.assert_allclose(sparse.weights[name], dense.weights[name], rtol=1e-11)
    assert np.array_equal(sparse.weights["table"][6:], bag_table()[6:])


@pytest.mark.parametrize("optimizer", ["momentum", "adam", "rmsprop"])
def test_sparse_updates_touch_only_the_rows_that_were_looked_up(optimizer):
    """Those are as in a dense step; the others and their states stay, which is what is called lazy."""
    options: dict[str, Any] = {"optimizer": optimizer, "batch": 12, "hyper": {"weight_decay": 0.1}, **FAST}
    dense, sparse = (TrainingSession(bag(), sparse=s, **options) for s in ((), ["table"]))
    start = dense.weights["table"]
    for session in (dense, sparse):
        session.step({"x": words()["x"]}, words()["labels"].astype(np.int32))
    np.testing.assert_allclose(sparse.weights["table"][:6], dense.weights["table"][:6], rtol=1e-10)
    assert np.array_equal(sparse.weights["table"][6:], start[6:])
    assert not np.array_equal(dense.weights["table"][6:], start[6:])  # by the decay
    for name in sparse.state:
        if name.startswith("State___table") and not name.endswith("step"):
            np.testing.assert_allclose(sparse.state[name][:6], dense.state[name][:6], rtol=1e-10)
            assert not sparse.state[name][6:].any()


# -- batch normalisation and dropout -----------------------------------------------------------------------------------


def normed(opset: int = 15, **attributes: Any) -> onnx.ModelProto:
    g = np.random.default_rng(2)
    outputs = ["u", "m", "v"] if attributes.get("training_mode") else ["u"]
    nodes = [
        helper.make_node("BatchNormalization", ["x", "scale", "shift", "mean", "variance"], outputs, name="norm", **attributes),
        helper.make_node("Gemm", ["u", "w"], ["y"], transB=1, name="out"),
    ]
    weights = {"scale": g.uniform(0.5, 2, 6), "shift": g.standard_normal(6), "mean": g.standard_normal(6), "variance": g.uniform(0.5, 2, 6)}
    return made(nodes, {**weights, "w": g.standard_normal((3, 6))}, np.float64, opset=opset)


@pytest.mark.parametrize(("opset", "attributes", "options"), [
    (15, {}, {"batch_statistics": True}),
    (11, {}, {"batch_statistics": True}),
    (15, {"training_mode": 1}, {}),
    (15, {"training_mode": 1}, {"accumulate": 2}),
])  # fmt: skip
def test_normalisation_by_the_batch_moves_the_running_statistics(opset, attributes, options):
    model, arrays = normed(opset, momentum=0.75, **attributes), data()
    weights = {i.name: numpy_helper.to_array(i) for i in model.graph.initializer}
    batch = 24 // options.get("accumulate", 1)
    session = TrainingSession(model, optimizer="sgd", batch=batch, hyper={"lr": 0.0}, **options, **FAST)
    loss = session.step({"x": arrays["x"]}, arrays["labels"].astype(np.int32))
    mean, variance, losses = weights["mean"], weights["variance"], []
    for part in range(0, 24, batch):
        x, labels = arrays["x"][part : part + batch], arrays["labels"][part : part + batch]
        z = ((x - x.mean(0)) / np.sqrt(x.var(0) + 1e-5) * weights["scale"] + weights["shift"]) @ weights["w"].T
        losses.append((np.log(np.exp(z).sum(1)) - z[np.arange(batch), labels]).mean())
        mean, variance = 0.75 * mean + 0.25 * x.mean(0), 0.75 * variance + 0.25 * x.var(0)
    np.testing.assert_allclose(loss, np.mean(losses), rtol=1e-12)
    np.testing.assert_allclose(session.weights["mean"], mean, rtol=1e-12)
    np.testing.assert_allclose(session.weights["variance"], variance, rtol=1e-12)
    z = ((arrays["x"] - mean) / np.sqrt(variance + 1e-5) * weights["scale"] + weights["shift"]) @ weights["w"].T
    right = (z.argmax(1) == arrays["labels"]).mean()
    assert session.evaluate(session.samples(arrays))["accuracy"] == right  # by the running statistics


def test_gradients_flow_through_the_statistics_of_the_batch():
    model, arrays = normed(training_mode=1), data()
    labels = arrays["labels"].astype(np.int32)

    def loss(**changed: Array) -> float:
        session = TrainingSession(model, optimizer="sgd", batch=24, hyper={"lr": 1.0}, parameters=["scale", "w"], **FAST)
        session.weights.update(changed)
        return session.step({"x": arrays["x"]}, labels)

    session = TrainingSession(model, optimizer="sgd", batch=24, hyper={"lr": 1.0}, parameters=["scale", "w"], **FAST)
    start = dict(session.weights)
    session.step({"x": arrays["x"]}, labels)
    d, h = np.random.default_rng(3).standard_normal(6), 1e-6
    expected = (loss(scale=start["scale"] + h * d) - loss(scale=start["scale"] - h * d)) / (2 * h)
    np.testing.assert_allclose(((start["scale"] - session.weights["scale"]) * d).sum(), expected, rtol=1e-6)


def residual() -> onnx.ModelProto:
    """Builds two convolutions with norms and relus, and a sum that skips the second."""
    g = np.random.default_rng(5)
    weights = {"k0": g.standard_normal((8, 3, 3, 3)), "k1": g.standard_normal((8, 8, 3, 3)), "w": g.standard_normal((3, 8))}
    nodes = [helper.make_node("Reshape", ["x", "image"], ["i"]), helper.make_node("Conv", ["i", "k0"], ["c0"], pads=[1] * 4)]
    for n, x in enumerate(("c0", "c1")):
        weights |= {f"scale{n}": np.ones(8), f"shift{n}": np.zeros(8), f"mean{n}": np.zeros(8), f"variance{n}": np.ones(8)}
        nodes.append(helper.make_node("BatchNormalization", [x, *(f"{v}{n}" for v in ("scale", "shift", "mean", "variance"))], [f"n{n}"]))
    nodes.insert(3, helper.make_node("Relu", ["n0"], ["r0"]))
    nodes.insert(4, helper.make_node("Conv", ["r0", "k1"], ["c1"], pads=[1] * 4))
    nodes += [helper.make_node("Add", ["n1", "r0"], ["s"]), helper.make_node("Relu", ["s"], ["r1"])]
    nodes += [helper.make_node("GlobalAveragePool", ["r1"], ["p"]), helper.make_node("Flatten", ["p"], ["f"])]
    nodes.append(helper.make_node("Gemm", ["f", "w"], ["y"], transB=1))
    model = made(nodes, weights, np.float32)
    model.graph.initializer.append(numpy_helper.from_array(np.array([-1, 3, 4, 4]), "image"))
    model.graph.input[0].type.tensor_type.shape.dim[1].dim_value = 48
    return model


def test_what_is_computed_again_for_lack_of_memory_changes_no_bit():
    g, sessions, relus = np.random.default_rng(6), [], []
    x, labels = g.standard_normal((8, 48)).astype(np.float32), g.integers(0, 3, 8).astype(np.int32)
    for target in ("gc200, tiles=4", "gc200, tiles=4, tile_bytes=6000"):
        session = TrainingSession(residual(), optimizer="sgd", batch=8, batch_statistics=True, target=target, level="popart")
        sessions.append([session.step({"x": x}, labels) for _ in range(2)] + [array.tobytes() for array in session.weights.values()])
        relus.append(sum(op.name == "popart.relu" for op in session.program.module("popart").walk()))
    assert sessions[0] == sessions[1]
    assert relus[0] == 2 < relus[1]


def dropping(opset: int = 13, train_it: bool = True) -> onnx.ModelProto:
    inputs = ["x", "ratio", "train"] if opset >= 12 and train_it else ["x", "ratio"] if opset >= 12 else ["x"]
    given = {} if opset >= 12 else {"ratio": 0.25}
    nodes = [
        helper.make_node("Dropout", inputs, ["d"], name="drop", **given),
        helper.make_node("Gemm", ["d", "w"], ["y"], transB=1, name="out"),
    ]
    model = made(nodes, {"w": np.random.default_rng(4).standard_normal((3, 6))}, np.float64, opset=opset)
    model.graph.initializer.extend(
        [numpy_helper.from_array(np.array(0.25, np.float32), "ratio"), numpy_helper.from_array(np.array(train_it), "train")]
    )
    return model


@pytest.mark.parametrize("options", [{"model": dropping()}, {"model": dropping(train_it=False), "batch_statistics": True},
                                     {"model": dropping(11), "batch_statistics": True}])  # fmt: skip
def test_dropout_draws_anew_in_each_step_and_the_same_in_each_run(options):
    arrays = data()

    def losses(seed: int) -> list[float]:
        session = TrainingSession(**options, optimizer="sgd", batch=24, hyper={"lr": 0.0}, seed=seed, **FAST)
        return [session.step({"x": arrays["x"]}, arrays["labels"].astype(np.int32)) for _ in range(3)]

    first = losses(0)
    assert len(set(first)) == 3
    assert losses(0) == first
    assert not set(losses(1)) & set(first)
    session = TrainingSession(**options, batch=24, **FAST)
    z = arrays["x"] @ session.weights["w"].T
    expected = (np.log(np.exp(z).sum(1)) - z[np.arange(24), arrays["labels"]]).mean()
    np.testing.assert_allclose(session.evaluate(session.samples(arrays))["loss"], expected, rtol=1e-12)  # nothing is dropped


def test_interrupted_training_goes_on_to_the_bit_with_all_that_changes_from_step_to_step(tmp_path):
    """The seed of what is dropped, the loss scale and its age, sums of batches, running statistics."""
    model = dropping(15)
    model.graph.node[0].input[0] = "n"
    model.graph.node.insert(
        0, helper.make_node("BatchNormalization", ["x", "one", "one", "m", "v"], ["n", "", ""], name="norm", training_mode=1)
    )
    model.graph.initializer.extend([numpy_helper.from_array(np.ones(6), name) for name in ("one", "m", "v")])
    options: dict[str, Any] = {"batch": 4, "accumulate": 2, "epochs": 4, "loss_scale": "auto", "parameters": ["w"], **FAST}

    def stop(p: Any) -> None:
        if p.step + (p.epoch - 1) * p.steps == 7:
            raise InterruptedError

    whole = train(model, data(), **options)
    with pytest.raises(InterruptedError):
        train(model, data(), checkpoint=tmp_path, every=1, report=stop, **options)
    again = train(model, data(), checkpoint=tmp_path, **options)
    assert again.losses == whole.losses
    assert again.scale == whole.scale
    assert all(np.array_equal(again.weights[n], whole.weights[n]) for n in ("w", "m", "v"))


def test_dropout_keeps_the_mean():
    session = TrainingSession(dropping(), loss="absolute_error", optimizer="sgd", batch=4096, hyper={"lr": 0.0}, parameters=["w"], **FAST)
    session.weights = {"w": np.ones((3, 6))}
    loss = session.step({"x": np.ones((4096, 6))}, np.zeros((4096, 3)))
    assert abs(loss - 6) < 0.05


# -- losses of the model's own -------------------------------------------------------------------------------------------


def judged(scalar: bool) -> onnx.ModelProto:
    """Two losses, added: of classes, by ONNX's own op, and half the square of one output."""
    model = mlp()
    g = model.graph
    reduction = "mean" if scalar else "none"
    g.node.append(helper.make_node("SoftmaxCrossEntropyLoss", ["y", "labels"], ["c"], name="classes", reduction=reduction))
    g.node.append(helper.make_node("ReduceSumSquare", ["y"], ["q"], axes=[1], keepdims=0, name="squares"))
    g.node.append(helper.make_node("Mul", ["q", "half"], ["r"], name="halved"))
    g.node.append(
        helper.make_node("ReduceMean", ["r"], ["m"], keepdims=0, name="mean") if scalar else helper.make_node("Identity", ["r"], ["m"])
    )
    g.node.append(helper.make_node("Add", ["c", "m"], ["loss"], name="both"))
    g.initializer.append(numpy_helper.from_array(np.array(0.5), "half"))
    g.input.append(helper.make_tensor_value_info("labels", TensorProto.INT64, ["n"]))
    del g.output[:]
    g.output.append(helper.make_tensor_value_info("loss", TensorProto.DOUBLE, [] if scalar else ["n"]))
    return model


@pytest.mark.parametrize("scalar", [True, False])
def test_a_model_can_compute_its_loss_itself_and_so_add_several(scalar):
    session = train(judged(scalar), data(), loss="identity", optimizer="sgd", lr=0.0, batch=24, validate=data(samples=30), **FAST)
    weights = {i.name: numpy_helper.to_array(i) for i in mlp().graph.initializer}

    def losses(arrays: dict[str, Array]) -> Array:
        z = np.tanh(arrays["x"] @ weights["w1"].T + weights["b1"]) @ weights["w2"].T
        classes = np.log(np.exp(z).sum(1)) - z[np.arange(len(z)), arrays["labels"]]
        return classes + 0.5 * (z**2).sum(1)

    np.testing.assert_allclose(session.losses, [losses(data()).mean()], rtol=1e-12)
    seen = {n: a[:24] if scalar else a for n, a in data(samples=30).items()}  # one loss for all: whole batches alone
    np.testing.assert_allclose(session.validations[0]["loss"], losses(seen).mean(), rtol=1e-12)
    moved = train(judged(scalar), data(), loss="identity", optimizer="sgd", lr=0.1, batch=8, epochs=5, **FAST)
    assert moved.losses[-1] < moved.losses[0]


# -- what is wrong -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("model", "options", "message"),
    [
        (mlp(), {"accumulate": 0}, "accumulate = 0; expected at least 1 batch"),
        (mlp(), {"accumulate": 4, "batch": 8}, "there are 24 samples, fewer than 4 batches of 8"),
        (mlp(), {"loss_scale": "big"}, "the loss scale is big; a positive number or auto is expected"),
        (mlp(), {"loss_scale": -1}, "the loss scale is -1; a positive number or auto is expected"),
        (mlp(), {"freeze": ["w3"]}, "no parameter 'w3'"),
        (mlp(), {"sparse": ["w1"]}, "'w1' is read by popart.gemm too, not only looked up by rows, so its gradient is not sparse"),
        (mlp(), {"sparse": ["w3"]}, "no parameter 'w3'"),
        (mlp(), {"sparse": ["w1"], "freeze": ["w1"]}, "'w1' is not trained, so it has no sparse gradient"),
        (mlp(), {"clip_norm": 0}, "clip_norm = 0; a positive number is expected"),
        (mlp(), {"clip_value": -1}, "clip_value = -1; a positive number is expected"),
        (mlp(), {"lr": np.nan}, "lr = nan; at least 0 and finite is expected"),
        (mlp(), {"lr": -0.1}, "lr = -0.1; at least 0 and finite is expected"),
        (mlp(), {"hyper": {"beta2": 1}}, "beta2 = 1; at least 0 and less than 1 is expected"),
        (mlp(), {"recompute": -1}, "recompute = -1; a number of parts, or 0 to choose one, is expected"),
        (mlp(), {"freeze": ["*"]}, "all parameters are frozen"),
    ],
)
def test_mistakes_are_one_line(model, options, message):
    with pytest.raises(PopulusError, match=message) as caught:
        train(model, data(), **options)
    assert "\n" not in str(caught.value)


def test_sparse_gradients_of_a_tied_weight_and_of_lamb_are_refused():
    with pytest.raises(PopulusError, match="'table' is read by popart.gemm too"):
        train(bag(tied=True), words(), sparse=["table"], batch=4)
    with pytest.raises(PopulusError, match="lamb scales by the norm of a whole weight, so the rows of 'table' cannot move alone"):
        train(bag(), words(), sparse=["table"], batch=4, optimizer="lamb")


def test_tied_weights_move_by_the_sum_of_their_gradients():
    session = TrainingSession(bag(tied=True), optimizer="sgd", batch=12, hyper={"lr": 1.0}, **FAST)
    table, arrays, h = session.weights["table"], words(), 1e-6
    direction = np.random.default_rng(8).standard_normal(table.shape)

    def loss(t: Array) -> float:
        z = t[arrays["x"]].mean(1) @ t.T
        return float((np.log(np.exp(z).sum(1)) - z[np.arange(12), arrays["labels"]]).mean())

    session.step({"x": arrays["x"]}, arrays["labels"].astype(np.int32))
    expected = (loss(table + h * direction) - loss(table - h * direction)) / (2 * h)
    np.testing.assert_allclose(((table - session.weights["table"]) * direction).sum(), expected, rtol=1e-7)


@pytest.mark.parametrize(("op", "kind", "message"), [
    ("Sign", TensorProto.DOUBLE, "nothing reaches 'w1' or 'b1' or 'w2' from the loss 'loss' but through integers, conditions or step"),
    ("ArgMax", TensorProto.INT64, r"the output 'z' is tensor<32x1xi64>; a loss is of floats"),
])  # fmt: skip
def test_a_loss_that_no_weight_can_be_felt_in_is_refused(op, kind, message):
    model = mlp()
    model.graph.node.append(helper.make_node(op, ["y"], ["z"], name="last", **({"axis": 1} if op == "ArgMax" else {})))
    del model.graph.output[:]
    model.graph.output.append(helper.make_tensor_value_info("z", kind, ["n", 1 if op == "ArgMax" else 3]))
    with pytest.raises(PopulusError, match=message) as caught:
        TrainingSession(model)
    assert "\n" not in str(caught.value)


def test_statistics_that_two_nodes_share_are_refused():
    model = normed()
    model.graph.node[1].input[0] = "u2"
    model.graph.node.insert(1, helper.make_node("BatchNormalization", ["u", "scale", "shift", "mean", "variance"], ["u2"], name="again"))
    with pytest.raises(PopulusError, match="'again': another BatchNormalization has the running statistics 'mean' too; give each its own"):
        train(model, data(), batch_statistics=True)


class TorchModule:
    """Stands for a module of torch, which tests run without."""

    def named_parameters(self) -> list[object]:
        return []


@pytest.mark.parametrize(("changed", "message"), [
    ({"data": (1, 2)}, "data: a tuple; expected arrays by name: {'x': .., 'labels': ..}"),
    ({"validate": [1]}, "validation data: a list; expected arrays by name: {'x': .., 'labels': ..}"),
    ({"model": TorchModule()}, "training needs an ONNX model, found a torch module; write one with torch.onnx.export(.., 'net.onnx')"),
    ({"lr": "1e-3"}, "lr = '1e-3'; expected a number"),
    ({"lr": [0.1]}, r"lr = [0.1]; expected a number"),
    ({"hyper": {"beta1": "a"}}, "beta1 = 'a'; expected a number"),
    ({"hyper": [1]}, "hyper = [1]; expected a dict of numbers by name"),
    ({"loss": ["cross_entropy"]}, "loss = ['cross_entropy']; expected a text"),
    ({"optimizer": 3}, "optimizer = 3; expected a text"),
    ({"batch": "4"}, "batch = '4'; expected a whole number"),
    ({"accumulate": 1.5}, "accumulate = 1.5; expected a whole number"),
    ({"clip_norm": "1"}, "clip_norm = '1'; expected a number"),
    ({"parameters": "w1"}, "parameters = 'w1'; expected a list of names, such as ['w1']"),
    ({"epochs": "2"}, "epochs = '2'; expected a whole number"),
    ({"every": 0}, "every = 0; at least 1 is expected"),
    ({"schedule": "cosine"}, "schedule = 'cosine'; expected a function of the share of steps done, from 0 to 1"),
    ({"checkpoint": 5}, "checkpoint = 5; expected a folder"),
])  # fmt: skip
def test_an_argument_of_another_type_is_told_in_one_line(changed, message):
    given = {"model": mlp(), "data": data(), "batch": 4, **changed}
    with pytest.raises(PopulusError) as caught:
        train(given.pop("model"), given.pop("data"), **given)
    assert str(caught.value) == message
