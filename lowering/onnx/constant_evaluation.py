"""Constant evaluation: values and types of one op, from a scratch function that is converted to `popart`.

The converter types ops through `inference`, and `inference` asks for values and types here. So this file imports
neither of them: the converter is an argument.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from xdsl.dialects.builtin import ModuleOp, i32
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Attribute, Block, Operation, Region, SSAValue
from xdsl.rewriter import Rewriter
from xdsl.traits import Pure
from xdsl.utils.exceptions import VerifyException

from populus.dialects.data import ConstantOp, constant
from populus.dialects.onnx.schema import OnnxOp
from populus.dialects.onnx.structure import CustomOp
from populus.dialects.onnx.types import unknown
from populus.dialects.popart.base import PopartOp
from populus.dialects.signature import state_names
from populus.dialects.signature.bounded_dimensions import PREFIX, set_bounds, set_limits
from populus.dialects.signature.string_table import KEY
from populus.dialects.support.diagnostics import PopulusError
from populus.dialects.support.element_types import tensor
from populus.lowering.onnx.custom_ops import Customs, overriding
from populus.lowering.onnx.host_ops import handled, is_text
from populus.lowering.onnx.valid_sizes import Axes, ValidSizes

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Known = Callable[[SSAValue], NDArray[Any] | None]


class OpConverter(Protocol):
    """The two entries of `onnx-to-popart`'s converter that an evaluation calls."""

    def function(self, function: FuncOp) -> None:
        """Converts all ops of a function."""
        ...

    def operation(self, op: Operation, typed: bool = True) -> None:
        """Converts one op in its block; `typed`: its results have their types already."""
        ...

    def enter(self, function: FuncOp) -> None:
        """Begins with a function: the sizes of its arguments are known."""
        ...

    @property
    def valid(self) -> ValidSizes:
        """The valid parts of converted values."""
        ...


class ConstantEvaluation:
    """Evaluates single ops with a converter to `popart` and the interpreter.

    `customs`: the ops of users. `converter`: makes a converter for them.
    """

    def __init__(self, customs: Customs, converter: Callable[[Customs], OpConverter]):
        self.customs = customs
        self.converter = converter

    def values(self, op: OnnxOp, operands: Sequence[NDArray[Any]] | None = None) -> list[NDArray[Any]] | None:
        """Computes the results of an op as the ops that it is converted to.

        `operands`: the array of each operand; without them, each operand is a constant of the module.
        Returns None if the op cannot be converted (then `onnx-to-popart` reports why) or draws random numbers.
        """
        from populus.runtime.interpreter import run_function  # imports NumPy, which only evaluating needs

        if not op.has_trait(Pure) or any(is_text(v) for v in (*op.operands, *op.results)):
            return None
        if (override := overriding(op, self.customs)) is not None and override.SEED is not None:
            return None
        function = _function_of_constants(op, operands)
        home = function_around(op)
        if home is not None and KEY in home.attributes:  # strings among its attributes have the same handles there
            function.attributes[KEY] = home.attributes[KEY]
        module = ModuleOp([function])
        try:
            self.converter(self.customs).function(function)
            arrays = list(run_function(module, {}, function=function.sym_name.data).values())
        except (PopulusError, VerifyException):
            return None
        if home is not None and KEY in function.attributes:
            home.attributes[KEY] = function.attributes[KEY]
        return arrays

    def custom(self, op: PopartOp) -> list[NDArray[Any]] | None:
        """Computes the results of a user's op, detached, whose operands are all constants; None if it draws random numbers."""
        from populus.runtime.interpreter import run_function

        if op.SEED is not None:
            return None
        block = Block()
        mapper: dict[SSAValue, SSAValue] = {}
        for value in op.operands:
            if value not in mapper:
                assert isinstance(value.owner, ConstantOp), value
                block.add_op(copy := value.owner.clone())
                mapper[value] = copy.result
        block.add_op(copy := op.clone(mapper))
        block.add_op(ReturnOp(*copy.results))
        function = FuncOp("folded", ([], [r.type for r in op.results]), Region(block))
        return list(run_function(ModuleOp([function]), {}, function="folded").values())

    def types(self, op: OnnxOp, known: Known) -> list[Attribute]:
        """Infers the types of an op's results from the ops that it is converted to.

        `known`: gives the value of an operand, or None. Raises PopulusError if the op cannot be converted.
        """
        function = FuncOp("scratch", ([handled(v.type) for v in op.operands], []))
        block = function.body.block
        mapper: dict[SSAValue, SSAValue] = dict(zip(op.operands, block.args))
        copy, end = _copied(op, block, mapper, known)
        self.converter(self.customs).operation(copy, typed=False)
        return [v.type for v in end.operands]

    def sized(self, op: OnnxOp | CustomOp, known: Known, valid: ValidSizes) -> tuple[list[Attribute], list[Axes]]:
        """Infers types and valid parts of an op's results, as `types`, where operands have bounded dimensions.

        `valid`: what is known of the operands. Raises PopulusError if the op cannot be converted.
        """
        operands, names = list(dict.fromkeys(op.operands)), list(valid.bounds)
        function = FuncOp("scratch", ([*(handled(v.type) for v in operands), *[tensor((), i32)] * len(names)], []))
        block = function.body.block
        state_names(function, inputs=[*(f"operand_{i}" for i in range(len(operands))), *(f"{PREFIX}{name}" for name in names)])
        set_bounds(function, valid.bounds)
        set_limits(function, {str(size): n for size, n in valid.bounds.limits.items()})
        mapper: dict[SSAValue, SSAValue] = dict(zip(operands, block.args))
        copy, end = _copied(op, block, mapper, known)
        walk = self.converter(self.customs)
        walk.enter(function)
        for value, inner in mapper.items():
            if value in valid.axes:
                walk.valid.state(inner, valid.axes[value])
            if value in valid.symbols:
                walk.valid.symbols[inner] = valid.symbols[value]
        walk.operation(copy, typed=False)
        return [v.type for v in end.operands], [walk.valid.of(v) for v in end.operands]


def _function_of_constants(op: OnnxOp, operands: Sequence[NDArray[Any]] | None) -> FuncOp:
    """Builds a function of no arguments that returns the results of a copy of `op`."""
    block = Block()
    mapper: dict[SSAValue, SSAValue] = {}
    for value, array in zip(op.operands, operands or [None] * len(op.operands)):
        if value not in mapper:
            if array is None:
                assert isinstance(value.owner, ConstantOp), value
                copy = value.owner.clone()
            else:
                copy = constant(array)
            block.add_op(copy)
            mapper[value] = copy.result
    block.add_op(copy := op.clone(mapper))
    block.add_op(ReturnOp(*copy.results))
    return FuncOp("folded", ([], [r.type for r in op.results]), Region(block))


def _copied(op: Operation, block: Block, mapper: dict[SSAValue, SSAValue], known: Known) -> tuple[Operation, ReturnOp]:
    """Inserts a copy of an op, whose results have no types yet, and the block's end; gives both. Operands that are known are constants."""
    for value in list(mapper):
        if (array := known(value)) is not None and array.dtype != object:
            block.add_op(operand := constant(array))
            mapper[value] = operand.result
    block.add_op(copy := op.clone(mapper))
    for result in list(copy.results):
        Rewriter.replace_value_with_new_type(result, unknown)
    block.add_op(end := ReturnOp(*copy.results))
    return copy, end


def function_around(op: Operation) -> FuncOp | None:
    """Finds the function that an op is in; None if it is in none."""
    parent = op.parent_op()
    while parent is not None and not isinstance(parent, FuncOp):
        parent = parent.parent_op()
    return parent
