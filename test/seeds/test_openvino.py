"""OpenVINO's custom operations, row by row."""

from __future__ import annotations

from typing import cast

import numpy as np
import pytest
from xdsl.parser import Parser

import populus
from helpers.op_files import KERNELS, NO_LOWERING
from populus.dialects.popart import KernelOp, LayoutAttr, PackOp, UnpackOp
from populus.dialects.popart.kernel import Config, Known, impl_types, implementation, kernels_of
from populus.dialects.popart.layout import NCHW8C, PLANAR
from populus.dialects.support.diagnostics import PopulusError
from populus.dialects.table import context
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


def known(extension, module):
    """(the first of its ops, the kernels by name)"""
    ctx = context()
    extension.register(ctx)
    op = next(o for o in module.walk() if isinstance(o, extension.module.LeakyReluOp))
    return op, {k.kernel.name: k for k in kernels_of(ctx, type(op))}


def test_V1_one_op_has_two_kernels_and_they_agree(changed):
    path = changed(more=KERNELS)
    extension = extensions.read(path)
    module, x = chain(extension), G.normal(size=(2, 11, 3, 3)).astype(np.float32)
    for force in ("own", "blocked", "both"):
        program = populus.compile(module, load=[path], tiles=4, force_kernels=[f"leaky_relu:{force}"])
        assert [o.kernel.data for o in program.module("popart").walk() if isinstance(o, KernelOp)] == ([force] if force != "own" else [])
        for level in ("popart", "popops", "poplar"):
            assert program.run_at(level, {"x": x})["y"].tobytes() == np.where(x >= 0, x, np.float32(0.5) * x).tobytes()


def test_V2_a_kernel_that_is_asked_about_another_op_is_our_mistake(changed):
    extension = extensions.read(changed(more=KERNELS))
    _, kernels = known(extension, chain(extension))
    with populus.Builder() as b:
        relu = b.op("relu", b.input("x", (2, 11, 3, 3)))[0].owner
    with pytest.raises(AssertionError, match="kernel blocked is for acme.leaky_relu, and is asked about popart.relu"):
        kernels["blocked"].refusal(relu, "gc200")


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
    op, kernels = known(extension, module)
    assert kernels["blocked"].refusal(op, None) == message
    text = populus.compile(module, load=[extension.path], level="popart").kernels()
    assert all("blocked:" not in line or f"blocked: {message}" in line for line in text)
    with pytest.raises(
        PopulusError, match=f"'n0': no kernel computes acme.leaky_relu: blocked: {message}; both: .*; own: blocked is forced"
    ):
        populus.compile(module, load=[extension.path], force_kernels=["leaky_relu:blocked"])


def test_V3_the_number_of_operands_is_a_requirement(changed, monkeypatch):
    unmet("V3", changed, monkeypatch)


def test_V4_the_shape_is_static(changed):
    from xdsl.dialects.builtin import DYNAMIC_INDEX, TensorType, f32
    from xdsl.utils.test_value import create_ssa_value

    extension = extensions.read(changed(more=KERNELS))
    op, kernels = known(extension, chain(extension))
    op.operands[0] = create_ssa_value(TensorType(f32, [DYNAMIC_INDEX, 11, 3, 3]))
    assert kernels["blocked"].refusal(op, None) == "operand 0 is tensor<?x11x3x3xf32>; a static shape is expected"


def test_V5_the_rank_is_a_requirement(changed, monkeypatch):
    unmet("V5", changed, monkeypatch)


def test_V6_the_element_type_is_a_requirement(changed, monkeypatch):
    unmet("V6", changed, monkeypatch)


def test_V7_a_kernel_reads_attributes_and_shapes_of_its_op(changed):
    extension = extensions.read(changed(more=KERNELS))
    program = populus.compile(chain(extension), load=[extension.path], level="popops", force_kernels=["leaky_relu:blocked"])
    op = next(o for o in program.module("popart").walk() if isinstance(o, KernelOp))
    assert (op.inner.alpha, op.inner.x.type.get_shape()) == (0.5, (2, 11, 3, 3))
    assert op.config == Config((NCHW8C,), (NCHW8C,))
    assert "mul(0.5, _1)" in str(program.module("popops"))


def test_V8_why_a_kernel_was_not_taken_is_kept_and_told_at_the_op(changed, tool, tmp_path):
    extension = extensions.read(changed(more=KERNELS))
    module = chain(extension, shape=(4, 8))
    (tmp_path / "m.mlir").write_text(str(module))
    status, out, _ = tool("populus_opt", tmp_path / "m.mlir", "--load", extension.path, "--print-kernel-configs")
    assert status == 0
    assert "acme.leaky_relu blocked: not eligible: operand 0 has 2 dimensions; 4 are expected" in out
    with pytest.raises(PopulusError, match="'n0': no kernel computes acme.leaky_relu: blocked: operand 0 has 2 dimensions"):
        populus.compile(module, load=[extension.path], force_kernels=["acme.leaky_relu:blocked"])


