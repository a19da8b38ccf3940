"""Values of codelets written in Python, with NumPy: an array has one dimension for each lane."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NoReturn, TypeAlias

import numpy as np
from numpy.typing import NDArray

from populus.dialects import expr
from populus.dialects.poplar.tile_program import MOST, Apply, Call, Load, Name, Number, Site, Size, Statement, TileCode, Value, parts
from populus.runtime.codelets.task import Array
from populus.runtime.expr import evaluate

Values: TypeAlias = Any  # a NumPy number, or an array with one dimension for each lane
Mask: TypeAlias = "bool | NDArray[np.bool_]"  # the lanes that take part; True: all


@dataclass
class Frame:
    """State of a run: variables, marks of written elements, and the lanes that have left turns and functions."""

    values: dict[str, Values] = field(default_factory=dict[str, Any])
    written: dict[str, NDArray[np.bool_]] = field(default_factory=dict[str, Any])
    continued: list[Mask] = field(default_factory=list[Any])
    returned: list[Mask] = field(default_factory=lambda: list[Any]((False,)))


_where: Callable[[Any, Any, Any], Any] = np.where  # its own overloads are narrower

Step: TypeAlias = Callable[[Frame, Mask], Mask]
Get: TypeAlias = Callable[[Frame, Mask], Values]


def both(a: Mask, b: Mask) -> Mask:
    """Gives the lanes that are in both; False if there is none."""
    if a is True or b is False:
        return b
    if b is True or a is False:
        return a
    found = a & b
    return found if found.any() else False


def either(a: Mask, b: Mask) -> Mask:
    """Gives the lanes that are in one of them."""
    if a is True or b is True:
        return True
    return b if a is False else a if b is False else a | b


def without(a: Mask, b: Mask) -> Mask:
    """Gives the lanes of a that are not in b."""
    return both(a, (not b) if isinstance(b, bool) else ~b)


def as_mask(condition: Values) -> Mask:
    """Gives the lanes where a condition holds."""
    if np.ndim(condition) == 0:
        return bool(condition)
    return condition if condition.any() else False


def merged(mask: Mask, value: Values, old: Values) -> Values:
    """Gives the value on the lanes of a mask, and the old one on the others."""
    return value if mask is True else _where(mask, value, old)


class ValueProgram:
    """Turns values into functions of a frame and a mask."""

    def __init__(self, code: TileCode, arrays: Mapping[str, Array], tracked: frozenset[str]):
        self.code, self.arrays, self.tracked = code, dict(arrays), tracked
        wide = any(arrays[v].dtype == np.float64 for v, kind in code.kinds.items() if kind == "float")
        self.types: dict[str, Any] = {"float": np.float64 if wide else np.float32, "int": np.int64, "bool": np.bool_}
        self.sizes = {axis: arrays[v].shape[d] for v, axes in code.axes.items() for d, axis in enumerate(axes)}
        self.scratch: set[str] = set()

    def block(self, body: Sequence[Statement]) -> Step:
        """Turns statements into a step."""
        raise NotImplementedError

    def fail(self, site: Site, bad: Values, values: Values) -> NoReturn:
        """Raises CodeletError for the first lane at which `bad` holds, with the value there."""
        raise NotImplementedError

    def shape(self, vector: str) -> tuple[int, ...]:
        """Gives a vector's shape, without the lanes of a scratch vector."""
        shape = self.arrays[vector].shape
        return shape[len(self.code.lanes) :] if vector in self.scratch else shape

    def get(self, value: Value) -> Get:
        """Turns a value into a function."""
        match value:
            case Number():
                number = self.types[value.kind](value.value)
                return lambda frame, mask: number
            case Name():
                name = value.name
                return lambda frame, mask: frame.values[name]
            case Size():
                size = np.int64(self.shape(value.vector)[value.dim])
                return lambda frame, mask: size
            case Load():
                return self.load(value)
            case Call():
                return self.call(value)
            case Apply("and" | "or" | "select"):
                return self.lazy(value)
            case Apply():
                return self.apply(value)

    def call(self, value: Call) -> Get:
        """Calls a helper: its statements run on the lanes that need its value."""
        body, result = self.block(value.body), value.result.name

        def call(frame: Frame, mask: Mask) -> Values:
            frame.returned.append(False)
            body(frame, mask)
            frame.returned.pop()
            return frame.values.get(result)

        return call

    def lazy(self, value: Apply) -> Get:
        """Computes operands of `and`, `or` and `select` on the lanes that need them."""
        if value.function == "select":
            a, b, condition = map(self.get, value.args)
        elif value.function == "and":
            condition, a, b = self.get(value.args[0]), self.get(value.args[1]), self.get(Number(False, "bool"))
        else:
            condition, a, b = self.get(value.args[0]), self.get(Number(True, "bool")), self.get(value.args[1])
        eager = not any(
            isinstance(p, Load | Call) or (isinstance(p, Apply) and p.kind == "int" and p.function in _BAD)
            for v in value.args
            for p in parts(v)
        )

        def get(frame: Frame, mask: Mask) -> Values:
            chosen = condition(frame, mask)
            if np.ndim(chosen) == 0:
                return a(frame, mask) if chosen else b(frame, mask)
            if eager:
                return _where(chosen, a(frame, mask), b(frame, mask))
            one, two = both(mask, as_mask(chosen)), both(mask, as_mask(~chosen))
            if one is False:
                return b(frame, mask)
            return a(frame, mask) if two is False else _where(chosen, a(frame, one), b(frame, two))

        return get

    def apply(self, value: Apply) -> Get:
        """Computes a function of values, and checks the operands that it may not have."""
        args = [self.get(a) for a in value.args]
        name, line = value.function, value.line
        if name == "float":
            function: Callable[..., Values] = partial(_converted, dtype=self.types["float"])
        elif value.args[0].kind == "int" and name in _OF_INTEGERS:
            function = _OF_INTEGERS[name]
        else:
            function = FUNCTIONS[name]
        bad = _BAD.get(name) if value.kind == "int" and line else None
        if bad is None:
            if len(args) == 2:
                first, second = args
                return lambda frame, mask: function(first(frame, mask), second(frame, mask))
            return lambda frame, mask: function(*(a(frame, mask) for a in args))
        test, why = bad

        def checked(frame: Frame, mask: Mask) -> Values:
            given = [a(frame, mask) for a in args]
            if np.any(found := test(given[-1])):
                if np.any(found & mask):
                    self.fail(Site(why, line), found & mask, given[-1])
                given[-1] = _where(found, given[-1].dtype.type(1), given[-1])
            return function(*given)

        return checked

    # -- elements

    def load(self, load: Load) -> Get:
        """Loads elements."""
        array, dtype = self.arrays[load.vector], self.types[load.kind]
        at = self.place(load.vector, load.index, load.line)
        tracked, site = load.vector in self.tracked, Site("unwritten", load.line, load.vector)

        def get(frame: Frame, mask: Mask) -> Values:
            index, order, shape = at(frame, mask)
            if tracked:
                marks = frame.written[load.vector][index] if order is None else _seen(frame.written[load.vector], index, order, shape)
                if np.any(~marks & mask):
                    self.fail(site, ~marks & mask, np.int64(0))
            if order is not None:
                return _seen(array, index, order, shape).astype(dtype)
            return array[index].astype(dtype)

        return get

    def lane(self, axis: str) -> NDArray[np.int64]:
        """Gives 0, 1, ... along the axis's own dimension."""
        shape = [1] * len(self.code.lanes)
        shape[self.code.lanes.index(axis)] = self.sizes[axis]
        return np.arange(self.sizes[axis], dtype=np.int64).reshape(tuple(shape))

    def place(self, vector: str, index: Sequence[Value], line: int) -> Callable[[Frame, Mask], tuple[Any, Any, Any]]:
        """Builds the function that locates an access.

        It returns an index. If the index consists of slices, it also returns the order and the shape that bring its
        dimensions to the lanes'.
        """
        if vector in self.scratch:
            return self.scratch_place(vector, index, line)
        shape, lanes = self.arrays[vector].shape, self.code.lanes
        own = [self.code.loops.get(i.name) if isinstance(i, Name) else None for i in index]
        gets = [self.get(i) for i in index]
        named = [a for a in own if a is not None]
        regular = len(set(named)) == len(named)
        dims = [lanes.index(a) for a in named]
        order = tuple(sorted(range(len(dims)), key=lambda d: dims[d]))
        seen = tuple(self.sizes[a] if a in named else 1 for a in lanes) if named else ()

        def at(frame: Frame, mask: Mask) -> tuple[Any, Any, Any]:
            entries: list[Any] = []
            slices = regular
            for d, (get, axis, n) in enumerate(zip(gets, own, shape)):
                if axis is not None:
                    entries.append(slice(None))
                    continue
                i = self.inside(Site("index", line, vector, d), n, get(frame, mask), mask)
                single = np.ndim(i) == 0
                slices = slices and single
                # A Python int: NumPy's indexing by a 0-d array gives a copy, and a store into a copy is lost.
                entries.append(int(i) if single else i)
            if slices:
                return tuple(entries), order, seen
            return tuple(frame.values[f" {a}"] if a is not None else i for a, i in zip(own, entries)), None, None

        return at

    def scratch_place(self, vector: str, index: Sequence[Value], line: int) -> Callable[[Frame, Mask], tuple[Any, Any, Any]]:
        """Builds the function that locates an element of each lane's scratch vector."""
        gets, shape, lanes = [self.get(i) for i in index], self.shape(vector), self.code.lanes

        def at(frame: Frame, mask: Mask) -> tuple[Any, Any, Any]:
            own = [self.inside(Site("index", line, vector, d), n, get(frame, mask), mask) for d, (get, n) in enumerate(zip(gets, shape))]
            return (*(frame.values[f" {a}"] for a in lanes), *(int(i) if np.ndim(i) == 0 else i for i in own)), None, None

        return at

    def inside(self, site: Site, n: int, i: Values, mask: Mask) -> Values:
        """Checks an index, and makes it harmless on the lanes that do not take part."""
        outside = (i < 0) | (i >= n)
        if np.any(outside):
            if np.any(outside & mask):
                self.fail(site, outside & mask, i)
            i = _where(outside, 0, i)
        return i


