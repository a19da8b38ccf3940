"""`p150`: Tenstorrent's card with one Blackhole, its numbers with their sources. Keys are those of `n150.py`.

Fitted to the 40 replayed rows of GEMM with hand-tuned plans that are marked `fit`.

| key | source |
|---|---|
| CARD | docs.tenstorrent.com `aibs/blackhole/multi-card-topologies.html`: four ports, one to a neighbour of the mesh of eight |
| ISB | tenstorrent/tt-isa-documentation `BlackholeA0/`: README.md at 3b04c2c6, NoC/README.md at 585749d1 |
"""

from populus.dialects.poplar.machine import machine

P150 = machine(
    kind="mesh",
    name="p150",
    tiles=130,  # TT blackhole_140_arch.yaml
    grid=(13, 10),
    tile_bytes=1536 * 1024,  # TT soc_descriptors
    reserved_bytes=1536 * 1024 - 1_395_000,  # of kernels and of what the library keeps: assumed, and the guide gives programs 1464 KB
    clock_hz=1.35e9,  # GEMM
    launch_cycles=1745,  # an empty program, replayed from a trace: 1,290 ns. TT pgm_dispatch_blackhole_golden.json
    signal_cycles=207,  # a write of 64 bytes, one to one. LL
    unicast_bytes=57.8,  # 2 KiB, many, one to one. LL
    row_bytes=45.6,  # linked multicast, 2 KiB, many. LL
    column_bytes=55.5,
    multicast_cycles=485,  # 2 KiB to a row that the sender is in. LL
    hop_cycles=9,  # ISB NoC
    issue_cycles=36.9,  # 256 reads of 256 bytes. LL
    dram_size=32 * 1024**3,  # ISB
    dram_tile_bytes=55.1,  # pages over all banks, 2 KiB. LL
    dram_read_bytes=310.0,  # LL, Multi Interleaved Read Grid Sweep
    dram_write_bytes=204.0,  # LL, DRAM Interleaved All to All, network 1
    dram_stream_bytes=310.0,  # as for all cores: no other figure was found
    dram_cycles=548,  # a read of 2 KiB. LL
    banks=8,  # BHD
    bank_bytes=40.6,  # one core, 2 KiB, many. LL. With 16 KiB 46.3, each core beside its bank: BHD
    link_bytes=74,  # a port of 800 Gb/s to a neighbour: ISB EthernetTile, CARD
    link_cycles=878,  # Wormhole's 650 ns a hop, assumed
    memory="gddr6",  # BHD: tt-metal `Saturating_DRAM_bandwidth_Blackhole.md`
    block=(32, 32),
    matrix_macs=2048,  # ISA MatrixUnit.md, which holds for both
    formats=("bf16", "bfp8", "bfp4", "f32", "i8", "i32"),
    phases={"bf16": 4, "bfp8": 2, "bfp4": 1, "f32": 4, "i8": 4, "i32": 4},
    sub_block=8,
    phase_cycles=11.2,  # fitted
    reader_cycles=65.2,  # fitted
    step_cycles=154.7,  # fitted
    reads_while_sending=True,  # fitted
    unpack_bytes=(80.0, 80.0),  # the limit of Wormhole's ports, assumed: no row that was fitted is bound by it. ISA L1.md
    pack_bytes=64.0,
    judged="published matrix products, DRAM and network rows",
    fitted=("phase_cycles", "reader_cycles", "step_cycles", "reads_while_sending"),
    vector_lanes=32,
)
