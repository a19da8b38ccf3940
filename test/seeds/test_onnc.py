"""ONNC's IR extension guide, row by row."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import zipfile
from importlib.metadata import version
from itertools import product
from pathlib import Path

import numpy as np
import onnx
import onnx.reference
import pytest
from xdsl.dialects.builtin import ModuleOp, TensorType, f32, i1, i32
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Block, Region
from xdsl.parser import Parser
from xdsl.utils.exceptions import DiagnosticException, ParseError, VerifyException

import populus
from helpers.node_models import node_models
from helpers.op_cases import cases
from helpers.op_files import NO_LOWERING
from populus.dialects.data import ConstantOp
from populus.dialects.popops import MapOp
from populus.dialects.support.diagnostics import PopulusError
from populus.dialects.table import DIALECTS, context
from populus.lowering.driver import extensions
from populus.lowering.driver.content_hash import content_hash
from populus.lowering.driver.passes import PASSES
from populus.lowering.driver.pipeline import Pipeline
from populus.lowering.onnx.exporter import export_onnx
from populus.lowering.onnx.importer import import_onnx
from populus.lowering.popops.fuse import PopopsFusePass
from populus.runtime.interpreter import run_function

X = np.array([-1, 0, 2], np.float32)
TEXT = """
func.func @main(%x: tensor<3xf32>) -> ({types}) {{
  %a = popops.map <mul(_1, 2.0)>(%x) : (tensor<3xf32>) -> tensor<3xf32>
  {body}
}}
"""
USE = "%b = popops.map <{}>(%a) : (tensor<3xf32>) -> tensor<3xf32>\n  "


def fused(body: str, types: str = "tensor<3xf32>"):
    """(maps left, outputs before, outputs after)."""
    module = Parser(context(), TEXT.format(body=body, types=types)).parse_module()
    before = run_function(module, {"x": X})
    PopopsFusePass().apply(context(), module)
    module.verify()
    after = run_function(module, {"x": X})
    return sum(isinstance(op, MapOp) for op in module.walk()), before, after


def test_C5_a_command_that_no_generic_op_describes_is_an_op(root):
    row_norm = extensions.read(root / "examples" / "row_norm.py").module.row_norm
    with populus.Builder() as b:
        b.output("y", row_norm(b.input("x", (2, 2))))
    program = populus.compile(b.module(), tiles=2, engine="strict")
    assert "poplar.family @row_norm_vertex" in str(program.module("poplar"))
    assert program.run({"x": np.array([[3, 4], [0, 0]], np.float32)})["y"].tolist() == [5, 0]


def test_C6_generic_ops_come_first_and_the_target_s_after(tool):
    status, out, _ = tool("populus_opt", "--pipeline", "inference", "--print-pipeline")
    assert status == 0
    assert out.index("onnx-to-popart") < out.index("popart-to-popops") < out.index("popops-to-poplar")


CASES = {c.id: c for c in cases()}


def test_C10_an_evaluator_without_an_op_names_it_and_what_to_do():
    text = 'func.func @main() -> tensor<3xf32> {\n  %y = "test.op"() : () -> tensor<3xf32>\n  func.return %y : tensor<3xf32>\n}'
    with pytest.raises(PopulusError, match="test.op has no value at this level; run the module after the passes that lower it, or before"):
        run_function(Parser(context(), text).parse_module(), {})


def test_C12_one_use_is_fused():
    maps, before, after = fused(USE.format("max(_1, 0.0)") + "func.return %b : tensor<3xf32>")
    assert maps == 1
    assert after["output_0"].tobytes() == before["output_0"].tobytes()


def test_C12_what_is_returned_as_well_is_not_fused():
    maps, before, after = fused(
        USE.format("max(_1, 0.0)") + "func.return %a, %b : tensor<3xf32>, tensor<3xf32>", "tensor<3xf32>, tensor<3xf32>"
    )
    assert maps == 2
    assert [after[n].tobytes() for n in before] == [a.tobytes() for a in before.values()]


def test_C12_no_use_is_no_crash():
    maps, before, after = fused("func.return %x : tensor<3xf32>")
    assert maps == 0
    assert after["output_0"].tobytes() == before["output_0"].tobytes()


def test_C12_a_convolution_with_no_user_compiles():
    from populus.dialects import popart

    with populus.Builder() as b:
        x, w = b.input("x", (1, 1, 4, 4)), b.input("w", (1, 1, 3, 3))
        window = {"strides": (1, 1), "pads": (0, 0, 0, 0), "dilations": (1, 1), "group": 1}
        b.op(popart.ConvOp, x, w, **window)
        b.output("y", b.op("relu", x)[0])
    assert (
        populus.compile(b.module(), tiles=4)
        .run({"x": np.ones((1, 1, 4, 4), np.float32), "w": np.ones((1, 1, 3, 3), np.float32)})["y"]
        .sum()
        == 16
    )


def test_C13_the_fused_result_is_that_of_the_two():
    for second in ("max(_1, 0.0)", "exp(_1)", "divide(1.0, _1)", "select(_1, 0.0, gt(_1, 0.0))"):
        _, before, after = fused(USE.format(second) + "func.return %b : tensor<3xf32>")
        assert after["output_0"].tobytes() == before["output_0"].tobytes(), second


def test_C14_what_nobody_uses_is_removed():
    maps, _, _ = fused(USE.format("exp(_1)") + "func.return %x : tensor<3xf32>")
    assert maps == 0


def test_C15_the_passes_are_listed(tool, capsys):
    with pytest.raises(SystemExit):
        tool("populus_opt", "--list-passes")
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == list(PASSES)
    assert all(len(line.split()) > 1 for line in lines)


def test_C17_a_pass_has_options(tool, tmp_path):
    (tmp_path / "m.mlir").write_text(
        "func.func @main(%x: tensor<3xf32>) -> tensor<3xf32> {\n  %c = data.constant dense<2.0> : tensor<3xf32>\n"
        "  %y = popops.map <mul(_1, _2)>(%x, %c) : (tensor<3xf32>, tensor<3xf32>) -> tensor<3xf32>\n  func.return %y : tensor<3xf32>\n}\n"
    )
    texts = [tool("populus_opt", tmp_path / "m.mlir", "-p", f"popops-fuse{{literals={on}}}")[1] for on in ("true", "false")]
    assert "mul(_1, 2.0)" in texts[0]
    assert "mul(_1, _2)" in texts[1]


def settled(module):
    """With each constant before its first reader, and none that nothing reads: where constants stand means nothing."""
    seen = set()
    for op in list(module.walk()):
        for value in op.operands:
            constant = value.owner
            if isinstance(constant, ConstantOp) and constant not in seen:
                seen.add(constant)
                block, reader = constant.parent, op
                while reader.parent is not block:
                    reader = reader.parent_op()
                constant.detach()
                block.insert_op_before(constant, reader)
    for constant in [op for op in module.walk() if isinstance(op, ConstantOp) and op not in seen]:
        constant.detach()
        constant.erase()
    return module


def test_C1_every_node_test_is_the_same_after_a_round_trip_to_onnx():
    kinds, there_and_back = set(), 0
    for name, proto in node_models().items():
        try:
            module = import_onnx(proto)
        except PopulusError:  # it has strings, as few do: `there_and_back` counts the others
            continue
        again = import_onnx(export_onnx(module))
        kinds |= {op.name for op in module.walk()}
        assert content_hash(settled(module)) == content_hash(settled(again)), name
        there_and_back += 1
    assert there_and_back >= 1880
    assert len(kinds) >= 200


def test_C1_what_is_exported_is_a_model_to_onnx_s_checker(tmp_path):
    for name in (
        "test_conv_with_autopad_same",
        "test_if",
        "test_loop11",
        "test_lstm_defaults",
        "test_scan9_sum",
        "test_gelu_tanh_1_expanded",
    ):
        exported = export_onnx(import_onnx(node_models()[name]))
        onnx.checker.check_model(exported, full_check=True)
        inputs = {i.name: np.zeros([d.dim_value for d in i.type.tensor_type.shape.dim], np.float32) for i in exported.graph.input}
        if name == "test_conv_with_autopad_same":
            both = [
                onnx.reference.ReferenceEvaluator(m).run(None, {n: a + 1 for n, a in inputs.items()})[0]
                for m in (exported, node_models()[name])
            ]
            assert both[0].tobytes() == both[1].tobytes()


def test_C2_what_a_target_does_not_run_is_listed_with_counts(tool, tmp_path):
    (tmp_path / "m.mlir").write_text(TEXT.format(body=USE.format("exp(_1)") + "func.return %b : tensor<3xf32>", types="tensor<3xf32>"))
    down = "popops-to-poplar{target=gc200 tiles=2},poplar-map,poplar-allocate"
    assert tool("populus_opt", tmp_path / "m.mlir", "-p", down, "--verify-legal", "gc200")[0] == 0
    for passes, target, message in (
        ("popops-fuse", "gc200", "3 ops are not legal on gc200: 1 func.func (not an op of a tile program), 1 func.return"),
        (down, "bow", "1 ops are not legal on bow: 1 poplar.graph (made for gc200)"),
        (down, "ipu", "no target 'ipu'"),
    ):
        status, _, errors = tool("populus_opt", tmp_path / "m.mlir", "-p", passes, "--verify-legal", target)
        assert status == 1
        assert message in errors


LACKING = """
from populus.dialects.poplar.target import IPU_TYPES, KIB, Target