def _seen(array: Array, index: tuple[Any, ...], order: Any, shape: Any) -> Array:
    return array[(*index, ...)].transpose(order).reshape(shape)


def _apart(function: Callable[..., Any]) -> Callable[..., Values]:
    """Wraps a function so that a single element rounds as a vector does.

    NumPy's loop for one element rounds differently from its loop for two or more.
    """

    def apply(*args: Values) -> Values:
        spread = np.broadcast_arrays(*args)
        shape = spread[0].shape
        flat = [np.ascontiguousarray(x).reshape(-1) for x in spread]
        if flat[0].size == 1:
            flat = [np.repeat(x, 2) for x in flat]
        result = function(*flat)[: math.prod(shape)]
        return result.reshape(shape) if shape else result[0]

    return apply


def _converted(x: Values, dtype: Any) -> Values:
    return x.astype(dtype)


def _each(function: Callable[[float], float]) -> Callable[..., Values]:
    """Makes a function of arrays of one of Python's; where Python raises, the value is infinite, or NaN for a NaN."""

    def one(x: float) -> float:
        try:
            return function(x)
        except ValueError:
            return math.nan if math.isnan(x) or x == -math.inf or function is math.gamma else math.inf
        except OverflowError:
            return math.inf

    def apply(x: Values) -> Values:
        return np.array([one(float(v)) for v in x], x.dtype)

    return apply


