"""The files and names that a page takes for granted, made in front of its first block, or of one block."""

from __future__ import annotations

import re
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
from onnx import TensorProto, helper

from blocks.frames import NET, SILENT
from blocks.models import ROOT, convolution, examples, one_op, perceptron, samples, saved, value
from blocks.running import captured

Names = dict[str, Any]


def add_an_op() -> Names:
    """Gives the files of sections 1 to 3, and a model with LeakyRelu."""
    for file in ("leaky_relu.py", "kernels/kernels.py", "kernels/check.py"):
        shutil.copy(ROOT / "examples" / file, ".")
    import onnx

    import populus

    return {"onnx": onnx, "populus": populus, "model": one_op("model.onnx", "LeakyRelu", "com.acme", [2, 3])}


def command_line() -> None:
    """Gives a model with an open batch, its inputs and outputs, and the modules that populus-opt reads."""
    import populus

    perceptron("model.onnx")
    x = samples("train.npz", 4)["x"]
    np.savez("x.npz", x=x)
    np.savez("y.npz", **populus.compile("model.onnx").run({"x": x}))
    convolution("conv.onnx")
    program = populus.compile("conv.onnx")
    Path("module.mlir").write_text(str(program.module("popops")))


def counting_by_size() -> None:
    """Gives the page's model with every size stated, as commands without --dim need it."""
    perceptron("model.onnx", batch=4)


def host() -> None:
    """Gives a model of strings."""
    text = helper.make_node("StringNormalizer", ["x"], ["y"], name="normalize", case_change_action="LOWER")
    saved("model.onnx", [text], [value("x", [3], TensorProto.STRING)], [value("y", [3], TensorProto.STRING)])


def open_sizes() -> Names:
    """Gives a model of words with open sizes, and one with a cache."""
    import populus

    nodes = [
        helper.make_node("Gather", ["table", "input_ids"], ["h"], name="embed"),
        helper.make_node("Softmax", ["h"], ["y"], name="softmax"),
    ]
    ids = value("input_ids", ["batch", "seq"], TensorProto.INT64)
    saved("bert.onnx", nodes, [ids], [value("y", ["batch", "seq", 8])], {"table": (30, 8)})
    return {"populus": populus, "ids": np.ones((1, 77), np.int64)}


def with_cache() -> Names:
    """Gives a program whose states are a cache of keys and of values, as that section speaks of it."""
    import populus

    nodes = [helper.make_node("Gather", ["table", "input_ids"], ["h"], name="embed")]
    for kind in ("key", "value"):
        nodes.append(helper.make_node("Concat", [f"past_{kind}", "h"], [f"present_{kind}"], name=kind, axis=1))
    nodes.append(helper.make_node("ReduceSum", ["present_key"], ["y"], name="sum"))
    ids = value("input_ids", [1, "cur"], TensorProto.INT64)
    past, present = (
        [value(f"{when}_{kind}", [1, size, 8]) for kind in ("key", "value")] for when, size in (("past", "past"), ("present", "all"))
    )
    saved("decoder.onnx", nodes, [ids, *past], [value("y", [1, 1, 1]), *present], {"table": (30, 8)})
    program = populus.compile("decoder.onnx", dims={"cur": 1, "past": (0, 8)})
    return {"program": program, "ids": np.ones((1, 1), np.int64), "array": np.zeros((1, 4, 8), np.float32)}


def pipelines() -> Names:
    """Gives a model with a batch norm, and what a file of passes imports."""
    import populus

    convolution("model.onnx")
    return {"populus": populus}


def module_of_calls() -> None:
    """Gives the model's module at the level popart."""
    import populus

    Path("model.mlir").write_text(str(populus.compile("model.onnx").module("popart")))


def popart() -> Names:
    """Gives a matrix of weights."""
    return {"weights": np.ones((4, 3), np.float32)}


def poptorch() -> Names:
    """Gives a module of PyTorch with a loss, samples, and a batch."""
    names: Names = {}
    exec(NET, names)
    return names


def plain_module() -> Names:
    """Gives a module of PyTorch for its compiler."""
    names: Names = {}
    exec("import torch; model = torch.nn.Sequential(torch.nn.Linear(8, 4), torch.nn.GELU())", names)
    return names


def training() -> Names:
    """Gives a net, its samples, and a cotangent."""
    import populus

    perceptron("model.onnx")
    samples("train.npz", 64)
    samples("test.npz", 32)
    data = np.load("train.npz")
    return {"populus": populus, "x": data["x"], "y": data["labels"], "dy": np.ones((64, 4), np.float32)}


