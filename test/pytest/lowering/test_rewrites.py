"""Rewrites leave results what they were: every program of the lit tests is run before and after, with each pattern on and off."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp

import populus
from populus.dialects.support.dead_code import erase_dead
from populus.dialects.support.diagnostics import PopulusError, place, verify
from populus.dialects.support.element_types import dtype_of, element_type_of, shape_of
from populus.dialects.support.parser import LocatingParser
from populus.dialects.table import context
from populus.lowering.driver.extensions import read
from populus.lowering.driver.pipeline import Pipeline
from populus.lowering.popart.cse import PopartCsePass
from populus.lowering.popart.fuse import PopartFusePass
from populus.lowering.popart.patterns import PATTERNS
from populus.runtime.interpreter import run_function

FOLDER = Path(__file__).parents[2] / "filecheck/lowering"
Arrays = dict[str, NDArray[Any]]


def programs() -> Iterator[Any]:
    """The programs of the lit tests of these passes."""
    for name in ("popart-cse", "popart-fuse"):
        for path in sorted((FOLDER / name).glob("*.mlir")):
            if not path.stem.endswith(("_invalid", "not_loaded")):
                for i, text in enumerate(path.read_text().split("// -----")):
                    yield pytest.param(text, id=f"{path.stem}-{i}")


def parsed(text: str) -> ModuleOp:
    module = LocatingParser(context(), text).parse_module()
    verify(module)
    return module


def drawn(module: ModuleOp) -> Arrays:
    """Random inputs of `@main`, halves of them negative, with both zeros."""
    rng = np.random.default_rng(1)
    main = next(f for f in module.body.block.ops if isinstance(f, FuncOp) and f.sym_name.data == "main")
    found: Arrays = {}
    for i, argument in enumerate(main.body.block.args):
        array = np.asarray(2 * rng.standard_normal(shape_of(argument.type)))
        array.reshape(-1)[:2] = [0.0, -0.0][: array.size]
        dtype = dtype_of(element_type_of(argument.type))
        found[argument.name_hint or f"input_{i}"] = (abs(50 * array) if dtype.kind == "u" else array).astype(dtype)
    return found


def agree(before: Arrays, after: Arrays, exact: bool) -> None:
    assert before.keys() == after.keys()
    for name, expected in before.items():
        if exact:
            assert after[name].tobytes() == np.ascontiguousarray(expected).tobytes(), name
        else:
            np.testing.assert_allclose(after[name], expected, rtol=1e-5, atol=1e-5, err_msg=name)


@pytest.mark.parametrize("text", list(programs()))
@pytest.mark.parametrize("exact", [True, False])
def test_a_program_computes_the_same_before_and_after(text: str, exact: bool) -> None:
    module = parsed(text)
    inputs = drawn(module)
    with np.errstate(all="ignore"):
        before = run_function(module, inputs)
        for rewriting in (PopartCsePass(), PopartFusePass(exact=exact)):
            rewriting.apply(context(), module)
            verify(module)
        after = run_function(module, inputs)
        lowered = module.clone()
        Pipeline.from_text("popart-to-popops, popops-fuse").run(context(), lowered, verify_each=True)
        agree(before, after, exact)
        agree(after, run_function(lowered, inputs), exact=False)


@pytest.mark.parametrize("name", PATTERNS)
def test_a_pattern_says_when_it_is_legal_and_has_a_test(name: str) -> None:
    pattern = PATTERNS[name]()
    assert pattern.__name__ == name
    assert pattern.__doc__
    assert "egal" in pattern.__doc__, f"{name} does not say when it is legal"
    texts = [p.read_text() for p in (FOLDER / "popart-fuse").glob("*.mlir")]
    assert any(name in text for text in texts), f"{name} has no lit test"
    assert f"`{name}`" in (FOLDER.parents[2] / "docs/add-a-pass.md").read_text(), f"docs/add-a-pass.md does not name {name}"


def test_a_long_chain_of_element_wise_ops_is_no_deep_recursion() -> None:
    steps = "".join(f"%t{i + 1} = popart.mul %t{i}, %t0 : (tensor<3xf32>, tensor<3xf32>) -> tensor<3xf32>\n" for i in range(1000))
    text = f"func.func @main(%t0: tensor<3xf32>) -> tensor<3xf32> {{ {steps} func.return %t1000 : tensor<3xf32> }}"
    module = LocatingParser(context(), text).parse_module()
    PopartFusePass().apply(context(), module)
    verify(module)


def test_a_pattern_of_a_loaded_file_is_applied_where_the_file_is_loaded(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text(
        '''
from collections.abc import Sequence

from xdsl.ir import SSAValue

from populus.dialects import popart
from populus.lowering.popart.rewriting import Pattern, Rewriting, made_by


class DoubleNegation(Pattern[popart.NegOp]):
    """`-(-x)` is `x`. Always legal."""

    ROOTS = (popart.NegOp,)

    def rewrite(self, op: popart.NegOp, r: Rewriting) -> Sequence[SSAValue] | None:
        inner = made_by(op.x, popart.NegOp, op)
        return None if inner is None else [inner.x]
'''
    )
    text = """