def _erf(x: Values) -> Values:
    return evaluate(expr.erf(expr.Arg(1)), [x])


def _floored(function: Callable[[Any, Any], Any]) -> Callable[..., Values]:
    """Makes // or % of integers, whose lowest has no opposite."""

    def apply(a: Values, b: Values) -> Values:
        safe = _where(b == -1, np.int64(1), b)
        turned = np.negative(a) if function is np.floor_divide else np.zeros_like(a)
        result = _where(b == -1, turned, function(a, safe))
        return result if np.ndim(result) else np.int64(result)

    return apply


def _shifted(a: Values, b: Values) -> Values:
    result = _where(b < 64, np.left_shift(a, np.minimum(b, 63)), 0)
    return result if np.ndim(result) else np.int64(result)


def _shifted_back(a: Values, b: Values) -> Values:
    return np.right_shift(a, np.minimum(b, 63))


FUNCTIONS: dict[str, Callable[..., Values]] = {
    "abs": np.abs,
    "acos": _apart(np.arccos),
    "acosh": _apart(np.arccosh),
    "add": np.add,
    "asin": _apart(np.arcsin),
    "asinh": _apart(np.arcsinh),
    "atan": _apart(np.arctan),
    "atan2": _apart(np.arctan2),
    "atanh": _apart(np.arctanh),
    "bitand": np.bitwise_and,
    "bitor": np.bitwise_or,
    "bitxor": np.bitwise_xor,
    "cbrt": _apart(np.cbrt),
    "ceil": np.ceil,
    "copysign": np.copysign,
    "cos": _apart(np.cos),
    "cosh": _apart(np.cosh),
    "div": np.divide,
    "eq": np.equal,
    "erf": _apart(_erf),
    "erfc": _apart(_each(math.erfc)),
    "exp": _apart(np.exp),
    "exp2": _apart(np.exp2),
    "expm1": _apart(np.expm1),
    "floor": np.floor,
    "floordiv": np.floor_divide,
    "fmod": np.fmod,
    "gamma": _apart(_each(math.gamma)),
    "ge": np.greater_equal,
    "gt": np.greater,
    "hypot": _apart(np.hypot),
    "int": partial(_converted, dtype=np.int64),  # rounds towards 0
    "isfinite": np.isfinite,
    "isinf": np.isinf,
    "isnan": np.isnan,
    "le": np.less_equal,
    "lgamma": _apart(_each(math.lgamma)),
    "log": _apart(np.log),
    "log10": _apart(np.log10),
    "log1p": _apart(np.log1p),
    "log2": _apart(np.log2),
    "lt": np.less,
    "max": lambda a, b: _picked(b > a, b, a),  # as Python has it: the first one, unless the second is more
    "min": lambda a, b: _picked(b < a, b, a),
    "mod": np.mod,
    "mul": np.multiply,
    "ne": np.not_equal,
    "neg": np.negative,
    "not": np.logical_not,
    "pow": _apart(np.power),
    "round": np.rint,
    "sin": _apart(np.sin),
    "sinh": _apart(np.sinh),
    "sqrt": np.sqrt,
    "sub": np.subtract,
    "tan": _apart(np.tan),
    "tanh": _apart(np.tanh),
    "trunc": np.trunc,
}
_OF_INTEGERS: dict[str, Callable[..., Values]] = {
    "floordiv": _floored(np.floor_divide),
    "mod": _floored(np.mod),
    "shl": _shifted,
    "shr": _shifted_back,
}
_BAD: dict[str, tuple[Callable[[Any], Any], str]] = {
    "floordiv": (lambda b: b == 0, "zero"),
    "int": (lambda x: ~(np.abs(x) < MOST), "int"),
    "mod": (lambda b: b == 0, "zero"),
    "shl": (lambda b: b < 0, "shift"),
    "shr": (lambda b: b < 0, "shift"),
}


def _picked(condition: Any, a: Values, b: Values) -> Values:
    return _where(condition, a, b) if np.ndim(condition) else a if condition else b
