"""Branches and loops. A loop's body is executed once, with symbols in the place of what it carries.

A loop is the recurrence `s(0) = first, s(i + 1) = next(i, s(i))`. Another loop computes the same if each of its states begins as one of
the recurrence's, and if its body, given those for its own, ends in what the recurrence's body ends in: by induction they are equal in
every iteration. States are not told apart on tiles, where a variable may also be the iteration's number, a table that is filled
row by row, or left over from the iteration before; so assignments are tried.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from populus.dialects.expr import Arg, select
from populus.dialects.poplar.affine import Map, Set, box, every, names, read_map
from populus.proof.pieces import domain
from populus.proof.recurrence import Recurrence, State
from populus.proof.report import Undecided
from populus.proof.terms import Terms
from populus.proof.trees import Apply, Leaf, Number, Piece, Pieces

MOST_TRIES = 48  # assignments of states that are tried

Role: TypeAlias = "tuple[str, int]"
"""A use of what a loop carries: an `index`, `rows` of a table, what is `stale`, or the `state` of that number."""


@dataclass(frozen=True)
class Part:
    """A value that a loop carries: what it is before the first iteration, its shape, whether it is of floats. `roles`: what it may be."""

    first: Pieces
    shape: tuple[int, ...]
    floats: bool
    roles: tuple[str, ...] = ("state",)


Body: TypeAlias = "Callable[[Pieces, Sequence[Pieces]], tuple[list[Pieces], list[Pieces]]]"
"""Executes the body: the iteration's number and what is carried give what is carried next, and rows of tables."""


def chosen(terms: Terms, condition: Pieces, a: Pieces, b: Pieces, elements: Set) -> Pieces:
    """Gives `a` where a condition holds, else `b`. Elements that only one of them has are unknown."""
    if a is b:
        return a
    found: Pieces = []
    one = elements  # those that are not in both
    to_scalar = read_map(f"{{ [{', '.join(names('i', elements.n_dim()))}] -> [] }}")
    for p in a:
        for q in b:
            both = p.elements.intersect(q.elements)
            if both.is_empty():
                continue
            one = one.subtract(both)
            if terms.same(p.tree, q.tree, both):
                found += [Piece(both, p.tree)]
            else:
                given = terms.seen(condition, to_scalar.intersect_domain(both))
                found += terms.elementwise(select(Arg(1), Arg(2), Arg(3)), both, [[p], [q], given], False)
    for p in (*a, *b):
        if not (left := p.elements.intersect(one)).is_empty():
            one = one.subtract(left)
            found += terms.unknown(left)
    return found


def looped(
    terms: Terms, trips: int | None, conditional: bool, parts: Sequence[Part], body: Body, rows: Sequence[tuple[int, ...]]
) -> tuple[list[Pieces], list[Pieces]]:
    """Gives what is carried after a loop, and its tables of rows. The first part of a conditional loop is whether it goes on."""
    for known in reversed(terms.loops):
        if (known.trips, known.conditional) == (trips, conditional):
            for roles in _assignments(terms, known, parts):
                if (found := _tried(terms, known, parts, roles, body, rows)) is not None:
                    return found
    known, roles = _new(terms, trips, conditional, parts, body)
    found = _tried(terms, known, parts, roles, body, rows)
    if found is None:
        raise Undecided("a loop that is not its own recurrence")
    return found


def _assignments(terms: Terms, known: Recurrence, parts: Sequence[Part]) -> Iterator[tuple[Role, ...]]:
    options: list[list[Role]] = []
    for number, part in enumerate(parts):
        own: list[Role] = [(role, 0) for role in part.roles if role in ("index", "rows")]
        for j, state in enumerate(known.states):
            if known.conditional and (number == 0) != (j == 0):
                continue
            fits = "state" in part.roles and math.prod(part.shape) == math.prod(state.shape)
            if fits and terms.agree(part.first, terms.reshaped(state.first, state.shape, part.shape)):
                own.append(("state", j))
        if not own and "stale" in part.roles:
            own.append(("stale", 0))
        options.append(own)
    return itertools.islice(itertools.product(*options), MOST_TRIES)


def _bound(terms: Terms, known: Recurrence, parts: Sequence[Part], roles: Sequence[Role]) -> list[Pieces]:
    """Gives what the body finds in the place of each part."""
    found: list[Pieces] = []
    for part, (role, j) in zip(parts, roles, strict=True):
        if role == "index":
            found.append(known.index)
        elif role == "state":
            found.append(terms.reshaped(known.states[j].symbol, known.states[j].shape, part.shape))
        else:
            found.append(terms.unknown(box(part.shape)))
    return found


