"""The extension of `examples/kernels`: kernels are chosen for the whole program, and `check.py` finds one that differs from its op."""

from __future__ import annotations

import importlib.util
from itertools import product
from pathlib import Path

import numpy as np
import pytest

import populus as package
from helpers.wrong_tables import TABLE
from populus.lowering.driver import extensions

FOLDER = Path(__file__).parents[2] / "examples/kernels"
FILE = FOLDER / "kernels.py"
TWO = """
from dataclasses import dataclass
from typing import ClassVar

from populus.dialects.popart import AbsOp, ReluOp, calls
from populus.lowering.driver.extensions import read

kernels = read({file!r}).module
NCHW8C, PLANAR, Config = kernels.NCHW8C, kernels.PLANAR, kernels.Config


class Never(kernels.Kernel):
    op, name = AbsOp, "never"

    def configs(self, op):
        return [Config((NCHW8C,), (NCHW8C,), cost=-9)]

    def init(self, op, config):
        return "no scratch memory is left"

    def lower(self, b, op, operands, config):
        raise AssertionError("vetoed")


@dataclass(frozen=True)
class AcmeSelectKernelsPass(kernels.SelectKernelsPass):
    name = "acme-select-kernels"
    KERNELS: ClassVar = (kernels.BlockedRelu, Never)
"""
CHAIN = """
func.func @main(%x: tensor<1x3x2x2xf32>) -> tensor<1x3x2x2xf32> {
  %a = popart.relu %x : tensor<1x3x2x2xf32>
  %b = popart.relu %a : tensor<1x3x2x2xf32>
  %c = popart.relu %b : tensor<1x3x2x2xf32>
  %d = popart.abs %c : tensor<1x3x2x2xf32>
  func.return %d : tensor<1x3x2x2xf32>
}
"""
BRANCH = """
func.func @main(%c: tensor<i1>, %x: tensor<1x3x2x2xf32>) -> tensor<1x3x2x2xf32> {
  %y = popart.if %c then {
    %a = popart.relu %x : tensor<1x3x2x2xf32>
    %b = popart.relu %a : tensor<1x3x2x2xf32>
    %d = popart.relu %b : tensor<1x3x2x2xf32>
    popart.yield %d : tensor<1x3x2x2xf32>
  } else {
    popart.yield %x : tensor<1x3x2x2xf32>
  } : tensor<i1> -> tensor<1x3x2x2xf32>
  func.return %y : tensor<1x3x2x2xf32>
}
"""
LOOP = """
func.func @main(%x: tensor<1x3x2x2xf32>) -> tensor<1x3x2x2xf32> {
  %p = popart.relu %x : tensor<1x3x2x2xf32>
  %q = popart.relu %p : tensor<1x3x2x2xf32>
  %n = popart.abs %q : tensor<1x3x2x2xf32>
  %y = popart.loop(%n) {trips = 5 : i64} : (tensor<1x3x2x2xf32>) -> tensor<1x3x2x2xf32> do {
  ^bb0(%i: tensor<i32>, %s: tensor<1x3x2x2xf32>):
    %a = popart.relu %n : tensor<1x3x2x2xf32>
    %b = popart.relu %a : tensor<1x3x2x2xf32>
    %t = popart.add %s, %b : (tensor<1x3x2x2xf32>, tensor<1x3x2x2xf32>) -> tensor<1x3x2x2xf32>
    popart.yield %t : tensor<1x3x2x2xf32>
  }
  func.return %y : tensor<1x3x2x2xf32>
}
"""


@pytest.fixture
def select(tmp_path, populus_opt):
    """`select(text, options)`: populus-opt with the choice among two kernels."""
    (tmp_path / "two.py").write_text(TWO.format(file=str(FILE)))

    def run(text, options=""):
        (tmp_path / "m.mlir").write_text(text)
        passes = f"acme-select-kernels{{explain=true {options}}}"
        return populus_opt(tmp_path / "m.mlir", "--load", tmp_path / "two.py", "-p", passes)

    return run


