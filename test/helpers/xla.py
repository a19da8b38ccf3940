"""XLA on the CPU, by jax, as the oracle of programs of StableHLO."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from populus.lowering.stablehlo import jaxlib_reader


def run(text: str, arrays: Sequence[Any]) -> list[np.ndarray[Any, Any]]:
    """Compiles a module and runs it. Raises what XLA raises."""
    import jax
    from jaxlib import _jax, xla_client
    from jaxlib.mlir import ir

    (device,) = jax.devices("cpu")[:1]
    module = str(ir.Module.parse(text, jaxlib_reader.new_context()))
    loaded = device.client.compile_and_load(module, _jax.DeviceList((device,)), xla_client.CompileOptions())
    with jax.enable_x64(True):
        given = [jax.device_put(a, device) for a in arrays]
        outputs = loaded.execute_sharded(given).disassemble_into_single_device_arrays()
        return [np.asarray(o[0]) for o in outputs]