def closed() -> None:
    """Gives the same net with a stated batch."""
    perceptron("model.onnx", batch=64)


def replicas() -> Names:
    """Gives a net of four layers, and samples for two steps."""
    import populus

    perceptron("model.onnx", layers=4)
    return {"populus": populus, "data": samples("train.npz", 128)}


def differentiable() -> None:
    """Gives a module with a weight `w` and a result `loss`."""
    Path("model.mlir").write_text("""
func.func @main(%x: tensor<8x4xf32>, %w: tensor<4x1xf32>) -> tensor<f32> attributes {input_names = ["x", "w"], output_names = ["loss"]} {
  %y = popart.matmul %x, %w : (tensor<8x4xf32>, tensor<4x1xf32>) -> tensor<8x1xf32>
  %loss = popart.reduce_mean %y {axes = array<i64: 0, 1>, keepdims = false} : (tensor<8x1xf32>) -> tensor<f32>
  func.return %loss : tensor<f32>
}""")


def run_program() -> None:
    """Gives a program of PopXL, and the examples."""
    examples("popart", "popxl", "poptorch", "leaky_relu.py")
    Path("train.py").write_text("""import argparse
import numpy as np
import popxl
from popxl import ops

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=1)
epochs = parser.parse_args().epochs
ir = popxl.Ir()
with ir.main_graph:
    out = popxl.d2h_stream((2,), popxl.float32, "out")
    ops.host_store(out, popxl.constant(np.ones(2, np.float32)) + 1)
with popxl.Session(ir, "ipu_model") as session:
    for _ in range(epochs):
        print(session.run()[out])
""")


def refusals() -> str:
    """Runs two programs that are refused."""
    Path("devices.py").write_text("import popart\npopart.DeviceManager().createIpuModelDevice({'numIPU': 1})\n")
    Path("layers.py").write_text("from popxl.ops import reluu\n")
    return "".join(printed("populus", "run-program", name) for name in ("devices.py", "layers.py"))


def printed(tool: str, *arguments: str) -> str:
    """Runs `populus` or `populus-opt`, and gives what it prints."""
    from populus.tools import main, populus_opt

    with captured() as text:
        {"populus": main.main, "populus-opt": populus_opt.main}[tool](list(arguments))
    return text.getvalue()


def no_gradient() -> str:
    """Differentiates a model with an op without a gradient."""
    Path("silent.py").write_text(SILENT)
    silent = helper.make_node("Silent", ["x"], ["a"], name="odd", domain="page")
    nodes = [silent, helper.make_node("Exp", ["a"], ["b"], name="up"), helper.make_node("Neg", ["b"], ["y"], name="down")]
    saved("silent.onnx", nodes, [value("x", [2])], [value("y", [2])], {}, ("page",))
    passes = "onnx-infer-shapes,onnx-to-popart,popart-autodiff{wrt=x}"
    return printed("populus-opt", "silent.onnx", "--load", "silent.py", "-p", passes)


def build() -> Names:
    """Gives a net under the name of the page, with a state that only its second half keeps."""
    import populus

    nodes = [
        helper.make_node("GlobalAveragePool", ["x"], ["p"], name="pool"),
        helper.make_node("Add", ["p", "h"], ["h_next"], name="state"),
        helper.make_node("Flatten", ["h_next"], ["y"], name="flatten"),
    ]
    state = [1, 3, 1, 1]
    ends = [value("y", [1, 3]), value("h_next", state)]
    saved("resnet50.onnx", nodes, [value("x", [1, 3, 224, 224]), value("h", state)], ends)
    return {"populus": populus, "image": np.ones((1, 3, 224, 224), np.float32), "value": np.ones(state, np.float32)}


def build_with_state() -> None:
    """Builds the net again, with its state kept."""
    from populus.tools.main import main

    assert main(["build", "resnet50.onnx", "-o", "built", "--state", "h=h_next"]) == 0


def digits() -> None:
    """Gives the page's example, as a clone has it."""
    examples("digits")


