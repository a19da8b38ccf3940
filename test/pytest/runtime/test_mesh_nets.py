"""A layer of BERT, steps of decoding and training on meshes: results by the definition, of weights as the machine keeps them."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper
from onnx.reference import ReferenceEvaluator

import populus
from benchmarks.models import Graph, cached_layer, transformer
from populus.dialects.support.block_floats import rounded

SMALL = "columns=4, rows=2"  # of either machine's cores
NETS = {
    "bert": lambda: transformer(sequence=16, hidden=64, heads=4, feed_forward=128),
    "decoding": lambda: cached_layer(past=15, hidden=64, heads=4),
}


def with_rounded_weights(model: onnx.ModelProto, format: str | None) -> onnx.ModelProto:
    """Rounds the matrices that products multiply, whose columns are channels out."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    read = {name for node in copy.graph.node if node.op_type == "MatMul" for name in node.input}
    for tensor in copy.graph.initializer if format else ():
        if tensor.name in read and len(tensor.dims) == 2:
            array = rounded(numpy_helper.to_array(tensor), format or "", 1)
            tensor.CopyFrom(numpy_helper.from_array(array, tensor.name))
    return copy


@pytest.mark.parametrize("format", [None, "bfp8", "bfp4"])
@pytest.mark.parametrize("machine", ["n150", "p150"])
@pytest.mark.parametrize("net", NETS)
def test_a_layer_on_a_mesh_has_the_results_of_the_definition(net: str, machine: str, format: Any):
    model = NETS[net]()
    programs = {e: populus.compile(model, target=f"{machine}, {SMALL}", engine=e, weight_format=format) for e in ("native", "strict")}
    inputs = programs["native"].signature.random()
    plain, wanted = (ReferenceEvaluator(with_rounded_weights(model, f)).run(None, inputs) for f in (None, format))
    for engine, program in programs.items():
        assert program.profile().summary["fits"], engine
        for found, expected in zip(program.run(inputs).values(), wanted):
            assert np.abs(found - expected).max() <= 2e-6 * max(np.abs(expected).max(), 1), engine
    if format is not None:
        assert np.abs(plain[0] - wanted[0]).max() > 1e-4 * np.abs(wanted[0]).max()


@pytest.mark.parametrize("machine", ["n150", "p150"])
def test_a_step_of_training_on_a_mesh_is_that_of_the_host(machine: str):
    g = Graph()
    model = g.model("mlp", g.linear(g.op("Relu", g.linear("x", 20, 32)), 32, 5), [8, 5], inputs=[8, 20])
    draw = np.random.default_rng(3)
    x, labels = draw.standard_normal((8, 20)).astype(np.float32), draw.integers(0, 5, 8, np.int32)
    found: dict[str, list[float]] = {}
    for target, engine in (("host", "numpy"), (f"{machine}, {SMALL}", "native"), (f"{machine}, {SMALL}", "strict")):
        session = populus.TrainingSession(model, optimizer="sgd", hyper={"lr": 0.1}, target=target, engine=engine)
        found[engine] = [float(session.step({"x": x}, labels)) for _ in range(3)]
    assert found["native"] == pytest.approx(found["numpy"], rel=1e-5) and found["strict"] == pytest.approx(found["numpy"], rel=1e-5)
    assert found["numpy"][2] < found["numpy"][0]
