"""What onnxruntime and the native engine make of cases, and whether they agree. Many cases are one model of chains beside each other."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from onnx import ModelProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

import populus
from populus.dialects.support.diagnostics import PopulusError
from populus.runtime.session import Session
from triples.cases import Built, Case, build, doubled, in_f64, session, wide, widened
from triples.chain import VALUES, Array, model_of

RTOL = {np.dtype(np.float64): 1e-10, np.dtype(np.float32): 2e-5, np.dtype(np.float16): 4e-3}
"""Of a tensor's largest finite element."""
EPSILON = {np.dtype(np.float64): 2.0**-53, np.dtype(np.float32): 2.0**-24, np.dtype(np.float16): 2.0**-11}
FINDINGS = ("wrong", "threads", "failed", "crashed")


@dataclass(frozen=True)
class Verdict:
    """How a case ended: `agrees`, `no oracle`, `refused`, or one of FINDINGS; and why."""

    case: Case
    outcome: str
    reason: str = ""


class NoOracle(Exception):
    """onnxruntime does not run this model."""


def oracle(built: Built, names: Sequence[str], model: ModelProto | None = None) -> dict[str, Array]:
    """Computes values of a chain with onnxruntime: long rows in f64, and f16 as f32 whose results are rounded.

    f64 that onnxruntime lacks is ONNX's reference's. Raises NoOracle.
    """
    chain = built.chain
    model = model or model_of([chain], list(names))
    halves = any(t == np.float16 for t in chain.types.values())
    found = None
    if built.case.size == "long" and not halves:
        for run in (session, ReferenceEvaluator):  # onnxruntime has no f64 of some ops
            with suppress(Exception):
                found = run(doubled(model)).run(list(names), in_f64(chain.inputs))
                break
    try:
        if found is None:
            found = session(widened(model, chain.types) if halves else model).run(
                list(names), wide(chain.inputs) if halves else chain.inputs
            )
    except Exception as error:
        raise NoOracle(" ".join(str(error).split())) from error
    for node in chain.nodes:  # onnxruntime begins the largest of a window at the lowest finite number
        for name, a in zip(names, found):
            if node.op_type == "MaxPool" and name == node.output[0] and isinstance(a, np.ndarray) and a.dtype.kind == "f":
                a[a == np.finfo(a.dtype).min] = -np.inf
    with np.errstate(over="ignore", invalid="ignore"):
        return {n: np.asarray(a).astype(chain.types[n]) for n, a in zip(names, found)}


def noise(built: Built, value: Array, factor: float, sign: int | None, seed: int = 0) -> Array:
    """About what rounding may move a value by: up, down, or each element either way."""
    epsilon, size = EPSILON[value.dtype], np.abs(np.where(np.isfinite(value), value, 0).astype(np.float64))
    largest = np.sqrt(np.mean(size**2))
    if built.case.size == "long":  # a sum or mean of many may be small by chance: what is rounded is as large as its terms
        terms = [a for a in built.chain.inputs.values() if a.dtype.kind == "f"]
        largest = max(largest, *(np.sqrt(np.mean(np.square(a, dtype=np.float64))) for a in terms))
    spread = (epsilon if built.case.rows[0].terms else 16 * min(2.0**-24, epsilon)) * largest
    signs = np.full(value.shape, sign) if sign is not None else np.random.default_rng(seed).choice([-1, 1], value.shape)
    return factor * (epsilon * size + spread) * signs


def moved(built: Built, by: Array) -> ModelProto:
    """The model with the value in the middle moved."""
    chain, name = built.chain, built.middle
    model = model_of([chain], [*chain.outputs, *({built.behind} - set(chain.outputs))])
    for node in model.graph.node:
        for i, out in enumerate(node.output):
            if out == name:
                node.output[i] = name + ".made"
    at = next(i for i, node in enumerate(model.graph.node) if name + ".made" in node.output)
    kind = chain.types[name]
    added = numpy_helper.from_array(by.astype(np.float32 if kind == np.float16 else kind), name + ".noise")
    model.graph.initializer.append(added)
    model.graph.node.insert(at + 1, helper.make_node("Add", [name + ".made", added.name], [name]))
    return model


