"""A model of a single op with inputs, on its `EXAMPLES` or on operands of one shape, for `check-op` and `--audit-op`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp
from xdsl.utils.exceptions import VerifyException

from populus.dialects.base.tensor_op import Plain
from populus.dialects.popart.definition import Definition, Property
from populus.dialects.popart.examples import Input, Operand
from populus.dialects.support.constraints import OneOf, WholeWithin, Within
from populus.dialects.support.diagnostics import PopulusError
from populus.dialects.support.element_types import dtype_of, is_float
from populus.program.compile import compile
from populus.program.options import EngineName, LevelName
from populus.program.program import Program
from populus.runtime.differences import largest_difference
from populus.write.builder import Builder

if TYPE_CHECKING:
    from numpy.typing import NDArray

Array: TypeAlias = "NDArray[Any]"
Example: TypeAlias = "tuple[Sequence[Operand], Mapping[str, Plain]]"

SHAPE = (3, 7)
SHAPES = (2, 11, 3, 5, 2, 3)  # by rank, for ops of one rank only; 11 is not a whole number of blocks
SEED = 3  # of the inputs that are not stated


class OpModel:
    """Models of an op. `examples`: operands and attributes, given, from its class, or by default.

    `differentiable`: its gradient is checked there.
    """

    def __init__(self, definition: Definition, examples: Sequence[Example] = (), differentiable: bool = True):
        self.definition = definition
        self.has_gradient = definition.has_gradient and differentiable
        stated: list[Example] = [(list(o), dict(a)) for o, a in examples or definition.op.EXAMPLES]
        self.stated = bool(stated)
        self.examples: Sequence[Example] = stated or [([SHAPE] * len(definition.operands), self.required())]
        self.doing = ""  # for a message

    def module(self, example: Example, dtype: str = "float32") -> ModuleOp:
        """Builds the model of an example, whose floats are of `dtype` where the op has it. Its operands are `x0`, `x1`, .."""
        operands, properties = example
        b = Builder(self.definition.name)
        values = [None if o is None else self._operand(b, i, example, dtype) for i, o in enumerate(operands)]
        for i, result in enumerate(b.op(self.definition.op, *values, name=self.definition.name, **properties)):
            b.output(f"y{i}" if i else "y", result)
        return b.module()

    def _operand(self, b: Builder, i: int, example: Example, dtype: str) -> Any:
        stated, of = self.stated_at(example, i), self.dtype_at(example, i, dtype)
        if self.name_at(example, i) in self.definition.op.CONSTANTS:
            return b.constant(stated.array(of, SEED + i))
        return b.input(f"x{i}", stated.sizes, of)

    def name_at(self, example: Example, i: int) -> str:
        """Gives the name in the op's class of operand `i` of an example; empty if the class has fewer."""
        taken = self.definition.taken(len(example[0]))
        return taken[i].name if i < len(taken) else ""

    @staticmethod
    def stated_at(example: Example, i: int) -> Input:
        """Gives operand `i` of an example, which is there."""
        stated = example[0][i]
        assert stated is not None, i
        return stated if isinstance(stated, Input) else Input(tuple(stated))

    def dtype_at(self, example: Example, i: int, dtype: str) -> Any:
        """Gives the element type of operand `i` where floats are of `dtype`."""
        stated = self.stated_at(example, i)
        if stated.dtype is not None:
            return stated.dtype
        taken = self.definition.taken(len(example[0]))
        of = taken[i].elements if i < len(taken) else ()
        return self._element(dtype) if not of or any(is_float(e) for e in of) else dtype_of(of[0])

    def _element(self, dtype: str) -> str:
        allowed = {dtype_of(e).name for o in self.definition.operands for e in o.elements if is_float(e)}
        return dtype if not allowed or dtype in allowed else max(allowed)

    def required(self) -> dict[str, Plain]:
        """Gives a value for each attribute without a default."""
        return {p.name: next(others(p, None), 0.5) for p in self.definition.properties.values() if p.required}

    def op(self, module: ModuleOp) -> Any:
        """Finds the op in its model."""
        return next(op for op in module.walk() if isinstance(op, self.definition.op))

    def inputs(self, example: Example, dtype: str = "float32", seed: int = SEED) -> dict[str, Array]:
        """Makes the inputs of an example."""
        there = [i for i, o in enumerate(example[0]) if o is not None and self.name_at(example, i) not in self.definition.op.CONSTANTS]
        return {f"x{i}": self.stated_at(example, i).array(self.dtype_at(example, i, dtype), seed + i) for i in there}

    def is_possible(self, example: Example, dtype: str) -> bool:
        """Tells whether the op takes the example with floats of `dtype`."""
        try:
            self.module(example, dtype)
        except (PopulusError, VerifyException):
            return False
        return True

    def changed(self, example: Example) -> Iterator[tuple[str, Plain, ModuleOp, Example]]:
        """Yields the name, value, model and example of each attribute changed to another value that the op allows, two at most."""
        operands, properties = example
        for name, p in self.definition.properties.items():
            tried = 0
            for other in others(p, properties.get(name)):
                again = (operands, {**properties, name: other})
                try:
                    module = self.module(again)
                except (PopulusError, VerifyException):
                    continue
                yield name, other, module, again
                tried += 1
                if tried == 2:
                    break

    def run(
        self, module: ModuleOp, inputs: dict[str, Array], *, level: LevelName = "poplar", tiles: int = 1, engine: EngineName = "numpy"
    ) -> dict[str, Array]:
        """Runs a model at a level."""
        self.doing = f"running it at {level}" + (f" on {tiles} tiles, engine {engine}" if level == "poplar" else "")
        program: Program = compile(module, level=level, tiles=tiles, engine=engine)
        return program.run(inputs)


