"""Lowering of `poplin`: convolutions and matrix products become families cut by the planner, with reductions of
partials.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from xdsl.dialects.builtin import BoolAttr, IntegerAttr, StringAttr, UnrealizedConversionCastOp, f16, f32
from xdsl.ir import Attribute, Operation, SSAValue

from populus.dialects.base.tensor_op import ints
from populus.dialects.data import array_attribute
from populus.dialects.poplar import ConstOp, GraphOp
from populus.dialects.poplar.memory import root_of, view_of
from populus.dialects.poplar.partition import ALL, Access, Domain, Grid, Split, along, at
from populus.dialects.poplar.target import PARTIALS, sum_type
from populus.dialects.poplar.types import TensorType
from populus.dialects.poplin import ConvolutionOp, MatMulOp, PackedMatMulOp
from populus.dialects.popops import MapOp
from populus.dialects.support.diagnostics import PopulusError, did_you_mean
from populus.dialects.support.element_types import element_type_of, shape_of
from populus.dialects.support.walk import ops_of
from populus.lowering.poplar.graph import Rule, ToPoplarPass
from populus.lowering.poplar.plan.aims import aim_of, price_of_byte
from populus.lowering.poplar.plan.contraction import Contraction, Near, shape_of_contraction, splits_of
from populus.lowering.poplar.plan.layout import as_accessed
from populus.lowering.poplar.plan.planning import Bids, Planning, room_of
from populus.lowering.poplar.plan.reduction import reduce_partials
from populus.lowering.poplar.plan.residency import Residency
from populus.lowering.poplar.plan.serial import split_serially
from populus.lowering.poplar.plan.stated import Names, of_option
from populus.lowering.poplar.plan.weights import Arguments, arguments_of, by_groups, constants_of, replicate
from populus.lowering.poplar.plan.window import Windows, thinned
from populus.lowering.poplar.plan.winograd import Tiles, winograd_tile
from populus.lowering.poplar.tile_builder import Connection, TileBuilder
from populus.runtime.codelets.winograd import transformed_weights


def matmul(op: MatMulOp, t: TileBuilder, how: Planning) -> Sequence[SSAValue]:
    """Lowers to one family over (g, m, n, k); if `k` is cut, its partials are reduced."""
    a, b = t.view(op.a), t.view(op.b)
    assert isinstance(a.type, TensorType)
    assert isinstance(b.type, TensorType)
    (g, m, k), n, element, result = a.type.shape, b.type.shape[2], a.type.element, element_type_of(op.c.type)
    if 0 in (g, m, n):
        return [t.var((g, m, n), result)]
    near = _near(t, op.a, (0, 1), (g, m))
    rows = (1, near[1]) if near is not None and near[0] == 1 else None
    p, resident = how.plan(t, op, shape_of_contraction(op, how.partials), element, rows)
    splits = {
        "k": splits_of(k, p.in_channels, p.in_grain),
        "g": splits_of(g, p.groups),
        "m": splits_of(m, p.windows[0]),
        "n": splits_of(n, p.out_channels, p.out_grain),
    }
    return [
        contract(
            t, "matmul", splits, ("g", "m", "n"), ("k",), result,
            [("a", a, [along("g"), along("m"), along("k")]), ("b", b, [along("g"), along("k"), along("n")])], "c", resident,
            partials=how.partials, swapped=p.swapped,
        )
    ]  # fmt: skip


def convolution(op: ConvolutionOp, t: TileBuilder, how: Planning) -> Sequence[SSAValue]:
    """Lowers to one family over (b, g, oc, ic, o.., k..); if `ic` or `k0` is cut, its partials are reduced.

    A 3x3 convolution by a constant is computed by Winograd's algorithm where `winograd_tile` chooses so.
    """
    x, w = t.view(op.x), t.view(op.w)
    assert isinstance(x.type, TensorType)
    assert isinstance(w.type, TensorType)
    result = op.y.type
    batch, _, *windows = result.get_shape()
    groups, element = op.groups, x.type.element
    to = element_type_of(op.y.type)
    out_all, ic, *kernel = w.type.shape
    oc = out_all // groups
    pads = ints(op.pads)
    seen = Windows(x.type.shape[2:], ints(op.strides), ints(op.dilations), pads[: len(kernel)], pads[len(kernel) :])
    if 0 in result.get_shape():
        return [t.var(result.get_shape(), to)]
    near = _near(t, op.x, (0, *range(2, 2 + len(windows))), (batch, *(n * s for n, s in zip(windows, ints(op.strides)))))
    x, seen = thinned(t, x, seen, windows, kernel)
    shape = replace(shape_of_contraction(op, how.partials), windows=tuple(windows), kernel=tuple(kernel), strides=seen.strides)
    products = how.in_tiles(op)
    if products is not None and t.view(op.w) is constants_of(op.w, how.arguments)[0].result:
        return [_in_tiles(op, t, how, x, seen, products)]
    tile = winograd_tile(shape, seen.dilations, element, t.target, how.winograd) if how.is_constant(w) else 0
    p, resident = how.plan(t, op, shape, element, near, whole=tile > 0)
    spatial = range(len(windows))
    outs, taps = [f"o{d}" for d in spatial], [f"k{d}" for d in spatial]
    splits = {"ic": splits_of(ic, p.in_channels, p.in_grain), "k0": splits_of(kernel[0], p.kernel), "b": splits_of(batch, p.batch)}
    group: list[str] = []
    if groups > 1:
        group = ["g"]
        splits["g"] = splits_of(groups, p.groups)
        x = t.reshape(x, (batch, groups, ic, *seen.sizes))
        w = by_groups(t, op.w, (groups, oc, ic, *kernel), how.arguments)
    splits |= {"oc": splits_of(oc, p.out_channels, p.out_grain)}
    splits |= {o: splits_of(n, parts, tile or 1) for o, n, parts in zip(outs, windows, p.windows)}
    splits |= {k: Split(n) for k, n in zip(taps[1:], kernel[1:])}
    window = [along((outs[d], seen.strides[d]), (taps[d], seen.dilations[d]), offset=-seen.before[d]) for d in spatial]
    ordered = {a: splits[a] for a in ("b", *group, "oc", "ic", *outs, *taps)}
    channels = [along(a) for a in group]
    # Such a machine also adds products of adjacent channels of f16, which are the sums of two bf16.
    together = to != element or (element == f16 and t.target.byte_macs > 0 and not group and how.is_constant(w))
    outer = ("b", *group, "oc", *outs)
    if tile and max(seen.dilations) > 1:
        return [_by_places(t, x, w, seen, ordered, to, resident, tile)]
    y = contract(
        t, "winograd" if tile else "conv", ordered, outer, ("ic", "k0"), to,
        [("x", x, [along("b"), *channels, along("ic"), *window]), ("w", w, [*channels, along("oc"), along("ic"), *map(along, taps)])],
        "y", resident, ("b", *outs, *group, "oc") if together else outer, how.partials, tile, p.swapped,
    )  # fmt: skip
    return [t.reshape(y, result.get_shape())]


def _by_places(
    t: TileBuilder, x: SSAValue, w: SSAValue, seen: Windows, splits: dict[str, Split], to: Attribute, resident: Arguments | None, tile: int
) -> SSAValue:
    """Computes a dilated 3x3 convolution in tiles: one of every d-th element of both sides for each place modulo the dilations d.

    Columns of every d-th element are copied, as tiles are read and written in whole rows.
    """
    outer, steps, apart = ("b", "oc", "o0", "o1"), (1, 1, *seen.dilations), seen.dilations[1] > 1
    shape = [splits[a].n for a in outer]
    y = t.var(shape, to, t.linear(shape, to))
    for place in itertools.product(*map(range, seen.dilations)):
        offsets = [divmod(p - before, d) for p, before, d in zip(place, seen.before, seen.dilations)]
        part = t.slice(x, (0, 0, *(first for _, first in offsets)), view_of(x).shape, steps)
        into = t.slice(y, (0, 0, *place), shape, steps)
        own = {o: splits_of(n, splits[o].parts, tile) for o, n in zip(outer[2:], view_of(into).shape[2:])}
        window = [along((f"o{d}", 1), (f"k{d}", 1), offset=offset) for d, (offset, _) in enumerate(offsets)]
        inputs = [
            ("x", t.copied(part) if apart else part, [along("b"), along("ic"), *window]),
            ("w", w, [along("oc"), along("ic"), along("k0"), along("k1")]),
        ]
        made = contract(
            t, "winograd", splits | own, outer, ("ic", "k0"), to, inputs, "y", resident, tile=tile, into=None if apart else into
        )
        if apart:
            t.copy(made, into)
        resident = None  # the first has given the weights their layout
    return y


def _in_tiles(op: ConvolutionOp, t: TileBuilder, how: Planning, x: SSAValue, seen: Windows, products: Contraction) -> SSAValue:
    """Computes a 3x3 convolution by a constant in tiles of 2 by 2 outputs: transforms of the inputs, 16 products, transforms of the sums.

    The weights are transformed here. Sums of the products are cut as those of any product.
    """
    element = element_type_of(op.y.type)
    batch, oc, *windows = op.y.type.get_shape()
    ic, (down, across) = products.in_channels, [-(-n // 2) for n in windows]
    p, resident = how.plan(t, op, products, element, None, tiled=True)
    (constant,) = constants_of(op.w, how.arguments)
    u = transformed_weights(2, constant.array()).reshape(16, oc, ic, 1)
    weights = ConstOp(constant.label.data, array_attribute(u), TensorType.of(u.shape, element))
    t.insert(weights, constant)
    weights.location = constant.location
    taps = {"k0": Split(4), "k1": Split(4)}

    def spread(names: tuple[str, ...], sizes: tuple[int, ...]) -> tuple[dict[str, Split], Grid]:
        """Spreads axes of tiles evenly; a tile's elements stay together."""
        grid = t.linear(sizes, element)
        return dict(zip(names, grid.splits)), grid

    outs = ("b", "o0", "o1")
    axes, grid = spread(("ic", *outs), (ic, batch, down, across))
    layout = Grid((Split(4), Split(4), *grid.splits), tuple(d + 2 for d in grid.order))
    v = t.var((4, 4, ic, batch, down, across), element, layout, ".tiles")
    names = list(axes)
    window = [along((f"o{d}", 2), f"k{d}", offset=-seen.before[d]) for d in (0, 1)]
    t.execute(
        "winograd_input", Domain(tuple((axes | taps).items()), tuple(names[d] for d in grid.order)),
        [("in", "x", x, [along("b"), along("ic"), *window]), ("out", "v", v, list(map(along, ("k0", "k1", *names))))], {}, ".tiles",
    )  # fmt: skip
    splits = {
        "b": Split(1),
        "g": splits_of(16, p.groups),
        "oc": splits_of(oc, p.out_channels, p.out_grain),
        "ic": splits_of(ic, p.in_channels, p.in_grain),
        "o0": splits_of(products.windows[0], p.windows[0]),
        "k0": Split(1),
    }
    m = contract(
        t, "conv", splits, ("b", "g", "oc", "o0"), ("ic", "k0"), element,
        [
            ("x", t.reshape(v, (1, 16, ic, products.windows[0])), [along("b"), along("g"), along("ic"), along("o0", "k0")]),
            ("w", weights.result, [along("g"), along("oc"), along("ic"), along("k0")]),
        ],
        "y", resident, partials=how.partials, swapped=p.swapped,
    )  # fmt: skip
    axes, grid = spread(("oc", *outs), (oc, batch, down, across))
    (c, b, *sides), order = grid.splits, (1, 0, 2, 3)
    whole = Grid((b, c, *(Split(2 * s.n, s.parts, 2 * s.grain) for s in sides)), tuple(order[d] for d in grid.order))
    y, names = t.var([s.n for s in whole.splits], element, whole), list(axes)
    t.execute(
        "winograd_output",
        Domain(tuple((axes | taps | {"r0": Split(2), "r1": Split(2)}).items()), tuple(names[d] for d in grid.order)),
        [
            ("in", "m", t.reshape(m, (4, 4, oc, batch, down, across)), list(map(along, ("k0", "k1", *names)))),
            ("out", "y", y, [along("b"), along("oc"), *(along((f"o{d}", 2), f"r{d}") for d in (0, 1))]),
        ],
    )  # fmt: skip
    return t.slice(y, [0] * 4, op.y.type.get_shape(), [1] * 4)


