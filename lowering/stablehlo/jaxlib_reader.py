"""Reads any form of StableHLO by jaxlib, and expands what is defined by other ops.

jaxlib is an extra: it is imported by name when a text wants it.
"""

from __future__ import annotations

import re
from importlib import import_module
from typing import Any

from populus.dialects.support.diagnostics import PopulusError
from populus.lowering.stablehlo.quantized_types import readable
from populus.lowering.stablehlo.refinement import NOTHING, Given, main_of, open_places, refined

BYTECODE = b"ML\xefR"
PLACE = "populus.place"
KEPT = frozenset(["acos", "acosh", "asin", "asinh", "atan", "atanh", "cosh", "erf", "sinh", "tan"])
"""The ops of chlo that stay, on real numbers: `popart` has them."""
CONFIG = "mhlo.backend_config"
SHARDINGS = frozenset(["sdy.mesh", "sdy.sharding_constraint"])
"""Ops that JAX writes around keys of random numbers, on one device too. They say where a tensor is, not what it is."""
INSTALL = "install jaxlib, which reads it: pip install jax"


def _mlir(name: str) -> Any:
    """Imports a module of jaxlib's MLIR."""
    return import_module(f"jaxlib.mlir.{name}")


def generic_text(content: bytes, name: str, given: Given = NOTHING) -> str:
    """Reads any form by jaxlib and prints the generic one, in which each op has its place.

    `given`: sizes of open dimensions, and values of inputs. Raises PopulusError if jaxlib is not installed, or cannot read the
    content, and for what is given and does not fit.
    """
    module = read_by_jaxlib(content, name, given)
    try:
        prepare(module, module.context)
    except (_mlir("ir").MLIRError, ValueError) as error:
        raise PopulusError(_message(str(error), name)) from None
    return printed(module)


def read_by_jaxlib(content: bytes, name: str, given: Given = NOTHING) -> Any:
    """Reads any form as a module of jaxlib, with static shapes as far as `given` states them. Raises PopulusError as `generic_text`."""
    try:
        ir, stablehlo = _mlir("ir"), _mlir("dialects.stablehlo")
    except ImportError:
        kind = "bytecode" if content.startswith(BYTECODE) else "sizes are given" if given else "StableHLO in its pretty form"
        raise PopulusError(f"{name}: {kind}; {INSTALL}") from None
    try:
        module = _parsed(ir, stablehlo, content, name)
        if (main := main_of(module)) is not None and (given or any("?" in str(a.type) for a in main.regions[0].blocks[0].arguments)):
            module = refined(ir, module, _input_names(main), given)
    except PopulusError as error:
        raise PopulusError(f"{name}: {error}") from None
    except (ir.MLIRError, ValueError) as error:
        raise PopulusError(_message(str(error), name)) from None
    return module


def _parsed(ir: Any, stablehlo: Any, content: bytes, name: str) -> Any:
    """Reads any form as a module of jaxlib, as it is."""
    context = new_context()
    if content.startswith(BYTECODE):
        return _portable(context, stablehlo, content, name) or ir.Module.parse(content, context)
    return ir.Module.parse(readable(content.decode()), context)


def open_types(content: bytes, name: str) -> tuple[dict[str, str], list[str]] | None:
    """Gives the texts of types of @main, of inputs by name and of results, if an input has an open dimension; else None.

    None too for what jaxlib cannot read, or without it: `generic_text` says why.
    """
    if not content.startswith(BYTECODE) and re.search(rb"tensor<[^>]*\?", content) is None:
        return None
    try:
        ir, stablehlo = _mlir("ir"), _mlir("dialects.stablehlo")
        module = _parsed(ir, stablehlo, content, name)
    except (ImportError, ValueError, PopulusError):
        return None
    if (main := main_of(module)) is None:
        return None
    inputs = dict(zip(_input_names(main), (str(a.type) for a in main.regions[0].blocks[0].arguments), strict=True))
    results = [str(t) for t in ir.FunctionType(ir.TypeAttr(main.attributes["function_type"]).value).results]
    return (inputs, results) if any(map(open_places, inputs.values())) else None


def printed(module: Any) -> str:
    """Prints a module of jaxlib in the generic form."""
    return str(module.operation.get_asm(print_generic_op_form=True, enable_debug_info=False))


def new_context() -> Any:
    """Makes a context of jaxlib with the dialects that it has."""
    registry = _mlir("ir").DialectRegistry()
    _mlir("_mlir_libs._jax_mlir_ext").register_dialects(registry)
    context = _mlir("ir").Context()
    context.append_dialect_registry(registry)
    for name in ("stablehlo", "chlo", "sdy"):
        _mlir(f"dialects.{name}").register_dialect(context)
    context.load_all_available_dialects()
    return context


def _portable(context: Any, stablehlo: Any, content: bytes, name: str) -> Any:
    """Reads a portable artefact; None for other bytecode. Raises PopulusError for one of a newer version."""
    stated = re.search(rb"StableHLO_v(\d+)\.(\d+)\.(\d+)", content[:64])
    if stated is None:
        return None
    version, ours = b".".join(stated.groups()).decode(), str(stablehlo.get_current_version())
    if [int(n) for n in version.split(".")] > [int(n) for n in ours.split(".")]:
        raise PopulusError(f"{name}: a portable artefact of StableHLO {version}; jaxlib here reads up to {ours}; write it for that version")
    return stablehlo.deserialize_portable_artifact(context, content)


