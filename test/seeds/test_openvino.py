"""OpenVINO's custom operations, row by row."""

from __future__ import annotations

import numpy as np
import pytest
from xdsl.builder import Builder
from xdsl.rewriter import InsertPoint

import populus
from helpers.op_files import KERNEL_SELECTION, KERNELS, NO_LOWERING
from populus.dialects.popart.definition import definition_of
from populus.dialects.support.diagnostics import PopulusError
from populus.lowering.driver import extensions

PICK = '''

from xdsl.dialects.builtin import TensorType, i32

from populus.dialects.popart import calls
from populus.dialects.popart.base import PopartOp
from populus.dialects.poplar.tile_code import IntVector, Vector, codelet


@codelet(axes={"table": "n", "indices": "i", "y": "i"})
def picked_in_seeds(table: Vector, indices: IntVector, y: Vector) -> None:
    for i in range(len(y)):
        y[i] = table[indices[i]]


@irdl_op_definition
class PickOp(PopartOp):
    """`y[i] = table[indices[i]]`. Source: a test."""

    name = "acme.pick"
    table = operand_def(TensorType)
    indices = operand_def(TensorType)
    y = result_def(TensorType)

    def infer(self):
        return [TensorType(self.table.type.element_type, self.indices.type.get_shape())]

    def lower(self, b):
        return [calls.codelet(b, picked_in_seeds, self.table, self.indices, shape=self.indices.type.get_shape())]


pick = function_of(PickOp)
'''
SQUARED = '''

from populus.dialects.popart import AddOp, MulOp
from populus.dialects.popart.base import PopartOp


@irdl_op_definition
class SquaredOp(PopartOp):
    """`y = x x + x`, by two built-in ops. Source: a test."""

    name = "acme.squared"
    ONNX: ClassVar = ("com.acme", "Squared", 1)
    T: ClassVar = tensors("T", f32)
    x = operand_def(T)
    y = result_def(T)

    def infer(self):
        return [self.x.type]

    def lower(self, b):
        return [b.insert(AddOp(b.insert(MulOp(self.x, self.x)), self.x)).y]
'''


def test_V12_a_view_of_a_tensor_is_worked_on_without_a_copy(changed):
    pick = extensions.read(changed(more=PICK)).module.pick
    with populus.Builder() as b:
        part = b.op("slice", b.input("t", (9,)), begins=(2,), ends=(8,), steps=(2,))[0]
        b.output("y", pick(part, b.input("i", (3,), "int32")))
    program = populus.compile(b.module(), tiles=1)
    assert not [op for op in program.module("poplar").walk() if op.name == "poplar.copy"]
    assert program.run({"t": np.arange(9, dtype=np.float32), "i": np.array([2, 0, 1], np.int32)})["y"].tolist() == [6, 2, 4]


@pytest.mark.parametrize("engine", ["numpy", "strict"])
def test_V14_a_kernel_that_fails_leaves_the_session_usable(engine, changed):
    pick = extensions.read(changed(more=PICK)).module.pick
    with populus.Builder() as b:
        b.output("y", pick(b.input("t", (4,)), b.input("i", (2,), "int32"), name="pick"))
    program = populus.compile(b.module(), tiles=2, engine=engine)
    table = np.arange(4, dtype=np.float32)
    with pytest.raises(PopulusError, match="index 7 of table is outside of the 4 elements of dimension 0"):
        program.run({"t": table, "i": np.array([0, 7], np.int32)})
    assert program.run({"t": table, "i": np.array([3, 1], np.int32)})["y"].tolist() == [3, 1]


def test_V16_a_kernel_reads_what_a_view_shows(changed):
    pick = extensions.read(changed(more=PICK)).module.pick
    with populus.Builder() as b:
        back = b.op("slice", b.input("t", (4,)), begins=(3,), ends=(-1,), steps=(-1,))[0]
        b.output("y", pick(back, b.input("i", (2,), "int32")))
    for engine in ("numpy", "strict"):
        program = populus.compile(b.module(), tiles=2, engine=engine)
        assert program.run({"t": np.arange(4, dtype=np.float32), "i": np.array([0, 3], np.int32)})["y"].tolist() == [3, 0]


