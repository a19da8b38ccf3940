"""A walk through the code: the files in which a weight, a stride and a learning rate are handled, from the model to a run.

python -m benchmarks.walk             # of this checkout
python -m benchmarks.walk 8dc7ec0     # of a commit

Each has a value that nothing else has: the weight is called `marked_weight`, the stride is 7, the rate 0.012345. A file counts if one of
its functions returns while a variable, or what it returns, is that value, or an array, a tuple, a mapping or an attribute that has it.
"""

# pyright: basic
from __future__ import annotations

import os
import subprocess
import sys
import tempfile

from benchmarks.structure import unpacked

WALK = """
import contextlib, io, sys
from pathlib import Path
import numpy as np, onnx
from onnx import helper, numpy_helper
import populus
from populus.tools.main import main
from xdsl.ir import SSAValue

root, folder = Path(sys.argv[1]).resolve(), Path(sys.argv[2])
NAME, STRIDE, RATE = "marked_weight", 7, 0.012345
g = np.random.default_rng(0)
weight = g.standard_normal((6, 2, 3, 3)).astype(np.float32)
flat = g.standard_normal((96, 4)).astype(np.float32)
nodes = [helper.make_node("Conv", ["x", NAME], ["c"], strides=[STRIDE, STRIDE]), helper.make_node("Relu", ["c"], ["r"]),
         helper.make_node("Flatten", ["r"], ["f"]), helper.make_node("MatMul", ["f", "m"], ["y"])]
info = helper.make_tensor_value_info
graph = helper.make_graph(nodes, "g", [info("x", 1, [5, 2, 30, 30])], [info("y", 1, [5, 4])],
                          [numpy_helper.from_array(weight, NAME), numpy_helper.from_array(flat, "m")])
onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), folder / "net.onnx")
x = g.standard_normal((5, 2, 30, 30)).astype(np.float32)
np.savez(folder / "data.npz", x=x, labels=g.integers(0, 4, 5))

def parts(value, depth=2):
    yield value
    if depth and isinstance(value, (tuple, list)) and len(value) <= 8:
        for v in value:
            yield from parts(v, depth - 1)
    elif depth and isinstance(value, dict) and len(value) <= 64:
        for k, v in list(value.items()):
            yield k
            yield from parts(v, depth - 1)

def is_weight(v):
    if isinstance(v, np.ndarray):
        return v.dtype == np.float32 and v.size == weight.size and float(v.reshape(-1)[0]) == float(weight.reshape(-1)[0])
    return (isinstance(v, str) and v == NAME) or (isinstance(v, SSAValue) and v.name_hint == NAME)

def is_stride(v):
    if type(v).__name__ == "DenseArrayBase":
        v = tuple(v.get_values())
    if isinstance(v, (tuple, list)) and 2 <= len(v) <= 4:
        return tuple(v) == (STRIDE, STRIDE) or (len(v) == 2 and isinstance(v[0], str) and v[1] == STRIDE)
    return False

def is_rate(v):
    if isinstance(v, np.ndarray):
        return v.size == 1 and v.dtype.kind == "f" and abs(float(v.reshape(-1)[0]) - RATE) < 1e-8
    return isinstance(v, float) and abs(v - RATE) < 1e-8

def walked(run, *tests):
    found = [set() for _ in tests]
    def seen(frame, event, argument):
        if event != "return":
            return
        file = Path(frame.f_code.co_filename)
        name = str(file)
        if not name.startswith(str(root)) or "site-packages" in name:
            return
        for value in [argument, *frame.f_locals.values()]:
            for v in parts(value):
                for test, files in zip(tests, found):
                    if name not in files:
                        with contextlib.suppress(Exception):
                            if test(v):
                                files.add(name)
    sys.setprofile(seen)
    try:
        run()
    finally:
        sys.setprofile(None)
    return [sorted({str(Path(f).resolve().relative_to(root)) for f in files}) for files in found]

def compiled():
    populus.compile(str(folder / "net.onnx"), engine="native", cache=False).run({"x": x})

def trained():
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        assert main(["train", str(folder / "net.onnx"), "--data", str(folder / "data.npz"), "--optimizer", "adam", "--lr", str(RATE),
                     "--epochs", "1", "--batch", "5", "--engine", "native"]) == 0

for name, files in zip(("weight", "stride", "rate"), [*walked(compiled, is_weight, is_stride), *walked(trained, is_rate)]):
    print(f"{name}: {len(files)} files: {' '.join(files)}")
"""


def main() -> int:
    """Prints a line for each walk."""
    with tempfile.TemporaryDirectory(prefix="populus-walk-") as place, unpacked(sys.argv[1] if len(sys.argv) > 1 else None) as root:
        environment = {**os.environ, "PYTHONPATH": str(root), "POPULUS_CACHE": place}
        command = [sys.executable, "-W", "ignore", "-c", WALK, str(root), place]
        return subprocess.run(command, cwd=place, env=environment, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
