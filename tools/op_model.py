"""A model of a single op with inputs, on its `EXAMPLES` or on operands of one shape, for `check-op` and `--audit-op`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp

from populus.api import compile
from populus.builder import Builder
from populus.dialects.base.tensor_op import Plain
from populus.dialects.popart.definition import Definition, Property
from populus.dialects.support.constraints import OneOf, WholeWithin, Within
from populus.dialects.support.element_types import dtype_of, element_type_of, is_float, shape_of
from populus.program import Program

if TYPE_CHECKING:
    from numpy.typing import NDArray

Array: TypeAlias = "NDArray[Any]"
Example: TypeAlias = "tuple[Sequence[tuple[int, ...]], dict[str, Plain]]"

SHAPE = (3, 7)
SHAPES = (2, 11, 3, 5, 2, 3)  # by rank, for ops of one rank only; 11 is not a whole number of blocks


class OpModel:
    """Models of an op. `examples`: operand shapes and attributes, from its class or by default."""

    def __init__(self, definition: Definition):
        self.definition = definition
        stated: list[Example] = [(list(shapes), dict(properties)) for shapes, properties in definition.op.EXAMPLES]
        self.stated = bool(stated)
        self.examples: Sequence[Example] = stated or [([SHAPE] * len(definition.operands), self.required())]

    def module(self, example: Example, dtype: str = "float32") -> ModuleOp:
        shapes, properties = example
        element = self._element(dtype)
        b = Builder(self.definition.name)
        operands = [b.input(f"x{i}", shape, self._dtype(i, element)) for i, shape in enumerate(shapes)]
        for i, result in enumerate(b.op(self.definition.op, *operands, name=self.definition.name, **properties)):
            b.output(f"y{i}" if i else "y", result)
        return b.module()

    def _element(self, dtype: str) -> str:
        allowed = {dtype_of(e).name for o in self.definition.operands for e in o.elements if is_float(e)}
        return dtype if not allowed or dtype in allowed else max(allowed)

    def _dtype(self, i: int, element: str) -> Any:
        operands = self.definition.operands
        of = operands[min(i, len(operands) - 1)].elements
        return element if not of or any(is_float(e) for e in of) else dtype_of(of[0])

    def required(self) -> dict[str, Plain]:
        return {p.name: next(others(p, None), 0.5) for p in self.definition.properties.values() if p.required}

    def op(self, module: ModuleOp) -> Any:
        return next(op for op in module.walk() if isinstance(op, self.definition.op))

    def inputs(self, example: Example, dtype: str = "float32") -> dict[str, Array]:
        import numpy as np

        g, found = np.random.default_rng(3), dict[str, Array]()
        for argument, i in zip(function_of(self.module(example, dtype)).body.block.args, range(1 << 30)):
            shape, of = shape_of(argument.type), dtype_of(element_type_of(argument.type))
            values = (g.permutation(int(np.prod(shape))).reshape(shape) - int(np.prod(shape)) // 2) * 0.11 + 0.06  # distinct, not near 0
            found[f"x{i}"] = values.astype(of) if is_float(element_type_of(argument.type)) else np.abs(values).astype(of)
        return found

    def run(
        self, module: ModuleOp, inputs: dict[str, Array], *, level: str = "poplar", tiles: int = 1, engine: str = "numpy"
    ) -> dict[str, Array]:
        program: Program = compile(module, level=level, tiles=tiles, engine=engine)
        return program.run(inputs)


def function_of(module: ModuleOp) -> FuncOp:
    return next(op for op in module.ops if isinstance(op, FuncOp))


def others(p: Property, value: Plain | None) -> Iterator[Plain]:
    """Yields other valid values of an attribute."""
    now = p.plain_default if value is None else value
    candidates: dict[str, list[Plain]] = {
        "float": [0.5, 0.25, 2.0],
        "int": [1, 2, 0],
        "bool": [True, False],
        "string": ["a", "b"],
        "ints": [(1,), (2,)],
        "floats": [(0.5,), (2.0,)],
    }
    found = candidates.get(p.kind, [])
    match p.constraint:
        case Within(low, high) if abs(low) < 1e300 and abs(high) < 1e300:
            found = [(low + high) / 2, low + (high - low) / 4, high]
        case WholeWithin(low, high) if high - low < 1 << 62:
            found = [low, high]
        case OneOf(choices):
            found = list(choices)
        case _:
            pass
    yield from (v for v in found if v != now)


def difference(a: Array, b: Array) -> float:
    """Computes the largest difference, relative to values above 1. NaNs and infinities at equal places count as equal."""
    import numpy as np

    x, y = a.astype(np.float64), b.astype(np.float64)
    same = (x == y) | (np.isnan(x) & np.isnan(y))
    with np.errstate(invalid="ignore"):
        off = np.where(same, 0, np.abs(x - y) / np.maximum(1, np.abs(y)))
    return float(np.max(np.nan_to_num(off, nan=np.inf, posinf=np.inf), initial=0))


def off_by(a: Array, b: Array) -> str:
    return f"by up to {difference(a, b):.3g}"
