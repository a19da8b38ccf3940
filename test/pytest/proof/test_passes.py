"""Proofs of passes: small models are proved from their first pass to their tiles, and wrong passes are refuted with an element."""

from __future__ import annotations

from collections import Counter
from contextlib import contextmanager
from typing import cast

import numpy as np
import onnx
import pytest
from xdsl.dialects.builtin import ModuleOp, f32, f64, i32
from xdsl.rewriter import InsertPoint, Rewriter

import populus
from benchmarks.many_nodes import joined, mixed_chain
from benchmarks.models import mlp
from helpers.command import command
from helpers.proof_models import MODELS
from populus.dialects import expr, popart
from populus.dialects.data import ConstantOp, constant
from populus.dialects.poplar.affine import Set, box, every, read_map, read_set
from populus.dialects.poplar.compute import FamilyOp
from populus.dialects.poplar.meaning import plain
from populus.dialects.poplar.partition import ALL, Access, Domain, Split
from populus.dialects.poplar.types import Field, FieldsAttr
from populus.dialects.popops import MapOp
from populus.dialects.signature import main_of, return_of
from populus.dialects.support.diagnostics import PopulusError
from populus.dialects.table import context
from populus.lowering.driver.files import parse_text
from populus.lowering.driver.pipeline import WATCHING, Pipeline
from populus.lowering.onnx.to_popart import rnn as recurrent
from populus.lowering.popart import fuse as popart_fuse
from populus.lowering.poplar import control_flow, merge
from populus.lowering.poplar.tile_builder import TileBuilder
from populus.lowering.popops import fuse
from populus.proof import passes
from populus.proof.codelets import Family, Operand
from populus.proof.equivalence import compare
from populus.proof.loops import Part, looped
from populus.proof.memory import prove_memory
from populus.proof.passes import proving
from populus.proof.pieces import common
from populus.proof.report import DEEP, PROVED, REFUTED, UNDECIDED
from populus.proof.rewrites import proving_rewrites
from populus.proof.terms import Terms
from populus.proof.trees import Folded, Leaf, Number, Piece, Pieces
from populus.runtime.session import graph_of
from populus.tools.main import main
from populus.training.session import TrainingSession

FROM_ONNX = "onnx-infer-shapes to onnx-to-popart"
OPEN = {name: {FROM_ONNX} for name in ("counted", "scanned", "while_loop")}
"""Passes that are not decided, by model: ONNX's loops."""


def rows_of(model, **options):
    with proving(run=False) as prover:
        populus.compile(model, engine="numpy", **{"tiles": 16, **options})
    return prover.rows


@pytest.mark.parametrize("name", MODELS)
def test_each_pass_of_a_small_model_is_proved(name):
    rows = rows_of(MODELS[name]())
    assert {row.passes for row in rows if row.verdict != PROVED} == OPEN.get(name, set()), rows
    assert {"popart-to-popops", "poplar-allocate"} <= {row.passes for row in rows}


def _recurrent(kind: str, gates: int, steps: int, lengths: bool = False, **attributes):
    """A recurrent layer of drawn weights, without states before the first step."""
    rng, both = np.random.default_rng(0), 1 + (attributes.get("direction") == "bidirectional")
    shapes = {"w": (both, gates * 3, 2), "r": (both, gates * 3, 3), "b": (both, gates * 6), "p": (both, 9)}
    fixed = [onnx.numpy_helper.from_array(rng.standard_normal(s).astype(np.float32), n) for n, s in shapes.items()]
    given = ["x", "w", "r", "b", "n" if lengths else "", *(["", "", "p"] if kind == "LSTM" else [])]
    node = onnx.helper.make_node(kind, given, ["y", "h"], hidden_size=3, **attributes)
    info, shape = onnx.helper.make_tensor_value_info, [2, steps, 2] if attributes.get("layout") else [steps, 2, 2]
    inputs = [info("x", 1, shape), *([info("n", onnx.TensorProto.INT32, [2])] if lengths else [])]
    graph = onnx.helper.make_graph([node], "recurrent", inputs, [info(n, 1, None) for n in ("y", "h")], fixed)
    return onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 22)], ir_version=9)


