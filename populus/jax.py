"""`jit`: functions of JAX on a machine of tiles. JAX traces and differentiates; what it would give to XLA is compiled here.

    from populus import jax as pjax

    step = pjax.jit(train_step, donate_argnums=0, target="gc200", tiles=64)
    params, loss = step(params, x, y)     # params stay on the machine

Arguments and results are pytrees of arrays. An argument that is donated, and whose array a result replaces, is a state of the
program: the result is a `Resident`, which moves to the host only when it is read.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Hashable, Sequence
from functools import update_wrapper
from importlib import import_module
from inspect import signature
from io import BytesIO
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from xdsl.dialects.builtin import ArrayAttr, DictionaryAttr, IntegerAttr, ModuleOp
from xdsl.ir import Attribute

from populus.dialects.signature import main_of
from populus.dialects.support.diagnostics import PopulusError
from populus.dialects.support.element_types import dtype_of
from populus.dialects.support.guard import Guard
from populus.dialects.table import context
from populus.lowering.stablehlo.importer import read_text
from populus.lowering.stablehlo.jaxlib_reader import generic_text
from populus.program.front import compile
from populus.program.program import Program
from populus.program.state import Stateful

if TYPE_CHECKING:
    from numpy.typing import NDArray

PLATFORM = ("tpu",)
"""Of the platforms that JAX lowers for, the one for which it calls least outside of StableHLO: on CPUs cholesky is LAPACK's."""
GENERATORS = {"key<fry>": "threefry2x32", "key<rbg>": "rbg", "key<urbg>": "unsafe_rbg"}
"""JAX's generators of random numbers, by the types of their keys."""
Statics: TypeAlias = tuple[set[int], set[str]]
ALIAS = "tf.aliasing_output"  # JAX's attribute of a donated argument: the number of the result that takes its place


def _package() -> Any:
    """Imports JAX. Raises PopulusError if it is not installed."""
    try:
        return import_module("jax")
    except ImportError:
        raise PopulusError("populus.jax needs JAX: pip install jax") from None


def jit(
    function: Callable[..., Any],
    *,
    static_argnums: int | Sequence[int] | None = None,
    static_argnames: str | Sequence[str] | None = None,
    donate_argnums: int | Sequence[int] | None = None,
    **options: Any,
) -> Jitted:
    """Gives a function that computes `function` by tile programs: one for each shape of the arguments, and each static argument.

    The first keywords are those of `jax.jit`; the others are options of `populus.compile`, such as `target`, `tiles`, `engine`.
    Raises PopulusError if JAX is not installed, and at a call for a function that cannot be compiled.
    """
    given = {"static_argnums": static_argnums, "static_argnames": static_argnames, "donate_argnums": donate_argnums}
    traced = _package().jit(function, keep_unused=True, **{name: value for name, value in given.items() if value is not None})
    return Jitted(function, traced, _static(function, static_argnums, static_argnames), options)


