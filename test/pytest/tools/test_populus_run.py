"""populus run: what it prints and writes, and the one line for what cannot be run."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

X = np.array([[1, -2, 3], [0, 5, -6]], np.float32)
W = np.array([[1, 0], [2, 1], [0, -1]], np.float32)
Y = np.maximum(X @ W + 1, 0)
CASES = 26  # of `arguments`, which needs a folder


@pytest.fixture
def model(tmp_path):
    """y = relu(x w + 1), z = x in bytes."""
    graph = helper.make_graph(
        [
            helper.make_node("MatMul", ["x", "w"], ["xw"], name="product"),
            helper.make_node("Add", ["xw", "one"], ["sum"]),
            helper.make_node("Relu", ["sum"], ["y"]),
        ],
        "small",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 3])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", 2])],
        [onnx.numpy_helper.from_array(W, "w"), onnx.numpy_helper.from_array(np.array(1, np.float32), "one")],
    )
    path = tmp_path / "small.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    np.savez(tmp_path / "x.npz", x=X)
    np.savez(tmp_path / "y.npz", y=Y)
    return path


def test_an_output_without_a_type_asks_for_the_sizes(tmp_path, populus):
    x, y = helper.make_tensor_value_info("x", 1, ["n", 3]), helper.make_empty_tensor_value_info("y")
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "g", [x], [y])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), tmp_path / "m.onnx")
    got = populus("run", tmp_path / "m.onnx")
    assert (got.status, got.err) == (1, "populus: output 'y' is no tensor of a known rank; state the sizes, as --dim n=1\n")


def test_outputs_are_written_and_agree_with_what_is_expected(populus, model, tmp_path):
    got = populus(
        "run", model, "--dim", "batch=2", "--inputs", tmp_path / "x.npz", "--outputs", tmp_path / "o.npz", "--expect", tmp_path / "y.npz"
    )
    assert (got.status, got.err) == (0, "")
    assert "agrees" in got.out
    assert np.array_equal(np.load(tmp_path / "o.npz")["y"], Y)


@pytest.mark.parametrize("target", [["--tiles", "1"], ["--target", "gc200", "--tiles", "4"], ["--target", "bow"]])
@pytest.mark.parametrize("engine", ["numpy", "strict"])
def test_machine_and_engine_do_not_change_the_outputs(engine, target, populus, model, tmp_path):
    args = ["--dim", "batch=2", "--inputs", tmp_path / "x.npz", "--expect", tmp_path / "y.npz", "--engine", engine]
    assert populus("run", model, *args, *target).err == ""


@pytest.mark.parametrize("level", ["onnx", "popart", "popops", "poplar"])
def test_every_level_runs(level, populus, model, tmp_path):
    args = ["--dim", "batch=2", "--inputs", tmp_path / "x.npz", "--expect", tmp_path / "y.npz"]
    got = populus("run", model, *args, "--level", level)
    assert (got.status, got.err) == (0, "")
    assert f"at the level {level}" in got.out


def test_check_levels_compares_each_with_the_one_above(populus, model):
    got = populus("run", model, "--dim", "batch=2", "--check-levels")
    assert (got.status, got.err) == (0, "")
    pairs = ("popart agrees with onnx", "popops agrees with popart", "poplar agrees with popops")
    assert [pair in got.out for pair in pairs] == [True] * 3


def test_random_inputs_are_those_of_the_seed(populus, model, tmp_path):
    def outputs(seed):
        populus("run", model, "--dim", "batch=2", "--seed", seed, "--outputs", tmp_path / "o.npz")
        return np.load(tmp_path / "o.npz")["y"]

    assert np.array_equal(outputs(1), outputs(1))
    assert not np.array_equal(outputs(1), outputs(2))


@pytest.mark.parametrize(
    ("options", "served"),
    [
        ([], "one program for batch = 3..4"),
        (["--buckets", "2,8"], "one program for batch = 3..8"),
        (["--buckets", "3,8"], "one program for batch = 1..3"),
        (["--exact"], ""),
        (["--exact", "--dim", "batch=1..5"], "one program for batch = 1..5"),
        (["--buckets", "2", "--check-levels"], ""),
        (["--dim", "batch=1..5", "--check-levels", "--shuffle-orders", "3"], "one program for batch = 1..5"),
    ],
)
def test_open_sizes_have_the_program_of_their_range_or_of_their_own(options, served, populus, model, tmp_path):
    x = np.concatenate([X, X[:1]])
    np.savez(tmp_path / "x.npz", x=x)
    np.savez(tmp_path / "y.npz", y=np.maximum(x @ W + 1, 0))
    got = populus("run", model, *options, "--inputs", tmp_path / "x.npz", "--expect", tmp_path / "y.npz")
    assert (got.status, got.err) == (0, "")
    assert ("one program for" in got.out) == bool(served)
    assert served in got.out


def test_pb_tensors_are_inputs_and_expectations_in_order(populus, model, tmp_path):
    for name, array in (("x", X), ("y", Y)):
        (tmp_path / f"{name}.pb").write_bytes(onnx.numpy_helper.from_array(array).SerializeToString())
    for size in ([], ["--dim", "batch=2"]):  # what the inputs say need not be said again
        got = populus("run", model, *size, "--inputs", tmp_path / "x.pb", "--expect", tmp_path / "y.pb")
        assert (got.status, got.err) == (0, "")


def test_a_module_of_any_level_runs(populus, populus_opt, model, tmp_path):
    args = ["--inputs", tmp_path / "x.npz", "--expect", tmp_path / "y.npz"]
    dumps = tmp_path / "dumps"
    populus_opt(
        model, "--dim", "batch=2", "-p", "onnx-infer-shapes,onnx-fold-constants,onnx-to-popart,popart-to-popops", "--dump-dir", dumps
    )
    for dump in sorted(dumps.glob("*.mlir"))[1:]:
        got = populus("run", dump, *args)
        assert (got.status, got.err) == (0, ""), dump


def test_profile_is_a_page(populus, model, tmp_path):
    assert populus("run", model, "--dim", "batch=2", "--profile", tmp_path / "p.html").status == 0
    page = (tmp_path / "p.html").read_text()
    assert page.startswith("<!doctype html>")
    assert "fullest tile" in page
    assert '"product"' in page  # the node's name


def arguments(folder):
    """Arguments that cannot be, with the line for them; files are made in `folder`."""
    np.savez(folder / "name.npz", xx=X)
    np.savez(folder / "shape.npz", x=X.T)
    np.savez(folder / "dtype.npz", x=X.astype(np.float64))
    np.savez(folder / "none.npz")
    np.savez(folder / "off.npz", y=Y + 1)
    np.savez(folder / "other.npz", z=Y)
    (folder / "pipe.txt").write_text("onnx-infer-shape")
    b = ["--dim", "batch=2"]
    return {
        "no dimension": ([], "batch"),
        "a dimension that the model does not have": (["--dim", "batch=2", "--dim", "rows=3"], "rows"),
        "a dimension that is no number": (["--dim", "batch=x"], "--dim batch=x: expected NAME=N"),
        "buckets that are no numbers": (["--buckets", "2,x"], "--buckets 2,x: expected N,N,.., such as --buckets 64,128,512"),
        "buckets that do not ascend": (["--buckets", "4,2"], "buckets = [4, 2]; ascending sizes of at least 1 are expected"),
        "buckets and exact sizes": (["--buckets", "4", "--exact"], "argument --exact: not allowed with argument --buckets"),
        "an unknown target": ([*b, "--target", "gc20"], "gc200"),
        "no tiles": ([*b, "--tiles", "0"], "argument --tiles: expected a whole number from 1 on, found '0'"),
        "tiles that are no number": ([*b, "--tiles", "few"], "argument --tiles: expected a whole number from 1 on, found 'few'"),
        "more tiles than anything": ([*b, "--tiles", "9999999"], "9999999 tiles are more than"),
        "an unknown engine": ([*b, "--engine", "fast"], "no --engine choice 'fast'; there are auto, native, numpy, strict"),
        "an unknown level": ([*b, "--level", "popnn"], "no --level choice 'popnn'"),
        "an unknown pipeline": ([*b, "--pipeline", "fast"], "no pipeline 'fast'; there are emit, inference, inference-plain"),
        "a pipeline with an unknown pass": (
            [*b, "--pipeline", folder / "pipe.txt"],
            "no pass 'onnx-infer-shape'; did you mean 'onnx-infer-shapes'?",
        ),
        "an input that the model does not have": ([*b, "--inputs", folder / "name.npz"], "the model has no input 'xx'; did you mean 'x'?"),
        "an input that is missing": ([*b, "--inputs", folder / "none.npz"], "input 'x' is missing (tensor<2x3xf32>)"),
        "an input of another shape": ([*b, "--inputs", folder / "shape.npz"], "input 'x' has shape [3, 2], expected [2, 3]"),
        "an input of another dtype": (
            [*b, "--inputs", folder / "dtype.npz"],
            "input 'x' is float64, expected float32; array.astype('float32') converts it",
        ),
        "a file of inputs that is not there": ([*b, "--inputs", folder / "no.npz"], "no.npz: no such file"),
        "an output that is not expected": (
            [*b, "--inputs", folder / "x.npz", "--expect", folder / "off.npz"],
            "'y' does not agree: it differs by",
        ),
        "an expectation of another name": ([*b, "--expect", folder / "other.npz"], "the expected 'z' is not an output; there are y"),
        "a profile of a level without one": ([*b, "--level", "popops", "--profile", folder / "p.html"], "--profile needs the poplar level"),
        "an unknown option": ([*b, "--tile", "3", "--fast"], "unrecognized arguments: --fast"),
        "outputs in no folder": ([*b, "--outputs", "/no/such/o.npz"], "/no/such/o.npz: cannot be written"),
        "a file to load that is not there": ([*b, "--load", "no.py"], "no.py: no such file; --load takes a Python file"),
        "sampling none": ([*b, "--engine", "strict", "--sample", "0"], "argument --sample: expected a whole number from 1 on, found '0'"),
    }


@pytest.mark.parametrize("case", range(CASES))
def test_what_cannot_be_run_is_one_line(case, populus, model, tmp_path):
    what, (args, message) = list(arguments(tmp_path).items())[case]
    got = populus("run", model, *args)
    usage = message.startswith(("--dim", "--buckets", "--profile", "argument", "no --", "unrecognized", "gc200", "9999999"))
    usage |= what == "an unknown pipeline"
    assert got.status == (2 if usage else 1), what
    assert got.err.count("\n") == 1, what
    assert got.err.startswith("populus: "), what
    assert message in got.err, what


def test_every_case_is_tried(tmp_path):
    assert len(arguments(tmp_path)) == CASES


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("no.onnx", None, "no such file"),
        ("x.txt", b"", "neither .onnx nor .mlir"),
        ("text.onnx", b"hello there", "not an ONNX model"),
        ("empty.onnx", b"", "not an ONNX model"),
        ("x.mlir", b"func.func @other() {\n  func.return\n}", "the module has no func.func @main to run"),
        ("y.mlir", b"func.func @main(", "y.mlir:1:17: "),
    ],
)
def test_what_is_no_model_is_one_line(name, content, message, populus, tmp_path):
    if content is not None:
        (tmp_path / name).write_bytes(content)
    got = populus("run", tmp_path / name)
    assert got.status == 1
    assert got.err.count("\n") == 1
    assert message in got.err


def test_an_op_of_the_user_is_loaded_and_run(populus, tmp_path):
    (tmp_path / "own.py").write_text(
        '"""A custom op."""\n'
        "from typing import ClassVar\n"
        "from xdsl.irdl import irdl_op_definition\n"
        "from populus.dialects.popart.base import UnaryOp\n"
        "@irdl_op_definition\n"
        "class CubeOp(UnaryOp):\n"
        '    """`y = x^3`."""\n'
        '    name = "own.cube"\n'
        '    ONNX: ClassVar = ("own", "Cube", 1)\n'
        "    def forward(self, x):\n"
        "        return x * x * x\n"
    )
    graph = helper.make_graph(
        [helper.make_node("Cube", ["x"], ["y"], domain="own")],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 3])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [2, 3])],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("own", 1)], ir_version=8), tmp_path / "cube.onnx")
    np.savez(tmp_path / "x.npz", x=X)
    np.savez(tmp_path / "y.npz", y=X * X * X)
    args = ["--inputs", tmp_path / "x.npz", "--expect", tmp_path / "y.npz", "--load", tmp_path / "own.py", "--engine", "strict"]
    got = populus("run", tmp_path / "cube.onnx", *args, "--check-levels")
    assert (got.status, got.err) == (0, "")
    assert "onnx is not compared" in got.out
    got = populus("run", tmp_path / "cube.onnx")
    assert got.status == 1
    assert "give the file that defines it with --load FILE.py" in got.err