MACHINE = Target("mesh9", tiles=16, tile_bytes=256 * KIB, clock_hz=1e9, types=IPU_TYPES, lacks=("popops.reduce", "exp"))
"""
OWN_TO_IT = """

from populus.dialects.popart.base import UnaryOp as _Unary


@irdl_op_definition
class MeshOp(_Unary):
    \"\"\"`y = 2 x`. Source: a test.\"\"\"

    name = "acme.mesh"
    TARGETS: ClassVar = ("mesh9",)

    def forward(self, x):
        return x + x


mesh = function_of(MeshOp)
"""


def test_C2_a_target_has_ops_of_its_own_and_lacks_others(tmp_path, root):
    path = tmp_path / "own.py"
    path.write_text((root / "examples/leaky_relu.py").read_text() + LACKING + OWN_TO_IT)
    own = extensions.load(path).module
    try:
        with populus.Builder() as b:
            b.output("y", own.mesh(b.input("x", (4,)), name="n"))
        x = np.arange(4, dtype=np.float32)
        assert populus.compile(b.module(), target="mesh9", tiles=2).run({"x": x})["y"].tolist() == [0, 2, 4, 6]
        with pytest.raises(PopulusError, match=r"'n': acme.mesh is an op of target mesh9; gc200 does not have it"):
            populus.compile(b.module(), target="gc200", tiles=2)
        with populus.Builder() as b:
            b.output("y", b.op("reduce_sum", b.input("x", (4,)), axes=(0,), name="sum")[0])
        assert populus.compile(b.module(), target="gc200", tiles=2).run({"x": x})["y"].item() == 6
        with pytest.raises(PopulusError, match=r"'sum': target mesh9 has no popops.reduce; lower it to what the target has"):
            populus.compile(b.module(), target="mesh9", tiles=2)
    finally:
        extensions.forget(path)


def test_C8_every_registered_op_is_printed_and_parsed(root):
    """The ops of all programs that the tests of texts hold, and of the table's ops on their way down; the rest on small operands."""
    seen = set()
    row_norm = extensions.read(root / "examples" / "row_norm.py").module.row_norm
    with populus.Builder() as b:
        b.output("y", row_norm(b.input("x", (2, 2))))
    texts = [str(populus.compile(b.module(), tiles=1, level="popops").module("popops"))]
    texts += [p.read_text() for p in (root / "test/filecheck").rglob("*.mlir") if "invalid" not in p.name]
    for case in {case.op: case for case in CASES.values()}.values():
        module = case.module()
        texts += [str(module), str(populus.compile(module, level="popops").module("popops"))]
    for text in texts:
        for part in text.split("// -----"):
            try:
                module = Parser(context(), part).parse_module()
                module.verify()
            except (ParseError, DiagnosticException):  # part of what a test shows to be refused
                continue
            printed = str(module)
            assert str(Parser(context(), printed).parse_module()) == printed
            seen |= {type(op) for op in module.walk()}
    # Ops of the fronts are made from tables of forms; they are printed as xDSL prints any op.
    registered = {op for name, dialect in DIALECTS.items() if name not in ("onnx", "stablehlo", "chlo") for op in dialect().operations}
    for op in sorted(registered - seen, key=lambda op: op.name):
        text = str(on_some_operands(op))
        assert str(Parser(context(), text).parse_module()) == text, op.name


