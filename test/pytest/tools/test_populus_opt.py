"""populus-opt: what it writes, where, and the one line it prints when something is wrong."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from populus.lowering.popart.patterns import constants

MODULE = """func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
  %y = popops.map <neg(_1)>(%x) : (tensor<4xf32>) -> tensor<4xf32>
  func.return %y : tensor<4xf32>
}
"""

OPS = '''
"""Two ops and a pass of a user."""

from dataclasses import dataclass

from xdsl.dialects.builtin import TensorType
from xdsl.irdl import IRDLOperation, irdl_op_definition, operand_def, result_def
from xdsl.passes import ModulePass


@irdl_op_definition
class CubeOp(IRDLOperation):
    name = "custom.cube"
    x = operand_def(TensorType)
    y = result_def(TensorType)
    assembly_format = "$x attr-dict `:` type($x) `->` type($y)"


@dataclass(frozen=True)
class CountPass(ModulePass):
    name = "custom-count"
    limit: int = 3

    def apply(self, ctx, op):
        print("ops:", sum(1 for _ in op.walk()))
'''


@pytest.fixture
def module(tmp_path):
    path = tmp_path / "x.mlir"
    path.write_text(MODULE)
    return path


def write(path, text):
    path.write_text(text)
    return path


BAD_ARGUMENTS = {
    "an unknown pass names the nearest": (
        ["-p", "popart-to-popop"],
        "populus-opt: -p: no pass 'popart-to-popop'; did you mean 'popart-to-popops'?",
    ),
    "a pipeline that is no pipeline is quoted": (
        ["-p", "cse{"],
        "populus-opt: -p: cannot read 'cse{'; a pass is name, or name{option=value option=\"text\"}",
    ),
    "an unknown option of a pass names those there are": (
        ["-p", "cse{tiles=1}"],
        "populus-opt: -p: cse has no option 'tiles'; there are none",
    ),
    "an unknown named pipeline names the nearest": (
        ["--pipeline", "inferense"],
        "populus-opt: no pipeline 'inferense'; did you mean 'inference'?",
    ),
    "a pipeline file that is not there": (["--pipeline", "no.txt"], "populus-opt: no.txt: no such file or directory"),
    "both ways to give passes": (
        ["-p", "cse", "--pipeline", "inference"],
        "populus-opt: -p and --pipeline are both given; write the passes into one of them",
    ),
    "an unknown argument": (
        ["--verify"],
        "populus-opt: ambiguous option: --verify could match --verify-legal, --verify-each, --verify-diagnostics",
    ),
    "an unknown format": (["-t", "lvm"], "populus-opt: no output format 'lvm'; did you mean 'llvm'?"),
    "a file to load that is not there": (["--load", "no.py"], "populus-opt: no.py: no such file; --load takes a Python file"),
    "weights that are not there": (["--weights", "no.safetensors"], "populus-opt: no.safetensors: No such file or directory"),
    "an output in no folder": (
        ["-o", "/no/such/folder/x.mlir"],
        "populus-opt: /no/such/folder/x.mlir: cannot be written: there is no folder /no/such/folder",
    ),
}


USAGE = (
    "an unknown pass names the nearest",
    "a pipeline that is no pipeline is quoted",
    "an unknown option of a pass names those there are",
    "an unknown named pipeline names the nearest",
    "both ways to give passes",
    "an unknown argument",
    "an unknown format",
)


@pytest.mark.parametrize("case", BAD_ARGUMENTS)
def test_a_bad_argument_is_one_line(case, populus_opt, module):
    args, message = BAD_ARGUMENTS[case]
    got = populus_opt(module, *args)
    assert got.status == (2 if case in USAGE else 1) and got.out == ""
    assert got.err.count("\n") == 1 and got.err.startswith(message), got.err


BAD_TEXTS = {
    "a syntax error": ("func.func @f( {\n}", "x.mlir:1:15: Expected argument or type"),
    "an unknown op": ("func.func @f() {\n  popops.mapp\n}", "x.mlir:2:3: there is no op 'popops.mapp'; did you mean 'popops.map'?"),
    "an unknown dialect": ("popopps.map", "x.mlir:1:1: there is no op 'popopps.map', nor a dialect 'popopps'; did you mean 'popops'?"),
    "an attribute that cannot be": ("%k = data.constant #data.stored<1> : tensor<4xf32>", "x.mlir:1:33: "),
    "a value that is used before it is defined": (
        'func.func @f() {\n  "test.op"(%x) : (i32) -> ()\n  %x = "test.op"() : () -> i32\n  func.return\n}',
        "populus-opt: x.mlir:2:3: test.op uses %x before it is defined",
    ),
    "a result type that does not follow": (
        MODULE.replace("-> tensor<4xf32>\n  func", "-> tensor<5xf32>\n  func").replace("return %y", "return %x"),
        "populus-opt: x.mlir:2:3: popops.map: ",
    ),
    "bytes that are no text": (b"\xff\xfe", "populus-opt: x.mlir: not a text: byte 0 is not UTF-8"),
}


CARETS = ("a syntax error", "an unknown op", "an unknown dialect", "an attribute that cannot be")


@pytest.mark.parametrize("case", BAD_TEXTS)
def test_a_malformed_module_is_one_line_with_its_place(case, populus_opt, tmp_path, monkeypatch):
    text, message = BAD_TEXTS[case]
    monkeypatch.chdir(tmp_path)
    (tmp_path / "x.mlir").write_bytes(text if isinstance(text, bytes) else text.encode())
    got = populus_opt("x.mlir")
    error, *source = got.err.splitlines()
    assert got.status == 1
    assert message in error, got.err
    if source:  # the line and a caret, for an error of the parser
        line, caret = source
        number, column = map(int, error.split("x.mlir:")[1].split(":")[:2])
        assert line == f"  {text.splitlines()[number - 1]}"
        assert caret == " " * (column + 1) + "^"
    assert bool(source) == (case in CARETS)


def test_debug_shows_the_traceback(populus_opt, tmp_path):
    with pytest.raises(Exception, match="no such file"):
        populus_opt(tmp_path / "no.mlir", "--debug")


@pytest.mark.parametrize(
    ("name", "message"), [("no.mlir", "no such file"), ("x.txt", "neither .mlir nor .onnx; state the format with -f"), ("", "not a file")]
)
def test_a_file_that_cannot_be_read_is_one_line(name, message, populus_opt, tmp_path):
    (tmp_path / "x.txt").write_text(MODULE)
    got = populus_opt(tmp_path / name)
    assert (got.status, got.err) == (1, f"populus-opt: {tmp_path / name}: {message}\n")


def test_weights_go_beside_the_output_and_come_back(populus_opt, tmp_path):
    from xdsl.dialects.builtin import ModuleOp

    from populus.dialects.data import ConstantOp, constant
    from populus.dialects.table import context
    from populus.lowering.driver.files import read_module, text_of, write_module

    array = np.arange(100, dtype=np.float32)
    made = ModuleOp([constant(array, "w")])
    write_module([made], text_of(made, locations=True), tmp_path / "a.mlir")
    del made
    assert populus_opt(tmp_path / "a.mlir", "-o", tmp_path / "b.mlir").status == 0
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.mlir", "a.safetensors", "b.mlir", "b.safetensors"]
    read = read_module(context(), tmp_path / "b.mlir")
    op = read.body.block.first_op
    assert isinstance(op, ConstantOp)
    assert np.array_equal(op.array(), array)
    assert 'loc("w")' in (tmp_path / "b.mlir").read_text()


def test_a_failing_pass_leaves_no_output(populus_opt, module, tmp_path):
    load = write(tmp_path / "ops.py", OPS.replace('print("ops:", sum(1 for _ in op.walk()))', "raise RuntimeError('lost')"))
    (tmp_path / "out.mlir").write_text("before")
    got = populus_opt(module, "--load", load, "-p", "custom-count", "-o", tmp_path / "out.mlir")
    assert got.status == 1
    line = load.read_text()[: load.read_text().index("raise")].count("\n") + 1
    assert got.err == f"populus-opt: {module}: {load}:{line}: RuntimeError: lost (in custom-count)\n"
    assert (tmp_path / "out.mlir").read_text() == "before"
    assert not list(tmp_path.glob("*.partial"))


def test_load_brings_ops_and_passes_in(populus_opt, tmp_path):
    load = write(tmp_path / "ops.py", OPS)
    text = write(tmp_path / "x.mlir", '%x = "test.op"() : () -> tensor<4xf32>\n%y = custom.cube %x : tensor<4xf32> -> tensor<4xf32>\n')
    got = populus_opt(text, "--load", load, "-p", "custom-count{limit=4}")
    assert (got.status, got.err) == (0, "")
    assert "ops: 3" in got.out and "custom.cube %x" in got.out
    assert "no pass 'custom-count'" in populus_opt(text, "-p", "custom-count").err


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x = 1", "defines no op, dialect, attribute, pass or pattern; an op is a class with @irdl_op_definition and a name"),
        ("x = 1\ny = missing", "NameError: name 'missing' is not defined"),
        ("def f(:", "SyntaxError: invalid syntax"),
    ],
)
def test_a_file_that_cannot_be_loaded_is_one_line(text, message, populus_opt, module, tmp_path):
    got = populus_opt(module, "--load", write(tmp_path / "bad.py", text))
    assert got.status == 1 and got.err.count("\n") == 1
    assert message in got.err and "bad.py" in got.err


def test_dump_dir_has_a_file_for_each_pass_that_reads_back(populus_opt, module, tmp_path):
    dumps = tmp_path / "dumps"
    assert populus_opt(module, "-p", "cse,dce", "--dump-dir", dumps).status == 0
    assert sorted(p.name for p in dumps.iterdir()) == ["00-input.mlir", "01-cse.mlir", "02-dce.mlir"]
    assert populus_opt(dumps / "02-dce.mlir").out == populus_opt(module).out


def test_time_passes_prints_a_table_to_stderr(populus_opt, module):
    got = populus_opt(module, "-p", "cse,dce", "--time-passes")
    assert [line.split()[0] for line in got.err.splitlines()] == ["pass", "cse", "dce", "all"]
    assert got.out == populus_opt(module).out


def test_print_pipeline_prints_what_would_run_and_parses_back(populus_opt, module, tmp_path):
    got = populus_opt("-p", "dce, cse", "--print-pipeline")
    assert (got.status, got.out) == (0, "dce\ncse\n")
    assert populus_opt("--pipeline", write(tmp_path / "p.txt", got.out), "--print-pipeline").out == got.out


def test_the_dimensions_of_a_model_are_whole_numbers(populus_opt, tmp_path):
    (tmp_path / "m.onnx").write_bytes(b"")
    got = populus_opt(tmp_path / "m.onnx", "--dim", "batch=many")
    assert got.err == (
        "populus-opt: --dim batch=many: expected NAME=N or NAME=LEAST..GREATEST, such as --dim batch=1 or --dim seq=1..512\n"
    )


def test_standard_input_is_read(populus_opt, monkeypatch):
    import io
    import sys

    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(MODULE.encode())))
    assert "popops.map" in populus_opt().out


def test_the_weights_of_a_model_follow_its_dumps(populus_opt, populus, tmp_path):
    import gc

    import onnx
    from onnx import TensorProto, helper

    w = np.arange(300, dtype=np.float32).reshape(3, 100)
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"], name="product")],
        "big",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 3])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [2, 100])],
        [onnx.numpy_helper.from_array(w, "w")],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), tmp_path / "big.onnx")
    passes = "onnx-infer-shapes,onnx-fold-constants,onnx-to-popart"
    assert populus_opt(tmp_path / "big.onnx", "-p", passes, "--dump-dir", tmp_path / "d", "-o", tmp_path / "o.mlir").err == ""
    gc.collect()  # the process forgets the weights
    dumps = sorted(path.name for path in (tmp_path / "d").iterdir())
    assert dumps[0] == "00-input.mlir"
    assert dumps[-2:] == ["03-onnx-to-popart.mlir", "weights.safetensors"]
    x = np.ones((2, 3), np.float32)
    np.savez(tmp_path / "x.npz", x=x)
    np.savez(tmp_path / "y.npz", y=x @ w)
    for text in (tmp_path / "o.mlir", tmp_path / "d" / dumps[-2]):
        assert 'loc("product")' in text.read_text()
        got = populus("run", text, "--level", "popops", "--inputs", tmp_path / "x.npz", "--expect", tmp_path / "y.npz")
        assert (got.status, got.err) == (0, "")
    (tmp_path / "o.safetensors").unlink()
    gc.collect()
    got = populus("run", tmp_path / "o.mlir", "--level", "popops")
    assert got.status == 1
    assert "is not loaded; give the file of weights" in got.err
    got = populus_opt(
        tmp_path / "o.mlir", "--weights", tmp_path / "d" / "weights.safetensors", "--save-weights", tmp_path / "again.safetensors"
    )
    assert got.status == 0
    assert (tmp_path / "again.safetensors").read_bytes() == (tmp_path / "d" / "weights.safetensors").read_bytes()


def test_weights_of_another_content_are_refused(populus_opt, module, tmp_path):
    from safetensors.numpy import save_file

    save_file({"0123456789abcdef": np.zeros(4, np.uint8)}, tmp_path / "w.safetensors")
    got = populus_opt(module, "--weights", tmp_path / "w.safetensors")
    assert got.status == 1
    assert got.err.endswith("w.safetensors: the content of '0123456789abcdef' is not what it is named for; write the weights again\n")


def test_a_pipeline_as_mlir_opt_nests_it(populus_opt, module):
    nested = "builtin.module(cse, func.func(canonicalize,dce),popops-narrow{target=gc200})"
    got = populus_opt(module, f"--pass-pipeline={nested}", "--print-pipeline")
    assert (got.status, got.out.split()) == (0, ["cse", "canonicalize", "dce", "popops-narrow{target=gc200}"])
    wrong = {"builtin.module(cse": "do not match", "builtin.module(scf.for(cse))": "nested on 'scf.for'", "cse)": "do not match"}
    for text, message in wrong.items():
        assert message in populus_opt(module, "--pass-pipeline", text).err


def test_a_dash_is_standard_input(populus_opt, monkeypatch):
    import io
    import sys

    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(MODULE.encode())))
    assert "popops.map" in populus_opt("-").out


FAILING = OPS.replace('print("ops:", sum(1 for _ in op.walk()))', "raise RuntimeError('lost')")


def test_modules_are_printed_after_passes_to_stderr(populus_opt, module, tmp_path):
    got = populus_opt(module, "-p", "cse,dce", "--mlir-print-ir-after-all")
    assert [line for line in got.err.splitlines() if "IR Dump" in line] == [
        "// -----// IR Dump After cse //----- //",
        "// -----// IR Dump After dce //----- //",
    ]
    assert got.err.count("popops.map") == 2
    assert got.out == populus_opt(module).out
    load = write(tmp_path / "ops.py", FAILING)
    got = populus_opt(module, "--load", load, "-p", "cse,custom-count", "--mlir-print-ir-after-failure")
    assert got.status == 1
    assert "IR Dump After custom-count Failed" in got.err and "popops.map" in got.err


def test_modules_are_printed_only_after_passes_that_changed_them(populus_opt, tmp_path):
    unread = "  %z = popops.map <exp(_1)>(%x) : (tensor<4xf32>) -> tensor<4xf32>\n  func.return"
    text = write(tmp_path / "x.mlir", MODULE.replace("  func.return", unread))
    got = populus_opt(text, "-p", "canonicalize,dce,cse", "--mlir-print-ir-after-change")
    assert [line for line in got.err.splitlines() if "IR Dump" in line] == ["// -----// IR Dump After canonicalize //----- //"]
    assert populus_opt(text, "-p", "canonicalize,dce,cse", "--mlir-print-ir-after-change", "--mlir-print-ir-after-all").err == got.err


def test_a_failing_pass_is_kept_with_its_module_and_the_passes_left(populus_opt, tmp_path):
    values = ", ".join(f"{i}.5" for i in range(99))
    folded = f"%a = data.constant dense<[{values}]> : tensor<99xf32>\n  %k = popart.neg %a : tensor<99xf32>\n  func.return"
    text = MODULE.replace("func.return", folded).replace("4xf32", "99xf32").replace("return %y", "return %k")
    load, kept = write(tmp_path / "ops.py", FAILING), tmp_path / "kept.mlir"
    passes = "popart-fuse,custom-count,popops-narrow{target=gc200}"
    got = populus_opt(write(tmp_path / "x.mlir", text), "--load", load, "-p", passes, "--mlir-pass-pipeline-crash-reproducer", kept)
    assert got.status == 1
    assert f"{kept} has the module before custom-count, and the passes left for --run-reproducer --load {load}\n" in got.err
    assert 'pipeline: "builtin.module(custom-count,popops-narrow{target=gc200})"' in kept.read_text()
    assert "popops.map" not in kept.read_text()
    again = populus_opt(kept, "--load", load, "--run-reproducer")
    assert (again.status, again.err) == (1, got.err.splitlines()[-1].replace("x.mlir", "kept.mlir") + "\n")
    plain = populus_opt(kept)
    assert plain.status == 0 and "#data.stored" in plain.out
    assert not (tmp_path / "none.mlir").exists()
    assert populus_opt(kept, "-p", "dce", "--mlir-pass-pipeline-crash-reproducer", tmp_path / "none.mlir").status == 0
    assert not (tmp_path / "none.mlir").exists()


@pytest.mark.parametrize(
    ("arguments", "status", "said"),
    [
        (["x.mlir", "--run-reproducer"], 1, "x.mlir: no reproducer, which --mlir-pass-pipeline-crash-reproducer writes, at its end"),
        (["no.mlir", "--run-reproducer"], 1, "no.mlir: no such file"),
        (["--run-reproducer"], 2, "--run-reproducer reads the passes from a file; give its path"),
        (["x.mlir", "--run-reproducer", "-p", "cse"], 2, "-p and --run-reproducer are both given"),
        (["bad.mlir", "--run-reproducer"], 1, "bad.mlir: no pass 'csee'; did you mean 'cse'?"),
        (["x.mlir", "--debug-only", "popart-fus"], 2, "no --debug-only choice 'popart-fus'; did you mean 'popart-fuse'?"),
    ],
)
def test_what_is_no_reproducer_and_no_topic_is_one_line(populus_opt, tmp_path, monkeypatch, arguments, status, said):
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "x.mlir", MODULE)
    write(tmp_path / "bad.mlir", MODULE + '{-# external_resources: { mlir_reproducer: { pipeline: "builtin.module(csee)" } } #-}')
    got = populus_opt(*arguments)
    assert got.status == status
    assert said in got.err and got.err.count("\n") == 1


SCALED = """func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
  %one = data.constant dense<1.0> : tensor<4xf32>
  %a = popart.neg %x : tensor<4xf32>
  %y = popart.mul %a, %one : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  func.return %y : tensor<4xf32>
}
"""


def test_the_log_of_rewrites_says_what_fires_and_at_which_condition_others_stop(populus_opt, tmp_path):
    path = write(tmp_path / "x.mlir", SCALED)
    got = populus_opt(path, "-p", "popart-fuse", "--debug-only=popart-fuse")
    assert f"[popart-fuse] {path}:4:3: popart.mul: OpToIdentity fires" in got.err
    stopped = re.search(r"x.mlir:3:3: popart.neg: FoldConstants stops at constants.py:(\d+): (.*)", got.err)
    assert stopped is not None
    lines = (Path(constants.__file__)).read_text().splitlines()
    assert stopped[2] in "\n".join(lines[: int(stopped[1])])
    assert populus_opt(path, "-p", "popart-fuse").err == ""
    assert populus_opt(path, "-p", "popart-fuse", "--debug-only=popart-fuse").out == populus_opt(path, "-p", "popart-fuse").out


def test_a_module_is_not_verified_if_that_is_disabled(populus_opt, tmp_path):
    text = write(tmp_path / "x.mlir", '"test.op"(%x) : (i32) -> ()\n%x = "test.op"() : () -> i32\n')
    assert "before it is defined" in populus_opt(text).err
    assert populus_opt(text, "--disable-verify").status == 0


@pytest.mark.parametrize(
    ("comment", "problem"),
    [
        ("// expected-error @+1 {{there is no op 'popops.mapp'}}", None),
        ("// expected-error @below {{no op}}", None),
        ("// expected-error @unknown {{no op}}", None),
        ("// expected-error {{no op}}", "x.mlir:1: expected error 'no op' is in line 2"),
        ("// expected-error @+1 {{no dialect}}", "x.mlir:2: expected error 'no dialect', found: x.mlir:2:1: there is no op"),
        ("// expected-error {{a}} // expected-error {{b}}", "2 errors are expected"),
    ],
)
def test_expected_errors_are_compared(comment, problem, populus_opt, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "x.mlir", f"{comment}\npopops.mapp\n")
    got = populus_opt("x.mlir", "--verify-diagnostics")
    assert got.status == (0 if problem is None else 1), got.err
    assert problem is None or problem in got.err
    write(tmp_path / "x.mlir", f"{comment}\nbuiltin.module {{}}\n")
    assert ("was not produced" in populus_opt("x.mlir", "--verify-diagnostics").err) or problem == "2 errors are expected"


TILES = "popops-to-poplar{target=gc200 tiles=2},poplar-map,poplar-merge,poplar-allocate"


def test_the_code_of_vertices_is_printed_as_mlir_and_as_llvm(populus_opt, module, tmp_path):
    got = populus_opt(module, "-p", TILES, "-t", "codelets")
    assert got.status == 0
    assert "func.func @map_0(" in got.out and "arith.negf" in got.out and "poplar." not in got.out
    assert populus_opt(write(tmp_path / "c.mlir", got.out), "-t", "codelets").out == got.out
    text = populus_opt(module, "-p", TILES, "-t", "llvm").out
    assert 'define void @"map_0"(' in text and "fneg" in text
    assert text == populus_opt(module, "-p", f"{TILES},poplar-emit", "-t", "llvm").out
    assert 'define void @"map_0"(' in populus_opt(module, "-p", f"{TILES},poplar-emit,codelet-to-llvm", "-t", "llvm").out
    pytest.importorskip("llvmlite")
    from llvmlite import binding

    assert [f.name for f in binding.parse_assembly(text).functions if not f.is_declaration] == ["map_0"]
    assert "above the tile level" in populus_opt(module, "-t", "llvm").err


def test_built_in_ops_are_audited(populus_opt):
    """The table of examples has what operands of one float shape do not fit. Of it, and of the others, a sample is audited."""
    from populus.dialects.popart import POPART
    from populus.dialects.popart.base import PopartOp
    from populus.dialects.support.diagnostics import verify
    from populus.dialects.table import context
    from populus.tools.op_examples import EXAMPLES, example

    for name in EXAMPLES:
        module = example(context(), name)
        assert any(op.name == f"popart.{name}" for op in module.walk())
        verify(module)
    ops = [op.name.removeprefix("popart.") for op in POPART.operations if issubclass(op, PopartOp)]
    alike = [name for name in ops if name not in EXAMPLES]
    for name in [*list(EXAMPLES)[::6], *alike[::25]]:
        got = populus_opt("--audit-op", name)
        assert got.status == 0, (name, got.err)
    assert "differentiates its regions" in populus_opt("--audit-op", "loop").out
