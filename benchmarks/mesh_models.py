"""Published totals of whole networks on meshes, predicted as sums of their ops: ResNet-50, BERT and Llama-like decoders.

Ops and their sizes follow from each network's configuration. A product takes our own plan of it in space and time; other ops have the
formulas of `mesh_ops`. Times of kernels have no launch in them. A decoder's token has one for each op, the choice of the next token, and
nothing of the host.

| what | as published networks have it |
|---|---|
| formats | weights and activations of ResNet-50 and BERT are bfp8 in one phase; weights of decoders as their row says |
| functions | exp and gelu by the vector unit's table, in `APPROXIMATE` instructions |
| places | activations lie in the cores' memory, weights and caches in DRAM |
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from benchmarks.mesh_ops import BEGIN, Convolution, halo
from benchmarks.mesh_products import BLOCK
from benchmarks.mesh_traffic import EACH
from populus.dialects.poplar.machine import Mesh
from populus.dialects.poplar.target import Target
from populus.lowering.poplar.plan.streamed import Blocks, streamed
from populus.runtime.cycles.mesh.contraction import block_cycles
from populus.runtime.cycles.mesh.product import Places, Streamed, product_cycles
from populus.runtime.cycles.mesh.vector import passes

APPROXIMATE = 8.0  # instructions of exp or gelu by a table of straight lines
READERS = 12
# Cycles of a Wormhole to pick the likeliest tokens of 32 sequences, for each token of the vocabulary, and to draw from them with the gap
# before. TT qwen_decoder_perf_targets_6u.json TopK_0 with 151,936 / 8 tokens, Sampling_0
TOP_K, SAMPLING = 198_184 / (151_936 / 8), 67_651 + 54_836
PLACED = {"n150": 267.0, "p150": 371.0}  # bytes of DRAM a cycle, each bank read by the cores next to it. TT Saturating_DRAM_bandwidth
BFP8, BFP4, BF16 = BLOCK["BFLOAT8_B"], BLOCK["BFLOAT4_B"], BLOCK["BFLOAT16"]


@dataclass(frozen=True)
class Decoder:
    """A decoder's configuration, as its public `config.json` has it."""

    layers: int
    hidden: int
    heads: int
    key_heads: int
    inner: int
    vocabulary: int
    head: int = 0  # size of a head; hidden / heads if 0

    @property
    def size(self) -> int:
        return self.head or self.hidden // self.heads


DECODERS = {
    "Llama 3.1 8B": Decoder(32, 4096, 32, 8, 14336, 128256),
    "Llama 3.2 3B": Decoder(28, 3072, 24, 8, 8192, 128256, 128),
    "Llama 3.2 1B": Decoder(16, 2048, 32, 8, 8192, 128256),
    "Mistral 7B": Decoder(32, 4096, 32, 8, 14336, 32768),
    "Phi3.5 mini": Decoder(32, 3072, 32, 32, 8192, 32064),
    "Phi 3 mini": Decoder(32, 3072, 32, 32, 8192, 32064),
}