def debugging() -> None:
    """Gives conv.onnx, the model of another page, and the files of this one, which are at its end."""
    page = (ROOT / "docs/debugging.md").read_text()
    model, wrong = re.findall(r"^```python\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    exec(re.findall(r"```python\n(.*?)```", (ROOT / "docs/architecture.md").read_text(), re.DOTALL)[0], {})
    exec(model, {})
    Path("wrong.py").write_text(wrong)
    texts = re.findall(r"^```mlir\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    for name, text in zip(("scaled.mlir", "half.mlir"), texts[-2:], strict=True):
        Path(name).write_text(text)


def one_model() -> Names:
    """Gives a model, and an array for it."""
    import populus

    perceptron("model.onnx", batch=2)
    return {"populus": populus, "x": np.ones((2, 8), np.float32)}


def session() -> Names:
    """Gives a tile program that takes an image."""
    import populus
    from populus.runtime.session import Session

    convolution("conv.onnx", size=224)
    image = np.ones((1, 3, 224, 224), np.float32)
    return {"Session": Session, "module": populus.compile("conv.onnx", tiles=16).module("poplar"), "image": image}


def new_engine() -> None:
    """Gives the example, and a model."""
    shutil.copy(ROOT / "examples/engines/counting.py", ".")
    perceptron("model.onnx", batch=2)


def new_target() -> None:
    """Gives a model."""
    perceptron("model.onnx", batch=2)


STABLEHLO = """
func.func @main(%x : tensor<4x8xf32>, %w : tensor<8x3xf32>) -> tensor<4x3xf32> {
  %y = "stablehlo.dot_general"(%x, %w) <{dot_dimension_numbers =
    #stablehlo.dot<lhs_contracting_dimensions = [1], rhs_contracting_dimensions = [0]>}>
    : (tensor<4x8xf32>, tensor<8x3xf32>) -> tensor<4x3xf32>
  func.return %y : tensor<4x3xf32>
}
"""


def stablehlo() -> Names:
    """Gives a program of StableHLO and its inputs."""
    import populus

    Path("model.mlir").write_text(STABLEHLO)
    return {"populus": populus, "x": np.ones((4, 8), np.float32), "w": np.ones((8, 3), np.float32)}


def open_stablehlo() -> None:
    """Gives a program of StableHLO whose argument has an open dimension."""
    text = (
        'func.func @main(%x : tensor<?x4xf32>) -> tensor<?x4xf32> {\n  %y = "stablehlo.negate"(%x) : (tensor<?x4xf32>) -> tensor<?x4xf32>\n'
    )
    Path("model.mlir").write_text(f"{text}  func.return %y : tensor<?x4xf32>\n}}\n")


def sized_stablehlo() -> None:
    """Gives one whose first argument is the size of its second."""
    text = "func.func @main(%n : tensor<i32>, %x : tensor<?x4xf32>) -> tensor<?x4xf32> {\n"
    moved = '  %y = "stablehlo.negate"(%x) : (tensor<?x4xf32>) -> tensor<?x4xf32>\n  func.return %y : tensor<?x4xf32>\n}\n'
    Path("model.mlir").write_text(text + moved)


def open_batch() -> None:
    """Gives that program, and a batch for it."""
    open_stablehlo()
    np.savez("batch.npz", arg0=np.ones((7, 4), np.float32))


def web() -> None:
    """Gives a model with two caches, whose inputs have open sizes, and one of open batch and length."""
    nodes, past, present = [helper.make_node("Gather", ["table", "input_ids"], ["h"], name="embed")], [], []
    for kind in ("key", "value"):
        nodes.append(helper.make_node("Concat", [f"past_{kind}", "h"], [f"present_{kind}"], name=kind, axis=1))
        past.append(value(f"past_{kind}", ["batch", "past", 8]))
        present.append(value(f"present_{kind}", ["batch", "past + cur", 8]))
    nodes.append(helper.make_node("ReduceSum", ["present_key"], ["logits"], name="sum"))
    ids = value("input_ids", ["batch", "cur"], TensorProto.INT64)
    saved("gpt.onnx", nodes, [ids, *past], [value("logits", [1, 1, 1]), *present], {"table": (30, 8)})
    words = value("input_ids", ["batch", "length"], TensorProto.INT64)
    embed = helper.make_node("Gather", ["table", "input_ids"], ["h"], name="embed")
    norm = helper.make_node("Softmax", ["h"], ["y"], name="norm", axis=1)
    saved("bert.onnx", [embed, norm], [words], [value("y", ["batch", "length", 8])], {"table": (30, 8)})


def fuzz() -> None:
    """Puts the fuzzers on the path."""
    sys.path.insert(0, str(ROOT / "test/fuzz"))