def on_some_operands(op):
    """A module of the op on operands of the first types that it takes: vectors or scalars, of floats or integers."""
    types = [TensorType(element, shape) for shape in ([2, 3], [], [2]) for element in (f32, i32, i1)]
    for few in (types[:1] + types[3:4], types):
        for chosen in product(few, repeat=len(op.get_irdl_definition().operands)):
            block = Block(arg_types=chosen)
            try:
                made = op(*block.args)
                made.verify()
            except (VerifyException, PopulusError, AssertionError):
                continue
            block.add_op(made)
            block.add_op(ReturnOp(*made.results))
            return ModuleOp([FuncOp("main", (chosen, [r.type for r in made.results]), Region(block))])
    raise AssertionError(op.name)


def test_C11_a_table_says_which_pass_changed_something(tool, tmp_path):
    (tmp_path / "m.mlir").write_text(TEXT.format(body=USE.format("exp(_1)") + "func.return %b : tensor<3xf32>", types="tensor<3xf32>"))
    status, _, errors = tool("populus_opt", tmp_path / "m.mlir", "-p", "popops-fuse,popops-fuse", "--pass-statistics")
    assert status == 0
    rows = [line.split() for line in errors.splitlines()]
    assert rows[1:] == [["popops-fuse", "yes", "4", "->", "3"], ["popops-fuse", "no", "3", "->", "3"]]


