"""`host`: a CPU as a machine of few tiles with large memories.

The rates are those of one AVX2-class core shared by the tiles of a socket, and a barrier costs what waking a thread does.
"""

from xdsl.dialects.builtin import bf16, f64

from populus.dialects.poplar.machine import IPU_TYPES, KIB, machine
from populus.dialects.support.element_types import BYTES

HOST = machine(
    kind="ipu",
    name="host",
    tiles=16,
    tile_bytes=1024 * KIB * KIB,
    clock_hz=2.5e9,
    workers=1,
    exchange_bytes=8,
    exchange_setup_cycles=100,
    sync_cycles=2500,
    copy_bytes=16,
    link_bytes=1,  # arrays between processes of one machine are copied some four times; see docs/replicas.md
    link_cycles=50_000,
    vector_bytes=32,
    conv_units=4,
    wide_units=4,
    conv_inputs=4,
    conv_macs=32,
    slic_taps=0,
    byte_macs=128,
    call_cycles=200,  # of a kernel
    joins=True,
    types=tuple(dict.fromkeys((*IPU_TYPES, bf16, f64, *BYTES))),
)
