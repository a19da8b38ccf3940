"""Mistakes of the first hour: each is answered by one line that says what to do, and its exit status tells arguments from files."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

import populus as package
from populus.dialects.support.diagnostics import no_file
from populus.tools.command import LONGEST, typed
from populus.tools.train import UNKEPT, divergence

OPS = """from populus.custom import *


@irdl_op_definition
class RectOp(UnaryOp):
    '''`y = max(x, 0)`. Source: ONNX Relu-14.'''

    name = "acme.rect"

    def forward(self, x: Expr) -> Expr:
        return {formula}
"""
MACHINE = """from populus.dialects.poplar.machine import machine

MACHINE = machine(kind="ipu", name="edge", tile_bytes=65536, {fields})
"""
TEXT = """func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
  %y = popart.relu %xs : tensor<4xf32>

  func.return %y : tensor<4xf32>
}
"""
LOST = """func.func @main(%x: tensor<99xf32>) -> tensor<99xf32> {
  %w = data.constant #data.stored<"2617e9bab66a3ed8"> : tensor<99xf32>
  %y = popart.add %x, %w : (tensor<99xf32>, tensor<99xf32>) -> tensor<99xf32>
  func.return %y : tensor<99xf32>
}
"""

TILES = """poplar.graph @main target <gc200, tiles = 4> {
  %x = poplar.var "x" on [4 in 4] order [0] : !poplar.tensor<4xf32>
  poplar.stream_in "x" to %x : !poplar.tensor<4xf32>
  poplar.stream_out %x to "y" : !poplar.tensor<4xf32>
}
"""
MADE = "tiles.mlir: a tile program for 'gc200, tiles=4', which no option changes; leave out --target and --tiles"

RUN = ("run", "digits.onnx")
EXPLORE = ("explore", "digits")
TRAIN = ("train", "digits.onnx", "--data", "name.npz")
MISTAKES = {
    "a file that is not there": (("run", "digitz.onnx"), 1, "digitz.onnx: no such file; did you mean 'digits.onnx'?"),
    "a misspelt net": (("run", "squeezenett"), 1, "did you mean 'squeezenet'?"),
    "a folder as model": (("run", "."), 1, ".: neither .onnx nor .mlir"),
    "a misspelt target": ((*RUN, "--target", "gc20"), 2, "no target 'gc20'; did you mean 'gc200'?"),
    "a misspelt engine": ((*RUN, "--engine", "natvie"), 2, "did you mean 'native'?"),
    "a misspelt command": (("rum",), 2, "did you mean 'run'?"),
    "a misspelt level": ((*RUN, "--level", "popop"), 2, "did you mean 'popops'?"),
    "a misspelt option": ((*RUN, "--targett", "gc200"), 2, "no option '--targett'; did you mean '--target'?"),
    "a misspelt pipeline": ((*RUN, "--pipeline", "inferense"), 2, "no pipeline 'inferense'; did you mean 'inference'?"),
    "a size of 5,000 digits": ((*RUN, "--dim", "n=" + "9" * 5000), 2, "expected NAME=N or NAME=LEAST..GREATEST"),
    "a size in other digits": ((*RUN, "--dim", "n=\u0663"), 2, "expected NAME=N or NAME=LEAST..GREATEST"),
    "a machine's field of 5,000 digits": ((*RUN, "--target", "gc200, tiles=" + "9" * 5000), 2, "is not FIELD=N, such as tiles=64"),
    "a value of 5,000 digits": ((*RUN, "--value", "n=" + "9" * 5000), 2, "expected NAME=V with a number"),
    "no tiles": ((*RUN, "--tiles", "0"), 2, "expected a whole number from 1 on, found '0'"),
    "more tiles than there are": (
        (*RUN, "--target", "gc200", "--tiles", "5000"),
        2,
        "tiles = 5000, and a gc200 has 1472; --target 'gc200, tiles=5000' is a machine with more",
    ),
    "no comma before a field": ((*RUN, "--target", "gc200 tiles=4"), 2, "a comma before each FIELD=N, such as 'gc200, tiles=64'"),
    "a machine for a profile": (
        ("profile", "p.json", "--target", "n150"),
        2,
        "p.json: a profile is shown as it is; give --target with the model",
    ),
    "plans to write of a profile": (
        ("profile", "p.json", "--plan-to", "p", "--no-weights"),
        2,
        "give --plan-to, --no-weights with the model",
    ),
    "a misspelt measure": ((*EXPLORE, "--minimise", "cycle"), 2, "minimise: no measure 'cycle'; did you mean 'cycles'?\n"),
    "a misspelt machine": ((*EXPLORE, "--machine", "gc20"), 2, "no target 'gc20'; did you mean 'gc200'?\n"),
    "an option of other commands": ((*EXPLORE, "--target", "gc200"), 2, "no option '--target'; did you mean '--machine'?"),
    "a misspelt technology": ((*EXPLORE, "--technology", "8nm"), 2, "no technology '8nm'; did you mean '7nm'?; there are 45nm, 7nm,"),
    "no range": ((*EXPLORE, "--vary", "tiles=a:b"), 2, "vary tiles: 'a:b' is no range; expected LEAST:GREATEST:STEP"),
    "a misspelt field": ((*EXPLORE, "--vary", "tile=8"), 2, "vary tile: gc200 has no such field, and there is no such"),
    "a text without ops": (("run", "comment.mlir"), 1, "comment.mlir:2:1: there is no op in it; expected a module\n"),
    "a misspelt field of a plan": ((*RUN, "--plan", "wrong.plan"), 1, "wrong.plan:1: no field 'outs=2'; did you mean 'out'?\n"),
    "a name that no machine has": (("new-target", "my chip"), 2, "'my chip' is not a name for a machine"),
    "a module without its weights": (
        ("run", "lost.mlir"),
        1,
        "is not loaded; give the file of weights that was written beside the module:",
    ),
    "another machine for a tile program": (("profile", "tiles.mlir", "--target", "bow"), 1, MADE),
    "another number of tiles for a tile program": (("run", "tiles.mlir", "--tiles", "8"), 1, MADE),
    "another machine's memory for a tile program": (("run", "tiles.mlir", "--target", "gc200, tile_bytes=8192"), 1, MADE),
    "phases for a tile program, whose machine has none": (("run", "tiles.mlir", "--target", "n150", "--fidelity", "LoFi"), 1, MADE),
    "a wrong shape": ((*RUN, "--inputs", "shape.npz"), 1, "has shape [4, 8, 8], expected [1, 1, 8, 8]"),
    "a wrong dtype": ((*RUN, "--inputs", "dtype.npz"), 1, "array.astype('float32') converts it"),
    "a wrong name of an input": ((*RUN, "--inputs", "name.npz"), 1, "no input 'imag'; did you mean 'image'?"),
    "an array for an archive": ((*RUN, "--inputs", "one.npy"), 1, "expected one .npz file"),
    "a truncated model": (("run", "short.onnx"), 1, "or only part of one (500 bytes)"),
    "a text as a model": (("run", "text.onnx"), 1, "this is not an ONNX model, or only part of one (7 bytes)"),
    "an undefined value": (("run", "undefined.mlir"), 1, "undefined.mlir:2:20: %xs is used and not defined; did you mean '%x'?"),
    "a wrong name in a formula": (("check-op", "wrong.py"), 1, "its `forward` raises NameError: name 'maximun' is not defined"),
    "an unknown field of a machine": (("targets", "--load", "tile.py"), 1, "no field 'tile'; did you mean 'tiles'?"),
    "a text for a number of a machine": (("targets", "--load", "clock.py"), 1, "clock_hz = '1e9'; expected cycles per second"),
    "nothing to run": (("run",), 2, "MODEL"),
    "nothing at all": ((), 2, "COMMAND"),
    "an input that is no file": ((*RUN, "--inputs", "."), 1, "expected one .npz file"),
    "a misspelt optimizer": ((*TRAIN, "--optimizer", "adm"), 2, "no optimizer 'adm'; did you mean 'adam'?"),
    "a misspelt loss": ((*TRAIN, "--loss", "cross_entrop"), 2, "did you mean 'cross_entropy'?"),
    "an array that no input takes": ((*RUN, "--inputs", "extra.npz"), 1, "the model has no input 'labels'; there are image"),
    "a dimension that is open": (("run", "open.onnx"), 1, "its dimension 'n' is open; bind it with --dim n=N"),
    "a dimension that is not there": (("run", "open.onnx", "--dim", "m=4"), 1, "there is no dimension 'm' to bind; the model has n"),
    "a dimension that is no number": (
        ("run", "open.onnx", "--dim", "n=zero"),
        2,
        "expected NAME=N or NAME=LEAST..GREATEST, such as --dim batch=1",
    ),
    "a dimension that is too large": (
        ("run", "open.onnx", "--dim", "n=100000000000"),
        1,
        "400000000000 elements; a tensor has at most 2^33",
    ),
    "an empty model": (("run", "empty.onnx"), 1, "empty.onnx: this is not an ONNX model: there is no graph in its 0 bytes"),
    "a misspelt op in a text": (("run", "op.mlir"), 1, "op.mlir:2:3: there is no op 'popart.rellu'; did you mean 'popart.relu'?"),
    "an op of another's": (("run", "custom.onnx"), 1, "in the custom domain 'org.example'; give the file that defines it with --load"),
    "a file of ops with a wrong syntax": (("check-op", "syntax.py"), 1, "syntax.py:1: SyntaxError: invalid syntax"),
    "a file of ops with a wrong import": (
        ("check-op", "import.py"),
        1,
        "import.py:1: ModuleNotFoundError: No module named 'populus.custm'",
    ),
    "a file without ops": (("check-op", "none.py"), 1, "an op is a class with @irdl_op_definition and a name"),
    "a machine without tiles": (("targets", "--load", "zero.py"), 1, "machine 'edge': tiles = 0; expected at least 1"),
    "a model that does not fit": (("run", "squeezenet", "--target", "gc200", "--tiles", "4"), 1, "use more of its 1,472 tiles"),
    "weights that are missing": (("run", "outside.onnx"), 1, "'w' is in the file 'outside.bin', which is missing in ."),
    "outputs into no folder": ((*RUN, "--outputs", "none/x.npz"), 1, "none/x.npz: cannot be written: there is no folder"),
}


def model(node: NodeProto, shape: list[int | str], *weights: TensorProto) -> ModelProto:
    """Makes a model of one node, whose input and output have one shape."""
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name in "xy")
    domains = [helper.make_opsetid("", 17), *([helper.make_opsetid(node.domain, 1)] if node.domain else [])]
    return helper.make_model(helper.make_graph([node], "g", [x], [y], list(weights)), opset_imports=domains, ir_version=8)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a model, and with files that have a mistake each."""
    monkeypatch.chdir(tmp_path)
    shutil.copy(str(package.net("digits")), "digits.onnx")
    content = Path("digits.onnx").read_bytes()
    (name,) = package.compile("digits.onnx").signature.inputs
    assert name == "image"
    Path("short.onnx").write_bytes(content[:500])
    Path("text.onnx").write_text("a text\n")
    Path("undefined.mlir").write_text(TEXT)
    Path("wrong.py").write_text(OPS.format(formula="maximun(x, 0.0)"))
    Path("tile.py").write_text(MACHINE.format(fields="clock_hz=1e9, tile=64"))
    Path("clock.py").write_text(MACHINE.format(fields='clock_hz="1e9", tiles=64'))
    np.savez("shape.npz", image=np.zeros((4, 8, 8), np.float32))
    np.savez("dtype.npz", image=np.zeros((1, 1, 8, 8)))
    np.savez("name.npz", imag=np.zeros((1, 1, 8, 8), np.float32))
    np.save("one.npy", np.zeros(3))
    np.savez("extra.npz", image=np.zeros((1, 1, 8, 8), np.float32), labels=np.zeros(1))
    rows, weights = ["n", 4], numpy_helper.from_array(np.ones((64, 64), np.float32), "w")
    onnx.save(model(helper.make_node("Relu", ["x"], ["y"]), rows), "open.onnx")
    onnx.save(model(helper.make_node("Cap", ["x"], ["y"], domain="org.example", name="cap"), [4]), "custom.onnx")
    product = model(helper.make_node("MatMul", ["x", "w"], ["y"]), [4, 64], weights)
    onnx.save(product, "outside.onnx", save_as_external_data=True, location="outside.bin", size_threshold=0)
    Path("outside.bin").unlink()
    Path("empty.onnx").touch()
    Path("comment.mlir").write_text("// nothing\n")
    Path("lost.mlir").write_text(LOST)
    Path("tiles.mlir").write_text(TILES)
    Path("wrong.plan").write_text("conv1: outs=2\n")
    Path("op.mlir").write_text(TEXT.replace("relu %xs", "rellu %x"))
    for name, content in (("syntax", "class Op(:\n"), ("import", "from populus.custm import *\n"), ("none", "x = 1\n")):
        Path(f"{name}.py").write_text(content)
    Path("zero.py").write_text(MACHINE.format(fields="clock_hz=1e9, tiles=0"))
    return tmp_path