def test_C11_passes_run_until_nothing_changes():
    module = Parser(
        context(), TEXT.format(body=USE.format("exp(_1)") + "func.return %b : tensor<3xf32>", types="tensor<3xf32>")
    ).parse_module()
    assert Pipeline((PopopsFusePass(),)).run_until_nothing_changes(context(), module) == 2
    assert Pipeline((PopopsFusePass(),)).run_until_nothing_changes(context(), module) == 1


OWN_FUSION = '''
from dataclasses import dataclass
from xdsl.passes import ModulePass


@dataclass(frozen=True)
class AcmeFusePass(ModulePass):
    """A fusion of library calls."""

    name = "acme-fuse"
    AFTER = ("popart-to-popops",)

    def apply(self, ctx, op):
        pass
'''


def test_C16_a_fusion_before_selection_is_refused(tool, tmp_path):
    (tmp_path / "own.py").write_text(OWN_FUSION)
    for passes, message in (
        ("popops-fuse,popart-to-popops", "-p: popops-fuse works on popops, which popart-to-popops makes; put it after popart-to-popops"),
        ("acme-fuse,popart-to-popops", "-p: acme-fuse has to stand after popart-to-popops; put it after popart-to-popops"),
        ("poplar-allocate,popops-to-poplar", "-p: poplar-allocate works on poplar, which popops-to-poplar makes"),
    ):
        status, _, errors = tool("populus_opt", "-p", passes, "--load", tmp_path / "own.py", "--print-pipeline")
        assert status == 2
        assert message in errors
    assert tool("populus_opt", "-p", "popart-to-popops,acme-fuse", "--load", tmp_path / "own.py", "--print-pipeline")[0] == 0


def test_C18_each_phase_takes_the_text_of_the_one_before(tool, tmp_path, model, root):
    onnx.save(model(alpha=0.5), tmp_path / "0.onnx")
    own = ("--load", root / "examples/leaky_relu.py")
    file = first = tmp_path / "0.onnx"
    for i, phase in enumerate(("select", "schedule", "allocate")):
        ours, whole = tmp_path / f"{i + 1}.mlir", tmp_path / "whole.mlir"
        assert tool("populus_opt", file, "--pipeline", phase, "-o", ours, *own)[0] == 0
        assert tool("populus_opt", first, "--pipeline", "inference", "--stop-after", phase, "-o", whole, *own)[0] == 0
        one, other = (re.sub(r" loc\(.*\)", "", p.read_text()) for p in (ours, whole))
        assert one == other
        file = ours
    status, out, _ = tool("populus_opt", file, "--pipeline", "emit")
    assert status == 0
    assert "func.func @map_0" in out
    assert populus.compile(file).run({"x": X})["y"].tolist() == [-0.5, 0, 2]