def function_of(module: ModuleOp) -> FuncOp:
    """Finds the function of a model."""
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
        "strings": [("a",), ("b", "c")],
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
    """Computes the largest difference, relative to values above 1. NaNs and infinities at equal places count as equal.

    That of integers, which do not round, is relative to nothing.
    """
    import numpy as np

    if a.shape != b.shape:
        return float("inf")
    if _whole(a, b):
        return largest_difference(a, b).absolute
    x, y = a.astype(np.float64), b.astype(np.float64)
    same = (x == y) | (np.isnan(x) & np.isnan(y))
    with np.errstate(invalid="ignore"):
        off = np.where(same, 0, np.abs(x - y) / np.maximum(1, np.abs(y)))
    return float(np.max(np.nan_to_num(off, nan=np.inf, posinf=np.inf), initial=0))


def close(one: Array, two: Array, noise: float = 1e-6) -> bool:
    """Compares values of single precision, whose orders of sums may differ. `noise`: of sums of values of about 1.

    Where all values are small, so is the noise. Integers are equal.
    """
    import numpy as np

    if one.shape != two.shape or _whole(one, two):
        return difference(one, two) == 0
    a, b = one.astype(np.float64), two.astype(np.float64)
    largest = float(np.max(np.abs(b[np.isfinite(b)]), initial=0))
    return bool(np.allclose(a, b, rtol=10 * noise, atol=noise * min(1.0, largest), equal_nan=True))


def _whole(a: Array, b: Array) -> bool:
    return a.dtype.kind in "iub" and b.dtype.kind in "iub"


def off_by(a: Array, b: Array) -> str:
    """Formats the largest difference; of small values that of the values themselves."""
    import numpy as np

    if a.shape != b.shape:
        return f"shape {list(a.shape)}, not {list(b.shape)}"
    found = difference(a, b)
    largest = float(np.max(np.abs(b[np.isfinite(b)]), initial=0)) if b.dtype.kind != "b" else 1.0
    return f"by up to {found:.3g}" if largest >= 1 or found == float("inf") else f"by up to {found:.3g}, of {largest:.3g}"
