"""A model's own functions against onnxruntime: nested, in branches, with attributes by reference and by default."""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest
from onnx import parser

import populus

MODEL = """<ir_version: 10, opset_import: ["": 18, "local": 1]> g (float[2,3] x) => (float[2,3] y, float[2,3] z) {
  y = local.outer <slope = 0.3> (x)
  z = local.outer (x)
}
<domain: "local", opset_import: ["": 18, "local": 1]> outer <slope: float = 0.1> (a) => (b) {
  c = local.inner <alpha: float = @slope> (a)
  t = Constant <value = float {0.0}> ()
  s = ReduceSum <keepdims = 0> (a)
  k = Greater (s, t)
  b = If (k) <then_branch = p () => (u) { u = local.inner <alpha: float = @slope> (c) }, else_branch = q () => (v) { v = Neg (c) }>
}
<domain: "local", opset_import: ["": 18]> inner <alpha: float = 0.7> (a) => (b) { b = LeakyRelu <alpha: float = @alpha> (a) }
"""


@pytest.mark.parametrize("sign", [1, -1])
def test_nested_functions_take_attributes_by_reference_in_branches_too(sign):
    model = parser.parse_model(MODEL)
    x = sign * np.array([[-1, 2, -3], [4, -5, 6]], np.float32)
    wanted = onnxruntime.InferenceSession(model.SerializeToString()).run(None, {"x": x})
    found = populus.compile(model, tiles=4).run({"x": x})
    for name, w in zip("yz", wanted, strict=True):
        np.testing.assert_allclose(found[name], np.asarray(w), rtol=1e-6)
