"""What ONNX's suite does not reach of the ops that read between elements, sort and transform."""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest
from onnx.helper import make_node

import populus
from helpers.every_engine import ENGINES, model_of, node, on_every_engine
from populus import onnx_backend
from populus.dialects.support.diagnostics import PopulusError

F = np.float32


def run(node, *inputs):
    (y, *_) = onnx_backend.run_node(node, list(inputs))
    return y


def test_a_transform_and_its_inverse_are_nothing():
    x = np.random.default_rng(0).normal(size=(2, 12, 2)).astype(F)
    there = run(make_node("DFT", ["x"], ["y"]), x)
    np.testing.assert_allclose(run(make_node("DFT", ["x"], ["y"], inverse=1), there), x, atol=1e-6)


def test_a_transform_agrees_with_numpy_in_doubles():
    x = np.random.default_rng(1).normal(size=(3, 9, 1)).astype(F)
    expected = np.fft.rfft(x[..., 0].astype(np.float64))
    found = run(make_node("DFT", ["x"], ["y"], onesided=1), x)
    np.testing.assert_allclose(found[..., 0] + 1j * found[..., 1], expected, rtol=1e-6, atol=1e-6)


def test_a_write_outside_is_an_error_and_no_write():
    node = make_node("ScatterElements", ["x", "i", "u"], ["y"])
    with pytest.raises(PopulusError, match=r"index 4 is outside 0\.\.4"):
        run(node, np.zeros(4, F), np.array([4]), np.ones(1, F))
    np.testing.assert_array_equal(run(node, np.zeros(4, F), np.array([-1]), np.ones(1, F)), [0, 0, 0, 1])


def test_regions_whose_number_of_samples_depends_on_the_data_are_refused():
    node = make_node("RoiAlign", ["x", "r", "b"], ["y"])
    with pytest.raises(PopulusError, match="sampling_ratio is 0"):
        run(node, np.zeros((1, 1, 4, 4), F), np.zeros((1, 4), F), np.array([0]))


@pytest.mark.parametrize("n", [1, 5])
@pytest.mark.parametrize("mode", ["zeros", "border", "reflection"])
def test_a_grid_on_the_elements_gives_the_elements(n, mode):
    x = np.random.default_rng(2).normal(size=(1, 2, n, n)).astype(F)
    at = ((2 * np.arange(n) + 1) / n - 1).astype(F)
    grid = np.stack(np.meshgrid(at, at), -1)[None]
    np.testing.assert_allclose(run(make_node("GridSample", ["x", "g"], ["y"], padding_mode=mode), x, grid), x, atol=1e-5)


