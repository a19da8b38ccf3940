"""The node for which a function is written, and the texts that functions share."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Any, cast

from xdsl.dialects.builtin import DYNAMIC_INDEX, TensorType

from populus.dialects.support.diagnostics import PopulusError


class Call:
    """A node for which a function is written: its inputs are `x0`, `x1`, .., its outputs `y0`, `y1`, .."""

    def __init__(
        self,
        op_type: str,
        inputs: Sequence[bool],
        outputs: Sequence[bool],
        attributes: Mapping[str, Any],
        types: Sequence[TensorType | None] = (),
    ):
        self.op_type, self.present, self.read, self.attributes, self.types = op_type, inputs, outputs, attributes, types
        self.inputs, self.outputs = len(inputs), len(outputs)

    def has(self, i: int) -> bool:
        """Tells whether input `i` is present."""
        return i < self.inputs and self.present[i]

    def wants(self, i: int) -> bool:
        """Tells whether output `i` has a name."""
        return i < self.outputs and self.read[i]

    def type(self, i: int) -> TensorType | None:
        """Gives the type of input `i`; None if the file does not state it."""
        return self.types[i] if i < len(self.types) else None

    def element(self, i: int) -> str | None:
        """Gives the element type of input `i`, as `ui8` or `f32`; None if the file does not state it."""
        return None if (type := self.type(i)) is None else str(type.element_type)

    def require_elements(self, i: int, name: str, count: int, meaning: str) -> None:
        """Raises PopulusError if input `i` is known to have another number of elements than `count`."""
        type = self.type(i)
        if type is not None and DYNAMIC_INDEX not in type.get_shape() and (found := prod(type.get_shape())) != count:
            raise PopulusError(f"{name} has {found} elements; expected {count}, {meaning}")

    def get(self, name: str, default: Any) -> Any:
        """Gives an attribute, text as str, or `default`."""
        value = self.attributes.get(name, default)
        return value.decode() if isinstance(value, bytes) else value

    def required(self, name: str) -> Any:
        """Gives an attribute. Raises PopulusError if the node lacks it."""
        if name not in self.attributes:
            raise PopulusError(f"{self.op_type} needs the attribute '{name}'")
        return self.get(name, None)

    def optional(self, i: int) -> str:
        """Writes `, x3` if input 3 is present, else nothing."""
        return f", x{i}" if self.has(i) else ""

    def arguments(self, first: int = 0, last: int | None = None) -> str:
        """Writes the inputs from `first` on, those before `last`: `x1, x2`."""
        return ", ".join(f"x{i}" for i in range(first, min(self.inputs, self.inputs if last is None else last)))

    def listed(self, *names: str) -> str:
        """Writes the named attributes that the node has: `<pads = [1, 1], ceil_mode = 0>`."""
        texts = [f"{name} = {text(self.attributes[name])}" for name in names if name in self.attributes]
        return f"<{', '.join(texts)}>" if texts else ""

    def refuse(self, *attributes: str) -> None:
        """Raises PopulusError for an attribute that is set, but not supported."""
        for name in attributes:
            if self.get(name, 0):
                raise PopulusError(f"{self.op_type} with {name} is not supported")

    def refuse_input(self, i: int, name: str) -> None:
        """Raises PopulusError if input `i` is present, which is not supported."""
        if self.has(i):
            raise PopulusError(f"{self.op_type} with the input {name} is not supported")


Body = Callable[[Call], str]


def text(value: Any) -> str:
    """Writes an attribute's value."""
    match value:
        case bytes():
            return f'"{value.decode()}"'
        case float():
            return repr(value) if "." in repr(value) or "e" in repr(value) else f"{value}.0"
        case list():
            return f"[{', '.join(map(text, cast('list[Any]', value)))}]"
        case _:
            return str(value)


def number(value: float, name: str = "k", like: str = "x0") -> str:
    """Writes a constant of the element type of `like`."""
    return f"{name}_f = Constant <value = float {{{float(value)!r}}}> ()\n{name} = CastLike ({name}_f, {like})\n"


def integers(name: str, *values: int) -> str:
    """Writes a list of `i64`."""
    return f"{name} = Constant <value = int64[{len(values)}] {{{', '.join(map(str, values))}}}> ()\n"


def same(op: str, *attributes: str) -> Body:
    """Makes the function of an op that ONNX has under the name `op`."""
    return lambda c: f"y0 = {op} {c.listed(*attributes)} ({c.arguments()})\n"