def test_C18_a_phase_is_replaced_and_the_fits_are_compared(tool):
    printed = tool(
        "populus_opt", "--pipeline", "inference", "--replace-phase", "allocate=poplar-map,poplar-allocate{fit=best}", "--print-pipeline"
    )[1]
    assert printed.splitlines()[-2:] == ["poplar-map", "poplar-allocate{fit=best}"]
    with populus.Builder() as b:
        x = b.input("x", (96, 40))
        for n in (24, 64, 16, 80):
            x = b.op("relu", b.op("matmul", x, b.constant(np.ones((x.type.get_shape()[1], n), np.float32)))[0])[0]
        b.output("y", x)
    pipeline = Pipeline.named("inference")
    peaks = {
        fit: populus.compile(b.module(), tiles=4, pipeline=pipeline.with_options("poplar-allocate", fit=fit))
        .profile()
        .summary["peak_tile_bytes"]
        for fit in ("first", "best")
    }
    assert peaks["best"] >= 1
    assert peaks["first"] <= 2 * peaks["best"] <= 4 * peaks["first"]


def test_C19_the_audit_says_what_each_pass_and_engine_does_with_an_op(tool, root):
    status, out, _ = tool("populus_opt", "--load", root / "examples/leaky_relu.py", "--audit-op", "leaky_relu")
    assert status == 0
    found = {line[:20].strip(): line[20:].strip() for line in out.splitlines()}
    assert found["onnx-to-popart"].split() == ["handled", "becomes", "acme.leaky_relu"]
    assert found["popart-to-popops"].split() == ["handled", "becomes", "popops.map"]
    assert found["popops-fuse"] == "passes through"
    assert found["popart evaluator"].split() == ["handled", "by", "its", "formula"]
    assert found["popart-autodiff"].split() == ["handled", "to", "x"]
    assert all(found[f"engine {e}"] == "handled" for e in ("numpy", "strict", "native"))
    assert len(found) == len(out.splitlines())


def test_C19_what_is_missing_is_told(tool, changed):
    status, out, _ = tool("populus_opt", "--load", changed(more=NO_LOWERING), "--audit-op", "acme.reverse")
    assert status == 0
    assert "popart-to-popops     refused         'acme.reverse'" not in out
    assert re.search(r"popart-to-popops +refused +'reverse': no tile lowering for acme.reverse", out)
    assert re.search(r"popart-autodiff +refused +'reverse': acme.reverse has no gradient", out)
    assert re.search(r"popart evaluator +handled +by its evaluate", out)
    assert (
        "no op 'acme.revers'; did you mean 'acme.reverse'?"
        in tool("populus_opt", "--load", changed(more=NO_LOWERING), "--audit-op", "acme.revers")[2]
    )


def test_C4_a_model_larger_than_its_tiles_runs_by_way_of_memory_outside():
    g = np.random.default_rng(0)
    with populus.Builder() as b:
        x = b.input("x", (32, 32))
        for _ in range(6):  # at most 4 of each column are 1 or -1: what they sum up to is an integer, in any order
            w = sum(g.choice([-1, 1], 32) * np.eye(32)[g.permutation(32)] for _ in range(4))
            x = b.op("relu", b.op("matmul", x, b.constant(np.asarray(w, np.float32)))[0])[0]
        b.output("y", x)
    x = g.integers(-9, 10, (32, 32)).astype(np.float32)
    roomy = populus.compile(b.module(), target="gc200", tiles=4)
    needed = roomy.profile().summary["liveness_bound"]
    small = populus.compile(b.module(), target=f"gc200, tile_bytes={4096 + needed * 3 // 10}", tiles=4)
    assert "outside" not in str(roomy.module("poplar"))
    assert "outside" in str(small.module("poplar"))
    assert small.run({"x": x})["y"].tobytes() == roomy.run({"x": x})["y"].tobytes()
    assert small.profile().summary["host_bytes"] > roomy.profile().summary["host_bytes"]
    plain = Pipeline.named("inference").remove("poplar-offload")
    with pytest.raises(PopulusError, match="the model needs .* KiB on tile"):
        populus.compile(b.module(), target=f"gc200, tile_bytes={4096 + needed * 3 // 10}", tiles=4, pipeline=plain)


