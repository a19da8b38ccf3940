"""Other tools read what is written here: xdsl-opt, mlir-opt and iree-opt, Netron. Each test needs its tool, and says so without it."""

from __future__ import annotations

import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from urllib.request import urlopen

import onnx
import pytest
from onnx import TensorProto, helper

MODULE = "func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {\n  %y = popart.exp %x : tensor<4xf32>\n  return %y : tensor<4xf32>\n}\n"


def found(tool: str) -> str | None:
    """Finds a tool next to this interpreter, or in the path."""
    beside = Path(sys.executable).with_name(tool)
    return str(beside) if beside.exists() else shutil.which(tool)


@pytest.fixture
def module(tmp_path):
    (tmp_path / "x.mlir").write_text(MODULE)
    return tmp_path / "x.mlir"


def ran(*command: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run([str(c) for c in command], capture_output=True, text=True, check=False)


@pytest.mark.skipif(found("xdsl-opt") is None, reason="xdsl-opt is not installed")
def test_xdsl_opt_knows_our_dialects_and_passes(module):
    done = ran(found("xdsl-opt"), module, "-p", "popart-to-popops")
    assert done.returncode == 0, done.stderr
    assert "popops.map <exp(_1)>(%x)" in done.stdout


@pytest.mark.parametrize("tool", ["mlir-opt", "iree-opt"])
@pytest.mark.parametrize("pipeline", ["popart", "poplar", "codelets"])
def test_tools_of_mlir_read_the_generic_form(tool, pipeline, module, populus_opt):
    if found(tool) is None:
        pytest.skip(f"{tool} is not installed (a wheel: iree-base-compiler)")
    passes = {"popart": ("-p", "popart-cse"), "poplar": ("--pipeline", "inference")}
    passes["codelets"] = (*passes["poplar"], "-t", "codelets")
    written = populus_opt(module, *passes[pipeline], "--print-op-generic")
    assert written.status == 0, written.err
    text = module.with_name("generic.mlir")
    text.write_text(written.out)
    done = ran(found(tool), "--allow-unregistered-dialect", "--mlir-print-op-generic", text)
    assert done.returncode == 0, f"{done.stderr}\n{written.out}"
    names = {"popart": "popart.exp", "poplar": "poplar.family", "codelets": "func.func"}
    assert f'"{names[pipeline]}"' in done.stdout


@pytest.mark.skipif(find_spec("netron") is None, reason="netron is not installed")
def test_netron_opens_what_export_writes(tmp_path, populus):
    import netron  # pyright: ignore[reportMissingImports]

    info = helper.make_tensor_value_info
    nodes = [helper.make_node("Exp", ["x"], ["a"], name="power"), helper.make_node("Relu", ["a"], ["y"], name="positive")]
    graph = helper.make_graph(nodes, "g", [info("x", TensorProto.FLOAT, [2])], [info("y", TensorProto.FLOAT, [2])])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), tmp_path / "x.onnx")
    for level in ("onnx", "popart"):
        path = tmp_path / f"{level}.onnx"
        assert populus("export", tmp_path / "x.onnx", "-o", path, "--level", level).status == 0
        host, port = netron.start(str(path), address=("127.0.0.1", 0), browse=False)
        try:
            page = urlopen(f"http://{host}:{port}/").read().decode()
            served = urlopen(f"http://{host}:{port}/data/{path.name}").read()
        finally:
            netron.stop((host, port))
        assert "Netron" in page
        assert [node.name for node in onnx.load_from_string(served).graph.node][:2] == ["power", "positive"]