def test_V9_the_configurations_are_listed(changed, tool, tmp_path):
    extension = extensions.read(changed(more=KERNELS))
    (tmp_path / "m.mlir").write_text(str(chain(extension)))
    status, out, _ = tool("populus_opt", tmp_path / "m.mlir", "--load", extension.path, "--print-kernel-configs")
    assert status == 0
    lines = [line.partition(": ")[2] for line in out.splitlines()]
    assert lines == [
        "acme.leaky_relu blocked (blocked 8 at 1) -> (blocked 8 at 1) any/tile/f32/blocked: 49.5 cycles",
        "acme.leaky_relu both (planar) -> (planar) any/tile/f32/planar: 178.2 cycles",
        "acme.leaky_relu both (planar) -> (blocked 8 at 1) any/tile/f32/blocked: 792 cycles",
        "acme.leaky_relu own (planar) -> (planar) any/tile/f32/planar: 198 cycles",
    ]


def test_V10_planar_is_a_layout():
    assert (str(PLANAR), PLANAR.physical((2, 3, 4))) == ("planar", (2, 3, 4))
    text = "#popart.layout<planar>"
    assert str(Parser(context(), text).parse_attribute()) == text
    assert Parser(context(), "#popart.layout<blocked 8 at 1>").parse_attribute() == LayoutAttr(NCHW8C)


