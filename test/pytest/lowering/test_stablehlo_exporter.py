"""Export to StableHLO: each op that has a form there, as XLA runs it, against the popart level; nets; what is refused."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper, save

import populus
from benchmarks.models import MODELS, transformer
from helpers.op_cases import Case, cases
from populus.dialects.support.diagnostics import PopulusError
from populus.dialects.table import context
from populus.lowering.popart.to_popops import PopartToPopopsPass
from populus.lowering.stablehlo.exporter import export_stablehlo
from populus.runtime.interpreter import run_function
from populus.tools.export import stablehlo

pytest.importorskip("jax", reason="XLA is the oracle")
from populus.compare import xla

REFUSED = {
    "all_gather", "all_reduce", "all_to_all", "barrier", "broadcast", "kernel", "pack", "packed_matmul", "random", "reduce_scatter",
    "replica_index", "unpack",
}  # fmt: skip


def text_of(case: Case) -> str | None:
    module = case.module()
    PopartToPopopsPass().apply(context(), module)
    try:
        return "".join(export_stablehlo(module))
    except PopulusError as error:
        if "has no form in StableHLO" not in str(error) and "elements of less than a byte" not in str(error):
            raise
        return None


def test_every_op_is_exported_as_it_computes():
    refused, agreed = set[str](), set[str]()
    for case in cases():
        name = case.op.name.removeprefix("popart.")
        text = text_of(case)
        if text is None:
            refused.add(name)
            continue
        found = xla.run(text, list(case.inputs.values()))
        expected = [np.asarray(a) for a in run_function(case.module(), case.inputs).values()]
        assert len(found) == len(expected)
        for a, b in zip(found, expected):
            assert (a.dtype, a.shape) == (b.dtype, b.shape), case.id
            rtol = 1e-2 if a.dtype.itemsize == 2 else 1e-4
            np.testing.assert_allclose(a.astype(np.float64), b.astype(np.float64), rtol=rtol, atol=1e-5, err_msg=case.id)
        agreed.add(name)
    assert refused - agreed <= REFUSED
    assert len(agreed) > 100


MODEL = {"digits": lambda: str(populus.net("digits")), "squeezenet": MODELS["squeezenet"], "bert": lambda: transformer(4, 8, 32, 2, 64)}


@pytest.mark.parametrize("name", MODEL)
def test_a_net_is_exported_as_it_computes(name):
    text = "".join(stablehlo(MODEL[name]()))
    program = populus.compile(MODEL[name]())
    inputs = program.signature.random(0)
    for a, b in zip(xla.run(text, list(inputs.values())), program.run(inputs).values(), strict=True):
        assert np.abs(a - b).max() < 1e-5 * np.abs(b).max()


def test_an_exported_file_is_read_again_with_its_names(tmp_path, populus_command):
    got = populus_command("export", "digits", "-o", tmp_path / "d.mlir")
    assert (got.status, got.err) == (0, "")
    program, again = populus.compile(str(populus.net("digits"))), populus.compile(tmp_path / "d.mlir")
    assert str(again.signature) == str(program.signature)
    inputs = program.signature.random(0)
    np.testing.assert_allclose(again.run(inputs)["shares"], program.run(inputs)["shares"], rtol=1e-5)


def test_numbers_that_are_not_finite_are_exported(tmp_path):
    text = """func.func @main(%x: tensor<3xf32>) -> tensor<3xf32> {
      %c = data.constant dense<"0x0000807F0000C07F000080FF"> : tensor<3xf32>
      %n = data.constant dense<"0x000080FF"> : tensor<f32>
      %y = "popart.min"(%x, %c) : (tensor<3xf32>, tensor<3xf32>) -> tensor<3xf32>
      %z = "popart.max"(%y, %n) : (tensor<3xf32>, tensor<f32>) -> tensor<3xf32>
      func.return %z : tensor<3xf32> }"""
    file = tmp_path / "m.mlir"
    file.write_text(text)
    x = np.array([1, 2, 3], np.float32)
    written = "".join(stablehlo(file))
    np.testing.assert_array_equal(xla.run(written, [x])[0], np.array([1, np.nan, -np.inf], np.float32))
    file.write_text(written)
    np.testing.assert_array_equal(populus.compile(file).run(x)["output_0"], np.array([1, np.nan, -np.inf], np.float32))


@pytest.mark.parametrize(
    ("name", "more", "said"),
    [
        ("o.mlir", ["--level", "onnx"], "StableHLO is written from what popart computes; leave out --level onnx"),
        ("o.txt", [], "the name of an .onnx or .mlir file is expected"),
    ],
)
def test_a_name_that_does_not_fit_is_refused(name, more, said, tmp_path, populus_command):
    got = populus_command("export", "digits", "-o", tmp_path / name, *more)
    assert got.status == 1 and said in got.err and got.err.count("\n") == 1
    assert not (tmp_path / name).exists()


def test_what_has_no_form_is_refused_and_nothing_is_written(tmp_path, populus_command):
    node = helper.make_node("RandomNormal", [], ["y"], "draw", shape=[2])
    graph = helper.make_graph([node], "g", [], [helper.make_tensor_value_info("y", TensorProto.FLOAT, [2])])
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), tmp_path / "m.onnx")
    got = populus_command("export", tmp_path / "m.onnx", "-o", tmp_path / "o.mlir")
    assert got.status == 1 and got.err.count("\n") == 1
    assert "'draw'" in got.err and "poprand.random has no form in StableHLO" in got.err
    assert not (tmp_path / "o.mlir").exists()


@pytest.fixture
def populus_command(request):
    return request.getfixturevalue("populus")