@dataclass(frozen=True)
class Machine:
    """The formulas of one machine for the ops of a network, in cycles of a kernel."""

    target: Target

    @property
    def mesh(self) -> Mesh:
        assert self.target.mesh is not None
        return self.target.mesh

    def product(self, m: int, k: int, n: int, bytes: float = BFP8, phases: int = 1, groups: int = 1) -> float:
        """Predicts `groups` products. One: operand 1 in the cores' memory, or in DRAM if it does not fit. Many: whole groups a core."""
        begin = BEGIN + EACH * self.target.tiles
        blocks = Blocks(-(-m // 32), -(-k // 32), -(-n // 32), bytes, phases)
        if groups == 1:
            found = streamed(blocks, self.target, Places(False, True, False)) or streamed(blocks, self.target, Places())
            assert found is not None, blocks
            return begin + found[1]
        share = -(-groups * blocks.rows // self.target.tiles)
        return begin + float(block_cycles(self.mesh, share, blocks.columns, blocks.depth, bytes, phases, False))

    def planned(self, rows: int, columns: int, inner: int, high: int, wide: int, steps: int) -> float:
        """Predicts a product of bfp8 in one phase by a stated plan on a grid of 8 x 8: operand 2 in DRAM."""
        plan = Streamed(rows, columns, inner, high, wide, steps, 1, 8, 8)
        return BEGIN + EACH * 64 + float(product_cycles(self.mesh, plan, BFP8, 1, Places(False, True, False)).all)

    def weights(self, k: int, n: int, bytes: float) -> float:
        """Predicts a product of few rows: a bank's blocks lie beside the cores that read them, each block a request."""
        blocks = -(-k // 32) * -(-n // 32)
        return BEGIN + self.mesh.dram_cycles + blocks * max(bytes / PLACED[self.target.name], self.request)

    @property
    def request(self) -> float:
        """The cycles between two blocks of all cores that read weights. Their number was chosen by rows of decoders."""
        return max(self.mesh.issue_cycles, self.mesh.reader_cycles) / READERS

    def map(self, elements: float, operands: int = 1, issued: float = 0.0, bytes: float = BFP8) -> float:
        """Predicts an op on elements that lie in the cores' memory."""
        own = math.ceil(elements / 1024 / self.target.tiles) * 1024
        each = bytes / 1024
        return BEGIN + EACH * self.target.tiles + float(passes(own, operands * each, each, issued - 2, self.target))

    def cache(self, bytes: float) -> float:
        """Predicts reading of a cache by all cores."""
        return BEGIN + self.mesh.dram_cycles + bytes / self.mesh.dram_read_bytes


def resnet50(on: Machine, batch: int) -> Iterator[float]:
    """Yields the cycles of the ops of ResNet-50 v1.5: He et al., 2015, table 1, with the stride in the 3x3 convolution."""
    tiles = on.target.tiles

    def convolution(size: int, channels: int, out: int, kernel: int, windows: int) -> float:
        rows, columns, depth = -(-batch * size * size // 32), -(-out // 32), -(-kernel * channels // 32)
        found = math.inf
        for across in (1, on.mesh.grid[0]):
            own = -(-rows // (tiles // across)), -(-columns // across)
            found = min(found, Convolution(tiles, *own, depth, windows, BFP8, "LoFi").cycles(on.mesh))
        return found

    yield convolution(112, 16, 64, 16, 4)  # 7x7 of stride 2 on 3 channels, as 4x4 on squares of 2 by 2 points
    yield on.map(batch * 112 * 112 * 64, 1, 1.0)
    yield BEGIN + -(-batch * 56 * 56 // tiles) * 9 * 33.0  # the pooling: 33 cycles for each row of a window
    channels = 64
    for blocks, inner, size in ((3, 64, 56), (4, 128, 28), (6, 256, 14), (3, 512, 7)):
        for block in range(blocks):
            stride = 2 if block == 0 and inner > 64 else 1
            yield on.product(batch * (size * stride) ** 2, channels, inner)
            own = batch * (size * stride) ** 2 * inner / tiles
            yield halo(on.mesh, 2 * own, math.ceil(own / 1024), "BFLOAT8_B", tiles)
            yield convolution(size, inner, inner, 9, 3)
            yield on.product(batch * size**2, inner, 4 * inner)
            if block == 0:
                yield on.product(batch * size**2, channels, 4 * inner)
            yield on.map(batch * size**2 * 4 * inner, 2, 1.0)
            channels = 4 * inner
    yield on.map(batch * 49 * 2048, 1, 1.0)
    yield on.product(batch, 2048, 1000)


def bert_large(on: Machine, batch: int) -> Iterator[float]:
    """Yields the cycles of the ops of BERT-large on 384 tokens (Devlin et al., 2018), on a grid of 8 x 8, with the vendor's plans.

    Source of the plans: tt-metal, `metal_BERT_large_11/tt/model_config.py`, BFLOAT8_B-SHARDED.
    """
    hidden, sequence = 1024, 384
    rows, heads = batch * sequence, 16 * batch
    for _ in range(24):
        yield on.planned(12, 12, 4, 1, 6, 8)
        yield 3 * on.map(rows * hidden)  # rows become heads
        yield on.product(sequence, 64, sequence, groups=heads)
        yield on.map(heads * sequence**2, 2, APPROXIMATE + 6, BF16)  # a mask, the greatest, exp, a sum, a division
        yield on.product(sequence, sequence, 64, groups=heads)
        yield on.map(rows * hidden)
        yield on.planned(12, 4, 4, 2, 4, 8)
        yield 2 * on.map(rows * hidden, 2, 8.0)  # two norms with their sums before
        yield on.planned(12, 16, 4, 1, 8, 8) + 12 * 16 * 32 * APPROXIMATE
        yield on.planned(12, 4, 16, 2, 4, 8)


def decoder(on: Machine, net: Decoder, batch: int, inner: float, attention: float, positions: int = 128) -> Iterator[float]:
    """Yields the cycles of the ops of one token of each sequence, with a launch each. `inner`, `attention`: bytes of a block of weights."""
    launch, keys = on.mesh.launch_cycles, net.key_heads * net.size
    rows = max(batch, 32)
    few = on.map(rows * net.hidden, 2, 8.0, BF16)
    for _ in range(net.layers):
        yield 2 * few + launch * 2  # norms
        yield on.weights(net.hidden, (net.heads * net.size) + 2 * keys, attention) + launch
        yield 3 * few + launch * 3  # heads, positions, the cache is written
        yield on.cache(2 * batch * positions * keys * BFP8 / 1024) + launch
        yield 2 * few + launch * 2  # heads are joined, the residual
        yield on.weights(net.heads * net.size, net.hidden, attention) + launch
        yield 2 * on.weights(net.hidden, net.inner, inner) + launch * 2
        yield on.map(rows * net.inner, 2, APPROXIMATE, BF16) + launch
        yield on.weights(net.inner, net.hidden, inner) + launch
        yield few + launch
    yield few + on.weights(net.hidden, net.vocabulary, BFP8) + launch * 2
    yield net.vocabulary * TOP_K + SAMPLING + launch * 2


def predicted(row: Mapping[str, str], target: Target) -> float | None:
    """Predicts a row of a network in its unit, items or tokens a second; None for another network or another quantity."""
    on, batch = Machine(target), int(m[1]) if (m := re.search(r"batch (\d+)", row["op"] + " " + row["shape"])) else 1
    if row["metric"].startswith("items/s, device"):
        net = next((of for name, of in _DEVICE.items() if row["op"].startswith(name) and "ttnn" not in row["op"]), None)
        return None if net is None else batch * target.clock_hz / sum(net(on, batch))
    if row["metric"].startswith("tokens/s/user, decode"):
        name = row["op"].replace("-", " ")
        if (net := next((net for of, net in DECODERS.items() if name.startswith(of)), None)) is None:
            return None
        exact = "accuracy" in row["op"] + row["shape"]  # Llama's attention is bfp8 there too. TT models/tt_transformers/PERF.md
        inner, attention = (BFP8, BFP8 if name.startswith("Llama") else BF16) if exact else (BFP4, BFP8)
        return target.clock_hz / sum(decoder(on, net, batch, inner, attention))
    return None


_DEVICE: dict[str, Callable[[Machine, int], Iterator[float]]] = {
    "ResNet-50": resnet50,
    "BERT-large (384)": bert_large,
}
