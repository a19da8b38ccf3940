"""PopXL: graphs built op by op, with variables, calls and streams, and sessions that run them.

    ir = popxl.Ir()
    with ir.main_graph:
        stream = popxl.h2d_stream((2,), popxl.float32, name="x")
        y = ops.relu(ops.host_load(stream, "x"))
        out = popxl.d2h_stream(y.shape, y.dtype, name="y")
        ops.host_store(out, y)
    with popxl.Session(ir, "ipu_model") as session:
        outputs = session.run({stream: x})

A function of `populus.function_of` takes and gives tensors of this front end. docs/popxl-compatibility.md says which
programs of Graphcore's PopXL run unchanged.
Source: Graphcore, PopXL user guide and API.
"""

from populus.popxl import ops, transforms
from populus.popxl.context import (
    gcg,
    get_current_graph,
    get_ir,
    get_main_graph,
    gir,
    gmg,
    in_sequence,
    io_tiles,
    ipu,
    name_scope,
)
from populus.popxl.dtypes import (
    bool,
    complex64,
    complex128,
    double,
    dtype,
    float,
    float8_143,
    float8_152,
    float16,
    float32,
    float64,
    half,
    int8,
    int16,
    int32,
    int64,
    uint8,
    uint16,
    uint32,
    uint64,
)
from populus.popxl.graph import Graph
from populus.popxl.ir import Ir
from populus.popxl.module import Module
from populus.popxl.random_seed import create_seeds
from populus.popxl.remote_buffer import (
    RemoteBuffer,
    remote_buffer,
    remote_replica_sharded_variable,
    remote_variable,
    replica_sharded_buffer,
    replica_sharded_variable,
)
from populus.popxl.replica_grouping import ReplicaGrouping
from populus.popxl.session import Session
from populus.popxl.streams import DeviceToHostStream, HostToDeviceStream, d2h_stream, h2d_stream
from populus.popxl.tensor import Constant, Tensor, TensorByRef, TensorSpec, Variable, constant, graph_input, graph_output, variable
from populus.popxl.tensorlocation import ExecutionContext, ReplicatedTensorSharding, TensorLocation, TensorStorage, TileSet

__all__ = [
    "Constant",
    "DeviceToHostStream",
    "ExecutionContext",
    "Graph",
    "HostToDeviceStream",
    "Ir",
    "Module",
    "RemoteBuffer",
    "ReplicaGrouping",
    "ReplicatedTensorSharding",
    "Session",
    "Tensor",
    "TensorByRef",
    "TensorLocation",
    "TensorSpec",
    "TensorStorage",
    "TileSet",
    "Variable",
    "bool",
    "complex64",
    "complex128",
    "constant",
    "create_seeds",
    "d2h_stream",
    "double",
    "dtype",
    "float",
    "float8_143",
    "float8_152",
    "float16",
    "float32",
    "float64",
    "gcg",
    "get_current_graph",
    "get_ir",
    "get_main_graph",
    "gir",
    "gmg",
    "graph_input",
    "graph_output",
    "h2d_stream",
    "half",
    "in_sequence",
    "int8",
    "int16",
    "int32",
    "int64",
    "io_tiles",
    "ipu",
    "name_scope",
    "ops",
    "remote_buffer",
    "remote_replica_sharded_variable",
    "remote_variable",
    "replica_sharded_buffer",
    "replica_sharded_variable",
    "transforms",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "variable",
]
