"""The pass `onnx-training-mode`: makes batch normalisations and dropouts train or infer."""

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

TRAINS = 15  # version of BatchNormalization with the attribute training_mode
RUNNING = (3, 4)  # positions of the running mean and variance


@dataclass(frozen=True)
class OnnxTrainingModePass(ModulePass):
    """Sets the mode of each BatchNormalization and Dropout.

    A node that trains normalises by the batch's statistics, or drops elements. `mode`: `train` makes all
    train; `infer` none; `keep` leaves each as the model has it. The running statistics of a node that trains
    become inputs, and results `Updated___<name>`, updated by the node's momentum. Raises PopulusError for
    running statistics that are computed, or that two nodes share.
    """

    name = "onnx-training-mode"

    mode: str = "keep"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        """Sets the mode of the nodes of `@main`, and adds the updated statistics to its results."""
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
    """Replaces a Dropout by one with a constant training flag."""
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
        [x, ratio, flag.result], [unknown for _ in node.results], _selected(node, "seed")
    )
    _replace(node, made)


def _inferring(function: FuncOp, node: OnnxOp) -> None:
    """Replaces a BatchNormalization by one that infers."""
    _unsaved(node)
    made = op_class("", "BatchNormalization", TRAINS).make(node.inputs, [unknown], _selected(node, "epsilon", "momentum"))
    for result, i in zip(node.results[1:], RUNNING):  # inference leaves the running statistics unchanged
        statistic = node.inputs[i]
        assert statistic is not None
        result.replace_all_uses_with(statistic)
    function.update_function_type()
    _replace(node, made)


def _trained(function: FuncOp, node: OnnxOp, taken: dict[str, SSAValue]) -> dict[str, SSAValue]:
    """Replaces a BatchNormalization by one that trains; gives its updated statistics by result name."""
    names: list[str] = []
    for i in RUNNING:
        value = node.inputs[i]
        assert value is not None
        name = _name_of(value)
        if name is None:
            statistic = "mean" if i == RUNNING[0] else "variance"
            raise PopulusError(f"{where(node)}: its running {statistic} is computed; only initializers can be moved")
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
    properties = {**_selected(node, "epsilon", "momentum"), "training_mode": IntegerAttr(1, i64)}
    made = op_class("", "BatchNormalization", TRAINS).make(node.inputs, [unknown] * 3, properties)
    _replace(node, made)
    return {updated_name(name): made.results[i] for i, name in enumerate(names, 1)}


def _unsaved(node: OnnxOp) -> None:
    """Raises PopulusError for a use of statistics that a node before opset 14 saves for gradients."""
    for i in range(3, len(node.outputs)):
        if (saved := node.output(i)) is not None and saved.uses:
            raise PopulusError(f"{where(node)}: its output {i} is read, a statistic that only gradients need; remove what reads it")


def _name_of(value: SSAValue) -> str | None:
    """Gives the name of a weight, constant or argument; None if it has none."""
    place = value.owner.location if isinstance(value.owner, ConstantOp) else value.location if isinstance(value, BlockArgument) else None
    return place.desc.data if isinstance(place, NameLoc) else None


def _selected(node: OnnxOp, *names: str) -> dict[str, Attribute]:
    """Selects attributes of a node by name."""
    return {n: node.properties[n] for n in names if n in node.properties}


def _replace(old: OnnxOp, new: OnnxOp) -> None:
    """Replaces a node by another, which takes its location and name hints."""
    new.location = old.location
    Rewriter.insert_op(new, InsertPoint.before(old))
    for before, after in zip(old.results, new.results):
        after.name_hint = before.name_hint
        before.replace_all_uses_with(after)
    old.detach()
    old.erase()
