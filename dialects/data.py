"""The `data` dialect: constants of every value-semantic level, with large ones kept outside the IR.

    %w = data.constant #data.stored<"70bae6b8c0ffee00"> : tensor<64x3x7x7xf32> loc("conv1/W")
    %k = data.constant dense<0.5> : tensor<f32>

A stored constant is a handle: the attribute is a name, and the content lies in `TABLE`, as long as an attribute has the handle.
In a text the name is the hash of the content; a file of weights beside it brings the content back (`save_blobs`, `load_blobs`).
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias, TypeGuard, cast

from xdsl.dialects.builtin import BytesAttr, DenseIntOrFPElementsAttr, IntAttr, ModuleOp, StringAttr, TensorType
from xdsl.ir import Attribute, Data, Dialect, Operation, ParametrizedAttribute, SSAValue
from xdsl.irdl import IRDLOperation, irdl_attr_definition, irdl_op_definition, prop_def, result_def, traits_def
from xdsl.parser import AttrParser, Parser
from xdsl.printer import Printer
from xdsl.traits import ConstantLike, Pure
from xdsl.utils.exceptions import VerifyException

from populus.dialects.support.block_floats import MAGNITUDES
from populus.dialects.support.budget import check_bytes
from populus.dialects.support.constant_pool import current_pool
from populus.dialects.support.constant_table import PIECE, SAMPLES, TABLE, EqualContents, Handle, key_of
from populus.dialects.support.diagnostics import PlainErrors, PopulusError, did_you_mean, named, option
from populus.dialects.support.element_types import dtype_of, element_of, element_type_of, is_float, shape_of, size_in_bytes, tensor
from populus.dialects.support.parser import LocatingParser
from populus.dialects.support.sparse_arrays import blocks, bytes_of_concatenated, concatenated, contiguous
from populus.dialects.support.tensor_file import write_tensors

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

Dense: TypeAlias = "DenseIntOrFPElementsAttr[Any]"

LATER = 1 << 16  # bytes of a constant that is made when it is read
INLINE_ELEMENTS = 64  # a constant of more elements is stored outside the IR, unless all are equal


def store(array: NDArray[Any]) -> Handle:
    """Adds the array's content, C-contiguous, to the table; shares memory with `array` if that is contiguous.

    Among modules that share a pool, equal contents have one handle.
    """
    import numpy as np

    flat = contiguous(array).reshape(-1).view(np.uint8)
    pool = current_pool()
    return TABLE.add(flat) if pool is None else pool.of(flat, TABLE.add)


@irdl_attr_definition
class StoredAttr(Data[Handle]):
    """`#data.stored<"70bae6b8c0ffee00">`: the handle of a constant, printed as the hash of its content.

    Two are equal if their handles are one; `EqualContents` and `same_value` compare contents.
    """

    name = "data.stored"

    @classmethod
    def parse_parameter(cls, parser: AttrParser) -> Handle:
        with parser.in_angle_brackets():
            return TABLE.named(parser.parse_str_literal(", the hash of a stored constant"))

    def print_parameter(self, printer: Printer) -> None:
        with printer.in_angle_brackets():
            printer.print_string_literal(TABLE.key(self.data))


@irdl_attr_definition
class BlockAttr(ParametrizedAttribute):
    """`tensor<64x128xf32, #data.block<bfp8, 1>>`: the encoding of a tensor whose values are those of a block format.

    Elements of one block are neighbours along that dimension. The element type stays the one that the program computes in.
    """

    name = "data.block"
    format: StringAttr
    dimension: IntAttr

    def verify(self) -> None:
        if self.format.data not in MAGNITUDES:
            raise VerifyException(f"no block format '{self.format.data}'{did_you_mean(self.format.data, MAGNITUDES)}")

    @classmethod
    def parse_parameters(cls, parser: AttrParser) -> Sequence[Attribute]:
        with parser.in_angle_brackets():
            format = parser.parse_identifier("a block format")
            parser.parse_punctuation(",")
            return StringAttr(format), IntAttr(parser.parse_integer(allow_boolean=False, allow_negative=False))

    def print_parameters(self, printer: Printer) -> None:
        with printer.in_angle_brackets():
            printer.print_string(f"{self.format.data}, {self.dimension.data}")


def block_format(type: Attribute) -> str:
    """Returns the block format of a tensor type; "" if it has none."""
    encoding = cast("TensorType[Attribute]", type).encoding if isinstance(type, TensorType) else None
    return encoding.format.data if isinstance(encoding, BlockAttr) else ""


def reshaped_type(type: Attribute, shape: Sequence[int]) -> TensorType[Attribute] | None:
    """Returns the type of a reshaped constant; None if its blocks would not lie along one dimension: only sizes of 1 may come or go."""
    encoding = cast("TensorType[Attribute]", type).encoding
    if not isinstance(encoding, BlockAttr):
        return tensor(tuple(shape), element_type_of(type))
    before, after = ([d for d, n in enumerate(sizes) if n != 1] for sizes in (shape_of(type), shape))
    if [shape_of(type)[d] for d in before] != [shape[d] for d in after]:
        return None
    at = dict(zip(before, after)).get(encoding.dimension.data, 0)
    return TensorType(element_type_of(type), list(shape), BlockAttr(encoding.format, IntAttr(at)))


def is_dense(value: Attribute) -> TypeGuard[Dense]:
    """Tells whether the elements are in the attribute itself."""
    return isinstance(value, DenseIntOrFPElementsAttr)


def retyped(value: Attribute, type: TensorType[Any]) -> Attribute:
    """Returns a dense value with another type of as many elements; a stored value has no type, and stays."""
    return DenseIntOrFPElementsAttr(type, value.data) if is_dense(value) else value


def parse_value(parser: AttrParser) -> Attribute:
    """Parses a dense or stored attribute. Equal elements are one, as `array_attribute` makes them: xDSL's parser repeats them."""
    value = parser.parse_value() if isinstance(parser, LocatingParser) else parser.parse_attribute()
    if is_dense(value):
        data, size = value.data.data, value.type.element_type.compile_time_size
        if size and len(data) > size and data == data[:size] * (len(data) // size):
            return DenseIntOrFPElementsAttr(value.type, BytesAttr(data[:size]))
    return value


def print_value(printer: Printer, value: Attribute) -> None:
    """Prints a dense or stored attribute. Dense floats that are not finite are printed as their bytes.

    xDSL prints such elements as hexadecimal numbers and parses them as integers: infinity would become 2139095040.0.
    """
    import numpy as np

    if is_dense(value) and is_float(element_type_of(value.type)):
        elements = np.frombuffer(value.data.data, dtype_of(element_type_of(value.type)))
        if not np.isfinite(elements.astype(np.float64)).all():
            printer.print_string(f'dense<"0x{value.data.data.hex().upper()}"> : ')
            printer.print_attribute(value.type)
            return
    printer.print_attribute(value)


@irdl_op_definition
class ConstantOp(PlainErrors, IRDLOperation):
    """A tensor known when compiling. Valid at the `onnx`, `popart` and `popops` levels alike.

    Build one with `constant(array)`; read it with `constant_value(value)`.
    """

    name = "data.constant"

    value = prop_def(Attribute)
    result = result_def(TensorType)

    traits = traits_def(Pure(), ConstantLike())

    @classmethod
    def parse(cls, parser: Parser) -> ConstantOp:
        attributes = parser.parse_optional_attr_dict()
        value = parse_value(parser)
        if is_dense(value):  # its text ends with its type
            type = value.type
        else:
            parser.parse_punctuation(":")
            type = parser.parse_type()
        return cls.create(properties={"value": value}, result_types=[type], attributes=attributes)

    def print(self, printer: Printer) -> None:
        printer.print_op_attributes(self.attributes)
        printer.print_string(" ")
        print_value(printer, self.value)
        if not is_dense(self.value):
            printer.print_string(" : ")
            printer.print_attribute(self.result.type)

    def verify_(self) -> None:
        if why := value_problem(self.value, self.result.type):
            raise VerifyException(why)

    def array(self) -> NDArray[Any]:
        """Returns the value, read-only; equal elements are one element with stride 0.

        Raises PopulusError if only the hash of a stored constant is known.
        """
        return attribute_array(self.value, self.result.type)


def value_problem(value: Attribute, type: TensorType[Attribute]) -> str | None:
    """Returns the reason why an attribute is no value of a tensor type; None if it is one."""
    count = math.prod(type.get_shape())
    if is_dense(value):
        if value.type != type:
            return f"the value is {value.type}, the result {type}"
        given = len(value.data.data) // max(1, value.type.element_type.compile_time_size)
        return None if given == count or (given == 1 and count) else f"{given} elements for {type}"
    if not isinstance(value, StoredAttr):
        return f"{value} is neither dense nor stored"
    sample, expected = TABLE.sample(value.data), count * size_in_bytes(type.element_type)
    if sample is not None and sample[0] != expected:
        return f"{sample[0]} bytes are stored for {type}, which needs {expected}"
    return None


def attribute_array(value: Attribute, type: Attribute) -> NDArray[Any]:
    """Returns the elements of a dense or stored attribute of tensor type `type`, read-only."""
    import numpy as np

    dtype, shape = dtype_of(element_type_of(type)), shape_of(type)
    if isinstance(value, StoredAttr):
        if (content := TABLE.bytes(value.data)) is None:
            raise PopulusError(
                f"the constant {TABLE.key(value.data)} is not loaded; give the file of weights that was written beside the module: "
                f"FILE.safetensors beside FILE.mlir, or weights.safetensors there{option(', or populus-opt --weights', '')}"
            )
        array = content.view(dtype).reshape(shape)
    else:
        assert is_dense(value), value
        data = value.data.data
        if not data:
            array = np.empty(shape, dtype)
        elif dtype == np.bool_:
            array = _booleans(value, shape)
        elif value.is_splat():
            array = np.broadcast_to(np.frombuffer(data, dtype, 1).reshape(()), shape)
        else:
            array = np.frombuffer(data, dtype).reshape(shape)
    array = array.view()
    array.flags.writeable = False
    return array


def _booleans(value: Dense, shape: tuple[int, ...]) -> NDArray[Any]:
    import numpy as np

    elements = np.array([bool(v) for v in value.get_values()], np.bool_)
    return np.broadcast_to(elements[:1].reshape(()), shape) if value.is_splat() else elements.reshape(shape)


def array_attribute(array: NDArray[Any]) -> Attribute:
    """Makes the attribute for an array: dense for up to 64 elements or equal elements, else stored."""
    import numpy as np

    type: TensorType[Any] = tensor(array.shape, element_of(array.dtype))
    uniform = array.size > 1 and (all(s == 0 for s in array.strides) or _all_equal(array))
    if (array.dtype.itemsize == 1 and array.dtype.isbuiltin == 2) or array.size == 0 or (array.size > INLINE_ELEMENTS and not uniform):
        return StoredAttr(store(array))
    small = np.ascontiguousarray(array.reshape(-1)[:1] if uniform else array)
    if array.dtype == np.bool_:
        return DenseIntOrFPElementsAttr.from_list(type, [int(v) for v in small.reshape(-1)])
    return DenseIntOrFPElementsAttr(type, BytesAttr(small.tobytes()))


def _all_equal(array: NDArray[Any]) -> bool:
    """Compares bitwise, so that -0.0 and NaN payloads are preserved; tries a few elements before all."""
    import numpy as np

    def bits(elements: NDArray[Any]) -> NDArray[Any]:
        return elements.view(f"V{elements.itemsize}" if elements.itemsize > 8 else f"u{elements.itemsize}")

    if array.size and array.flags.c_contiguous and array.item(0) != array.item(-1) and array.item(0) == array.item(0):  # a NaN equals none
        return False
    first = bits(np.ascontiguousarray(array.flat[:1]))
    few = array.flat[:64], array.flat[:: max(array.size // SAMPLES, 1)]
    if not all(bool((bits(some) == first).all()) for some in few):
        return False
    return all(bool((bits(piece.reshape(-1)) == first).all()) for _, piece in blocks(array, max(PIECE // array.itemsize, 1)))


def constant(array: NDArray[Any], name: str | None = None) -> ConstantOp:
    """Makes a constant op that holds `array`. `name`: its origin, kept as its location."""
    op = ConstantOp.create(properties={"value": array_attribute(array)}, result_types=[tensor(array.shape, element_of(array.dtype))])
    if name is not None:
        op.location = named(name)
    return op


def is_loaded(value: object) -> bool:
    """Tells whether `constant_value` has an array for a value, without reading it."""
    owner = getattr(value, "owner", None)
    return isinstance(owner, ConstantOp) and not (isinstance(owner.value, StoredAttr) and TABLE.is_gone(owner.value.data))


def computed_constant(operands: Sequence[SSAValue], computation: Hashable, compute: Callable[[], NDArray[Any]]) -> ConstantOp:
    """Makes the constant op that `compute` gives for constant operands.

    `computation` names it and its parameters: modules that share a pool compute the same once.
    """
    pool, sources = current_pool(), [getattr(v.owner, "value", None) for v in operands]
    if pool is None or not all(isinstance(s, StoredAttr) for s in sources):
        return constant(compute())
    key = (computation, *(TABLE.origin(s.data) for s in sources if isinstance(s, StoredAttr)))
    kept = pool.computed(key)
    if kept is None:
        op = constant(compute())
        if isinstance(op.value, StoredAttr):
            TABLE.computed_from(op.value.data, key)
            pool.note(key, op.value.data, op.result.type)
        return op
    handle, type = kept
    return ConstantOp.create(properties={"value": StoredAttr(handle)}, result_types=[type])


def joined_constant(operands: Sequence[SSAValue], axis: int) -> ConstantOp:
    """Makes the constant op of constant operands that are concatenated. A large content is made when it is first read."""
    import numpy as np

    sources = [(v.owner.value, v.type) for v in operands if isinstance(v.owner, ConstantOp)]
    handles, shapes = [v.data for v, _ in sources if isinstance(v, StoredAttr)], [shape_of(t) for _, t in sources]
    element = element_type_of(sources[0][1])
    item = size_in_bytes(element)
    size = sum(math.prod(shape) for shape in shapes) * item

    def join() -> NDArray[Any]:
        return concatenated([attribute_array(*source) for source in sources], axis)

    def some(places: Sequence[int]) -> bytes:
        widths = [math.prod(shape[axis:]) * item for shape in shapes]
        return bytes_of_concatenated(widths, places, lambda i, at: TABLE.bytes_at(handles[i], at))

    if not may_wait(size) or len(handles) < len(sources) or some(range(item)) == some(range(size - item, size)):
        return computed_constant(operands, ("concatenate", axis), join)
    type = tensor((*shapes[0][:axis], sum(shape[axis] for shape in shapes), *shapes[0][axis + 1 :]), element)
    return later_constant(type, lambda: join().reshape(-1).view(np.uint8), some)


def may_wait(size: int) -> bool:
    """Tells whether a constant of so many bytes is worth making when it is first read. Modules that share a pool make all at once."""
    return size >= LATER and current_pool() is None


def later_constant(type: TensorType[Any], make: Callable[[], NDArray[np.uint8]], some: Callable[[Sequence[int]], bytes]) -> ConstantOp:
    """Makes the constant op of a content that `make` gives when it is first read; `some` gives bytes of it. Not all elements are equal."""
    handle = TABLE.add_later(make, math.prod(shape_of(type)) * size_in_bytes(element_type_of(type)), some)
    return ConstantOp.create(properties={"value": StoredAttr(handle)}, result_types=[type])


def constant_value(value: object) -> NDArray[Any] | None:
    """Returns the array of an SSA value that a `data.constant` defines; None for any other value."""
    owner = getattr(value, "owner", None)
    return owner.array() if isinstance(owner, ConstantOp) else None


def same_value(a: Attribute, b: Attribute) -> bool:
    """Tells whether two attributes are equal, or stored constants of equal content."""
    return a == b or (isinstance(a, StoredAttr) and isinstance(b, StoredAttr) and TABLE.equal(a.data, b.data))


def unify(op: Operation, contents: EqualContents) -> None:
    """Replaces a stored constant in a constant op by the first in `contents` of the same content."""
    if isinstance(op, ConstantOp) and isinstance(value := op.value, StoredAttr) and (first := contents.first(value.data)) is not value.data:
        op.properties["value"] = StoredAttr(first)


def blobs_of(module: ModuleOp) -> dict[str, Handle]:
    """Collects the stored constants of a module, by the hash of their contents."""
    return {
        TABLE.key(attribute.data): attribute.data
        for op in module.walk()
        for attribute in (*op.properties.values(), *op.attributes.values())
        if isinstance(attribute, StoredAttr)
    }


def save_blobs(blobs: ModuleOp | Mapping[str, Handle], path: str | os.PathLike[str]) -> None:
    """Writes stored constants (a module's, or these) to a safetensors file, each as its bytes. Raises OSError."""
    blobs = blobs_of(blobs) if isinstance(blobs, ModuleOp) else blobs
    with open(path, "wb") as file:
        write_tensors(file, {key: content for key, handle in blobs.items() if (content := TABLE.bytes(handle)) is not None})


def load_blobs(path: str | os.PathLike[str]) -> list[Handle]:
    """Fills in the stored constants of a weights file. Keep the list as long as a text that refers to them is parsed.

    Raises PopulusError if the file is not a safetensors file or a constant's hash has other content.
    """
    from safetensors import SafetensorError
    from safetensors.numpy import load_file  # pyright: ignore[reportUnknownVariableType]

    try:
        check_bytes(os.stat(path).st_size, f"{os.fspath(path)}: its constants")  # the library refuses a header that states more
        arrays = load_file(os.fspath(path))
    except (SafetensorError, OSError) as error:
        raise PopulusError(f"{os.fspath(path)}: {getattr(error, 'strerror', None) or f'not a file of weights: {error}'}") from error
    for key, content in arrays.items():
        if content.dtype != "uint8" or key_of(content) != key:
            raise PopulusError(f"{os.fspath(path)}: the content of '{key}' is not what it is named for; write the weights again")
    return [TABLE.named(key, content) for key, content in arrays.items()]


DATA = Dialect("data", [ConstantOp], [StoredAttr, BlockAttr])