def test_each_mistake_is_answered_by_one_line(populus, folder):
    wrong = {}
    for mistake, (arguments, status, message) in MISTAKES.items():
        found = populus(*arguments)
        if found.status != status or message not in found.err or found.err.count("\n") != 1 or len(found.err) > LONGEST + 20:
            wrong[mistake] = (found.status, found.err)
    assert not wrong


def test_a_file_that_is_not_there_has_a_near_one_of_its_kind(folder):
    assert no_file("digitz.onnx").endswith("did you mean 'digits.onnx'?")
    assert no_file(os.path.join("no", "digits.onnx")) == "no/digits.onnx: no such file"
    assert no_file("digits.txt") == "digits.txt: no such file"


def test_a_machine_is_no_output_format(populus_opt):
    found = populus_opt("--target", "gc200")
    assert found.status == 2
    assert "'gc200'; a machine is an option of passes, such as -p 'poplin-to-poplar{target=gc200 tiles=64}'" in found.err


WRITTEN = [(("-p", "popart-fus"), 2), (("--pipeline", "inferense"), 2), (("--pipeline", "p.txt"), 1)]


@pytest.mark.parametrize(("arguments", "status"), WRITTEN)
def test_a_pass_that_is_misspelt_is_a_mistake_of_the_arguments_or_of_a_file(populus_opt, folder, arguments, status):
    Path("p.txt").write_text("popart-fus\n")
    found = populus_opt("undefined.mlir", *arguments)
    assert (found.status, found.err.count("\n")) == (status, 1)
    assert "did you mean '" in found.err


