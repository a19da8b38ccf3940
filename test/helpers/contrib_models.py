"""Models of one com.microsoft node, and their comparison with onnxruntime."""

from __future__ import annotations

import numpy as np
import onnxruntime
from onnx import helper, numpy_helper

import populus

ENGINES = ("numpy", "native")
WEIGHTS = (-64, 65)  # of i8: onnxruntime without VNNI saturates the sum of two products by larger ones at 16 bits


def node_model(op, inputs, outputs=("y0",), fed=(0,), opset=17, **attributes):
    """Makes a model of one node. `inputs`: arrays, None for an absent one; those at `fed` are inputs, others weights."""
    names = [f"x{i}" if x is not None else "" for i, x in enumerate(inputs)]
    node = helper.make_node(op, names, list(outputs), "node", domain="com.microsoft", **attributes)
    given = {f"x{i}": x for i, x in enumerate(inputs) if x is not None and i in fed}
    infos = [helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(x.dtype), x.shape) for n, x in given.items()]
    weights = [numpy_helper.from_array(x, f"x{i}") for i, x in enumerate(inputs) if x is not None and i not in fed]
    ends = [helper.make_empty_tensor_value_info(o) for o in outputs if o]
    graph = helper.make_graph([node], "g", infos, ends, weights)
    imports = [helper.make_opsetid("", opset), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=imports, ir_version=10), given


def agree(op, inputs, outputs=("y0",), fed=(0,), tolerance=1e-5, wanted=None, opset=17, steps=1, **attributes):
    """Compares every output on both engines with `wanted`, by default onnxruntime's results."""
    model, given = node_model(op, inputs, outputs, fed, opset, **attributes)
    named = [o for o in outputs if o]
    if wanted is None:
        options = onnxruntime.SessionOptions()
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        options.intra_op_num_threads = 1  # onnxruntime quantizes the states of each thread's rows by themselves
        wanted = [np.asarray(w) for w in onnxruntime.InferenceSession(model.SerializeToString(), options).run(None, given)]
    for engine in ENGINES:
        found = populus.compile(model, tiles=4, engine=engine).run(given)
        for name, w in zip(named, wanted, strict=True):
            f = found[name]
            assert (f.dtype, f.shape) == (w.dtype, w.shape), (name, f.dtype, f.shape, w.dtype, w.shape)
            if w.dtype.kind != "f":
                assert np.abs(f.astype(np.int64) - w.astype(np.int64)).max(initial=0) <= (steps if w.dtype.itemsize == 1 else 0)
                continue
            finite = np.isfinite(w)
            np.testing.assert_array_equal(f[~finite], w[~finite])
            scale = np.abs(w[finite]).max(initial=1e-30)
            assert np.abs(f[finite] - w[finite]).max(initial=0) <= tolerance * scale, (engine, name)
