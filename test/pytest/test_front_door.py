"""The first things that somebody does in Python: what is there, what a model may be, what a program and a profile look like."""

from __future__ import annotations

import inspect
import pydoc
import subprocess
import sys
import webbrowser
from dataclasses import fields
from importlib import metadata
from types import SimpleNamespace
from typing import get_args

import numpy as np
import pytest
from onnx import TensorProto, helper, save

import populus
from populus import PopulusError
from populus.dialects.support.errors import PopulusWarning
from populus.lowering.driver.phases import LEVELS
from populus.program.options import ACCURACIES, AccuracyName, CompileOptions, EngineName, LevelName
from populus.runtime.engine.choice import ENGINES
from populus.runtime.session import Session

INFO = [helper.make_tensor_value_info(n, TensorProto.FLOAT, ["n", 4]) for n in "xy"]
GRAPH = helper.make_graph([helper.make_node("Exp", ["x"], ["y"], "<b>exp</b>")], "g", INFO[:1], INFO[1:])
MODEL = helper.make_model(GRAPH, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
X = np.linspace(-1, 1, 8, dtype=np.float32).reshape(2, 4)
SIZES = {"n": 2}


def compiled(model=MODEL, **options):
    return populus.compile(model, **{"dims": SIZES, "tiles": 2, **options})


def test_public_names_are_listed_before_they_are_imported():
    assert [name for name in dir(populus) if not name.startswith("__")] == sorted(populus.__all__)
    assert all(getattr(populus, name) is not None for name in populus.__all__)


def models(folder):
    """Every kind of model that needs no torch."""
    save(MODEL, folder / "m.onnx")
    yield from (folder / "m.onnx", str(folder / "m.onnx"), MODEL, MODEL.SerializeToString(), bytearray(MODEL.SerializeToString()))
    yield SimpleNamespace(to_model_proto=lambda: MODEL)  # as onnxscript's functions have it
    yield SimpleNamespace(model_proto=MODEL)  # as what torch.onnx.export returns


def test_a_model_may_be_a_path_bytes_a_proto_or_a_function(tmp_path):
    for model in models(tmp_path):
        np.testing.assert_allclose(compiled(model).run({"x": X})["y"], np.exp(X), rtol=1e-6)
    module = compiled().module("popart")
    np.testing.assert_allclose(populus.compile(module, tiles=2).run({"x": X})["y"], np.exp(X), rtol=1e-6)


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (3, "`model` is a builtins.int; expected a path, bytes, a ModelProto"),
        (None, "`model` is a builtins.NoneType"),
        (type(MODEL), "expected a path"),
        ([MODEL], "`model` is a builtins.list"),
        (b"", "`model` is 0 bytes, which are no ONNX model"),
        (b"\xff\xff\xff", "`model` is 3 bytes, which are no ONNX model"),
        ("none.onnx", "none.onnx: no such file"),
        (".", ".: neither .onnx nor .mlir"),
    ],
)
def test_what_is_no_model_is_refused(model, message):
    with pytest.raises(PopulusError) as refused:
        populus.compile(model)
    assert message in str(refused.value)
    assert "\n" not in str(refused.value)


def test_help_of_compile_has_every_option():
    described = inspect.signature(populus.compile)
    for field in fields(CompileOptions):
        assert field.name in described.parameters
        assert f"`{field.name}`" in (populus.compile.__doc__ or ""), field.name
    shown = pydoc.render_doc(populus.compile, renderer=pydoc.plaintext)
    assert "compile(model" in shown
    assert "`accuracy`: `exact` computes" in shown
    assert len(str(described)) < 1600, "a default of a hundred numbers is not shown whole"