def test_the_first_use_of_a_value_is_where_it_is_not_defined(populus_opt, folder):
    found = populus_opt("undefined.mlir")
    assert found.err.startswith("populus-opt: undefined.mlir:2:20: %xs is used and not defined; did you mean '%x'?\n")


def test_messages_name_a_net_as_it_was_typed(populus):
    found = populus("run", "digits", "--dim", "n=4")
    assert found.status == 1
    assert found.err.startswith("populus: digits: ")
    assert "site-packages" not in found.err
    assert typed("plain text") == "plain text"


def test_a_cache_that_cannot_be_written_is_told_once(populus, folder, monkeypatch):
    Path("file").write_text("")
    monkeypatch.setenv("POPULUS_CACHE", "file")
    found = populus("run", "digits.onnx", "--cache")
    assert found.status == 0
    assert re.fullmatch(r"populus: cache folder file/populus-programs keeps no program: Not a directory: .* POPULUS_CACHE\n", found.err)
    assert populus("run", "digits.onnx").err == "", "nobody asked to keep it"


def test_training_says_that_weights_are_not_kept_and_that_it_diverges(populus, folder):
    rng = np.random.default_rng(0)
    np.savez("data.npz", image=rng.random((8, 1, 8, 8), np.float32), labels=rng.integers(0, 10, 8))
    rows = ("train", "digits.onnx", "--data", "data.npz", "--labels", "labels", "--batch", 1)
    found = populus(*rows)
    if found.status:
        pytest.fail(found.err)
    assert found.out.count(UNKEPT) == 2, "at the start, and at the end"
    kept = populus(*rows, "--export", "trained.onnx")
    assert UNKEPT not in kept.out
    (line,) = divergence([2.0, 1e6], 1000.0)
    assert line == "populus: the loss went from 2 to 1e+06: training diverges; an --lr below 1000 may help, or --clip-norm"
    assert list(divergence([2.0, float("nan")], None))
    assert not list(divergence([2.0, 1.0], None))
    diverging = populus(*rows, "--optimizer", "sgd", "--lr", 1e4, "--epochs", 3)
    assert "training diverges" in diverging.err


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    "machine", [(), ("--target", "gc200"), ("--tiles", "4"), ("--target", "gc200, tiles=4"), ("--target", "gc200", "--tiles", "4")]
)
def test_a_tile_program_runs_on_its_own_machine_however_that_is_named(populus, machine):
    got = populus("run", "tiles.mlir", *machine)
    assert (got.status, got.err) == (0, "") and "float32  4" in got.out
