"""The bounds of steps, and the utilisation by type."""

from __future__ import annotations

import pytest

from populus.dialects.poplar import GraphOp
from populus.dialects.table import context
from populus.lowering.driver.files import parse_text
from populus.runtime.bounds import bound_of
from populus.runtime.profile import Profile, profile

PRODUCT = """
  %a = poplar.var "a" on [1, 128 in 16, 64] order [1] : !poplar.tensor<1x128x64xTYPE>
  %b = poplar.const "b" dense<0.5> : tensor<1x64x64xTYPE> on [1, 64, 64] order [16 copies] : !poplar.tensor<1x64x64xTYPE>
  %c = poplar.var "c" on [1, 128 in 16, 64] order [1] : !poplar.tensor<1x128x64xTYPE>
  poplar.execute "product" {
    poplar.family @matmul for (k = 64, g = 1, m = 128 in 16, n = 64) on (m)
      in a = %a[g, m, k] : !poplar.tensor<1x128x64xTYPE>
      in b = %b[g, k, n] : !poplar.tensor<1x64x64xTYPE>
      out c = %c[g, m, n] : !poplar.tensor<1x128x64xTYPE>
  }
"""


def of(body: str, target: str = "gc200, tiles = 16") -> Profile:
    module = parse_text(context(), f"poplar.graph @main target <{target}> {{\n{body}\n}}", "test.mlir")
    graph = module.body.block.first_op
    assert isinstance(graph, GraphOp)
    return profile(graph)


@pytest.mark.parametrize(("element", "macs", "peak"), [("f32", 16, 16), ("f16", 32, 64)])
def test_a_product_is_bound_by_the_matrix_unit_at_the_rate_of_its_types(element: str, macs: int, peak: int):
    found = of(PRODUCT.replace("TYPE", element), "gc200, tiles = 16, sync_cycles = 1")
    (step,) = found.steps
    assert bound_of(step) == ("matrix", 128 * 64 * 64 / 16 / macs)
    summary = found.summary
    assert summary["at_matrix_bound_cycles"] == 128 * 64 * 64 / 16 / macs
    # the peak of halves is that of sums as halves
    assert summary["utilisation"] == summary[f"{element}_utilisation"] == pytest.approx(128 * 64 * 64 / 16 / peak / summary["cycles"])
    read = (8 * 64 + 64 * 64) * (4 if element == "f32" else 2)  # a part of a, and all of b, on each tile
    assert step.work.load == read / 16


def test_a_step_whose_data_are_elsewhere_is_bound_by_the_exchange():
    (step,) = of(
        PRODUCT.replace("order [16 copies]", "order []").replace("TYPE", "f32"), "gc200, tiles = 16, exchange_setup_cycles = 1000000"
    ).steps
    assert bound_of(step)[0] == "exchange"
    (waits,) = of(PRODUCT.replace("TYPE", "f32"), "gc200, tiles = 16, sync_cycles = 1000000").steps
    assert bound_of(waits) == ("sync", 1_000_000)


def test_a_step_on_one_of_many_tiles_is_bound_by_the_imbalance():
    text = (
        PRODUCT.replace(" in 16", "").replace("order [1]", "order []").replace("order [16 copies]", "order []").replace("on (m)", "on ()")
    )
    found = of(text.replace("TYPE", "f32"), "gc200, tiles = 64, sync_cycles = 1")
    (step,) = found.steps
    assert step.imbalance == round(step.compute * 63 / 64)
    assert bound_of(step)[0] == "imbalance"
    assert found.summary["imbalance_cycles"] == step.imbalance