def test_literals_of_options_name_what_there_is():
    assert get_args(EngineName) == ("auto", "native", "numpy", "strict")
    assert set(get_args(EngineName)) == set(ENGINES)
    assert get_args(LevelName) == tuple(LEVELS)
    assert get_args(AccuracyName) == tuple(ACCURACIES)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"tiles": "all"}, "tiles = 'all'; expected a whole number"),
        ({"tiles": True}, "tiles = True; expected a whole number"),
        ({"threads": "2"}, "threads = '2'; expected a whole number"),
        ({"sample": 1.5}, "sample = 1.5; expected a whole number"),
        ({"target": 200}, "target = 200; expected a text"),
        ({"engine": 3}, "engine = 3; expected a text"),
        ({"engine": "natvie"}, "no engine 'natvie'; did you mean 'native'?"),
        ({"level": 1}, "level = 1; expected a text"),
        ({"accuracy": 2}, "accuracy = 2; expected a text"),
        ({"dims": [1]}, "dims = [1]; expected a dict of sizes by name"),
        ({"bounds": [1]}, "bounds = [1]; expected a dict by name"),
        ({"values": [1]}, "values = [1]; expected a dict by name"),
        ({"buckets": "64"}, "buckets = '64'; ascending sizes of at least 1 are expected, such as [64, 128, 512]"),
        ({"buckets": 64}, "buckets = 64; ascending sizes of at least 1 are expected, such as [64, 128, 512]"),
        ({"pipeline": 3}, "pipeline = 3; expected a name, a file or a Pipeline"),
        ({"cache": 3}, "cache = 3; expected True, False or a folder"),
        ({"load": "ops.py"}, "load = 'ops.py'; expected a list of files, such as ['ops.py']"),
        ({"target": "gc200", "tiles": 5000}, "tiles = 5000, and a gc200 has 1472; target='gc200, tiles=5000' is a machine with more"),
    ],
)
def test_an_option_of_another_type_or_size_is_told_in_one_line(options, message):
    with pytest.raises(PopulusError) as refused:
        populus.compile(MODEL, **options)
    assert str(refused.value) == message


def test_the_version_is_that_of_the_package():
    assert populus.__version__ == metadata.version("populus-tiles")
    done = subprocess.run(
        [sys.executable, "-c", "import sys, populus; print('importlib.metadata' in sys.modules, populus.__version__)"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split() == ["False", populus.__version__], "it is looked up when it is asked for"


def test_example_inputs_are_for_torch_alone():
    with pytest.raises(PopulusError, match="example_inputs are given, and `model` is a .*ModelProto; only torch's modules"):
        populus.compile(MODEL, example_inputs=(X,))


def test_a_module_of_torch_is_exported():
    torch = pytest.importorskip("torch")
    pytest.importorskip("onnxscript")
    module = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.Tanh())
    example = (torch.from_numpy(X),)
    expected = module(*example).detach().numpy()
    for model, options in ((module, {"example_inputs": example}), (torch.export.export(module, example), {})):
        program = populus.compile(model, tiles=2, **options)
        (name,) = program.signature.inputs
        (found,) = program.run({name: X}).values()
        np.testing.assert_allclose(found, expected, rtol=1e-5)
    with pytest.raises(PopulusError, match="state example_inputs"):
        populus.compile(module)


def test_what_torch_says_while_it_exports_is_kept_from_the_user(capfd, recwarn):
    torch = pytest.importorskip("torch")
    pytest.importorskip("onnxscript")
    module = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.BatchNorm1d(3), torch.nn.Dropout(0.5)).eval()
    x = torch.from_numpy(X)
    (found,) = populus.compile(module, example_inputs=x, tiles=2).run(x).values()
    np.testing.assert_allclose(found, module(x).detach(), rtol=1e-5, atol=1e-6)
    for example, message in (
        (torch.ones(2, 5), r"torch cannot export `model`: a and b must have same reduction dim, but got \[2, 5\] X \[4, 3\]\.$"),
        ((x, x), "torch cannot export `model`: too many positional arguments$"),
        ((X,), "torch cannot export `model`: Unsupported input type <class 'numpy.ndarray'>"),
    ):
        with pytest.raises(PopulusError, match=message):
            populus.compile(module, example_inputs=example)
    assert capfd.readouterr() == ("", "")
    assert not recwarn.list


def test_a_module_of_torch_in_training_mode_is_exported_with_a_warning(recwarn):
    torch = pytest.importorskip("torch")
    pytest.importorskip("onnxscript")
    x, linear = torch.from_numpy(X), torch.nn.Linear(4, 3)
    populus.compile(linear, example_inputs=(x,))
    assert not recwarn.list, "a product is the same in both modes"
    for other in (torch.nn.Dropout(0.5), torch.nn.BatchNorm1d(3)):
        with pytest.warns(PopulusWarning, match=r"in training mode: .* call model.eval\(\) first") as said:
            populus.compile(torch.nn.Sequential(linear, other), example_inputs=(x,))
        assert said[0].filename == __file__


