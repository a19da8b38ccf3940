"""PopART sessions of several replicas: how data and anchors are dealt, and gradients reduced before the update."""

import numpy as np
import pytest

from populus import popart
from populus.dialects.support.diagnostics import PopulusError

RNG = np.random.default_rng(5)
W = RNG.normal(size=(3, 2)).astype(np.float32)


def options(replicas, parts=1, kind="Sum"):
    made = popart.SessionOptions()
    if replicas > 1:
        made.enableReplicatedGraphs, made.replicatedGraphCount = True, replicas
    if parts > 1:
        made.enableGradientAccumulation, made.accumulationFactor = True, parts
    made.accumulationAndReplicationReductionType = getattr(popart.ReductionType, kind)
    return made


def session(replicas, parts=1, kind="Sum", batches=1, anchors=("All",), train=True, settings=None):
    """A product with a weight and the mean of its squares, learnt by SGD with momentum."""
    builder = popart.Builder()
    x = builder.addInputTensor(popart.TensorInfo("FLOAT", [4, 3]))
    w = builder.addInitializedInputTensor(W, "w") if settings is None else builder.addInitializedInputTensor(W, settings, "w")
    y = builder.aiOnnx.matmul([x, w])
    loss = builder.aiGraphcore.identityloss([builder.aiOnnx.mul([y, y])], reduction=popart.ReductionType.Mean)
    builder.addOutputTensor(loss)
    device = popart.DeviceManager().createCpuDevice()
    art = popart.AnchorReturnType(anchors[0])
    if not train:
        return (
            popart.InferenceSession(builder.getModelProto(), popart.DataFlow(batches, {y: art}), device, userOptions=options(replicas)),
            x,
            y,
        )
    flow = popart.DataFlow(batches, {loss: art, w: popart.AnchorReturnType("Final")})
    optimizer = popart.SGD({"defaultLearningRate": (0.1, False), "defaultMomentum": (0.9, False)})
    given = options(replicas, parts, kind)
    return popart.TrainingSession(builder.getModelProto(), flow, loss, optimizer, device, userOptions=given), x, (loss, w)


def trained(replicas, parts, kind, data):
    made, x, (loss, w) = session(replicas, parts, kind, batches=2)
    made.prepareDevice()
    anchors = made.initAnchorArrays()
    made.weightsFromHost()
    for rows in data:
        made.run(popart.PyStepIO({x: rows}, anchors))
    made.weightsToHost()
    return anchors[loss], anchors[w].reshape(-1, 3, 2)


@pytest.mark.parametrize("kind", ["Sum", "Mean"])
@pytest.mark.parametrize("parts", [1, 2])
def test_replicas_learn_as_one_that_accumulates_their_batches(kind, parts):
    data = RNG.normal(size=(3, 2, parts, 2, 4, 3)).astype(np.float32)  # steps, batches, parts, replicas
    losses, weights = trained(2, parts, kind, data.reshape(3, 2, *((parts,) if parts > 1 else ()), 2, 4, 3))
    expected, (alone,) = trained(1, 2 * parts, kind, data.reshape(3, 2, 2 * parts, 4, 3))
    assert losses.shape == (2, *((parts,) if parts > 1 else ()), 2)
    # Terms of about one cancel in a small loss, so its error is theirs.
    np.testing.assert_allclose(losses.ravel(), expected.ravel(), rtol=1e-6, atol=1e-7)
    np.testing.assert_allclose(weights, [alone, alone], rtol=1e-6)
    np.testing.assert_array_equal(weights[0], weights[1])


def test_gradients_meet_in_one_collective_of_the_update():
    made, _, _ = session(2)
    made.prepareDevice()
    (update, _), text = made._updates, str(made._updates[0].module("popops"))
    assert text.count("gcl.all_reduce") == 1 and "gcl" not in str(made.program.module("popops"))
    assert update.signature.inputs["Gradient___w"].get_shape() == (3, 2)


@pytest.mark.parametrize(("anchor", "shape"), [("All", (3, 2, 4, 2)), ("Final", (2, 4, 2)), ("Sum", (2, 4, 2))])
def test_anchors_have_a_row_for_each_replica(anchor, shape):
    made, x, y = session(2, batches=3, anchors=(anchor,), train=False)
    made.prepareDevice()
    arrays = made.initAnchorArrays()
    data = RNG.normal(size=(3, 2, 4, 3)).astype(np.float32)
    made.run(popart.PyStepIO({x: data}, arrays))
    every = data @ W
    wanted = {"All": every, "Final": every[-1], "Sum": every[0] + every[1] + every[2]}[anchor]
    assert arrays[y].shape == shape and made.replicationFactor() == 2
    np.testing.assert_allclose(arrays[y], wanted, rtol=1e-5, atol=1e-6)
    with pytest.raises(PopulusError, match="6 batches are expected"):
        made.run(popart.PyStepIO({x: data[:, 0]}, arrays))


def test_callbacks_are_asked_for_each_replica_in_turn():
    made, _, _ = session(2, batches=2, train=False)
    made.prepareDevice()
    data, found = iter(RNG.normal(size=(4, 4, 3)).astype(np.float32)), []
    given = []

    def put(name, prefetch):
        given.append(next(data))
        return given[-1]

    def take(name):
        found.append(np.zeros((4, 2), np.float32))
        return found[-1]

    made.run(popart.PyStepIOCallback(put, lambda name: None, take, lambda name: None))
    np.testing.assert_allclose(found, np.array(given) @ W, rtol=1e-5, atol=1e-6)


def test_weights_of_groups_are_refused_with_several_replicas():
    grouped = popart.VariableSettings(1, 1, popart.VariableRetrievalMode.OnePerGroup)
    with pytest.raises(PopulusError, match="'w' has VariableSettings; all 2 replicas have one value of a weight here"):
        session(2, settings=grouped)
    session(1, settings=grouped)
    session(2, settings=popart.VariableSettings())
