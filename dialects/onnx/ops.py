"""The op classes by name: `from populus.dialects.onnx.ops import Conv_22`. A class is made when it is first asked for.

A name is the op type and the opset that brought that version, with the domain in front where it is not ONNX's own:
`Softmax_13`, `ai_onnx_ml_Scaler_1`. `ops.pyi` has the newest version of each, with its operands, results and properties.
"""

from __future__ import annotations

from populus.dialects.onnx.schema import OnnxOp, op_class
from populus.dialects.onnx.types import DOMAINS


def __getattr__(name: str) -> type[OnnxOp]:
    from populus.dialects.support.diagnostics import PopulusError

    op_type, _, version = name.rpartition("_")
    domain = next((d for d in DOMAINS if d and op_type.startswith(f"{d.replace('.', '_')}_")), "")
    if domain:
        op_type = op_type.removeprefix(f"{domain.replace('.', '_')}_")
    try:
        found = op_class(domain, op_type, int(version))
    except (ValueError, PopulusError):
        found = None
    if found is None or str(found.VERSION) != version:
        raise AttributeError(f"module {__name__} has no op {name}")
    globals()[name] = found
    return found