@pytest.mark.parametrize(
    ("kind", "gates", "steps", "attributes"),
    [
        ("LSTM", 4, 3, {"direction": "bidirectional"}),
        ("LSTM", 4, 12, {"input_forget": 1, "clip": 0.5, "layout": 1}),
        ("LSTM", 4, 12, {"direction": "reverse", "lengths": True}),
        ("GRU", 3, 12, {"linear_before_reset": 1}),
        ("GRU", 3, 12, {"activations": ["HardSigmoid", "ScaledTanh"], "activation_alpha": [0.3, 1.5], "activation_beta": [0.4, 0.7]}),
        ("RNN", 1, 12, {"activations": ["Affine"], "activation_alpha": [0.2], "activation_beta": [0.1], "lengths": True}),
    ],
)
def test_recurrent_cells_are_proved_from_their_definitions(kind, gates, steps, attributes):
    rows = rows_of(_recurrent(kind, gates, steps, **attributes))
    assert {row.verdict for row in rows} == {PROVED}, rows


@pytest.mark.parametrize(("kind", "gates"), [("LSTM", 4), ("GRU", 3), ("RNN", 1)])
@pytest.mark.parametrize("steps", [3, 12])
def test_a_recurrent_cell_that_is_lowered_wrongly_is_refuted(monkeypatch, kind, gates, steps):
    right = recurrent._Layer.inputs

    def swapped(layer, direction):
        product, r, wb, _ = right(layer, direction)
        return product, r, wb, wb

    monkeypatch.setattr(recurrent._Layer, "inputs", swapped)
    assert refused(_recurrent(kind, gates, steps)).startswith("onnx-to-popart is refuted: output ")


@pytest.mark.parametrize("name", ["strided", "bert"])
def test_programs_of_a_thousand_tiles_are_proved(name):
    rows = rows_of(MODELS[name](), target="gc200", tiles=1472)
    assert {row.passes for row in rows if row.verdict != PROVED} == OPEN.get(name, set()), rows


def _one(op, shapes, constants=(), opset=18, kind=onnx.TensorProto.FLOAT, **attributes):
    """A model of one op: inputs by shape, then constants."""
    inputs = [onnx.helper.make_tensor_value_info(f"x{i}", kind, s) for i, s in enumerate(shapes)]
    fixed = [onnx.numpy_helper.from_array(np.asarray(c), f"c{i}") for i, c in enumerate(constants)]
    node = onnx.helper.make_node(op, [*(i.name for i in inputs), *(c.name for c in fixed)], ["y"], **attributes)
    graph = onnx.helper.make_graph([node], "one", inputs, [onnx.helper.make_tensor_value_info("y", kind, None)], fixed)
    return onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", opset)], ir_version=8)


@pytest.mark.parametrize(
    ("op", "shapes", "constants", "attributes"),
    [
        ("Celu", [()], (), {"alpha": 0.5}),  # ONNX's function makes a vector of a scalar
        ("Slice", [(2, 1, 2)], ([-1, -3], [-(2**31)] * 2, [-1, 0], [-1, -1]), {}),  # begins before the first element
        ("ReduceLogSum", [(3, 2)], (), {"noop_with_empty_axes": 1}),
        ("ReduceL2", [(3, 2)], (), {"noop_with_empty_axes": 1}),
        ("Upsample", [(1, 1, 3, 3)], (), {"opset": 7, "mode": "linear", "scales": [1.0, 1.0, 1.5, 1.0]}),
        ("Tile", [(0, 5)], ([1, 2],), {}),
        ("Hardmax", [(2, 3, 2)], (), {"opset": 11, "axis": 1}),  # of rows of 6
        ("ReduceLogSumExp", [(3, 4)], (), {"keepdims": 0}),
        ("ConvTranspose", [(1, 2, 4, 4), (2, 3, 3, 3)], (), {"strides": [2, 2], "auto_pad": "SAME_LOWER"}),
        ("ConvTranspose", [(1, 2, 4, 4), (2, 3, 3, 3)], (), {"strides": [2, 2], "output_shape": [8, 8]}),
    ],
)
def test_an_edge_of_an_op_is_proved_from_its_definition(op, shapes, constants, attributes):
    rows = rows_of(_one(op, shapes, [np.array(c, np.int64) for c in constants], **attributes))
    assert [row for row in rows if row.verdict != PROVED] == []


