"""The models that the onnx wheel ships, with the inputs and outputs that it ships for them; and which of them are left out."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import numpy_helper

Arrays = dict[str, NDArray[Any]]

DATA = Path(onnx.__file__).parent / "backend/test/data"

# How many there are: an empty folder must not pass for a suite that passes.
COUNTS = {"pytorch-converted": 82, "pytorch-operator": 35, "simple": 23}
NETS = ("bvlc_alexnet", "densenet121", "inception_v1", "inception_v2", "resnet50", "shufflenet", "squeezenet", "vgg19", "zfnet512")

STRINGS = "the size of its result depends on the values that it reads"
DOUBLES = "which float32 cannot hold"  # a GC200 has no doubles, and these values are beyond its floats

# What is left out, with a part of the one line that refuses it.
LEFT_OUT = {
    "test_strnorm_model_monday_casesensintive_lower": STRINGS,
    "test_strnorm_model_monday_casesensintive_nochangecase": STRINGS,
    "test_strnorm_model_monday_casesensintive_upper": STRINGS,
    "test_strnorm_model_monday_empty_output": STRINGS,
    "test_strnorm_model_monday_insensintive_upper_twodim": STRINGS,
}
LEFT_OUT_ON_GC200 = {
    "test_operator_add_broadcast": DOUBLES,
    "test_operator_add_size1_right_broadcast": DOUBLES,
    "test_operator_add_size1_singleton_broadcast": DOUBLES,
    "test_operator_addconstant": DOUBLES,
}


@dataclass(frozen=True)
class Case:
    """One model of the wheel with its first set of data."""

    folder: Path

    @property
    def name(self) -> str:
        return self.folder.name

    @property
    def path(self) -> Path:
        return self.folder / "model.onnx"

    def files(self, kind: str) -> list[Path]:
        """Those of its `input`s or `output`s, in order."""
        return sorted((self.folder / "test_data_set_0").glob(f"{kind}_*.pb"), key=lambda p: int(p.stem.rpartition("_")[2]))

    @cached_property
    def model(self) -> onnx.ModelProto:
        return onnx.load(self.path)

    def inputs(self) -> Arrays:
        initial = {i.name for i in self.model.graph.initializer}
        names = [i.name for i in self.model.graph.input if i.name not in initial]
        return dict(zip(names, map(tensor, self.files("input")), strict=True))

    def outputs(self) -> Arrays:
        return dict(zip((o.name for o in self.model.graph.output), map(tensor, self.files("output")), strict=True))

    def dims(self) -> dict[str, int]:
        """The sizes that its data gives to its symbolic dimensions."""
        arrays = self.inputs() if self.symbolic() else {}
        return {
            d.dim_param: arrays[i.name].shape[position]
            for i in self.model.graph.input
            for position, d in enumerate(i.type.tensor_type.shape.dim)
            if d.dim_param
        }

    def symbolic(self) -> bool:
        return any(d.dim_param for i in self.model.graph.input for d in i.type.tensor_type.shape.dim)


def tensor(path: Path) -> NDArray[Any]:
    """The array in a file of one TensorProto."""
    proto = onnx.TensorProto()
    proto.ParseFromString(path.read_bytes())
    return numpy_helper.to_array(proto)


def cases() -> Iterator[Case]:
    """The small models: those of COUNTS."""
    for group in COUNTS:
        yield from (Case(p.parent) for p in sorted((DATA / group).glob("*/model.onnx")))


def light(net: str) -> Path:
    return DATA / "light" / f"light_{net}.onnx"


def agree(found: Arrays, expected: Arrays, rtol: float = 1e-3, atol: float = 1e-7) -> None:
    """Names, types, shapes and values; the tolerance is that of ONNX's backend runner."""
    assert found.keys() == expected.keys()
    for name, e in expected.items():
        assert (found[name].dtype, found[name].shape) == (e.dtype, e.shape), name
        if e.dtype == object:
            assert found[name].tolist() == e.tolist(), name
            continue
        np.testing.assert_allclose(found[name], e, rtol=rtol, atol=atol, err_msg=name)