func.func @main(%x : tensor<2xf32>) -> tensor<2xf32> attributes {input_names = ["x"], output_names = ["y"]} {
  %a = popart.neg %x : tensor<2xf32>
  %b = popart.neg %a : tensor<2xf32>
  %c = popart.exp %b : tensor<2xf32>
  func.return %c : tensor<2xf32>
}
"""

    def negations(load: list[str], **options: Any) -> int:
        pipeline = Pipeline.named("inference").with_options("popart-fuse", **options)
        module = populus.compile(parsed(text), tiles=1, pipeline=pipeline, load=load).module("popops")
        return str(module).count("neg(")

    assert negations([]) == 2
    assert negations([str(path)]) == 0
    assert negations([str(path)], without=("DoubleNegation",)) == 2
    with pytest.raises(PopulusError, match="there is no pattern 'DoubleNegation'"):
        negations([], without=("DoubleNegation",))


def test_a_file_may_have_patterns_as_xdsl_writes_them(tmp_path: Path):
    """What they replace is erased with its producers, and what they insert has the places of what it stands for."""
    path = tmp_path / "negations.py"
    path.write_text(
        '''
from xdsl.pattern_rewriter import PatternRewriter, RewritePattern, op_type_rewrite_pattern

from populus.dialects import popart


class NegationOfNegation(RewritePattern):
    """`-(-x)` is `|x| sign x`. Always legal."""

    @op_type_rewrite_pattern
    def match_and_rewrite(self, op: popart.NegOp, rewriter: PatternRewriter):
        if isinstance(inner := op.x.owner, popart.NegOp):
            size, sign = popart.AbsOp(inner.x), popart.SignOp(inner.x)
            rewriter.replace(op, [size, sign, popart.MulOp(size.y, sign.y)])
'''
    )
    text = """
func.func @main(%x : tensor<2xf32>) -> tensor<2xf32> attributes {input_names = ["x"], output_names = ["y"]} {
  %a = popart.neg %x : tensor<2xf32> loc("inner")
  %b = popart.neg %a : tensor<2xf32> loc("outer")
  func.return %b : tensor<2xf32>
}
"""
    module, ctx = parsed(text), context()
    read(path).register(ctx)
    PopartFusePass(patterns=("NegationOfNegation",)).apply(ctx, module)
    made = [op for op in module.walk() if op.name.startswith("popart.")]
    assert [op.name for op in made] == ["popart.abs", "popart.sign", "popart.mul"]
    assert {place(op.location) for op in made} == {"'inner' + 'outer'"}
    verify(module)
    kept = parsed(text)
    PopartFusePass(exact=True, without=tuple(PATTERNS)).apply(ctx, kept)
    assert str(kept) == str(parsed(text)), "a pattern that does not say EXACT may round"


def test_what_only_dead_ops_read_is_erased_in_one_walk():
    module = parsed("""
func.func @main(%x : tensor<2xf32>) -> tensor<2xf32> {
  %a = popart.neg %x : tensor<2xf32>
  %b = popart.exp %a : tensor<2xf32>
  %c = popart.abs %x : tensor<2xf32>
  func.return %c : tensor<2xf32>
}
""")
    erase_dead(module.body.block)
    assert str(module).count("popart.") == 3
    erase_dead(module.body.block, lambda op: op.name == "popart.neg", inside=True)
    assert str(module).count("popart.") == 3
    erase_dead(module.body.block, inside=True)
    assert [op.name for op in module.walk() if op.name.startswith("popart.")] == ["popart.abs"]
