"""Ops whose definitions are made when they are asked for are those of xDSL: definitions, accessors, traits and formats."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
from typing import Any, ClassVar, Generic

import pytest
from typing_extensions import TypeVar
from xdsl.dialects.builtin import IntegerAttr, StringAttr, i32, i64
from xdsl.dialects.test import TestOp as AnyOp
from xdsl.irdl import IRDLOperation, ParsePropInAttrDict, irdl_op_definition, operand_def, opt_prop_def, prop_def, result_def, traits_def
from xdsl.traits import Pure
from xdsl.utils.exceptions import PyRDLOpDefinitionError, VerifyException

from populus.dialects.base.tensor_op import TensorOp
from populus.dialects.support import late_ops
from populus.dialects.support.constraints import number

ALL = """
import contextlib, inspect, sys
quick = sys.argv[1] == "quick"
import populus
from populus.dialects.support import quick_classes, late_ops
with quick_classes.quick_classes() if quick else contextlib.nullcontext():
    import populus.lowering.driver.passes, populus.runtime.engine.native.codegen.to_llvm
    from populus.dialects.table import DIALECTS, SHARED_DIALECTS
    dialects = {name: load() for name, load in {**DIALECTS, **SHARED_DIALECTS}.items()}
from xdsl.irdl import IRDLOperation
ops = {op for dialect in dialects.values() for op in dialect.operations} | set(IRDLOperation.__subclasses__())
ops = sorted((op for op in ops if "get_irdl_definition" in vars(op)), key=lambda op: (op.__module__, op.__qualname__))
late = sum(isinstance(vars(op)["get_irdl_definition"], late_ops._Later) for op in ops)
print(late > 200 if quick else late == 0)
print(len(ops))

def shown(value):
    if isinstance(value, classmethod):
        return shown(value.__func__)
    if isinstance(value, property):
        return [shown(value.fget), shown(value.fset)]
    if not inspect.isfunction(value) or value.__module__ != "xdsl.irdl.operations":
        return [value, vars(value) if hasattr(value, "constraint") else ""]
    cells = {name: cell.cell_contents for name, cell in zip(value.__code__.co_freevars, value.__closure__ or ())}
    return value.__qualname__, value.__code__.co_code, [shown(cell) for name, cell in cells.items() if name != "op_def"]

for op in ops:
    definition = op.get_irdl_definition()
    print(op, definition, definition.accessor_names, sorted(map(repr, definition.traits)), op.traits is definition.traits)
    for name in sorted(name for name in vars(op) if not name.startswith("__") and name != "get_irdl_definition"):
        with contextlib.suppress(AttributeError):  # as an accessor of a class
            getattr(op, name)
        print(" ", name, shown(vars(op)[name]))
