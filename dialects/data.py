"""The `data` dialect: constants of every value-semantic level, with large ones kept outside the IR.

    %w = data.constant #data.stored<"70bae6b8c0ffee00"> : tensor<64x3x7x7xf32> loc("conv1/W")
    %k = data.constant dense<0.5> : tensor<f32>

A stored constant is named by the hash of its content. The bytes live in a `Blob`, which is freed with the last attribute
that refers to it; a file of weights beside a module's text brings them back (`save_blobs`, `load_blobs`).
"""

from __future__ import annotations

import hashlib
import itertools
import math
import os
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, TypeGuard
from weakref import WeakValueDictionary

from xdsl.dialects.builtin import BytesAttr, DenseIntOrFPElementsAttr, ModuleOp, TensorType
from xdsl.ir import Attribute, Data, Dialect, SSAValue
from xdsl.irdl import IRDLOperation, irdl_attr_definition, irdl_op_definition, prop_def, result_def, traits_def
from xdsl.parser import AttrParser, Parser
from xdsl.printer import Printer
from xdsl.traits import ConstantLike, Pure
from xdsl.utils.exceptions import VerifyException

from populus.dialects.support.budget import check_bytes
from populus.dialects.support.constant_pool import current_pool
from populus.dialects.support.diagnostics import PlainErrors, PopulusError, named, option
from populus.dialects.support.element_types import dtype_of, element_of, element_type_of, is_float, shape_of, size_in_bytes, tensor
from populus.dialects.support.guard import Guard
from populus.dialects.support.mmap_file import Mapped, mapped
from populus.dialects.support.tensor_file import write_tensors

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

Dense: TypeAlias = "DenseIntOrFPElementsAttr[Any]"

PIECE = 4 << 20  # bytes of a file that are hashed at a time
SAMPLES = 61  # elements of a content that are compared first
INLINE_ELEMENTS = 64  # a constant of more elements is stored outside the IR, unless all are equal


class Content(NamedTuple):
    """The bytes of a blob, the file that they are mapped from, and what makes them again where they were let go."""

    bytes: NDArray[np.uint8] | None
    file: Mapped | None
    restore: Callable[[], NDArray[np.uint8]] | None


class Blob:
    """Bytes outside the IR; blobs are equal if their content is.

    `bytes` is None while only the hash was read from a text. They may be a mapped file's, or released by `release`.
    One thread may release them while another reads: the content changes as one value.
    """

    __slots__ = ("__weakref__", "_content", "_key", "_sample", "origin", "packed", "remake")

    def __init__(self, key: str | None, bytes: NDArray[np.uint8] | None):
        assert key is not None or bytes is not None
        self._key = key
        self.origin: Hashable = next(_NUMBERS)  # what it was computed from; else a number that no other blob has had
        self.packed: WeakValueDictionary[Hashable, NDArray[Any]] = WeakValueDictionary()  # other forms that engines made
        self.remake: Callable[[], NDArray[np.uint8]] | None = None  # computes the content again, from a file's
        self.bytes = bytes

    @property
    def key(self) -> str:
        """The hash of the content, made when it is first asked for: that takes as long as reading all weights."""
        if self._key is None:
            content = self.bytes
            assert content is not None
            self._key = _key(content, self._content.file)
            with _NAMING.lock:
                _BLOBS.setdefault(self._key, self)
        return self._key

    @property
    def bytes(self) -> NDArray[np.uint8] | None:
        """The content. Raises PopulusError if it was a file's that has changed."""
        found = self._content
        if found.restore is not None and (found.file is None or found.file.changed):
            bytes = found.restore()
            assert _sample(bytes) == self._sample, self
            self.bytes = bytes
            return bytes
        if found.file is not None and found.bytes is not None:
            found.file.touch(found.bytes.size)
            found.file.fetch()
        return found.bytes

    @property
    def is_gone(self) -> bool:
        """True if only the hash is known."""
        found = self._content
        return found.restore is None and (found.bytes is None or (found.file is not None and found.file.changed))

    @property
    def is_released(self) -> bool:
        """True if somebody has the content in another form."""
        return self._content.restore is not None

    @property
    def is_mapped(self) -> bool:
        """True if the content is a file's, which takes no memory."""
        return self._content.file is not None

    def check_file(self) -> None:
        """Raises PopulusError if the content is a file's that has changed."""
        _ = self._content.file and self._content.file.touch(0)

    def take_in(self) -> None:
        """Copies the content of a file into memory: later changes of the file do not reach it.

        The file's own pages are given back piece by piece. Raises PopulusError if the file has changed.
        """
        import numpy as np

        file = self._content.file
        if file is None or (bytes := self.bytes) is None:
            return
        copied = np.empty_like(bytes, subok=False)
        for first in range(0, bytes.size, PIECE):
            piece = bytes[first : first + PIECE]
            file.touch(piece.size)
            copied[first : first + PIECE] = piece
        self.bytes = copied

    def release(self, restore: Callable[[], NDArray[np.uint8]]) -> None:
        """Lets go of the content, which somebody has in another form; `restore` makes it again.

        A file's content takes no memory and stays, until the file changes.
        """
        file = self._content.file
        self._content = Content(None if file is None else self._content.bytes, file, restore)

    @bytes.setter
    def bytes(self, bytes: NDArray[np.uint8] | None) -> None:
        self._sample = None if bytes is None else _sample(bytes)
        self._content = Content(bytes, None if bytes is None else mapped(bytes), None)

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if not isinstance(other, Blob):
            return False
        if self._sample is not None and other._sample is not None and self._sample != other._sample:
            return False
        mine, theirs = self._content.bytes, other._content.bytes
        if mine is not None and theirs is not None and (self._key is None or other._key is None):
            return mine.data == theirs.data
        return self.key == other.key

    def __hash__(self) -> int:
        # One that was read from a text has its key alone, another its content alone, and the two may be equal. Both could only hash the
        # content's key, and making that reads all weights. Samples tell blobs of one dict apart as quickly.
        return 0