def test_three_in_blocks_save_more_than_two_reorders_cost(select):
    got = select(CHAIN)
    assert got.status == 0
    counts = {of: got.out.count(of) for of in ("popart.relu", "<max(_1, 0)>", "popops.pad", "popops.slice")}
    assert counts == {"popart.relu": 0, "<max(_1, 0)>": 3, "popops.pad": 1, "popops.slice": 1}
    lines = got.err.splitlines()
    assert "popart.relu: blocked: 1.5 cycles in (blocked 8 at 1) -> (blocked 8 at 1); own (planar) -> (planar) 12" in lines[0]
    assert "popart.abs: own: 12 cycles in (planar) -> (planar); never: vetoed: no scratch memory is left" in lines[3]


def test_a_kernel_is_forced_by_its_name(select):
    assert select(CHAIN, 'force="relu:own"').out.count("popart.relu") == 3
    got = select(CHAIN, 'force="relu:block"')
    assert got.status == 1 and "popart.relu has no kernel 'block' to be forced; did you mean 'blocked'?" in got.err
    got = select(CHAIN.replace("1x3x2x2", "3"), 'force="relu:blocked"')
    assert "no kernel computes popart.relu: blocked: operand 0 has 1 dimensions; 4 are expected; own: blocked is forced" in got.err
    assert "force = 'relu'; expected OP:KERNEL, such as relu:blocked" in select(CHAIN, 'force="relu"').err


def test_ops_of_a_branch_are_chosen_and_its_values_are_packed_once(select):
    out = select(BRANCH).out
    before, _, inside = out.partition("popart.if")
    assert before.count("popops.pad") == 1 and "popops.pad" not in inside
    assert inside.count("popops.map") == 3 and inside.count("popops.slice") == 1


def test_a_loop_pays_for_a_reorder_that_one_run_does_not(select):
    """Two in a row save less than two reorders cost, but not in a loop that packs its operand once for five iterations."""
    before, _, inside = select(LOOP).out.partition("popart.loop")
    assert before.count("popart.relu") == 2 and before.count("popops.pad") == 1
    assert inside.count("popops.map") == 2 and inside.count("popart.relu") == 0


@pytest.mark.parametrize("text", [CHAIN, BRANCH, LOOP], ids=["chain", "branch", "loop"])
def test_the_values_are_those_without_a_choice(text, tmp_path):
    path = tmp_path / "m.mlir"
    path.write_text(text)
    g = np.random.default_rng(0)
    inputs = {"x": g.normal(size=(1, 3, 2, 2)).astype(np.float32), **({"c": np.array(True)} if "%c: tensor<i1>" in text else {})}
    plain = package.compile(path, tiles=4).run(inputs)
    chosen = package.compile(path, tiles=4, load=[FILE], pipeline=extensions.read(FILE).module.inference("relu:blocked")).run(inputs)
    assert {n: v.tobytes() for n, v in chosen.items()} == {n: v.tobytes() for n, v in plain.items()}


def test_the_joint_choice_is_the_least_of_all():
    module = extensions.read(FILE).module
    g = np.random.default_rng(1)
    for _ in range(20):
        sizes = [int(n) for n in g.integers(1, 4, 5)]
        scopes = [(0,), (1, 2), (2, 3, 4), (0, 4), (1, 3)]
        costs = [g.integers(0, 9, [sizes[v] for v in of]) for of in scopes]
        tables = [module.Table(of, lambda picks, c=c: float(c[picks])) for of, c in zip(scopes, costs)]

        def total(picks, costs=costs, scopes=scopes):
            return sum(float(c[tuple(picks[v] for v in of)]) for of, c in zip(scopes, costs))

        assert total(module.least(sizes, tables)) == min(map(total, product(*map(range, sizes))))


