"""The lines of a StableHLO program in the generic form, as they are written: ops, constants, regions."""

from __future__ import annotations

import json
from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from xdsl.dialects.builtin import TensorType, i1, i32
from xdsl.ir import Attribute

from populus.dialects.support.element_types import dtype_of, element_type_of, is_float, shape_of, tensor

if TYPE_CHECKING:
    from numpy.typing import NDArray


@dataclass(frozen=True)
class Value:
    """A value of the program: its name, and its type's parts."""

    name: str
    shape: tuple[int, ...]
    element: Attribute

    @property
    def type(self) -> TensorType[Attribute]:
        """The type."""
        return tensor(self.shape, self.element)


@dataclass
class Structure:
    """An op with regions that is being written."""

    text: Text
    results: list[Value] = field(default_factory=list[Value])
    count: int = 0

    @contextmanager
    def region(self, arguments: Sequence[Value]) -> Generator[list[Value]]:
        """Writes a region; gives values for its arguments, which are of the types of those given."""
        t = self.text
        if self.count:
            t.lines.append("}, {\n")
        self.count += 1
        made = [Value(t.fresh(), v.shape, v.element) for v in arguments]
        if made:
            t.lines.append(f"^bb0({', '.join(f'{v.name}: {v.type}' for v in made)}):\n")
        yield made

    def end(self, values: Sequence[Value]) -> None:
        """Ends a region with what it returns."""
        self.text.lines.append(_return(values))


def _return(values: Sequence[Value]) -> str:
    return f'"stablehlo.return"({", ".join(v.name for v in values)}) : ({", ".join(str(v.type) for v in values)}) -> ()\n'


