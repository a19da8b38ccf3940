"""`optimise=`, and machines with impossible numbers."""

from __future__ import annotations

import pytest

import populus
from benchmarks.models import transformer
from populus.dialects.poplar.target import PRESETS, Target, impossible, make_target, register
from populus.dialects.support.diagnostics import PopulusError


def test_each_aim_is_best_at_what_it_names():
    model = transformer(hidden=128, heads=4, feed_forward=512)
    found = {aim: populus.compile(model, target="bow", optimise=aim).profile().summary for aim in ("cycles", "balanced", "memory")}
    assert found["cycles"]["cycles"] <= found["balanced"]["cycles"] <= found["memory"]["cycles"]
    peaks = {aim: summary["peak_tile_bytes"] for aim, summary in found.items()}
    assert peaks["memory"] < 0.8 * min(peaks["balanced"], peaks["cycles"])
    for summary in found.values():
        assert summary["peak_tile_bytes"] <= 1.05 * summary["liveness_bound"]


@pytest.mark.parametrize("machine", ["n150", "p150"])
def test_a_byte_on_a_mesh_is_priced_by_its_network(machine: str):
    """Priced as on an IPU, it cost fifteen times its time there, and products had few cores: 2.95 and 1.48 times the cycles."""
    model = transformer(hidden=512, heads=8, feed_forward=2048)
    fastest, balanced = (populus.compile(model, target=machine, optimise=aim).profile().summary["cycles"] for aim in ("cycles", "balanced"))
    assert balanced <= 1.25 * fastest


def test_an_unknown_aim_is_refused_with_the_nearest():
    with pytest.raises(PopulusError, match="optimise = memroy; expected balanced, cycles, memory; did you mean 'memory'"):
        populus.compile(transformer(hidden=16, heads=2, feed_forward=16), optimise="memroy")


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"exchange_bytes": 2048}, "exchange_bytes = 2048 is not less than the tile's memory, tile_bytes = 1024"),
        ({"workers": 0}, "workers = 0; expected at least 1"),
        ({"reserved_bytes": 1024}, "reserved_bytes = 1024 is not less than the tile's memory"),
        ({"clock_hz": float("nan")}, "clock_hz = nan; expected cycles per second"),
        ({"types": ()}, "types is empty"),
    ],
)
def test_a_machine_file_with_impossible_numbers_is_refused_by_name(fields: dict[str, object], message: str):
    target = Target(**{"name": "odd", "tiles": 4, "tile_bytes": 1024, "clock_hz": 1e9, **fields})
    with pytest.raises(PopulusError, match=f"odd.py: target 'odd': {message}"):
        register(target, "odd.py")
    assert "odd" not in PRESETS


def test_the_machines_here_are_possible():
    assert {name: impossible(target) for name, target in PRESETS.items()} == dict.fromkeys(PRESETS)


def test_overridden_fields_are_refused_too():
    with pytest.raises(PopulusError, match="target 'gc200': exchange_bytes = 700000 is not less than the tile's memory"):
        make_target("gc200", [("exchange_bytes", 700_000)])
