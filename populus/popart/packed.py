"""`PackedDataBlock`: a graph that is called with sequences that lie one after the other, a batch of them at a time."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from populus.dialects.support.diagnostics import PopulusError
from populus.popart.graphs import rebuilt
from populus.popart.translation import Body, Known, Rule, Translation, rule

if TYPE_CHECKING:
    from onnx import NodeProto


def unpack(b: Body, data: str, offsets: str, lengths: str) -> str:
    """Computes each sequence of rows as one of `length` rows, its rest 0: `[calls, batch, length, ..]`."""
    import numpy as np

    (_, *rest), (count,), length, batch = b.shape(), b.shape(1), b.attr("length"), b.attr("batch")
    at, inside = _positions(b, offsets, lengths, count, length)
    at = b("Where", inside, at, b.const(0, np.int64))
    found = b("Gather", data, at, axis=0)
    kept = b("Where", b.reshape(inside, [count, length, *(1 for _ in rest)]), found, b.like(0))
    return b.reshape(kept, [count // batch, batch, length, *rest])


def pack(b: Body, results: str, offsets: str, lengths: str) -> str:
    """Computes the rows of each sequence written to their places among `size` rows; rows without a sequence are 0."""
    import numpy as np

    (calls, batch, length, *rest), size = b.shape(), b.attr("size")
    count = calls * batch
    at, inside = _positions(b, offsets, lengths, count, length)
    at = b("Where", inside, at, b.const(size, np.int64))  # one row more, which is left out
    flat = b.reshape(results, [count * length, math.prod(rest)])
    rows = b("Expand", b.reshape(at, [count * length, 1]), b.ints([count * length, math.prod(rest)]))
    base = b("Expand", b.like(0), b.ints([size + 1, math.prod(rest)]))
    written = b("ScatterElements", base, rows, flat, axis=0)
    return b.reshape(b("Slice", written, b.ints([0]), b.ints([size]), b.ints([0])), [size, *rest])


def _positions(b: Body, offsets: str, lengths: str, count: int, length: int) -> tuple[str, str]:
    """Computes the row of each element of each sequence, and whether the sequence has it."""
    import numpy as np

    first, number = (b.reshape(b.cast(v, np.int64), [count, 1]) for v in (offsets, lengths))
    each = b.ints(range(length))
    return b("Add", first, each), b("Less", each, number)


def packed_data_block(translation: Translation, node: NodeProto) -> None:
    """Calls a graph for each batch of sequences. Inputs: data, offsets and lengths, for each input of the graph; then those of the result.

    Raises PopulusError for inputs that do not fit the graph, and before opset 9.
    """
    from onnx import helper

    given: dict[str, Any] = {a.name: a.g if a.HasField("g") else helper.get_attribute_value(a) for a in node.attribute}
    callback, batch, sizes = given["callback"], int(given["callbackBatchSize"]), list(given["maxSequenceLengths"])
    number = len(callback.input)
    if len(node.input) != 3 * number + 2 or len(sizes) != number:
        raise PopulusError(
            f"{len(node.input)} inputs and {len(sizes)} lengths; the graph's {number} inputs want {3 * number + 2} and {number}"
        )
    if translation.opsets.get("", 10) < 9:
        raise PopulusError("it is made of a Scan of opset 9; take opset 9 or a later one")
    mark = f"{node.output[0]}/{next(translation.numbers)}"
    known: list[Known] = []
    for i, length in enumerate(sizes):
        data = translation.type_of(node.input[3 * i])
        (count,) = translation.type_of(node.input[3 * i + 1]).shape
        if count % batch:
            raise PopulusError(f"{count} sequences do not make batches of {batch}")
        known.append(Known(data.dtype, (batch, length, *data.shape[1:])))
        part = helper.make_node("Unpack", list(node.input[3 * i : 3 * i + 3]), [f"{mark}/in{i}"], length=length, batch=batch)
        rule(unpack)(translation, part)
    names = [f"{mark}/in{i}" for i in range(number)]
    scan = helper.make_node("Scan", names, [f"{mark}/out"], num_scan_inputs=number, body=callback)
    rebuilt(translation, scan, {"body": known})
    end = helper.make_node("Pack", [f"{mark}/out", *node.input[-2:]], list(node.output), size=int(given["resultSize"]))
    rule(pack)(translation, end)


RULES: Mapping[tuple[str, str], Rule] = {("ai.graphcore", "PackedDataBlock"): packed_data_block}
