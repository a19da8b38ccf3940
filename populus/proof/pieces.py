"""The pieces of a tensor: what is known of it, writes over it, and pieces of one form made one."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from populus.dialects.poplar.affine import Map, Set
from populus.proof.trees import Apply, Converted, Leaf, Piece, Pieces, Skeleton, Tree, leaves

FEW = 4  # pieces, all of which are looked at


def once(points: Map, relation: Map) -> bool:
    """Tells whether different points of one index have different terms."""
    if relation.is_injective():
        return True
    both = points.range_map().apply_range(relation)  # [index -> point] -> term
    return points.domain_map().flat_range_product(both).is_injective()


def domain(pieces: Pieces) -> Set:
    """Makes the set of the elements that are known. There has to be one."""
    found = pieces[0].elements
    for p in pieces[1:]:
        found = found.union(p.elements)
    return found


def common(a: Pieces, b: Pieces) -> Iterator[tuple[Piece, Piece, Set]]:
    """Yields the pairs of pieces that have elements in common, and these. Most of many pairs are told apart by their ends."""
    ends = np.array([q.ends for q in b]) if len(b) > FEW else None  # piece, first or last, dimension
    for p in a:
        near = b
        if ends is not None:
            low, high = np.array(p.ends)
            near = [b[k] for k in np.flatnonzero(((ends[:, 0] <= high) & (ends[:, 1] >= low)).all(axis=1))]
        for q in near:
            if not (both := p.elements.intersect(q.elements)).is_empty():
                yield p, q, both


def over(old: Pieces, new: Pieces) -> Pieces:
    """Writes new elements over old ones."""
    if not new:
        return old
    written = domain(new)
    found: Pieces = []
    for p in old:
        if p.elements.is_disjoint(written):
            found.append(p)
        elif not (rest := p.elements.subtract(written)).is_empty():
            found.append(Piece(rest.coalesce(), p.tree))
    return [*found, *new]


def united(pieces: Pieces) -> Pieces:
    """Makes pieces of one tree one piece."""
    if len(pieces) < 2:
        return pieces
    found: dict[Skeleton, Pieces] = {}
    for p in pieces:
        alike = found.setdefault(p.form, [])
        for k, q in enumerate(alike):
            if all(
                x.at.intersect_domain(q.elements).union(y.at.intersect_domain(p.elements)).is_single_valued()
                for x, y in zip(leaves(q.tree), leaves(p.tree))
            ):
                alike[k] = Piece(q.elements.union(p.elements).coalesce(), _either(q.tree, p.tree, q.elements, p.elements))
                break
        else:
            alike.append(p)
    return [q for alike in found.values() for q in alike]


def _either(a: Tree, b: Tree, on_a: Set, on_b: Set) -> Tree:
    match a, b:
        case Leaf(node, at), Leaf(_, other):
            return Leaf(node, at.intersect_domain(on_a).union(other.intersect_domain(on_b)).coalesce())
        case Apply(function, args), Apply(_, others):
            return Apply(function, tuple(_either(x, y, on_a, on_b) for x, y in zip(args, others)))
        case Converted(to, bits, x), Converted(_, _, y):
            return Converted(to, bits, _either(x, y, on_a, on_b))
        case _:
            return a