def test_V19_one_file_has_several_ops(changed):
    extension = extensions.read(changed(more=PICK + SQUARED))
    assert [op.name for op in extension.ops] == ["acme.leaky_relu", "acme.pick", "acme.squared"]


def test_V22_a_node_becomes_two_built_in_ops(changed, model):
    program = populus.compile(model("Squared"), load=[changed(more=SQUARED)])
    text = str(program.module("popops"))
    assert "acme" not in text
    assert "popops.map" in text
    assert program.run({"x": np.array([-1, 0, 2], np.float32)})["y"].tolist() == [0, 0, 6]


G = np.random.default_rng(0)


def chain(extension, n=1, shape=(2, 11, 3, 3), dtype="float32", end=None):
    """A module of n calls of the example's op, one after the other."""
    with populus.Builder() as b:
        x = b.input("x", shape, dtype)
        for i in range(n):
            x = extension.module.leaky_relu(x, alpha=0.5, name=f"n{i}")
        b.output("y", end(b, x) if end else x)
    return b.module()


def own_op(extension, module):
    """The first of its ops."""
    return next(o for o in module.walk() if isinstance(o, extension.module.LeakyReluOp))


def selecting(extension, *force, name="inference"):
    """A pipeline with the extension's choice of kernels, some forced."""
    return extension.module.kernels.inference(*force, select=extension.module.AcmeSelectKernelsPass, name=name)


def choices(extension, module, *force, target=None):
    """(each op with its choice, the reasons)"""
    made = extension.module.AcmeSelectKernelsPass(force=force, target=target)
    (selection,) = made.selections(module)
    return selection.chosen, selection.explained()


def reorders(program):
    """The reorders in a module whose kernels are chosen, by the shapes that they give."""
    return [op.results[0].type.get_shape() for op in program.module("popart").walk() if op.name == "popops.dim_shuffle"]


def test_V1_one_op_has_two_kernels_and_they_agree(changed):
    path = changed(more=KERNELS)
    extension = extensions.read(path)
    module, x = chain(extension), G.normal(size=(2, 11, 3, 3)).astype(np.float32)
    for force, left in (("own", ["acme.leaky_relu"]), ("blocked", []), ("both", [])):
        program = populus.compile(module, load=[path], tiles=4, pipeline=selecting(extension, f"leaky_relu:{force}"))
        assert [o.name for o in program.module("popart").walk() if o.name.startswith("acme")] == left
        assert bool(reorders(program)) == (force == "blocked")
        for level in ("popart", "popops", "poplar"):
            assert program.run_at(level, {"x": x})["y"].tobytes() == np.where(x >= 0, x, np.float32(0.5) * x).tobytes()


def test_V2_a_kernel_that_is_asked_about_another_op_is_our_mistake(changed):
    extension = extensions.read(changed(more=KERNELS))
    with populus.Builder() as b:
        relu = b.op("relu", b.input("x", (2, 11, 3, 3)))[0].owner
    with pytest.raises(AssertionError, match="kernel blocked is for acme.leaky_relu, and is asked about popart.relu"):
        extension.module.Blocked().refusal(relu, "gc200")


UNMET = [
    ("V3", {"arity": (2, 1)}, {}, "it takes 2 operands and gives 1, the op has 1 and 1"),
    ("V5", {}, {"shape": (4, 8)}, r"operand 0 has 2 dimensions; 4 are expected"),
    ("V6", {}, {"dtype": "float64"}, r"operand 0 is of f64; f32 is expected"),
]


def unmet(row, changed, monkeypatch):
    _, stated, given, message = next(u for u in UNMET if u[0] == row)
    extension = extensions.read(changed(more=KERNELS))
    for name, value in stated.items():
        monkeypatch.setattr(extension.module.Blocked, name, value)
    module = chain(extension, **given)
    assert extension.module.Blocked().refusal(own_op(extension, module), None) == message
    assert [f"blocked: {message}" in line for line in choices(extension, module)[1]] == [True]
    with pytest.raises(
        PopulusError, match=f"'n0': no kernel computes acme.leaky_relu: blocked: {message}; both: .*; own: blocked is forced"
    ):
        populus.compile(module, load=[extension.path], pipeline=selecting(extension, "leaky_relu:blocked"))