def packed_matmul(op: PackedMatMulOp, t: TileBuilder) -> Sequence[SSAValue]:
    """Lowers to one family over (m, n, k), cut along n, and along m where tiles are left; k stays whole, as blocks have scales."""
    x, codes, scale, zero = (t.view(v) for v in op.operands)
    m, n = op.y.type.get_shape()
    if 0 in (m, n):
        return [t.var((m, n), f32)]
    columns = min(t.target.tiles, n)
    splits = {"m": splits_of(m, min(t.target.tiles // columns, m)), "n": splits_of(n, columns), "k": Split(shape_of(op.x.type)[1])}
    inputs: list[tuple[str, SSAValue, Sequence[Access]]] = [
        ("x", x, [along("m"), along("k")]), ("codes", codes, [along("n"), ALL, ALL]),
        ("scale", scale, [along("n"), ALL]), ("zero", zero, [along("n"), ALL]),
    ]  # fmt: skip
    return [contract(t, "packed_matmul", splits, ("m", "n"), ("k",), f32, inputs, "y", more={"bits": IntegerAttr(op.bits, 64)})]


def contract(
    t: TileBuilder,
    codelet: str,
    splits: dict[str, Split],
    outer: Sequence[str],
    contracted: Sequence[str],
    element: Attribute,
    inputs: Sequence[tuple[str, SSAValue, Sequence[Access]]],
    output: str,
    resident: Arguments | None = None,
    memory: Sequence[str] | None = None,
    partials: str = "",
    tile: int = 0,
    swapped: bool = False,
    more: Mapping[str, Attribute] | None = None,
    into: SSAValue | None = None,
) -> SSAValue:
    """Adds a contraction's family and its output variable; if a contracted axis is cut, also the reduction of its
    partials.

    `resident`: the last input is a constant, or a parameter with these arguments, replicated on each tile that reads
    it. Tiles are numbered with contracted axes slowest and output channels fastest, so that neighbours share inputs.
    `memory`: the order of the outer axes in the variable; machines add four 8-bit products at once, so their channels are
    last. `partials`: the type that halves are summed in; `tile`: of Winograd's algorithm; `swapped`: the first operand is loaded into the
    matrix units; `more`: parameters of the codelet; `into`: a view that the output is written to, instead of a variable of its own.
    Returns the output, or the reduced output.
    """
    memory = outer if memory is None else memory
    cut = [a for a in contracted if splits[a].parts > 1]
    channels = [a for a in ("n", "oc") if a in splits]
    order = (*cut, *(a for a in outer if splits[a].parts > 1 and a not in channels), *(a for a in channels if splits[a].parts > 1))
    domain = Domain(tuple(splits.items()), order)
    rank = len(cut) + len(outer)
    dims = [*cut, *memory]
    grid = Grid(
        tuple(Split(splits[a].parts, splits[a].parts) if a in cut else splits[a] for a in dims),
        tuple(dims.index(a) for a in order),
    )
    assert len(grid.splits) == rank, grid
    shape = [splits[a].parts for a in cut] + [splits[a].n for a in memory]
    y = into or t.var(shape, sum_type(element, partials) if cut else element, grid, ".partials" if cut else "")
    access = [*(at(a) for a in cut), *map(along, outer)]
    turned = [memory.index(a) for a in outer]
    seen = t.dim_shuffle(y, [*range(len(cut)), *(len(cut) + d for d in turned)])
    fields: list[Connection] = [*(("in", n, v, a) for n, v, a in inputs), ("out", output, seen, access)]
    params: dict[str, Attribute] = {"partials": StringAttr(partials)} if partials == "f16" and element == f16 else {}
    params |= more or {}
    if tile:
        params["tile"] = IntegerAttr(tile, 64)
    if swapped:
        params["swapped"] = BoolAttr.from_bool(True)
    family = t.execute(codelet, domain, fields, params, ".partials" if cut else "")
    if resident is not None and family is not None:
        replicate(root_of(inputs[-1][1]), as_accessed(family, family.fields.data[len(inputs) - 1], inputs[-1][1], copies=True), resident)
    if not cut:
        return seen
    return t.dim_shuffle(reduce_partials(t, y, len(cut), element), turned)


def _near(t: TileBuilder, tensor: SSAValue, dims: Sequence[int], sizes: Sequence[int]) -> Near:
    """Returns the part counts of `dims` of an operand, if only they are cut, in order, from tile 0 on; else None."""
    grid = _expected(t, tensor)
    if grid is None or grid.start or list(grid.order) != sorted(grid.order) or not set(grid.order) <= set(dims):
        return None
    return tuple(grid.splits[d].parts for d in dims) if all(grid.splits[d].n == n for d, n in zip(dims, sizes)) else None


def _expected(t: TileBuilder, tensor: SSAValue) -> Grid | None:
    """Returns the layout of a tensor. For an unlowered map, it is the layout of the operand that the map will
    follow.
    """
    owner = tensor.owner
    if isinstance(owner, UnrealizedConversionCastOp):
        return t.layout_of(owner.inputs[0])
    if isinstance(owner, MapOp):
        shape = shape_of(tensor.type)
        grids = (_expected(t, operand) for operand in owner.operands if shape_of(operand.type) == shape)
        return next((grid for grid in grids if grid is not None), None)
    return None


@dataclass(frozen=True)
class PoplinToPoplarPass(ToPoplarPass):
    """Lowers matrix products and convolutions to families.

    `target`: a preset of `dialects/poplar/target.py`; `tiles`: the number of its tiles. `resident`: the share of a
    tile's memory for constants replicated on their readers, which then receive nothing; 0: constants are spread.
    `agree`: the planner counts an input as local if its producer's layout matches. `traffic`: cycles that a byte that
    a tile receives costs, in addition to its time; on a mesh by its own rate. `serial`: a contraction whose
    temporaries exceed a tile runs in several steps. `partials`: the type that halves are summed in: f32 (default), or
    f16, which a GC200 does at twice the rate, and which rounds each running sum after every call of the matrix unit.
    `winograd`: the largest tile of outputs for which Winograd's algorithm may replace the direct sums, 0, 2 or 4.
    `optimise`: the aim, `balanced` (default), `cycles` or `memory`, which sets `resident` and `traffic`. `plans`:
    plans that are stated for contractions by name, as `plan/stated.py` formats them. Raises PopulusError if
    `resident` is not from 0 to 1, for another type, tile or aim, and for a stated plan that cannot be. To rounding.
    """

    name = "poplin-to-poplar"
    resident: float = 0.95
    agree: bool = True
    traffic: float = 0.5
    serial: bool = True
    partials: str | None = None
    winograd: int = 2
    optimise: str | None = None
    plans: str | None = None

    def rules(self, graph: GraphOp) -> Mapping[type[Operation], Rule]:
        if not 0 <= self.resident <= 1:
            raise PopulusError(f"resident = {self.resident}; it is a share of a tile's memory, from 0 to 1")
        if self.winograd not in (0, 2, 4):
            raise PopulusError(f"winograd = {self.winograd}; it is the largest side of a tile of outputs: 0 (direct sums), 2 or 4")
        if self.partials not in (None, *PARTIALS):
            near = did_you_mean(self.partials, PARTIALS)
            raise PopulusError(f"partials = {self.partials}; halves are summed in {' or '.join(PARTIALS)}{near}")
        plans = of_option(self.plans)
        aim = aim_of(self.optimise)
        traffic = price_of_byte(self.traffic if aim.traffic is None else aim.traffic, graph.machine)
        given = arguments_of(graph)
        share = self.resident if aim.resident is None else aim.resident
        names = Names.of((op for op in ops_of(graph) if isinstance(op, MatMulOp | ConvolutionOp)), plans)
        if self.serial:
            split_serially(graph, self._half_sums, room_of(graph, share), given, traffic, names)
        names.check()
        bids = Bids(graph, given, share, traffic, self._half_sums, aim.temporaries, names)
        tiles: Tiles | None = None
        residency = Residency.of(*bids.all(tiles))
        if aim.tiled and self.winograd and graph.machine.has_calls:
            # Their weights are more, and pay for memory what those of direct sums do.
            tiles = Tiles(graph.machine, traffic, aim.temporaries, residency.price)
            residency = Residency.of(*bids.all(tiles))
        how = Planning(residency, self.agree, traffic, self._half_sums, self.winograd, given, tiles, names, aim.temporaries)
        return {ConvolutionOp: partial(convolution, how=how), MatMulOp: partial(matmul, how=how), PackedMatMulOp: packed_matmul}

    @property
    def _half_sums(self) -> str:
        return "f16" if self.partials == "f16" else ""
