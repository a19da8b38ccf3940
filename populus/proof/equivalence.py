"""Compares the terms of two programs, element by element, and judges what differs.

Elements whose terms are one are proved. Where terms differ in form, both are evaluated at some elements, with drawn numbers for the
inputs alone: unequal numbers refute. Equal ones say only that a law is missing. Nothing is decided by terms that are too large to evaluate.
"""

from __future__ import annotations

import hashlib
import itertools
import math
import random
import re
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from typing import cast

import numpy as np
from xdsl.utils.exceptions import DiagnosticException

from populus.dialects import expr
from populus.dialects.poplar.affine import Map, Set, box, read_set
from populus.dialects.poplar.points import TooMany, example, images, some_point
from populus.proof.nodes import Node
from populus.proof.pieces import common, domain
from populus.proof.programs import Results
from populus.proof.recurrence import Recurrence
from populus.proof.report import Report, Undecided, walked
from populus.proof.terms import Terms
from populus.proof.trees import Apply, Converted, Leaf, Number, Piece, Pieces, Skeleton, Tree
from populus.runtime.expr import evaluate

MOST_TERMS = 100_000  # that an evaluation visits
MOST_CALLS = 200_000  # of functions that the evaluations of a comparison make
MOST_JUDGED = 4  # pieces that are not decided, after which no other is evaluated
TURNS_OF_LOOPS = 2  # at which terms that have loops are evaluated
SHAKEN = 1e-6
MORE_TURNS = 100  # of a loop with a condition, beyond those that it says
TRUTH = range(2)  # the integers that all types have, and a place of most dimensions
TURNS = 6  # drawn elements at which terms of different form are evaluated


def compare(terms: Terms, want: Results, have: Results) -> Report:
    """Compares the outputs of two programs. Refuted claims name an output, an element, and both terms."""
    report = Report()
    try:
        with walked():
            _compare(terms, want, have, report)
    except Undecided as why:
        report.undecided.append(str(why))
    return report


def _compare(terms: Terms, want: Results, have: Results, report: Report) -> None:
    values = Values(terms)
    for name, (pieces, shape) in want.items():
        report.claims["output"] += 1
        if name not in have:
            if have.keys() <= want.keys():
                report.refuted.append(f"output '{name}' is lost")
            else:
                report.undecided.append(f"there is no output '{name}', as after a pass that makes a program of another")
            continue
        if min((*shape, *have[name][1]), default=0) >= 0 and shape != have[name][1]:  # none is open
            report.refuted.append(f"output '{name}' is of shape {list(have[name][1])}, where {list(shape)} is meant")
            continue
        if pieces is have[name][0]:
            continue
        rest = box(shape)
        for p, q, elements in common(pieces, have[name][0]):
            rest = rest.subtract(elements)
            if terms.same(p.tree, q.tree, elements) or _same_by_element(terms, p.tree, q.tree, elements):
                continue
            if len(report.undecided) == MOST_JUDGED:
                return
            _judge(values, name, elements, p.tree, q.tree, report)
        if not rest.is_empty():
            report.refuted.append(f"output '{name}': {example(rest)} is not computed")


def _same_by_element(terms: Terms, a: Tree, b: Tree, elements: Set) -> bool:
    try:
        return terms.ground.same(a, b, elements)
    except (Undecided, TooMany, ArithmeticError, RecursionError):
        return False


def _judge(values: Values, name: str, elements: Set, a: Tree, b: Tree, report: Report) -> None:
    both = f"{told(values.terms, a)} is meant, {told(values.terms, b)} is computed"
    try:
        for turn, point in enumerate(_chosen(elements)):
            if values.loops and turn == TURNS_OF_LOOPS:
                break
            values.begin(turn)
            if (numbers := _numbers(values, a, b, point)) is None:
                continue
            x, y = numbers
            if values.loops and not _steady(values, a, point, x, y):
                continue
            if not math.isclose(x, y, rel_tol=max(1e-4, values.terms.coarsest), abs_tol=1e-6) and not (math.isnan(x) and math.isnan(y)):
                at = f"[{', '.join(map(str, point))}]"
                report.refuted.append(f"output '{name}', element {at}: {both} (with drawn numbers {x:.6g} and {y:.6g})")
                return
    except (Undecided, TooMany, ArithmeticError, TypeError, ValueError, DiagnosticException) as why:
        report.undecided.append(f"output '{name}': {both}; it is not evaluated: {why}")
        return
    report.undecided.append(f"output '{name}': {both}; no law shows that they are equal, and drawn numbers do not differ")