def test_the_order_of_known_numbers_is_known():
    values = np.array([[3, 1, 2], [5, 9, 9]], np.float32)
    node = onnx.helper.make_node("TopK", ["c", "k"], ["y", "places"])
    fixed = [onnx.numpy_helper.from_array(a, n) for n, a in (("c", values), ("k", np.array([2], np.int64)))]
    outputs = [onnx.helper.make_tensor_value_info(n, t, None) for n, t in (("y", 1), ("places", 7))]
    graph = onnx.helper.make_graph([node], "top", [], outputs, fixed)
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 18)], ir_version=8)
    assert [row for row in rows_of(model) if row.verdict != PROVED] == []


@pytest.mark.parametrize("floats", [True, False])
def test_rows_that_an_index_names_are_of_the_type_of_their_table(floats):
    """Laws of quotients are those of real numbers: for integers they do not hold."""
    t, shape = Terms(), (4, 2)
    table, index = t.input("table", shape, floats), t.input("index", (), False)
    element = f32 if floats else i32
    axes = (("d", Split(2)),)
    fields = {
        "table": Operand(table, shape, element, (ALL, *plain("d"))),
        "indices": Operand(index, (), i32, ()),
        "y": Operand([], (2,), element, plain("d")),
    }
    [piece] = Family(t, "multi_slice", Domain(axes, ()), {}, fields).written()
    assert isinstance(piece.tree, Leaf)
    assert t.float_node(piece.tree.node) == floats


def test_constants_of_sampled_images_are_compared_place_by_place():
    """The relation of their places has so many divisions that isl composes it for minutes."""
    image = np.arange(70, dtype=np.float32).reshape(1, 1, 7, 10)
    g = _one("Upsample", [], [image], opset=7, mode="nearest", scales=[1.0, 1.0, 1.7, 1.3])
    assert [row for row in rows_of(g) if row.verdict != PROVED] == []


def test_integers_are_converted_by_their_lowest_bits():
    g = _one("Cast", [], [np.array([-4, 3, 70_000], np.int64)], to=onnx.TensorProto.UINT16)
    g.graph.output[0].type.tensor_type.elem_type = onnx.TensorProto.UINT16
    assert [row for row in rows_of(g) if row.verdict != PROVED] == []


@contextmanager
def watched_by(prover):
    token = WATCHING.set(prover)
    yield
    WATCHING.reset(token)


def test_a_pass_that_changes_nothing_executes_no_op_again():
    with proving(run=False) as prover:
        populus.compile(MODELS["strided"](), engine="numpy", tiles=16)
    nodes = len(prover.terms.nodes)
    with watched_by(prover):
        populus.compile(MODELS["strided"](), engine="numpy", tiles=16)
    assert len(prover.terms.nodes) == nodes


def test_a_pass_that_changes_nothing_is_proved_by_a_look(monkeypatch):
    module = populus.compile(MODELS["strided"](), engine="numpy", tiles=16).module("poplar")
    executed: list[ModuleOp] = []
    right = passes.execute
    monkeypatch.setattr(passes, "execute", lambda terms, module: (executed.append(module), right(terms, module))[1])
    with proving(run=False) as prover:
        Pipeline.from_text("poplar-offload, poplar-offload").run(context(), module)
    assert [row.verdict for row in prover.rows] == [PROVED, PROVED]
    assert len(executed) == 1  # before the first


def test_a_function_in_another_is_looked_at_once(monkeypatch):
    """A chain's proof is linear in its ops: what is known of a tree is known where it is an operand."""
    visits = Counter[int]()
    right = Folded.of

    def counted(self, tree):
        visits[n] += 1
        return right(self, tree)

    monkeypatch.setattr(Folded, "of", counted)
    for n in (40, 160):
        with proving(run=False) as prover:
            populus.compile(mixed_chain(n), engine="numpy", cache=False)
        assert {row.verdict for row in prover.rows} == {PROVED}
    assert 40 < visits[160] <= 4.2 * visits[40], visits


