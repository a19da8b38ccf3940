"""Conversions of tree ensembles: all rows descend all trees at once, one level in each iteration.

The weights of the leaves that they reach are then summed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from xdsl.dialects.builtin import f32, i32
from xdsl.ir import SSAValue

from populus.dialects import popart
from populus.dialects.support.diagnostics import PopulusError
from populus.dialects.support.element_types import dtype_of, is_float
from populus.lowering.onnx.to_popart.conversion import Conversion, Output, Rules, element, shape
from populus.lowering.onnx.to_popart.formula import Term
from populus.lowering.onnx.to_popart.loop import loop
from populus.lowering.onnx.to_popart.scores import POST_TRANSFORMS, labelled, transformed

if TYPE_CHECKING:
    from numpy.typing import NDArray

MODES = ("BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ", "BRANCH_MEMBER")
LEAF = len(MODES)
AGGREGATES = ("AVERAGE", "SUM", "MIN", "MAX")


@dataclass(frozen=True)
class Forest:
    """The nodes of all trees, [m] each; the children of a leaf are the leaf itself.

    `weights`: [m, targets]; `votes`: true where a leaf has a weight for a target.
    """

    roots: NDArray[Any]
    feature: NDArray[Any]
    threshold: NDArray[Any]
    mode: NDArray[Any]
    yes: NDArray[Any]
    no: NDArray[Any]
    missing_is_yes: NDArray[Any]
    members: NDArray[Any]  # [m, s], filled up with NaN
    weights: NDArray[Any]
    votes: NDArray[Any]

    @property
    def depth(self) -> int:
        """Steps from a root to the furthest leaf. Raises PopulusError for a cycle of children."""
        import numpy as np

        at, depth = np.unique(self.roots), 0
        while (inner := at[self.mode[at] != LEAF]).size:
            at, depth = np.unique(np.concatenate([self.yes[inner], self.no[inner]])), depth + 1
            if depth > len(self.mode):
                raise PopulusError("its trees have a cycle: the children of a node lead back to it")
        return depth


def leaves(c: Conversion, x: SSAValue, forest: Forest) -> SSAValue:
    """Finds the leaf of each row in each tree: [n, trees], i32. x: [n, features]."""
    import numpy as np

    rows, features = shape(x)
    if forest.feature.size and int(forest.feature.max()) >= features:
        raise PopulusError(f"a node compares feature {int(forest.feature.max())}; x has {features}")
    depth = forest.depth
    start = c.constant(np.broadcast_to(forest.roots.astype(np.int32), (rows, len(forest.roots))).copy())
    if depth == 0 or rows == 0:
        return start
    flat = c.reshape(x, (rows * features,))
    first = c.constant((np.arange(rows, dtype=np.int32) * features).reshape(rows, 1))
    tables = {name: c.constant(getattr(forest, name)) for name in ("yes", "no", "threshold")}
    feature = c.constant(forest.feature.astype(np.int32))
    inner = forest.mode != LEAF
    modes = [m for m in range(LEAF) if (forest.mode[inner] == m).any()]
    mode = c.constant(forest.mode.astype(np.int32)) if len(modes) > 1 else None
    missing = c.constant(forest.missing_is_yes) if forest.missing_is_yes[inner].any() and is_float(element(x)) else None
    members = c.constant(forest.members) if MODES.index("BRANCH_MEMBER") in modes else None

    def step(b: Conversion, index: SSAValue, states: list[SSAValue]) -> list[SSAValue]:
        (at,) = states

        def picked(table: SSAValue) -> Term:
            return Term(b, b.insert(popart.GatherOp(table, at, axis=0)))

        value = Term(b, b.insert(popart.GatherOp(flat, (picked(feature) + Term(b, first)).value, axis=0)))
        matched: Term | None = None
        for m in modes:
            if MODES[m] == "BRANCH_MEMBER":
                assert members is not None
                spread = value.reshape(*shape(value.value), 1)
                same = b.cast(spread.equals(picked(members)).value, f32)
                truth = Term(b, b.insert(popart.ReduceMaxOp(same, axes=(2,), keep=False))) > 0.5
            else:
                truth = _compared(m, value, picked(tables["threshold"]))
            if mode is not None:
                truth = truth & picked(mode).equals(m)
            matched = truth if matched is None else matched | truth
        assert matched is not None
        if missing is not None:
            matched = matched | (Term(b, b.insert(popart.IsNanOp(value.value))) & picked(missing))
        return [matched.where(picked(tables["yes"]), picked(tables["no"])).value]

    return loop(c, [start], depth, step)[0]


def _compared(mode: int, value: Term, threshold: Term) -> Term:
    """Compares values with thresholds by the mode of a node."""
    match MODES[mode]:
        case "BRANCH_LEQ":
            return value <= threshold
        case "BRANCH_LT":
            return value < threshold
        case "BRANCH_GTE":
            return value >= threshold
        case "BRANCH_GT":
            return value > threshold
        case "BRANCH_EQ":
            return value.equals(threshold)
        case _:
            same = value.equals(threshold)
            return Term(same.c, same.c.insert(popart.NotOp(same.value)))


def summed(c: Conversion, x: SSAValue, forest: Forest, aggregate: str) -> Term:
    """Aggregates the weights of the leaves of each row: [n, targets]; 0 for a target without a vote.

    Raises PopulusError for an unknown aggregate.
    """
    import numpy as np

    at = leaves(c, x, forest)
    if aggregate in ("SUM", "AVERAGE"):
        votes = c.insert(popart.GatherOp(c.constant(forest.weights), at, axis=0))
        total = Term(c, c.insert(popart.ReduceSumOp(votes, axes=(1,), keep=False)))
        return total / float(len(forest.roots)) if aggregate == "AVERAGE" else total
    if aggregate not in AGGREGATES:
        raise PopulusError(f"aggregate_function is '{aggregate}'; {', '.join(AGGREGATES)} are expected")
    none = np.inf if aggregate == "MIN" else -np.inf
    table = np.where(forest.votes, forest.weights, none).astype(forest.weights.dtype)
    votes = c.insert(popart.GatherOp(c.constant(table), at, axis=0))
    best = Term(c, c.insert((popart.ReduceMinOp if aggregate == "MIN" else popart.ReduceMaxOp)(votes, axes=(1,), keep=False)))
    return best.equals(none).where(best * 0.0, best) if forest.votes.all() else (best.abs() < np.inf).where(best, 0.0)


def listed(c: Conversion, name: str) -> NDArray[Any] | None:
    """Reads a list of floats, or of doubles as `name_as_tensor`; None if the node has neither."""
    import numpy as np

    tensor = c.get(f"{name}_as_tensor")
    if tensor is not None:
        return np.asarray(tensor).reshape(-1)
    numbers = c.get(name)
    return None if numbers is None else np.array(numbers, np.float32)


def forest_of_nodes(c: Conversion, x: SSAValue, prefix: str, targets: int) -> Forest:
    """Reads the trees of TreeEnsembleRegressor-1 .. 3 and TreeEnsembleClassifier-1 .. 3.

    `prefix`: that of the leaves' attributes. Raises PopulusError for lists that do not fit each other.
    """
    import numpy as np

    trees, nodes = (np.array(c.list(f"nodes_{name}"), np.int64) for name in ("treeids", "nodeids"))
    modes = [m if isinstance(m, str) else str(m) for m in c.list("nodes_modes")]
    lists = {name: np.array(c.list(f"nodes_{name}"), np.int64) for name in ("featureids", "truenodeids", "falsenodeids")}
    values = listed(c, "nodes_values")
    if values is None or len({len(trees), len(nodes), len(modes), len(values), *map(len, lists.values())}) != 1:
        raise PopulusError("its lists of nodes differ in length")
    place = {(int(t), int(n)): i for i, (t, n) in enumerate(zip(trees, nodes))}
    if len(place) < len(nodes):
        raise PopulusError("two of its nodes have the same tree and number")
    kinds = np.array([LEAF if m == "LEAF" else MODES.index(m) if m in MODES[:-1] else -1 for m in modes])
    if (kinds < 0).any():
        raise PopulusError(f"a node's mode is '{modes[int((kinds < 0).argmax())]}'; {', '.join(MODES[:-1])} and LEAF are expected")

    def child(name: str) -> NDArray[Any]:
        children = [i if kinds[i] == LEAF else place.get((int(trees[i]), int(lists[name][i])), -1) for i in range(len(nodes))]
        if -1 in children:
            raise PopulusError(f"node {int(nodes[children.index(-1)])} has a child that does not exist")
        return np.array(children, np.int32)

    yes, no = child("truenodeids"), child("falsenodeids")
    tracks = c.get("nodes_missing_value_tracks_true")
    first: dict[int, int] = {}
    for i, t in enumerate(trees):
        first.setdefault(int(t), i)
    ids, weights = c.list(f"{prefix}_ids"), listed(c, f"{prefix}_weights")
    owners = list(zip(c.list(f"{prefix}_treeids"), c.list(f"{prefix}_nodeids")))
    if weights is None or not len(ids) == len(weights) == len(owners):
        raise PopulusError(f"its lists {prefix}_ids, {prefix}_weights, .. differ in length")
    if any(key not in place for key in owners) or any(not 0 <= i < targets for i in ids):
        raise PopulusError("a weight names a node or a target that does not exist")
    table = np.zeros((len(nodes), targets), weights.dtype)
    votes = np.zeros(table.shape, np.bool_)
    at = np.array([place[key] for key in owners], np.int64)
    np.add.at(table, (at, ids), weights)
    votes[at, ids] = True
    dtype = dtype_of(element(x))
    return Forest(
        np.array(list(first.values()), np.int32),
        np.where(kinds == LEAF, 0, lists["featureids"]),
        _split(values, dtype, kinds),
        kinds,
        yes,
        no,
        np.array(tracks, np.bool_) if tracks else np.zeros(len(nodes), np.bool_),
        np.zeros((len(nodes), 0)),
        table,
        votes,
    )


def _split(values: NDArray[Any], dtype: Any, kinds: NDArray[Any]) -> NDArray[Any]:
    """Casts thresholds to the element type of x; between integers, to the integer that decides the same."""
    import numpy as np

    if dtype.kind not in "iu":
        return values.astype(dtype)
    below = np.isin(kinds, [MODES.index("BRANCH_LEQ"), MODES.index("BRANCH_GT")])
    whole = np.where(below, np.floor(values), np.ceil(values))
    if ((kinds != LEAF) & (values != whole) & np.isin(kinds, [4, 5])).any():
        raise PopulusError("a node compares integers for equality with a number that is no integer")
    info = np.iinfo(dtype)
    return np.clip(whole, info.min, info.max).astype(dtype)


def tree_regressor(c: Conversion) -> Output:
    """Converts TreeEnsembleRegressor. Source: TreeEnsembleRegressor-3."""
    x = c.input(0)
    targets = int(c.get("n_targets") or 1)
    forest = forest_of_nodes(c, x, "target", targets)
    y = summed(c, x, forest, c.get("aggregate_function"))
    if (base := listed(c, "base_values")) is not None:
        y = y + Term(c, c.constant(base.astype(dtype_of(element(y.value)))))
    return c.cast(transformed(c, y, c.get("post_transform")).value, f32)


def tree_classifier(c: Conversion) -> list[Output]:
    """Converts TreeEnsembleClassifier; if only one of two classes has votes, as onnxruntime does.

    Source: TreeEnsembleClassifier-3.
    """
    import numpy as np

    x = c.input(0)
    ids = c.list("class_ids")
    labels = c.list("classlabels_int64s") or c.list("classlabels_strings")
    classes = len(labels)
    forest = forest_of_nodes(c, x, "class", max(classes, max(ids, default=0) + 1))
    y = summed(c, x, forest, "SUM")
    base = listed(c, "base_values")
    post = c.get("post_transform")
    single = classes <= 2 and len(set(ids)) == 1
    if not single:
        if base is not None:
            y = y + Term(c, c.constant(base.astype(dtype_of(element(y.value)))))
        return labelled(c, y, transformed(c, y, post), labels)
    only = set(ids).pop()
    score = Term(c, c.insert(popart.SliceOp(y.value, begins=(0, only), ends=(shape(y.value)[0], only + 1), steps=(1, 1))))
    if base is not None and base.size:
        score = score + float(base[-1])
    positive = bool((forest.weights[forest.votes] >= 0).all())
    one = score > (0.5 if positive else 0.0)
    if positive:
        pair = (score * -1.0 + 1.0, score)
        both = _pair(c, *pair)
    else:
        both = transformed(c, _pair(c, score * -1.0, score), post if post == "LOGISTIC" else "NONE")
    if post == "PROBIT":
        both = transformed(c, score, post)
    index = c.reshape(c.cast(one.value, i32), (shape(x)[0],))
    known = np.array(labels, np.int64) if c.get("classlabels_int64s") else c.handles(labels)
    if classes == 1:
        known = np.array([0, known[0]], known.dtype)
    return [c.insert(popart.GatherOp(c.constant(known), index, axis=0)), c.cast(both.value, f32)]


def _pair(c: Conversion, a: Term, b: Term) -> Term:
    """Joins two columns of scores."""
    return Term(c, c.insert(popart.ConcatOp(a.value, b.value, axis=1)))


def tree_ensemble(c: Conversion) -> Output:
    """Converts TreeEnsemble, which lists inner nodes and leaves separately.

    Raises PopulusError for lists that do not fit each other. Source: TreeEnsemble-5.
    """
    import numpy as np

    x = c.input(0)
    dtype = dtype_of(element(x))
    feature, mode = np.array(c.get("nodes_featureids"), np.int64), np.asarray(c.get("nodes_modes")).reshape(-1).astype(np.int64)
    split, weight = (np.asarray(c.get(name)).reshape(-1) for name in ("nodes_splits", "leaf_weights"))
    n, m, targets = len(feature), len(weight), int(c.get("n_targets") or 1)
    if mode.size != n or split.size != n or not ((mode >= 0) & (mode < LEAF)).all():
        raise PopulusError("its lists of nodes differ in length, or have a mode above 6")

    def child(name: str) -> NDArray[Any]:
        at, leaf = np.array(c.get(f"nodes_{name}nodeids"), np.int64), np.array(c.get(f"nodes_{name}leafs"), np.int64)
        children = np.where(leaf != 0, at + n, at)
        if children.size != n or not ((at >= 0) & (children < n + m) & ((leaf != 0) | (at < n))).all():
            raise PopulusError("a node has a child that does not exist")
        return np.concatenate([children, n + np.arange(m)]).astype(np.int32)

    members = _member_rows(c, mode, n + m, dtype)
    ids = np.array(c.get("leaf_targetids"), np.int64)
    if ids.size != m or not ((ids >= 0) & (ids < targets)).all():
        raise PopulusError(f"a leaf's target is not one of {targets}")
    table = np.zeros((n + m, targets), weight.dtype)
    votes = np.zeros(table.shape, np.bool_)
    table[n + np.arange(m), ids], votes[n + np.arange(m), ids] = weight, True
    tracks = c.get("nodes_missing_value_tracks_true")
    missing = np.zeros(n + m, np.bool_)
    missing[:n] = np.array(tracks, np.bool_) if tracks else False
    forest = Forest(
        np.array(c.get("tree_roots"), np.int32),
        np.concatenate([feature, np.zeros(m, np.int64)]),
        np.concatenate([np.nan_to_num(split.astype(dtype)), np.zeros(m, dtype)]),
        np.concatenate([mode, np.full(m, LEAF)]),
        child("true"),
        child("false"),
        missing,
        members,
        table,
        votes,
    )
    y = summed(c, x, forest, AGGREGATES[int(c.get("aggregate_function"))])
    return c.cast(transformed(c, y, POST_TRANSFORMS[int(c.get("post_transform"))]).value, element(x))


def _member_rows(c: Conversion, mode: NDArray[Any], nodes: int, dtype: Any) -> NDArray[Any]:
    """Reads the members of each node; the attribute has them in the order of the nodes, a NaN after each set."""
    import numpy as np

    asking = np.flatnonzero(mode == MODES.index("BRANCH_MEMBER"))
    if not asking.size:
        return np.zeros((nodes, 0), dtype)
    stated = c.get("membership_values")
    sets: list[list[float]] = [[]]
    values: list[float] = [] if stated is None else np.asarray(stated, np.float64).reshape(-1).tolist()
    for value in values:
        if np.isnan(value):
            sets.append([])
        else:
            sets[-1].append(value)
    if len(sets) < len(asking):
        raise PopulusError(f"{len(asking)} nodes ask for membership, membership_values has {len(sets)} sets")
    rows = np.full((nodes, max(map(len, sets), default=0)), np.nan, dtype)
    for node, own in zip(asking, sets):
        rows[node, : len(own)] = own
    return rows


RULES: Rules = {
    "ai.onnx.ml.TreeEnsemble": tree_ensemble,
    "ai.onnx.ml.TreeEnsembleClassifier": tree_classifier,
    "ai.onnx.ml.TreeEnsembleRegressor": tree_regressor,
}