def test_objects_say_what_they_are():
    program = compiled(target="gc200")
    assert repr(program) == "<Program (x: f32[2, 4]) -> (y: f32[2, 4]) on gc200, 2 tiles, engine auto, level poplar>"
    assert repr(populus.compile(MODEL)).startswith("<OpenProgram of n: buckets")
    profile = program.profile()
    assert repr(profile).startswith(f"<Profile on gc200: {profile.summary['cycles']:,} cycles, ")
    assert repr(Session(program.module("poplar"), "numpy")) == "<Session (x: float32[2, 4]) -> (y: float32[2, 4]), engine numpy>"


def test_a_notebook_shows_signature_and_costs():
    program = compiled()
    shown = program._repr_html_()
    assert "x: f32[2, 4]" in shown
    assert "<svg" in shown
    assert f"{program.profile().summary['cycles']:,}" in shown
    assert "<svg" not in populus.compile(MODEL)._repr_html_()
    assert "<svg" not in compiled(level="popops")._repr_html_()


def test_a_program_shows_its_page(tmp_path, monkeypatch):
    opened = []
    monkeypatch.setattr(webbrowser, "open", opened.append)
    program = compiled()
    path = program.show(tmp_path / "p.html")
    assert opened == [f"file://{tmp_path / 'p.html'}"]
    text = (tmp_path / "p.html").read_text()
    assert text.startswith("<!doctype html>")
    assert "<b>exp" not in text, "a name is text"
    program.profile().to_html(tmp_path / "q.html")
    assert (tmp_path / "q.html").read_text() == text
    assert path == str(tmp_path / "p.html")
    for fail in (lambda: program.show(tmp_path / "no" / "p.html"), lambda: program.profile().to_html(tmp_path / "no" / "p.html")):
        with pytest.raises(PopulusError, match="cannot be written"):
            fail()


WRONG = [
    ("path", populus.load),
    ("folder", populus.load_program),
    ("folder", lambda bad: populus.build(compiled(), bad)),
    ("program", lambda bad: populus.build(bad, "built")),
    ("name", populus.net),
    ("op", populus.content_hash),
    ("op", populus.function_of),
    ("model", populus.compile),
    ("model", lambda bad: populus.train(bad, {})),
    ("model", populus.TrainingSession),
    ("model", lambda bad: populus.vjp(bad, ["x"])),
]
"""An argument of a public function, and a call with it."""


@pytest.mark.parametrize("bad", [None, 3, 2.5, [], object()], ids=["None", "3", "2.5", "[]", "object"])
@pytest.mark.parametrize(("argument", "call"), WRONG)
def test_an_argument_of_another_type_is_named_in_one_line(argument, call, bad):
    with pytest.raises(populus.ProgramError, match=f"`{argument}` is a ") as caught:
        call(bad)
    assert "\n" not in str(caught.value)
    assert call is populus.load_program or isinstance(caught.value, PopulusError)  # which needs NumPy alone


TILES = """poplar.graph @main target <gc200, tiles = 4> {
  %x = poplar.var "x" on [4 in 4] order [0] : !poplar.tensor<4xf32>
  poplar.stream_in "x" to %x : !poplar.tensor<4xf32>
  poplar.stream_out %x to "y" : !poplar.tensor<4xf32>
}
"""


def test_a_tile_program_takes_no_machine_but_its_own(tmp_path):
    path = tmp_path / "tiles.mlir"
    path.write_text(TILES)
    for other in ({"tiles": 8}, {"target": "gc2"}, {"target": "gc200, tiles=8"}):
        with pytest.raises(PopulusError, match=f"^{path}: a tile program for 'gc200, tiles=4', which no option changes; leave out"):
            populus.compile(path, engine="numpy", **other)
    module = populus.compile(path, engine="numpy").module("poplar")
    with pytest.raises(PopulusError, match="^a tile program for 'gc200, tiles=4', which no option changes"):
        populus.compile(module, engine="numpy", tiles=8)
    for own in ({}, {"tiles": 4}, {"target": "gc200"}, {"target": "gc200, tiles=4"}):
        found = populus.compile(module, engine="numpy", **own).run({"x": np.arange(4, dtype=np.float32)})
        assert found["y"].tolist() == [0, 1, 2, 3]
