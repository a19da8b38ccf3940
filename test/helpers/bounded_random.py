"""Random models with bounded dimensions: each value is [b, n, 4], where n is the size of some axis, and ops change n or mix along it."""

from __future__ import annotations

import random
from collections.abc import Callable

from onnx import ModelProto

from helpers.bounded_models import built

CONSTANTS = """
  int64 c0 = {0}, int64 c1 = {1}, int64[1] n0 = {0}, int64[1] n1 = {1}, int64[1] n2 = {2}, int64[1] m1 = {-1}, int64[1] m2 = {-2},
  int64[1] end = {9223372036854775807}, int64[1] begin = {-9223372036854775807}, int64[2] rows = {-1, 4}, int64[2] ax01 = {0, 1},
  int64[3] twice = {1, 2, 1}, int64[6] pads = {0, 1, 0, 0, 2, 0}, int64[2] ends = {-1, 0}, float half = {0.5}, float many = {-100.0}
"""
LEAST = {"s": 3, "t": 2}


class Graph:
    """The text of a model in the making: values with the name of their size, and how small that may be."""

    def __init__(self, seed: int):
        self.rng = random.Random(seed)
        self.lines: list[str] = []
        self.values: list[tuple[str, str, int]] = [("x", "s", LEAST["s"]), ("z", "t", LEAST["t"])]
        self.count = 0

    def put(self, text: str) -> str:
        """Adds a node, and gives the name of its result. `text`: what stands right of the equals sign."""
        self.count += 1
        self.lines.append(f"v{self.count} = {text}")
        return f"v{self.count}"

    def value(self, tag: str | None = None) -> tuple[str, str, int]:
        """Chooses a value, of a size if that is given; the latest most often."""
        chosen = [v for v in self.values if tag in (None, v[1])]
        return chosen[-1] if self.rng.random() < 0.5 else self.rng.choice(chosen)


Step = Callable[[Graph], "tuple[str, str, int]"]


def unary(g: Graph) -> tuple[str, str, int]:
    x, tag, least = g.value()
    return g.put(f"{g.rng.choice(['Tanh', 'Relu', 'Sigmoid', 'Abs', 'Neg', 'Erf'])}({x})"), tag, least


def binary(g: Graph) -> tuple[str, str, int]:
    x, tag, least = g.value()
    y, *_ = g.value(tag)
    return g.put(f"{g.rng.choice(['Add', 'Mul', 'Max', 'Sub'])}({x}, {y})"), tag, least


def selected(g: Graph) -> tuple[str, str, int]:
    x, tag, least = g.value()
    y, *_ = g.value(tag)
    above = g.put(f"Greater({x}, half)")
    return g.put(f"Where({above}, {x}, {y})"), tag, least


def normalised(g: Graph) -> tuple[str, str, int]:
    x, tag, least = g.value()
    kind = g.rng.choice(["ReduceMean", "ReduceMax", "ReduceSum", "ReduceL2", "ReduceMin"])
    axes = g.rng.choice(["1", "0, 1", "2", "1, 2"])
    opset17 = f"{kind}({x}, {'n1' if axes == '1' else 'ax01'})" if kind == "ReduceSum" else f"{kind}<axes=[{axes}]>({x})"
    return g.put(f"Sub({x}, {g.put(opset17)})"), tag, least


def softmax(g: Graph) -> tuple[str, str, int]:
    x, tag, least = g.value()
    return g.put(f"{g.rng.choice(['Softmax', 'LogSoftmax'])}<axis={g.rng.choice([0, 1, 2])}>({x})"), tag, least


def attention(g: Graph) -> tuple[str, str, int]:
    x, tag, least = g.value()
    y, *_ = g.value()
    turned = g.put(f"Transpose<perm=[0, 2, 1]>({y})")
    scores = g.put(f"MatMul({x}, {turned})")
    return g.put(f"MatMul({g.put(f'Softmax<axis=-1>({scores})')}, {y})"), tag, least


def joined(g: Graph) -> tuple[str, str, int]:
    (x, a, m), (y, b, n) = g.value(), g.value()
    return g.put(f"Concat<axis=1>({x}, {y})"), f"({a} + {b})", m + n


