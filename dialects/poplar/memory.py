"""Tile memory in the IR: variables, constants and the views of them."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, cast

from xdsl.dialects.builtin import (
    AnyFloat,
    DenseArrayBase,
    FloatAttr,
    IntegerAttr,
    IntegerType,
    Signedness,
    StringAttr,
    UnitAttr,
    UnrealizedConversionCastOp,
    i64,
)
from xdsl.dialects.builtin import TensorType as BuiltinTensorType
from xdsl.ir import Attribute, Operation, SSAValue
from xdsl.irdl import IRDLOperation, irdl_op_definition, operand_def, opt_prop_def, prop_def, result_def, traits_def
from xdsl.parser import Parser
from xdsl.printer import Printer
from xdsl.traits import EffectInstance, MemoryEffect, MemoryEffectKind, Pure
from xdsl.utils.exceptions import VerifyException

from populus.dialects.base.tensor_op import integers, ints
from populus.dialects.data import attribute_array, parse_value, value_problem
from populus.dialects.poplar.partition import Grid
from populus.dialects.poplar.types import GridAttr, TensorType, parse_grid, parse_types, print_types
from populus.dialects.poplar.view import View
from populus.dialects.support.diagnostics import PlainErrors
from populus.dialects.support.shapes import text


class _Allocates(MemoryEffect):
    """Memory that is never used may be dropped."""

    @classmethod
    def get_effects(cls, op: Operation) -> set[EffectInstance]:
        return {EffectInstance(MemoryEffectKind.ALLOC, op.results[0])}


class StorageOp(PlainErrors, IRDLOperation):
    """The base of variables and constants: a label, a layout once it is decided, an address once it is allocated.

    `outside`: in the machine's memory outside the tiles, where only copies from and to the tiles reach it.
    """

    label = prop_def(StringAttr)
    grid = opt_prop_def(GridAttr)
    address = opt_prop_def(IntegerAttr)
    outside = opt_prop_def(UnitAttr)
    result = result_def(TensorType)

    @property
    def layout(self) -> Grid | None:
        """The layout; None until it is decided."""
        return None if self.grid is None else self.grid.data

    @property
    def type(self) -> TensorType:
        """The type of the whole variable or constant."""
        return self.result.type

    def _print_storage(self, printer: Printer) -> None:
        if self.outside is not None:
            printer.print_string(" outside")
        if self.grid is not None:
            printer.print_string(f" on {self.grid.data}")
        if self.address is not None:
            printer.print_string(f" at {self.address.value.data}")
        printer.print_op_attributes(self.attributes, print_keyword=True)
        printer.print_string(" : ")
        printer.print_attribute(self.result.type)

    @staticmethod
    def _parse_storage(parser: Parser) -> tuple[dict[str, Attribute], dict[str, Attribute], Attribute]:
        properties: dict[str, Attribute] = {}
        if parser.parse_optional_keyword("outside") is not None:
            properties["outside"] = UnitAttr()
        if parser.parse_optional_keyword("on") is not None:
            properties["grid"] = GridAttr(parse_grid(parser))
        if parser.parse_optional_keyword("at") is not None:
            properties["address"] = IntegerAttr(parser.parse_integer(allow_boolean=False), i64)
        attributes = parser.parse_optional_attr_dict_with_keyword()
        parser.parse_punctuation(":")
        return properties, {} if attributes is None else dict(attributes.data), parser.parse_type()

    def _verify_layout(self) -> None:
        if self.outside is not None and (self.grid is not None or self.address is not None):
            raise VerifyException(f"'{self.label.data}' is outside the tiles and on some of them; it is one or the other")
        if self.grid is not None and (why := self.grid.data.problem(self.result.type.shape)):
            raise VerifyException(f"'{self.label.data}': {why}")


def _named(label: str, grid: Grid | None) -> dict[str, Attribute]:
    """Makes the properties of a storage op: its label, and its layout if it is decided."""
    return {"label": StringAttr(label), **({} if grid is None else {"grid": GridAttr(grid)})}


@irdl_op_definition
class VarOp(StorageOp):
    """A variable: `poplar.var "conv1" on [64 in 8 by 8, 112] order [0] at 1024 : !poplar.tensor<64x112xf32>`.

    `on` says which tile owns each element; `at` is the address of its part on every one of those tiles.
    """

    name = "poplar.var"
    traits = traits_def(_Allocates())

    def __init__(self, label: str, type: TensorType, grid: Grid | None = None):
        self.begin((), [type], _named(label, grid))

    def verify_(self) -> None:
        self._verify_layout()
        if self.grid is not None and self.grid.data.copies > 1:
            raise VerifyException(f"'{self.label.data}' has {self.grid.data.copies} copies; only a constant may lie on several tiles")

    def print(self, printer: Printer) -> None:
        printer.print_string(" ")
        printer.print_string_literal(self.label.data)
        self._print_storage(printer)

    @classmethod
    def parse(cls, parser: Parser) -> VarOp:
        label = StringAttr(parser.parse_str_literal("a label"))
        properties, attributes, type = cls._parse_storage(parser)
        return cls.create(properties={"label": label, **properties}, attributes=attributes, result_types=[type])


@irdl_op_definition
class ConstOp(StorageOp):
    """A constant in tile memory: `poplar.const "conv1/W" #data.stored<"70ba..."> on [...] : !poplar.tensor<...>`. Never written."""

    name = "poplar.const"
    value = prop_def(Attribute)
    traits = traits_def(Pure())

    def __init__(self, label: str, value: Attribute, type: TensorType, grid: Grid | None = None):
        self.begin((), [type], {**_named(label, grid), "value": value})

    def array(self) -> Any:
        """Returns the value, read-only (`data.attribute_array`)."""
        return attribute_array(self.value, BuiltinTensorType(self.type.element, self.type.shape))

    def scalar(self) -> Attribute:
        """Returns the value of a constant of one element, as an attribute of its element type."""
        element, value = self.type.element, self.array().reshape(-1)[0]
        if isinstance(element, AnyFloat):
            return FloatAttr(float(value), element)
        return IntegerAttr(int(value), cast("IntegerType[int, Signedness]", element))

    def verify_(self) -> None:
        if why := value_problem(self.value, BuiltinTensorType(self.type.element, self.type.shape)):
            raise VerifyException(why)
        self._verify_layout()

    def print(self, printer: Printer) -> None:
        printer.print_string(" ")
        printer.print_string_literal(self.label.data)
        printer.print_string(" ")
        printer.print_attribute(self.value)
        self._print_storage(printer)

    @classmethod
    def parse(cls, parser: Parser) -> ConstOp:
        label = StringAttr(parser.parse_str_literal("a label"))
        value = parse_value(parser)
        properties, attributes, type = cls._parse_storage(parser)
        return cls.create(properties={"label": label, "value": value, **properties}, attributes=attributes, result_types=[type])


PARAMETER_KINDS = ("in", "out", "inout")


@irdl_op_definition
class ParamOp(StorageOp):
    """A parameter of a function: `poplar.param in "x" on [64 in 8] order [0] : !poplar.tensor<64xf32>`.

    `in` is read, `out` is written in full, `inout` both. Memory of the function's own as far as layout, address and cost go.
    """

    name = "poplar.param"
    kind = prop_def(StringAttr)
    traits = traits_def(_Allocates())

    def __init__(self, kind: str, label: str, type: TensorType, grid: Grid | None = None):
        super().__init__(properties={**_named(label, grid), "kind": StringAttr(kind)}, result_types=[type])

    @property
    def read(self) -> bool:
        """True if a call copies its argument in."""
        return self.kind.data != "out"

    @property
    def written(self) -> bool:
        """True if a call changes its argument."""
        return self.kind.data != "in"

    def verify_(self) -> None:
        if self.kind.data not in PARAMETER_KINDS:
            raise VerifyException(f"'{self.label.data}' is {self.kind.data}, which is not one of {', '.join(PARAMETER_KINDS)}")
        parent = self.parent_op()
        before = self.prev_op
        if parent is None or parent.name != "poplar.func" or not (before is None or isinstance(before, ParamOp)):
            raise VerifyException(f"'{self.label.data}' stands behind other ops or outside of a function; parameters come first in one")
        self._verify_layout()
        if self.written and self.grid is not None and self.grid.data.copies > 1:
            raise VerifyException(f"'{self.label.data}' has {self.grid.data.copies} copies; a parameter that is written has one")

    def print(self, printer: Printer) -> None:
        printer.print_string(f" {self.kind.data} ")
        printer.print_string_literal(self.label.data)
        self._print_storage(printer)

    @classmethod
    def parse(cls, parser: Parser) -> ParamOp:
        kind = next((k for k in PARAMETER_KINDS if parser.parse_optional_keyword(k) is not None), None)
        if kind is None:
            parser.raise_error(f"a parameter is one of {', '.join(PARAMETER_KINDS)}")
        label = StringAttr(parser.parse_str_literal("a label"))
        properties, attributes, type = cls._parse_storage(parser)
        return cls.create(properties={"kind": StringAttr(kind), "label": label, **properties}, attributes=attributes, result_types=[type])


class ViewOp(PlainErrors, IRDLOperation):
    """Another look at the same memory; moves nothing."""

    x = operand_def(TensorType)
    y = result_def(TensorType)
    traits = traits_def(Pure())

    @abstractmethod
    def apply(self, view: View) -> View | None:
        """Computes the result's view of the variable from the operand's; None if no strides can express it."""

    def check(self, x: Sequence[int]) -> None:
        """Raises VerifyException if `apply` would not take a view of the shape x: a text may ask before the op is verified."""

    def shown(self, view: View) -> View:
        """Gives what `apply` gives, computed once while the operand's view, the type and the properties stay as they are.

        A view is asked for its strides by each pass, and by each view of it: a hundred times in a net.
        Raises VerifyException if no strides can express it.
        """
        given = (self.y.type, *self.properties.values())
        kept = cast("tuple[View, tuple[Attribute, ...], View] | None", vars(self).get("shown_before"))
        if kept is not None and kept[0] is view and kept[1] == given:
            return kept[2]
        self.check(view.shape)
        result = self.apply(view)
        if result is None:
            raise VerifyException(f"{self.name} has no strides to say what it shows; it takes a copy")
        vars(self)["shown_before"] = (view, given, result)
        return result

    def verify_(self) -> None:
        if type_of(self.x).reshaped(self.y.type.shape) != self.y.type:
            raise VerifyException(f"the element type changes from {type_of(self.x).element_text} to {self.y.type.element_text}")
        seen = view_of(self.x)
        self.check(seen.shape)
        shown = self.apply(seen)
        if shown is None:
            wanted = text(self.y.type.shape)
            raise VerifyException(f"{text(seen.shape)} with strides {seen.strides} cannot be seen as {wanted}; it takes a copy")
        if shown.shape != self.y.type.shape:
            raise VerifyException(f"the result is {text(self.y.type.shape)}, the view {text(shown.shape)}")


@irdl_op_definition
class SliceOp(ViewOp):
    """`x[begins : ends : steps]`; steps may be negative. Source: poplar::Tensor::slice, subSample, reverse."""

    name = "poplar.slice"
    begins = prop_def(DenseArrayBase.constr(i64))
    ends = prop_def(DenseArrayBase.constr(i64))
    steps = prop_def(DenseArrayBase.constr(i64))

    def __init__(self, x: SSAValue, begins: Sequence[int], ends: Sequence[int], steps: Sequence[int]):
        view = View.whole(type_of(x).shape).slice(begins, ends, steps)
        bounds = {"begins": begins, "ends": ends, "steps": steps}
        self.begin([x], [type_of(x).reshaped(view.shape)], {k: integers(v) for k, v in bounds.items()})

    def apply(self, view: View) -> View:
        return view.slice(ints(self.begins), ints(self.ends), ints(self.steps))

    def check(self, x: Sequence[int]) -> None:
        for n, begin, end, step in zip(x, ints(self.begins), ints(self.ends), ints(self.steps)):
            size = max(0, -(-(end - begin) // step)) if step else 0
            if step == 0 or (size and not (0 <= begin < n and 0 <= begin + (size - 1) * step < n)):
                raise VerifyException(f"[{begin}:{end}:{step}] leaves a dimension of {n}")
        if not len(self.begins) == len(self.ends) == len(self.steps) == len(x):
            raise VerifyException(f"{len(x)} dimensions need as many bounds")

    def print(self, printer: Printer) -> None:
        bounds = (f"{b}:{e}" + (f":{s}" if s != 1 else "") for b, e, s in zip(ints(self.begins), ints(self.ends), ints(self.steps)))
        printer.print_string(" ")
        printer.print_ssa_value(self.x)
        printer.print_string(f"[{', '.join(bounds)}]")
        print_types(printer, self.attributes, self.x.type, self.y.type)

    @classmethod
    def parse(cls, parser: Parser) -> SliceOp:
        operand = parser.parse_unresolved_operand()

        def bound() -> tuple[int, int, int]:
            begin = parser.parse_integer(allow_boolean=False)
            parser.parse_punctuation(":")
            end = parser.parse_integer(allow_boolean=False)
            step = parser.parse_integer(allow_boolean=False) if parser.parse_optional_punctuation(":") is not None else 1
            return begin, end, step

        bounds = parser.parse_comma_separated_list(parser.Delimiter.SQUARE, bound)
        attributes, source, result = parse_types(parser)
        columns = list(zip(*bounds)) or [(), (), ()]
        properties = {k: integers(v) for k, v in zip(("begins", "ends", "steps"), columns)}
        x = parser.resolve_operand(operand, source)
        return cls.create(operands=[x], properties=properties, attributes=attributes, result_types=[result])


@irdl_op_definition
class ReshapeOp(ViewOp):
    """The same elements in row-major order under another shape. Source: poplar::Tensor::reshape."""

    name = "poplar.reshape"
    assembly_format = "$x attr-dict `:` type($x) `->` type($y)"

    def __init__(self, x: SSAValue, shape: Sequence[int]):
        self.begin([x], [type_of(x).reshaped(shape)], {})

    def apply(self, view: View) -> View | None:
        return view.reshape(self.y.type.shape)

    def check(self, x: Sequence[int]) -> None:
        y = self.y.type.shape
        if math.prod(x) != math.prod(y):
            raise VerifyException(f"{text(x)} has {math.prod(x)} elements, {text(y)} has {math.prod(y)}")


@irdl_op_definition
class BroadcastOp(ViewOp):
    """x stretched to the result's shape, right-aligned; not for writing. Source: poplar::Tensor::broadcast."""

    name = "poplar.broadcast"
    assembly_format = "$x attr-dict `:` type($x) `->` type($y)"

    def __init__(self, x: SSAValue, shape: Sequence[int]):
        self.begin([x], [type_of(x).reshaped(shape)], {})

    def apply(self, view: View) -> View:
        return view.broadcast(self.y.type.shape)

    def check(self, x: Sequence[int]) -> None:
        y = self.y.type.shape
        if len(x) > len(y) or any(n not in (1, m) for n, m in zip(reversed(x), reversed(y))):
            raise VerifyException(f"{text(x)} does not stretch to {text(y)}")


