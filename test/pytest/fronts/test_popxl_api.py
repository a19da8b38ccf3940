"""The page of PopXL's names says what is there: each name that it calls ours exists, and none that it calls absent does."""

from __future__ import annotations

import importlib
import importlib.util
import re
from pathlib import Path

import pytest

import populus.popxl as popxl
from populus.popxl import ops

PAGE = (Path(__file__).parents[3] / "docs/popxl-api.md").read_text()


def test_names_of_the_page_are_there():
    rows: dict[str, list[str]] = {}
    for part in PAGE.split("\n## ")[1:]:
        title = f"populus.{part.split('`')[1]}"
        module = importlib.import_module(title) if importlib.util.find_spec(title) else None
        for name, kind, _ in re.findall(r"^\| `([\w.]+)` \| (\w+) \| (.*) \|$", part, re.MULTILINE):
            rows.setdefault(kind, []).append(name)
            first, _, member = name.partition(".")
            there = hasattr(module, first)
            if member and there and (kind == "absent" or callable(getattr(getattr(module, first), member, None))):
                there = hasattr(getattr(module, first), member)
            assert there == (kind != "absent"), (title, name, kind)
    assert len(rows["same"]) >= 0.95 * sum(map(len, rows.values()))
    assert f"{len(rows['same'])} of {sum(map(len, rows.values()))} are the same" in PAGE


def test_loads_and_stores_of_a_context_are_one_exchange():
    ir = popxl.Ir()
    with ir.main_graph:
        buffer = popxl.remote_buffer((), popxl.float32, 1)
        with popxl.transforms.io_tile_exchange():
            x = ops.remote_load(buffer, 0)
            ops.host_store(popxl.d2h_stream((), popxl.float32), popxl.constant(1.0))
        assert [op.opType() for op in ir.main_graph.recorded] == ["Init", "MultiExchange"]
        assert x.tile_set == "io"


def test_loads_that_stores_need_stay_apart():
    ir = popxl.Ir()
    with ir.main_graph:
        buffer = popxl.remote_buffer((), popxl.float32, 1)
        with pytest.raises(RuntimeError, match="io_tile_exchange leaves 3 ops"), popxl.transforms.io_tile_exchange():
            ops.remote_store(buffer, 0, ops.remote_load(buffer, 0) + 1)
        assert popxl.transforms.decompose_sum(ir.main_graph) is ir.main_graph


def test_a_store_takes_buffer_offset_and_tensor_in_this_order():
    with popxl.Ir().main_graph:
        buffer, t = popxl.remote_buffer((), popxl.float32, 1), popxl.constant(1.0)
        with pytest.raises(TypeError, match="takes a remote buffer, an offset and a tensor, in this order"):
            ops.remote_store(t, 0, buffer)  # pyright: ignore[reportArgumentType]
        with pytest.raises(TypeError, match="a remote buffer holds tensors, not 0"):
            ops.remote_store(buffer, t, 0)  # pyright: ignore[reportArgumentType]


def test_where_tensors_lie_and_whether_the_host_knows_them():
    ir = popxl.Ir()
    with ir.main_graph:
        x = popxl.variable(1.0)
        ops.var_updates.accumulate_(x, popxl.constant(1.0))
        far = popxl.remote_variable(1.0, popxl.remote_buffer((), popxl.float32, 1))
    assert x.location_info == popxl.TensorLocation(popxl.TensorStorage.OnChip)
    assert far.location_info.storage is popxl.TensorStorage.OffChip
    with popxl.Session(ir, "cpu", tiles=2) as session:
        assert x.in_sync_with_ipu
        session.run()
        assert not x.in_sync_with_ipu
        session.weights_to_host()
        assert x.in_sync_with_ipu