def test_V3_the_number_of_operands_is_a_requirement(changed, monkeypatch):
    unmet("V3", changed, monkeypatch)


def test_V4_the_shape_is_static(changed):
    from xdsl.dialects.builtin import DYNAMIC_INDEX, TensorType, f32
    from xdsl.utils.test_value import create_ssa_value

    extension = extensions.read(changed(more=KERNELS))
    op = own_op(extension, chain(extension))
    op.operands[0] = create_ssa_value(TensorType(f32, [DYNAMIC_INDEX, 11, 3, 3]))
    assert extension.module.Blocked().refusal(op, None) == "operand 0 is tensor<?x11x3x3xf32>; a static shape is expected"


def test_V5_the_rank_is_a_requirement(changed, monkeypatch):
    unmet("V5", changed, monkeypatch)


def test_V6_the_element_type_is_a_requirement(changed, monkeypatch):
    unmet("V6", changed, monkeypatch)


def test_V7_a_kernel_reads_attributes_and_shapes_of_its_op(changed):
    extension = extensions.read(changed(more=KERNELS))
    module, seen = chain(extension), []
    lower = extension.module.Blocked.lower
    extension.module.Blocked.lower = lambda self, b, op, *rest: seen.append((op.alpha, op.x.type.get_shape())) or lower(self, b, op, *rest)
    program = populus.compile(module, load=[extension.path], level="popops", pipeline=selecting(extension, "leaky_relu:blocked"))
    assert "mul(0.5, _1)" in str(program.module("popops"))
    assert seen == [(0.5, (2, 11, 3, 3))]


def test_V8_why_a_kernel_was_not_taken_is_kept_and_told_at_the_op(changed, tool, tmp_path):
    extension = extensions.read(changed(more=KERNELS))
    module = chain(extension, shape=(4, 8))
    (tmp_path / "m.mlir").write_text(str(module))
    status, _, said = tool("populus_opt", tmp_path / "m.mlir", "--load", extension.path, "-p", "acme-select-kernels{explain=true}")
    assert status == 0
    assert "acme.leaky_relu: own: 32 cycles in (planar) -> (planar); blocked: operand 0 has 2 dimensions; 4 are expected" in said
    with pytest.raises(PopulusError, match="'n0': no kernel computes acme.leaky_relu: blocked: operand 0 has 2 dimensions"):
        populus.compile(module, load=[extension.path], pipeline=selecting(extension, "acme.leaky_relu:blocked"))


def test_V9_the_configurations_are_listed(changed):
    extension = extensions.read(changed(more=KERNELS))
    _, (line,) = choices(extension, chain(extension))
    assert line == (
        "'n0': acme.leaky_relu: both: 178.2 cycles in (planar) -> (planar); blocked (blocked 8 at 1) -> (blocked 8 at 1) 49.5; "
        "own (planar) -> (planar) 198; both (planar) -> (blocked 8 at 1) 792"
    )


def test_V10_planar_is_a_layout():
    kernels = extensions.read(KERNEL_SELECTION).module
    assert (str(kernels.PLANAR), kernels.PLANAR.physical((2, 3, 4))) == ("planar", (2, 3, 4))
    assert (str(kernels.NCHW8C), kernels.NCHW8C.physical((2, 11, 4))) == ("blocked 8 at 1", (2, 2, 4, 8))