@irdl_op_definition
class DimShuffleOp(ViewOp):
    """Dimension i of the result is dimension permutation[i] of x. Source: poplar::Tensor::dimShuffle."""

    name = "poplar.dim_shuffle"
    permutation = prop_def(DenseArrayBase.constr(i64))

    def __init__(self, x: SSAValue, permutation: Sequence[int]):
        shape = type_of(x).shape
        self.begin([x], [type_of(x).reshaped([shape[d] for d in permutation])], {"permutation": integers(permutation)})

    def apply(self, view: View) -> View:
        return view.dim_shuffle(ints(self.permutation))

    def check(self, x: Sequence[int]) -> None:
        if sorted(ints(self.permutation)) != list(range(len(x))):
            raise VerifyException(f"{list(ints(self.permutation))} is not a permutation of {len(x)} dimensions")

    def print(self, printer: Printer) -> None:
        printer.print_string(" ")
        printer.print_ssa_value(self.x)
        printer.print_string(f" [{', '.join(map(str, ints(self.permutation)))}]")
        print_types(printer, self.attributes, self.x.type, self.y.type)

    @classmethod
    def parse(cls, parser: Parser) -> DimShuffleOp:
        operand = parser.parse_unresolved_operand()
        permutation = parser.parse_comma_separated_list(parser.Delimiter.SQUARE, lambda: parser.parse_integer(allow_boolean=False))
        attributes, source, result = parse_types(parser)
        x = parser.resolve_operand(operand, source)
        properties = {"permutation": integers(permutation)}
        return cls.create(operands=[x], properties=properties, attributes=attributes, result_types=[result])