def test_pieces_are_compared_with_those_that_they_meet():
    """Of n pieces beside each other each is intersected once, and none that has elements in common is left out."""
    looked: list[Set] = []

    class Looked:
        def __init__(self, elements: Set):
            self.elements = elements

        def __getattr__(self, name):
            return getattr(self.elements, name)

        def intersect(self, other):
            looked.append(other)
            return self.elements.intersect(other)

    def pieces(*texts: str) -> Pieces:
        return [Piece(read_set(text), Number(number)) for number, text in enumerate(texts)]

    rows = pieces(*(f"{{ [i, j] : i = {n} and 0 <= j < 4 }}" for n in range(60)))
    met = [(p.tree, q) for p, q, _ in common([Piece(cast("Set", Looked(p.elements)), p.tree) for p in rows], rows)]
    assert met == [(p.tree, p) for p in rows] and len(looked) == len(rows)
    odd = pieces(*(f"{{ [i, j] : {where} }}" for where in ("i >= 50", "(i + j) mod 7 = 3 and 0 <= i < 9", "i = j = 2", "j < 0 or j > 3")))
    for a, b in ((odd, rows), (rows, odd), (odd, odd + rows)):
        met = [(p.tree, q.tree) for p, q, both in common(a, b) if both.is_equal(p.elements.intersect(q.elements))]
        assert met == [(p.tree, q.tree) for p in a for q in b if not p.elements.is_disjoint(q.elements)]


def test_families_of_one_step_are_compared_with_all_before_at_once():
    for n in (20, 40):
        module = populus.compile(joined(n), engine="numpy", cache=False).module("poplar")
        assert prove_memory(graph_of(module)).claims["race"] < 2 * n


# -- wrong passes -------------------------------------------------------------------------------------------------------


def refused(model, **options) -> str:
    with proving(), pytest.raises(PopulusError) as error:
        populus.compile(model, engine="numpy", **{"tiles": 16, **options})
    return str(error.value)


def also(monkeypatch, module, name, change):
    """After the pass, a change of the program."""
    cls = getattr(module, name)
    right = cls.apply

    def wrong(self, ctx, op):
        right(self, ctx, op)
        change(op)

    monkeypatch.setattr(cls, "apply", wrong)


def test_what_is_not_decided_is_run(monkeypatch):
    def change(module: ModuleOp):
        op = next(o for o in module.walk() if isinstance(o, MapOp) and "max" in str(o.expr.data))
        e = op.expr.data
        op.properties["expr"] = expr.ExprAttr(e * (expr.sin(e) * expr.sin(e) + expr.cos(e) * expr.cos(e)))  # 1, says no law

    also(monkeypatch, fuse, "PopopsFusePass", change)
    with proving() as prover:
        populus.compile(MODELS["strided"](), tiles=4, engine="numpy", cache=False)
    assert [row.passes for row in prover.rows if row.verdict == UNDECIDED] == ["popops-fuse"]
    assert [line.partition(":")[0] for line in prover.lines() if line.endswith("; compared by running")] == ["popops-fuse"]


def test_another_formula_is_refuted(monkeypatch):
    def change(module: ModuleOp):
        op = next(o for o in module.walk() if isinstance(o, MapOp) and "max" in str(o.expr.data))
        op.properties["expr"] = expr.ExprAttr(op.expr.data * 2.0)

    also(monkeypatch, fuse, "PopopsFusePass", change)
    assert refused(MODELS["strided"]()).startswith("popops-fuse is refuted: output 'y', element [")


def test_an_output_of_another_type_is_refuted(monkeypatch):
    """A wider float has the same numbers, so that terms alone do not tell."""

    def change(module: ModuleOp):
        end = return_of(main_of(module))
        wider = MapOp(end.operands[0], expr=expr.cast(expr.Arg(1), f64))
        Rewriter.insert_op(wider, InsertPoint.before(end))
        end.operands[0] = wider.y
        main_of(module).update_function_type()

    also(monkeypatch, fuse, "PopopsFusePass", change)
    assert refused(MODELS["strided"]()) == "popops-fuse is refuted: output 'y' is of f64, where f32 is meant"


def test_another_constant_is_refuted(monkeypatch):
    def change(module: ModuleOp):
        op = next(o for o in module.walk() if isinstance(o, ConstantOp) and o.result.type.get_shape() == (4, 3, 3, 3))
        values = np.arange(108, dtype=np.float32).reshape(4, 3, 3, 3)
        Rewriter.replace_op(op, constant(values))

    also(monkeypatch, fuse, "PopopsFusePass", change)
    assert "popops-fuse is refuted: output 'y'" in refused(MODELS["pads"]())


def test_a_padded_window_at_another_place_is_refuted_though_it_stays_in_bounds(monkeypatch):
    def change(module: ModuleOp):
        op = next(o for o in module.walk() if isinstance(o, FamilyOp) and o.codelet.data == "conv")
        fields = list(op.fields.data)
        at, x = next((i, f) for i, f in enumerate(fields) if f.name == "x")
        access = list(x.access)
        access[-1] = Access(access[-1].terms, access[-1].offset + 1)
        fields[at] = Field(x.kind, x.name, tuple(access))
        op.properties["fields"] = FieldsAttr(tuple(fields))

    also(monkeypatch, merge, "PoplarMergePass", change)
    assert refused(MODELS["strided"]()).startswith("poplar-merge is refuted: output 'y', element [")