def _numbers(values: Values, a: Tree, b: Tree, point: tuple[int, ...]) -> tuple[float, float] | None:
    """Evaluates two terms; None in a turn that says nothing."""
    try:
        found = float(values.tree(a, point)), float(values.tree(b, point))
    except Undecided:
        if not (values.wide and values.placed):
            raise
        return None
    return None if values.wide and values.placed else found


def _steady(values: Values, tree: Tree, point: tuple[int, ...], x: float, y: float) -> bool:
    """Tells whether a loop's result changes less by a change of its inputs in the sixth digit than two results differ.

    Else it makes a large difference of roundings, as of `x^2 - 1` seventy times.
    """
    values.begin(values.turn, SHAKEN)
    return math.isfinite(x) and math.isfinite(y) and abs(float(values.tree(tree, point)) - x) <= 0.1 * abs(x - y)


def _chosen(elements: Set) -> Iterator[tuple[int, ...]]:
    """Yields elements of a set: the first, the last, and drawn ones, as a maximum with 0 hides a difference at some."""
    yield some_point(elements.lexmin())
    yield some_point(elements.lexmax())
    rng = random.Random(0)
    ranges = [(elements.dim_min_val(d), elements.dim_max_val(d)) for d in range(elements.n_dim())]
    for _ in range(TURNS):
        point = tuple(rng.randint(int(low.to_python()), int(high.to_python())) for low, high in ranges)
        if contains(elements, point):
            yield point