def _message(text: str, name: str) -> str:
    """Makes one line of jaxlib's message: place and reason."""
    found = re.search(r'error: "?([^":\n]*)"?:(\d+):(\d+): (.*)', text)
    if found is not None:
        return f"{name}:{found[2]}:{found[3]}: {found[4]}"
    reason = " ".join(text.split()).removeprefix("Unable to parse module assembly: ").removeprefix("error: ")
    return f"{name}: {reason or 'jaxlib cannot read it'}"


def prepare(module: Any, context: Any) -> None:
    """Expands a module of jaxlib to what has a conversion, and marks each op with its place. Raises ir.MLIRError."""
    ir = _mlir("ir")
    found = {"chlo": False, "dynamic": False}
    _remove_shardings(module)

    def look(operation: Any) -> Any:
        for attribute in list(operation.attributes):
            attribute_name = str(attribute if isinstance(attribute, str) else attribute.name)
            if attribute_name == CONFIG:  # as JAX writes it; options of LAPACK are in it
                operation.attributes["backend_config"] = operation.attributes[CONFIG]
                operation.attributes["api_version"] = ir.IntegerAttr.get(ir.IntegerType.get_signless(32, context), 4)
            if attribute_name.startswith(("sdy.", "mhlo.")):
                del operation.attributes[attribute_name]
        types = " ".join(str(v.type) for v in operation.results)
        found["dynamic"] |= "?" in types
        return ir.WalkResult.ADVANCE

    module.operation.walk(look)
    found["chlo"] = _hide_chlo(module, context)
    passes = (
        (found["dynamic"], "stablehlo-refine-shapes"),
        (found["chlo"], "func.func(chlo-legalize-to-stablehlo)"),
        (found["dynamic"], "func.func(stablehlo-canonicalize-dynamism)"),
    )
    if names := [p for wanted, p in passes if wanted]:
        _mlir("dialects.stablehlo").register_stablehlo_passes()
        _mlir("passmanager").PassManager.parse(f"builtin.module({','.join(names)})", context).run(module.operation)
    module.operation.walk(lambda operation: _mark(operation, ir, context))


def _remove_shardings(module: Any) -> None:
    """Removes what places tensors on several devices: meshes, and constraints, whose results are their operands."""
    ir, hidden = _mlir("ir"), list[Any]()

    def look(operation: Any) -> Any:
        if str(operation.name) in SHARDINGS:
            hidden.append(operation)
        return ir.WalkResult.ADVANCE

    module.operation.walk(look)
    for operation in hidden:
        for operand, result in zip(operation.operands, operation.results):
            result.replace_all_uses_with(operand)
        operation.erase()


def _mark(operation: Any, ir: Any, context: Any) -> Any:
    """Notes an op's place as an attribute: texts of jaxlib have places that xDSL does not read."""
    if operation.name == "func.func" and str(operation.attributes["sym_name"]) == '"main"':
        _name_inputs(operation, ir, context)
    place = _place(operation.location)
    if place is not None and operation.name != "builtin.module":
        operation.attributes[PLACE] = ir.StringAttr.get(place, context)
    return ir.WalkResult.ADVANCE


def _input_names(main: Any) -> list[str]:
    """Names the inputs of @main as the producer does: by the names in the places of its arguments, if they differ; else by numbers."""
    arguments = list(main.regions[0].blocks[0].arguments) if len(main.regions[0].blocks) else []
    if "input_names" in main.attributes:
        return [_mlir("ir").StringAttr(n).value for n in main.attributes["input_names"]]
    places = [_place(a.location) for a in arguments]
    names = [p for p in places if p is not None and not p.startswith(":")]
    return names if len(set(names)) == len(arguments) else [f"arg{i}" for i in range(len(arguments))]


def _name_inputs(main: Any, ir: Any, context: Any) -> None:
    """Notes the names of the inputs of @main."""
    if names := _input_names(main):
        main.attributes["input_names"] = ir.ArrayAttr.get([ir.StringAttr.get(n, context) for n in names], context)


def _hide_chlo(module: Any, context: Any) -> bool:
    """Replaces ops of chlo that have a conversion by calls of their names; tells whether others are left."""
    ir = _mlir("ir")
    hidden: list[Any] = []
    left = [False]

    def look(operation: Any) -> Any:
        dialect, _, kind = str(operation.name).partition(".")
        if dialect == "chlo":
            if kind in KEPT and not any("complex" in str(v.type) for v in operation.operands):
                hidden.append(operation)
            else:
                left[0] = True
        return ir.WalkResult.ADVANCE

    module.operation.walk(look)
    if not left[0]:
        return False
    for operation in hidden:
        attributes = {"call_target_name": ir.StringAttr.get(str(operation.name), context)}
        attributes |= {name: operation.attributes[name] for name in ("k",) if name in operation.attributes}
        made = ir.Operation.create(
            "stablehlo.custom_call",
            results=[v.type for v in operation.results],
            operands=list(operation.operands),
            attributes=attributes,
            loc=operation.location,
            ip=ir.InsertionPoint(operation),
        )
        for old, new in zip(operation.results, made.results):
            old.replace_all_uses_with(new)
        operation.erase()
    return True


def _place(location: Any) -> str | None:
    """Gives the name in a location, or its line and column; None if there is neither."""
    text = str(location)
    if (found := re.match(r'loc\("((?:[^"\\]|\\.)*)"(?::(\d+):(\d+))?', text)) is None:
        return None
    return f":{found[2]}:{found[3]}" if found[2] else found[1]


def named_place(location: Any) -> str | None:
    """Gives the name that a producer gave an op; None for a line of a file."""
    place = _place(location)
    return None if place is None or place.startswith(":") else place