RELU = """
from dataclasses import dataclass
from typing import ClassVar

from populus.dialects.popart import ReluOp, calls
from populus.lowering.driver.extensions import read

kernels = read({file!r}).module
NCHW8C, PLANAR, Config = kernels.NCHW8C, kernels.PLANAR, kernels.Config


class Blocked(kernels.Kernel):
    op, name = ReluOp, "blocked"
    rank = 4

    def configs(self, op):
        return [Config((PLANAR,), (PLANAR,)), Config((NCHW8C,), (NCHW8C,), cost=0.01)]

    def lower(self, b, op, operands, config):
        y = calls.map(b, op.formula(), *operands)
        return [y]


@dataclass(frozen=True)
class AcmeSelectKernelsPass(kernels.SelectKernelsPass):
    name = "acme-select-kernels"
    KERNELS: ClassVar = (Blocked,)
"""
PICK = """
from dataclasses import dataclass

from populus.lowering.driver.extensions import read

kernels = read({file!r}).module
PLANAR, Config = kernels.PLANAR, kernels.Config


class First(kernels.Kernel):
    op, name = PickOp, "first"

    def configs(self, op):
        return [Config((PLANAR, PLANAR), (PLANAR,))]

    def lower(self, b, op, operands, config):
        y = calls.op(b, "gather", *operands, axis=0)
        return [calls.op(b, "mul", y, calls.fill(b, -1.0 if op.negate else 1.0, calls.element(y)))]


class Second(kernels.Kernel):
    op, name = PickOp, "second"

    def configs(self, op):
        return [Config((PLANAR, PLANAR), (PLANAR,), cost=2.0), Config((PLANAR, PLANAR), (PLANAR,), cost=3.0)]

    def lower(self, b, op, operands, config):
        y = calls.op(b, "gather", *operands, axis=0)
        return [calls.map(b, Arg(1) * (-1.0 if op.negate else 1.0), y)]


@dataclass(frozen=True)
class AcmeSelectKernelsPass(kernels.SelectKernelsPass):
    name = "acme-select-kernels"
    KERNELS: ClassVar = (First, Second)
"""
FILES = {"relu": RELU, "pick": TABLE + PICK}


def check(text, tmp_path, capsys):
    """(how many kernels fail, what is printed, the errors)"""
    spec = importlib.util.spec_from_file_location("check_kernels", FOLDER / "check.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    path = tmp_path / "own.py"
    path.write_text(text.replace("{file!r}", repr(str(FILE))))
    capsys.readouterr()
    return module.main(str(path)), *capsys.readouterr()


@pytest.mark.parametrize(("file", "lines"), [
    ("relu", ["popart.relu: blocked: as the op itself, 6 times"]),
    ("pick", ["acme.pick: first: as the op itself, 6 times", "acme.pick: second: as the op itself, 12 times"]),
])  # fmt: skip
def test_a_kernel_that_gives_what_its_op_gives_passes(file, lines, tmp_path, capsys):
    failed, out, errors = check(FILES[file], tmp_path, capsys)
    assert (failed, errors, out.splitlines()) == (0, "", lines)


WRONG = [
    ("relu", "op.formula()", "op.formula() * 2", "popart.relu: kernel 'blocked' gives other values than popart.relu for y at popops: by "),
    (
        "relu",
        "op.formula()",
        "op.formula() + (1.0 if config.inputs[0].block else 0.0)",
        "popart.relu: kernel 'blocked' gives other values than popart.relu for y at popops: by ",
    ),
    ("relu", "rank = 4", "rank, arity = 4, (2, 1)", "supports none of the op's EXAMPLES, so it is untested: "),
    ("relu", "[y]", "[y + 1]", "kernel 'blocked' fails: TypeError: unsupported operand type"),
    ("relu", "[y]", "[operands[0]]", "kernel 'blocked' gives other values than popart.relu for y at popops: by "),
    ("relu", "[y]", "[]", "kernel 'blocked' gives nothing; tensor<"),
    ("pick", "-1.0 if op.negate else 1.0, calls", "2.0, calls", "kernel 'first' gives other values than acme.pick for y at popops: by "),
    ("pick", "* (-1.0 if", "* unknown * (-1.0 if", "kernel 'second' fails: NameError: name 'unknown'"),
    ("pick", "* (-1.0 if", "* (config.cost - 1.0) * (-1.0 if", "kernel 'second' gives other values than acme.pick for y at popops: by "),
    ("pick", "* (-1.0 if op.negate else 1.0)", "* 1.0", "with 'negate' = True kernel 'second' gives other values than acme.pick for y"),
]


@pytest.mark.parametrize(("file", "old", "new", "message"), WRONG, ids=range(len(WRONG)))
def test_a_kernel_that_gives_something_else_is_named_with_its_op(file, old, new, message, tmp_path, capsys):
    assert FILES[file].count(old) == 1
    failed, _, errors = check(FILES[file].replace(old, new), tmp_path, capsys)
    assert failed == 1
    assert errors.count("\n") == 1 and message in errors, errors