def trials(built: Built, names: Sequence[str]) -> list[dict[str, Array]]:
    """Computes the outputs with the value in the middle moved in several ways; none if it is of integers."""
    if built.chain.types[built.middle].kind != "f" or built.middle in built.chain.inputs:
        return []
    value = oracle(built, [built.middle], model_of([built.chain], [built.middle]))[built.middle]
    ways: list[tuple[float, int | None, int]] = [(4, 1, 0), (4, -1, 0), (4, None, 1), (4, None, 2), (4, None, 3)]
    return [oracle(built, names, moved(built, noise(built, value, *way))) for way in ways]


def from_ours(built: Built, names: Sequence[str]) -> list[dict[str, Array]]:
    """Computes the outputs of what our engine gives in the middle, if that differs from onnxruntime's by rounding alone.

    A sum of integers that jump, each within its bounds, is then known to the last bit.
    """
    name, model = built.middle, model_of([built.chain], [*built.chain.outputs, *({built.middle} - set(built.chain.outputs))])
    value = oracle(built, [name], model)[name]
    own = populus.compile(model, engine="native").run(built.chain.inputs)[name]
    if not np.isfinite(own).all() or differ(own, value) is not None:
        return []
    return [oracle(built, names, moved(built, own.astype(np.float64) - value.astype(np.float64)))]


def compare(built: Built, found: Mapping[str, Array], expected: Mapping[str, Array]) -> str | None:
    """Tells how the outputs of a chain differ from onnxruntime's by more than rounding explains; None if they do not."""
    chain = built.chain
    near = {n: differ(found[n], expected[n]) for n in chain.outputs}
    if not any(near.values()):
        return None
    try:
        other = trials(built, [*chain.outputs, *({built.behind} - set(chain.outputs))])
    except NoOracle:
        other = []
    for name, said in near.items():
        if said is None:
            continue
        here = [t[name] for t in other]
        if found[name].dtype.kind == "f":
            if (said := differ(found[name], expected[name], here)) is not None:
                return f"{_which(built, name)}: {said}"
            continue
        places = built.case.rows[1].places
        if places is not None and name == built.result and other:
            if not _same_values(built, found[name], expected[name], places):
                return f"{_which(built, name)}: {said}"
            continue
        if built.case.exact or not here:
            return f"{_which(built, name)}: {said}"
        low, high = np.minimum.reduce([*here, expected[name]]), np.maximum.reduce([*here, expected[name]])
        if found[name].shape != low.shape:
            return f"{_which(built, name)}: {said}"
        beyond = ((found[name] < low) | (found[name] > high)).any()
        if beyond and all(differ(found[name], own[name]) for own in from_ours(built, chain.outputs)):
            return f"{_which(built, name)}: {said}"
    return None


def _which(built: Built, name: str) -> str:
    return "the result" if name == built.result else "the value in the middle" if name == built.middle else "the second reader"


def _same_values(built: Built, found: Array, expected: Array, axis: int) -> bool:
    """Tells if the values at two lists of places are the same but for rounding."""
    value = oracle(built, [built.behind])[built.behind].astype(np.float64)
    if found.shape != expected.shape or found.min(initial=0) < 0 or found.max(initial=0) >= value.shape[axis]:
        return False
    if found.ndim < value.ndim:
        found, expected = np.expand_dims(found, axis), np.expand_dims(expected, axis)
    a, b = (np.take_along_axis(value, i.astype(np.int64), axis) for i in (found, expected))
    kind = built.chain.types[built.behind]
    return bool(np.all(np.abs(a - b) <= RTOL[kind if kind in RTOL else np.dtype(np.float32)] * np.abs(value).max()))


def differ(found: Array, expected: Array, others: Sequence[Array] = ()) -> str | None:
    """Tells how two results differ; None if they do not. `others`: results that rounding explains."""
    if found.shape != expected.shape or found.dtype != expected.dtype:
        return f"{found.dtype}{list(found.shape)}, expected {expected.dtype}{list(expected.shape)}"
    if found.dtype not in RTOL:
        wrong = np.asarray(found != expected)
    else:
        a, b = found.astype(np.float64), expected.astype(np.float64)
        size = float(np.abs(b[np.isfinite(b)]).max(initial=0))
        with np.errstate(invalid="ignore"):
            doubt = max((float(np.nanmax(np.abs(o.astype(np.float64) - b)[np.isfinite(b)], initial=0)) for o in others), default=0.0)
            wrong = np.asarray(~((a == b) | (np.isnan(a) & np.isnan(b)) | (np.abs(a - b) <= RTOL[found.dtype] * size + 4 * doubt)))
            if found.dtype == np.float16:  # at the end of the type an infinity is as near as the largest number
                wrong &= ~(np.isinf(a) & (b * np.sign(a) > 6.5e4)) & ~(np.isinf(b) & (a * np.sign(b) > 6.5e4))
    if not wrong.any():
        return None
    at = tuple(int(i) for i in np.unravel_index(int(wrong.argmax()), wrong.shape))
    return f"{int(wrong.sum())} of {wrong.size} elements differ; at {list(at)}: {found[at]}, expected {expected[at]}"


