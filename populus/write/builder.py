"""Models written in Python: built-in and user ops called on values.

    with populus.Builder() as b:
        x = b.input("x", (2, 3))
        b.output("y", leaky_relu(x, alpha=0.1))
    program = populus.compile(b.module())

`function_of(OpClass)` makes such a function, with the op's signature and docstring.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from contextvars import ContextVar, Token
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeAlias
from weakref import WeakKeyDictionary

from xdsl.dialects.builtin import FileLineColLoc, FunctionType, IntAttr, LocationAttr, ModuleOp, StringAttr
from xdsl.dialects.func import CallOp, FuncOp, ReturnOp
from xdsl.ir import Attribute, Block, Operation, Region, SSAValue
from xdsl.utils.exceptions import VerifyException

from populus.dialects.base.control_flow import INDEX
from populus.dialects.base.tensor_op import Plain
from populus.dialects.data import constant
from populus.dialects.popart import LoopOp, YieldOp
from populus.dialects.popart.base import PopartOp
from populus.dialects.popart.definition import Definition, built_in, definition_of
from populus.dialects.signature import state_names
from populus.dialects.support.diagnostics import PopulusError, named, place, verify
from populus.dialects.support.element_types import element_of, tensor
from populus.dialects.support.errors import checked
from populus.dialects.support.users_line import users_frame
from populus.lowering.onnx.importer.build import hint

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, DTypeLike

Hook: TypeAlias = "Callable[[PopartOp], None]"


class Builder:
    """A graph under construction: inputs, constants, calls of ops, outputs. `module()` gives it at the popart level.

    Inside `with`, functions of ops insert into this graph. An operand of another graph raises a PopulusError that names both.
    `hooks`: functions called with each op that is inserted.
    """

    def __init__(self, name: str = "main"):
        self.name = name
        self.hooks: list[Hook] = []
        self._block = Block()
        self._inputs: list[str] = []
        self._outputs: dict[str, SSAValue] = {}
        self._called: dict[Builder, None] = {}
        self._tokens: list[Token[Builder | None]] = []
        _GRAPHS[self._block] = name

    def __enter__(self) -> Self:
        self._tokens.append(_CURRENT.set(self))
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        _CURRENT.reset(self._tokens.pop())

    @property
    def block(self) -> Block:
        """The ops so far."""
        return self._block

    @property
    def inputs_in_order(self) -> list[str]:
        """The names of the block's arguments."""
        return list(self._inputs)

    # -- values

    def input(self, name: str, shape: Sequence[int], dtype: DTypeLike = "float32") -> SSAValue:
        """Adds an input with this name, shape (elements per dimension) and element type.

        Raises PopulusError if the name is taken, or if tiles do not support the element type.
        """
        if name in self._inputs:
            raise PopulusError(f"graph '{self.name}' has an input '{name}' already; give this one another name")
        argument = self._block.insert_arg(tensor(tuple(shape), _element(dtype)), len(self._block.args))
        argument.location = named(name)
        hint(argument, name)
        self._inputs.append(name)
        return argument

    def constant(self, array: ArrayLike, name: str = "") -> SSAValue:
        """Adds a copy of an array as a constant. `name`: its name in messages."""
        import numpy as np

        op = constant(np.array(array), name)
        op.location = named(name) if name else call_site()
        self._block.add_op(op)
        if name:
            hint(op.result, name)
        return op.result

    def op(self, op: type[PopartOp] | str, *operands: SSAValue | None, name: str = "", **properties: Plain | None) -> tuple[SSAValue, ...]:
        """Inserts an op and gives its results.

        `op`: a class, or the name of a built-in op such as `relu`. `operands`: in order, None for an optional one that is absent.
        `properties`: the op's attributes. `name`: the op's name in messages; default: the line of the caller.
        Raises PopulusError for an unknown op or attribute, a value out of range, or an operand of another type or graph.
        """
        definition = definition_of(op if not isinstance(op, str) else built_in(op))
        given = list(operands)
        location = named(name) if name else call_site()
        at = place(location)
        try:
            checked = definition.checked([o is not None for o in given], properties)
            for i, operand in enumerate(given):
                if operand is not None and operand.owner is not self._block and (operand.owner.parent_block() is not self._block):
                    other = _graph_of(operand)
                    raise PopulusError(f"operand {i} belongs to graph '{other}', not to graph '{self.name}'; pass it in as an input")
            made = definition.op(*given, **checked)
            made.verify()
        except (PopulusError, VerifyException) as error:
            title = "" if str(error).startswith(definition.op.name) else f"{definition.op.name}: "
            raise PopulusError(f"{at}: {title}{' '.join(str(error).split())}") from None
        made.location = location
        self._block.add_op(made)
        if name:
            hint(made.results[0], name)
        for hook in self.hooks:
            hook(made)
        return tuple(made.results)

    def output(self, name: str, value: SSAValue) -> None:
        """Makes a value an output of the model. Raises PopulusError if the name is taken."""
        if name in self._outputs:
            raise PopulusError(f"graph '{self.name}' has an output '{name}' already; give this one another name")
        self._outputs[name] = value
        if not isinstance(value.owner, Block) and list(self._outputs.values()).count(value) == 1:
            hint(value, name)

    def call(self, graph: Builder, *operands: SSAValue, times: int | None = None) -> tuple[SSAValue, ...]:
        """Calls another graph as a function of the module and gives its results.

        `operands`: the values of the graph's inputs, in order.
        `times`: number of chained calls; each call's outputs become the next call's leading inputs. The other inputs stay the same.
        Raises PopulusError for operands of other types or of another graph, a graph without outputs, and recursion.
        """
        location = call_site()
        at, inputs, outputs = place(location), [a.type for a in graph._block.args], [v.type for v in graph._outputs.values()]
        if not outputs:
            raise PopulusError(f"{at}: graph '{graph.name}' has no output")
        if graph is self or self in graph.functions():
            raise PopulusError(f"{at}: graph '{graph.name}' calls itself")
        if found := next((g.name for g in self.functions() if g.name == graph.name and g is not graph), None):
            raise PopulusError(f"{at}: two different graphs are called '{found}'; give one of them another name")
        if [o.type for o in operands] != inputs:
            given, expected = (", ".join(map(str, types)) or "nothing" for types in ([o.type for o in operands], inputs))
            raise PopulusError(f"{at}: graph '{graph.name}' takes {expected}; it got {given}")
        for i, operand in enumerate(operands):
            self._own(i, operand, at)
        if times is None:
            made: Operation = CallOp(graph.name, list(operands), outputs)
        else:
            if times < 0 or outputs != inputs[: len(outputs)]:
                why = f"{times} times" if times < 0 else "its outputs do not have the types of its first inputs"
                raise PopulusError(f"{at}: graph '{graph.name}' cannot be repeated: {why}")
            block = Block(arg_types=[INDEX, *outputs])
            inner = CallOp(graph.name, [*block.args[1:], *operands[len(outputs) :]], outputs)
            block.add_ops([inner, YieldOp(*inner.results)])
            made = LoopOp(operands[: len(outputs)], Region(block), trips=times)
            inner.location = location
        made.location = location
        self._block.add_op(made)
        self._called[graph] = None
        return tuple(made.results)

    def functions(self) -> list[Builder]:
        """Lists the graphs that this one calls, directly or through others."""
        found: dict[Builder, None] = {}
        for graph in self._called:
            found |= dict.fromkeys([graph, *graph.functions()])
        return list(found)

    def module(self) -> ModuleOp:
        """Builds the module at the popart level. More ops may be added afterwards. Raises PopulusError if there is no output."""
        if not self._outputs:
            raise PopulusError(f"graph '{self.name}' has no output; name one with output(name, value)")
        function = self._function("main")
        state_names(function, inputs=self._inputs, outputs=self._outputs)
        module = ModuleOp([function, *(graph._function(graph.name, "private") for graph in self.functions())])
        verify(module)
        return module

    def _function(self, name: str, visibility: str | None = None) -> FuncOp:
        block = Block(arg_types=[a.type for a in self._block.args])
        values: dict[SSAValue, SSAValue] = dict(zip(self._block.args, block.args))
        for old, new in zip(self._block.args, block.args):
            new.location, new.name_hint = old.location, old.name_hint
        for op in self._block.ops:
            copy = op.clone(values)
            copy.location = op.location
            block.add_op(copy)
        outputs = [values[v] for v in self._outputs.values()]
        block.add_op(ReturnOp(*outputs))
        type = FunctionType.from_lists([a.type for a in block.args], [v.type for v in outputs])
        return FuncOp(name, type, Region(block), visibility=None if visibility is None else StringAttr(visibility))

    def _own(self, number: int, operand: SSAValue, at: str | None) -> None:
        """Raises PopulusError for an operand of another graph."""
        if operand.owner is not self._block and operand.owner.parent_block() is not self._block:
            other = _graph_of(operand)
            raise PopulusError(f"{at}: operand {number} belongs to graph '{other}', not to graph '{self.name}'; pass it in as an input")