@pytest.mark.parametrize("name", ["scanned", "counted", "while_loop", "lstm"])
def test_another_body_of_a_loop_is_refuted(monkeypatch, name):
    def change(module: ModuleOp):
        inner = (o for o in module.walk() if isinstance(o, MapOp) and o.parent_op().name == "popops.loop")
        op = next(o for o in inner if "f32" in str(o.result_types[0]))
        op.properties["expr"] = expr.ExprAttr(op.expr.data * 1.5)

    also(monkeypatch, fuse, "PopopsFusePass", change)
    assert refused(MODELS[name]()).startswith("popops-fuse is refuted: output 'y', element [")


def test_a_loop_without_its_bound_is_refuted(monkeypatch):
    """Its own condition holds for twelve iterations, its bound is eight."""
    right = TileBuilder.scalar

    def unbounded(self, e, *args):
        return right(self, expr.Arg(1) if "lt" in str(e) else e, *args)

    monkeypatch.setattr(TileBuilder, "scalar", unbounded)
    assert " is refuted: output 'y', element [" in refused(MODELS["while_loop"]())


def test_a_loop_that_loses_its_rows_is_refuted(monkeypatch):
    monkeypatch.setattr(control_flow, "_write_row", lambda *_: None)
    assert " is refuted: output 'y', element [" in refused(MODELS["lstm"]())


def test_what_two_programs_share_is_computed_from_inputs_and_not_drawn():
    t = Terms()
    squares = t.reduced("square_add", box(()), read_map("{ [] -> [i] : 0 <= i < 4 }"), t.input("x", (4,), True), every((4,)))
    clamped = t.elementwise(expr.call("max", expr.Arg(1), 0.0), box(()), [squares], True)
    assert compare(t, {"y": (squares, ())}, {"y": (clamped, ())}).verdict == UNDECIDED
    halved = t.elementwise(expr.Arg(1) * 0.5, box(()), [squares], True)
    assert compare(t, {"y": (squares, ())}, {"y": (halved, ())}).verdict == REFUTED


def test_a_training_step_has_no_false_alarm():
    with proving(run=False) as prover:
        TrainingSession(mlp(), loss="cross_entropy", optimizer="adam", engine="numpy")
    assert not [row for row in prover.rows if row.verdict == REFUTED]
    assert {"popart-to-popops", "popops-fuse"} <= {row.passes for row in prover.rows if row.verdict == PROVED}, prover.rows


def test_a_reduction_of_no_elements_is_not_refuted():
    info, node = onnx.helper.make_tensor_value_info, onnx.helper.make_node("ReduceSumSquare", ["x"], ["y"], axes=[1])
    graph = onnx.helper.make_graph([node], "empty", [info("x", 1, [2, 0, 4])], [info("y", 1, [2, 1, 4])])
    rows = rows_of(onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 13)], ir_version=8))
    assert rows[0].verdict == UNDECIDED and REFUTED not in {row.verdict for row in rows}, rows


def test_an_op_that_the_verifier_refuses_is_refuted(monkeypatch):
    """A pattern that drops a broadcast leaves the type: library calls stretch to it, other readers do not."""
    program = parse_text(
        context(),
        """
        func.func @main(%m : tensor<1x4xf32>, %k : tensor<4xf32>) -> tensor<3x4xf32> {
          %a = popart.expand %m {shape = array<i64: 3, 4>} : (tensor<1x4xf32>) -> tensor<3x4xf32>
          %c = popart.add %a, %k : (tensor<3x4xf32>, tensor<4xf32>) -> tensor<3x4xf32>
          func.return %c : tensor<3x4xf32>
        }
        """,
        "program.mlir",
    )

    def change(module: ModuleOp):
        expand, add = (next(o for o in module.walk() if isinstance(o, kind)) for kind in (popart.ExpandOp, popart.AddOp))
        add.operands[0] = expand.x

    also(monkeypatch, popart_fuse, "PopartFusePass", change)
    with proving(run=False), pytest.raises(PopulusError) as error:
        Pipeline.from_text("popart-fuse").run(context(), program)
    assert str(error.value).endswith("popart.add: the result is tensor<3x4xf32>; operands and attributes give tensor<1x4xf32>"), error.value


