"""Proofs of memory: programs that hold, and for each claim one that is refuted."""

from __future__ import annotations

import pytest

from populus.dialects.poplar.program import GraphOp
from populus.dialects.support.parser import LocatingParser
from populus.dialects.table import context
from populus.proof.memory import prove_memory
from populus.proof.report import PROVED, REFUTED

HEAD = """
%a = poplar.var "a" on [12 in 4] order [0] : !poplar.tensor<12xf32>
%b = poplar.var "b" on [12 in 4] order [0] : !poplar.tensor<12xf32>
poplar.stream_in "a" to %a : !poplar.tensor<12xf32>
"""
TWICE = "{expr = #expr.fn<mul(_1, 2.0)>}"
MAP = f"""
poplar.execute "double" {{
  poplar.family @map {TWICE} for (d0 = 12 in 4) on (d0)
    in x1 = %a[d0] : !poplar.tensor<12xf32>
    out y = %b[d0] : !poplar.tensor<12xf32>
}}
"""
OUT = 'poplar.stream_out %b to "b" : !poplar.tensor<12xf32>\n'


def proved(body: str, exchange: bool = True):
    """The report on a program of four tiles. It is not verified: the prover is a second opinion."""
    text = f"poplar.graph @main target <gc200, tiles = 4> {{\n{body}\n}}"
    module = LocatingParser(context(), text, "program.mlir").parse_module()
    [graph] = module.body.block.ops
    assert isinstance(graph, GraphOp)
    return prove_memory(graph, exchange)


def test_a_right_program_is_proved():
    report = proved(HEAD + MAP + OUT)
    assert report.verdict == PROVED, report
    assert set(report.claims) == {"tiles", "bounds", "once", "hull", "covers", "written", "exchange", "addresses"}


SLICED = """
%s = poplar.slice %b[0:6] : !poplar.tensor<12xf32> -> !poplar.tensor<6xf32>
"""
HALF = f"""
poplar.execute "half" {{
  poplar.family @map {TWICE} for (d0 = 6 in 3) on (d0)
    in x1 = %h[d0] : !poplar.tensor<6xf32>
    out y = %s[d0] : !poplar.tensor<6xf32>
}}
"""
WRONG = {
    "bounds": (HEAD + MAP.replace("%a[d0]", "%a[d0 + 1]") + OUT, "[12] is outside of [12]"),
    "bounds of a view": (
        HEAD + MAP + SLICED.replace("0:6", "8:14") + OUT.replace("%b", "%s").replace("12", "6"),
        "a view of 'b' shows what the variable does not have",
    ),
    "once": (HEAD + MAP.replace("12 in 4) on (d0)", "12 in 2, e = 2 in 2) on (d0, e)") + OUT, "two vertices write"),
    "covers": (HEAD + MAP.replace("d0 = 12 in 4", "d0 = 8 in 4") + OUT, "is left out"),
    "written": (HEAD + OUT, "reads [0] of 'b', which nothing wrote"),
    "written half": (
        HEAD + SLICED + "%h = poplar.slice %a[6:12] : !poplar.tensor<12xf32> -> !poplar.tensor<6xf32>\n" + HALF + OUT,
        "reads [6] of 'b', which nothing wrote",
    ),
    "apart": (
        HEAD
        + MAP
        + "%r = poplar.slice %b[11:-1:-1] : !poplar.tensor<12xf32> -> !poplar.tensor<12xf32>\n"
        + MAP.replace("%a[d0]", "%r[d0]")
        + OUT,
        "x1 overlaps y, which the family writes",
    ),
    "apart copy": (
        HEAD
        + MAP
        + "%p = poplar.slice %b[0:8] : !poplar.tensor<12xf32> -> !poplar.tensor<8xf32>\n"
        + "%q = poplar.slice %b[4:12] : !poplar.tensor<12xf32> -> !poplar.tensor<8xf32>\n"
        + "poplar.copy %p to %q : !poplar.tensor<8xf32>\n"
        + OUT,
        "a copy reads what it writes",
    ),
    "tiles": (HEAD + MAP.replace("12 in 4", "12 in 6") + OUT, "two vertices are on one tile"),
    "race": (
        HEAD
        + MAP.replace(
            "\n}",
            f"""
  poplar.family @map {TWICE} for (d0 = 12 in 4) on (d0) start 1
    in x1 = %a[d0] : !poplar.tensor<12xf32>
    out y = %b[d0] : !poplar.tensor<12xf32>
}}""",
        )
        + OUT,
        "with an element in common on different tiles",
    ),
    "addresses": (
        HEAD.replace("order [0]", "order [0] at 0") + MAP + OUT,
        "have bytes of a tile in common",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_claim_that_does_not_hold_is_refuted_with_an_example(name):
    body, why = WRONG[name]
    report = proved(body)
    assert report.verdict == REFUTED
    assert any(line.startswith(f"{name.split()[0]}: ") and why in line for line in report.refuted), report.refuted


def test_a_box_with_holes_is_refuted():
    pairs = f"""
%c = poplar.var "c" : !poplar.tensor<23xf32>
poplar.execute "every second" {{
  poplar.family @map {TWICE} for (d0 = 12 in 4) on (d0)
    in x1 = %a[d0] : !poplar.tensor<12xf32>
    out y = %c[d0 * 2] : !poplar.tensor<23xf32>
}}
"""
    report = proved(HEAD + pairs)
    assert any(line.startswith("hull: ") for line in report.refuted), report.refuted


def test_what_one_branch_leaves_unwritten_is_not_written():
    text = HEAD + (
        '%p = poplar.var "p" : !poplar.tensor<i1>\npoplar.stream_in "p" to %p : !poplar.tensor<i1>\n'
        f"poplar.if %p : !poplar.tensor<i1> {{ {MAP} }} else {{ }}\n"
    )
    assert "which nothing wrote" in str(proved(text + OUT))
    both = text.replace("else { }", f"else {{ {MAP} }}")
    assert proved(both + OUT).verdict == PROVED
