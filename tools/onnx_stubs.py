"""Writes `dialects/onnx/ops.pyi`, the types of the generated ops for type checkers: `python -m populus.tools.onnx_stubs`.

The stub has the newest version of each op that the installed `onnx` knows. Older versions are just `OnnxOp`.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, cast

from populus.dialects.onnx.schema import OnnxOp, Parameter, all_classes, field_name

PROPERTY_TYPES = {
    "INT": "IntegerAttr",
    "FLOAT": "FloatAttr",
    "STRING": "StringAttr",
    "INTS": "DenseArrayBase",
    "FLOATS": "DenseArrayBase",
    "STRINGS": "ArrayAttr",
}

HEADER = '''"""Written by `python -m populus.tools.onnx_stubs` from onnx {version}: the newest version of each op. Do not edit."""

from xdsl.dialects.builtin import ArrayAttr, DenseArrayBase, FloatAttr, IntegerAttr, StringAttr
from xdsl.ir import Attribute, OpResult, Region, SSAValue
from xdsl.irdl import VarOperand, VarOpResult

from populus.dialects.onnx.schema import OnnxOp

def __getattr__(name: str) -> type[OnnxOp]: ...  # pyright: ignore[reportIncompleteStub]
'''


def main(arguments: list[str] | None = None) -> int:
    """Writes the stub, or another file if one is named."""
    given = sys.argv[1:] if arguments is None else arguments
    path = Path(given[0]) if given else Path(__file__).resolve().parent.parent / "dialects/onnx/ops.pyi"
    path.write_text(stub())
    return 0


def stub() -> str:
    """Renders the text of the stub."""
    from importlib.metadata import version

    newest = {(c.DOMAIN, c.OP_TYPE): c for c in all_classes() if c.DOMAIN.partition(".")[0] in ("", "ai")}  # not a user's own
    return HEADER.format(version=version("onnx")) + "".join(f"\n{_class(c)}" for c in newest.values())


def _class(kind: type[OnnxOp]) -> str:
    lines: dict[str, str] = {}
    for parameters, types in ((kind.INPUTS, ("SSAValue", "VarOperand")), (kind.OUTPUTS, ("OpResult", "VarOpResult"))):
        for p in parameters:
            lines[field_name(p.name, lines)] = _value(p, *types)
    attributes = cast("dict[str, Any]", kind.schema().attributes)
    for name in sorted(attributes):
        type = "Region" if name in kind.GRAPHS else PROPERTY_TYPES.get(attributes[name].type.name, "Attribute")
        sure = attributes[name].required or name in kind.DEFAULTS or name in kind.GRAPHS
        lines[field_name(name, lines)] = type if sure else f"{type} | None"
    body = "".join(f"    {name}: {type}\n" for name, type in lines.items()) or "    pass\n"
    return f"class {kind.__name__}(OnnxOp):\n{body}"


def _value(p: Parameter, one: str, several: str) -> str:
    return {"single": one, "optional": f"{one} | None", "variadic": several}[p.kind]


if __name__ == "__main__":
    sys.exit(main())
