"""Rows of `populus check-op` beyond an op's own values: its attributes, integers, second derivatives, codelets, sizes, training, ONNX."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, cast

from xdsl.dialects.builtin import DenseArrayBase, ModuleOp, TensorType
from xdsl.ir import Operation, SSAValue

from populus.dialects.base.tensor_op import ints
from populus.dialects.popart import NoGradient
from populus.dialects.popart.base import ElementwiseOp, PopartOp
from populus.dialects.popart.definition import Definition, plain
from populus.dialects.popops import CodeletOp
from populus.dialects.signature import input_names, main_of
from populus.dialects.support import user_op_errors
from populus.dialects.support.element_types import dtype_of, element_type_of, is_float, shape_of
from populus.lowering.driver.extensions import Extension
from populus.lowering.onnx.op_schema import schemas
from populus.lowering.onnx.to_popart.declared import REDUCED, met, neutral_of
from populus.lowering.onnx.to_popart.masks import filler
from populus.program.compile import compile
from populus.runtime.interpreter import run_function
from populus.runtime.views import params_of
from populus.tools.op_gradients import Unmet, differences, second
from populus.tools.op_model import Array, Example, OpModel, close, difference, off_by
from populus.training.derivatives import vjp

if TYPE_CHECKING:
    from onnx import ModelProto

DRAWS = 3  # of random integers
RATE = 0.1  # of the two steps of training


def attributes(model: OpModel) -> tuple[str, str]:
    """Checks each attribute at other values: levels and `evaluate` agree, the gradient is right, and the schema has it.

    The remark names attributes that change no value of the examples.
    """
    checked: dict[str, bool] = {}  # name -> whether a value changed
    for example in model.examples:
        inputs = model.inputs(example)
        base = model.run(model.module(example), inputs, level="popops")
        for name, value, module, again in model.changed(example):
            title = f"with '{name}' = {value!r}"
            expected = model.run(module, inputs, level="popart")
            for level in ("popops", "poplar"):
                for y, got in model.run(module, inputs, level=level).items():
                    if not close(got, expected[y]):
                        raise Unmet(f"{title} {level} gives other values than popart for {y}: {off_by(got, expected[y])}")
            if model.has_gradient and all(_finite(a) for a in expected.values()):
                try:
                    differences(model, again, model.inputs(again, "float64"), 2)
                except NoGradient:
                    pass
                except Unmet as error:
                    raise Unmet(f"{title} {error}") from None
            changed = any(difference(a, base[y]) > 0 if y in base else True for y, a in expected.items())
            checked[name] = checked.get(name, False) or changed
    for schema in schemas(model.definition):
        for name, p in model.definition.properties.items():
            if p.kind != "any" and name not in schema.attributes:
                raise Unmet(f"the schema {schema.name}-{schema.since_version} lacks the attribute '{name}'")
    if not checked:
        return "none", "no attribute to change"
    idle = [n for n, changed in checked.items() if not changed]
    return "ok", f"{', '.join(checked)}" + (f"; the examples do not show what {', '.join(idle)} changes" if idle else "")


def _finite(a: Array) -> bool:
    import numpy as np

    return bool(np.isfinite(a.astype(np.float64)).all())


def integers(model: OpModel) -> tuple[str, str]:
    """Checks the levels on random integers in the ranges that the examples state."""
    drawn = 0
    for example in model.examples:
        ranged = [
            i
            for i, o in enumerate(example[0])
            if o is not None and (s := model.stated_at(example, i)).low is not None and s.values is None and _is_whole(model, example, i)
        ]
        for seed in range(100, 100 + DRAWS if ranged else 100):
            module, inputs = model.module(example), model.inputs(example, seed=seed)
            expected = model.run(module, inputs, level="popart")
            for level in ("popops", "poplar"):
                for y, got in model.run(module, inputs, level=level).items():
                    if not close(got, expected[y]):
                        raise Unmet(f"for other integers {level} gives other values than popart for {y}: {off_by(got, expected[y])}")
            drawn += 1
    return ("ok", f"{drawn} draws in the stated ranges") if drawn else ("none", "no example states a range of integers")


def _is_whole(model: OpModel, example: Example, i: int) -> bool:
    import numpy as np

    return np.dtype(model.dtype_at(example, i, "float32")).kind in "iub"


def second_derivatives(model: OpModel) -> tuple[str, str]:
    """Checks the gradient of the gradient by differences of the gradient."""
    if not model.has_gradient:
        return "none", "no gradient"
    worst: list[float] = []
    for example in model.examples:
        try:
            found = second(model, example, model.inputs(example, "float64"))
        except NoGradient as error:
            return "none", " ".join(str(error).split())
        worst += [] if found is None else [found]
    return ("ok", f"differences of the gradient agree within {max(worst):.1g}") if worst else ("none", "nothing flows twice")


def plain_python(model: OpModel) -> tuple[str, str]:
    """Checks each codelet of the lowering against the Python function that it is."""
    names: dict[str, None] = {}
    for example in model.examples:
        for dtype in ("float32", "float64") if model.is_possible(example, "float64") else ("float32",):
            module, inputs = compile(model.module(example, dtype), level="popops").module("popops"), model.inputs(example, dtype)
            function = main_of(module)
            values: dict[SSAValue, Array] = dict(
                zip(function.body.block.args, [inputs[n] for n in input_names(function) if n in inputs], strict=True)
            )

            def observe(op: Operation, results: list[Array], values: dict[SSAValue, Array] = values) -> None:
                if isinstance(op, CodeletOp) and all(v in values for v in op.operands):
                    names[op.code.name] = None
                    _as_python(model, op, [values[v] for v in op.operands], results)
                values.update(zip(op.results, results))

            run_function(module, inputs, observe)
    return ("ok", f"{', '.join(names)} as Python") if names else ("none", "no codelet in Python")


def _as_python(model: OpModel, op: CodeletOp, operands: list[Array], results: list[Array]) -> None:
    import numpy as np

    from populus.runtime.codelets.plain_python import plain as called

    code = op.code
    model.doing = f"calling {code.name} as Python"
    outputs = {v: np.zeros(shape_of(t), dtype_of(element_type_of(t))) for v, t in zip(code.outputs, op.types())}
    scalars = {n: v for n, v in params_of(op.params).items() if isinstance(v, bool | int | float)}
    try:
        called(code, {**{v: a.copy() for v, a in zip(code.inputs, operands)}, **outputs}, scalars)
    except (ArithmeticError, IndexError, TypeError, ValueError) as error:
        raise Unmet(f"codelet {code.name} as Python raises {type(error).__name__}: {error}; as tile code it does not") from error
    for (name, expected), got in zip(outputs.items(), results):
        if not close(got, expected):
            raise Unmet(f"codelet {code.name} as tile code gives other values than as Python for {name}: {off_by(got, expected)}")


def sizes(model: OpModel, extension: Extension | None) -> tuple[str, str]:
    """Checks dimensions whose size is known in the run only: fewer positions are a part of all, also where a model leaves them open.

    Where positions are mixed, all but the first few hold the neutral element.
    """
    import numpy as np

    tried = False
    for example in model.examples:
        module, inputs = model.module(example), model.inputs(example)
        op = model.op(module)
        fills = {(operand, d): fill for operand, d, fill, *_ in neutral_of(op)}
        names = [f"x{i}" for i, o in enumerate(example[0]) if o is not None]
        for (result, to), dims in _sized(op).items():
            n = max(shape_of(op.operands[i].type)[d] for i, d in dims.items())
            ends = {names[i]: d for i, d in dims.items() if shape_of(op.operands[i].type)[d] == n}
            if n < 2 or not all(x in inputs for x in ends):
                continue
            few = n - 1 if result == REDUCED else n // 2
            smaller = _smaller(model, example, ends, few)
            if result == REDUCED and not model.is_possible(smaller, "float32"):
                continue
            tried, full, fewer = True, dict(inputs), dict(inputs)
            for x, d in ends.items():
                fewer[x] = np.take(inputs[x], range(few), d)
                if (fill := fills.get((names.index(x), d))) is not None:
                    rest = [n - few if e == d else k for e, k in enumerate(inputs[x].shape)]
                    full[x] = np.concatenate([fewer[x], np.full(rest, filler(fill, element_type_of(op.operands[names.index(x)].type)))], d)
            place = 0 if result == REDUCED else result
            said, name = "neutral" if fills.keys() & {(i, d) for i, d in dims.items()} else "independent", f"y{place}" if place else "y"
            expected = model.run(module, full, level="popart")[name]
            expected = expected if result == REDUCED else np.take(expected, range(few), to)
            got = model.run(model.module(smaller), fewer, level="popart")[name]
            if user_op_errors.is_ours(model.definition.op) and result == REDUCED:  # of fewer windows; `masked_windows` knows how many
                expected = expected[tuple(map(slice, got.shape))]
            if got.shape != expected.shape or not close(got, expected):
                how = off_by(got, expected) if got.shape == expected.shape else f"shape {got.shape} for {expected.shape}"
                text = f"result {place} is said to keep dimension {to} apart, but its first {few} positions depend on the others"
                if said == "neutral":
                    text = f"with the element that its `neutral` gives beyond {few} of {n} positions, result {place} is not that of {few}"
                raise Unmet(f"{text}: {how}{user_op_errors.at(op, said)}")
            if model.definition.identity is not None and not model.definition.op.INTERNAL and extension is not None:
                opened = onnx_model(
                    model.definition, module, {x: {d: "n"} for x, d in ends.items()}, {} if result == REDUCED else {result: {to: "n"}}
                )
                model.doing = "running a model that leaves the dimension open"
                program = compile(opened, dims={"n": (1, n)}, load=[extension.path], tiles=1, engine="numpy")
                got = program.run(fewer)[name]
                if not close(got, expected):
                    raise Unmet(f"with an open dimension the model gives other values for {name}: {off_by(got, expected)}")
    return ("ok", "fewer positions give a part of all") if tried else ("none", "it keeps no dimension apart, and has no neutral element")


def _sized(op: PopartOp) -> dict[tuple[int, int], dict[int, int]]:
    """Lists the dimensions that have one size, which may be known in the run only: of operands, by the dimension of a result."""
    if not isinstance(op, ElementwiseOp):
        return {at: {i: d for i, d in enumerate(group) if d is not None} for at, group in met(op).items()}
    shape, shapes = shape_of(op.y.type), [shape_of(o.type) for o in op.operands]
    found = {i: 0 for i, own in enumerate(shapes) if shape and len(own) == len(shape) and own[0] == shape[0]}
    return {(0, 0): found} if found else {}


def _smaller(model: OpModel, example: Example, ends: dict[str, int], few: int) -> Example:
    """Gives the example with fewer positions along a dimension of some operands."""
    from dataclasses import replace

    operands = list(example[0])
    for name, d in ends.items():
        i = int(name.removeprefix("x"))
        shape = list(model.stated_at(example, i).sizes)
        shape[d] = few
        operands[i] = replace(model.stated_at(example, i), shape=tuple(shape), values=None)
    return operands, example[1]


def training(model: OpModel) -> tuple[str, str]:
    """Checks two steps of gradient descent on its floats: tiles give what the level above gives."""
    if not model.has_gradient:
        return "none", "no gradient"
    tried = False
    for example in model.examples:
        module, inputs = model.module(example), model.inputs(example)
        wrt = [n for n, a in inputs.items() if a.dtype.kind == "f" and a.size]
        if not wrt or not all(is_float(element_type_of(r.type)) for r in model.op(module).results):
            continue
        ends: dict[str, dict[str, Array]] = {}
        for level in ("popart", "poplar"):
            model.doing = f"training it at {level}"
            try:
                program = vjp(module, wrt, level=level, tiles=4, engine="numpy")
                moved = dict(inputs)
                for _ in range(2):
                    _, slopes = program.run(moved, {n: _ones(t) for n, t in program.cotangents.items()})
                    moved = {n: a - a.dtype.type(RATE) * slopes[n] if n in slopes else a for n, a in moved.items()}
            except NoGradient as error:
                return "none", " ".join(str(error).split())
            ends[level] = moved
        tried = True
        for name in wrt:
            if not close(ends["poplar"][name], ends["popart"][name], 1e-5):
                by = off_by(ends["poplar"][name], ends["popart"][name])
                raise Unmet(f"after two steps of training on tiles {name} is not what it is at popart: {by}")
    return ("ok", "two steps on tiles as at popart") if tried else ("none", "no floats to train")


def _ones(type: TensorType[Any]) -> Array:
    import numpy as np

    return np.ones(shape_of(type), dtype_of(element_type_of(type)))


def export(model: OpModel, extension: Extension | None) -> tuple[str, str]:
    """Checks the op as a node of an ONNX model, also with other attributes: ONNX's checker takes it, and it gives the same values."""
    if model.definition.identity is None or model.definition.op.INTERNAL or extension is None:
        return "none", "no model contains it"
    from onnx import checker as onnx_checker

    checker: Any = onnx_checker  # its types are known in part
    tried = 0
    with _registered(model.definition):
        for example in model.examples:
            inputs = model.inputs(example)
            for title, module in _variants(model, example):
                written = onnx_model(model.definition, module)
                model.doing = "checking its ONNX model"
                try:
                    checker.check_model(written, full_check=True)
                except Exception as error:  # ONNX has several classes
                    raise Unmet(f"ONNX's checker refuses a model of it{title}: {' '.join(str(error).split())}") from None
                expected = model.run(module, inputs, level="popart")
                got = compile(written, level="popart", load=[extension.path]).run(inputs)
                for y, a in expected.items():
                    if not close(got[y], a):
                        raise Unmet(f"an ONNX model of it{title} gives other values for {y}: {off_by(got[y], a)}")
                tried += 1
    return "ok", f"{tried} models that ONNX's checker takes"