def _tried(
    terms: Terms, known: Recurrence, parts: Sequence[Part], roles: Sequence[Role], body: Body, rows: Sequence[tuple[int, ...]]
) -> tuple[list[Pieces], list[Pieces]] | None:
    """Executes the body on a recurrence's states. Returns what is carried after the loop, and its tables; None if it is another."""
    begins = _bound(terms, known, parts, roles)
    ends, made = body(known.index, begins)
    finals: list[Pieces] = []
    for part, (role, j), begin, end in zip(parts, roles, begins, ends, strict=True):
        match role:
            case "state":
                state = known.states[j]
                if not terms.agree(end, terms.reshaped(state.next, state.shape, part.shape)):
                    return None
                finals.append(terms.reshaped(state.final, state.shape, part.shape))
            case "index":
                if not _counts(terms, known, end):
                    return None
                finals.append(terms.unknown(box(())) if known.trips is None or known.conditional else terms.number(known.trips, ()))
            case "rows":
                row = _row(terms, known, part, begin, end)
                if row is None:
                    return None
                finals.append(_table(terms, known, row, part.shape[1:], part.floats))
            case _:
                finals.append(terms.unknown(box(part.shape)))
    return finals, [_table(terms, known, row, shape, False) for row, shape in zip(made, rows, strict=True)]


def _new(terms: Terms, trips: int | None, conditional: bool, parts: Sequence[Part], body: Body) -> tuple[Recurrence, tuple[Role, ...]]:
    """Makes a recurrence of a loop: what is no index and no table of rows is a state if it has a first value, else stale."""
    number = len(terms.loops)
    known = Recurrence(trips, conditional, terms.input((number,), (), False, "turn"), [], [])
    terms.loops.append(known)
    chosen_roles = [part.roles[0] for part in parts]
    roles: list[Role] = []
    while True:
        known.states, roles = [], []
        for part, role in zip(parts, chosen_roles):
            roles.append((role, len(known.states)))
            if role == "state":
                j = len(known.states)
                symbol, final = (terms.input((number, j), part.shape, part.floats, kind) for kind in ("carried", "final"))
                known.states.append(State(part.first, part.shape, symbol, final))
        begins = _bound(terms, known, parts, roles)
        ends, _ = body(known.index, begins)
        wrong = [
            k
            for k, (part, role) in enumerate(zip(parts, chosen_roles))
            if (role == "index" and not _counts(terms, known, ends[k]))
            or (role == "rows" and _row(terms, known, part, begins[k], ends[k]) is None)
        ]
        if not wrong:
            break
        for k in wrong:
            later = parts[k].roles[parts[k].roles.index(chosen_roles[k]) + 1 :]
            if not later:
                raise Undecided("a loop whose variable is neither a state nor a table")
            chosen_roles[k] = later[0]
    for (role, j), end in zip(roles, ends):
        if role == "state":
            known.states[j].next = end
    return known, tuple(roles)


def _counts(terms: Terms, known: Recurrence, end: Pieces) -> bool:
    """Tells whether what ends an iteration is the iteration's number and 1."""
    return terms.agree(end, terms.elementwise(Arg(1) + 1, box(()), [known.index], False))


def _row(terms: Terms, known: Recurrence, part: Part, begin: Pieces, end: Pieces) -> Pieces | None:
    """Gives the row that an iteration writes to a table at its number, if it does nothing else to it."""
    if not part.shape or part.shape[0] != known.trips or not end or not domain(end).is_equal(box(part.shape)):
        return None
    if known.conditional and not (part.first and all(terms.plain(p.tree) in (Number(0.0), Number(0)) for p in part.first)):
        return None
    [old], [index] = begin, known.index
    assert isinstance(old.tree, Leaf)
    assert isinstance(index.tree, Leaf)
    found: Pieces = []
    for p in end:
        match p.tree:
            case Apply("select", (row, Leaf(table, at), Apply("equal", (Leaf() as one, Leaf() as other)))) if (
                table == old.tree.node
                and index.tree.node in (one.node, other.node)
                and terms.nodes[place := other.node if one.node == index.tree.node else one.node].kind == "place"
                and at.intersect_domain(p.elements).is_subset(every(part.shape))
                and (one if one.node == place else other).at.intersect_domain(p.elements).is_subset(_first(len(part.shape)))
            ):
                found += [Piece(p.elements, row)]
            case _:
                return None
    i = names("i", len(part.shape) - 1)
    lifted = terms.seen(found, read_map(f"{{ [{', '.join(i)}] -> [{', '.join(['0', *i])}] }}"))
    back = read_map(f"{{ [{', '.join(['t', *i])}] -> [{', '.join(i)}] : 0 <= t < {known.trips} }}")
    return lifted if terms.agree(terms.seen(lifted, back), found) else None


def _first(rank: int) -> Map:
    i = names("i", rank)
    return read_map(f"{{ [{', '.join(i)}] -> [i0] }}")


def _table(terms: Terms, known: Recurrence, row: Pieces, shape: tuple[int, ...], floats: bool) -> Pieces:
    """Gives the table of the rows of all iterations."""
    for other, its, table in known.rows:
        if its == shape and terms.agree(row, other):
            return table
    assert known.trips is not None
    number = next(k for k, other in enumerate(terms.loops) if other is known)
    table = terms.input((number, len(known.rows)), (known.trips, *shape), floats, "rows")
    known.rows.append((row, shape, table))
    return table