_CURRENT: ContextVar[Builder | None] = ContextVar("populus graph", default=None)
_GRAPHS: WeakKeyDictionary[Block, str] = WeakKeyDictionary()  # block -> name of its graph


def innermost() -> Builder | None:
    """Gives the graph of the innermost `with`, None outside any."""
    return _CURRENT.get()


def current() -> Builder:
    """Gives the graph of the innermost `with`. Raises PopulusError outside any."""
    builder = _CURRENT.get()
    if builder is None:
        raise PopulusError("no graph is being built; call this inside `with populus.Builder() as b:`")
    return builder


def function_of(op: type[PopartOp]) -> Callable[..., Any]:
    """Makes a function that inserts the op into the graph of the innermost `with` and returns its result.

    An op whose class has another number of results than one, or a result that stands for any number, gives a tuple in any case.
    Operands come first. Attributes are keywords with their defaults, and `name` is last.
    Front ends may pass their own tensors, which have an attribute `ssa`. The results then have the same class.
    """
    if not issubclass(checked(op, type, "op", "the class of an op", PopulusError), PopartOp):
        raise PopulusError(f"`op` is {op.__qualname__}; expected the class of an op, which PopartOp is a base of")
    definition = definition_of(op)

    def call(*args: Any, **keywords: Any) -> Any:
        try:
            bound = signature.bind(*args, **keywords)
        except TypeError as error:
            raise PopulusError(f"{place(call_site())}: {op.name}: {error}; it is {op.name.partition('.')[2]}{signature}") from None
        operands: list[Any] = []
        for operand in definition.operands:
            found = bound.arguments.pop(operand.name, () if operand.kind == "variadic" else None)
            operands += found if operand.kind == "variadic" else [found]
        like = next((o for o in operands if hasattr(o, "ssa")), None)
        values = [o.ssa if hasattr(o, "ssa") else o for o in operands]
        name = bound.arguments.pop("name", "")
        results = current().op(op, *values, name=name, **bound.arguments)
        wrapped = results if like is None else tuple(like.of(r) for r in results)
        return wrapped[0] if single else wrapped

    signature, single = _signature(definition), [r.kind for r in definition.results] == ["one"]
    call.__name__ = call.__qualname__ = definition.name
    call.__doc__ = definition.doc
    call.__module__ = op.__module__
    call.__dict__["__signature__"] = signature
    return call