@pytest.mark.parametrize("channels", [3, 8, 17])
def test_V11_packed_and_unpacked_is_the_same_and_padding_meets_nothing(channels, changed):
    shape = (2, channels, 3, 2)
    x = G.normal(size=shape).astype(np.float32)
    with populus.Builder() as b:
        packed = b.op(PackOp, b.input("x", shape))[0]
        b.output("packed", packed)
        b.output("y", b.op(UnpackOp, packed, extent=channels)[0])
    for level in ("popart", "popops", "poplar"):
        found = populus.compile(b.module(), level=level, tiles=4).run({"x": x})
        assert found["packed"].shape == (2, -(-channels // 8), 3, 2, 8)
        assert found["packed"][:, -1, ..., (channels - 1) % 8 + 1 :].sum() == 0
        assert found["y"].tobytes() == x.tobytes()
    # exp of the padding is 1: if it met the sum, that would be larger
    formula = ("return select(x, self.alpha * x, x >= 0)", "return exp(x)")
    extension = extensions.read(changed(formula, ("select\n", "exp, select\n"), more=KERNELS))
    module = chain(extension, shape=shape, end=lambda b, y: b.op("reduce_sum", y, axes=(1,))[0])
    program = populus.compile(module, load=[extension.path], tiles=4, force_kernels=["leaky_relu:blocked"])
    assert any(isinstance(o, PackOp) for o in program.module("popart").walk())
    assert program.run({"x": x})["y"] == pytest.approx(np.exp(x).sum(1), rel=1e-5)


VETO = """

    def init(self, op, config):
        ASKED.append(str(config))
        return "not today" if config.inputs[0] == NCHW8C else None


ASKED = []
"""


def test_V15_the_chosen_configuration_is_validated_and_may_be_vetoed(changed):
    from helpers.op_files import KERNELS

    vetoing = KERNELS.replace("\n\nclass Both", VETO + "\n\nclass Both")
    extension = extensions.read(changed(more=vetoing))
    module = chain(extension, n=5)
    program = populus.compile(module, load=[extension.path], level="popart")
    kernels = [(o.kernel.data, o.reason.data) for o in program.module("popart").walk() if isinstance(o, KernelOp)]
    assert [k for k, _ in kernels] == ["both"] * 5
    assert "blocked: vetoed: not today" in kernels[0][1]
    assert set(extension.module.ASKED) == {"(blocked 8 at 1) -> (blocked 8 at 1)"}
    with pytest.raises(
        PopulusError,
        match="no kernel computes acme.leaky_relu: both: blocked is forced; own: blocked is forced; blocked: vetoed: not today",
    ):
        populus.compile(module, load=[extension.path], force_kernels=["leaky_relu:blocked"])


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


def test_V17_the_implementation_types_of_an_op_are_told(changed):
    extension = extensions.read(changed(more=KERNELS + NO_LOWERING + SAYING_NOTHING))
    assert impl_types(extension.module.LeakyReluOp) == ["tile", "numpy"]
    assert impl_types(extension.module.ReverseOp) == ["numpy"]
    assert impl_types(extension.module.SayingNothingOp) == []


def test_V18_an_implementation_is_given_or_none(changed):
    extension = extensions.read(changed(more=KERNELS + NO_LOWERING))
    ctx = context()
    extension.register(ctx)
    found = implementation(extension.module.LeakyReluOp, "tile", ctx)
    assert isinstance(found, list)
    names = [k.kernel.name for k in cast("list[Known]", found)]
    assert names == ["blocked", "both", "own"]
    assert implementation(extension.module.ReverseOp, "numpy") is not None
    assert implementation(extension.module.ReverseOp, "tile", ctx) is None
    assert implementation(extension.module.LeakyReluOp, "cuda", ctx) is None


def test_V20_kernels_are_added_for_one_device_and_a_warning_says_if_for_none(changed):
    path = changed(more=KERNELS)
    try:
        extension = populus.add_extension(path, "gc200")
        module = chain(extension, n=5)
        chosen = {}
        for target in ("gc200", "bow"):
            program = populus.compile(module, target=target, tiles=4, level="popart")
            chosen[target] = {o.kernel.data for o in program.module("popart").walk() if isinstance(o, KernelOp)}
        assert chosen == {"gc200": {"blocked"}, "bow": set()}
        with pytest.raises(PopulusError, match="blocked: it was added for gc200 only"):
            populus.compile(module, target="bow", force_kernels=["leaky_relu:blocked"])
        with pytest.warns(UserWarning, match="its kernels are added for every target; name the one"):
            populus.add_extension(path)
        with pytest.raises(PopulusError, match="no target 'gpu'"):
            populus.add_extension(path, "gpu")
    finally:
        extensions.forget(path)


def test_V21_layouts_are_chosen_for_the_whole_chain(changed):
    extension = extensions.read(changed(more=KERNELS))
    extension.module.Both.rank = 9  # none but `blocked`
    program = populus.compile(chain(extension, n=3, end=lambda b, y: y), load=[extension.path], tiles=4)
    text = [o for o in program.module("popart").walk() if isinstance(o, KernelOp | PackOp | UnpackOp)]
    assert [type(o) for o in text] == [PackOp, KernelOp, KernelOp, KernelOp, UnpackOp]
    lines = program.kernels()
    assert [("reorder" in line) for line in lines] == [True, False, False, False, True]
    assert "49.5 cycles in (blocked 8 at 1) -> (blocked 8 at 1); own (planar) -> (planar) 198; both: operand 0 has 4 dimensions" in lines[1]
    alone = populus.compile(chain(extension, n=2), load=[extension.path], tiles=4)
    assert alone.kernels() == []  # two reorders would cost more than two of these save


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
    program = populus.compile(b.module(), load=[extension.path], tiles=4)
    assert sum(isinstance(o, PackOp) for o in program.module("popart").walk()) == 1
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
    force = [f"acme.leaky_relu:{kernel}"]
    program = populus.compile(open_batch("LeakyRelu", alpha=0.5), load=[changed(more=KERNELS)], tiles=4, force_kernels=force, exact=True)
    assert not compiled  # there is nothing to compile before a batch is there
    for batch, times in ((2, 1), (5, 2), (2, 2), (5, 2), (1, 3)):
        x = np.random.default_rng(batch).normal(size=(batch, 3, 2, 2)).astype(np.float32)
        assert program.run({"x": x})["y"].tolist() == np.where(x >= 0, x, np.float32(0.5) * x).tolist()
        assert len(compiled) == times
    for batch in (2, 5):
        assert [line for line in program.sized(batch=batch).kernels() if f"acme.leaky_relu: {kernel}: " in line]


def test_V13_only_a_dimension_that_the_model_leaves_open_may_change(changed):
    program = populus.compile(open_batch("LeakyRelu", alpha=0.5), load=[changed(more=KERNELS)], tiles=4)
    with pytest.raises(PopulusError, match=r"input 'x' has shape \[2, 4, 2, 2\], expected \[2, 3, 2, 2\]"):
        program.run({"x": np.zeros((2, 4, 2, 2), np.float32)})
    with pytest.raises(PopulusError, match=r"input 'x' has shape \[2, 3\], expected \[2, 3, 2, 2\]"):
        program.run({"x": np.zeros((2, 3), np.float32)})
    assert program.run({"x": np.zeros((2, 3, 2, 2), np.float32)})["y"].shape == (2, 3, 2, 2)
