"""`gc2`, `gc200` and `bow`: Graphcore's processors, by the formulas of PopLibs.

Reference values of Graphcore's published material; `exchange_setup_cycles` and `sync_cycles` are assumptions, and
`outside_bytes` stands for some 20 GB/s of streaming memory to an IPU (from the host's memory on GC2).
`link_bytes`: ten links of 32 GB/s, half of them in each direction; `link_cycles` is an assumption. `load_bytes`, `unit_bytes`: PopLibs'
ConvPartial vertices. `product_start_cycles`, `vertex_start_cycles`: fitted, each to one row of docs/machine-model.md.
"""

from populus.dialects.poplar.machine import KIB, machine

GC2 = machine(
    kind="ipu",
    name="gc2",
    tiles=1216,
    tile_bytes=256 * KIB,
    clock_hz=1.6e9,
    conv_units=8,
    conv_macs=8,
    slic_taps=0,
    interleaved_bytes=128 * KIB,
    outside_bytes=6,
    link_bytes=100,
    reserved_bytes=4 * KIB,
    judged="3 convolutions",
)
GC200 = machine(
    kind="ipu",
    name="gc200",
    tiles=1472,
    tile_bytes=624 * KIB,
    clock_hz=1.325e9,
    bus_tiles=2,
    interleaved_bytes=416 * KIB,
    reserved_bytes=4 * KIB,
    judged="2 networks of a C600, which has another clock",
)
BOW = machine(
    kind="ipu",
    name="bow",
    tiles=1472,
    tile_bytes=624 * KIB,
    clock_hz=1.85e9,
    bus_tiles=2,
    interleaved_bytes=416 * KIB,
    outside_bytes=11,
    link_bytes=86,
    reserved_bytes=4 * KIB,
    judged="59 products, 16 vertices, 2 networks",
)
