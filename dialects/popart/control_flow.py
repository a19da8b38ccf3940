"""Branches and loops of a model: `popart.if` and `popart.loop`, whose regions hold ops of this level."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from typing import TypeAlias

from xdsl.builder import Builder
from xdsl.ir import Block, Region, SSAValue
from xdsl.irdl import irdl_op_definition
from xdsl.rewriter import InsertPoint

from populus.dialects import popops
from populus.dialects.base.control_flow import INDEX, Branch, Control, Loop, Yield, captures
from populus.dialects.expr import Arg
from populus.dialects.popart import calls
from populus.dialects.popart.arithmetic import AddOp
from populus.dialects.popart.base import NoGradient, PopartOp
from populus.dialects.support.dead_code import erase_dead
from populus.dialects.support.diagnostics import where
from populus.dialects.support.element_types import is_float, tensor


@irdl_op_definition
class YieldOp(Yield):
    """The terminator of a region of `popart.if` or `popart.loop`: passes the region's results to the op."""

    name = "popart.yield"


Differentiate: TypeAlias = "Callable[[Block, Sequence[tuple[SSAValue, SSAValue]], Sequence[SSAValue]], list[SSAValue]]"
"""The gradients of values, from ops inserted before the end of a block, given some of its values with their gradients."""
Seeds: TypeAlias = "Callable[[tuple[SSAValue, ...]], list[tuple[SSAValue, SSAValue]]]"
"""Those of the values that a region gives, with their gradients."""


class ControlOp(Control, PopartOp):
    """The base of `popart.if` and `popart.loop`."""

    def lowered(self, region: Region) -> Region:
        """Moves a region to the op of the level below, which lowers its ops."""
        block = region.block
        end = block.last_op
        assert isinstance(end, Yield), end
        new = popops.YieldOp(*end.operands)
        new.location = end.location
        block.insert_op_before(new, end)
        end.detach()
        end.erase()
        moved = Region()
        region.move_blocks(moved)
        return moved

    @abstractmethod
    def gradient_through(
        self, b: Builder, grads: Sequence[SSAValue], wanted: Container[SSAValue], differentiate: Differentiate
    ) -> Sequence[SSAValue | None]:
        """Builds the gradients of the op's operands, then of its captures, restricted to those `wanted`.

        It may replace the op by one that also returns the values that the gradient needs; then the old op has no uses.
        """

    def differentiated(
        self,
        block: Block,
        region: Region,
        arguments: Mapping[SSAValue, SSAValue],
        seeds: Seeds,
        wrt: Sequence[SSAValue],
        differentiate: Differentiate,
    ) -> list[SSAValue]:
        """Appends a copy of a region's ops to a block, with these arguments, then the gradients of its values `wrt`."""
        mapper = dict(arguments)
        for op in region.block.ops:
            block.add_op(op.clone(mapper))
        end = block.last_op
        assert isinstance(end, Yield), end
        found = differentiate(block, seeds(tuple(end.operands)), [mapper.get(v, v) for v in wrt])
        end.detach()
        end.erase()
        return found


def _finish(block: Block, values: Sequence[SSAValue]) -> None:
    """Ends a block, and drops what nothing in it reads."""
    block.add_op(YieldOp(*values))
    erase_dead(block, lambda _: True)


def _floats(values: Iterable[SSAValue]) -> list[SSAValue]:
    return [v for v in values if is_float(calls.element(v))]


def _zeros(b: Builder, like: SSAValue) -> SSAValue:
    return calls.fill(b, 0, calls.element(like), calls.shape(like))


@irdl_op_definition
class IfOp(Branch, ControlOp):
    """`y = then() if condition else otherwise()`; only the one that is taken is computed. Source: ONNX If-25.

    Its gradient is a branch too, which computes the region once more.
    """

    name = "popart.if"

    def lower(self, b: Builder) -> Sequence[SSAValue]:
        return b.insert(popops.IfOp(self.condition, self.lowered(self.then), self.lowered(self.otherwise))).results

    def gradient_through(
        self, b: Builder, grads: Sequence[SSAValue], wanted: Container[SSAValue], differentiate: Differentiate
    ) -> Sequence[SSAValue | None]:
        captured = captures(self)
        asked = [v for v in _floats(captured) if v in wanted]
        regions: list[Region] = []
        for region in (self.then, self.otherwise):
            block = Block()
            _finish(block, self.differentiated(block, region, {}, lambda given: _pairs(given, grads), asked, differentiate))
            regions.append(Region(block))
        found = dict(zip(asked, b.insert(IfOp(self.condition, *regions)).results))
        return [None, *(found.get(v) for v in captured)]


def _pairs(values: Sequence[SSAValue], grads: Sequence[SSAValue]) -> list[tuple[SSAValue, SSAValue]]:
    return [(v, g) for v, g in zip(values, grads, strict=True) if is_float(calls.element(v))]