def signature_of(op: type[PopartOp]) -> inspect.Signature:
    """Gives the Python signature of `function_of(op)`."""
    return _signature(definition_of(op))


def _signature(definition: Definition) -> inspect.Signature:
    P = inspect.Parameter
    kinds = {
        "one": (P.POSITIONAL_OR_KEYWORD, P.empty),
        "optional": (P.POSITIONAL_OR_KEYWORD, None),
        "variadic": (P.VAR_POSITIONAL, P.empty),
    }
    operands: list[inspect.Parameter] = []
    for o in definition.operands:
        kind, default = kinds[o.kind]
        if any(p.kind == P.VAR_POSITIONAL for p in operands):
            kind = P.KEYWORD_ONLY  # what follows any number of operands is named
        elif kind == P.POSITIONAL_OR_KEYWORD and default is P.empty and any(p.default is None for p in operands):
            default = None  # an operand that is left out may precede it; the op's definition is checked later
        operands.append(P(o.name, kind, default=default, annotation="Value"))
    properties = [
        P(p.name, P.KEYWORD_ONLY, default=P.empty if p.required else p.plain_default, annotation=p.kind)
        for p in definition.properties.values()
    ]
    return inspect.Signature([*operands, *properties, P("name", P.KEYWORD_ONLY, default="", annotation="str")])


def _element(dtype: DTypeLike) -> Attribute:
    import numpy as np

    try:
        return element_of(np.dtype(dtype))
    except TypeError as error:
        raise PopulusError(f"{error}; tiles hold floats, integers and booleans") from None


def _graph_of(value: SSAValue) -> str:
    block = value.owner if isinstance(value.owner, Block) else value.owner.parent_block()
    return "" if block is None else _GRAPHS.get(block, "")


def call_site() -> LocationAttr:
    """Gives the location of the caller's line outside this package."""
    frame = users_frame()
    return FileLineColLoc(StringAttr(frame.f_code.co_filename), IntAttr(frame.f_lineno), IntAttr(1))
