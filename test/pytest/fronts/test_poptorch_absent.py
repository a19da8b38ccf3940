"""Without PyTorch, its fronts say in one line what is missing."""

from __future__ import annotations

import subprocess
import sys

import pytest

WITHOUT = """
import sys
from importlib.abc import MetaPathFinder

class NoTorch(MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "torch":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

import importlib.util
found = importlib.util.find_spec
importlib.util.find_spec = lambda name, package=None: None if name == "torch" else found(name, package)
import populus.torch_backend.torch_package as package
package.find_spec = importlib.util.find_spec
"""


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("import populus.poptorch", "poptorch"),
        ("import populus.compat, poptorch", "poptorch"),
        ("from populus.torch_backend import backend; backend(None, [])", "the backend of torch.compile"),
    ],
)
def test_the_missing_package_is_named(text, what):
    caught = f"try:\n    {text}\nexcept ImportError as error:\n    print(type(error).__name__, error)\n"
    got = subprocess.run([sys.executable, "-c", WITHOUT + caught], capture_output=True, text=True, check=True)
    assert got.stdout == f"MissingPackage {what} needs the package torch; pip install torch onnxscript\n"
