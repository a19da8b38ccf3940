"""Outlining (`popart-outline`): repeated ops become a function that the model calls."""

from __future__ import annotations

import heapq
import itertools
import sys
from collections.abc import Iterator
from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import FunctionType, LocationAttr, ModuleOp, StringAttr
from xdsl.dialects.func import CallOp, FuncOp, ReturnOp
from xdsl.ir import Block, BlockArgument, Operation, Region, SSAValue
from xdsl.passes import ModulePass
from xdsl.rewriter import InsertPoint, Rewriter

from populus.dialects.data import ConstantOp
from populus.dialects.support.call_places import set_places
from populus.dialects.support.dead_code import erase_dead
from populus.lowering.popart.outline.op_sequence import Listing, Stretch
from populus.lowering.popart.outline.suffix_array import apart, repeats


@dataclass(frozen=True)
class PopartOutlinePass(ModulePass):
    """Replaces stretches of ops that occur several times by calls of private functions.

    Ops are equal if their classes, attributes (except `OUTLINE_IGNORES`), types and one-element constant operands
    are. Stretches are equal if their ops also read each other's results alike. Other operands become arguments. A
    weight is an argument too, unless all occurrences read equal weights.

    The value of a stretch is the sum of its ops' `OUTLINE_VALUE`, less `break_cost` for each chain of
    element-wise ops that the call cuts. It has to exceed `threshold`. The greatest saving, over all calls but the
    first, is taken first. A stretch stays in place if copying costs more than its ops: square roots of the bytes
    of arguments and results, against each op's value times the square root of the bytes that it reads.

    `calls`: the least number of calls of a function. `statistics`: print a line for each function. Source:
    PopART's `SubgraphOutline`, without nesting. Bit for bit.
    """

    name = "popart-outline"

    threshold: float = 1.0
    break_cost: float = 1.0
    calls: int = 2
    statistics: bool = False

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        functions = {f.sym_name.data: f for f in op.body.block.ops if isinstance(f, FuncOp) and f.body.blocks}
        names = (name for i in itertools.count() if (name := f"subgraph_{i}") not in functions)
        listing = Listing([f.body.block for f in functions.values()])
        for match in _Matches(self, listing):
            name = next(names)
            op.body.block.add_op(outlined(name, listing, match.stretches))
            if self.statistics:
                print(f"popart-outline: @{name}: {match.length} ops, {len(match.begins)} calls, saved {match.saved:g}", file=sys.stderr)
        for function in functions.values():
            erase_dead(function.body.block, lambda op: isinstance(op, ConstantOp))


@dataclass
class Match:
    """A stretch of `length` ops at several places, and the saving from outlining it.

    `weighed`: how many ops were taken when the saving was computed; until then, the saving is an upper bound.
    """

    length: int
    begins: list[int]
    saved: float
    weighed: int = -1

    @property
    def stretches(self) -> list[Stretch]:
        """Returns the stretch at each of its places."""
        return [Stretch(begin, self.length) for begin in self.begins]


