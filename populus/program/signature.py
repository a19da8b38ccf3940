"""The signature of a program: names and types of its inputs and outputs, and the checks of arrays against them."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, cast
from zlib import crc32

from xdsl.dialects.builtin import DYNAMIC_INDEX, ModuleOp, TensorType
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Attribute

from populus.dialects.signature import input_names, output_names, state_names
from populus.dialects.signature.complex_pairs import NO_PAIRS, Pairs, as_complex, as_pairs, pairs
from populus.dialects.signature.map_inputs import MapInput, as_rows, map_inputs
from populus.dialects.signature.map_outputs import Map, maps
from populus.dialects.signature.required_values import Required, required
from populus.dialects.signature.string_table import NO_TEXTS, Texts, texts
from populus.dialects.signature.valid_lengths import Bounded, bounded, trimmed
from populus.dialects.support.diagnostics import PopulusError, did_you_mean, option
from populus.dialects.support.element_types import dtype_of, tensor
from populus.program.padding import Padding, valid_parts
from populus.runtime.built.given import array_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from populus.program.source import Arrays
    from populus.runtime.host.strings import Strings


@dataclass(frozen=True)
class Signature:
    """The names and types of a program's inputs and outputs, in order.

    `padding`: how arrays of any size become those of a program with bounded dimensions, whose types have the bounds.
    `dimensions`: names of open sizes by input or output and position; only a program of open sizes has some.
    """

    inputs: dict[str, TensorType[Attribute]]
    outputs: dict[str, TensorType[Attribute]]
    required: tuple[Required, ...] = ()
    bounded: tuple[Bounded, ...] = ()
    texts: Texts = NO_TEXTS
    maps: tuple[Map, ...] = ()
    map_inputs: tuple[MapInput, ...] = ()
    pairs: Pairs = NO_PAIRS
    padding: Padding | None = None
    dimensions: Mapping[str, Mapping[int, str]] = field(default_factory=dict[str, "Mapping[int, str]"])

    def __str__(self) -> str:
        """Formats the signature as `(x: f32[batch, 3]) -> (y: f32[batch])`; `?` is an open size without a name."""
        sides = (", ".join(f"{name}: {self._type(name, t)}" for name, t in side.items()) for side in (self.inputs, self.outputs))
        return "({}) -> ({})".format(*sides)

    def _type(self, name: str, type: TensorType[Attribute]) -> str:
        named = self.dimensions.get(name, {})
        sizes = [named.get(i, "?") if n < 0 else str(n) for i, n in enumerate(type.get_shape())]
        return f"{'string' if name in {*self.texts.inputs, *self.texts.outputs} else type.element_type}[{', '.join(sizes)}]"

    def refuse_open(self) -> None:
        """Raises PopulusError, naming the first open size, if the signature has one."""
        for name, type in self.inputs.items():
            if (at := next((i for i, n in enumerate(type.get_shape()) if n < 0), None)) is not None:
                dimension = self.dimensions.get(name, {}).get(at, f"{name}.{at}")
                bind = option(f"--dim {dimension}=N", f"dims={{'{dimension}': N}}, or `sized({dimension}=N)` of the program")
                raise PopulusError(f"input '{name}' is {type}: its dimension '{dimension}' is open; bind it with {bind}")

    @staticmethod
    def of(module: ModuleOp) -> Signature:
        """Reads the signature of `@main` from its `input_names` and `output_names`.

        Without these, inputs have the names of arguments, and outputs are `output_0`, ...
        Raises PopulusError if there is no `@main`, or an input is not a tensor of static shape.
        """
        op = _main(module)
        arguments = list(op.body.block.args)
        last = op.body.block.last_op
        results = [o.type for o in last.operands] if isinstance(last, ReturnOp) else []
        inputs, outputs = input_names(op), output_names(op)
        if len(inputs) != len(arguments) or len(outputs) != len(results):
            raise PopulusError(f"@main names {len(inputs)} inputs and {len(outputs)} outputs, and has {len(arguments)} and {len(results)}")
        strings, padding = texts(op), Padding.of(op)
        taken = [name for name in inputs if padding is None or not padding.is_size(name)]
        return Signature(
            {name: _static(name, a.type, strings.inputs) for name, a in zip(inputs, arguments, strict=True) if name in taken},
            {name: _static(name, t, strings.outputs) for name, t in zip(outputs, results, strict=True)},
            tuple(replace(entry, input=taken.index(inputs[entry.input])) for entry in required(op)),
            tuple(bounded(op)),
            strings,
            tuple(maps(op)),
            tuple(map_inputs(op)),
            pairs(op),
            padding,
        )

    def state(self, module: ModuleOp) -> None:
        """Writes the names onto `@main`: the streams of the levels below have them."""
        state_names(_main(module), inputs=input_names(_main(module)), outputs=self.outputs)

    def without(self, states: Mapping[str, str]) -> Signature:
        """Gives the signature of a program that keeps these states: pairs of an input and the output that replaces it.

        Raises PopulusError for an input that decides shapes, and for an output whose size the data decide.
        """
        names = list(self.inputs)
        for entry in self.required:
            if names[entry.input] in states:
                raise PopulusError(f"input '{names[entry.input]}' decides shapes, so it cannot be a state")
        for entry in self.bounded:
            if entry.output in states.values():
                raise PopulusError(f"the data decide the size of output '{entry.output}', so it cannot become a state")
        left = [name for name in names if name not in states]
        return replace(
            self,
            inputs={name: self.inputs[name] for name in left},
            outputs={name: type for name, type in self.outputs.items() if name not in states.values()},
            required=tuple(replace(entry, input=left.index(names[entry.input])) for entry in self.required),
        )

    def checked(self, inputs: Mapping[str, Any]) -> Arrays:
        """Checks the inputs and gives their arrays, in order.

        Raises PopulusError for a missing input, a wrong name, shape or dtype, and for a value that contradicts a stated shape.
        """
        import numpy as np

        if (ready := self._ready(inputs)) is not None:
            return ready
        for name in inputs:
            if name not in self.inputs:
                raise PopulusError(f"the model has no input '{name}'{did_you_mean(name, self.inputs)}")
        if missing := [name for name in self.inputs if name not in inputs]:
            given = f"; given are {', '.join(inputs)}" if inputs else ""
            raise PopulusError(f"input '{missing[0]}' is missing ({self.inputs[missing[0]]}){given}")
        inputs = as_rows(self.map_inputs, inputs)
        arrays: Arrays = {}
        for name, type in self.inputs.items():
            if name in self.texts.inputs:
                array = _strings(name, inputs[name])
                self._check_shape(name, array.shape)
                arrays[name] = array
                continue
            array, dtype = array_of(name, inputs[name], PopulusError), dtype_of(type.element_type)
            if name in self.pairs.inputs and array.dtype.kind == "c" and array.dtype.itemsize == 2 * dtype.itemsize:
                array = as_pairs(array)
            if array.dtype.type is np.void and array.dtype.itemsize == dtype.itemsize:
                array = array.view(dtype)  # NumPy's files drop the types of ml_dtypes but keep the bits
            if array.dtype != dtype:
                raise PopulusError(f"input '{name}' is {array.dtype}, expected {dtype}; array.astype('{dtype}') converts it")
            self._check_shape(name, array.shape)
            arrays[name] = array
        for entry in self.required:
            name = list(self.inputs)[entry.input]
            entry.check(name, arrays[name])
        return arrays

    @cached_property
    def is_plain(self) -> bool:
        """True if inputs and outputs are arrays as the program has them: none is padded, trimmed, a string, a map or complex."""
        return not (self.padding or self.texts or self.texts.table or self.pairs.outputs or self.maps or self.bounded)

    @cached_property
    def _plain(self) -> dict[str, tuple[Any, tuple[int, ...]]] | None:
        """The type and shape of each input, if an array of these is all that is asked of it; else None."""
        if self.padding or self.texts.inputs or self.pairs.inputs or self.map_inputs or self.required:
            return None
        types = {name: (dtype_of(type.element_type), type.get_shape()) for name, type in self.inputs.items()}
        return types if all(n >= 0 for _, shape in types.values() for n in shape) else None

    def _ready(self, inputs: Mapping[str, Any]) -> Arrays | None:
        """Gives the inputs in order if they are arrays as `_plain` has them, and no others; else None."""
        import numpy as np

        plain = self._plain
        if plain is None or len(inputs) != len(plain):
            return None
        arrays: Arrays = {}
        for name, (dtype, shape) in plain.items():
            array = inputs.get(name)
            if not isinstance(array, np.ndarray):
                return None
            given = cast("NDArray[Any]", array)
            if given.dtype != dtype or given.shape != shape:
                return None
            arrays[name] = given
        return arrays

    def _check_shape(self, name: str, shape: tuple[int, ...]) -> None:
        expected = self.inputs[name].get_shape()
        fits = len(shape) == len(expected) and all(m in (n, DYNAMIC_INDEX) for n, m in zip(shape, expected))
        if self.padding is None and not fits:
            raise PopulusError(f"input '{name}' has shape {_shape(shape)}, expected {_shape(expected)}")

    @contextmanager
    def handled(self, arrays: Arrays) -> Generator[tuple[Strings, Arrays], None, None]:
        """Replaces strings by handles; gives the string table of the run and the inputs."""
        from populus.runtime.host.strings import Strings, using

        if self.texts.table:
            with using(self.texts.table) as strings:
                yield strings, {name: strings.encode(a) if name in self.texts.inputs else a for name, a in arrays.items()}
        else:
            yield Strings(()), arrays

    def random(self, seed: int = 0) -> Arrays:
        """Draws inputs by dtype: normal floats, booleans with equal probability, 8 and 16-bit integers of their whole range, others 0 or 1.

        Wider integers are mostly indices, and 0 and 1 are usually valid. The values depend only on seed, name and type.
        Raises PopulusError for a signature with open sizes.
        """
        self.refuse_open()
        return {name: _draw(type, seed, name, self.texts.table) for name, type in self.inputs.items()}


def _main(module: ModuleOp) -> FuncOp:
    for op in module.body.block.ops:
        if isinstance(op, FuncOp) and op.sym_name.data == "main":
            return op
    raise PopulusError("the module has no func.func @main to run")


def _strings(name: str, value: Any) -> NDArray[Any]:
    from populus.runtime.host.strings import texts_of

    try:
        return texts_of(value)
    except PopulusError as error:
        raise PopulusError(f"input '{name}' {error}") from None


def _static(name: str, type: Attribute, strings: Sequence[str] = ()) -> TensorType[Attribute]:
    """Gives the type of an input or output. For a name in `strings`, it is the type of the strings, not of their handles."""
    if not isinstance(type, TensorType):
        raise PopulusError(f"'{name}' is {type}; a program's inputs and outputs are tensors")
    if min(type.get_shape(), default=0) < 0:
        raise PopulusError(f"'{name}' is {type}; a program has static shapes, so give its dimensions a size (dims)")
    if name in strings:
        from populus.dialects.onnx.types import string

        return tensor(type.get_shape(), string)
    return cast("TensorType[Attribute]", type)


def _shape(shape: Sequence[int]) -> str:
    return f"[{', '.join(map(str, shape))}]"


def _draw(type: TensorType[Attribute], seed: int, name: str, words: Sequence[str] = ()) -> NDArray[Any]:
    """Draws random elements; strings come from `words`."""
    import numpy as np

    if str(type.element_type) == "!onnx.string":
        chosen = np.random.default_rng([seed, crc32(name.encode())]).choice(np.array(words or ("",), object), type.get_shape())
        return np.asarray(chosen, object)
    dtype, shape = dtype_of(type.element_type), type.get_shape()
    rng = np.random.default_rng([seed, crc32(name.encode())])
    if dtype == np.bool_:
        return rng.integers(0, 2, shape).astype(np.bool_)
    if dtype.kind in "iu":
        narrow = dtype.itemsize <= 2
        info = np.iinfo(dtype)
        return rng.integers(info.min if narrow else 0, info.max if narrow else 1, shape, dtype, endpoint=True)
    return rng.standard_normal(shape).astype(dtype)


def computed(signature: Signature, inputs: Mapping[str, Any], run: Callable[[Arrays], Arrays], states: Arrays | None = None) -> Arrays:
    """Runs on inputs as the user has them, and gives the outputs likewise: strings, valid parts and maps.

    `states`: arrays of the shapes of inputs that the program keeps. Raises PopulusError for inputs that do not match the signature.
    """
    arrays, padding = signature.checked(inputs), signature.padding
    if signature.is_plain:
        return run(arrays)
    fit = None if padding is None else padding.fit({**arrays, **(states or {})})
    with signature.handled(arrays) as (strings, given):
        found = run(given if padding is None or fit is None else padding.padded(given, fit.at))
        found = trimmed(found if fit is None else valid_parts(found, fit.parts), signature.bounded)
        outputs = {name: strings.decode(a) if name in signature.texts.outputs else a for name, a in found.items()}
    outputs |= {name: as_complex(outputs[name]) for name in signature.pairs.outputs if name in outputs}
    for entry in signature.maps:
        outputs[entry.output] = cast("Any", entry.rows(outputs[entry.output]))  # ONNX's name for a sequence of maps
    return outputs