class Jitted:
    """A function that `jit` gives. `program(..)` gives the program for some arguments, with its profile and levels."""

    def __init__(self, function: Callable[..., Any], traced: Any, static: Statics, options: dict[str, Any]):
        update_wrapper(self, function)
        self._traced, self._static, self._options = traced, static, options
        self._compiled: dict[Hashable, _Compiled] = {}
        self._making = Guard()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Computes the function. Arrays of the result are NumPy's, or residents of the machine."""
        compiled, leaves = self._for(args, kwargs)
        return compiled.run(leaves)

    def program(self, *args: Any, **kwargs: Any) -> Program:
        """Gives the program for these arguments, or arrays of their shapes and types."""
        return self._for(args, kwargs)[0].program

    def _for(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[_Compiled, list[Any]]:
        """Gives the compiled function for arguments, and the arrays in those that are not static."""
        jax = _package()
        if any(isinstance(leaf, jax.core.Tracer) for leaf in jax.tree.leaves((args, kwargs))):
            name = getattr(self, "__name__", "function")
            raise PopulusError(f"'{name}' is called while JAX traces it; transform first, then compile: pjax.jit(jax.grad({name}))")
        shaped = jax.tree.map(_shaped, (args, kwargs))
        traced = self._traced.trace(*shaped[0], **shaped[1])
        positions, names = self._static
        positions = {n % len(args) for n in positions if -len(args) <= n < len(args)}
        taken = tuple(a for i, a in enumerate(args) if i not in positions), {n: a for n, a in kwargs.items() if n not in names}
        leaves, tree = jax.tree.flatten(taken)
        assert tree == traced.in_tree, (tree, traced.in_tree)
        key = (traced.jaxpr, traced.in_tree, traced.out_tree)
        with self._making.lock:
            if key not in self._compiled:
                self._compiled[key] = _Compiled(traced, str(getattr(self, "__name__", "function")), self._options)
            return self._compiled[key], leaves


def _static(function: Callable[..., Any], argnums: int | Sequence[int] | None, argnames: str | Sequence[str] | None) -> Statics:
    """Gives the positions and the names of static arguments: where one is given, it says the other, as in `jax.jit`."""
    positions = {argnums} if isinstance(argnums, int) else set(argnums or ())
    names = {argnames} if isinstance(argnames, str) else set(argnames or ())
    try:
        parameters = list(signature(function).parameters.values())
    except (TypeError, ValueError):
        return positions, names
    places = [p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    if argnames is None:
        names |= {places[n] for n in positions if -len(places) <= n < len(places)}
    elif argnums is None:
        positions |= {places.index(name) for name in names if name in places}
    return positions, names


def _shaped(leaf: Any) -> Any:
    """Gives what JAX traces for a leaf: a resident is its shape and type."""
    return _package().ShapeDtypeStruct(leaf.shape, leaf.dtype) if isinstance(leaf, Resident) else leaf


def _lowered(traced: Any, name: str) -> Any:
    """Lowers a traced function by JAX. Raises PopulusError if it calls functions of the host."""
    try:
        return traced.lower(lowering_platforms=PLATFORM)
    except ValueError as error:
        if "callback" not in str(traced.jaxpr) and "debug_print" not in str(traced.jaxpr):
            raise
        message = f"'{name}' calls Python while it runs (jax.debug.print, a callback), which tiles cannot do; return the value instead"
        raise PopulusError(message) from error


class _Compiled:
    """One program of a function. `pairs`: the inputs that are states, and the results that replace them."""

    def __init__(self, traced: Any, name: str, options: dict[str, Any]):
        self.tree = traced.out_tree
        self.keys = [getattr(leaf, "dtype", None) for leaf in _package().tree.leaves(traced.out_info)]
        content = BytesIO()
        _lowered(traced, name).compiler_ir("stablehlo").operation.write_bytecode(content)
        module = read_text(context(), generic_text(content.getvalue(), name), name)
        aliases = _aliases(module)
        self.program = compile(module, **options)
        self.inputs, self.outputs = list(self.program.signature.inputs), list(self.program.signature.outputs)
        self.pairs = {self.inputs[i]: self.outputs[o] for i, o in aliases.items()}
        self.states = self.program.stateful(self.pairs) if self.pairs else None
        self.current: dict[str, weakref.ref[Resident]] = {}  # by state: the result that stands for it
        self._running = Guard()

    def run(self, leaves: Sequence[Any]) -> Any:
        """Runs on the arrays of the arguments, and gives the results as a pytree."""
        given = dict(zip(self.inputs, leaves, strict=True))
        with self._running.lock:
            found = self._with_states(self.states, given) if self.states is not None else self.program.run(self._arrays(given))
        jax = _package()
        values = [_wrapped(jax, found[name], dtype) for name, dtype in zip(self.outputs, self.keys)]
        return jax.tree.unflatten(self.tree, values)

    def _arrays(self, given: dict[str, Any]) -> dict[str, NDArray[Any]]:
        return {name: _array(leaf, self.program.signature.inputs[name].element_type) for name, leaf in given.items()}

    def _with_states(self, states: Stateful, given: dict[str, Any]) -> dict[str, Any]:
        """Runs on states. Residents that the arguments bring back stay where they are; others that still live are read first."""
        brought = {name: given.pop(name) for name in self.pairs}
        alive = {name: resident for name, ref in self.current.items() if (resident := ref()) is not None}
        kept = len(alive) == len(self.pairs) and all(brought[name] is resident for name, resident in alive.items())
        new = {} if kept else self._arrays(brought)
        inputs = self._arrays(given)
        for name, resident in alive.items():
            if brought[name] is not resident:
                resident.leave()
        for name, array in new.items():
            states.set(name, array)
        for leaf in brought.values():
            if isinstance(leaf, Resident):
                leaf.donate()
        found: dict[str, Any] = dict(states.run(inputs))
        for name, output in self.pairs.items():
            type = self.program.signature.inputs[name]
            made = Resident(states, name, type.get_shape(), dtype_of(type.element_type))
            self.current[name], found[output] = weakref.ref(made), made
        return found


class Resident:
    """An array that is on the machine, as the state of a program. NumPy and JAX read it as an array (`np.asarray`).

    After it was donated to the next run it is gone, as a donated array of JAX is.
    """

    def __init__(self, states: Stateful, name: str, shape: tuple[int, ...], dtype: Any):
        self._states: Stateful | None = states
        self._name = name
        self._own: NDArray[Any] | None = None
        self.shape, self.dtype = shape, dtype

    @property
    def ndim(self) -> int:
        """The number of dimensions."""
        return len(self.shape)

    def leave(self) -> None:
        """Copies the array to the host, because another takes its place on the machine."""
        self._own, self._states = self.__array__(), None

    def donate(self) -> None:
        """Gives the array away; it cannot be read any more."""
        self._states, self._own = None, None

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        if self._states is None and self._own is None:
            raise PopulusError(f"'{self._name}' was donated to a run; use the array that the run gave in its place")
        found = self._own if self._states is None else self._states.get(self._name)
        assert found is not None
        return found if dtype is None else found.astype(dtype)

    def __jax_array__(self) -> Any:
        return _package().numpy.asarray(self.__array__())

    def __repr__(self) -> str:
        return f"Resident('{self._name}', {self.dtype}{list(self.shape)})"


def _array(leaf: Any, element: Attribute) -> NDArray[Any]:
    """Gives the array of a leaf, in the element type of the program. A key of JAX is its words."""
    import numpy as np

    jax = _package()
    if isinstance(leaf, jax.Array) and jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        leaf = jax.random.key_data(leaf)
    return np.asarray(leaf).astype(dtype_of(element), copy=False) if not np.iscomplexobj(leaf) else np.asarray(leaf)


def _wrapped(jax: Any, value: Any, dtype: Any) -> Any:
    """Makes a key of JAX of its words; gives any other result as it is."""
    is_key = dtype is not None and jax.dtypes.issubdtype(dtype, jax.dtypes.prng_key)
    return jax.random.wrap_key_data(value, impl=GENERATORS[str(dtype)]) if is_key else value


def _aliases(module: ModuleOp) -> dict[int, int]:
    """Gives the donated arguments of @main, each with the number of the result that takes its place."""
    stated = main_of(module).properties.get("arg_attrs")
    entries = list(cast("ArrayAttr[Attribute]", stated)) if isinstance(stated, ArrayAttr) else []
    marks = {i: entry.data.get(ALIAS) for i, entry in enumerate(entries) if isinstance(entry, DictionaryAttr)}
    return {i: cast("IntegerAttr[Any]", mark).value.data for i, mark in marks.items() if isinstance(mark, IntegerAttr)}
