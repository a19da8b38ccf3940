"""Types and small values of an `onnx` function, found in one walk: what `onnx-infer-shapes` and the passes behind it share."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from xdsl.dialects.builtin import TensorType, UnrankedTensorType, i64
from xdsl.dialects.func import ReturnOp
from xdsl.ir import Attribute, Block, Operation, SSAValue
from xdsl.rewriter import Rewriter
from xdsl.utils.exceptions import VerifyException

from populus.dialects.data import ConstantOp, constant_value
from populus.dialects.onnx.protos import infer_types
from populus.dialects.onnx.schema import OnnxOp, is_onnx
from populus.dialects.onnx.structure import CustomOp, StringsOp
from populus.dialects.onnx.types import UnknownType, as_tensor, is_static, string
from populus.dialects.support.budget import LARGEST_FOLDED, check_types, elements
from populus.dialects.support.diagnostics import PopulusError, PopulusWarning, where
from populus.dialects.support.element_types import element_of, shape_of, tensor
from populus.lowering.onnx.constant_evaluation import ConstantEvaluation
from populus.lowering.onnx.custom_ops import Customs, build_custom, build_overriding, overriding
from populus.lowering.onnx.dynamic_sizes import REFUSED, Bound, mark, passed_on
from populus.lowering.onnx.host_ops import MOVING, host_results
from populus.lowering.onnx.misjudged import misjudged
from populus.lowering.onnx.shape_arithmetic import evaluate
from populus.lowering.onnx.size_bounds import bound_axes, largest_types
from populus.lowering.onnx.structure import Elements, is_control, resolve

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from populus.dialects.popart.base import PopartOp

WRITE_OUT = 128  # ops that the iterations of a loop may make, to be written out in a row
# Of known conditions, of an index for each dimension, of axes in another order before opset 10, of scalars.
LEFT_OPEN = ("Compress", "GatherND", "Slice", "Transpose")
KNOWN_ELEMENTS = 1 << 16  # values of more elements are not followed: they are weights, no shapes


class PlacedError(PopulusError):
    """An error that names its op already."""


def placed(op: Operation, error: Exception) -> PlacedError:
    """An error with the place and the title of the op that it is about."""
    if isinstance(error, PlacedError):
        return error
    title = op.title() if isinstance(op, OnnxOp) else f"{op.op_type.data}" if isinstance(op, CustomOp) else op.name
    return PlacedError(f"{where(op)}: {title}: {' '.join(str(error).split())}")


def set_type(value: SSAValue, type: Attribute) -> SSAValue:
    """The value with another type; it keeps name, place and uses."""
    if value.type == type:
        return value
    location, name = getattr(value, "location", None), value.name_hint
    new = Rewriter.replace_value_with_new_type(value, type)
    new.name_hint = name
    if location is not None:
        new.location = location  # pyright: ignore[reportAttributeAccessIssue], a block argument
    return new


def erase_unused(block: Block) -> None:
    """Erases the `onnx` ops and constants whose results nothing reads, inside loops and branches too."""
    for op in reversed(list(block.ops)):
        for region in op.regions:
            for inner in region.blocks:
                erase_unused(inner)
        if (isinstance(op, ConstantOp | CustomOp) or is_onnx(op)) and op.results and not any(r.uses for r in op.results):
            op.detach()
            op.erase()


class Inference:
    """One walk over a function: types, and the values of what is small and known."""

    def __init__(self, customs: Customs, evaluation: ConstantEvaluation, write_out: int = WRITE_OUT):
        self.customs = customs
        self.evaluation = evaluation
        self.write_out = write_out
        self.values: dict[SSAValue, NDArray[Any]] = {}
        self.lists: dict[SSAValue, Elements] = {}  # the elements of sequences
        self.resolved: list[Operation] = []
        self.bounded: dict[SSAValue, Bound] = {}  # as large as the data may make them
        self.overruled: list[str] = []  # what the file states of values and is not so

    def known(self, value: SSAValue) -> NDArray[Any] | None:
        """The elements of a value, where they are known and few."""
        found = self.values.get(value)
        if found is None and isinstance(value.owner, StringsOp):
            return value.owner.array()
        if found is None and (found := constant_value(value)) is not None and found.size > KNOWN_ELEMENTS:
            return None
        return found

    def computed(self, value: SSAValue) -> NDArray[Any] | None:
        """As `known`, and where it follows from what is known by any ops: those are run."""
        if (found := self.known(value)) is not None:
            return found
        op = value.owner
        if not isinstance(op, OnnxOp) or op.regions or not op.operands:
            return None
        if not all(is_static(r.type) for r in op.results):
            return None
        given: list[NDArray[Any]] = []
        for operand in op.operands:  # one that is not known ends it: to ask the others too would double the work at each op above
            array = self.computed(operand)
            if array is None:
                return None
            given.append(array)
        results = self.evaluation.values(op, given)
        if results is None:
            return None
        self.values.update({r: a for r, a in zip(op.results, results) if a.size <= KNOWN_ELEMENTS})
        return self.values.get(value)

    def block(self, block: Block) -> None:
        for op in list(block.ops):
            self.placed_operation(op)

    def finish(self) -> None:
        """Erases the ops that were resolved. They stay until then: sequences are known by their results.

        Warns, once, if the file stated types of values that were overruled.
        """
        if self.overruled:
            first, others = self.overruled[0], len(self.overruled) - 1
            warnings.warn(f"{first}; goes on without the statement{f' and {others} like it' if others else ''}", PopulusWarning, 2)
            self.overruled.clear()
        for op in reversed(self.resolved):
            if any(r.uses for r in op.results):
                raise placed(op, PopulusError("its result is a sequence that the model gives back; tiles hold tensors only"))
            op.detach()
            op.erase()

    def placed_operation(self, op: Operation) -> None:
        """As `operation`, with the op's place in errors."""
        try:
            self.operation(op)
        except (PopulusError, VerifyException) as error:
            raise placed(op, error) from error

    def operation(self, op: Operation) -> None:
        if isinstance(op, OnnxOp | CustomOp) and any(v in self.bounded for v in op.operands):
            self.partly_valid(op)
            return
        if isinstance(op, CustomOp) and (found := host_results(op, self.known)) is not None:
            self.assign(op, [tensor(a.shape, string if a.dtype == object else element_of(a.dtype)) for a in found])
            self.values.update(zip(op.results, found))
        elif isinstance(op, CustomOp):
            built = build_custom(op, self.customs)
            types = [r.type for r in built.results]
            built.erase()
            self.assign(op, types)
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

    def overridden(self, op: OnnxOp, own: type[PopartOp]) -> None:
        """An op whose place a user's op takes: types and values are those of the user's."""
        built = build_overriding(own, op)
        types = [r.type for r, o in zip(built.results, op.outputs) if o is not None]
        built.erase()
        self.assign(op, types)
        given = [self.known(v) for v in op.operands]
        if given and all(a is not None for a in given):
            arrays = self.evaluation.values(op, [a for a in given if a is not None])
            self.values.update({r: a for r, a in zip(op.results, arrays or []) if a.size <= KNOWN_ELEMENTS})

    def partly_valid(self, op: Operation) -> None:
        """An op that reads what the data may leave valid in part only."""
        if not isinstance(op, OnnxOp) or is_control(op):
            raise PopulusError(REFUSED.format(op.OP_TYPE if isinstance(op, OnnxOp) else "an op of another domain"))
        if (own := overriding(op, self.customs)) is not None:
            raise PopulusError(REFUSED.format(own.name))
        bounds = {i: self.bounded[v] for i, v in enumerate(op.inputs) if v is not None and v in self.bounded}
        self.assign(op, self.inferred(op))
        self.mark(op, passed_on(op, bounds, self.known).outputs)

    def mark(self, op: OnnxOp, bounds: Mapping[int, Bound]) -> None:
        """Outputs of an op that are valid in part."""
        self.bounded.update({output: b for i, b in bounds.items() if (output := op.output(i)) is not None})
        mark(op, {i: b.axis for i, b in bounds.items()})

    def arrays(self, op: OnnxOp) -> list[NDArray[Any]] | None:
        """The values of the results, if they follow from what is known."""
        import numpy as np

        if overriding(op, self.customs) is not None:
            return None
        first = as_tensor(op.operands[0].type) if op.operands else None
        if not op.DOMAIN and op.OP_TYPE in ("Shape", "Size") and first is not None and is_static(first):
            shape = first.get_shape()
            if op.OP_TYPE == "Size":
                return [np.array(np.prod(shape, dtype=np.int64))]
            return [np.array(shape[slice(op.property("start"), op.property("end"))], np.int64)]
        inputs = [None if v is None else self.known(v) for v in op.inputs]
        if not inputs or any(v is not None and a is None for v, a in zip(op.inputs, inputs)):
            return None
        if any(a is not None and a.dtype == object for a in inputs) and op.OP_TYPE not in MOVING:
            return None
        try:
            return None if _grows(op, inputs) else evaluate(op, inputs)
        except (ValueError, IndexError, TypeError):  # not a value of ours to judge: ONNX's inference says what is wrong
            return None

    def inferred(self, op: OnnxOp) -> list[Attribute]:
        if misjudged(op, self.known):
            return self.evaluation.types(op, self.known)
        types = infer_types(op, self.known)
        if op.DOMAIN == "ai.onnx.preview.training" and all(isinstance(t, UnknownType) for t in types):
            types = [v.type for v in op.operands[: len(types)]]  # a gradient is like what it is of; ONNX has no inference for it
        merged = [r.type if _completes(r.type, t) else t for t, r in zip(types, op.results)]
        if (op.DOMAIN == "ai.onnx.ml" or (op.OP_TYPE in LEFT_OPEN and not op.DOMAIN)) and not all(map(is_static, merged)):
            found = self.evaluation.types(op, self.known)
            # A label is a handle by then: the element types are ONNX's.
            merged = list[Attribute](tensor(shape_of(f), _element(t, op)) for f, t in zip(found, merged))
        for type, result in zip(merged, op.results):
            if not is_static(type) and (result.uses or not result.name_hint):
                data = ", ".join(str(v.type) for v in op.operands)
                raise PopulusError(
                    f"the shape of its result %{result.name_hint or result.index} depends on the values that it reads ({data}), "
                    "and tiles need static shapes"
                )
        return merged

    def assign(self, op: Operation, types: list[Attribute]) -> None:
        """Gives the results of an op their types; what the file states of values between inputs and outputs binds nobody.

        Raises PopulusError for an output of the model whose element type is stated wrongly.
        """
        check_types(types, "its result")
        for result, type in zip(list(op.results), types):
            stated = result.type
            if _disagree(stated, type):
                line = f"its result '%{result.name_hint or result.index}' is stated to be {stated}, and is {type}"
                if _output(result) and not _same_element(stated, type):
                    raise PopulusError(line)
                self.overruled.append(str(placed(op, PopulusError(line))))
            set_type(result, type)


