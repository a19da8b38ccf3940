"""Seeds (`popart-seed`): random numbers that differ from run to run."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import IntegerAttr, ModuleOp, i64
from xdsl.ir import Attribute
from xdsl.passes import ModulePass
from xdsl.rewriter import InsertPoint, Rewriter

from populus.dialects import popart
from populus.dialects.popart.base import PopartOp
from populus.dialects.signature import add_argument, main_of
from populus.lowering.popart.training_names import SEED


@dataclass(frozen=True)
class PopartSeedPass(ModulePass):
    """Combines the input `Seed`, two words, with the seed of each random op; without such ops nothing changes.

    Two runs with the same seed draw the same numbers. An op whose `stream` is -1 gets a stream of its own, so
    that no two draw alike. Source: PopART's RandomSetup. Bit for bit.
    """

    name = "popart-seed"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        function = main_of(op)
        random_ops = [o for o in function.walk() if isinstance(o, PopartOp) and o.SEED is not None and o.parent is function.body.block]
        if not random_ops:
            return
        first = random_ops[0].SEED
        assert first is not None
        words: Attribute = random_ops[0].operands[first].type
        seed = add_argument(function, SEED, words, "seed")
        taken = {s.value.data for o in random_ops if isinstance(s := o.properties.get("stream"), IntegerAttr)}
        streams = (i for i in itertools.count(1) if i not in taken)
        for random in random_ops:
            at, stream = random.SEED, random.properties.get("stream")
            assert at is not None
            if isinstance(stream, IntegerAttr) and stream.value.data == -1:
                random.properties["stream"] = IntegerAttr(next(streams), i64)
            mixed = popart.BitwiseXorOp(random.operands[at], seed)
            mixed.location = random.location
            Rewriter.insert_op(mixed, InsertPoint.before(random))
            random.operands[at] = mixed.results[0]