def _variants(model: OpModel, example: Example) -> Iterator[tuple[str, ModuleOp]]:
    yield "", model.module(example)
    for name, value, module, _ in model.changed(example):
        if model.definition.properties[name].kind != "any":
            yield f" with '{name}' = {value!r}", module


class _registered:
    """Makes ONNX know the schemas of a definition for a while."""

    def __init__(self, definition: Definition):
        self.schemas = schemas(definition)

    def __enter__(self) -> None:
        from onnx import defs

        self.before: list[Any] = []
        for s in self.schemas:
            if defs.has(s.name, s.since_version, s.domain):
                known = defs.get_schema(s.name, s.since_version, s.domain)
                if known.since_version == s.since_version:
                    self.before.append(known)
                    defs.deregister_schema(s.name, s.since_version, s.domain)
            defs.register_schema(s)

    def __exit__(self, *error: object) -> None:
        from onnx import defs

        for s in self.schemas:
            defs.deregister_schema(s.name, s.since_version, s.domain)
        for s in self.before:
            defs.register_schema(s)


def onnx_model(
    definition: Definition,
    module: ModuleOp,
    opened: dict[str, dict[int, str]] | None = None,
    results: dict[int, dict[int, str]] | None = None,
) -> ModelProto:
    """Builds the ONNX model of an op's model. `opened` and `results`: names of dimensions that it leaves open."""
    from onnx import TensorProto, helper, numpy_helper

    from populus.dialects.data import constant_value
    from populus.dialects.onnx.types import to_proto

    assert definition.identity is not None
    domain, kind, versions = definition.identity
    function = main_of(module)
    op = next(o for o in module.walk() if isinstance(o, definition.op))
    names: dict[SSAValue, str] = dict(zip(function.body.block.args, input_names(function)))
    constants: list[TensorProto] = []
    given: list[str] = []
    segments = op.properties.get("operandSegmentSizes")
    sizes = list(ints(cast("DenseArrayBase[Any]", segments))) if segments is not None else []
    taken = definition.taken(len(op.operands))
    sizes = sizes or [taken.count(o) for o in definition.operands]
    rest = iter(op.operands)
    for operand, size in zip(definition.operands, sizes):
        for value in [next(rest) for _ in range(size)] if size or operand.kind == "variadic" else [None]:
            if value is not None and value not in names:
                names[value] = f"c{len(constants)}"
                array = constant_value(value)
                assert array is not None, value
                constants.append(numpy_helper.from_array(array, names[value]))
            given.append("" if value is None else names[value])
    inputs = [_typed(n, to_proto(v.type), (opened or {}).get(n, {})) for v, n in names.items() if v in function.body.block.args]
    outputs = [f"y{i}" if i else "y" for i in range(len(op.results))]
    ends = [_typed(n, to_proto(r.type), (results or {}).get(i, {})) for i, (n, r) in enumerate(zip(outputs, op.results))]
    node = helper.make_node(kind, given, outputs, name=definition.name, domain=domain)
    for name, attribute in op.properties.items():
        if name in definition.properties and definition.properties[name].kind != "any":
            node.attribute.append(_attribute(definition, name, plain(attribute)))
    graph = helper.make_graph([node], definition.name, inputs, ends, constants)
    opsets = (
        [helper.make_opsetid("", 20), helper.make_opsetid(domain, max(versions))] if domain else [helper.make_opsetid("", max(versions))]
    )
    return helper.make_model(graph, ir_version=10, opset_imports=opsets)


def _attribute(definition: Definition, name: str, value: Any) -> Any:
    from onnx import AttributeProto, helper, numpy_helper

    from populus.lowering.onnx.op_schema import KINDS

    kind = definition.properties[name].kind
    value = int(value) if kind == "bool" else numpy_helper.from_array(value) if kind == "tensor" else value
    return helper.make_attribute(name, value, attr_type=AttributeProto.AttributeType.Value(KINDS[kind]))


def _typed(name: str, type: Any, opened: dict[int, str]) -> Any:
    from onnx import helper

    found = helper.make_value_info(name, type)
    for d, text in opened.items():
        found.type.tensor_type.shape.dim[d].dim_param = text
    return found
