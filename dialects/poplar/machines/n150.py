"""`n150`: Tenstorrent's card with one Wormhole, its numbers with their sources.

| key | source |
|---|---|
| ISA | tenstorrent/tt-isa-documentation@39304719 `WormholeB0/` |
| TT | tenstorrent/tt-metal of 2026-05-23 |
| GEMM | tenstorrent/tt-metal@06bd3735 `tech_reports/GEMM_FLOPS/GEMM_FLOPS.md` |
| ETH | tenstorrent/tt-metal@09553f7e `tech_reports/EthernetMultichip/BasicEthernetGuide.md` |
| LL | tenstorrent/tt-low-level-documentation@e2237789 `data_movement_doc/`: cycles by the profiler, means over 256 transactions |
| fitted | to the 20 replayed rows of GEMM with hand-tuned plans that are marked `fit` |
"""

from populus.dialects.poplar.machine import machine

N150 = machine(
    kind="mesh",
    name="n150",
    tiles=64,  # of 80 cores 72 are on the card and 8 dispatch. TT wormhole_b0_80_arch.yaml
    grid=(8, 8),
    tile_bytes=1464 * 1024,  # ISA TensixTile/L1.md
    reserved_bytes=1464 * 1024 - 1_395_000,  # of kernels and of what the library keeps: assumed
    clock_hz=1.0e9,  # GEMM
    busy_clock_hz=0.88e9,  # fitted: under products, beyond the cycles below
    busy_cycles=60_000,
    launch_cycles=1570,  # an empty program, replayed from a trace. TT pgm_dispatch_golden.json
    signal_cycles=205,  # a write of 64 bytes, one to one. LL
    unicast_bytes=30.2,  # 2 KiB, many, one to one. LL
    row_bytes=27.4,  # linked multicast, 2 KiB, many. LL
    column_bytes=29.5,
    multicast_cycles=400,  # 2 KiB to a row that the sender is in. LL
    hop_cycles=9,  # ISA NoC
    issue_cycles=33.5,  # 256 reads of 256 bytes. LL
    dram_size=12 * 1024**3,  # ISA DRAMTile
    dram_tile_bytes=30.3,  # pages over all banks, 2 KiB. LL
    dram_read_bytes=167.0,  # LL, Multi Interleaved Read Grid Sweep
    dram_write_bytes=104.0,  # half of the columns by each network, 52 a cycle by network 0. LL; TT matmul program factory
    dram_stream_bytes=190.0,  # an interleaved product that DRAM bounds. TT tech_reports/LLMs/llms.md
    dram_cycles=475,  # a read of 2 KiB. LL
    banks=12,  # ISA DRAMTile
    bank_bytes=21.9,  # one core, 2 KiB, many. LL. 12 such cores that send to others reach 260 bytes: TT test_dram_read_l1_write_core
    memory="gddr6",  # ISA DRAMTile
    link_bytes=25,  # two links of 12.5 GB/s each way to a neighbour. ETH, N300 and T3000
    link_cycles=650,  # 650 ns a hop in a ring. ETH
    block=(32, 32),
    matrix_macs=2048,  # 8 x 16 times 16 x 16 a cycle. ISA MatrixUnit.md
    formats=("bf16", "bfp8", "bfp4", "f32", "i8", "i32"),
    # Of a format's bits, a phase multiplies 5 by 7; f32 is TF32. The vendor runs bf16 at 2 or 4 and bfp8 at 1 or 2. ISA SrcASrcB.md
    phases={"bf16": 4, "bfp8": 2, "bfp4": 1, "f32": 4, "i8": 4, "i32": 4},
    sub_block=8,  # half of the registers of sums. TT matrix_engine.md
    phase_cycles=13.3,  # fitted
    reader_cycles=56.4,  # fitted
    unpack_bytes=(48.5, 64.0),  # of the second operand fitted; of the first ISA L1.md
    pack_bytes=64.0,  # four packers of 16. ISA L1.md
    judged="published matrix products, DRAM and network rows",
    fitted=("phase_cycles", "reader_cycles", "unpack_bytes", "busy_clock_hz", "busy_cycles"),
    vector_lanes=32,  # ISA VectorUnit.md
)
