"""What the rows' tests share: the example op, models that use it, files changed, tools called in-process."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from onnx import ModelProto, TensorProto, helper

import populus

ROOT = Path(__file__).parents[2]


@pytest.fixture
def root() -> Path:
    """The repository."""
    return ROOT


@pytest.fixture
def example() -> ModuleType:
    """`examples/leaky_relu.py`, loaded."""
    path = ROOT / "examples" / "leaky_relu.py"
    return populus.load(path).module


@pytest.fixture
def changed(tmp_path: Path) -> Callable[..., Path]:
    """The example's text with pairs replaced and more behind it, as a file."""

    def change(*pairs: tuple[str, str], more: str = "", name: str = "own.py") -> Path:
        text = (ROOT / "examples" / "leaky_relu.py").read_text()
        for old, new in pairs:
            assert old in text, old
            text = text.replace(old, new)
        path = tmp_path / name
        path.write_text(text + more)
        return path

    return change


@pytest.fixture
def model() -> Callable[..., ModelProto]:
    """A model of one node of a custom domain."""

    def make(
        kind: str = "LeakyRelu", version: int = 1, domain: str = "com.acme", shape: tuple[int, ...] = (3,), **attributes: Any
    ) -> ModelProto:
        node = helper.make_node(kind, ["x"], ["y"], name="n", domain=domain, **attributes)
        shaped = helper.make_tensor_value_info
        graph = helper.make_graph([node], "g", [shaped("x", TensorProto.FLOAT, shape)], [shaped("y", TensorProto.FLOAT, shape)])
        opsets = [helper.make_opsetid("", 20), helper.make_opsetid(domain, version)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=10)

    return make


@pytest.fixture
def tool(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    """`tool("populus_opt", ...)`: status, output, errors of a command."""
    from importlib import import_module

    def call(name: str, *args: object) -> tuple[int, str, str]:
        capsys.readouterr()
        status = import_module(f"populus.tools.{name}").main([str(a) for a in args])
        return (status, *capsys.readouterr())

    return call
