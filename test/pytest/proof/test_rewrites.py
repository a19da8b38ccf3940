"""`--prove-rewrites`: the rewrites of right patterns are proved when they happen, and wrong ones are refuted with the pattern's name."""

from __future__ import annotations

from collections import Counter

import onnx
import pytest
from xdsl.dialects.builtin import FloatAttr
from xdsl.dialects.func import FuncOp

from helpers.command import command
from helpers.pattern_programs import NEGATED, PROGRAMS, negated, plant
from helpers.proof_models import MODELS
from populus.dialects import popart
from populus.dialects.support.diagnostics import PopulusError
from populus.dialects.table import context
from populus.lowering.driver.files import parse_text
from populus.lowering.driver.pipeline import Pipeline
from populus.lowering.popart.rewriting import Pattern, rewrite
from populus.proof.rewrites import RewriteProver, proving_rewrites
from populus.tools.main import main

FUSE = Pipeline.from_text("popart-fuse")
OPEN = Counter(
    {"Activation": 2, "DequantizeLater": 2, "CastOfWiderCast": 1, "DequantizedProduct": 1, "QuantizedAgain": 1, "LogOfSoftmax": 1}
)
"""Rewrites that no law shows: sigmoids and clamps with other factors, logarithms of quotients, conversions of narrow integers."""


def fused(module) -> RewriteProver:
    with proving_rewrites() as prover:
        FUSE.run(context(), module.clone())
    return prover


def test_the_rewrites_of_the_patterns_own_programs_are_proved():
    proved, open_, refused = Counter[str](), Counter[str](), list[str]()
    for module in PROGRAMS:
        try:
            rows = fused(module).rows
        except PopulusError as error:
            refused.append(str(error))
            continue
        proved.update({name: row.proved for name, row in rows.items()})
        open_.update({name: len(row.undecided) for name, row in rows.items() if row.undecided})
    assert [line for line in refused if "is not loaded" not in line] == []
    assert open_ == OPEN
    assert proved.total() >= 80 and len(+proved) >= 25


@pytest.mark.parametrize("name", NEGATED)
def test_a_wrong_pattern_is_refuted_with_its_name(name, monkeypatch):
    found: list[str] = []
    for module in PROGRAMS:
        with monkeypatch.context() as patch:
            count = plant(patch, name, negated)
            try:
                fused(module)
            except PopulusError as error:
                found.append(str(error))
            if count[0]:
                break
    assert any(f"the pattern {name} is refuted at " in line and ", element [" in line for line in found), found


class TwiceAsSteep(Pattern[popart.LeakyReluOp]):
    """Changes an op where it stands, which no replacement tells."""

    ROOTS = (popart.LeakyReluOp,)

    def rewrite(self, op, r):
        alpha = op.properties["alpha"]
        assert isinstance(alpha, FloatAttr)
        if alpha.value.data > 0.3:
            return None
        op.properties["alpha"] = FloatAttr(alpha.value.data * 2, alpha.type)
        r.b.notify_op_modified(op)
        return []


def test_an_op_that_a_pattern_changes_where_it_stands_is_compared_too():
    text = """
    func.func @main(%x : tensor<3xf32>) -> tensor<3xf32> {
      %y = popart.leaky_relu %x {alpha = 2.000000e-01 : f64} : tensor<3xf32>
      func.return %y : tensor<3xf32>
    }"""
    module = parse_text(context(), text, "steep.mlir")
    [function] = [op for op in module.body.block.ops if isinstance(op, FuncOp)]
    with proving_rewrites(), pytest.raises(PopulusError, match="the pattern TwiceAsSteep is refuted at steep.mlir"):
        rewrite(function.body.block, [TwiceAsSteep()])


def test_the_commands_tell_the_rewrites_of_each_pattern(tmp_path, capsys, monkeypatch, populus_opt):
    file = tmp_path / "model.onnx"
    onnx.save(MODELS["bert"](), file)
    done = command(main, capsys)("check", file, "--prove-rewrites", "--tiles", 4)
    assert done.status == 0 and "Attention: 1 rewrites proved" in done.out, done
    plain = populus_opt(file, "-p", "onnx-infer-shapes,onnx-to-popart,popart-fuse", "--prove-rewrites")
    assert plain.status == 0 and "Attention: 1 rewrites proved\n" in plain.err, plain
    plant(monkeypatch, "Attention", negated)
    wrong = command(main, capsys)("check", file, "--prove-rewrites", "--tiles", 4)
    assert wrong.status == 1 and "the pattern Attention is refuted at " in wrong.err, wrong
