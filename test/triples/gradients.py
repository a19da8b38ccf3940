"""Gradients of cases on the native engine: against the same program in f64 on the numpy engine, and that against differences."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

import populus
from populus.lowering.popart.training_names import gradient_name
from populus.runtime.session import Session
from triples.cases import Built, Case, build, digest, doubled, in_f64
from triples.chain import VALUES, Array, model_of
from triples.judging import Chains, Verdict, bisected, differ

MASKED = {
    "reduce-max",
    "reduce-max-middle",
    "global-max-pool",
    "lstm",
    "lstm-both",
    "lstm-last",
    "gru",
    "rnn",
    "nbits",
    "blocked-weights",
}
"""Rows whose gradient multiplies by zeros, as it is defined."""
STEP, KINK = 1e-6, 1e-5
"""Of a central difference, relative to the size of the values; how far two of them may lie apart where the function is smooth."""


def differentiated(built: Built) -> list[str]:
    """Lists the inputs of floats, and the first weight of a few elements and more."""
    c = built.chain
    scales = {n for node in c.nodes if node.op_type in ("Resize", "DequantizeLinear", "QuantizeLinear") for n in node.input[1:]}
    weights = [n for n, a in c.constants.items() if a.dtype.kind == "f" and a.size > 3 and n not in scales]
    return [n for n, a in c.inputs.items() if a.dtype.kind == "f"] + weights[:1]


def judge_gradients(cases: Sequence[Case], leaks: bool = False) -> list[Verdict]:
    """Judges the gradients of cases together in one program. `leaks`: by what one NaN in a cotangent reaches."""
    told: list[Verdict] = []
    chains: list[tuple[Built, dict[str, Array]]] = []
    for i, case in enumerate(cases):
        producer, consumer = case.rows
        if case.size in ("large", "long") and digest(str(case)) % 8:  # f64 on the numpy engine takes long
            told.append(Verdict(case, "too large", "one in eight is judged"))
            continue
        built = build(case, f"k{i}_")
        values = VALUES[case.values]
        zeros = values.grid or values.planted is not None or producer.half or MASKED & {case.producer, case.consumer}
        if leaks and zeros:
            told.append(
                Verdict(case, "no leak", "weights of the grid have zeros, a row multiplies by zeros, or something is planted in the inputs")
            )
        elif producer.gradient and consumer.gradient and all(built.chain.types[n].kind == "f" for n in built.chain.outputs):
            chains.append((built, {}))
        else:
            told.append(Verdict(case, "no gradient", "a row has none"))
    return told + bisected(chains, attempt_leaks if leaks else attempt)


def attempt(chains: Chains) -> list[Verdict]:
    """Compares the gradients of chains. Raises PopulusError where an op has none."""
    builts = [built for built, _ in chains]
    model = model_of([built.chain for built in builts])
    wrt = [n for built in builts for n in differentiated(built)]
    inputs = {n: a for built in builts for n, a in built.chain.inputs.items()}
    ours = populus.vjp(model, wrt, engine="native")
    double = populus.vjp(doubled(model), wrt, engine="numpy")
    shapes = {n: tuple(t.get_shape()) for n, t in double.cotangents.items()}
    cotangents = {n: builts[0].chain.rng("cotangent", i).standard_normal(s) for i, (n, s) in enumerate(shapes.items())}
    cotangents = {n: a.astype(next(b.chain.types[n] for b in builts if n in b.chain.types)) for n, a in cotangents.items()}
    weights = {n: a for built in builts for n, a in built.chain.constants.items() if n in wrt}
    given = {**inputs, **weights, **{gradient_name(n): a for n, a in cotangents.items()}}
    module = ours.program.module("poplar")
    one, two = (Session(module, "native", threads=t).run(given) for t in (1, 2))

    def in_double(at: Mapping[str, Array]) -> tuple[dict[str, Array], dict[str, Array]]:
        with np.errstate(all="ignore"):
            return double.run(in_f64(at), in_f64(cotangents))

    at = {**inputs, **weights}
    _, expected = in_double(at)
    told: list[Verdict] = []
    nudged: list[dict[str, Array]] = []
    single: dict[str, Array] = {}
    for built in builts:
        said = None
        for n in differentiated(built):
            name = gradient_name(n)
            wanted = _as(expected[n], one[name].dtype)
            if differ(one[name], wanted) is None:
                continue
            nudged = nudged or [in_double(_nudged(at, i))[1] for i in range(4)]
            others = [t[n] for t in nudged]
            if one[name].dtype == np.float32:  # what f32 loses where terms cancel
                single = single or Session(module, "numpy").run(given)
                others.append(single[name])
            if found := differ(one[name], wanted, others):
                said = f"the gradient of {n.partition('_')[2]}: {found}"
                break
        if said:
            told.append(Verdict(built.case, "wrong", said))
        elif any(one[gradient_name(n)].tobytes() != two[gradient_name(n)].tobytes() for n in differentiated(built)):
            told.append(Verdict(built.case, "threads", "two threads give other bits than one"))
        else:
            told.append(Verdict(built.case, "agrees"))
    wrong = against_differences(builts, at, cotangents, in_double)
    return [Verdict(v.case, "wrong", wrong[v.case]) if v.outcome == "agrees" and v.case in wrong else v for v in told]


def attempt_leaks(chains: Chains) -> list[Verdict]:
    """Plants NaN in one element of each result's cotangent: it must not reach gradients of inputs that do not depend on that element.

    Those are found in f64: they are 0 for a cotangent of that element alone, at two points. Weights are left out: NaN times an
    image's padding is NaN. Raises PopulusError where an op has no gradient.
    """
    builts = [built for built, _ in chains]
    model = model_of([built.chain for built in builts])
    wrt = [n for built in builts for n in built.chain.inputs if n in differentiated(built)]
    ours = populus.vjp(model, wrt, engine="native")
    double = populus.vjp(doubled(model), wrt, engine="numpy")
    at = {
        n: a
        for built in builts
        for n, a in (*built.chain.inputs.items(), *built.chain.constants.items())
        if n in wrt or n in built.chain.inputs
    }
    rng = np.random.default_rng(11)
    other = {n: np.abs(a).mean() * rng.standard_normal(a.shape) if a.dtype.kind == "f" else a for n, a in in_f64(at).items()}
    hot = {n: np.zeros(t.get_shape()) for n, t in double.cotangents.items()}
    for built in builts:
        hot[built.result].reshape(-1)[int(built.chain.rng("place").integers(hot[built.result].size))] = 1
    with np.errstate(all="ignore"):
        reached = [double.run(point, hot)[1] for point in (in_f64(at), other)]
    poison = {n: np.where(a == 1, np.nan, 0) for n, a in hot.items()}
    _, found = ours.run(at, poison)
    told: list[Verdict] = []
    for built in builts:
        said = None
        for n in (n for n in wrt if n in built.chain.inputs):
            apart = (reached[0][n] == 0) & (reached[1][n] == 0)
            if count := int((apart & ~np.isfinite(found[n])).sum()):
                said = f"one NaN in the cotangent of the result reaches {count} of {int(apart.sum())} other elements of the gradient of {n}"
        told.append(Verdict(built.case, "wrong", said) if said else Verdict(built.case, "agrees"))
    return told


def against_differences(
    builts: Sequence[Built],
    at: Mapping[str, Array],
    cotangents: Mapping[str, Array],
    in_double: Callable[[Mapping[str, Array]], tuple[dict[str, Array], dict[str, Array]]],
) -> dict[Case, str]:
    """Compares the gradients in f64 with differences, at a point near by where no element is at a kink. Gives those that differ."""
    rng = np.random.default_rng(7)
    point = {n: _finite(a.astype(np.float64)) for n, a in at.items()}
    point = {n: a + 0.01 * max(float(np.abs(a).max(initial=0)), 1e-3) * rng.uniform(-1, 1, a.shape) for n, a in point.items()}
    point |= {n: a for n, a in at.items() if a.dtype.kind != "f"}
    along = {
        n: rng.standard_normal(point[n].shape) * max(float(np.abs(point[n]).max(initial=0)), 1e-3)
        for built in builts
        for n in differentiated(built)
    }
    outputs, gradients = in_double(point)

    def moved(step: float) -> dict[str, Array]:
        return in_double({**point, **{n: point[n] + step * a for n, a in along.items()}})[0]

    there = {s: moved(s) for s in (STEP, -STEP, STEP / 4, -STEP / 4)}
    wrong: dict[Case, str] = {}
    for built in builts:
        names = built.chain.outputs

        def dot(values: Mapping[str, Array], names: Sequence[str] = names) -> float:
            return float(sum(np.sum(values[n] * cotangents[n].astype(np.float64)) for n in names))

        with np.errstate(all="ignore"):
            found = sum(float(np.sum(gradients[n] * along[n])) for n in differentiated(built))
            size = sum(float(np.sum(np.abs(gradients[n] * along[n]))) for n in differentiated(built))
            middle, near = (dot(there[STEP]) - dot(there[-STEP])) / (2 * STEP), (dot(there[STEP / 4]) - dot(there[-STEP / 4])) / (STEP / 2)
            size = max(size, abs(middle), 1e-4 * sum(float(np.sum(np.abs(outputs[n] * cotangents[n]))) for n in names))
        if not np.isfinite([middle, near, size]).all() or abs(middle - near) > KINK * size:
            continue  # at a kink, or past the range
        if not abs(found - middle) <= 10 * KINK * size:
            wrong[built.case] = f"in f64: {found:.9g} along a direction, the outputs change by {middle:.9g}"
    return wrong


def _as(array: Array, dtype: np.dtype[Any]) -> Array:
    with np.errstate(over="ignore"):
        return array.astype(dtype)


def _finite(array: Array) -> Array:
    return np.where(np.isfinite(array), array, 1.0)


def _nudged(arrays: Mapping[str, Array], seed: int) -> dict[str, Array]:
    """Each element of floats moved by a few units in its last place, either way."""
    rng = np.random.default_rng(seed)

    def step(a: Array) -> float:
        return 16 * float(np.finfo(a.dtype).eps)

    return {n: a.astype(np.float64) * (1 + step(a) * rng.choice([-1, 1], a.shape)) if a.dtype.kind == "f" else a for n, a in arrays.items()}
