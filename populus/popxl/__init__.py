"""Graphs as in PopXL: an `Ir` with a main graph, streams to and from the host, sessions that run it.

    ir = popxl.Ir()
    with ir.main_graph:
        stream = popxl.h2d_stream((2,), popxl.float32, name="x")
        y = ops.relu(ops.host_load(stream, "x"))
        out = popxl.d2h_stream(y.shape, y.dtype, name="y")
        ops.host_store(out, y)
    with popxl.Session(ir, "ipu_model") as session:
        outputs = session.run({stream: x})

What a function of `populus.function_of` gives for a tensor of this front end is one too.
Source: Graphcore, PopXL user guide.
"""

from populus.popxl import ops
from populus.popxl.dtypes import bool, dtype, float16, float32, float64, int8, int16, int32, int64, uint8, uint16, uint32
from populus.popxl.ir import DeviceToHostStream, Graph, HostToDeviceStream, Ir, TensorSpec, d2h_stream, h2d_stream
from populus.popxl.session import Session
from populus.popxl.tensor import Tensor, constant

__all__ = [
    "DeviceToHostStream",
    "Graph",
    "HostToDeviceStream",
    "Ir",
    "Session",
    "Tensor",
    "TensorSpec",
    "bool",
    "constant",
    "d2h_stream",
    "dtype",
    "float16",
    "float32",
    "float64",
    "h2d_stream",
    "int8",
    "int16",
    "int32",
    "int64",
    "ops",
    "uint8",
    "uint16",
    "uint32",
]
