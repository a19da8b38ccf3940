"""`onnx-training-mode`: batch normalisations and dropouts as when training, or as when inferring."""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import IntegerAttr, ModuleOp, NameLoc, i64
from xdsl.dialects.func import FuncOp
from xdsl.ir import Attribute, BlockArgument, SSAValue
from xdsl.passes import ModulePass
from xdsl.rewriter import InsertPoint, Rewriter

from populus.dialects.data import ConstantOp, constant
from populus.dialects.onnx.schema import OnnxOp, op_class
from populus.dialects.onnx.types import unknown
from populus.dialects.signature import add_results, expose, main_of
from populus.dialects.support.diagnostics import PopulusError, where
from populus.lowering.onnx.misjudged import trains
from populus.lowering.popart.training_names import updated_name

TRAINS = 15  # the version of BatchNormalization that says whether it trains
RUNNING = (3, 4)  # its operands that are statistics


@dataclass(frozen=True)
class OnnxTrainingModePass(ModulePass):
    """What trains normalises by the statistics of its batch, and drops elements; what infers does neither.

    `mode`: `train` makes every BatchNormalization and Dropout train; `infer` none; `keep` leaves each as the model has it. The
    running statistics of one that trains become inputs, and results `Updated___<name>`, moved by the node's momentum.
    Raises PopulusError for running statistics that are computed, or that two nodes share.
    """

    name = "onnx-training-mode"

    mode: str = "keep"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        if self.mode not in ("train", "infer", "keep"):
            raise PopulusError(f"the mode is '{self.mode}'; train, infer or keep is expected")
        function = main_of(op)
        updated: dict[str, SSAValue] = {}
        for node in list(function.body.block.ops):
            if not isinstance(node, OnnxOp) or node.DOMAIN:
                continue
            if node.OP_TYPE == "Dropout" and self.mode != "keep" and (node.VERSION >= 12 or self.mode == "train"):
                _set_dropout(node, self.mode == "train")
            if node.OP_TYPE == "BatchNormalization":
                if self.mode == "train" or (self.mode == "keep" and trains(node)):
                    updated.update(_trained(function, node, updated))
                elif trains(node):
                    _inferring(function, node)
        if updated:
            add_results(function, updated)


def _set_dropout(node: OnnxOp, train: bool) -> None:
    import numpy as np

    flag = constant(np.array(train))
    flag.location = node.location
    Rewriter.insert_op(flag, InsertPoint.before(node))
    x, ratio = [*node.inputs, None][:2]
    if node.VERSION < 12:  # the ratio is an attribute, and there is no flag
        share = constant(np.array(node.property("ratio"), np.float32))
        share.location = node.location
        Rewriter.insert_op(share, InsertPoint.before(node))
        ratio = share.result
    made = op_class("", "Dropout", max(node.VERSION, 12)).make(
        [x, ratio, flag.result], [unknown for _ in node.results], _kept(node, "seed")
    )
    _replace(node, made)


def _inferring(function: FuncOp, node: OnnxOp) -> None:
    _unsaved(node)
    made = op_class("", "BatchNormalization", TRAINS).make(node.inputs, [unknown], _kept(node, "epsilon", "momentum"))
    for result, i in zip(node.results[1:], RUNNING):  # what is not measured does not move
        kept = node.inputs[i]
        assert kept is not None
        result.replace_all_uses_with(kept)
    function.update_function_type()
    _replace(node, made)


def _trained(function: FuncOp, node: OnnxOp, taken: dict[str, SSAValue]) -> dict[str, SSAValue]:
    """Makes a node train; the new running statistics by the names of their results."""
    names: list[str] = []
    for i in RUNNING:
        value = node.inputs[i]
        assert value is not None
        name = _name_of(value)
        if name is None:
            what = "mean" if i == RUNNING[0] else "variance"
            raise PopulusError(f"{where(node)}: its running {what} is computed; only initializers can be moved")
        if updated_name(name) in taken or name in names:
            raise PopulusError(
                f"{where(node)}: another BatchNormalization has the running statistics '{name}' too; "
                "give each its own initializer (torch's exporter does so with training=TrainingMode.TRAINING)"
            )
        names.append(name)
    if node.property("spatial") == 0:
        raise PopulusError(f"{where(node)}: spatial = 0 normalises each element by itself; that cannot be trained")
    _unsaved(node)
    expose(function, names)
    properties = {**_kept(node, "epsilon", "momentum"), "training_mode": IntegerAttr(1, i64)}
    made = op_class("", "BatchNormalization", TRAINS).make(node.inputs, [unknown] * 3, properties)
    _replace(node, made)
    return {updated_name(name): made.results[i] for i, name in enumerate(names, 1)}


def _unsaved(node: OnnxOp) -> None:
    """Raises PopulusError where the statistics are read that a node before opset 14 saves for gradients."""
    for i in range(3, len(node.outputs)):
        if (saved := node.output(i)) is not None and saved.uses:
            raise PopulusError(f"{where(node)}: its output {i} is read, a statistic that only gradients need; remove what reads it")


def _name_of(value: SSAValue) -> str | None:
    """The name of a weight, constant or argument."""
    place = value.owner.location if isinstance(value.owner, ConstantOp) else value.location if isinstance(value, BlockArgument) else None
    return place.desc.data if isinstance(place, NameLoc) else None


def _kept(node: OnnxOp, *names: str) -> dict[str, Attribute]:
    return {n: node.properties[n] for n in names if n in node.properties}


def _replace(old: OnnxOp, new: OnnxOp) -> None:
    new.location = old.location
    Rewriter.insert_op(new, InsertPoint.before(old))
    for before, after in zip(old.results, new.results):
        after.name_hint = before.name_hint
        before.replace_all_uses_with(after)
    old.detach()
    old.erase()