def cut(g: Graph) -> tuple[str, str, int]:
    x, tag, least = g.value()
    ways = [("m1, begin, n1, m1", tag, least), ("m2, end, n1", "2", 2)]
    if least > 2:
        ways += [("n1, end, n1", f"{tag}[1:]", least - 1), ("n0, m1, n1", f"{tag}[:-1]", least - 1)]
        ways += [("n0, end, n1, n2", f"{tag}[::2]", (least + 1) // 2)]
    bounds, tag, least = g.rng.choice(ways)
    return g.put(f"Slice({x}, {bounds})"), tag, least


def merged(g: Graph) -> tuple[str, str, int]:
    x, tag, least = g.value()
    flat = g.put(f"Reshape({x}, rows)")
    kind = g.rng.choice(["Softmax<axis=0>({0})", "CumSum({0}, c0)", "Slice({0}, m1, begin, n0, m1)", "Tanh({0})"])
    return g.put(f"Reshape({g.put(kind.format(flat))}, {g.put(f'Shape({x})')})"), tag, least


def taken(g: Graph) -> tuple[str, str, int]:
    x, *_ = g.value()
    return g.put(f"Gather<axis=1>({x}, ends)"), "2", 2


def summed(g: Graph) -> tuple[str, str, int]:
    x, tag, least = g.value()
    return g.put(f"CumSum<reverse={g.rng.randint(0, 1)}, exclusive={g.rng.randint(0, 1)}>({x}, c1)"), tag, least


def padded(g: Graph) -> tuple[str, str, int]:
    x, tag, least = g.value()
    return g.put(f'Pad<mode="{g.rng.choice(["constant", "edge"])}">({x}, pads)'), f"({tag} + 3)", least + 3


def tiled(g: Graph) -> tuple[str, str, int]:
    x, tag, least = g.value()
    return g.put(f"Tile({x}, twice)"), f"2{tag}", 2 * least


def convolved(g: Graph) -> tuple[str, str, int]:
    x, tag, least = g.value()
    turned = g.put(f"Transpose<perm=[0, 2, 1]>({x})")
    return g.put(f"Transpose<perm=[0, 2, 1]>({g.put(f'Conv<pads=[1, 1]>({turned}, k)')})"), tag, least


def pooled(g: Graph) -> tuple[str, str, int]:
    x, tag, least = g.value()
    turned = g.put(f"Transpose<perm=[0, 2, 1]>({x})")
    kind = g.rng.choice(["MaxPool", "AveragePool"])
    y = g.put(f"{kind}<kernel_shape=[3], strides=[2], pads=[1, 1]>({turned})")
    return g.put(f"Transpose<perm=[0, 2, 1]>({y})"), f"({tag} + 1) / 2", (least + 1) // 2


def stretched(g: Graph) -> tuple[str, str, int]:
    x, *_ = g.value()
    y, tag, least = g.value()
    first = g.put(f"Slice({x}, n0, n1, n1)")
    return g.put(f"Expand({first}, {g.put(f'Shape({y})')})"), tag, least


def numbered(g: Graph) -> tuple[str, str, int]:
    x, tag, least = g.value()
    n = g.put(f"Gather({g.put(f'Shape({x})')}, c1)")
    places = g.put(f"Cast<to=1>({g.put(f'Range(c0, {n}, c1)')})")
    return g.put(f"Add({x}, {g.put(f'Unsqueeze({places}, n1)')})"), tag, least


def largest(g: Graph) -> tuple[str, str, int]:
    x, *_ = g.value()
    g.count += 1
    g.lines.append(f"w{g.count}, i{g.count} = TopK<axis=1, largest={g.rng.randint(0, 1)}>({x}, n2)")
    return f"w{g.count}", "2", 2


def chosen(g: Graph) -> tuple[str, str, int]:
    x, tag, least = g.value()
    index = g.put(f"ArgMax<axis=1, keepdims=1>({x})")
    return g.put(f"Mul({x}, {g.put(f'Cast<to=1>({index})')})"), tag, least


STEPS: list[Step] = [
    unary, binary, selected, normalised, softmax, attention, joined, cut, merged, taken, summed, padded, tiled, convolved, pooled,
    stretched, numbered, largest, chosen,
]  # fmt: skip


def random_model(seed: int, steps: int = 8) -> ModelProto:
    """Builds a random model of `steps` steps with inputs x: [b, s, 4] and z: [b, t, 4]."""
    g = Graph(seed)
    for _ in range(steps):
        g.values.append(g.rng.choice(STEPS)(g))
    g.lines.append(f"y = Tanh({g.values[-1][0]})")
    total = g.put(f"ReduceMean<keepdims=0>({g.values[-2][0]})")
    g.lines.append(f"p0 = Add({total}, half)")
    return built("float[b, s, 4] x, float[b, t, 4] z", CONSTANTS, "\n".join(g.lines), {"k": (4, 4, 3)}, 2)