def _grows(op: OnnxOp, inputs: Sequence[NDArray[Any] | None]) -> bool:
    """Whether a result would be much larger than what is known. Raises ValueError for shapes that do not fit."""
    import numpy as np

    given = [a for a in inputs if a is not None]
    if op.OP_TYPE == "Tile":
        return elements(given[0].shape) * elements(given[-1].reshape(-1).tolist()) > LARGEST_FOLDED
    if op.OP_TYPE == "Expand" and given[0].size > 1:  # one element stays one, however large the result
        return elements(np.broadcast_shapes(given[0].shape, tuple(given[1].tolist()))) > LARGEST_FOLDED
    if op.OP_TYPE in ("Add", "Div", "Mod", "Mul", "Sub", "Where", "Max", "Min"):
        return elements(np.broadcast_shapes(*(a.shape for a in given))) > LARGEST_FOLDED
    return False


def _element(type: Attribute, op: OnnxOp) -> Attribute:
    """The element type of a result; a classifier's labels are strings or integers by which of them it has."""
    if isinstance(type, TensorType | UnrankedTensorType):
        return cast("TensorType[Attribute]", type).element_type
    labels = [name for name in op.properties if name.startswith("classlabels_strings")]
    return string if labels else i64


def _same_element(stated: Attribute, found: Attribute) -> bool:
    a, b = as_tensor(stated), as_tensor(found)
    return a is not None and b is not None and a.element_type == b.element_type


def _output(value: SSAValue) -> bool:
    """Whether a value is an output of the model. The shapes that exporters state for these are often wrong."""
    return any(isinstance(use.operation, ReturnOp) for use in value.uses)


def _completes(stated: Attribute, found: Attribute) -> bool:
    """Whether what the file states says more than what was found, and does not contradict it."""
    return isinstance(found, UnknownType) or (not is_static(found) and is_static(stated) and not _disagree(stated, found))


def _disagree(stated: Attribute, found: Attribute) -> bool:
    """Whether two tensor types contradict each other; what is open in one contradicts nothing."""
    a, b = as_tensor(stated), as_tensor(found)
    if a is None or b is None:
        return False
    if a.element_type != b.element_type or a.get_num_dims() != b.get_num_dims():
        return True
    return any(m != n and m >= 0 and n >= 0 for m, n in zip(a.get_shape(), b.get_shape()))