class _Matches:
    """Iterator over the stretches to outline, the best first; no two overlap."""

    def __init__(self, options: PopartOutlinePass, listing: Listing):
        self.options, self.listing = options, listing
        self.calls = max(options.calls, 2)
        self.taken = bytearray(len(listing))
        self.heap: list[tuple[float, int, int, int, Match]] = []
        self.count = itertools.count()
        self.tried: set[tuple[int, ...]] = set()
        for length, begins in repeats(listing.letters):
            # The period of a stretch that overlaps itself is a candidate length too.
            for n in {length, *(b - a for a, b in itertools.pairwise(begins) if b - a < length)}:
                if listing.value(Stretch(begins[0], n)) > options.threshold:
                    self.push(Match(n, begins, self.most(n, begins)))

    def most(self, length: int, begins: list[int]) -> float:
        """Computes an upper bound of a stretch's saving."""
        return (len(apart(begins, length)) - 1) * self.listing.value(Stretch(begins[0], length))

    def push(self, match: Match) -> None:
        """Adds a match to the queue if its saving is positive."""
        if len(match.begins) >= self.calls and match.saved > 0:
            heapq.heappush(self.heap, (-match.saved, match.begins[0], match.length, next(self.count), match))

    def __iter__(self) -> Iterator[Match]:
        taken = 0
        while self.heap:
            match = heapq.heappop(self.heap)[-1]
            if match.weighed == taken:
                for begin in match.begins:
                    self.taken[begin : begin + match.length] = b"\1" * match.length
                taken += match.length * len(match.begins)
                yield match
                continue
            free = [b for b in match.begins if self.taken.find(1, b, b + match.length) < 0]
            if free and (most := self.most(match.length, free)) < match.saved and match.weighed < 0:
                self.push(Match(match.length, free, most))  # others may save more now
                continue
            for weighed in self.weighed(match.length, free, taken):
                self.push(weighed)

    def weighed(self, length: int, begins: list[int], taken: int) -> Iterator[Match]:
        """Yields the occurrences of equal wiring with their saving; also shorter stretches where chains are cut,
        with upper bounds.
        """
        for alike in self.listing.alike([Stretch(b, length) for b in begins]):
            chosen = apart([s.begin for s in alike], length)
            stretches = [Stretch(b, length) for b in chosen]
            if len(chosen) < self.calls or self.listing.copy_cost(stretches) >= self.listing.op_cost(stretches[0]):
                continue
            cut = max(map(self.listing.breaks, stretches))
            worth = self.listing.value(stretches[0]) - self.options.break_cost * cut
            if worth > self.options.threshold:
                yield Match(length, chosen, (len(chosen) - 1) * worth, taken)
            for shorter in [chosen, [b + 1 for b in chosen]] if cut else []:
                enough = self.listing.value(Stretch(shorter[0], length - 1)) > self.options.threshold
                if enough and (key := (length - 1, *shorter)) not in self.tried:
                    self.tried.add(key)
                    yield Match(length - 1, shorter, self.most(length - 1, shorter))


def outlined(name: str, listing: Listing, stretches: list[Stretch]) -> FuncOp:
    """Builds a function of these stretches' ops, and replaces the stretches by calls."""
    arguments, constants, results = listing.interface(stretches)
    first = listing.of(stretches[0])
    block = Block(arg_types=[values[0].type for values in arguments])
    made: dict[SSAValue, SSAValue] = {}
    inner = {slot: argument for argument, slots in zip(block.args, arguments.values()) for slot in slots}
    for argument, values in zip(block.args, arguments):
        argument.name_hint, argument.location = values[0].name_hint, _location(values[0])
    for values, slots in constants.items():
        owner = values[0].owner
        assert isinstance(owner, ConstantOp), owner
        copy = owner.clone()
        block.add_op(copy)
        inner |= dict.fromkeys(slots, copy.result)
    for t, op in enumerate(first):
        copy = op.clone_without_regions(clone_operands=False)
        copy.operands = [inner[t, j] if (t, j) in inner else made[o] for j, o in enumerate(op.operands)]
        made |= dict(zip(op.results, copy.results))
        block.add_op(copy)
    returned = ReturnOp(*(made[first[t].results[j]] for t, j in results))
    block.add_op(returned)
    type = FunctionType.from_lists([a.type for a in block.args], [v.type for v in returned.operands])
    inner_places = [op.location for op in first]
    for stretch in stretches:
        ops = listing.of(stretch)
        operands = [ops[t].operands[j] for (t, j), *_ in arguments.values()]  # an earlier call may have replaced them
        call = CallOp(name, operands, type.outputs.data)
        call.location = ops[results[-1][0]].location
        set_places(call, ((inside, own.location) for inside, own in zip(inner_places, ops)))
        Rewriter.insert_op(call, InsertPoint.before(ops[-1]))
        for (t, j), value in zip(results, call.results):
            value.name_hint = ops[t].results[j].name_hint
            ops[t].results[j].replace_all_uses_with(value)
        for op in reversed(ops):
            Rewriter.erase_op(op)
    function = FuncOp(name, type, Region(block), visibility=StringAttr("private"))
    function.location = block.first_op.location if block.first_op is not None else function.location
    return function


def _location(value: SSAValue) -> LocationAttr:
    owner = value.owner
    if isinstance(owner, Operation):
        return owner.location
    assert isinstance(value, BlockArgument), value
    return value.location