class Values:
    """Numbers for terms: the elements of inputs are drawn, all else is computed. In odd turns floats are of both signs.

    Integers are 0 or 1, and in two turns of four others that their type has. A turn that is `wide`, as one of those was drawn, and
    `placed`, as something depends on a place, says nothing: the number may be no place.
    """

    def __init__(self, terms: Terms):
        self.terms, self.calls = terms, MOST_CALLS
        self._points: dict[tuple[int, tuple[int, ...]], tuple[object, list[tuple[int, ...]]]] = {}
        self.begin(0)

    def begin(self, turn: int, shaken: float = 0.0) -> None:
        """Draws other numbers. `shaken`: the relative change of each float."""
        self.left, self.turn, self.shaken, self.wide, self.placed = MOST_TERMS, turn, shaken, False, False
        self.known: dict[tuple[int, tuple[int, ...]], np.generic] = {}
        self.carried: dict[tuple[int, tuple[int, ...]], np.generic] = {}  # what the loops around have in this iteration
        self.loops: dict[int, dict[tuple[int, tuple[int, ...]], np.generic]] = {}  # what they leave

    def tree(self, tree: Tree, point: tuple[int, ...]) -> np.generic:
        match tree:
            case Leaf(node, at):
                return self.node(node, self.image(at, point))
            case Number(value):
                return _literal(value)
            case Converted(to, bits, x):
                return _converted(str(to), bits, self.tree(x, point))
            case Apply(function, args):
                return self.applied(function, [self.tree(x, point) for x in args])

    def applied(self, function: str, values: list[np.generic]) -> np.generic:
        self.calls -= 1
        if self.calls < 0:
            raise TooMany(f"more than {MOST_CALLS} functions")
        return cast("np.generic", evaluate(_call(function, len(values)), [np.asarray(v) for v in values])[()])

    def image(self, at: Map, point: tuple[int, ...]) -> tuple[int, ...]:
        [found] = self.images(at, point, 1)
        return found

    def images(self, at: Map, point: tuple[int, ...], most: int) -> list[tuple[int, ...]]:
        """Lists the images of a point, once for a map, which is kept so that no other has its identity."""
        key = (id(at), point)
        if key not in self._points:
            self._points[key] = (at, images(at, point, most))
        return self._points[key][1]

    def node(self, number: int, index: tuple[int, ...]) -> np.generic:
        key = (number, index)
        if key not in self.known:
            node = self.terms.nodes[number]
            if (array := self.terms.arrays.get(number)) is not None:
                self.known[key] = _literal(array[index[0]].item() if array.dtype.kind in "biu" else float(array[index[0]]))
            elif node.kind == "input":
                self.known[key] = self.input(node, key)
            elif node.kind in ("turn", "carried"):
                if key not in self.carried:
                    raise Undecided(node.kind)
                return self.carried[key]
            elif node.kind in ("final", "rows"):
                self.placed = True
                self.known[key] = self.left_by(cast("tuple[int, int]", node.params[0])[0], key)
            else:
                self.placed |= node.kind == "place" or node.kind in _ORDERED
                self.known[key] = np.int64(index[0]) if node.kind == "place" else self.defined(node, index)
        return self.known[key]

    def input(self, node: Node, key: tuple[int, tuple[int, ...]]) -> np.generic:
        """Gives an element of an input."""
        floats, whole = node.params[-1] is True, TRUTH
        if self.turn % 4 >= 2 and not floats:
            whole = self.terms.drawn.get(node.params[0], TRUTH)
            self.wide |= whole is not TRUTH
        found = _drawn(self.turn, key, None if floats else whole)
        return np.float64(float(found) * (1 + self.shaken)) if self.shaken and floats else found

    def defined(self, node: Node, index: tuple[int, ...]) -> np.generic:
        if node.kind == "tree":
            pairs = iter(zip(node.parts, node.maps))
            [form] = node.params
            assert isinstance(form, tuple)
            return self.formula(cast("Skeleton", form), pairs, index)
        if node.kind in _ORDERED:
            fields = [
                [self.node(i, point) for _, i, point in sorted(self.terms.ground.places(node, k, index))]
                for k in range(int(str(node.params[-1])) + 1)
            ]
            return _ORDERED[node.kind](self, node, fields)
        if node.kind not in _SUMS:
            raise Undecided(node.kind)
        found: list[float] = []
        counted = 0
        for ids, relation in zip(node.parts, node.maps):
            points = self.images(relation, index, self.left)
            self.left -= len(points)
            if ids:
                found += [math.prod(self.factors(ids, point)) for point in points]
            else:
                counted += len(points)
        return np.float64(_SUMS[node.kind](found) / (1 if node.kind != "average" else counted or len(found)))

    def left_by(self, number: int, key: tuple[int, tuple[int, ...]]) -> np.generic:
        """Gives an element of what a loop leaves: its states after the last iteration, and the tables of its rows."""
        if key not in self.loops.get(number, {}):  # the first row that is asked for needs no later iteration
            first = number not in self.loops and self.terms.nodes[key[0]].kind == "rows"
            self.loops[number] = self.looped(self.terms.loops[number], key[1][0] + 1 if first else None)
        return self.loops[number][key]

    def looped(self, loop: Recurrence, most: int | None) -> dict[tuple[int, tuple[int, ...]], np.generic]:
        """Runs a loop by its recurrence, one with a condition as long as that holds. Rows of iterations that do not run are 0.

        `most`: of iterations, by which rows are given, but no states.
        """
        states = [self.elements(s.first, s.shape) for s in loop.states]
        tables: list[list[dict[tuple[int, ...], np.generic]]] = [[{} for _ in range(loop.trips or 0)] for _ in loop.rows]
        outer, known = self.carried, self.known
        for turn in itertools.count():
            if turn == most or (not states[0][()] if loop.conditional else turn == loop.trips):
                break
            if turn == (loop.trips or 0) + MORE_TURNS:
                raise Undecided("a loop that goes on")
            self.known, self.carried = {}, {**outer, (_leaf(loop.index), ()): np.int64(turn)}
            for state, values in zip(loop.states, states):
                self.carried |= {(_leaf(state.symbol), index): value for index, value in values.items()}
            for table, (row, shape, _) in zip(tables, loop.rows):
                if turn < len(table):
                    table[turn] = self.elements(row, shape)
            states = [self.elements(s.next, s.shape) for s in loop.states]
        self.carried, self.known = outer, known
        ends = zip(loop.states, states) if most is None else ()
        left = {(_leaf(s.final), index): value for s, values in ends for index, value in values.items()}
        for table, (_, shape, whole) in zip(tables, loop.rows):
            for turn, values in enumerate(table[:most]):
                left |= {(_leaf(whole), (turn, *index)): values.get(index, np.float64(0)) for index in np.ndindex(shape)}
        return left

    def elements(self, pieces: Pieces, shape: tuple[int, ...]) -> dict[tuple[int, ...], np.generic]:
        """Gives all elements of a tensor. Raises Undecided if some are not known."""
        if not pieces or not domain(pieces).is_equal(box(shape)):
            raise Undecided("a part of what a loop carries")
        return {i: self.tree(self._piece(pieces, i).tree, i) for i in np.ndindex(shape)}

    def _piece(self, pieces: Pieces, point: tuple[int, ...]) -> Piece:
        """Finds the piece of a tensor, all of which is known, that has an element."""
        return next((p for p in pieces[:-1] if contains(p.elements, point)), pieces[-1])

    def factors(self, ids: tuple[int, ...], point: tuple[int, ...]) -> Iterator[float]:
        at = 0
        for i in ids:
            rank = self.terms.nodes[i].elements.n_dim()
            yield float(self.node(i, point[at : at + rank]))
            at += rank

    def formula(self, form: Skeleton, pairs: Iterator[tuple[tuple[int, ...], Map]], index: tuple[int, ...]) -> np.generic:
        match form:
            case ("leaf", _):
                (node,), at = next(pairs)
                return self.node(node, self.image(at, index))
            case ("number", kind, value):
                return np.bool_(value == "True") if kind == "bool" else _literal((int if kind == "int" else float)(str(value)))
            case ("as", to, bits, x):
                return _converted(str(to), bool(bits), self.formula(cast("Skeleton", x), pairs, index))
            case (function, *args):
                return self.applied(str(function), [self.formula(cast("Skeleton", x), pairs, index) for x in args])
            case _:
                raise AssertionError(form)