@pytest.mark.parametrize("channels", [3, 8, 17])
def test_V11_packed_and_unpacked_is_the_same_and_padding_meets_nothing(channels, changed):
    shape, blocked = (2, channels, 3, 2), extensions.read(KERNEL_SELECTION).module.NCHW8C
    x = G.normal(size=shape).astype(np.float32)
    with populus.Builder() as b:
        given, end = b.input("x", shape), Builder(InsertPoint.at_end(b.block))
        packed = blocked.packed(end, given)
        b.output("packed", packed)
        b.output("y", blocked.unpacked(end, packed, channels))
    for level in ("popops", "poplar"):
        found = populus.compile(b.module(), level=level, tiles=4).run({"x": x})
        assert found["packed"].shape == (2, -(-channels // 8), 3, 2, 8)
        assert found["packed"][:, -1, ..., (channels - 1) % 8 + 1 :].sum() == 0
        assert found["y"].tobytes() == x.tobytes()
    # exp of the padding is 1: if it met the sum, that would be larger
    formula = ("return select(x, self.alpha * x, x >= 0)", "return exp(x)")
    extension = extensions.read(changed(formula, ("select\n", "exp, select\n"), more=KERNELS))
    module = chain(extension, shape=shape, end=lambda b, y: b.op("reduce_sum", y, axes=(1,))[0])
    program = populus.compile(module, load=[extension.path], tiles=4, pipeline=selecting(extension, "leaky_relu:blocked"))
    assert len(reorders(program)) == 2
    assert program.run({"x": x})["y"] == pytest.approx(np.exp(x).sum(1), rel=1e-5)


VETO = """

    def init(self, op, config):
        ASKED.append(str(config))
        return "not today" if config.inputs[0] == NCHW8C else None


ASKED = []
"""


def test_V15_the_chosen_configuration_is_validated_and_may_be_vetoed(changed):
    vetoing = KERNELS.replace("\n\nclass Both", VETO + "\n\nclass Both")
    extension = extensions.read(changed(more=vetoing))
    module = chain(extension, n=5)
    chosen, reasons = choices(extension, module)
    assert [c.kernel.name for c in chosen.values()] == ["both"] * 5
    assert "blocked: vetoed: not today" in reasons[0]
    assert set(extension.module.ASKED) == {"(blocked 8 at 1) -> (blocked 8 at 1)"}
    with pytest.raises(
        PopulusError,
        match="no kernel computes acme.leaky_relu: both: blocked is forced; own: blocked is forced; blocked: vetoed: not today",
    ):
        populus.compile(module, load=[extension.path], pipeline=selecting(extension, "leaky_relu:blocked"))


SAYING_NOTHING = '''


@irdl_op_definition
class SayingNothingOp(PopartOp):
    """`y = x`. Source: a test."""

    name = "acme.saying_nothing"
    x = operand_def(tensors("T", f32))
    y = result_def(tensors("T", f32))

    def infer(self):
        return [self.x.type]
'''


def implementations(op):
    """What computes an op: `tile` by library calls, `numpy` by its own values."""
    definition = definition_of(op)
    return [kind for kind, there in (("tile", definition.has_lowering), ("numpy", definition.has_evaluate)) if there]


def test_V17_the_implementation_types_of_an_op_are_told(changed):
    extension = extensions.read(changed(more=NO_LOWERING + SAYING_NOTHING))
    assert implementations(extension.module.LeakyReluOp) == ["tile", "numpy"]
    assert implementations(extension.module.ReverseOp) == ["numpy"]
    assert implementations(extension.module.SayingNothingOp) == []


def test_V18_an_implementation_is_given_or_none(changed):
    extension = extensions.read(changed(more=KERNELS + NO_LOWERING))
    module = extension.module
    own, found = [module.Blocked(), module.Both()], module.kernels.Candidates.of
    names = [c.kernel.name for c in found(own_op(extension, chain(extension)), own, None).choices]
    assert names == ["blocked", "both", "both", "own"]
    with populus.Builder() as b:
        reverse = module.reverse(b.input("x", (3,)), name="r").owner
    with pytest.raises(PopulusError, match="no kernel computes acme.reverse: own: acme.reverse has no `lower`"):
        found(reverse, own, None)


def test_V20_kernels_are_for_one_device(changed):
    extension = extensions.read(changed(more=KERNELS))
    extension.module.Blocked.targets = ("gc200",)
    module = chain(extension, n=5)
    for target, expected in (("gc200", "blocked"), ("bow", "both")):
        chosen, _ = choices(extension, module, target=target)
        assert {c.kernel.name for c in chosen.values()} == {expected}
        program = populus.compile(module, target=target, tiles=4, level="popart", load=[extension.path], pipeline=selecting(extension))
        assert bool(reorders(program)) == (target == "gc200")
    with pytest.raises(PopulusError, match="blocked: it is for gc200"):
        populus.compile(module, target="bow", load=[extension.path], pipeline=selecting(extension, "leaky_relu:blocked"))


def test_V21_layouts_are_chosen_for_the_whole_chain(changed):
    extension = extensions.read(changed(more=KERNELS))
    extension.module.Both.rank = 9  # none but `blocked`
    module = chain(extension, n=3, end=lambda b, y: y)
    chosen, lines = choices(extension, module)
    assert [c.kernel.name for c in chosen.values()] == ["blocked"] * 3
    assert "49.5 cycles in (blocked 8 at 1) -> (blocked 8 at 1); own (planar) -> (planar) 198; both: operand 0 has 4 dimensions" in lines[0]
    program = populus.compile(module, load=[extension.path], tiles=4, pipeline=selecting(extension))
    assert reorders(program) == [(2, 2, 3, 3, 8), (2, 2, 8, 3, 3)]
    alone, _ = choices(extension, chain(extension, n=2))
    assert {c.kernel.name for c in alone.values()} == {"own"}  # two reorders would cost more than two of these save


def test_V21_what_two_read_is_reordered_once(changed):
    extension = extensions.read(changed(more=KERNELS))
    extension.module.Both.rank = 9
    with populus.Builder() as b:
        x = b.input("x", (2, 8, 3, 3))
        for side in ("l", "r"):
            y = x
            for i in range(5):
                y = extension.module.leaky_relu(y, alpha=0.5, name=f"{side}{i}")
            b.output(side, y)
    program = populus.compile(b.module(), load=[extension.path], tiles=4, pipeline=selecting(extension))
    assert sum(shape[-1] == 8 for shape in reorders(program)) == 1
    x = G.normal(size=(2, 8, 3, 3)).astype(np.float32)
    found = program.run({"x": x})
    assert found["l"].tobytes() == found["r"].tobytes()


def open_batch(kind, domain="com.acme", version=1, **attributes):
    """A model of one node, whose first dimension is any."""
    from onnx import TensorProto, helper

    node = helper.make_node(kind, ["x"], ["y"], name="n", domain=domain, **attributes)
    infos = [helper.make_tensor_value_info(n, TensorProto.FLOAT, ["batch", 3, 2, 2]) for n in "xy"]
    opsets = [helper.make_opsetid("", 20), helper.make_opsetid(domain, version)]
    return helper.make_model(helper.make_graph([node], "g", infos[:1], infos[1:]), opset_imports=opsets, ir_version=10)


@pytest.mark.parametrize("kernel", ["both", "blocked"])
def test_V13_one_program_takes_batches_of_any_size_and_compiles_each_size_once(kernel, changed, monkeypatch):
    lowered, compiled = populus.program.program.Program._lowered, []

    def counted(*args, **kwargs):
        compiled.append(args)
        return lowered(*args, **kwargs)

    monkeypatch.setattr(populus.program.program.Program, "_lowered", counted)
    extension = extensions.read(changed(more=KERNELS))
    chosen = selecting(extension, f"acme.leaky_relu:{kernel}")
    program = populus.compile(open_batch("LeakyRelu", alpha=0.5), load=[extension.path], tiles=4, pipeline=chosen, exact=True)
    assert not compiled  # there is nothing to compile before a batch is there
    for batch, times in ((2, 1), (5, 2), (2, 2), (5, 2), (1, 3)):
        x = np.random.default_rng(batch).normal(size=(batch, 3, 2, 2)).astype(np.float32)
        assert program.run({"x": x})["y"].tolist() == np.where(x >= 0, x, np.float32(0.5) * x).tolist()
        assert len(compiled) == times
    for batch in (2, 5):
        assert bool(reorders(program.sized(batch=batch))) == (kernel == "blocked")


def test_V13_only_a_dimension_that_the_model_leaves_open_may_change(changed):
    extension = extensions.read(changed(more=KERNELS))
    program = populus.compile(open_batch("LeakyRelu", alpha=0.5), load=[extension.path], tiles=4, pipeline=selecting(extension))
    with pytest.raises(PopulusError, match=r"input 'x' has shape \[2, 4, 2, 2\], expected \[2, 3, 2, 2\]"):
        program.run({"x": np.zeros((2, 4, 2, 2), np.float32)})
    with pytest.raises(PopulusError, match=r"input 'x' has shape \[2, 3\], expected \[2, 3, 2, 2\]"):
        program.run({"x": np.zeros((2, 3), np.float32)})
    assert program.run({"x": np.zeros((2, 3, 2, 2), np.float32)})["y"].shape == (2, 3, 2, 2)
