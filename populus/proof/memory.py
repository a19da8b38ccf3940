"""Proves a tile program right about memory with integer sets: all vertices and all elements at once, no sampling.

| claim | what holds |
|---|---|
| bounds | each access is inside of its view, and each view inside of its variable; inputs of codelets that pad may overhang |
| once | no element of an output is written by two vertices, or twice through its view |
| hull | the box that an engine gives a vertex to write has no element that the access leaves out |
| covers | a family writes all of the view that it is given |
| apart | what a family writes is apart from what it reads, but for an `inout` field |
| tiles | the vertices of a family are on tiles of their own |
| race | two families of a compute set share an element on one tile only |
| written | whatever is read was written before, on every path |
| exchange | the elements that three vertices fetch are as many as the closed form of `runtime/exchange` says |
| addresses | variables of one tile that are needed at one time have bytes of their own |

A proof trusts that a kernel writes the box that it is given. It also trusts isl.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from itertools import pairwise
from typing import TypeAlias

from xdsl.ir import Block, Operation, SSAValue

from populus.dialects.poplar import affine
from populus.dialects.poplar.affine import Map, Set, box
from populus.dialects.poplar.compute import CopyOp, ExecuteOp, FamilyOp
from populus.dialects.poplar.memory import ConstOp, ParamOp, StorageOp, ViewOp, root_of, storage_of, type_of, view_of
from populus.dialects.poplar.outside import OutsideOp
from populus.dialects.poplar.partition import Access, Domain
from populus.dialects.poplar.points import example
from populus.dialects.poplar.program import CallOp, GraphOp, IfOp, RepeatOp, SequenceOp, StreamInOp, StreamOutOp, SwitchOp, WhileOp
from populus.dialects.poplar.task import TaskOp
from populus.dialects.poplar.types import Field
from populus.dialects.support.diagnostics import PopulusError, where
from populus.proof.report import Report
from populus.proof.terms import Terms
from populus.runtime.addresses import check_addresses
from populus.runtime.exchange import field_exchange

Touched: TypeAlias = "list[tuple[Field, SSAValue, Map]]"
"""Of a family: each field, its variable, and the map of vertices to the variable's elements that they touch."""

State: TypeAlias = "dict[SSAValue, Set]"
"""The elements of each variable that have been written."""


def prove_memory(graph: GraphOp, exchange: bool = False, terms: Terms | None = None) -> Report:
    """Proves the claims above for a tile program. `exchange`: also those of that name, by counting three vertices of each field.

    `terms`: of a proof of several programs, whose claims on equal accesses and sets are proved once.
    """
    prover = _Prover(graph, exchange, Terms() if terms is None else terms)
    prover.block(graph.body.block, {})
    try:
        check_addresses(graph)
        prover.claim("addresses", True, "")
    except PopulusError as error:
        prover.claim("addresses", False, str(error))
    return prover.report


