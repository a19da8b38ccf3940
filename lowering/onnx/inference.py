"""Types and small values of an `onnx` function, found in one walk.

`onnx-infer-shapes` and the later passes of this level share it.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from xdsl.dialects.builtin import TensorType, UnrankedTensorType, i64
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Attribute, Block, Operation, OpResult, SSAValue, SSAValues
from xdsl.rewriter import Rewriter
from xdsl.utils.exceptions import VerifyException

from populus.dialects.data import ConstantOp, constant_value
from populus.dialects.onnx.protos import infer_types
from populus.dialects.onnx.schema import OnnxOp, is_onnx
from populus.dialects.onnx.sizes import Size, parse
from populus.dialects.onnx.structure import CustomOp, StringsOp
from populus.dialects.onnx.types import UnknownType, as_tensor, is_static, string
from populus.dialects.popart.base import PopartOp
from populus.dialects.signature import input_names
from populus.dialects.signature.bounded_dimensions import ARGUMENTS, PREFIX, bounds, limits, set_bounds, sizes
from populus.dialects.support.budget import LARGEST_FOLDED, check_time, check_types, elements
from populus.dialects.support.dead_code import erase_dead
from populus.dialects.support.diagnostics import PopulusError, PopulusWarning, where
from populus.dialects.support.element_types import element_of, shape_of, tensor
from populus.dialects.support.uses import replace_uses
from populus.dialects.support.walk import ops_of
from populus.lowering.onnx.constant_evaluation import ConstantEvaluation
from populus.lowering.onnx.counted_masks import CountedMasks, mark_sum
from populus.lowering.onnx.custom_ops import Customs, build_custom, build_overriding, overriding
from populus.lowering.onnx.dynamic_sizes import Bound, reads_sizes
from populus.lowering.onnx.host_ops import MOVING, host_results
from populus.lowering.onnx.misjudged import misjudged
from populus.lowering.onnx.shape_arithmetic import evaluate
from populus.lowering.onnx.shape_inputs import asked_for, deciding
from populus.lowering.onnx.size_arithmetic import sizes_of
from populus.lowering.onnx.size_bounds import bound_axes, largest_types
from populus.lowering.onnx.structure import Elements, is_control, resolve
from populus.lowering.onnx.valid_sizes import ValidSizes, prefix, record, state_texts, symbol

if TYPE_CHECKING:
    from numpy.typing import NDArray


WRITE_OUT = 128  # number of ops up to which the iterations of a loop are unrolled
# ONNX's inference leaves these open: known conditions, an index for each dimension, unsorted axes before opset 10, scalars.
LEFT_OPEN = ("Compress", "GatherND", "Slice", "Transpose")
KNOWN_ELEMENTS = 1 << 16  # larger values are weights rather than shapes, and are not tracked


class PlacedError(PopulusError):
    """An error that names its op already."""


def placed(op: Operation, error: Exception) -> PlacedError:
    """Adds the location and title of an op to an error, once."""
    if isinstance(error, PlacedError):
        return error
    title = op.title() if isinstance(op, OnnxOp) else f"{op.op_type.data}" if isinstance(op, CustomOp) else op.name
    return PlacedError(f"{where(op)}: {title}: {' '.join(str(error).split())}")


def set_type(value: SSAValue, type: Attribute) -> SSAValue:
    """Gives a value another type; it keeps its name hint, location and uses."""
    if value.type == type:
        return value
    location, name = getattr(value, "location", None), value.name_hint
    new = Rewriter.replace_value_with_new_type(value, type)
    new.name_hint = name
    if location is not None:
        new.location = location  # pyright: ignore[reportAttributeAccessIssue], a block argument
    return new


def set_types(op: Operation, types: Sequence[Attribute]) -> None:
    """Gives an op's results other types; each keeps its name hint and uses. The work is that of the results and of those who read them."""
    old = list(op.results)
    new = [r if r.type == type else OpResult(type, op, r.index) for r, type in zip(old, types, strict=True)]
    for before, after in zip(old, new):
        after.name_hint = before.name_hint
    op.results = SSAValues(new)
    replace_uses(zip(old, new))


def erase_unused(block: Block) -> None:
    """Erases the `onnx` ops and constants without uses, inside loops and branches too."""
    erase_dead(block, lambda op: isinstance(op, ConstantOp | CustomOp) or is_onnx(op), inside=True)