class Text:
    """The text so far. `place`: the name in the model of what is written now."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.place = ""
        self._count = 0

    def fresh(self) -> str:
        """Makes the name of a value."""
        self._count += 1
        return f"%{self._count - 1}"

    def take(self) -> list[str]:
        """Gives the lines since the last time."""
        found, self.lines = self.lines, []
        return found

    def argument(self, type: Attribute) -> Value:
        """Names an argument of @main."""
        return Value(self.fresh(), shape_of(type), element_type_of(type))

    def several(
        self, kind: str, operands: Sequence[Value], types: Sequence[Attribute], attributes: dict[str, str], region: str = ""
    ) -> list[Value]:
        """Writes an op and gives its results. `kind`: its name, of `stablehlo` if it states no dialect."""
        name = self.fresh()
        called = kind if "." in kind else f"stablehlo.{kind}"
        given = f" <{{{', '.join(f'{k} = {v}' for k, v in attributes.items())}}}>" if attributes else ""
        left = name if len(types) == 1 else f"{name}:{len(types)}"
        self.lines.append(
            f'{left} = "{called}"({", ".join(v.name for v in operands)}){given}{region} : '
            f"({', '.join(str(v.type) for v in operands)}) -> ({', '.join(map(str, types))}){self._location()}\n"
        )
        return self._results(name, types)

    def _location(self) -> str:
        return f" loc({json.dumps(self.place)})" if self.place else ""

    def _results(self, name: str, types: Sequence[Attribute]) -> list[Value]:
        names = [name] if len(types) == 1 else [f"{name}#{i}" for i in range(len(types))]
        return [Value(n, shape_of(t), element_type_of(t)) for n, t in zip(names, types)]

    def op(
        self,
        kind: str,
        operands: Sequence[Value],
        shape: Sequence[int],
        element: Attribute,
        attributes: dict[str, str] | None = None,
        region: str = "",
    ) -> Value:
        """Writes an op of one result."""
        return self.several(kind, operands, [tensor(tuple(shape), element)], attributes or {}, region)[0]

    @contextmanager
    def regions(self, kind: str, operands: Sequence[Value], types: Sequence[Attribute]) -> Generator[Structure]:
        """Writes an op with regions, which are written inside."""
        name, place = self.fresh(), self._location()
        left = f"{name} = " if len(types) == 1 else f"{name}:{len(types)} = " if types else ""
        self.lines.append(f'{left}"stablehlo.{kind}"({", ".join(v.name for v in operands)}) ({{\n')
        made = Structure(self, self._results(name, types))
        yield made
        self.lines.append(f"}}) : ({', '.join(str(v.type) for v in operands)}) -> ({', '.join(map(str, types))}){place}\n")

    # -- attributes --------------------------------------------------------------------------------------------------

    @staticmethod
    def array(values: Iterable[int]) -> str:
        """Formats a list of integers."""
        listed = ", ".join(str(int(v)) for v in values)
        return f"array<i64: {listed}>" if listed else "array<i64>"

    @staticmethod
    def pairs(values: Iterable[tuple[int, int]]) -> str:
        """Formats pads: a lower and an upper one for each dimension."""
        listed = [f"[{int(a)}, {int(b)}]" for a, b in values]
        return f"dense<[{', '.join(listed)}]> : tensor<{len(listed)}x2xi64>"

    # -- ops that rules share ----------------------------------------------------------------------------------------

    def constant(self, array: NDArray[Any], element: Attribute) -> Value:
        """Writes a constant."""
        type = tensor(array.shape, element)
        return self.op("constant", [], array.shape, element, {"value": f"{dense(array, element)} : {type}"})

    def filled_with(self, value: float, type: Attribute) -> Value:
        """Writes a constant of equal elements."""
        element = element_type_of(type)
        return self.constant(np.broadcast_to(np.array(value, dtype_of(element)), shape_of(type)), element)

    def filled(self, value: float, like: Value) -> Value:
        """Writes a constant of equal elements, of another value's type."""
        return self.filled_with(value, like.type)

    def same(self, kind: str, *values: Value) -> Value:
        """Writes an element-wise op on values of one type, which is the result's."""
        return self.op(kind, values, values[0].shape, values[0].element)

    def compare(self, direction: str, a: Value, b: Value) -> Value:
        """Writes a comparison."""
        return self.op("compare", [a, b], a.shape, i1, {"comparison_direction": f"#stablehlo<comparison_direction {direction}>"})

    def cast(self, x: Value, to: Attribute) -> Value:
        """Converts elements, unless they have the type."""
        return x if x.element == to else self.op("convert", [x], x.shape, to)

    def reshape(self, x: Value, to: Sequence[int]) -> Value:
        """Reshapes, unless the value has the shape."""
        return x if x.shape == tuple(to) else self.op("reshape", [x], to, x.element)

    def spread(self, x: Value, to: Sequence[int], dims: Iterable[int]) -> Value:
        """Broadcasts; `dims`: for each dimension of the value, that of the result."""
        return self.op("broadcast_in_dim", [x], to, x.element, {"broadcast_dimensions": self.array(dims)})

    def stretch(self, x: Value, to: Sequence[int]) -> Value:
        """Broadcasts to a shape as NumPy does, unless the value has it."""
        return x if x.shape == tuple(to) else self.spread(x, to, range(len(to) - len(x.shape), len(to)))

    def row(self, table: Value, i: Value) -> Value:
        """Reads a row of a table."""
        sizes = (1, *table.shape[1:])
        at = [i, *(self.constant(np.array(0, np.int32), i32) for _ in table.shape[1:])]
        found = self.op("dynamic_slice", [table, *at], sizes, table.element, {"slice_sizes": self.array(sizes)})
        return self.reshape(found, table.shape[1:])

    def put_row(self, table: Value, row: Value, i: Value) -> Value:
        """Writes a row of a table."""
        at = [i, *(self.constant(np.array(0, np.int32), i32) for _ in table.shape[1:])]
        return self.op("dynamic_update_slice", [table, self.reshape(row, (1, *row.shape)), *at], table.shape, table.element)

    # -- regions on scalars ------------------------------------------------------------------------------------------

    def combiner(self, kind: str | None, element: Attribute) -> str:
        """Formats a region that combines two scalars by an op; without one, the second stays."""
        a, b, c = (Value(self.fresh(), (), element) for _ in range(3))
        made = f'{c.name} = "stablehlo.{kind}"({a.name}, {b.name}) : ({a.type}, {b.type}) -> {c.type}\n' if kind else ""
        return f" ({{\n^bb0({a.name}: {a.type}, {b.name}: {b.type}):\n{made}{_return([c if kind else b])}}})"

    def before(self, element: Attribute, largest: bool) -> str:
        """Formats the comparator of a sort of elements with their positions. NaN is the largest."""
        kept, self.lines = self.lines, []
        a, b = (Value(self.fresh(), (), element) for _ in range(2))
        places = [Value(self.fresh(), (), i32) for _ in range(2)]
        first = self.compare("GT" if largest else "LT", a, b)
        if is_float(element):
            odd, other = (self.compare("NE", v, v) for v in ((a, b) if largest else (b, a)))
            first = self.same("or", first, self.same("and", odd, self.same("not", other)))
        inside, self.lines = "".join(self.lines), kept
        head = ", ".join(f"{v.name}: {v.type}" for v in (a, b, *places))
        return f" ({{\n^bb0({head}):\n{inside}{_return([first])}}})"


def dense(array: NDArray[Any], element: Attribute) -> str:
    """Formats the elements of a constant: one for equal ones, a list of booleans, or the bytes of others."""
    dtype = dtype_of(element)
    if not array.size:
        return "dense<>"
    if all(s == 0 for s, n in zip(array.strides, array.shape) if n > 1):
        return f"dense<{_literal(array.reshape(-1)[0] if not array.shape else array[(0,) * array.ndim], element)}>"
    if dtype == np.bool_:
        return f"dense<{str(array.tolist()).lower()}>"
    return f'dense<"0x{np.ascontiguousarray(array).tobytes().hex().upper()}">'


def _literal(value: Any, element: Attribute) -> str:
    if not is_float(element):
        return str(value).lower() if element == i1 else str(int(value))
    if not np.isfinite(np.float64(value)):
        return f'"0x{np.asarray(value).tobytes().hex().upper()}"'
    return f"{float(value):.{16 if dtype_of(element).itemsize == 8 else 8}e}"
