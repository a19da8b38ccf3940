"""Training by stages: a pipeline's weights are those of one replica, in one process or by ranks; its order; what it refuses."""

import json
from pathlib import Path

import numpy as np
import pytest

import populus
from helpers.ranks import mpiexec, needs_mpi
from helpers.replica_training import data, deep, digest, net, trained
from populus.dialects.support.diagnostics import PopulusError
from populus.lowering.popart.pipeline import balanced, order
from populus.program.replicas import Replicas

PROGRAM = Path(__file__).parents[1] / "helpers/replica_training.py"


def close(session, one):
    for name, array in one.weights.items():
        np.testing.assert_allclose(session.weights[name], array, rtol=0, atol=1e-6, err_msg=name)


@pytest.mark.parametrize(
    "options",
    [
        {"stages": 3, "micro_batches": 4},
        {"stages": 6, "micro_batches": 2},
        {"stages": 2, "micro_batches": 2, "replicas": 2, "clip_norm": 0.05, "loss_scale": "auto"},
        {"stages": 2, "micro_batches": 4, "recompute": 2, "cuts": ["add1"]},
    ],
    ids=str,
)
def test_stages_train_as_one_replica(options):
    alone = {n: v for n, v in options.items() if n in ("clip_norm", "loss_scale")}
    session = trained(layers=4, steps=4, **options)
    one = trained(layers=4, steps=4, **alone)
    close(session, one)
    np.testing.assert_allclose(session.losses, one.losses, rtol=1e-6)


def test_one_micro_batch_has_the_bits_of_no_stages():
    assert digest(trained(stages=2, steps=4)) == digest(trained(steps=4))


def test_micro_batches_without_stages_are_accumulated_batches():
    close(trained(norm=True, micro_batches=4, steps=5), trained(norm=True, accumulate=4, batch=4, steps=5))


def test_a_replica_has_the_weights_and_states_of_its_stage():
    session = trained(layers=4, stages=3, steps=1)
    each = [{*session._weights.of(k)} for k in range(3)]
    assert set().union(*each) == set(session.weights) and sum(map(len, each)) == len(session.weights)
    assert each[0] >= {"first"} and each[2] >= {"last"}
    assert {n.split("___")[1] for n in session._states.of(1)} == each[1]
    programs = session._programs._steps
    assert [set(p.signature.inputs) & set(session.weights) for p in programs] == each


def test_a_profile_has_what_stages_send_and_wait_for():
    session = populus.TrainingSession(net(), batch=16, stages=2, micro_batches=2, optimizer="sgd", target="gc200", tiles=4)
    profile = session.program.profile()
    met = [s for s in profile.steps if s.kind == "collective"]
    assert [s.label for s in met].count("send") == 2 and [s.label for s in met].count("receive") >= 2
    assert all(0 <= s.waits <= s.cycles for s in met)
    sent = next(s for s in met if s.label == "send")
    assert sent.exchange == 500 + -(-(4 * 8 * 7 + 4) // 120)  # half of the batch, of 7 floats each, and the token


def test_a_stage_that_is_not_finite_ends_all():
    session = populus.TrainingSession(deep(), batch=4, stages=2, optimizer="sgd", hyper={"lr": 3e38}, target="host", tiles=2)
    x = data()["x"][:4]
    session.step({"x": x}, np.zeros(4, np.int32))
    with pytest.raises(populus.training.session.NotFinite, match="step 2: .* is the first to give"):
        session.step({"x": x}, np.zeros(4, np.int32))


def test_checkpoints_go_from_stages_to_one_replica(tmp_path):
    def run(folder, epochs, **options):
        return populus.train(deep(), data(48), batch=16, epochs=epochs, checkpoint=folder, target="host", tiles=2, **options)

    run(tmp_path, 1, stages=3, micro_batches=2)
    close(run(tmp_path, 2), run(tmp_path / "other", 2))


@needs_mpi
def test_ranks_that_are_stages_have_the_bits_of_one_process():
    options = [{"steps": 5, "stages": 2, "micro_batches": 2, "clip_norm": 0.05, "replicas": 2}]
    found = mpiexec(2, PROGRAM, *map(json.dumps, options))
    assert found.stdout.split() == [digest(trained(**o)) for o in options], found.stderr


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"stages": 3}, "3 stages are more than the model's 2 layers"),
        ({"stages": 0}, "stages = 0, micro_batches = 1; at least 1 is expected of both"),
        ({"batch": 6, "micro_batches": 4}, "batch = 6; 1 replicas of 4 micro-batches have equal parts of a multiple of 4"),
        ({"stages": 2, "accumulate": 2}, "accumulate does not go with stages or micro_batches"),
        ({"stages": 2, "shard": "states"}, "shard does not go with stages"),
        ({"stages": 2, "cuts": ["nowhere"]}, "there is no node 'nowhere' to cut after"),
        ({"stages": 3, "cuts": ["h0"]}, "1 cuts make 2 stages; 3 are asked for|no node 'h0'"),
    ],
)
def test_what_stages_cannot_do_is_one_line(options, message):
    with pytest.raises(PopulusError, match=message):
        populus.TrainingSession(net(), target="host", tiles=2, **options)