class Inference:
    """One walk over a function: types, and values that are small and known.

    `customs`: ops of users. `evaluation`: computes values and types that ONNX's inference does not give.
    `write_out`: number of ops up to which the iterations of a loop are unrolled.
    """

    def __init__(self, customs: Customs, evaluation: ConstantEvaluation, write_out: int = WRITE_OUT, valid: ValidSizes | None = None):
        self.customs = customs
        self.valid = ValidSizes() if valid is None else valid
        self.masks = CountedMasks(self.valid)
        self.evaluation = evaluation
        self.write_out = write_out
        self.values: dict[SSAValue, NDArray[Any]] = {}
        self.lists: dict[SSAValue, Elements] = {}  # the elements of sequences
        self.resolved: list[Operation] = []
        self.overruled: list[str] = []  # types that the model states and inference contradicts

    def enter(self, function: FuncOp) -> None:
        """Begins with a function: reads the bounds of its dimensions and of sizes in it, and the sizes of its arguments."""
        for op in ops_of(function):
            self.valid.bounds.update(bounds(op))
        self.valid.bounds.limits.update({parse(text): n for text, n in limits(function).items()})
        stated = sizes(function, ARGUMENTS)
        for i, argument in enumerate(function.body.block.args):
            if i < len(stated) and any(stated[i]):
                state_texts(argument, stated[i], self.valid)
            if shape_of(argument.type) == () and (name := input_names(function)[i]).startswith(PREFIX):
                self.valid.symbols[argument] = symbol(name.removeprefix(PREFIX))

    def known(self, value: SSAValue) -> NDArray[Any] | None:
        """Gives the array of a value if it is known, small and valid as a whole; else None."""
        if value in self.valid.axes:
            return None
        array = self.values.get(value)
        if array is None and isinstance(value.owner, StringsOp):
            return value.owner.array()
        if array is None and isinstance(value.owner, ConstantOp) and elements(shape_of(value.type)) <= KNOWN_ELEMENTS:
            return constant_value(value)
        return array

    def computed(self, value: SSAValue) -> NDArray[Any] | None:
        """Gives the array of a value, computed from known ones by any ops if need be; else None."""
        if (array := self.known(value)) is not None:
            return array
        op = value.owner
        if not isinstance(op, OnnxOp) or op.regions or not op.operands:
            return None
        if not all(is_static(r.type) for r in op.results):
            return None
        operands: list[NDArray[Any]] = []
        for operand in op.operands:  # the first unknown ends it: computing the others would double the work at each op above
            array = self.computed(operand)
            if array is None:
                return None
            operands.append(array)
        results = self.evaluation.values(op, operands)
        if results is None:
            return None
        self.values.update({r: a for r, a in zip(op.results, results) if a.size <= KNOWN_ELEMENTS})
        return self.values.get(value)

    def block(self, block: Block) -> None:
        """Types the ops of a block in order."""
        for op in list(block.ops):
            self.placed_operation(op)

    def finish(self) -> None:
        """Erases the resolved ops, which until then identify the sequences that they made.

        Warns, once, if the model states a type that inference contradicts. Raises PopulusError if a sequence
        is an output.
        """
        if self.overruled:
            first, others = self.overruled[0], len(self.overruled) - 1
            warnings.warn(f"{first}; goes on without the statement{f' and {others} like it' if others else ''}", PopulusWarning, 2)
            self.overruled.clear()
        for op in reversed(self.resolved):
            if any(r.uses for r in op.results):
                raise placed(op, PopulusError("its result is a sequence that the model returns; tiles hold tensors only"))
            op.detach()
            op.erase()

    def placed_operation(self, op: Operation) -> None:
        """Types an op as `operation`, and adds its location to errors."""
        check_time()
        try:
            self.operation(op)
        except (PopulusError, VerifyException) as error:
            raise placed(op, error) from error

    def operation(self, op: Operation) -> None:
        """Types one op, or resolves it. Raises PopulusError if it has no static shape or is not supported."""
        if isinstance(op, OnnxOp) and reads_sizes(op, self.valid):
            self.open_sized(op)
            return
        if isinstance(op, CustomOp) and self.valid.concerns(op.operands):
            types, axes = self.evaluation.sized(op, self.known, self.valid)
            self.assign(op, types)
            for result, a in zip(op.results, axes):
                self.valid.state(result, a)
            record(op, self.valid)
            return
        if isinstance(op, CustomOp) and (arrays := host_results(op, self.known)) is not None:
            self.assign(op, [tensor(a.shape, string if a.dtype == object else element_of(a.dtype)) for a in arrays])
            self.values.update(zip(op.results, arrays))
        elif isinstance(op, CustomOp):
            built = build_custom(op, self.customs, self.known)
            self.assign(op, [r.type for r in built.results])
            if (arrays := self.folded(built)) is not None:
                self.values.update(zip(op.results, arrays))
            built.erase()
        elif isinstance(op, OnnxOp) and (own := overriding(op, self.customs)) is not None:
            self.overridden(op, own)
        elif isinstance(op, OnnxOp):
            if resolve(op, self):
                self.resolved.append(op)
                return
            if is_control(op):
                return
            if op.GRAPHS and any(region.blocks for region in op.regions):
                raise PopulusError(f"{op.OP_TYPE} is not supported: of the ops with subgraphs, If, Loop, Scan and SequenceMap are")
            arrays = self.arrays(op)
            if arrays is None:
                arrays = host_results(op, self.known)
            if arrays is not None:
                self.assign(op, [tensor(a.shape, string if a.dtype == object else element_of(a.dtype)) for a in arrays])
                self.values.update({r: a for r, a in zip(op.results, arrays) if a.size <= KNOWN_ELEMENTS})
            elif (largest := largest_types(op, self.known)) is not None:
                for result, type in zip(list(op.outputs), largest):
                    if result is not None:
                        set_type(result, type)
                self.mark(op, {i: Bound(axis, op) for i, axis in enumerate(bound_axes(op)) if axis is not None})
            else:
                self.assign(op, self.inferred(op))
                if (name := self.masks.summed(op)) is not None:
                    mark_sum(op, name)
                    self.valid.symbols[op.results[0]] = symbol(name, shape_of(op.results[0].type))

    def folded(self, built: Operation) -> list[NDArray[Any]] | None:
        """Computes the small results of a user's op of constants, which a shape may be; None for another op."""
        small = all(elements(shape_of(v.type)) <= KNOWN_ELEMENTS for v in (*built.operands, *built.results))
        if not isinstance(built, PopartOp) or not small or not all(isinstance(v.owner, ConstantOp) for v in built.operands):
            return None
        return self.evaluation.custom(built)

    def open_sized(self, op: OnnxOp) -> None:
        """Types an op whose operands have bounded dimensions, or are made of sizes. Raises PopulusError if it is not known how."""
        if (found := sizes_of(op, self.valid, self.known)) is not None:
            array, element = found
            self.assign(op, [tensor(array.shape, element)])
            (self.values if array.dtype != object else self.valid.symbols)[op.results[0]] = array
            return
        types, axes = self.evaluation.sized(op, self.known, self.valid)
        self.assign(op, types)
        for result, a in zip(op.results, axes):
            self.valid.state(result, a)
        record(op, self.valid)

    def overridden(self, op: OnnxOp, own: type[PopartOp]) -> None:
        """Types an op that a user's class replaces, by that class."""
        built = build_overriding(own, op)
        types = [r.type for r, o in zip(built.results, op.outputs) if o is not None]
        built.erase()
        self.assign(op, types)
        operands = [self.known(v) for v in op.operands]
        if operands and all(a is not None for a in operands):
            arrays = self.evaluation.values(op, [a for a in operands if a is not None])
            self.values.update({r: a for r, a in zip(op.results, arrays or []) if a.size <= KNOWN_ELEMENTS})

    def mark(self, op: OnnxOp, lengths: Mapping[int, Bound]) -> None:
        """Names the sizes of outputs that the data decide, and records them on the op for later passes."""
        counts: dict[object, Size] = {}
        for i, length in lengths.items():
            if (output := op.output(i)) is None:
                continue
            shape = shape_of(output.type)
            if length.count not in counts:
                counts[length.count] = self.masks.size(op, shape[length.axis])
            count = counts[length.count]
            self.valid.state(output, tuple(prefix(n, count if d == length.axis else n) for d, n in enumerate(shape)))
        if counts:
            record(op, self.valid)
            set_bounds(op, {name: self.valid.bounds[name] for count in counts.values() for name in count.names()})

    def arrays(self, op: OnnxOp) -> list[NDArray[Any]] | None:
        """Computes the results of an op if they depend on known values and shapes; else None."""
        import numpy as np

        if overriding(op, self.customs) is not None:
            return None
        first = as_tensor(op.operands[0].type) if op.operands else None
        if not op.DOMAIN and op.OP_TYPE in ("Shape", "Size") and first is not None and is_static(first):
            shape = first.get_shape()
            if op.OP_TYPE == "Size":
                return [np.array(np.prod(shape, dtype=np.int64))]
            return [np.array(shape[slice(op.property("start"), op.property("end"))], np.int64)]
        inputs: list[NDArray[Any] | None] = []
        for value in op.inputs:
            array = None if value is None else self.known(value)
            if value is not None and array is None:
                return None
            inputs.append(array)
        if not inputs:
            return None
        if any(a is not None and a.dtype == object for a in inputs) and op.OP_TYPE not in MOVING:
            return None
        try:
            return None if _grows(op, inputs) else evaluate(op, inputs)
        except (ValueError, IndexError, TypeError):  # ONNX's inference reports what is wrong
            return None

    def inferred(self, op: OnnxOp) -> list[Attribute]:
        """Infers the result types of an op by ONNX's inference, or by its conversion where ONNX's is wrong.

        Raises PopulusError for a shape that depends on values which are not known.
        """
        if misjudged(op, self.known):
            return self.evaluation.types(op, self.known)
        types = infer_types(op, self.known)
        if not all(map(is_static, types)):  # constants that quantizers write pass through ops that no shape needs otherwise
            types = infer_types(op, self.computed)
        if op.DOMAIN == "ai.onnx.preview.training" and all(isinstance(t, UnknownType) for t in types):
            types = [v.type for v in op.operands[: len(types)]]  # a gradient has the type of its tensor; ONNX has no inference for it
        merged = [r.type if _completes(r.type, t) else t for t, r in zip(types, op.results)]
        if (op.DOMAIN == "ai.onnx.ml" or (op.OP_TYPE in LEFT_OPEN and not op.DOMAIN)) and not all(map(is_static, merged)):
            converted = self.evaluation.types(op, self.known)
            # A converted label is a handle, so the element types are ONNX's.
            merged = list[Attribute](tensor(shape_of(c), _element(t, op)) for c, t in zip(converted, merged))
        for type, result in zip(merged, op.results):
            if not is_static(type) and (result.uses or not result.name_hint):
                data = ", ".join(str(v.type) for v in op.operands)
                raise PopulusError(
                    f"the shape of its result %{result.name_hint or result.index} depends on the values that it reads ({data}), "
                    f"and tiles need static shapes{asked_for(deciding(op.OP_TYPE, op.inputs))}"
                )
        return merged

    def assign(self, op: Operation, types: list[Attribute]) -> None:
        """Sets the types of an op's results. Inference overrules the types that the model states inside the graph.

        Raises PopulusError for an output of the model whose stated element type is wrong.
        """
        check_types(types, "its result")
        for result, type in zip(op.results, types):
            stated = result.type
            if _disagree(stated, type):
                line = f"its result '%{result.name_hint or result.index}' is stated to be {stated}, and is {type}"
                if _output(result) and not _same_element(stated, type):
                    raise PopulusError(line)
                self.overruled.append(str(placed(op, PopulusError(line))))
        set_types(op, [*types, *op.result_types[len(types) :]][: len(op.results)])


