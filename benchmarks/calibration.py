"""The machine model beside public measurements: the tables of docs/machine-model.md.

    python -m benchmarks.calibration             products, vertices, convolutions
    python -m benchmarks.calibration --networks  and whole networks, which takes minutes
    python -m benchmarks.calibration --machine n150 --rows FILE.csv   a mesh, beside the rows of a file (benchmarks/mesh_rows.py)
    python -m benchmarks.calibration --plans     products with the planner's own plans: the tables of docs/quality.md; 1 if one is uneven

A product is predicted with the plan in its row, which the planner chose when the model was corrected: a better plan
is thus never mistaken for a truer model. Nothing is run. Sources have short names; docs/machine-model.md lists them.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from xdsl.dialects.builtin import FunctionType, ModuleOp, TensorType, f16, f32
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Attribute, Block, Operation, Region, SSAValue

from benchmarks.mesh_rows import spearman
from populus.dialects.data import constant
from populus.dialects.poplar import GraphOp
from populus.dialects.poplar.target import Spec
from populus.dialects.poplin import ConvolutionOp, MatMulOp
from populus.dialects.support.diagnostics import PopulusError
from populus.dialects.table import context
from populus.lowering.driver.pipeline import Pipeline
from populus.lowering.poplar.from_poplin import Planning, PoplinToPoplarPass, matmul
from populus.lowering.poplar.graph import Rule
from populus.lowering.poplar.plan.contraction import Contraction, Near, Plan, grains_of
from populus.lowering.poplar.plan.residency import Residency
from populus.lowering.poplar.plan.serial import replace_by_steps
from populus.lowering.poplar.plan.stated import Names
from populus.lowering.poplar.plan.weights import Arguments
from populus.lowering.poplar.tile_builder import TileBuilder
from populus.runtime.cycles import Products, contraction
from populus.runtime.cycles.ipu import elementwise
from populus.runtime.profile import Profile, profile

TYPES: dict[str, tuple[Attribute, Any]] = {"f16": (f16, np.float16), "f32": (f32, np.float32)}
BOW, GC2 = "bow, interleaved_bytes=0", "gc2, interleaved_bytes=0"  # PopLibs loads weights 8 bytes at a time by default
AFTER = "popnn-to-poplar,poprand-to-poplar,popops-to-poplar,poplar-map,poplar-merge,poplar-allocate"
# The layouts when the plans of the rows were made.
AS_RECORDED = AFTER.replace("poplar-map", "poplar-map{shared=false}").replace("popops-to-poplar", "popops-to-poplar{stack=false}")


@dataclass(frozen=True)
class Row:
    """A measurement beside its prediction, in cycles. `used`: "fit" if a constant was taken from it, else "judge"."""

    kind: str
    workload: str
    machine: str
    measured: float
    predicted: float
    source: str
    used: str = "judge"

    @property
    def ratio(self) -> float:
        """The predicted cycles, relative to the measured ones."""
        return self.predicted / self.measured


# -- products


@dataclass(frozen=True)
class Product:
    """A product of [n, k] and a constant [k, k] on a Bow: kilocycles measured, and the parts of (k, rows, columns) and steps.

    `resident`: each tile has a copy of the weights that it reads.
    """

    element: str
    k: int
    n: int
    kilocycles: float
    plan: tuple[int, int, int, int]
    resident: bool


# Source: SB, the figure `dense_ipu_gpu` of its notebook, digitised (1.5 % for each point), at 1.85 GHz.
PRODUCTS = (
    Product("f16", 1024, 4, 2.6, (64, 1, 22, 1), False),
    Product("f16", 1024, 16, 3.0, (64, 1, 22, 1), False),
    Product("f16", 1024, 256, 11.1, (16, 4, 22, 1), True),
    Product("f16", 1024, 1024, 33.1, (16, 11, 8, 1), True),
    Product("f16", 1024, 4096, 88.2, (8, 23, 8, 1), True),
    Product("f16", 1024, 8192, 154.4, (8, 46, 4, 1), True),
    Product("f16", 1024, 16384, 285.0, (4, 92, 4, 1), True),
    Product("f16", 1024, 32768, 569.7, (4, 184, 2, 2), True),
    Product("f16", 2048, 4, 4.8, (43, 1, 32, 1), False),
    Product("f16", 2048, 16, 5.6, (43, 1, 32, 1), False),
    Product("f16", 2048, 256, 29.7, (32, 2, 22, 1), True),
    Product("f16", 2048, 1024, 95.8, (13, 7, 16, 1), True),
    Product("f16", 2048, 4096, 298.4, (8, 23, 8, 1), True),
    Product("f16", 2048, 8192, 554.7, (8, 46, 4, 2), True),
    Product("f16", 4096, 4, 13.6, (43, 1, 32, 1), False),
    Product("f16", 4096, 16, 16.2, (43, 1, 32, 1), False),
    Product("f16", 4096, 256, 90.8, (32, 2, 22, 1), True),
    Product("f16", 8192, 4, 46.2, (64, 1, 23, 1), False),
    Product("f16", 8192, 16, 55.2, (64, 1, 23, 1), False),
    Product("f16", 8192, 256, 285.1, (43, 1, 32, 1), False),
    Product("f32", 1024, 4, 4.2, (43, 1, 32, 1), False),
    Product("f32", 1024, 8, 4.7, (22, 1, 64, 1), False),
    Product("f32", 1024, 16, 5.6, (43, 1, 32, 1), False),
    Product("f32", 1024, 32, 7.6, (43, 1, 32, 1), False),
    Product("f32", 1024, 128, 17.0, (22, 2, 32, 1), True),
    Product("f32", 1024, 256, 28.9, (16, 4, 22, 1), True),
    Product("f32", 1024, 512, 54.9, (13, 7, 16, 1), True),
    Product("f32", 1024, 1024, 91.0, (10, 9, 16, 1), True),
    Product("f32", 1024, 4096, 286.1, (8, 23, 8, 1), True),
    Product("f32", 1024, 8192, 556.9, (8, 46, 4, 2), True),
    Product("f32", 1024, 16384, 1083.1, (8, 92, 2, 4), True),
    Product("f32", 1024, 32768, 2168.4, (8, 184, 1, 8), False),
    Product("f32", 2048, 4, 10.9, (22, 1, 64, 1), False),
    Product("f32", 2048, 8, 12.0, (43, 1, 32, 1), False),
    Product("f32", 2048, 16, 13.8, (43, 1, 32, 1), False),
    Product("f32", 2048, 32, 18.9, (43, 1, 32, 1), False),
    Product("f32", 2048, 128, 50.6, (22, 2, 32, 1), True),
    Product("f32", 2048, 256, 88.6, (22, 2, 32, 1), True),
    Product("f32", 2048, 512, 159.2, (16, 4, 22, 1), True),
    Product("f32", 2048, 1024, 301.0, (13, 7, 16, 1), True),
    Product("f32", 2048, 2048, 557.0, (13, 7, 16, 1), True),
    Product("f32", 2048, 4096, 1084.4, (16, 23, 4, 4), True),
    Product("f32", 2048, 8192, 2112.5, (16, 46, 2, 8), False),
    Product("f32", 4096, 4, 35.0, (23, 1, 64, 1), False),
    Product("f32", 4096, 8, 39.9, (23, 1, 64, 1), False),
    Product("f32", 4096, 16, 44.3, (23, 1, 64, 1), False),
    Product("f32", 4096, 32, 62.6, (23, 1, 64, 1), False),
    Product("f32", 4096, 128, 163.5, (23, 1, 64, 1), False),
    Product("f32", 4096, 256, 301.7, (23, 2, 32, 1), True),
    Product("f32", 4096, 512, 587.7, (23, 4, 16, 2), True),
    Product("f32", 4096, 1024, 1142.6, (26, 7, 8, 4), False),
    Product("f32", 4096, 4096, 4335.2, (32, 23, 2, 16), False),
    Product("f32", 8192, 4, 129.2, (23, 1, 64, 1), False),
    Product("f32", 8192, 8, 143.4, (23, 1, 64, 1), False),
    Product("f32", 8192, 16, 159.9, (23, 1, 64, 1), False),
    Product("f32", 8192, 32, 219.8, (23, 1, 64, 1), False),
    Product("f32", 8192, 128, 636.8, (45, 1, 32, 2), False),
    Product("f32", 8192, 256, 1144.3, (45, 1, 32, 4), False),
    Product("f32", 8192, 1024, 4699.0, (61, 6, 4, 16), False),
)


@dataclass(frozen=True)
class _Recorded(Planning):
    """Planning that gives the plan of a row."""

    row: Product | None = None

    def plan(
        self,
        t: TileBuilder,
        op: MatMulOp | ConvolutionOp,
        shape: Contraction,
        element: Attribute,
        near: Near,
        whole: bool = False,
        tiled: bool = False,
    ) -> tuple[Plan, Arguments | None]:
        assert self.row is not None
        k, rows, columns, _ = self.row.plan
        return Plan(1, 1, columns, k, (rows,), 1, *grains_of(shape, element, t.target)), {} if self.row.resident else None


@dataclass(frozen=True)
class _AsRecorded(PoplinToPoplarPass):
    """The lowering of one product by the plan of its row."""

    row: Product | None = None

    def rules(self, graph: GraphOp) -> Mapping[type[Operation], Rule]:
        assert self.row is not None
        for op in [op for op in graph.walk() if isinstance(op, MatMulOp)]:
            if self.row.plan[3] > 1:
                replace_by_steps(op, "channels", self.row.plan[3], graph.machine)
        how = _Recorded(Residency(), True, 0.0, "f16" if self.partials == "f16" else "", 0, {}, None, Names([]), row=self.row)
        return {MatMulOp: partial(matmul, how=how)}


def program(element: str, x: Sequence[int], w: Sequence[int], make: Callable[[SSAValue, SSAValue], Operation]) -> ModuleOp:
    """Builds a module of one op on an input of shape `x` and constant weights of shape `w`."""
    type, dtype = TYPES[element]
    block = Block(arg_types=[TensorType(type, list(x))])
    weights = constant(np.broadcast_to(np.array(2, dtype), tuple(w)))
    op = make(block.args[0], weights.result)
    block.add_ops([weights, op, ReturnOp(op.results[0])])
    return ModuleOp([FuncOp("main", FunctionType.from_lists([block.args[0].type], [op.results[0].type]), Region(block))])


def profile_of(module: ModuleOp, lowering: PoplinToPoplarPass, after: str = AS_RECORDED) -> Profile:
    """Lowers a module to tiles and profiles it."""
    pipeline = Pipeline((lowering, *Pipeline.from_text(after).passes))
    pipeline.run(context(), module)
    return profile(next(op for op in module.walk() if isinstance(op, GraphOp)))


def product(row: Product, planned: bool = True) -> Row:
    """Predicts a product with the plan of its row, or else with the planner's own."""
    module = program(row.element, (1, row.n, row.k), (1, row.k, row.k), MatMulOp)
    partials = "f16" if row.element == "f16" else None
    lowering = _AsRecorded(BOW, partials=partials, row=row)
    cycles = float(profile_of(module, lowering).summary["cycles"]) if planned else own_cycles(row.element, row.n, row.k)
    return Row("product", f"[{row.n}, {row.k}] x [{row.k}, {row.k}] {row.element}", "bow", 1e3 * row.kilocycles, cycles, "SB")


