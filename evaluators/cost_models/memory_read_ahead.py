"""Timeline of operators of a chip of tiles, with prefetch while main memory is idle.

It reads into a cache in front of it, or where there is none up the columns into what slices leave of local memories; then time
in which links are at work is none to read in either. An operator whose bytes are there in part takes time on a straight line
between that with all of them and with none: no less than it would, since it takes the longest of things that grow with bytes.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

from dse.evaluators.calls.call import CallBlock
from dse.evaluators.calls.prefetch import IdleWindow
from dse.evaluators.cost_models import jobs
from dse.evaluators.cost_models.cached_job import CachedJob
from dse.evaluators.cost_models.call_cost import CostModel, TimedBlock, block_timeline
from dse.evaluators.cost_models.timeline import schedule_segment
from dse.evaluators.machine.machine import HardwareModel
from dse.evaluators.machine.memory_channels import read_ahead_seconds_per_byte
from dse.evaluators.program.activity import Activity
from dse.space.array_math import maximum
from dse.space.chip import Chip


class ReadAhead(NamedTuple):
    """Prefetch policy of `space.mapping.PREFETCH`, and the bytes that have room on the chip. [B]"""

    policy: str
    budget: Any


def timeline_with_read_ahead(
    blocks: Sequence[CallBlock], machine: HardwareModel, reader: CostModel, chip: Chip, ahead: ReadAhead
) -> list[TimedBlock]:
    """Every block of a step on the timeline, with the idle window that its predecessor leaves."""
    timeline: list[TimedBlock] = []
    windows: list[IdleWindow] = []
    for block in block_timeline(blocks, machine, reader):
        after = block.block.after
        timed_block, window = _timed(block, reader, chip, ahead, IdleWindow(0.0) if after is None else windows[after])
        timeline.append(timed_block)
        windows.append(window)
    return timeline


def _timed(
    block: TimedBlock, reader: CostModel, chip: Chip, ahead: ReadAhead, window: IdleWindow
) -> tuple[TimedBlock, IdleWindow]:
    byte, resident, durations = read_ahead_seconds_per_byte(chip), list(block.resident), list(block.durations)
    for place, (call, cost) in enumerate(zip(block.block.calls, block.costs, strict=True)):
        bytes_ahead: Any = 0.0
        if isinstance(call.job, CachedJob):
            bytes_ahead, window = window.read(call.job.nbytes, byte, ahead.policy, ahead.budget)
            share = bytes_ahead / maximum(call.job.nbytes, 1.0)
            resident[place] = share
            durations[place] = cost.engines - share * (cost.engines - reader.job(call.job.there).seconds)
        moved = jobs.job_cost("analytical", call.job).activity  # of all of the chip, whatever part of it is simulated
        window = window.after_call(durations[place] - _busy(moved, bytes_ahead, byte, chip), byte, ahead.budget)
    nothing = [None] * len(durations)
    seconds = schedule_segment(0.0, durations, nothing, block.block.order)
    return block._replace(resident=resident, durations=durations, seconds=seconds), window


def _busy(moved: Activity, bytes_ahead: Any, byte: Any, chip: Chip) -> Any:
    """Time in which nothing can be read ahead: that of main memory and, where there is no cache, of links on average. [s]"""
    memory = (moved.memory_bytes - bytes_ahead) * byte
    if chip.l2 is not None:
        return memory
    rows, cols = chip.mesh.rows, chip.mesh.cols
    links = maximum(2 * (rows * (cols - 1) + cols * (rows - 1)), 1.0)
    return memory + moved.hop_bytes / links * (chip.noc.word_cycles / (chip.noc.word_bytes * chip.clock))