def test_an_unwritten_result_is_refuted(monkeypatch):
    def change(module: ModuleOp):
        op = next(o for o in module.walk() if isinstance(o, FamilyOp) and o.codelet.data == "conv").parent_op()
        assert op is not None
        op.detach()
        op.erase()

    also(monkeypatch, merge, "PoplarMergePass", change)
    assert refused(MODELS["strided"]()).startswith("poplar-merge is refuted: output 'y', element [")


# -- the command ----------------------------------------------------------------------------------------------------------


def test_the_command_prints_a_verdict_for_each_pass(tmp_path, capsys):
    onnx.save(MODELS["slices"](), tmp_path / "model.onnx")
    done = command(main, capsys)("check", tmp_path / "model.onnx", "--prove", "--tiles", 4)
    assert done.status == 0, done
    verdicts = Counter(word for word in done.out.split() if word in ("proved", "refuted"))
    assert verdicts["proved"] >= 4 and not verdicts["refuted"]


@pytest.mark.parametrize("given", [(), ("--dim", "N=2..6")])
def test_a_model_of_open_sizes_is_proved_for_a_bucket(given, tmp_path, capsys):
    x, y = (onnx.helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, ["N", 8]) for n in "xy")
    graph = onnx.helper.make_graph([onnx.helper.make_node("Relu", ["x"], ["y"])], "open", [x], [y])
    onnx.save(onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 18)], ir_version=8), tmp_path / "open.onnx")
    done = command(main, capsys)("check", tmp_path / "open.onnx", "--prove", *given)
    assert done.status == 0, done
    assert [line.split()[1] for line in done.out.splitlines() if line.startswith("poplar-allocate")] == [PROVED], done
    assert given or "proved for N = 1 (--dim NAME=LEAST..GREATEST states other sizes)" in done.out, done


def test_a_chain_that_is_too_deep_for_the_prover_is_not_decided():
    """Trees of functions are walked by functions that call themselves: 500 ops of a chain are beyond what Python takes."""
    with proving(run=False) as prover:
        populus.compile(mixed_chain(500), engine="numpy", cache=False)
    assert {(row.verdict, row.why) for row in prover.rows} == {(UNDECIDED, DEEP), (PROVED, "")}  # a pass that changes nothing is proved
    with proving_rewrites() as rewrites:
        populus.compile(mixed_chain(500), engine="numpy", cache=False)
    assert {why for row in rewrites.rows.values() for why in row.undecided} <= {DEEP}


@pytest.mark.parametrize(("trips", "verdict"), [(70, UNDECIDED), (2, REFUTED)])
def test_a_loop_that_makes_much_of_roundings_is_no_alarm(trips, verdict):
    """`sin(20 x)`, seventy times, makes a difference of a rounding one of the whole result; twice, it shows another factor."""
    t = Terms()
    parts = [Part(t.input("x", (), True), (), True)]

    def result(by: float):
        return looped(t, trips, False, parts, lambda _, s: ([t.elementwise(expr.sin(expr.Arg(1) * by), box(()), s, True)], []), [])[0][0]

    assert compare(t, {"y": (result(20.0), ())}, {"y": (result(20.1), ())}).verdict == verdict
    assert compare(t, {"y": (result(20.0), ())}, {"y": (result(20.0), ())}).verdict == PROVED


def test_an_output_that_is_lost_or_of_another_shape_is_refuted():
    t = Terms()
    x = t.input("x", (3, 4), True)
    assert compare(t, {"y": (x, (3, 4)), "z": (x, (3, 4))}, {"y": (x, (3, 4))}).refuted == ["output 'z' is lost"]
    assert compare(t, {"y": (x, (3, 4))}, {"y": (x, (1, 4))}).refuted == ["output 'y' is of shape [1, 4], where [3, 4] is meant"]
    flat, shape = t.reshaped(x, (3, 4), (12,)), (12,)
    assert compare(t, {"y": (x, (3, 4))}, {"y": (flat, shape)}).refuted == ["output 'y' is of shape [12], where [3, 4] is meant"]
    assert compare(t, {"y": (x, (3, 4))}, {"step": (x, (3, 4))}).verdict == UNDECIDED