def own_cycles(element: str, n: int, k: int) -> float:
    """Predicts the cycles of [n, k] x [k, k] on a Bow with the planner's own plan for fewest cycles."""
    lowering = PoplinToPoplarPass("bow", partials="f16" if element == "f16" else None, optimise="cycles")
    return float(profile_of(program(element, (1, n, k), (1, k, k), MatMulOp), lowering, AFTER).summary["cycles"])


SIZES, NEXT = (1024, 2048, 3072, 4096), 128
ROWS = range(256, 4097, NEXT)
ABOVE = 1.05  # of the greater of both neighbours' cycles a row
UNEVEN = {("f32", 1024): 1.065}  # no parts of 1,472 tiles divide 112 rows of weights by 128 units more evenly
MORE = 1.005  # of the cycles of a product with more rows, whose plan would do: what padded rows cost besides products


@dataclass(frozen=True)
class Evenness:
    """Cycles of [n, k] x [k, k] by n, with the planner's own plans.

    `above`: the largest cycles a row, relative to the greater of the two neighbours', and its n. `more`: the largest cycles, relative
    to those of a product with more rows, and its n.
    """

    element: str
    k: int
    cycles: Mapping[int, float]

    @property
    def above(self) -> tuple[float, int]:
        a_row = {n: c / n for n, c in self.cycles.items()}
        return max((c / max(a_row[n - NEXT], a_row[n + NEXT]), n) for n, c in a_row.items() if {n - NEXT, n + NEXT} <= a_row.keys())

    @property
    def more(self) -> tuple[float, int]:
        return max((c / more, n) for n, c in self.cycles.items() for m, more in self.cycles.items() if m > n)

    @property
    def is_even(self) -> bool:
        """Tells if no plan is far above those of its neighbours, or above that of more rows."""
        return self.above[0] <= UNEVEN.get((self.element, self.k), ABOVE) and self.more[0] <= MORE