@cache
def _call(function: str, count: int) -> expr.Expr:
    return expr.call(function, *(expr.Arg(i + 1) for i in range(count)))


def contains(elements: Set, point: tuple[int, ...]) -> bool:
    """Tells whether a point is in a set."""
    return not elements.is_disjoint(read_set(f"{{ [{', '.join(map(str, point))}] }}"))


def _leaf(pieces: Pieces) -> int:
    """Gives the node that a symbol is."""
    [piece] = pieces
    assert isinstance(piece.tree, Leaf), piece
    return piece.tree.node


def _named(values: Values, node: Node, fields: list[list[np.generic]]) -> np.generic:
    row, [at] = fields
    if not 0 <= int(at) < len(row):
        raise Undecided("an index out of range")
    return row[int(at)]


def _updated(values: Values, node: Node, fields: list[list[np.generic]]) -> np.generic:
    [found], indices, updates, [row] = fields
    combine = str(node.params[0]).strip('"')
    for at, new in zip(indices, updates, strict=True):
        if int(at) == int(row):
            found = new if combine == "set" else values.applied(combine, [found, new])
    return found


def _ranked(values: Values, node: Node, fields: list[list[np.generic]]) -> np.generic:
    row, [place] = fields
    sign = -1 if str(node.params[0]).startswith(("true", "1")) else 1
    return np.int64(sorted(range(len(row)), key=lambda k: (sign * float(row[k]), k))[int(place)])


_ORDERED: Mapping[str, Callable[[Values, Node, list[list[np.generic]]], np.generic]] = {
    "multi_slice": _named,
    "multi_update": _updated,
    "top_k": _ranked,
}
"""Functions that depend on the order of their elements."""

_SUMS: Mapping[str, Callable[[list[float]], float]] = {
    "add": math.fsum,
    "mul": math.prod,
    "max": max,
    "min": min,
    "and": min,
    "or": max,
    "average": math.fsum,
}


def _converted(to: str, bits: bool, value: np.generic) -> np.generic:
    if bits:
        raise Undecided("bits of a number")
    if to.startswith(("f", "bf")):
        return np.float64(value)
    if to == "i1":
        return np.bool_(value)
    exact = value.dtype.kind in "iu"
    whole = int(value.item() if exact else np.trunc(np.float64(value)))
    if (width := re.fullmatch(r"(u?)i(\d+)", to)) is None:
        raise Undecided(f"a conversion to {to}")
    low, count = (0 if width[1] else -(1 << (int(width[2]) - 1))), 1 << int(width[2])
    if not exact and not low <= whole < low + count:
        raise Undecided(f"a number that {to} does not have")
    return np.int64((whole - low) % count + low)


def _literal(value: float | bool) -> np.generic:
    return np.bool_(value) if isinstance(value, bool) else np.int64(value) if isinstance(value, int) else np.float64(value)


def _drawn(turn: int, key: tuple[int, tuple[int, ...]], whole: range | None) -> np.generic:
    """Draws a number for an element of an input: in even turns of 0.5 to 1.5, in odd ones of -2 to 2; of integers one of `whole`."""
    share = int.from_bytes(hashlib.sha256(repr((turn, key)).encode()).digest()[:6], "little") / (1 << 48)
    if whole is not None:
        return np.int64(whole[int(share * len(whole))])
    return np.float64(4 * share - 2 if turn % 2 else 0.5 + share)


def told(terms: Terms, tree: Tree, depth: int = 3) -> str:
    """Gives a term as text, so deep."""
    match tree:
        case Leaf(number, _):
            node = terms.nodes[number]
            if not node.parts:
                return f"{node.kind} '{node.params[0]}'" if node.kind == "input" else node.kind
            inner = " ".join(sorted({terms.nodes[i].kind for part in node.parts for i in part[-2:]}))
            return f"{node.kind}({inner})"
        case Number(value):
            return str(value)
        case Apply(function, args):
            return f"{function}({', '.join(told(terms, a, depth - 1) if depth else '..' for a in args)})"
        case Converted(to, _, x):
            return f"{to}({told(terms, x, depth)})"