def test_C22_a_target_of_one_s_own_is_one_file_that_passes_its_test(tool, tmp_path):
    status, out, _ = tool("main", "new-target", "Mesh64", "--folder", tmp_path)
    assert status == 0
    assert [Path(line).name for line in out.splitlines()] == ["mesh64.py", "test_mesh64.py"]
    made: dict[str, object] = {"__file__": str(tmp_path / "test_mesh64.py"), "__name__": "test_mesh64"}
    code = compile((tmp_path / "test_mesh64.py").read_text(), "test_mesh64.py", "exec")
    exec(code, made)
    made["test_a_product_runs_on_it"]()
    assert tool("main", "new-target", "Mesh64", "--folder", tmp_path)[2].endswith("already exists; choose another name or folder\n")
    assert "'gc200' is there already" in tool("main", "new-target", "gc200", "--folder", tmp_path)[2]
    (tmp_path / "other.py").write_text((tmp_path / "mesh64.py").read_text())
    with pytest.raises(PopulusError, match=r"other.py: target 'mesh64' is one of .*mesh64.py; give yours another name"):
        extensions.read(tmp_path / "other.py")
    (tmp_path / "ours.py").write_text((tmp_path / "mesh64.py").read_text().replace('"mesh64"', '"gc200"'))
    with pytest.raises(PopulusError, match="ours.py: target 'gc200' is one of ours; give yours another name"):
        extensions.read(tmp_path / "ours.py")


def test_C22_the_guide_names_what_a_target_states(root):
    from dataclasses import fields

    from populus.dialects.poplar.target import Target

    guide = (root / "docs/new-target.md").read_text()
    assert all(f"`{f.name}`" in guide for f in fields(Target))


@pytest.mark.skipif(int(version("setuptools").partition(".")[0]) < 77, reason="pyproject.toml asks for setuptools 77 to build with")
def test_C21_the_tutorial_runs_from_a_wheel(root, tmp_path):
    source, site, work = tmp_path / "source", tmp_path / "site", tmp_path / "work"
    work.mkdir()
    left_out = shutil.ignore_patterns(".*", "*.egg-info", "__pycache__", "test", "benchmarks", "Output")
    shutil.copytree(root, source, symlinks=True, ignore=left_out)
    options = ["--quiet", "--no-deps", "--no-build-isolation", "--no-index", "-w", str(tmp_path)]
    built = subprocess.run([sys.executable, "-m", "pip", "wheel", *options, str(source)], check=False, capture_output=True, text=True)
    assert built.returncode == 0, built.stderr
    (wheel,) = tmp_path.glob("*.whl")
    zipfile.ZipFile(wheel).extractall(site)
    environment = {**os.environ, "PYTHONPATH": str(site)}
    for command in (
        ["-c", f"import populus; assert populus.__file__.startswith({str(site)!r})"],
        ["-m", "populus.tools.main", "new-op", "SmoothStep"],
        ["-m", "populus.tools.main", "check-op", "smooth_step.py"],
    ):
        done = subprocess.run([sys.executable, *command], check=False, cwd=work, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr


def test_C3_a_convolution_and_its_relu_need_one_buffer():
    from populus.dialects.popart import ConvOp
    from populus.dialects.poplar import VarOp
    from populus.lowering.popart.inplace import PopartInplacePass

    with populus.Builder() as b:
        x, w = b.input("x", (1, 4, 16, 16)), b.input("w", (64, 4, 3, 3))
        y = b.op(ConvOp, x, w, strides=(1, 1), pads=(1, 1, 1, 1), dilations=(1, 1), group=1, name="conv")[0]
        b.output("y", b.op("relu", y, name="relu")[0])
    kept = Pipeline(tuple(p for p in Pipeline.named("inference-plain").passes if p.name != "popart-inplace"))
    kept = kept.insert_before("popart-to-popops", PopartInplacePass(never=("relu",)))
    programs = [populus.compile(b.module(), target="gc200", tiles=4, pipeline=p) for p in (kept, "inference")]
    buffers = [[op.label.data for op in p.module("poplar").walk() if isinstance(op, VarOp)] for p in programs]
    assert len(buffers[0]) == 4
    assert len(buffers[1]) == 3  # x, w, and one that is the convolution's and then the relu's
    before, after = (p.profile().summary for p in programs)
    output = 64 * 16 * 16 * 4 // 4  # bytes of it on each of the tiles
    assert before["peak_tile_bytes"] >= 2 * output > after["peak_tile_bytes"]
    assert (before["compute_sets"], after["compute_sets"]) == (2, 1)
    g = np.random.default_rng(0)
    inputs = {n: g.integers(-4, 5, shape).astype(dtype) for n, (shape, dtype) in programs[0].session.inputs.items()}
    assert programs[0].run(inputs)["y"].tobytes() == programs[1].run(inputs)["y"].tobytes()
