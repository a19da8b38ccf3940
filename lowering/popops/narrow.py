"""Narrowing (`popops-narrow`): replaces element types that a target cannot hold by the nearest that it can."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from xdsl.context import Context
from xdsl.dialects.builtin import ArrayAttr, ModuleOp, bf16, f16, f32, f64
from xdsl.dialects.func import FuncOp
from xdsl.ir import Attribute, Block, Operation, SSAValue
from xdsl.passes import ModulePass
from xdsl.rewriter import Rewriter

from populus.dialects import expr
from populus.dialects.base.control_flow import blocks_of
from populus.dialects.data import ConstantOp, array_attribute
from populus.dialects.poplar.target import Spec
from populus.dialects.popops import ReduceOp
from populus.dialects.support.diagnostics import PopulusError, where
from populus.dialects.support.element_types import (
    dtype_of,
    element_type_of,
    is_integer,
    is_packed,
    is_unsigned,
    shape_of,
    size_in_bytes,
    tensor,
)

# Replacements of a type, in order of preference: the first that the target holds is taken.
INSTEAD: dict[Attribute, tuple[Attribute, ...]] = {f64: (f32, f16), bf16: (f32,), f32: (f16,)}
DIGITS: dict[Attribute, int] = {f64: 53, f32: 24, f16: 11, bf16: 8}  # of a significand: integers up to 2^digits are held


@dataclass(frozen=True)
class PopopsNarrowPass(ModulePass):
    """Replaces element types that the target cannot hold, such as f64 by f32. No pipeline has this pass by default.

    Streams keep the model's types. The host's data is converted on the way, and a value that overflows is an
    error then. A constant that overflows is an error now. `target`: the target that must hold the types; None:
    the host. Raises PopulusError for a constant that overflows, for an expression on the bits of a narrowed type, and
    for a cast of integers that the narrower type cannot hold. To rounding.
    """

    name = "popops-narrow"
    target: str | None = None

    @cached_property
    def _map(self) -> dict[Attribute, Attribute]:
        machine = Spec.of(self.target or "host").target()
        return {
            type: next(t for t in instead if machine.holds(t))
            for type, instead in INSTEAD.items()
            if not machine.holds(type) and any(machine.holds(t) for t in instead)
        }

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        if not self._map:
            return
        for function in op.body.block.ops:
            if isinstance(function, FuncOp):
                self._function(function)

    def _function(self, function: FuncOp) -> None:
        block = function.body.block
        last = block.last_op
        assert last is not None
        for key, values in (("input_types", block.args), ("output_types", last.operands)):
            if function.sym_visibility is None and key not in function.attributes:  # a private function has no streams
                function.attributes[key] = ArrayAttr([_element(v) for v in values])
        for inner in blocks_of(block):
            self._block(inner)
        function.update_function_type()

    def _block(self, block: Block) -> None:
        for argument in list(block.args):
            self._retype(argument)
        for op in block.ops:
            if isinstance(op, ConstantOp):
                self._constant(op)
                continue
            for name, attribute in list(op.properties.items()):
                if isinstance(attribute, expr.ExprAttr):
                    self._holds_integers(op, attribute.data)
                op.properties[name] = self._attribute(attribute)
            if isinstance(op, ReduceOp) and op.to == _element(op.x):
                op.to = None
            for result in list(op.results):
                self._retype(result)

    def _retype(self, value: SSAValue) -> None:
        element = _element(value)
        if element in self._map:
            Rewriter.replace_value_with_new_type(value, tensor(shape_of(value.type), self._map[element]))

    def _attribute(self, attribute: Attribute) -> Attribute:
        if isinstance(attribute, expr.ExprAttr):
            return expr.ExprAttr(self._expr(attribute.data))
        return self._map.get(attribute, attribute)

    def _holds_integers(self, op: Operation, e: expr.Expr) -> None:
        """Raises PopulusError if an expression casts integers to a type whose replacement has fewer digits than they."""
        match e:
            case expr.Cast(x, to):
                own = expr.infer(x, [_element(v) for v in op.operands]) if expr.args_of(x) else to
                narrow = self._map.get(to, to)
                if narrow != to and DIGITS[narrow] < min(DIGITS[to], _integer_digits(own)):
                    raise PopulusError(
                        f"{where(op)}: {own} is cast to {to}, which target {self.target} holds as {narrow}, and that rounds integers "
                        f"beyond {2 ** DIGITS[narrow]:,}; cast to {narrow} in the model if they may be rounded"
                    )
                self._holds_integers(op, x)
            case expr.Call(_, args):
                for a in args:
                    self._holds_integers(op, a)
            case _:
                pass

    def _expr(self, e: expr.Expr) -> expr.Expr:
        match e:
            case expr.Cast(x, type, bits):
                if bits:
                    raise PopulusError(f"bits of elements are taken, which narrower types do not have: {e}")
                return expr.Cast(self._expr(x), self._map.get(type, type))
            case expr.Call(function, args):
                return expr.Call(function, tuple(map(self._expr, args)))
            case _:
                return e

    def _constant(self, op: ConstantOp) -> None:
        element = _element(op.result)
        if element not in self._map:
            return
        array, narrow = op.array(), dtype_of(self._map[element])
        with np.errstate(over="ignore"):
            new = array.astype(narrow)
        if lost := _overflow(array, new):
            instead = f"{self._map[element]}, which target {self.target} holds instead"
            raise PopulusError(f"{where(op)}: the constant {lost} does not fit {instead}")
        op.value = array_attribute(new)
        self._retype(op.result)


def _overflow(old: NDArray[Any], new: NDArray[Any]) -> str | None:
    bad = np.isfinite(old) & ~np.isfinite(new)
    return str(old[bad].reshape(-1)[0]) if bad.any() else None


def _integer_digits(element: Attribute) -> int:
    """Counts the binary digits of an integer type's largest number; 0 for another type."""
    return 8 * size_in_bytes(element) - (not is_unsigned(element)) if is_integer(element) and not is_packed(element) else 0


def _element(value: SSAValue) -> Attribute:
    return element_type_of(value.type)
