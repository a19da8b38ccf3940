"""`popart-seed`: random numbers that differ from run to run."""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Attribute
from xdsl.passes import ModulePass
from xdsl.rewriter import InsertPoint, Rewriter

from populus.dialects import popart
from populus.lowering.onnx_expose_weights import add_argument, main_of
from populus.lowering.training_names import SEED


@dataclass(frozen=True)
class PopartSeedPass(ModulePass):
    """The input `Seed`, two words, is combined with the seed of each random op; without random ops nothing changes.

    Two runs with one seed draw the same. Source: PopART's RandomSetup.
    """

    name = "popart-seed"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        function = main_of(op)
        found = [o for o in function.walk() if isinstance(o, popart.RandomOp) and o.parent is function.body.block]
        if not found:
            return
        words: Attribute = found[0].seed.type
        seed = add_argument(function, SEED, words, "seed")
        for random in found:
            mixed = popart.BitwiseXorOp(random.seed, seed)
            mixed.location = random.location
            Rewriter.insert_op(mixed, InsertPoint.before(random))
            random.operands[0] = mixed.results[0]
