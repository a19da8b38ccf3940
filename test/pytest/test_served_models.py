"""Small models after the pattern of those that people serve, at the sizes that arrive, against onnxruntime."""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest

import populus
from helpers.served_models import HIDDEN, decoder, detector, experts, recogniser, voice_detector
from populus.dialects.support.diagnostics import PopulusError, PopulusWarning


def session(model):
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(model.SerializeToString(), options)


def agree(found, session, given):
    for name, wanted in zip((o.name for o in session.get_outputs()), session.run(None, given), strict=True):
        assert found[name].shape == wanted.shape
        np.testing.assert_allclose(found[name], wanted, rtol=1e-4, atol=1e-5)


def drawn(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def heard(program, oracle, samples, rate, batch=1):
    """Runs three calls with the state of the call before, and compares each."""
    state = np.zeros((2, batch, HIDDEN), np.float32)
    for call in range(3):
        given = {"samples": drawn(batch, samples, seed=call), "state": state, "sr": np.array(rate)}
        found = program.run(given)
        agree(found, oracle, given)
        state = found["next_state"]


@pytest.mark.parametrize("engine", ["numpy", "strict"])
def test_a_voice_detector_runs_at_both_rates_though_only_one_branch_fits(engine):
    model = voice_detector()
    oracle, program = session(model), populus.compile(model, tiles=4, engine=engine)
    with pytest.warns(PopulusWarning, match="If: its else_branch cannot be compiled for these sizes"):
        heard(program, oracle, 64, 16000)
    heard(program, oracle, 32, 8000, batch=2)
    with pytest.raises(PopulusError, match="If: the run takes its else_branch, which cannot be compiled for these sizes"):
        program.run({"samples": drawn(1, 64), "state": np.zeros((2, 1, HIDDEN), np.float32), "sr": np.array(8000)})


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(("rate", "samples"), [(16000, 64), (8000, 32)])
def test_a_voice_detector_of_one_rate_has_one_branch(rate, samples):
    model = voice_detector()
    program = populus.compile(model, tiles=4, values={"sr": rate})
    heard(program, session(model), samples, rate)
    assert "popart.if" not in str(program.sized(batch=1, samples=samples).module("popart"))


def test_a_recogniser_reads_lines_of_any_width():
    model = recogniser()
    oracle, program = session(model), populus.compile(model, tiles=4)
    for width in (16, 17, 40, 23, 16):
        given = {"image": drawn(2, 1, 16, width, seed=width)}
        agree(program.run(given), oracle, given)


@pytest.mark.parametrize("engine", ["native", "strict"])
def test_a_detector_gives_as_many_boxes_as_there_are(engine):
    model = detector()
    oracle = session(model)
    program = populus.compile(model, tiles=4, engine=engine, dims={"height": 16, "width": 16})
    counts = set()
    for seed in range(6):
        given = {"image": drawn(1, 3, 16, 16, seed=seed) * np.float32(seed)}
        found = program.run(given)
        agree(found, oracle, given)
        counts.add(len(found["detections"]))
    assert len(counts) > 1


def test_a_detector_takes_images_of_any_size():
    model = detector()
    oracle, program = session(model), populus.compile(model, tiles=4)
    for height, width in ((8, 16), (20, 12)):
        given = {"image": drawn(1, 3, height, width)}
        agree(program.run(given), oracle, given)


def test_a_decoder_writes_the_same_words_after_a_growing_prefix():
    model = decoder()
    oracle, program = session(model), populus.compile(model, tiles=4)
    memory, tokens = drawn(2, 7, 6), np.zeros((2, 1), np.int64)
    for _ in range(6):
        given = {"tokens": tokens, "memory": memory}
        found = program.run(given)
        agree(found, oracle, given)
        tokens = np.concatenate([tokens, found["scores"].argmax(-1)[:, None]], 1)


@pytest.mark.parametrize("engine", ["native", "strict"])
def test_experts_get_the_rows_that_are_theirs(engine):
    model = experts()
    oracle, program = session(model), populus.compile(model, tiles=4, engine=engine, dims={"rows": 7})
    for seed in range(4):
        given = {"x": drawn(7, 6, seed=seed) + np.float32(seed)}
        agree(program.run(given), oracle, given)


def test_experts_take_any_number_of_rows():
    model = experts()
    oracle, program = session(model), populus.compile(model, tiles=4)
    for rows in (1, 5, 12, 6):
        given = {"x": drawn(rows, 6, seed=rows)}
        agree(program.run(given), oracle, given)