class _Prover:
    def __init__(self, graph: GraphOp, exchange: bool, terms: Terms):
        self.tiles, self.exchange, self.report, self.views = graph.machine.tiles, exchange, Report(), affine.Views(terms.composed)
        self.once = terms.sets.once

    def claim(self, kind: str, holds: bool, why: str | Callable[[], str]) -> None:
        self.report.claims[kind] += 1
        if not holds:
            self.report.refuted.append(f"{kind}: {why if isinstance(why, str) else why()}")

    # -- what has been written

    def full(self, root: SSAValue) -> Set:
        return box(type_of(root).shape)

    def none(self, full: Set) -> Set:
        return self.once.of("none", (full,), lambda: full.subtract(full))

    def known(self, state: State, root: SSAValue) -> Set:
        if root not in state:
            owner, full = root.owner, self.full(root)
            state[root] = full if isinstance(owner, ConstOp) or (isinstance(owner, ParamOp) and owner.read) else self.none(full)
        return state[root]

    def reads(self, state: State, value: SSAValue, elements: Set, what: str) -> None:
        root = root_of(value)
        known = self.known(state, root)
        holds = known is self.full(root) or self.once.of("subset", (elements, known), lambda: elements.is_subset(known))
        self.claim("written", holds, lambda: f"{what} reads {example(elements.subtract(known))} of '{_label(root)}', which nothing wrote")

    def writes(self, state: State, value: SSAValue, elements: Set) -> None:
        root = root_of(value)
        known, full = self.known(state, root), self.full(root)
        if known is not full:
            state[root] = self.once.of("union", (known, elements, full), lambda: _union(known, elements, full))

    # -- steps

    def block(self, block: Block, state: State) -> None:
        """Proves the steps of a block in order, and that each view shows elements of what it is a view of."""
        for op in block.ops:
            if isinstance(op, ViewOp):
                self.view(op)
            self.step(op, state)

    def step(self, op: Operation, state: State) -> None:
        match op:
            case ExecuteOp():
                self.execute(op, state)
            case CopyOp():
                self.copy(op, state)
            case StreamInOp():
                self.writes(state, op.dst, self.views.seen(op.dst))
            case StreamOutOp():
                self.reads(state, op.src, self.views.seen(op.src), f"stream_out '{op.stream.data}'")
            case OutsideOp():
                count = op.inputs.value.data
                for view in op.views[:count]:
                    self.reads(state, view, self.views.seen(view), f"'{op.function.data}'")
                for view in op.views[count:]:
                    self.writes(state, view, self.views.seen(view))
            case SequenceOp():
                self.block(op.body.block, state)
            case TaskOp():
                self.block(op.body.block, state)
                for value in op.chain.lost():
                    state[root_of(value)] = self.none(self.full(root_of(value)))
            case RepeatOp():
                if op.count.value.data > 0:
                    self.block(op.body.block, state)  # what a later turn finds written is no less
            case IfOp() | SwitchOp():
                self.reads(state, op.operands[0], self.views.seen(op.operands[0]), op.name)
                self.branches(op, state)
            case WhileOp():
                self.block(op.before.block, state)
                self.reads(state, op.predicate, self.views.seen(op.predicate), op.name)
                self.block(op.body.block, dict(state))
            case CallOp():
                self.call(op, state)
            case _:
                pass

    def branches(self, op: IfOp | SwitchOp, state: State) -> None:
        ends: list[State] = []
        for region in op.regions:
            own = dict(state)
            self.block(region.block, own)
            ends.append(own)
        for root in dict.fromkeys(r for end in ends for r in end):
            met = self.known(ends[0], root)
            for end in ends[1:]:
                met = met.intersect(self.known(end, root))
            state[root] = met

    def call(self, op: CallOp, state: State) -> None:
        inner = dict(state)
        for parameter, value in op.bindings():
            full = self.full(parameter.result)
            if parameter.read:
                self.reads(state, value, self.views.seen(value), f"call @{op.callee.data}")
            inner[parameter.result] = full if parameter.read else self.none(full)
        self.block(op.target().body.block, inner)
        for parameter, value in op.bindings():
            known = inner.pop(parameter.result)
            if parameter.written:
                left = self.full(parameter.result).subtract(known)
                self.claim("written", left.is_empty(), f"@{op.callee.data} leaves {example(left)} of '{parameter.label.data}' unwritten")
                self.writes(state, value, self.views.seen(value))
        state.update(inner)

    def copy(self, op: CopyOp, state: State) -> None:
        self.reads(state, op.src, self.views.seen(op.src), f"a copy ({where(op)})")
        twice = f"a copy writes an element of '{_label(root_of(op.dst))}' twice ({where(op)})"
        self.claim("once", self.views.of(op.dst).is_injective(), twice)
        if root_of(op.src) is root_of(op.dst):
            self.claim("apart", self.views.seen(op.src).is_disjoint(self.views.seen(op.dst)), f"a copy reads what it writes ({where(op)})")
        self.writes(state, op.dst, self.views.seen(op.dst))

    def view(self, op: ViewOp) -> None:
        shape, whole = op.y.type.shape, self.full(root_of(op.y))
        at = self.views.of(op.y)
        key, seen = ("view", shape), self.views.seen(op.y)
        holds = self.once.of(key, (at, whole), lambda: at.domain().is_equal(box(shape)) and seen.is_subset(whole))
        same = type_of(op.x).element == op.y.type.element
        self.claim("bounds", holds and same, f"a view of '{_label(root_of(op.y))}' shows what the variable does not have ({where(op)})")

    # -- compute sets

    def execute(self, op: ExecuteOp, state: State) -> None:
        met: list[tuple[FamilyOp, Touched]] = []
        written: State = {}  # by the families before
        seen: State = {}
        for family in op.families():
            touched = self.family(op, family, state)
            own = [(root, self.range(elements), (written if field.kind == "in" else seen).get(root)) for field, root, elements in touched]
            if any(before is not None and not self.disjoint(elements, before) for _, elements, before in own):
                for number, (other, its) in enumerate(met):
                    self.race(op, other, its, family, touched, (number, len(met)))
            elif met:
                self.claim("race", True, "")
            met.append((family, touched))
            for (field, _, _), (root, elements, _) in zip(touched, own):
                for sets in (seen,) if field.kind == "in" else (seen, written):
                    sets[root] = self.joined(sets[root], elements) if root in sets else elements

    def family(self, op: ExecuteOp, family: FamilyOp, state: State) -> Touched:
        domain, name = family.space, f"'{op.label.data}' @{family.codelet.data}"
        tiles = affine.tile_map(domain, self.tiles)
        self.claim("tiles", tiles.is_injective() and domain.vertices <= self.tiles, f"{name}: two vertices are on one tile")
        found = [(field, value, self.field(name, family, field, value)) for field, value in family.connections()]
        for i, (field, value, elements) in enumerate(found):
            for j, (other, its, also) in enumerate(found):
                if i != j and field.kind != "in" and root_of(value) is root_of(its):
                    own = field.kind == "inout" and elements.is_equal(also)
                    apart = own or self.apart(elements, also)
                    self.claim("apart", apart, f"{name}: {other.name} overlaps {field.name}, which the family writes")
        for field, value, elements in found:
            if field.kind != "out":
                self.reads(state, value, self.range(elements), f"{name} {field.name}")
        for field, value, elements in found:
            if field.kind != "in":
                self.writes(state, value, self.range(elements))
        if self.exchange:
            for field, value, elements in found:
                self.moved(name, domain, field, value, elements)
        return [(field, root_of(value), elements) for field, value, elements in found]

    def field(self, name: str, family: FamilyOp, field: Field, value: SSAValue) -> Map:
        """Proves what concerns one field alone. Returns the map of vertices to elements of the variable."""
        domain, shape, view = family.space, type_of(value).shape, self.views.of(value)
        padded = family.declaration.padded and field.kind == "in"
        key = ("field", domain, field.access, shape, field.kind, padded)
        elements, claims = self.once.of(key, (view,), lambda: _field(domain, field, shape, view, padded))
        for kind, holds, why in claims:
            self.claim(kind, holds, f"{name} {field.name}: {why.format(_label(root_of(value)))}")
        return elements

    def range(self, elements: Map) -> Set:
        return self.once.of("range", (elements,), elements.range)

    def apart(self, a: Map, b: Map) -> bool:
        return self.disjoint(self.range(a), self.range(b))

    def disjoint(self, a: Set, b: Set) -> bool:
        return self.once.of("disjoint", (a, b), lambda: a.is_disjoint(b))

    def joined(self, a: Set, b: Set) -> Set:
        return self.once.of("joined", (a, b), lambda: a.union(b).coalesce())

    def race(self, op: ExecuteOp, a: FamilyOp, of_a: Touched, b: FamilyOp, of_b: Touched, numbers: tuple[int, int]) -> None:
        for f, root, first in of_a:
            for g, other, second in of_b:
                if root is not other or f.kind == g.kind == "in":
                    continue
                holds = self.apart(first, second)
                if not holds:
                    on_first = affine.tile_map(a.space, self.tiles).reverse().apply_range(first)  # tile -> elements
                    on_second = affine.tile_map(b.space, self.tiles).reverse().apply_range(second)
                    shared = on_first.apply_range(on_second.reverse())  # tile -> tiles that touch an element of it
                    holds = shared.is_subset(affine.read_map("{ [t] -> [t] }"))
                families = f"family {numbers[0]} has {f.name} and family {numbers[1]} {g.name}"
                self.claim("race", holds, f"'{op.label.data}': {families}, with an element in common on different tiles")

    def moved(self, name: str, domain: Domain, field: Field, value: SSAValue, elements: Map) -> None:
        grid = storage_of(value).layout
        if grid is None or grid.copies > 1:
            return
        closed = field_exchange(domain, field.access, view_of(value), grid, self.tiles)
        cut = [domain[a].parts for a in domain.order if domain[a].parts > 1]
        for share in (0, 0.5, 1):
            vertex = [int((parts - 1) * share) for parts in cut]
            number = 0
            for parts, digit in zip(cut, vertex):
                number = number * parts + digit
            tile = (domain.start + number) % self.tiles
            touched = elements.intersect_domain(affine.read_set(f"{{ [{', '.join(map(str, vertex))}] }}")).range()
            own = affine.cell(grid, tile, self.tiles)
            counted, said = affine.count(touched if own is None else touched.subtract(own)), int(closed.away[tile])
            holds = counted == said if closed.exact else counted <= said
            self.claim("exchange", holds, f"{name} {field.name}: {counted} elements move at tile {tile}, the closed form says {said}")