def saturated(built: Built, expected: Mapping[str, Array]) -> str | None:
    """Tells if the result shows little of its input: nearly all elements are the same few numbers."""
    if VALUES[built.case.values].equal or VALUES[built.case.values].planted is not None or built.case.values == "halves":
        return None
    a = expected[built.result].reshape(-1)
    if a.dtype.kind == "b" or a.size < 16:
        return None
    _, counts = np.unique(a, return_counts=True)
    if counts.max() > 0.9 * a.size:
        return f"{counts.max()} of {a.size} elements of the result are equal"
    if a.dtype.kind == "f":
        b = a[np.isfinite(a)].astype(np.float64)
        if np.ptp(b) <= 5 * RTOL[a.dtype] * np.abs(b).max():
            return f"the result is {b.min()} to {b.max()}"
    return None


# -- ours


Chains: TypeAlias = "Sequence[tuple[Built, dict[str, Array]]]"
"""Chains of one model, each with its expected outputs."""


def judge(cases: Sequence[Case], attempt: Callable[[Chains], list[Verdict]] | None = None) -> list[Verdict]:
    """Judges cases together in one model; if that fails, in halves."""
    verdicts: list[Verdict] = []
    whole: list[tuple[Built, dict[str, Array]]] = []
    for i, case in enumerate(cases):
        built = build(case, f"k{i}_")
        try:
            expected = oracle(built, built.chain.outputs)
        except NoOracle as error:
            verdicts.append(Verdict(case, "no oracle", str(error)))
            continue
        if said := saturated(built, expected):
            verdicts.append(Verdict(case, "saturated", said))
        else:
            whole.append((built, expected))
    return verdicts + bisected(whole, attempt or plain)


def bisected(chains: Chains, attempt: Callable[[Chains], list[Verdict]]) -> list[Verdict]:
    """Judges chains by `attempt`. If that raises, their halves, so that each refusal and failure is of one chain."""
    if not chains:
        return []
    try:
        return attempt(chains)
    except Exception as error:
        if len(chains) > 1:
            half = len(chains) // 2
            return bisected(chains[:half], attempt) + bisected(chains[half:], attempt)
        case, said = chains[0][0].case, " ".join(str(error).split())
        if isinstance(error, PopulusError):
            return [Verdict(case, "refused", said)]
        return [Verdict(case, "failed", f"{type(error).__name__}: {said} {_where(error)}")]


def plain(chains: Chains) -> list[Verdict]:
    """Runs the chains on the native engine by name, with one thread and with two."""
    inputs = {n: a for built, _ in chains for n, a in built.chain.inputs.items()}
    before = {n: a.copy() for n, a in inputs.items()}
    module = populus.compile(model_of([built.chain for built, _ in chains]), engine="native").module("poplar")
    one, two = (Session(module, "native", threads=t).run(inputs) for t in (1, 2))
    found: list[Verdict] = []
    for built, expected in chains:
        case = built.case
        if said := compare(built, one, expected):
            found.append(Verdict(case, "wrong", said))
        elif any(one[n].tobytes() != two[n].tobytes() for n in built.chain.outputs):
            found.append(Verdict(case, "threads", "two threads give other bits than one"))
        elif any(before[n].tobytes() != inputs[n].tobytes() for n in built.chain.inputs):
            found.append(Verdict(case, "wrong", "an input was overwritten"))
        else:
            found.append(Verdict(case, "agrees"))
    return found


def _where(error: Exception) -> str:
    frame = traceback.extract_tb(error.__traceback__)[-1]
    return f"({frame.filename.rsplit('/', 1)[-1]}:{frame.lineno})"