"""

SEEDED = {**os.environ, "PYTHONHASHSEED": "0"}  # sets have one order


def test_all_ops_of_the_package_and_of_xdsl_are_as_those_of_xdsl():
    commands = [[sys.executable, "-c", ALL, way] for way in ("quick", "plain")]
    texts = [subprocess.run(command, capture_output=True, text=True, check=True, env=SEEDED).stdout for command in commands]
    quick, plain = (re.sub("0x[0-9a-f]+", "0x", text).splitlines() for text in texts)
    assert plain[0] == "True" and int(plain[1]) > 400
    assert quick == plain


T = TypeVar("T")


def scaled(decorate: Any) -> Any:
    """Makes an op with an operand, a property that may be absent, a format and a check of its own."""

    @decorate
    class ScaledOp(IRDLOperation):
        name = "test.scaled"
        x = operand_def(i32)
        by = prop_def(IntegerAttr)
        label = opt_prop_def(StringAttr)
        y = result_def(i32)
        traits = traits_def(Pure())
        irdl_options = (ParsePropInAttrDict(),)
        assembly_format = "$x attr-dict"
        LIMIT: ClassVar[int] = 9

        def verify_(self) -> None:
            if self.by.value.data > self.LIMIT:
                raise VerifyException(f"by = {self.by.value.data}")

    return ScaledOp


def late(cls: Any) -> Any:
    """Makes a class an op as if a module of the package had it."""
    own, cls.__module__ = cls.__module__, "populus"
    made = late_ops.irdl_op_definition(cls)
    cls.__module__ = own
    return made


def is_late(cls: Any, name: str = "get_irdl_definition") -> bool:
    return type(vars(cls)[name]).__name__ == "_Later"


def an_op(cls: Any, by: int = 3) -> Any:
    x = AnyOp(result_types=[i32]).results[0]
    return cls(operands=[x], properties={"by": IntegerAttr(by, i32)}, result_types=[i32])


def test_an_op_is_made_by_its_first_use_and_its_format_by_the_first_print():
    made = scaled(late)
    assert is_late(made) and is_late(made, "x") and is_late(made, "print")
    op = an_op(made)
    assert op.x is op.operands[0] and op.by.value.data == 3 and op.label is None
    assert not is_late(made) and not is_late(made, "x") and is_late(made, "print") and is_late(made, "parse")
    assert str(op) == str(an_op(scaled(irdl_op_definition)))
    assert not is_late(made, "print") and not is_late(made, "parse")
    assert made.get_irdl_definition().assembly_format == "$x attr-dict"


def test_a_property_that_is_set_before_any_is_read_is_set():
    made = scaled(late)
    op = made.__new__(made)
    op.properties = {}
    assert is_late(made, "label")
    op.label = StringAttr("a")
    assert op.properties["label"] == StringAttr("a") and op.label == StringAttr("a")
    op.label = None
    assert "label" not in op.properties


def test_the_own_check_of_an_op_and_that_of_its_definition_run():
    made = scaled(late)
    an_op(made, 9).verify()
    with pytest.raises(VerifyException, match="by = 10"):
        an_op(made, 10).verify()
    with pytest.raises(VerifyException, match="y"):
        made(operands=[AnyOp(result_types=[i32]).results[0]], properties={"by": IntegerAttr(1, i32)}, result_types=[i64]).verify()


def test_an_op_of_a_late_one_has_its_fields():
    base = scaled(late)
    derived = type("DerivedOp", (base,), {})
    assert an_op(derived).by.value.data == 3 and derived.get_irdl_definition() is base.get_irdl_definition()


def test_what_somebody_sets_in_a_late_class_stays():
    made = scaled(late)
    made.verify_ = lambda self: None
    an_op(made, 10).verify()
    assert an_op(made).by.value.data == 3
    an_op(made, 10).verify()


def test_an_op_with_a_mistake_says_so_when_it_is_used():
    def wrong(decorate: Any) -> Any:
        @decorate
        class WrongOp(IRDLOperation):
            name = "test.wrong"
            x = 3

        return WrongOp

    with pytest.raises(PyRDLOpDefinitionError) as plain:
        wrong(irdl_op_definition)
    made = wrong(late)
    with pytest.raises(PyRDLOpDefinitionError) as found:
        made.get_irdl_definition()
    assert str(found.value) == str(plain.value)


def test_ops_of_others_and_generic_ones_are_made_at_once():
    assert not is_late(scaled(late_ops.irdl_op_definition))

    class GenericOp(IRDLOperation, Generic[T]):
        name = "test.generic"

    assert not is_late(late(GenericOp))


def test_threads_that_use_an_op_first_find_one_definition_and_plain_values():
    for _ in range(20):

        class TypedOp(TensorOp):
            name = "test.typed"
            x = operand_def()
            by: float = number(1.0)
            y = result_def()

            def infer(self) -> list[Any]:
                return [self.x.type]

        made = late(TypedOp)
        start, found = threading.Barrier(4), list[Any]()

        def use(made: Any = made, start: threading.Barrier = start, found: list[Any] = found) -> None:
            start.wait()
            found.append((id(made.get_irdl_definition()), type(vars(made)["by"]).__name__))

        threads = [threading.Thread(target=use) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert found == 4 * [(id(made.get_irdl_definition()), "_TypedAccessor")]
