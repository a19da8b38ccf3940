"""Ops in C++ of public applications that only lay a tensor out anew, and the cube of a tutorial, for `--load remapped.py`."""

from populus.custom import (
    ClassVar,
    Expr,
    UnaryOp,
    f16,
    f32,
    f64,
    function_of,
    irdl_op_definition,
    operand_def,
    result_def,
    tensors,
    text,
    whole,
)


class FloatOp(UnaryOp):
    """`y = forward(x)`, of floats."""

    T: ClassVar = tensors("T", f16, f32, f64)
    x = operand_def(T)
    y = result_def(T)


@irdl_op_definition
class RemapCEOp(FloatOp):
    """`y = x`, laid out anew: no attribute changes a value. Source: graphcore/examples, remap_tensor_ce.cpp, ai.graphcore RemapCE-1."""

    name = "graphcore.remap_ce"
    ONNX: ClassVar = ("ai.graphcore", "RemapCE", 1)
    OVERRIDES: ClassVar = True
    grain_size: int = whole(8)
    fwd_grain_size: int = whole(8)
    bwd_grain_size: int = whole(8)
    fwd_clone_layout: int = whole(0)
    bwd_clone_layout: int = whole(0)
    fwd_after_matmul: int = whole(0)
    bwd_after_matmul: int = whole(0)
    debug_str: str = text("remap")

    def forward(self, x: Expr) -> Expr:
        return x * 1


@irdl_op_definition
class CopyTensorOp(FloatOp):
    """`y = x`. Source: graphcore/examples, copy_custom_op.cpp, ai.graphcore CopyTensor-1."""

    name = "graphcore.copy_tensor"
    ONNX: ClassVar = ("ai.graphcore", "CopyTensor", 1)
    OVERRIDES: ClassVar = True

    def forward(self, x: Expr) -> Expr:
        return x * 1


@irdl_op_definition
class CubeOp(FloatOp):
    """`y = x x x`. Source: graphcore/examples, cube_fn_custom_op.cpp, com.acme Cube-1."""

    name = "acme.cube"
    ONNX: ClassVar = ("com.acme", "Cube", 1)

    def forward(self, x: Expr) -> Expr:
        return x * x * x


remap_ce = function_of(RemapCEOp)
copy_tensor = function_of(CopyTensorOp)
cube = function_of(CubeOp)
