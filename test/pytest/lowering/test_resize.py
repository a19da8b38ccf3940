"""An element that an output of Resize does not read has no part in it, be it a NaN or an infinity.

onnxruntime's Resize of an image with a single 1 tells which outputs read that element.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnxruntime
import pytest
from numpy.typing import NDArray
from onnx import ModelProto

import populus
from helpers.every_engine import ENGINES, model_of, node

F = np.float32
X = np.random.default_rng(7).normal(size=(1, 2, 6, 7)).astype(F)
PLACES = [(0, 0, 0, 0), (0, 1, 2, 3), (0, 1, 3, 1), (0, 0, 5, 6)]


def resize(by: tuple[float, float] | tuple[int, int], **attributes: Any) -> ModelProto:
    """Builds a Resize by scales if they are floats, else to sizes."""
    to = np.array([1, 1, *by], F) if isinstance(by[0], float) else np.array([1, 2, *by])
    given = "x - by" if isinstance(by[0], float) else "x - - by"
    return model_of([node("Resize", given, "y", **attributes)], {"x": X}, {"by": to}, opset=19)


MODELS: Mapping[str, ModelProto] = {
    "twice": resize((2.0, 2.0), mode="linear"),
    "thrice from the corner": resize((3.0, 3.0), mode="linear", coordinate_transformation_mode="asymmetric"),
    "half": resize((0.5, 0.5), mode="linear"),
    "a factor for each dimension": resize((1.7, 0.8), mode="linear"),
    "between corners": resize((11, 5), mode="linear", coordinate_transformation_mode="align_corners"),
    "antialiased": resize((0.4, 0.55), mode="linear", antialias=1),
    "cubic": resize((2.0, 1.5), mode="cubic"),
    "cubic without the outside": resize((2.0, 3.0), mode="cubic", exclude_outside=1),
    "cubic to sizes": resize((9, 10), mode="cubic", coordinate_transformation_mode="align_corners"),
    "cubic antialiased": resize((0.4, 0.55), mode="cubic", antialias=1),
}


def run(model: ModelProto, x: NDArray[Any]) -> NDArray[Any]:
    return onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"]).run(None, {"x": x})[0]


def planted(x: NDArray[Any], place: tuple[int, ...], value: float) -> NDArray[Any]:
    y = x.copy()
    y[place] = value
    return y


@pytest.mark.parametrize("name", MODELS)
def test_an_element_that_is_no_tap_has_no_part(name: str):
    model = MODELS[name]
    programs = {engine: populus.compile(model, engine=engine, tiles=4) for engine in ENGINES}
    taps = 0
    for place in PLACES:
        reads = run(model, planted(np.zeros_like(X), place, 1)) != 0
        assert not reads.all()
        taps += reads.sum()
        rest = run(model, planted(X, place, 0))
        for value in (np.nan, np.inf, -np.inf):
            for engine, program in programs.items():
                y = program.run({"x": planted(X, place, value)})["y"]
                np.testing.assert_array_equal(~np.isfinite(y), reads, f"{engine} {place} {value}")
                np.testing.assert_allclose(y[~reads], rest[~reads], rtol=0, atol=2e-6)
                if "cubic" not in name:  # no weight is negative
                    np.testing.assert_array_equal(y[reads], F(value))
    assert taps


@pytest.mark.parametrize("name", MODELS)
def test_a_gradient_goes_to_the_taps_alone(name: str):
    model = MODELS[name]
    shape = run(model, X).shape
    place = tuple(n // 2 for n in shape)
    places = np.argwhere(np.ones(X.shape, bool))
    read = np.array([run(model, planted(np.zeros_like(X), tuple(p), 1))[place] != 0 for p in places]).reshape(X.shape)
    g = planted(np.ones(shape, F), place, np.nan)
    for engine in ENGINES:
        _, found = populus.vjp(model, ["x"], engine=engine, tiles=4).run({"x": X}, {"y": g})
        np.testing.assert_array_equal(np.isnan(found["x"]), read, engine)


@pytest.mark.parametrize("name", ["twice", "half", "cubic twice", "between corners", "to sizes"])
def test_an_open_size_reads_its_taps_alone(name: str):
    more = {
        "cubic twice": resize((2.0, 2.0), mode="cubic"),
        "to sizes": resize((9, 10), mode="linear"),
    }
    model = {**MODELS, **more}[name]
    opened = ModelProto.FromString(model.SerializeToString())
    for d, size in ((2, "h"), (3, "w")):
        opened.graph.input[0].type.tensor_type.shape.dim[d].dim_param = size
    program = populus.compile(opened, dims={"h": (2, 12), "w": (2, 12)})
    assert np.isnan(program.run({"x": np.full((1, 2, 12, 12), np.nan, F)})["y"]).all()
    np.testing.assert_allclose(program.run({"x": X})["y"], run(model, X), rtol=0, atol=2e-6)
    for place in PLACES:
        reads = run(model, planted(np.zeros_like(X), place, 1)) != 0
        y = program.run({"x": planted(X, place, np.inf)})["y"]
        np.testing.assert_array_equal(~np.isfinite(y), reads, str(place))
        if "cubic" not in name:
            np.testing.assert_array_equal(y[reads], F(np.inf))