@pytest.mark.parametrize("align", [0, 1])
@pytest.mark.parametrize("kind", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize(
    "size", [[1, 1, 2, 3], [2, 3, 4, 5], [1, 2, 1, 3], [2, 1, 0, 3], [1, 2, 3, 4, 5], [2, 1, 1, 2, 3], [0, 1, 2, 3]], ids=str
)
def test_an_affine_grid_is_theta_times_where_each_element_stands(size, kind, align):
    n, _, *extents = size
    rank = len(extents)
    theta = np.random.default_rng(5).normal(size=(n, rank, rank + 1)).astype(kind)
    stands = [np.linspace(-1, 1, e) if align else (2 * np.arange(e) + 1) / max(e, 1) - 1 for e in extents]
    at = np.stack([*reversed(np.meshgrid(*stands, indexing="ij")), np.ones(extents)], -1)
    expected = np.einsum("nij,...j->n...i", theta.astype(float), at)
    found = run(make_node("AffineGrid", ["theta", "size"], ["y"], align_corners=align), theta, np.array(size))
    assert found.dtype == kind
    np.testing.assert_allclose(found, expected, rtol=0, atol=8 * np.finfo(kind).eps)


def test_a_theta_that_does_not_fit_the_size_of_an_affine_grid_is_refused():
    with pytest.raises(PopulusError, match=r"theta is \[1, 2, 3\], the size \[2, 4, 4\]; \[2, 2, 3\] is expected"):
        run(make_node("AffineGrid", ["theta", "size"], ["y"], "grid"), np.zeros((1, 2, 3), F), np.array([2, 1, 4, 4]))


X = np.arange(6, dtype=F).reshape(2, 3)


@pytest.mark.parametrize(
    ("op", "inputs"),
    [
        ("GatherElements", [X, np.array([[-3, 0, 0]])]),
        ("GatherND", [X, np.array([[0, 3]])]),
        ("GatherND", [X, np.array([[1, -4]])]),
        ("ScatterElements", [X, np.array([[-3, 0, 0]]), np.ones((1, 3), F)]),
        ("ScatterND", [X, np.array([[0, 3]]), np.ones(1, F)]),
    ],
)
def test_an_index_outside_of_its_dimension_is_no_element_of_another(op, inputs):
    names = [f"x{i}" for i in range(len(inputs))]
    with pytest.raises(PopulusError, match=r"'pick': .*index -?\d+ is outside"):
        run(make_node(op, names, ["y"], "pick"), *inputs)


def _read_at(x, at):
    """Elements of x, [n], linearly between two."""
    low = np.clip(np.floor(at).astype(int), 0, len(x) - 1)
    high = np.minimum(low + 1, len(x) - 1)
    return x[low] + (x[high] - x[low]) * (at - low)


@pytest.mark.parametrize("engine", ["numpy", "native"])
def test_coordinates_of_doubles_are_doubles(engine):
    n, m = 37, 301
    x = np.random.default_rng(3).normal(size=n) * 1e3
    at = np.arange(m) * (n - 1) / (m - 1)
    resize = model_of(
        [node("Resize", "x - - sizes", "y", mode="linear", coordinate_transformation_mode="align_corners")],
        {"x": x[None, None]},
        {"sizes": np.array([1, 1, m])},
    )
    found = populus.compile(resize, engine=engine).run({"x": x[None, None]})["y"]
    np.testing.assert_allclose(found.reshape(-1), _read_at(x, at), rtol=1e-12, atol=1e-10)
    grid = np.stack([2 * at / (n - 1) - 1, np.zeros(m)], -1)[None, None]
    inputs = {"x": x[None, None, None], "g": grid}
    sample = model_of([node("GridSample", "x g", "y", mode="linear", padding_mode="border", align_corners=1)], inputs)
    found = populus.compile(sample, engine=engine).run(inputs)["y"]
    np.testing.assert_allclose(found.reshape(-1), _read_at(x, at), rtol=1e-12, atol=1e-10)


def test_doubles_of_an_open_size_are_resized_as_doubles():
    x = np.random.default_rng(4).normal(size=(1, 1, 7))
    model = model_of(
        [node("Resize", "x - - sizes", "y", mode="linear", coordinate_transformation_mode="align_corners")],
        {"x": x},
        {"sizes": np.array([1, 1, 19])},
    )
    model.graph.input[0].type.tensor_type.shape.dim[2].dim_param = "n"
    found = populus.compile(model, dims={"n": (2, 12)}).run({"x": x})["y"]
    np.testing.assert_allclose(found.reshape(-1), _read_at(x[0, 0], np.arange(19) * 6 / 18), rtol=1e-12)


@pytest.mark.parametrize("align", [0, 1])
@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
def test_a_grid_of_no_number_reads_at_the_first_edge_as_onnxruntime_does(mode, padding, align):
    x = 2.0 ** np.arange(12, dtype=F).reshape(1, 1, 3, 4)
    special = [np.nan, np.inf, -np.inf, 1e30, -1e30, 2.5, -1.7, 0.4]
    g = np.array([[v, 0.3] for v in special] + [[0.3, v] for v in special], F)[None, None]
    inputs = {"x": x, "g": g}
    model = model_of([node("GridSample", "x g", "y", mode=mode, padding_mode=padding, align_corners=align)], inputs, opset=20)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    (expected,) = session.run(None, inputs)
    for engine, found in on_every_engine(model, inputs).items():
        np.testing.assert_allclose(found["y"], expected, rtol=1e-4, atol=1e-3, err_msg=engine)


@pytest.mark.parametrize("special", [np.nan, np.inf, -np.inf])
def test_an_offset_or_region_of_no_number_reads_zeros(special):
    x = np.ones((1, 1, 4, 4), F)
    offset = np.zeros((1, 2, 4, 4), F)
    offset[0, 0, 1, 2] = special
    regions = np.array([[0, 0, 3, 3], [special, 0, 3, 3]], F)
    expected = np.ones((4, 4))
    expected[1, 2] = 0
    inputs = {"x": x, "o": offset}
    model = model_of([node("DeformConv", "x w o", "y")], inputs, {"w": np.ones((1, 1, 1, 1), F)}, opset=22)
    for engine, found in on_every_engine(model, inputs).items():
        np.testing.assert_array_equal(found["y"][0, 0], expected, err_msg=engine)
    inputs = {"x": x, "r": regions}
    model = model_of([node("RoiAlign", "x r b", "y", output_height=2, output_width=2, sampling_ratio=1)], inputs, {"b": np.array([0, 0])})
    for engine, found in on_every_engine(model, inputs).items():
        np.testing.assert_array_equal(found["y"][:, 0], [np.ones((2, 2)), np.zeros((2, 2))], err_msg=engine)


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
@pytest.mark.parametrize("engine", ENGINES)
def test_a_sample_outside_of_a_picture_reads_none_of_its_elements(engine, mode):
    x = np.full((1, 2, 3, 3), np.nan, F)
    grid = np.array([[5, 5], [-5, 0], [0, 7]], F).reshape(1, 1, 3, 2)
    model = model_of([node("GridSample", "x g", "y", mode=mode, padding_mode="zeros")], {"x": x, "g": grid})
    assert not populus.compile(model, engine=engine, tiles=4).run({"x": x, "g": grid})["y"].any()
    rois, batch = np.array([[20, 20, 24, 24]], F), np.array([0])
    model = model_of([node("RoiAlign", "x r b", "y", output_height=1, output_width=1, sampling_ratio=2)], {"x": x, "r": rois, "b": batch})
    assert not populus.compile(model, engine=engine, tiles=4).run({"x": x, "r": rois, "b": batch})["y"].any()