def _field(domain: Domain, field: Field, shape: tuple[int, ...], view: Map, padded: bool) -> tuple[Map, list[tuple[str, bool, str]]]:
    """Proves a field's claims. Returns the map of vertices to elements of the variable, and each claim; `{}` is the variable's name."""
    inside, claims = box(shape), list[tuple[str, bool, str]]()
    touched = affine.vertex_map(domain, field.access, shape, padded)
    if not padded:
        outside = touched.range().subtract(inside)
        claims.append(("bounds", outside.is_empty(), f"{example(outside)} is outside of {list(shape)}"))
    elements = touched.apply_range(view)
    if field.kind != "in":
        once = view.is_injective() and touched.is_injective()
        twice = "" if once else f"two vertices write {example(_written_twice(elements))} of '{{}}'"
        claims.append(("once", once, twice))
        claims.append(("hull", hull_is_exact(domain, field.access), "the box of a vertex has elements that it does not write"))
        left = inside.subtract(touched.range())
        claims.append(("covers", left.is_empty(), f"{example(left)} of its view is left out"))
    return elements, claims


def _union(known: Set, elements: Set, full: Set) -> Set:
    union = known.union(elements).coalesce()
    return full if full.is_subset(union) else union


@lru_cache(1 << 12)
def hull_is_exact(domain: Domain, accesses: tuple[Access, ...]) -> bool:
    """Tells whether each dimension's interval, which engines give to a vertex, has no holes, whatever part of the cut it is.

    A term's step may not exceed the span of the smaller ones in the smallest part.
    """
    for access in accesses:
        if access.whole or access.part:
            continue
        span = 1
        for axis, step in sorted(access.terms, key=lambda term: term[1]):
            bounds = domain[axis].bounds()
            sizes = [b - a for a, b in pairwise(bounds)]
            if max(sizes) > 1 and step > span:
                return False
            span += step * max(min(sizes) - 1, 0)
    return True


def _written_twice(elements: Map) -> Set:
    vertices = elements.reverse()
    return vertices.lexmin().subtract(vertices.lexmax()).domain()


def _label(root: SSAValue) -> str:
    owner = root.owner
    return owner.label.data if isinstance(owner, StorageOp) else str(owner)