@irdl_op_definition
class LoopOp(Loop, ControlOp):
    """`v = body(v) while go`: a region run again and again, with values carried on and rows of tables. Source: ONNX Loop-25, Scan-25.

    Its gradient is a loop over the iterations in reverse. Each iteration's initial state is stored, `[trips, ..]`, and recomputed from.
    """

    name = "popart.loop"

    def lower(self, b: Builder) -> Sequence[SSAValue]:
        if self.most == 0:
            return [*self.carried, *(_zeros(b, r) for r in self.results[len(self.carried) :])]
        body = self.lowered(self.body)
        return b.insert(popops.LoopOp(self.carried, body, trips=self.most, scanned=self.tables, go=self.go)).results

    def gradient_through(
        self, b: Builder, grads: Sequence[SSAValue], wanted: Container[SSAValue], differentiate: Differentiate
    ) -> Sequence[SSAValue | None]:
        trips, n, captured = self.most, len(self.carried), captures(self)
        none = [] if self.go is None else [None]
        if trips is None:
            raise NoGradient(f"{where(self)}: {self.name} has no gradient, as it may run without end; give it a number of iterations")
        if trips == 0:
            return [*none, *(g if is_float(calls.element(g)) else None for g in grads[:n]), *(None for _ in (*self.tables, *captured))]
        collected = len(self.collected)
        forward, kept, count = self._keeping()
        floats = [k for k in range(n) if is_float(calls.element(forward.states[k]))]
        asked = [v for v in _floats(captured) if v in wanted]
        read = [j for j, table in enumerate(forward.tables) if table in wanted and is_float(calls.element(table))]
        made = [j for j, row in enumerate(forward.collected[:collected]) if is_float(calls.element(row))]

        # What has a row for each iteration is read from its end.
        tables = [calls.reverse(b, t, (0,)) for t in (*kept.values(), *forward.tables, *(grads[n + j] for j in made))]
        carried = [*(grads[k] for k in floats), *(_zeros(b, v) for v in asked)]
        rows = [tensor(calls.shape(t)[1:], calls.element(t)) for t in tables]
        block = Block(arg_types=[INDEX, *(v.type for v in carried), *rows])
        inner, (index, *arguments) = Builder(InsertPoint.at_end(block)), block.args
        slopes, sums, begun, scanned, cotangents = _split(arguments, len(floats), len(asked), len(kept), len(forward.tables), len(made))

        number = calls.map(inner, (trips - 1) - Arg(1), index)
        mapper: dict[SSAValue, SSAValue] = {forward.index: number}
        mapper |= {**dict(zip(forward.rows, scanned)), **{forward.states[k]: row for k, row in zip(kept, begun)}}
        mapper |= {state: _zeros(inner, state) for state in forward.states if state not in mapper}  # which nothing reads

        def seeds(given: tuple[SSAValue, ...]) -> list[tuple[SSAValue, SSAValue]]:
            following, collects = given[len(none) :], given[len(none) + len(forward.carried) :]
            return [*((following[k], g) for k, g in zip(floats, slopes)), *((collects[j], g) for j, g in zip(made, cotangents))]

        wrt = [*(forward.states[k] for k in floats), *asked, *(forward.rows[j] for j in read)]
        within = block if count is None else Block()
        found = self.differentiated(within, forward.body, mapper, seeds, wrt, differentiate)
        before, more, of_rows = _split(found, len(floats), len(asked), len(read))
        at_end = Builder(InsertPoint.at_end(within))
        following = [*before, *(calls.insert(at_end, AddOp(a, g)) for a, g in zip(sums, more)), *of_rows]
        if count is not None:
            _finish(within, following)
            other = Block()
            zeros = [_zeros(Builder(InsertPoint.at_end(other)), forward.rows[j]) for j in read]
            _finish(other, [*slopes, *sums, *zeros])
            ran = calls.map(inner, Arg(1) < Arg(2), number, count)
            following = inner.insert(IfOp(ran, Region(within), Region(other))).results
        _finish(block, following)
        results = b.insert(LoopOp(carried, Region(block), trips=trips, scanned=tables)).results
        first, totals, slices = _split(results, len(floats), len(asked), len(read))
        by_state, by_capture = dict(zip(floats, first)), dict(zip(asked, totals))
        by_table = {j: calls.reverse(b, rows, (0,)) for j, rows in zip(read, slices)}
        return [
            *none,
            *(by_state.get(k) for k in range(n)),
            *(by_table.get(j) for j in range(len(forward.tables))),
            *(by_capture.get(v) for v in captured),
        ]

    def _keeping(self) -> tuple[LoopOp, dict[int, SSAValue], SSAValue | None]:
        """Builds the loop that also collects each iteration's initial states, and counts iterations if their number is open."""
        b, block, n = Builder(InsertPoint.before(self)), self.body.block, len(self.carried)
        kept = [k for k, state in enumerate(self.states) if state.uses]
        rows, first = self.collected, [] if self.goes_on is None else [self.goes_on]
        following, carried = list(self.next_states), list(self.carried)
        begun = [self.states[k] for k in kept]
        end = block.last_op
        assert isinstance(end, Yield), end
        if self.go is not None:
            block.insert_arg(INDEX, 1 + n)
            carried.append(_zeros(b, block.args[0]))
            following.append(calls.map(Builder(InsertPoint.before(end)), Arg(1) + 1, block.args[0]))
        new = YieldOp(*first, *following, *rows, *begun)
        new.location = end.location
        block.insert_op_before(new, end)
        end.detach()
        end.erase()
        go, tables, body = self.go, self.tables, Region()
        self.body.move_blocks(body)
        made = b.insert(LoopOp(carried, body, trips=self.most, scanned=tables, go=go))
        made.location = self.location
        states, collected, saved = _split(made.results, len(carried), len(rows), len(kept))
        for old, result in zip(self.results, [*states[:n], *collected]):
            result.name_hint = old.name_hint
            old.replace_all_uses_with(result)
        return made, dict(zip(kept, saved)), states[n] if go is not None else None


def _split(values: Sequence[SSAValue], *sizes: int) -> list[list[SSAValue]]:
    """Splits the values into lists of these lengths."""
    rest = iter(values)
    return [[next(rest) for _ in range(size)] for size in sizes]
