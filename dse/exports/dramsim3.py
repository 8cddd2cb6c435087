"""DRAMsim3: address traces of loads and stores, and the configuration of their memory."""

from pathlib import Path
from typing import Any

import numpy as np

from dse.exports.export_files import TraceSchema, write_lines, write_rows
from dse.exports.memory_requests import RequestTrace, pack_address
from dse.space.dram import MemorySystem, pseudo_channel_count

TRACE_SCHEMA = TraceSchema(
    "DRAMsim3 trace: address READ|WRITE cycle", "github.com/umd-memsys/DRAMsim3", "0e2dc16", "src/common.cc, Access"
)
CONFIG_SCHEMA = TraceSchema("DRAMsim3 configuration", "github.com/umd-memsys/DRAMsim3", "000abef", "src/configuration.cc")
SCHEMAS = (TRACE_SCHEMA, CONFIG_SCHEMA)

MAPPING = "rorabgbachco"
"""Address bits, high to low: row, rank, bank group, bank, channel, column."""

ORDER = ("row", "group", "bank", "channel", "column")


def write_dramsim3(trace: RequestTrace, folder: Path) -> dict[str, Any]:
    """Write a trace and the configuration of its memory; returns totals."""
    address = pack_address(trace, ORDER)
    words = np.where(trace.write, "WRITE", "READ")
    write_rows(
        folder / f"{trace.name}.trace", (np.array([f"0x{value:x}" for value in address.tolist()]), words, trace.cycle), " "
    )
    write_lines(folder / f"{trace.name}.ini", config_lines(trace.memory))
    return trace.totals()


def config_lines(memory: MemorySystem) -> list[str]:
    """Lines of the configuration of a memory: organisation, timing, mapping and queues."""
    t, banks = memory.timing, int(memory.groups * memory.banks)
    beats = 2 * int(t.burst)
    width = int(memory.access) * 8 // beats
    columns = int(memory.row) * 8 // (2 * width)
    turn = int(t.rtw - (t.cl + t.burst - t.cwl))
    channel_mb = banks * int(memory.rows) * int(memory.row) >> 20
    by_bank = memory.refresh == "bank"
    return [
        f"; {CONFIG_SCHEMA.text}",
        "; protocol HBM2 only says how columns are counted and that reads and writes have activate times of their own",
        "[dram_structure]",
        "protocol = HBM2",
        f"bankgroups = {int(memory.groups)}",
        f"banks_per_group = {int(memory.banks)}",
        f"rows = {int(memory.rows)}",
        f"columns = {columns}",
        f"device_width = {width}",
        f"BL = {beats}",
        "[timing]",
        f"tCK = {1e9 / float(memory.clock):.10g}",
        f"CL = {int(t.cl)}",
        f"CWL = {int(t.cwl)}",
        f"tRCDRD = {int(t.rcd_read)}",
        f"tRCDWR = {int(t.rcd_write)}",
        f"tRP = {int(t.rp)}",
        f"tRAS = {int(t.ras)}",
        f"tRFC = {int(t.rfc)}",
        f"tREFI = {int(t.refi)}",
        f"tRFCb = {int(t.rfc_bank)}",
        f"tREFIb = {max(int(t.refi) // banks, 1)}",
        f"tRPRE = {turn}",
        f"tRRD_S = {int(t.rrd_s)}",
        f"tRRD_L = {int(t.rrd_l)}",
        f"tWTR_S = {int(t.wtr_s)}",
        f"tWTR_L = {int(t.wtr_l)}",
        f"tFAW = {int(t.faw)}",
        f"tWR = {int(t.wr)}",
        f"tCCD_S = {int(t.ccd_s)}",
        f"tCCD_L = {int(t.ccd_l)}",
        f"tRTP_S = {int(t.rtp)}",
        f"tRTP_L = {int(t.rtp)}",
        "[system]",
        f"channel_size = {channel_mb}",
        f"channels = {int(pseudo_channel_count(memory))}",
        f"bus_width = {width}",
        f"address_mapping = {MAPPING}",
        "queue_structure = PER_BANK",
        f"refresh_policy = {'BANK_LEVEL_STAGGERED' if by_bank else 'RANK_LEVEL_STAGGERED'}",
        "row_buf_policy = OPEN_PAGE",
        f"cmd_queue_size = {int(memory.controller.queue)}",
        f"trans_queue_size = {int(memory.controller.waiting)}",
        "[other]",
        "epoch_period = 1000000",
        "output_level = 0",
    ]