def evenness(element: str, k: int, rows: Sequence[int] = ROWS) -> Evenness:
    """Plans products of many numbers of rows."""
    return Evenness(element, k, {n: own_cycles(element, n, k) for n in rows})


def even_table(found: Sequence[Evenness]) -> str:
    """Formats the table of cycles a row."""
    title = "| rows, 128 apart | k = n | type | cycles a row | most above its neighbours | most above more rows |"
    lines = [title, "|---|---|---|---|---|---|"]
    for e in found:
        a_row = [c / n for n, c in e.cycles.items()]
        cells = [f"{min(e.cycles):,} .. {max(e.cycles):,}", f"{e.k:,}", e.element, f"{max(a_row):,.1f} .. {min(a_row):,.1f}"]
        lines.append(f"| {' | '.join((*cells, *(f'{ratio:.3f} at {n:,}' for ratio, n in (e.above, e.more))))} |")
    return "\n".join(lines)


# -- vertices

# positions of a product [N, 16] x [16, 16] in halves on each tile: cycles by the tile's counter. Source: TES.
AMP = {
    16: 402, 32: 461, 48: 524, 64: 584, 96: 716, 128: 845, 192: 1100, 256: 1352, 384: 1868, 512: 2381, 768: 3404, 1024: 4424, 1536: 6476,
    2048: 8525,
}  # fmt: skip
AMP_FIT = 2048  # from which `product_start_cycles` is
ADD = {10: 285, 1024: 1815}  # elements of an f32 addition on each tile. Source: TES, less the 45 cycles of the counter
ADD_FIT = 1024  # from which `vertex_start_cycles` is


