"""Ramulator 2: load/store traces of a kernel's memory stream, and the configuration of their memory.

Traces have no times: the simulator makes requests as fast as its controllers accept them.
"""

from pathlib import Path
from typing import Any

import numpy as np

from dse.exports.export_files import TraceSchema, write_lines, write_rows
from dse.exports.memory_requests import RequestTrace, pack_address
from dse.space.dram import MemorySystem, pseudo_channel_count

TRACE_SCHEMA = TraceSchema(
    "Ramulator 2 LoadStoreTrace: LD|ST address",
    "github.com/CMU-SAFARI/ramulator2",
    "2b9b3ae",
    "src/frontend/impl/memory_trace/loadstore_trace.cpp",
)
CONFIG_SCHEMA = TraceSchema(
    "Ramulator 2 configuration, HBM2 with RoBaRaCoCh", "github.com/CMU-SAFARI/ramulator2", "1fb94b8", "src/dram/impl/HBM2.cpp"
)
SCHEMAS = (TRACE_SCHEMA, CONFIG_SCHEMA)

ORDER = ("row", "bank", "group", "column", "channel")
"""Fields of an address of RoBaRaCoCh, high to low; there is one pseudo-channel of each channel."""

PREFETCH = 2
"""Words of a channel's width that a request moves, as the simulator's HBM2 has it."""


def write_ramulator(trace: RequestTrace, folder: Path) -> dict[str, Any]:
    """Write a trace and the configuration of its memory; returns totals."""
    address = pack_address(trace, ORDER)
    words = np.where(trace.write, "ST", "LD")
    write_rows(folder / f"{trace.name}.trace", (words, np.array([f"0x{value:x}" for value in address.tolist()])), " ")
    write_lines(folder / f"{trace.name}.yaml", config_lines(trace.memory, f"{trace.name}.trace"))
    return trace.totals()


def config_lines(memory: MemorySystem, trace: str) -> list[str]:
    """Lines of the configuration of a memory and its trace: organisation, timing and controller."""
    t, width = memory.timing, int(memory.access) * 8 // PREFETCH
    columns = int(memory.row / memory.access) * PREFETCH
    bits = int(memory.groups * memory.banks * memory.rows) * columns * width
    timing = {
        "rate": round(2 * float(memory.clock) / 1e6), "nBL": t.burst, "nCL": t.cl, "nRCDRD": t.rcd_read, "nRCDWR": t.rcd_write,
        "nRP": t.rp, "nRAS": t.ras, "nRC": t.ras + t.rp, "nWR": t.wr, "nRTPS": t.rtp, "nRTPL": t.rtp, "nCWL": t.cwl,
        "nCCDS": t.ccd_s, "nCCDL": t.ccd_l, "nRRDS": t.rrd_s, "nRRDL": t.rrd_l, "nWTRS": t.wtr_s, "nWTRL": t.wtr_l,
        "nRTW": t.rtw, "nFAW": t.faw, "nRFC": t.rfc or t.rfc_bank, "nRFCSB": t.rfc_bank or t.rfc, "nREFI": t.refi,
        "nREFISB": max(int(t.refi) // int(memory.groups * memory.banks), 1), "nRREFD": t.rrd_s,
    }  # fmt: skip
    return [
        f"# {TRACE_SCHEMA.text}",
        f"# {CONFIG_SCHEMA.text}",
        "Frontend:",
        "  impl: LoadStoreTrace",
        "  clock_ratio: 1",
        f"  path: {trace}",
        "MemorySystem:",
        "  impl: GenericDRAM",
        "  clock_ratio: 1",
        "  DRAM:",
        "    impl: HBM2",
        "    org:",
        f"      channel_width: {width}",
        f"      dq: {width}",
        f"      density: {bits >> 20}",
        f"      channel: {int(pseudo_channel_count(memory))}",
        "      pseudochannel: 1",
        f"      bankgroup: {int(memory.groups)}",
        f"      bank: {int(memory.banks)}",
        f"      row: {int(memory.rows)}",
        f"      column: {columns}",
        "    timing:",
        *(f"      {name}: {int(value)}" for name, value in timing.items()),
        "  Controller:",
        "    impl: Generic",
        "    Scheduler:",
        "      impl: FRFCFS",
        "    RefreshManager:",
        "      impl: AllBank",
        "    RowPolicy:",
        "      impl: OpenRowPolicy",
        "    plugins:",
        "  AddrMapper:",
        "    impl: RoBaRaCoCh",
    ]