def _sample(bytes: NDArray[np.uint8]) -> tuple[int, bytes]:
    """Returns the size and some of the bytes, which are compared first."""
    return bytes.size, bytes[:: max(bytes.size // SAMPLES, 1)].tobytes()


_NUMBERS = itertools.count()
_BLOBS: WeakValueDictionary[str, Blob] = WeakValueDictionary()  # those whose hash is known
_NAMING = Guard()


def _blob(key: str, bytes: NDArray[np.uint8] | None = None) -> Blob:
    """Returns the unique blob of this key; sets its bytes if they were missing or from a file that has changed."""
    with _NAMING.lock:
        blob = _BLOBS.get(key)
        if blob is None:
            blob = _BLOBS[key] = Blob(key, bytes)
        elif blob.is_gone:
            blob.bytes = bytes
        return blob


def store(array: NDArray[Any]) -> Blob:
    """Makes a blob of the array's content, C-contiguous; shares memory with `array` if that is contiguous.

    Among modules that share a pool, equal content is one blob.
    """
    import numpy as np

    flat = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    pool = current_pool()
    return Blob(None, flat) if pool is None else pool.of(flat, lambda content: Blob(None, content))


def _key(bytes: NDArray[np.uint8], file: Mapped | None = None) -> str:
    """Hashes a content to its key."""
    if file is None:
        return hashlib.sha256(bytes.data).hexdigest()[:16]
    digest = hashlib.sha256()
    for first in range(0, bytes.size, PIECE):
        piece = bytes[first : first + PIECE]
        file.touch(piece.size)
        digest.update(piece.data)
    return digest.hexdigest()[:16]


@irdl_attr_definition
class StoredAttr(Data[Blob]):
    """`#data.stored<"70bae6b8c0ffee00">`: a constant by the hash of its content."""

    name = "data.stored"

    @classmethod
    def parse_parameter(cls, parser: AttrParser) -> Blob:
        with parser.in_angle_brackets():
            return _blob(parser.parse_str_literal(", the hash of a stored constant"))

    def print_parameter(self, printer: Printer) -> None:
        with printer.in_angle_brackets():
            printer.print_string_literal(self.data.key)


def is_dense(value: Attribute) -> TypeGuard[Dense]:
    """Tells whether the elements are in the attribute itself."""
    return isinstance(value, DenseIntOrFPElementsAttr)


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
        value = parser.parse_attribute()
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
    stored, expected = value.data.bytes, count * size_in_bytes(type.element_type)
    if stored is not None and stored.size != expected:
        return f"{stored.size} bytes are stored for {type}, which needs {expected}"
    return None


def attribute_array(value: Attribute, type: Attribute) -> NDArray[Any]:
    """Returns the elements of a dense or stored attribute of tensor type `type`, read-only."""
    import numpy as np

    dtype, shape = dtype_of(element_type_of(type)), shape_of(type)
    if isinstance(value, StoredAttr):
        if (content := value.data.bytes) is None:
            raise PopulusError(
                f"the constant {value.data.key} is not loaded; give the file of weights that was written beside the module"
                + option(" (--weights)", "")
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

    flat = np.ascontiguousarray(array).reshape(-1)
    bits = flat.view(f"V{flat.itemsize}") if flat.itemsize > 8 else flat.view(f"u{flat.itemsize}")
    step = max(PIECE // bits.itemsize, 1)  # the pages of a large file are not all touched
    parts = (bits[:64], bits[:: max(bits.size // SAMPLES, 1)], *(bits[i : i + step] for i in range(0, bits.size, step)))
    return all(bool((part == bits[0]).all()) for part in parts)


def constant(array: NDArray[Any], name: str | None = None) -> ConstantOp:
    """Makes a constant op that holds `array`. `name`: its origin, kept as its location."""
    op = ConstantOp.build(properties={"value": array_attribute(array)}, result_types=[tensor(array.shape, element_of(array.dtype))])
    if name is not None:
        op.location = named(name)
    return op


def is_loaded(value: object) -> bool:
    """Tells whether `constant_value` has an array for a value, without reading it."""
    owner = getattr(value, "owner", None)
    return isinstance(owner, ConstantOp) and not (isinstance(owner.value, StoredAttr) and owner.value.data.is_gone)


def computed_constant(operands: Sequence[SSAValue], computation: Hashable, compute: Callable[[], NDArray[Any]]) -> ConstantOp:
    """Makes the constant op that `compute` gives for constant operands.

    `computation` names it and its parameters: modules that share a pool compute the same once.
    """
    pool, sources = current_pool(), [getattr(v.owner, "value", None) for v in operands]
    if pool is None or not all(isinstance(s, StoredAttr) for s in sources):
        return constant(compute())
    key = (computation, *(s.data.origin for s in sources if isinstance(s, StoredAttr)))
    kept = pool.computed(key)
    if kept is None:
        op = constant(compute())
        if isinstance(op.value, StoredAttr):
            op.value.data.origin = key
            pool.note(key, op.value.data, op.result.type)
        return op
    blob, type = kept
    return ConstantOp.create(properties={"value": StoredAttr(blob)}, result_types=[type])


def constant_value(value: object) -> NDArray[Any] | None:
    """Returns the array of an SSA value that a `data.constant` defines; None for any other value."""
    owner = getattr(value, "owner", None)
    return owner.array() if isinstance(owner, ConstantOp) else None


def blobs_of(module: ModuleOp) -> dict[str, Blob]:
    """Collects the stored constants of a module, by key."""
    return {
        attribute.data.key: attribute.data
        for op in module.walk()
        for attribute in (*op.properties.values(), *op.attributes.values())
        if isinstance(attribute, StoredAttr)
    }


def save_blobs(blobs: ModuleOp | Mapping[str, Blob], path: str | os.PathLike[str]) -> None:
    """Writes stored constants (a module's, or these) to a safetensors file, each as its bytes. Raises OSError."""
    blobs = blobs_of(blobs) if isinstance(blobs, ModuleOp) else blobs
    with open(path, "wb") as file:
        write_tensors(file, {key: blob.bytes for key, blob in blobs.items() if blob.bytes is not None})


def load_blobs(path: str | os.PathLike[str]) -> list[Blob]:
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
        if content.dtype != "uint8" or _key(content) != key:
            raise PopulusError(f"{os.fspath(path)}: the content of '{key}' is not what it is named for; write the weights again")
    return [_blob(key, content) for key, content in arrays.items()]


DATA = Dialect("data", [ConstantOp], [StoredAttr])
