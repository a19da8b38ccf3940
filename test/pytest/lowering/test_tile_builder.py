"""The tile builder by itself: copies inside of one variable."""

from __future__ import annotations

import numpy as np
import pytest

from populus.dialects.poplar import CopyOp, GraphOp, StreamOutOp, VarOp
from populus.dialects.table import context
from populus.lowering.driver.files import parse_text
from populus.lowering.poplar.tile_builder import TileBuilder
from populus.runtime.session import Session

PROGRAM = """
poplar.graph @main target <host, tiles = 2> {
  %x = poplar.var "x" on [8] : !poplar.tensor<8xf32>
  poplar.stream_in "x" to %x : !poplar.tensor<8xf32>
  poplar.stream_out %x to "y" : !poplar.tensor<8xf32>
}
"""


@pytest.mark.parametrize(("begin", "copies"), [(1, 2), (4, 1)], ids=["overlap", "apart"])
def test_a_copy_to_elements_that_it_reads_goes_through_a_temporary(begin: int, copies: int):
    module = parse_text(context(), PROGRAM, "program.mlir")
    graph = module.body.block.first_op
    assert isinstance(graph, GraphOp)
    x = next(op for op in graph.walk() if isinstance(op, VarOp)).result
    t = TileBuilder(graph.machine)
    t.at(next(op for op in graph.walk() if isinstance(op, StreamOutOp)))
    t.copy(t.slice(x, [0], [4], [1]), t.slice(x, [begin], [begin + 4], [1]))
    module.verify()
    assert sum(isinstance(op, CopyOp) for op in graph.walk()) == copies
    given = np.arange(8, dtype=np.float32)
    expected = given.copy()
    expected[begin : begin + 4] = given[:4]
    for engine in ("numpy", "strict", "native"):
        assert Session(module, engine).run({"x": given})["y"].tolist() == expected.tolist()
