"""The nine `light` nets of the onnx wheel: as shipped, with random weights, at every level, in text, and on more tiles."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnxruntime
import pytest
from onnx import ModelProto, save
from xdsl.dialects.builtin import ModuleOp

import populus
from benchmarks import levels
from benchmarks.models import LIGHT, MODELS, mixed, randomised, transformer
from benchmarks.spread import check_spread, spread
from helpers.command import Command
from helpers.effort import effort
from helpers.wheel_models import NETS, agree, light
from populus.dialects.data import load_blobs, save_blobs
from populus.dialects.poplar.program import GraphOp
from populus.dialects.support.diagnostics import verify
from populus.dialects.support.parser import LocatingParser
from populus.dialects.table import context
from populus.lowering.driver.pipeline import Pipeline
from populus.lowering.onnx.importer import import_onnx
from populus.runtime.session import Session

nets = pytest.mark.parametrize("net", NETS)


def onnxruntime_outputs(path: Path, inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    return dict(zip((o.name for o in session.get_outputs()), session.run(None, inputs)))


def graph_of(module: ModuleOp) -> GraphOp:
    (graph,) = (op for op in module.body.block.ops if isinstance(op, GraphOp))
    return graph


@nets
@pytest.mark.parametrize("target", ["host", "gc200"])
def test_a_net_gives_the_output_that_the_wheel_expects(net: str, target: str, populus: Command):
    expected = light(net).with_name(f"light_{net}_output_0.pb")
    outcome = populus("run", light(net), "--target", target, "--expect", expected)
    assert outcome.status == 0, outcome.err
    assert "agrees" in outcome.out


@nets
def test_a_net_with_random_weights_agrees_with_onnxruntime(net: str, tmp_path: Path):
    """At its logits: a softmax that saturates hides differences, as equal weights do."""
    path = tmp_path / "net.onnx"
    save(randomised(light(net), seed=1, logits=True), path)
    for target in ("host", "gc200"):
        program = populus.compile(path, target=target)
        inputs = program.signature.random(2)
        found = program.run(inputs)
        assert not program.session.fallbacks
        oracle = onnxruntime_outputs(path, inputs)
        check_spread(oracle, net)
        for name, expected in oracle.items():
            assert np.isfinite(expected).all()
            assert np.abs(found[name] - expected).max() < 1e-4 * np.abs(expected).max(), target


@pytest.mark.parametrize("net", ["resnet50", "shufflenet"])
@pytest.mark.parametrize("logits", [True, False])
def test_a_drawn_net_is_not_saturated(net: str, logits: bool, tmp_path: Path):
    """Its activations stay near 1, so that its softmax is not one-hot, and biases are no rounding beside them."""
    path = tmp_path / "net.onnx"
    save(randomised(LIGHT / f"light_{net}.onnx", logits=logits), path)
    oracle = onnxruntime_outputs(path, populus.compile(path).signature.random(1))
    check_spread(oracle, net)
    assert not logits or all(0.05 < e.std() < 5 for e in oracle.values())


def test_a_saturated_output_is_told_from_one_that_shows_mistakes():
    scores = np.random.default_rng(0).normal(size=(1, 100)).astype(np.float32)
    one_hot = np.exp(1000 * (scores - scores.max()))
    assert spread({"y": scores}) == 0.98
    assert (spread({"y": np.maximum(scores, 0)}) or 0) > 0.3
    assert spread({"y": one_hot}) == 0
    assert spread({"y": np.ones(20, np.float32), "z": np.arange(20)}) == 0
    assert spread({"y": np.float32(3), "z": np.arange(20)}) is None
    check_spread({"y": scores}, "scores")
    for saturated in ({"y": one_hot}, {"y": np.ones(20, np.float32)}, {"y": np.full(20, np.nan)}, {}):
        with pytest.raises(AssertionError, match="a net has"):
            check_spread(saturated, "a net")


@pytest.mark.parametrize(
    ("net", "weights"),
    [
        ("squeezenet", "drawn, nodes without names"),
        ("resnet50", "drawn, initializers"),
        ("densenet121", "shipped, Constant nodes"),
        ("shufflenet", "drawn, Constant nodes"),
    ],
)
def test_all_levels_of_a_net_agree_op_by_op(net: str, weights: str):
    """`make levels` compares all nets with each kind of weights."""
    found, places = levels.alarms(dict(levels.variants(light(net)))[weights](), drawn=weights.startswith("drawn"))
    assert found == []
    assert places > 100


@pytest.mark.parametrize(("net", "sample"), [("squeezenet", None), ("shufflenet", 8)])
def test_the_strict_engine_agrees_with_numpy_on_1472_tiles(net: str, sample: int | None):
    program = populus.compile(randomised(light(net), seed=5, logits=True), target="gc200")
    inputs = program.signature.random(6)
    module = program.module("poplar")
    found, expected = (Session(module, engine, sample=s).run(inputs) for engine, s in (("strict", sample), ("numpy", None)))
    check_spread(expected, net)
    for name, e in expected.items():
        assert np.abs(found[name] - e).max() < 1e-5 * np.abs(e).max()


def test_a_sample_of_vertices_is_checked_on_a_large_net():
    program = populus.compile(light("resnet50"), target="gc200", engine="strict", sample=2)
    outputs = program.run(program.signature.random(0))
    assert np.isfinite(outputs["gpu_0/softmax_1"]).all()


# -- text


@pytest.mark.parametrize("model", ["squeezenet", "transformer"])
def test_every_pass_leaves_a_text_that_the_next_may_start_from(model: str, tmp_path: Path):
    """As if each pass ran in a process of its own: nothing passes on but the text and the file of weights."""
    proto: ModelProto = randomised(light(model), seed=7) if model in NETS else transformer(1, 16, 32, 2, 64)
    program = populus.compile(proto, target="gc200", tiles=64)
    inputs = program.signature.random(8)
    expected = program.run(inputs)
    check_spread(expected, model)

    pipeline = Pipeline.named("inference").with_defaults(target="gc200", tiles=64)
    ctx = context()
    module = import_onnx(proto)
    for step in pipeline.passes:
        step.apply(ctx, module)
        verify(module)
        weights = tmp_path / f"{step.name}.safetensors"
        save_blobs(module, weights)
        text, plain = printed(module), str(module)
        del module
        kept = load_blobs(weights)
        ctx = context()
        module = LocatingParser(ctx, text, step.name).parse_module()
        verify(module)
        assert str(module) == plain, step.name
        del kept
    found = Session(module).run(inputs)
    agree(found, expected, rtol=0, atol=0)


def printed(module: ModuleOp) -> str:
    from io import StringIO

    from xdsl.printer import Printer

    out = StringIO()
    Printer(out, print_debuginfo=True).print_op(module)
    return out.getvalue()


def test_every_op_keeps_the_name_of_its_node_down_to_the_tiles():
    module = populus.compile(light("squeezenet"), target="gc200").module("poplar")
    from xdsl.dialects.builtin import UnknownLoc

    lost = [op.name for op in graph_of(module).walk() if isinstance(op.location, UnknownLoc) and op is not graph_of(module)]
    assert not lost


# -- scale


ROOMY = "gc200, tile_bytes=268435456, tiles=5888"  # on 16 tiles of the usual size most nets would wait outside, in copies


def ops_and_nodes(model: ModelProto | Path, tiles: int) -> tuple[int, int]:
    """How many ops of the tile level, and nodes after folding, a model has on a GC200 of so many tiles, with room for it on any number."""
    ctx = context()
    module = import_onnx(model)
    nodes = 0
    for step in Pipeline.named("inference").with_defaults(target=ROOMY, tiles=tiles).passes:
        step.apply(ctx, module)
        if step.name == "onnx-fold-constants":
            nodes = sum(op.name.startswith("onnx.") for op in module.walk())
    return sum(1 for _ in graph_of(module).walk()) - 1, nodes


@pytest.mark.parametrize("model", [*NETS, "bert_layer", "gpt_layer"])
def test_ops_do_not_grow_with_tiles(model: str):
    """Only cuts of contracted axes and of rows add ops: at most 1.7 times as many on 5,888 tiles as on 16, and at most 6 for a node."""
    source = light(model) if model in NETS else MODELS[model]()
    few, nodes = ops_and_nodes(source, 16)
    usual, _ = ops_and_nodes(source, 1472)
    many, _ = ops_and_nodes(source, 5888)
    assert max(few, usual, many) <= 6 * nodes
    assert many <= 1.7 * few, (few, usual, many)
    assert max(few, usual, many) <= 2000


def test_compiling_takes_effort_linear_in_the_number_of_nodes():
    populus.compile(mixed(30))  # tables that are made once
    few, many = (effort(lambda n=n: populus.compile(mixed(n))) for n in (60, 180))
    assert many < 3.3 * few, (few, many)


def test_a_chain_of_500_nodes_gives_what_onnxruntime_gives(tmp_path: Path):
    model = mixed(500)
    assert len(model.graph.node) == 500
    program = populus.compile(model)
    save(model, tmp_path / "mixed.onnx")
    x = {"x": np.random.default_rng(0).normal(size=(1, 64, 8, 8)).astype(np.float32)}
    expected = onnxruntime_outputs(tmp_path / "mixed.onnx", x)["y"]
    np.testing.assert_allclose(program.run(x)["y"], expected, rtol=1e-3, atol=1e-5 * np.abs(expected).max())