def vertices() -> list[Row]:
    """Predicts single vertices."""
    bow = Spec.of(BOW).target()
    rows: list[Row] = []
    for n, cycles in AMP.items():
        found = float(contraction(Products(1, n, 1, 16, 16, 1, f16, bow, partials="f16"))) + bow.product_start_cycles
        rows.append(Row("vertex", f"[{n}, 16] x [16, 16] f16", "bow", cycles, found, "TES", "fit" if n == AMP_FIT else "judge"))
    for n, cycles in ADD.items():
        found = float(elementwise.binary(n, "add", f32, bow)) + bow.vertex_start_cycles
        rows.append(Row("vertex", f"add of {n:,} f32", "bow", cycles, found, "TES", "fit" if n == ADD_FIT else "judge"))
    return rows


# -- convolutions

# 3x3 blur of 4 channels, padded by 1, with a copy of the result back: image, type, cycles. Source: LBM, at 1.6 GHz.
BLURS = (((302, 499), "f16", 4848), ((302, 499), "f32", 13399), ((1122, 2200), "f16", 35774))


def convolution(size: tuple[int, int], element: str, cycles: float) -> Row:
    """Predicts a convolution on a GC2, and the copy, which stays on each tile."""
    gc2 = Spec.of(GC2).target()

    def make(x: SSAValue, w: SSAValue) -> Operation:
        return ConvolutionOp(x, w, strides=[1, 1], pads=[1] * 4, dilations=[1, 1], groups=1)

    lowering = PoplinToPoplarPass(GC2, partials="f16" if element == "f16" else None)
    summary = profile_of(program(element, (1, 4, *size), (4, 4, 3, 3), make), lowering).summary
    bytes = 4 * math.prod(size) * TYPES[element][1]().itemsize
    copy = gc2.sync_cycles + 20 - (-bytes // gc2.tiles // gc2.copy_bytes)
    name = f"4 -> 4 channels, 3x3, {size[0]} x {size[1]} {element}"
    return Row("convolution", name, "gc2", cycles, float(summary["cycles"]) + copy, "LBM")


# -- networks


# Sources, and what they comprise: docs/machine-model.md. Of a pipeline's four chips, one has embedding and heads, three four layers each.
BERT_CYCLES = 1.85e9 / (16391 / 16)  # a sequence of 128 on each of 16 chips: 16,391 sequences a second, SDK 3.1
BERT_LAYERS, BERT_BATCH, BERT_CHIPS = 4, 32, 4
RESNET_CYCLES = 685e3  # an image on each chip, training
C600_CYCLES = {4: 210e3, 32: 110e3}  # an image, inference, by batch


def networks() -> list[Row]:
    """Predicts whole networks, in halves that are summed as halves. Takes minutes."""
    import populus
    from benchmarks.models import LIGHT, half, randomised, transformer
    from populus.training.session import TrainingSession

    def cycles(model: Any, loss: str, items: int, **more: Any) -> float:
        session = TrainingSession(model, loss=loss, optimizer="sgd", target="bow", partials="f16", **more)
        return float(session.program.profile().summary["cycles"]) / items

    def images(batch: int | None) -> Any:
        return half(randomised(LIGHT / "light_resnet50.onnx"), batch=batch)

    image = cycles(images(16), "cross_entropy", 16, batch_statistics=True)
    found = [Row("network", "ResNet-50 training, 16 images", "bow", RESNET_CYCLES, image, "ML2")]
    layers = half(transformer(layers=BERT_LAYERS, batch=BERT_BATCH))
    stage = cycles(layers, "mean_squared_error", BERT_BATCH, recompute=BERT_LAYERS)
    found.append(Row("network", "BERT-base training, 32 sequences of 128", "bow", BERT_CYCLES, BERT_CHIPS * stage, "GP"))
    for batch, measured in C600_CYCLES.items():
        program = populus.compile(images(batch), target="gc200", partials="f16", optimise="cycles")
        predicted = float(program.profile().summary["cycles"]) / batch
        found.append(Row("network", f"ResNet-50 inference, {batch} images", "c600", measured, predicted, "BM"))
    return found


# -- tables


def rows() -> list[Row]:
    """Predicts all products, vertices and convolutions."""
    return [*map(product, PRODUCTS), *vertices(), *(convolution(*blur) for blur in BLURS)]


def mean(found: Sequence[Row]) -> float:
    """Computes the geometric mean of the ratios."""
    return math.exp(sum(math.log(r.ratio) for r in found) / len(found))


def summary(found: Sequence[Row]) -> str:
    """Formats the table of errors by kind."""
    lines = ["| rows | number | predicted / measured: mean | least | most |", "|---|---|---|---|---|"]
    kinds: dict[str, list[Row]] = {}
    for row in found:
        name = f"products, {row.workload[-3:]}" if row.kind == "product" else {"vertex": "vertices"}.get(row.kind, f"{row.kind}s")
        kinds.setdefault(name, []).append(row)
    for kind, own in kinds.items():
        ratios = [row.ratio for row in own]
        lines.append(f"| {kind} | {len(own)} | {mean(own):.3f} | {min(ratios):.2f} | {max(ratios):.2f} |")
    return "\n".join(lines)


def ranks(found: Sequence[Row]) -> str:
    """Formats Spearman's coefficient of predicted and measured cycles, which tells whether points stand in the right order."""
    lines = ["| rows | number | Spearman's coefficient |", "|---|---|---|"]
    for name, element in (("product", "f16"), ("product", "f32"), ("vertex", ""), ("convolution", "")):
        own = [r for r in found if r.kind == name and r.workload.endswith(element)]
        rank = spearman([r.predicted for r in own], [r.measured for r in own])
        lines.append(f"| {f'{name} {element}'.strip()} | {len(own)} | {rank:.3f} |")
    return "\n".join(lines)


def table(found: Sequence[Row]) -> str:
    """Formats the table of all rows."""
    lines = ["| workload | machine | measured | predicted | ratio | source | used |", "|---|---|---|---|---|---|---|"]
    for r in found:
        lines.append(f"| {r.workload} | {r.machine} | {r.measured:,.0f} | {r.predicted:,.0f} | {r.ratio:.2f} | {r.source} | {r.used} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(prog="benchmarks.calibration")
    parser.add_argument("--networks", action="store_true", help="whole networks too, which takes minutes")
    parser.add_argument("--plans", action="store_true", help="products with the planner's own plans, for fewest cycles")
    parser.add_argument("--ranks", action="store_true", help="how well predictions order the rows of each kind")
    parser.add_argument("--machine", metavar="NAME", help="a mesh, which --rows judge")
    parser.add_argument("--fields", action="store_true", help="and what each field of the mesh moves")
    parser.add_argument("--rows", type=Path, metavar="FILE", help="a file of measurements of meshes")
    args = parser.parse_args()
    if args.machine or args.rows:
        from benchmarks.mesh_rows import report

        if not (args.machine and args.rows):
            parser.error("--machine and --rows go together")
        try:
            print(report(args.rows, args.machine, args.fields))
        except PopulusError as error:
            sys.exit(f"benchmarks.calibration: {error}")
        return
    if args.plans:
        print(table([product(row, planned=False) for row in PRODUCTS]))
        even = [evenness(element, k) for element in ("f32", "f16") for k in SIZES]
        print(f"\n{even_table(even)}")
        sys.exit(not all(e.is_even for e in even))
    if args.ranks:
        print(ranks(rows()))
        return
    found = rows() + (networks() if args.networks else [])
    print(f"{summary(found)}\n\n{table(found)}")


if __name__ == "__main__":
    main()