def test_stages_are_balanced():
    assert balanced([1, 1, 1, 1, 4, 4], [1, 2, 3, 4, 5], 3) == [4, 5]
    assert balanced([5, 1, 1, 1], [1, 2, 3], 2) == [1]
    assert balanced([1, 9, 1, 1], [1, 3], 2) == [1]  # only before a layer


def test_the_order_is_one_forward_one_backward():
    def text(stage, stages, count):
        return " ".join(f"{part[0]}{m}" for part, m in order(stage, stages, count))

    assert text(2, 3, 3) == "f0 b0 f1 b1 f2 b2"
    assert text(0, 3, 4) == "f0 f1 f2 b0 f3 b1 b2 b3"
    assert text(0, 4, 2) == "f0 f1 b0 b1"


MESSAGES = """
func.func @main(%x: tensor<4x3xf32>, %t: tensor<i32>) -> (tensor<4x3xf32>, tensor<4x3xf32>, tensor<i32>)
    attributes {input_names = ["x", "t"], output_names = ["y", "z", "sent"]} {
  %a = gcl.send %x, %t {offset = OFFSET : i64, tag = 1 : i64} : (tensor<4x3xf32>, tensor<i32>) -> tensor<i32>
  %d = popops.map <mul(_1, 2.0)>(%x) : (tensor<4x3xf32>) -> tensor<4x3xf32>
  %b = gcl.send %d, %a {offset = OFFSET : i64, tag = 2 : i64} : (tensor<4x3xf32>, tensor<i32>) -> tensor<i32>
  %z = gcl.receive %b {offset = OFFSET : i64, tag = 2 : i64, shape = array<i64: 4, 3>, element = f32} : (tensor<i32>) -> tensor<4x3xf32>
  %y = gcl.receive %b {offset = OFFSET : i64, tag = 1 : i64, shape = array<i64: 4, 3>, element = f32} : (tensor<i32>) -> tensor<4x3xf32>
  func.return %y, %z, %b : tensor<4x3xf32>, tensor<4x3xf32>, tensor<i32>
}
"""


@pytest.mark.parametrize("engine", ["numpy", "strict", "native"])
def test_messages_are_found_by_their_tags_on_each_level(engine, tmp_path):
    from populus.program.replicas import Place

    programs = []
    for offset in (1, -1):
        path = tmp_path / f"{offset}.mlir"
        path.write_text(MESSAGES.replace("OFFSET", str(offset)))
        programs.append(populus.compile(path, target="gc200", tiles=4, engine=engine))
    xs = [np.full((4, 3), k + 1, np.float32) for k in range(2)]
    for level in programs[0].levels:
        found = Place.of(2).run(lambda k, level=level: programs[k].run_at(level, {"x": xs[k], "t": np.int32(7)}))
        for k in range(2):
            assert (found[k]["y"] == xs[1 - k]).all() and (found[k]["z"] == 2 * xs[1 - k]).all() and found[k]["sent"] == 7
    with pytest.raises(PopulusError, match="replica 0 has no replica 1 to send; there is one"):
        Replicas(programs[0], 1).run([{"x": xs[0], "t": np.int32(7)}])
