"""Convolutions and matrix products become families, cut as the planner says, with a reduction where channels are cut."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from xdsl.dialects.builtin import DenseArrayBase, i64
from xdsl.ir import Attribute, SSAValue

from populus.dialects.ops import ints
from populus.dialects.poplar.partition import Access, Domain, Grid, Split, along, at
from populus.dialects.poplar.types import TensorType
from populus.dialects.poplin import ConvolutionOp, MatMulOp
from populus.lowering.plan.contraction import Contraction, accumulator, plan, splits_of
from populus.lowering.plan.reduction import reduce_partials
from populus.lowering.plan.window import Windows, thinned
from populus.lowering.tiles import Tiles
from populus.lowering.to_poplar import ToPoplarPass


def matmul(op: MatMulOp, t: Tiles) -> Sequence[SSAValue]:
    """One family over (g, m, n, k); `k` cut gives partials to reduce."""
    a, b = t.view(op.a), t.view(op.b)
    assert isinstance(a.type, TensorType)
    assert isinstance(b.type, TensorType)
    (g, m, k), n, element = a.type.shape, b.type.shape[2], a.type.element
    if 0 in (g, m, n):
        return [t.var((g, m, n), element)]
    p = plan(Contraction(g, 1, n, k, (m,), (1,), (1,)), element, t.target)
    grain = p.channel_grain
    splits = {
        "k": splits_of(k, p.in_channels, grain),
        "g": splits_of(g, p.groups),
        "m": splits_of(m, p.windows[0]),
        "n": splits_of(n, p.out_channels, grain),
    }
    return [
        contract(
            t, "matmul", splits, ("g", "m", "n"), ("k",), element,
            [("a", a, [along("g"), along("m"), along("k")]), ("b", b, [along("g"), along("k"), along("n")])], "c", {},
        )
    ]  # fmt: skip


def convolution(op: ConvolutionOp, t: Tiles) -> Sequence[SSAValue]:
    """One family over (b, g, oc, ic, o.., k..); `ic` or `k0` cut gives partials to reduce."""
    x, w = t.view(op.x), t.view(op.w)
    assert isinstance(x.type, TensorType)
    assert isinstance(w.type, TensorType)
    result = op.y.type
    batch, _, *windows = result.get_shape()
    groups, element = op.groups.value.data, x.type.element
    out_all, ic, *kernel = w.type.shape
    oc = out_all // groups
    pads = ints(op.pads)
    seen = Windows(x.type.shape[2:], ints(op.strides), ints(op.dilations), pads[: len(kernel)], pads[len(kernel) :])
    if 0 in result.get_shape():
        return [t.var(result.get_shape(), element)]
    x, seen = thinned(t, x, seen, windows, kernel)
    p = plan(Contraction(groups, batch, oc, ic, tuple(windows), tuple(kernel), seen.strides), element, t.target)
    grain = p.channel_grain
    spatial = range(len(windows))
    outs, taps = [f"o{d}" for d in spatial], [f"k{d}" for d in spatial]
    splits = {"ic": splits_of(ic, p.in_channels, grain), "k0": splits_of(kernel[0], p.kernel), "b": splits_of(batch, p.batch)}
    group: list[str] = []
    if groups > 1:
        group = ["g"]
        splits["g"] = splits_of(groups, p.groups)
        x = t.reshape(x, (batch, groups, ic, *seen.sizes))
        w = t.reshape(w, (groups, oc, ic, *kernel))
    splits |= {"oc": splits_of(oc, p.out_channels, grain)}
    splits |= {o: splits_of(n, parts) for o, n, parts in zip(outs, windows, p.windows)}
    splits |= {k: Split(n) for k, n in zip(taps[1:], kernel[1:])}
    window = [along((outs[d], seen.strides[d]), (taps[d], seen.dilations[d]), offset=-seen.before[d]) for d in spatial]
    ordered = {a: splits[a] for a in ("b", *group, "oc", "ic", *outs, *taps)}
    params: dict[str, Attribute] = {
        "strides": DenseArrayBase.from_list(i64, list(seen.strides)),
        "dilations": DenseArrayBase.from_list(i64, list(seen.dilations)),
    }
    channels = [along(a) for a in group]
    y = contract(
        t, "conv", ordered, ("b", *group, "oc", *outs), ("ic", "k0"), element,
        [("x", x, [along("b"), *channels, along("ic"), *window]), ("w", w, [*channels, along("oc"), along("ic"), *map(along, taps)])],
        "y", params,
    )  # fmt: skip
    return [t.reshape(y, result.get_shape())]


def contract(
    t: Tiles,
    codelet: str,
    splits: dict[str, Split],
    kept: Sequence[str],
    contracted: Sequence[str],
    element: Attribute,
    inputs: Sequence[tuple[str, SSAValue, Sequence[Access]]],
    output: str,
    params: dict[str, Attribute],
) -> SSAValue:
    """The family of a contraction, its output variable and, where a contracted axis is cut, the reduction of its partials.

    Tiles are numbered with contracted axes slowest and output channels fastest, so that neighbours share inputs.
    """
    cut = [a for a in contracted if splits[a].parts > 1]
    channels = [a for a in ("n", "oc") if a in splits]
    order = (*cut, *(a for a in kept if splits[a].parts > 1 and a not in channels), *(a for a in channels if splits[a].parts > 1))
    domain = Domain(tuple(splits.items()), order)
    rank = len(cut) + len(kept)
    dims = [*cut, *kept]
    grid = Grid(
        tuple(Split(splits[a].parts, splits[a].parts) if a in cut else splits[a] for a in dims),
        tuple(dims.index(a) for a in order),
    )
    assert len(grid.splits) == rank, grid
    shape = [splits[a].parts for a in cut] + [splits[a].n for a in kept]
    y = t.var(shape, accumulator(element) if cut else element, grid, ".partials" if cut else "")
    access = [*(at(a) for a in cut), *map(along, kept)]
    t.execute(codelet, domain, [*(("in", n, v, a) for n, v, a in inputs), ("out", output, y, access)], params, ".partials" if cut else "")
    if not cut:
        return y
    return reduce_partials(t, y, len(cut), element)


@dataclass(frozen=True)
class PoplinToPoplarPass(ToPoplarPass):
    """Matrix products and convolutions become families.

    `target`: a preset of `dialects/poplar/target.py`; `tiles`: how many of its tiles.
    """

    name = "poplin-to-poplar"
    RULES = {ConvolutionOp: convolution, MatMulOp: matmul}
