"""Export at the level popart: each op that ONNX has a form of, as onnxruntime runs it, against the popart level itself."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, save

import populus
from helpers.op_cases import Case, cases
from populus.dialects.support.diagnostics import PopulusError
from populus.lowering.popart.exporter import RULES, export_popart
from populus.runtime.interpreter import run_function

OPTIONS = onnxruntime.SessionOptions()
OPTIONS.log_severity_level = 4
OPTIONS.intra_op_num_threads = 1

# Cases that onnxruntime 1.31 has no kernel for, or computes otherwise than ONNX says: of means of nothing, and of maxima of NaN.
NOT_ITS = {"cast_to_bfloat", "where_bool", "lrn_4", "reduce_mean_empty", "reduce_max_nan"}
REFUSED = {
    "all_gather", "all_reduce", "all_to_all", "atan2", "barrier", "batch_variance", "bit_cast", "broadcast", "dequantize",
    "expm1", "if", "kernel", "log1p", "loop", "pack", "packed_matmul", "quantize", "random",
    "reduce_scatter", "replica_index", "unpack", "yield",
}  # fmt: skip


def run(model: onnx.ModelProto, inputs: dict[str, np.ndarray]) -> list[np.ndarray]:
    session = onnxruntime.InferenceSession(model.SerializeToString(), OPTIONS, providers=["CPUExecutionProvider"])
    return session.run(None, inputs)


def exported(case: Case) -> onnx.ModelProto | None:
    try:
        return export_popart(case.module())
    except PopulusError as error:
        if "has no form in ONNX" not in str(error) and "varies between rows" not in str(error):
            raise
        return None


def test_every_op_is_exported_as_it_computes():
    refused, agreed = set[str](), set[str]()
    for case in cases():
        model = exported(case)
        if model is None:
            refused.add(case.op.name.removeprefix("popart."))
            continue
        onnx.checker.check_model(model)
        if case.id in NOT_ITS:
            continue
        (found,) = run(model, dict(case.inputs))
        (expected,) = (np.asarray(a) for a in run_function(case.module(), case.inputs).values())
        assert (found.dtype, found.shape) == (expected.dtype, expected.shape), case.id
        rtol = 1e-2 if found.dtype == np.float16 else 1e-4
        np.testing.assert_allclose(found.astype(np.float64), expected.astype(np.float64), rtol=rtol, atol=1e-5, err_msg=case.id)
        agreed.add(case.op.name.removeprefix("popart."))
    assert refused <= REFUSED
    assert set(RULES) - agreed <= {"detach"}, "no case of these rules"


@pytest.mark.parametrize("level", ["onnx", "popart"])
def test_a_model_is_exported_with_the_names_of_its_nodes(level, populus_command, tmp_path):
    rng = np.random.default_rng(0)
    w = onnx.numpy_helper.from_array(rng.standard_normal((3, 2, 3, 3)).astype(np.float32), "w")
    info = [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in (("x", [1, 2, 6, 6]), ("y", None))]
    nodes = [helper.make_node("Conv", ["x", "w"], ["c"], "conv"), helper.make_node("Relu", ["c"], ["y"], "relu")]
    graph = helper.make_graph(nodes, "g", info[:1], info[1:], [w])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    save(model, tmp_path / "m.onnx")
    got = populus_command("export", tmp_path / "m.onnx", "--level", level, "-o", tmp_path / "o.onnx")
    assert (got.status, got.err) == (0, "")
    assert f"wrote {tmp_path / 'o.onnx'}" in got.out
    made = onnx.load(tmp_path / "o.onnx")
    onnx.checker.check_model(made, full_check=True)
    assert {"conv", "relu"} <= {n.name for n in made.graph.node}
    x = {"x": rng.standard_normal((1, 2, 6, 6)).astype(np.float32)}
    np.testing.assert_allclose(run(made, x)[0], run(model, x)[0], rtol=1e-5)
    np.testing.assert_allclose(populus.compile(made).run(x)["y"], run(model, x)[0], rtol=1e-4, atol=1e-5)


@pytest.fixture
def populus_command(request):
    return request.getfixturevalue("populus")


def test_what_has_no_form_is_refused_and_nothing_is_written(populus_command, tmp_path):
    save(
        helper.make_model(
            helper.make_graph(
                [helper.make_node("RandomNormal", [], ["y"], "draw", shape=[2])],
                "g", [], [helper.make_tensor_value_info("y", TensorProto.FLOAT, [2])],
            ), opset_imports=[helper.make_opsetid("", 17)], ir_version=8,
        ), tmp_path / "m.onnx",
    )  # fmt: skip
    got = populus_command("export", tmp_path / "m.onnx", "-o", tmp_path / "o.onnx")
    assert got.status == 1
    assert got.err.count("\n") == 1
    assert "popart.random has no form in ONNX" in got.err
    assert not (tmp_path / "o.onnx").exists()
