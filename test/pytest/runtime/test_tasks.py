"""Tasks: families keep their order, faults that are planted are refused, and the native engine runs each task as one launch."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from onnx import ModelProto, helper, numpy_helper
from xdsl.dialects.builtin import ModuleOp, StringAttr
from xdsl.ir import Operation
from xdsl.rewriter import InsertPoint, Rewriter

import populus
from populus.dialects.poplar.compute import CopyOp, FamilyOp
from populus.dialects.poplar.memory import ConstOp, DimShuffleOp, SliceOp, VarOp, storage_of, type_of, view_of
from populus.dialects.poplar.overlap import disjoint
from populus.dialects.poplar.partition import Access, Domain, Split
from populus.dialects.poplar.task import TaskOp, result_of
from populus.dialects.poplar.types import DomainAttr, Field, FieldsAttr
from populus.dialects.support.diagnostics import PopulusError, verify
from populus.dialects.support.parser import LocatingParser
from populus.dialects.table import context
from populus.lowering.driver.pipeline import Pipeline
from populus.runtime import liveness, tasks
from populus.runtime.codelets.undefined import VARIABLE
from populus.runtime.liveness import LivenessWalk
from populus.runtime.session import Session, graph_of
from populus.runtime.tasks import make_tasks

Array = NDArray[Any]
node = helper.make_node
T = "!poplar.tensor<1x8x8xf32>"


def noise(*shape: int, dtype: Any = np.float32) -> Array:
    rng = np.random.default_rng(sum(shape))
    return rng.integers(-4, 5, shape).astype(dtype) if np.dtype(dtype).kind in "iu" else rng.standard_normal(shape).astype(dtype)


# -- programs -------------------------------------------------------------------------------------------------------------


def product(a: str, c: str) -> str:
    """A product by %w."""
    return f"""poplar.family @matmul for (k = 8, g = 1, m = 8 in 4, n = 8) on (m)
      in a = {a}[g, m, k] : {T}
      in b = %w[g, k, n] : {T}
      out c = {c}[g, m, n] : {T}"""


def mapped(expression: str, inputs: list[str], y: str) -> str:
    """A map."""
    fields = "\n".join(f"      in x{i} = {x}[i, j, l] : {T}" for i, x in enumerate(inputs, 1))
    return f"""poplar.family @map {{expr = #expr.fn<{expression}>}} for (i = 1, j = 8 in 4, l = 8) on (j)
{fields}
      out y = {y}[i, j, l] : {T}"""


def program(steps: dict[str, str], inputs: str, outputs: str, others: str) -> ModuleOp:
    """A program of executes; each letter is a variable."""
    lines = [f'%{n} = poplar.var "{n}" on [1, 8 in 4, 8] order [1] : {T}' for n in dict.fromkeys(inputs + outputs + others)]
    lines.append('%p = poplar.var "p" on [2 in 2, 1, 8, 8] order [0] : !poplar.tensor<2x1x8x8xf32>')
    lines += [f'poplar.stream_in "{n}" to %{n} : {T}' for n in inputs]
    lines += [f'poplar.execute "{name}" {{ {text} }}' for name, text in steps.items()]
    lines += [f'poplar.stream_out %{n} to "{n}out" : {T}' for n in outputs]
    text = "poplar.graph @main target <host, tiles = 4> {\n" + "\n".join(lines) + "\n}"
    parsed = LocatingParser(context(), text, "tasks.mlir").parse_module()
    verify(parsed)
    return parsed


PLAIN = ({"c": product("%a", "%c"), "y": mapped("max(_1, 0.0)", ["%c"], "%y")}, "aw", "y", "c")
CROSSED = (
    {
        "c": product("%a", "%c"),
        "d": product("%u", "%d"),
        "z": mapped("mul(_1, _1)", ["%v"], "%z"),
        "y": mapped("add(_1, _2)", ["%c", "%z"], "%y"),
        "a": mapped("max(_1, 0.0)", ["%d"], "%a"),  # over what the first product reads
    },
    "awuv",
    "ya",
    "cdz",
)


CUT = (
    {
        "p": product("%a", "%p").replace("k = 8", "k = 8 in 2").replace("8 in 4", "8 in 2").replace("on (m)", "on (k, m)").replace(
            f"%p[g, m, n] : {T}", "%p[at k, g, m, n] : !poplar.tensor<2x1x8x8xf32>"
        ),
        "c": f"""poplar.family @reduce {{op = "add"}} for (r = 2, i = 1, j = 8 in 4, l = 8) on (j)
      in x = %p[r, i, j, l] : !poplar.tensor<2x1x8x8xf32>
      out y = %c[i, j, l] : {T}""",
        "y": mapped("add(_1, _2)", ["%c", "%z"], "%y"),
    },
    "awz",
    "y",
    "c",
)  # fmt: skip


def model(nodes: list[Any], inputs: dict[str, Array], constants: dict[str, Array]) -> ModelProto:
    """A model whose result is y."""
    graph = helper.make_graph(
        nodes,
        "tasks",
        [helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape) for n, a in inputs.items()],
        [helper.make_empty_tensor_value_info("y")],
        [numpy_helper.from_array(a, name) for name, a in constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


RESIDUAL = model(
    [
        node("Conv", ["x", "w", "b"], ["c"], pads=[1, 1, 1, 1]),
        node("MaxPool", ["x"], ["p"], kernel_shape=[3, 3], pads=[1, 1, 1, 1]),
        node("Softmax", ["p"], ["s"]),
        node("Add", ["c", "s"], ["t"]),
        node("Relu", ["t"], ["r"]),
        node("Conv", ["r", "v"], ["d"]),
        node("Tanh", ["d"], ["y"]),
    ],
    {"x": noise(1, 4, 8, 8)},
    {"w": noise(4, 4, 3, 3), "b": noise(4), "v": noise(6, 4, 1, 1)},
)
SLICES = model(
    [node("Gemm", ["x", "w", "b"], ["c"]), node("Relu", ["c"], ["d"]), node("MatMul", ["d", "v"], ["y"])],
    {"x": noise(4, 96)},
    {"w": noise(96, 16), "b": noise(16), "v": noise(16, 5)},
)
BYTES = model(
    [node("MatMulInteger", ["x", "w"], ["c"]), node("Cast", ["c"], ["f"], to=1), node("Mul", ["f", "s"], ["y"])],
    {"x": noise(13, 20, dtype=np.uint8)},
    {"w": noise(20, 70, dtype=np.int8), "s": np.array(0.5, np.float32)},
)
TEXTS = {"plain": PLAIN, "crossed": CROSSED, "cut": CUT}
MODELS = {"residual": (RESIDUAL, "host", 4), "slices": (SLICES, "gc200", 32), "bytes": (BYTES, "host", 4)}


def lowered(name: str) -> ModuleOp:
    """A small program with tasks."""
    if name in TEXTS:
        made = program(*TEXTS[name])
    else:
        source, target, tiles = MODELS[name]
        made = populus.compile(source, target=target, tiles=tiles, pipeline=apart()).module("poplar").clone()
    make_tasks(graph_of(made))
    return made


def apart() -> Any:
    """The pipeline without tasks and addresses."""
    return Pipeline.named("inference").remove("poplar-fuse").remove("poplar-allocate")


NAMES = (*TEXTS, *MODELS)


def found(module: ModuleOp) -> list[TaskOp]:
    return [op for op in module.walk() if isinstance(op, TaskOp)]


def drawn(session: Session) -> dict[str, Array]:
    return {n: noise(*shape, dtype=dtype) for n, (shape, dtype) in session.inputs.items()}


# -- what is right --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_a_program_with_tasks_verifies_and_gives_the_bits_of_its_families_one_by_one(name: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv(VARIABLE, "1")
    module = lowered(name)
    assert found(module)
    verify(module)
    session = Session(module, "numpy")
    inputs = drawn(session)
    expected = session.run(inputs)
    for engine in ("strict", "native"):
        for out, array in Session(module, engine).run(inputs).items():
            np.testing.assert_allclose(array, expected[out], rtol=1e-4, atol=1e-4, err_msg=engine)
    again = LocatingParser(context(), str(module), "again.mlir").parse_module() if name in TEXTS else module.clone()
    verify(again)
    assert str(again) == str(module)


def families(module: ModuleOp) -> list[FamilyOp]:
    return [op for op in module.walk() if isinstance(op, FamilyOp)]


def exchanged(before: list[FamilyOp], after: list[FamilyOp]) -> Iterator[tuple[FamilyOp, FamilyOp]]:
    """Pairs of families that have changed their order though one writes what the other touches."""
    number = {family: i for i, family in enumerate(after)}
    for i, first in enumerate(before):
        for second in before[i + 1 :]:
            if number[first] > number[second] and any(
                f.kind != g.kind or f.kind != "in"
                for f, a in first.connections()
                for g, b in second.connections()
                if storage_of(a) is storage_of(b) and not disjoint(view_of(a), view_of(b)) and (f.kind, g.kind) != ("in", "in")
            ):
                yield first, second


NETS = {
    "squeezenet": lambda: populus.compile(net("squeezenet"), tiles=16, pipeline=apart()),
    "slices": lambda: populus.compile(net("squeezenet"), target="gc200", tiles=64, pipeline=apart()),
    "layer": lambda: populus.compile(SLICES, tiles=16, pipeline=apart()),
}


def net(name: str) -> Any:
    from populus.write.nets import net as path

    return path(name)


@pytest.mark.parametrize("name", NETS)
def test_families_that_touch_the_same_elements_keep_their_order(name: str):
    module = NETS[name]().module("poplar").clone()
    before = families(module)
    make_tasks(graph_of(module))
    assert found(module)
    assert sorted(map(id, families(module))) == sorted(map(id, before))
    assert not list(exchanged(before, families(module)))
    verify(module)


def test_a_map_that_moved_up_is_not_overtaken_by_a_product_that_moves_down():
    module = program(*CROSSED)
    before = families(module)
    make_tasks(graph_of(module))
    assert len(found(module)) == 1
    assert not list(exchanged(before, families(module)))
    session = Session(module, "numpy")
    inputs, native = drawn(session), Session(module, "native")
    for name, array in session.run(inputs).items():
        np.testing.assert_allclose(native.run(inputs)[name], array, rtol=1e-5, atol=1e-5)


def test_a_map_on_sums_that_reads_one_row_of_another_operand_reads_that_row():
    one_row = mapped("add(_1, _2)", ["%c", "%z"], "%y").replace("%z[i, j, l]", "%z[i, 3, l]")
    module = program({"c": product("%a", "%c"), "y": one_row}, "awz", "y", "c")
    make_tasks(graph_of(module))
    assert not found(module)
    session = Session(module, "numpy")
    inputs = drawn(session)
    expected = inputs["a"][0] @ inputs["w"][0] + inputs["z"][0, 3]
    for engine in ("numpy", "native"):
        np.testing.assert_allclose(Session(module, engine).run(inputs)["yout"][0], expected, rtol=1e-4, atol=1e-4)


def test_a_pass_that_does_not_look_between_is_refuted(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(tasks, "touches", lambda op, value: False)
    module = lowered("residual")
    source = populus.compile(RESIDUAL, tiles=4, pipeline=apart()).module("poplar")
    strict = Session(module, "strict")
    assert Session(source, "strict").run(drawn(strict))
    with pytest.raises(PopulusError, match="that nothing wrote"):
        strict.run(drawn(strict))


def test_all_variables_of_a_task_are_live_throughout():
    module = program(*PLAIN)
    graph = graph_of(module)

    def shared() -> bool:
        spans = {op.label.data: span for op, span in liveness.liveness(graph).spans.items() if isinstance(op, VarOp)}
        return any(b <= c for (_, b) in spans["a"] for (c, _) in spans["y"] if b < c)

    assert shared()  # the last step that reads a is before the first that writes y
    make_tasks(graph)
    assert not shared()


def test_memory_that_is_given_away_during_a_task_is_refuted(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(LivenessWalk, "task", lambda self, op, flow: flow.then(self.block(op.body.block)))
    monkeypatch.setattr(np, "may_share_memory", lambda a, b: False)  # else the native engine runs the families apart
    module = lowered("plain")
    monkeypatch.setenv(VARIABLE, "0")
    Session(module, "native")
    monkeypatch.setenv(VARIABLE, "1")
    with pytest.raises(AssertionError, match="a is written while it is read"):
        Session(module, "native")


# -- what is wrong --------------------------------------------------------------------------------------------------------

Fault = Callable[[random.Random, TaskOp], bool]


def fields(family: FamilyOp, number: int, field: Field) -> None:
    """Replaces a field."""
    own = list(family.fields.data)
    own[number] = field
    family.fields = FieldsAttr(tuple(own))


def domain(family: FamilyOp, axis: str, n: int) -> None:
    """Changes the size of an axis, which is whole then."""
    space = family.space
    axes = tuple((a, Split(n) if a == axis else s) for a, s in space.axes)
    family.domain = DomainAttr(Domain(axes, tuple(a for a in space.order if a != axis), space.start))


def sums_read(task: TaskOp) -> tuple[FamilyOp, int] | None:
    """The map and the number of its operand that shows the sums."""
    chain = task.chain
    if chain.ending is None:
        return None
    return chain.ending, next(i for i, v in enumerate(chain.ending.views) if storage_of(v) is storage_of(chain.sums))


def insert(task: TaskOp, op: Operation, after: bool = False) -> Any:
    Rewriter.insert_op(op, InsertPoint.after(task) if after else InsertPoint.before(task))
    return op.results[0] if op.results else None


def neighbours_sum(g: random.Random, task: TaskOp) -> bool:
    """The map reads the sums one row further, of all but the first."""
    where = sums_read(task)
    shape = view_of(where[0].views[where[1]]).shape if where else ()
    dims = [d for d, n in enumerate(shape) if n > 1]
    if where is None or not dims:
        return False
    family, i = where
    d = g.choice(dims)
    ends, begins = list(shape), [int(e == d) for e in range(len(shape))]
    moved = insert(task, SliceOp(family.views[i], begins, ends, [1] * len(shape)))
    family.operands[i] = moved
    axis = family.fields.data[i].access[d].terms[0][0]
    domain(family, axis, shape[d] - 1)
    return True


def another_sum_beside(g: random.Random, task: TaskOp) -> bool:
    """The map reads the sums twice: in place, and in reverse."""
    where = sums_read(task)
    if where is None:
        return False
    family, i = where
    others = [j for j, f in enumerate(family.fields.data) if f.kind == "in" and j != i]
    shape = view_of(family.views[i]).shape
    dims = [d for d, n in enumerate(shape) if n > 1]
    fit = [j for j in others if view_of(family.views[j]).shape == shape and type_of(family.views[j]) == type_of(family.views[i])]
    if not fit or not dims:
        return False
    d = g.choice(dims)
    begins, ends, steps = [0] * len(shape), list(shape), [1] * len(shape)
    begins[d], ends[d], steps[d] = shape[d] - 1, -1, -1
    family.operands[g.choice(fit)] = insert(task, SliceOp(family.views[i], begins, ends, steps))
    return True


def turned_sums(g: random.Random, task: TaskOp) -> bool:
    """The map reads its sums with two dimensions exchanged, by accesses that are exchanged."""
    where = sums_read(task)
    shape = view_of(where[0].views[where[1]]).shape if where else ()
    if where is None or len(shape) < 2 or shape[-1] != shape[-2]:
        return False
    family, i = where
    field = family.fields.data[i]
    fields(family, i, Field(field.kind, field.name, (*field.access[:-2], field.access[-1], field.access[-2])))
    return True


def one_element_for_all(g: random.Random, task: TaskOp) -> bool:
    """The map reads one index of an operand along a dimension, for all of its elements."""
    ending = task.chain.ending
    options = [
        (i, d)
        for i, (f, v) in enumerate(() if ending is None else ending.connections())
        for d, n in enumerate(view_of(v).shape)
        if f.kind == "in" and n > 1
    ]
    if ending is None or not options:
        return False
    i, d = g.choice(options)
    field = ending.fields.data[i]
    index = Access((), g.randrange(view_of(ending.views[i]).shape[d]))
    fields(ending, i, Field(field.kind, field.name, (*field.access[:d], index, *field.access[d + 1 :])))
    return True


def fewer_slices(g: random.Random, task: TaskOp) -> bool:
    """The sum adds all slices but the last."""
    total = task.chain.total
    if total is None:
        return False
    axis = g.choice(sorted(total.contracted))
    domain(total, axis, total.space[axis].n - 1)
    return total.space[axis].n > 0


def another_fold(g: random.Random, task: TaskOp) -> bool:
    """The slices are folded by another op."""
    total = task.chain.total
    if total is None:
        return False
    total.params = type(total.params)({**total.params.data, "op": StringAttr(g.choice(["mul", "max", "min"]))})
    return True


def fewer_elements(g: random.Random, task: TaskOp) -> bool:
    """A family leaves the last index of an axis out."""
    family = g.choice(task.families()[1:])
    axes = [a for a, s in family.space.axes if s.n > 1 and a not in family.contracted]
    if not axes:
        return False
    axis = g.choice(axes)
    domain(family, axis, family.space[axis].n - 1)
    return True


def another_reader(g: random.Random, task: TaskOp) -> bool:
    """A step after the task reads a result that is not stored."""
    lost = task.chain.lost()
    if not lost:
        return False
    value = g.choice(lost)
    copy = insert(task, VarOp("copy", type_of(value)))
    insert(task, CopyOp(value, copy), after=True)
    return True


def over_the_input(g: random.Random, task: TaskOp) -> bool:
    """The last family writes what the product reads."""
    last = task.families()[-1]
    y = result_of(last)
    reads = [v for f, v in task.chain.product.connections() if f.kind == "in" and not isinstance(storage_of(v), ConstOp)]
    fit = [v for v in reads if type_of(v) == type_of(y)]
    if not fit:
        return False
    last.operands[list(last.views).index(y)] = g.choice(fit)
    return True


def backwards(g: random.Random, task: TaskOp) -> bool:
    """The families run in another order."""
    steps = list(task.body.block.ops)
    if len(steps) < 2:
        return False
    steps[-1].detach()
    task.body.block.insert_op_before(steps[-1], steps[0])
    return True


def a_step_more(g: random.Random, task: TaskOp) -> bool:
    """A copy stands in the task."""
    value = task.chain.sums
    copy = insert(task, VarOp("copy", type_of(value)))
    task.body.block.add_op(CopyOp(value, copy))
    return True


def too_early(g: random.Random, task: TaskOp) -> bool:
    """The task runs before the program's first step."""
    first = next(op for op in task.parent.ops if op.name == "poplar.stream_in") if task.parent else task
    task.detach()
    for op in [op for op in first.parent.ops if isinstance(op, VarOp | ConstOp) or op.name.split(".")[1] in VIEWS]:
        op.detach()
        Rewriter.insert_op(op, InsertPoint.before(first))
    Rewriter.insert_op(task, InsertPoint.before(first))
    return True


def partials_turned(g: random.Random, task: TaskOp) -> bool:
    """The sum reads the slices with two dimensions exchanged."""
    total = task.chain.total
    if total is None:
        return False
    (i,) = [i for i, f in enumerate(total.fields.data) if f.kind == "in"]
    shape = view_of(total.views[i]).shape
    order = list(range(len(shape)))
    pairs = [(a, b) for a in order for b in order[a + 1 :] if shape[a] == shape[b] > 1]
    if not pairs:
        return False
    a, b = g.choice(pairs)
    order[a], order[b] = order[b], order[a]
    total.operands[i] = insert(task, DimShuffleOp(total.views[i], order))
    return True


VIEWS = ("slice", "reshape", "broadcast", "dim_shuffle")
FAULTS: tuple[Fault, ...] = (
    neighbours_sum, another_sum_beside, turned_sums, one_element_for_all, fewer_slices, another_fold, fewer_elements, another_reader,
    over_the_input, backwards, a_step_more, too_early, partials_turned,
)  # fmt: skip


def refusal(module: ModuleOp) -> str | None:
    """What the verifier says against a program, or else `strict`; None if both run it."""
    try:
        verify(module)
        strict = Session(module, "strict")
        strict.run(drawn(strict))
    except PopulusError as error:
        return str(error)
    return None


def planted(seed: int) -> tuple[str, ModuleOp]:
    """A program with a fault that is drawn."""
    g = random.Random(seed)
    while True:
        name, fault = g.choice(NAMES), g.choice(FAULTS)
        module = PROGRAMS[name].clone()
        if fault(g, g.choice(found(module))):
            return f"{name}, {fault.__name__}", module


PROGRAMS: dict[str, ModuleOp] = {}


@pytest.fixture(scope="module", autouse=True)
def programs() -> None:
    PROGRAMS.update((name, lowered(name)) for name in NAMES)


@pytest.mark.parametrize("seed", range(20))
def test_a_fault_that_is_drawn_is_refused_by_the_verifier_or_by_strict(seed: int):
    what, module = planted(seed)
    assert refusal(module) is not None, what


def test_each_kind_of_fault_is_refused():
    left = set(FAULTS)
    g = random.Random(0)
    for fault in FAULTS:
        for name in NAMES:
            for number in range(len(found(PROGRAMS[name]))):
                module = PROGRAMS[name].clone()
                if fault(g, found(module)[number]):
                    assert refusal(module) is not None, (fault.__name__, name, number)
                    left.discard(fault)
    assert not left