def _grows(op: OnnxOp, inputs: Sequence[NDArray[Any] | None]) -> bool:
    """Tells whether a result would be much larger than its operands. Raises ValueError for shapes that do not fit."""
    import numpy as np

    arrays = [a for a in inputs if a is not None]
    if op.OP_TYPE == "Tile":
        return elements(arrays[0].shape) * elements(arrays[-1].reshape(-1).tolist()) > LARGEST_FOLDED
    if op.OP_TYPE == "Expand" and arrays[0].size > 1:  # a broadcast of one element takes one element of memory
        return elements(np.broadcast_shapes(arrays[0].shape, tuple(arrays[1].tolist()))) > LARGEST_FOLDED
    if op.OP_TYPE in ("Add", "Div", "Mod", "Mul", "Sub", "Where", "Max", "Min"):
        return elements(np.broadcast_shapes(*(a.shape for a in arrays))) > LARGEST_FOLDED
    return False


def _element(type: Attribute, op: OnnxOp) -> Attribute:
    """Gives the element type of a result; a classifier's labels are strings or i64, by its attributes."""
    if isinstance(type, TensorType | UnrankedTensorType):
        return cast("TensorType[Attribute]", type).element_type
    labels = [name for name in op.properties if name.startswith("classlabels_strings")]
    return string if labels else i64


def _same_element(stated: Attribute, inferred: Attribute) -> bool:
    """Tells whether two tensor types have the same element type."""
    a, b = as_tensor(stated), as_tensor(inferred)
    return a is not None and b is not None and a.element_type == b.element_type


def _output(value: SSAValue) -> bool:
    """Tells whether a value is an output of the model. Exporters often state wrong shapes for outputs."""
    return any(isinstance(use.operation, ReturnOp) for use in value.uses)


def _completes(stated: Attribute, inferred: Attribute) -> bool:
    """Tells whether the stated type is more precise than the inferred one, and does not contradict it."""
    return isinstance(inferred, UnknownType) or (not is_static(inferred) and is_static(stated) and not _disagree(stated, inferred))


def _disagree(stated: Attribute, inferred: Attribute) -> bool:
    """Tells whether two tensor types contradict each other; an open dimension contradicts nothing."""
    a, b = as_tensor(stated), as_tensor(inferred)
    if a is None or b is None:
        return False
    if a.element_type != b.element_type or a.get_num_dims() != b.get_num_dims():
        return True
    return any(m != n and m >= 0 and n >= 0 for m, n in zip(a.get_shape(), b.get_shape()))
