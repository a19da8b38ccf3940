"""Runs of one program with bounded dimensions, compared with programs of exact sizes; what stands beyond the valid part is garbage."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx

import populus
from populus.dialects.onnx.sizes import parse
from populus.dialects.signature import input_names, main_of, output_names
from populus.dialects.signature.bounded_dimensions import PREFIX, RESULTS, equal_sizes, sizes
from populus.lowering.onnx.importer import import_onnx
from populus.lowering.popart.training_names import gradient_name
from populus.program.program import Program, run_level

Arrays = Mapping[str, np.ndarray[Any, Any]]


def garbage(shape: Sequence[int], dtype: np.dtype[Any], rng: np.random.Generator) -> np.ndarray[Any, Any]:
    """Draws what no op may read: NaN, infinities, large numbers."""
    if dtype == np.bool_:
        return rng.integers(0, 2, shape).astype(bool)
    if dtype.kind in "iu":
        info = np.iinfo(dtype)
        return rng.choice(np.array([info.min, info.max, 0, 7], dtype), shape)
    return rng.choice(np.array([np.nan, np.inf, -np.inf, 3e4], np.float32), shape).astype(dtype)


class BoundedRun:
    """One program of a model with bounded dimensions; `run` pads inputs with garbage, and trims results."""

    def __init__(self, model: onnx.ModelProto, dims: Mapping[str, int | tuple[int, int]], **options: Any):
        module = import_onnx(model, dims=dims)
        self.program = populus.compile(module, **options)
        main = main_of(self.program.module("popart"))
        self.outputs = dict(zip(output_names(main), sizes(main, RESULTS), strict=True))
        self.equal = equal_sizes(main)

    def run(self, inputs: Arrays, at: Mapping[str, int], seed: int = 0) -> dict[str, np.ndarray[Any, Any]]:
        """Runs at these sizes of dimensions."""
        for first, second in self.equal:
            assert parse(first).evaluate(at) == parse(second).evaluate(at), (first, second, at)
        found = run_level(self.program, self.program.level, padded(inputs, arguments(self.program), at, seed))
        return {name: trimmed(found[name], texts, at) for name, texts in self.outputs.items()}


def arguments(program: Program) -> dict[str, Any]:
    """Gives the types of all arguments of a program, sizes among them."""
    main = main_of(program.module("popart"))
    return dict(zip(input_names(main), main.function_type.inputs, strict=True))


def padded(inputs: Arrays, types: Mapping[str, Any], at: Mapping[str, int], seed: int) -> dict[str, np.ndarray[Any, Any]]:
    """Puts arrays into buffers of the bounds, with garbage beyond them, and adds the sizes."""
    rng = np.random.default_rng(seed)
    given: dict[str, np.ndarray[Any, Any]] = {}
    for name, type in types.items():
        if name.startswith(PREFIX):
            given[name] = np.array(at[name.removeprefix(PREFIX)], np.int32)
        elif name in inputs:
            array = np.asarray(inputs[name])
            given[name] = garbage(type.get_shape(), array.dtype, rng)
            given[name][tuple(slice(0, n) for n in array.shape)] = array
    return given


def trimmed(array: np.ndarray[Any, Any], texts: Sequence[str], at: Mapping[str, int]) -> np.ndarray[Any, Any]:
    """Cuts an array to its valid part."""
    return array[tuple(slice(0, parse(t).evaluate(at)) if t else slice(None) for t in texts)]


def drawn(model: onnx.ModelProto, at: Mapping[str, int], seed: int = 0) -> dict[str, np.ndarray[Any, Any]]:
    """Draws inputs of a model at these sizes."""
    rng = np.random.default_rng(seed)
    found: dict[str, np.ndarray[Any, Any]] = {}
    initial = {i.name for i in model.graph.initializer}
    for i in model.graph.input:
        if i.name in initial:
            continue
        dtype = onnx.helper.tensor_dtype_to_np_dtype(i.type.tensor_type.elem_type)
        shape = [parse(d.dim_param).evaluate(at) if d.dim_param else d.dim_value for d in i.type.tensor_type.shape.dim]
        if dtype == np.bool_:
            found[i.name] = rng.integers(0, 2, shape).astype(bool)
        elif dtype.kind in "iu":
            found[i.name] = rng.integers(0, 3, shape).astype(dtype)
        else:
            found[i.name] = rng.standard_normal(shape).astype(dtype)
    return found


def compare(
    model: onnx.ModelProto, dims: Mapping[str, int | tuple[int, int]], every: Sequence[Mapping[str, int]], **options: Any
) -> BoundedRun:
    """Compares a bounded program with exact ones at all these sizes."""
    bounded = BoundedRun(model, dims, **options)
    fixed = {n: size for n, size in dims.items() if isinstance(size, int)}
    for seed, sizes_ in enumerate(every):
        at = {**fixed, **sizes_}
        inputs = drawn(model, at, seed)
        exact = populus.compile(import_onnx(model, dims=at), level="popart").run(inputs)
        found = bounded.run(inputs, at, seed)
        for name, expected in exact.items():
            assert found[name].shape == expected.shape, (name, at, found[name].shape, expected.shape)
            np.testing.assert_allclose(found[name], expected, rtol=1e-4, atol=1e-5, err_msg=f"{name} at {at}")
    return bounded


def compare_gradients(
    model: onnx.ModelProto, dims: Mapping[str, tuple[int, int]], every: Sequence[Mapping[str, int]], wrt: Sequence[str], **options: Any
) -> None:
    """Compares the gradients of a bounded program with those of exact ones at all these sizes."""
    bounded = populus.vjp(import_onnx(model, dims=dims), wrt, **options)
    main = main_of(bounded.program.module("popart"))
    results = dict(zip(output_names(main), sizes(main, RESULTS), strict=True))
    for seed, at in enumerate(every):
        rng = np.random.default_rng(seed)
        inputs = drawn(model, at, seed)
        exact = populus.vjp(import_onnx(model, dims=at), wrt, **options)
        cotangents = {n: rng.standard_normal(t.get_shape()).astype(np.float32) for n, t in exact.cotangents.items()}
        _, expected = exact.run(inputs, cotangents)
        given = {**bounded.weights, **inputs, **{gradient_name(n): a for n, a in cotangents.items()}}
        found = run_level(bounded.program, bounded.program.level, padded(given, arguments(bounded.program), at, seed))
        _, trimmed_by_run = bounded.run(inputs, cotangents)
        for name, gradient in expected.items():
            valid = trimmed(found[gradient_name(name)], results[gradient_name(name)], at)
            np.testing.assert_allclose(trimmed_by_run[name], gradient, rtol=1e-3, atol=1e-4, err_msg=f"{name} at {at}")
            np.testing.assert_allclose(valid, gradient, rtol=1e-3, atol=1e-4, err_msg=f"{name} at {at}")