def type_of(value: SSAValue) -> TensorType:
    """Returns the type of a view."""
    assert isinstance(value.type, TensorType), value.type
    return value.type


def root_of(value: SSAValue) -> SSAValue:
    """Returns the root of a chain of views: a variable, a constant, or, between two lowering passes, a cast."""
    while isinstance(owner := value.owner, ViewOp):
        value = owner.x
    return value


def storage_of(value: SSAValue) -> StorageOp:
    """Returns the variable or constant whose memory a view shows."""
    owner = root_of(value).owner
    assert isinstance(owner, StorageOp), owner
    return owner


def unwritable(value: SSAValue, copied: bool = False) -> str | None:
    """Returns the reason why a view is not writable: "is a constant, which", "shows an element more than once, so it"; None if it is.

    `copied`: by a copy, of the same type. Nothing else writes in a block format, for which it would have to round.
    """
    owner = root_of(value).owner
    if type_of(value).block and not copied:
        return f"is in format {type_of(value).block}, so it"
    if isinstance(owner, ConstOp):
        return "is a constant, which"
    if isinstance(owner, ParamOp) and not owner.written:
        return "is an in parameter, which"
    return "shows an element more than once, so it" if view_of(value).repeats else None


def view_of(value: SSAValue) -> View:
    """Computes the view of a variable or constant that a value of the tile level is. O(views in between).

    Between two lowering passes the root may be the cast of a tensor that is not lowered yet; it counts as a variable.
    """
    owner = value.owner
    if isinstance(owner, ViewOp):
        return owner.shown(view_of(owner.x))
    if isinstance(owner, StorageOp) or isinstance(owner, UnrealizedConversionCastOp):  # noqa: SIM101, a union is made at each call
        return type_of(value).whole
    raise VerifyException("a view of something that is neither a variable, a constant nor a parameter")
