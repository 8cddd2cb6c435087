"""Timeline of operators of a chip of tiles, with prefetch while main memory is idle.

It reads into a cache in front of it, or where there is none up the columns into what slices leave of local memories; then time
in which links are at work is none to read in either. An operator whose bytes are there in part takes time on a straight line
between that with all of them and with none: no less than it would, since it takes the longest of things that grow with bytes.
"""

from collections.abc import Sequence
from typing import Any

from dse.evaluators.calls.call import CallBlock, KernelCall
from dse.evaluators.cost_models import jobs
from dse.evaluators.cost_models.cached_job import CachedJob
from dse.evaluators.cost_models.call_cost import CallCost, CostModel, TimedBlock, block_timeline
from dse.evaluators.cost_models.overlapped_timeline import ReadAhead, TimedCall, overlapped_timeline
from dse.evaluators.machine.machine import HardwareModel
from dse.evaluators.machine.memory_channels import read_ahead_seconds_per_byte
from dse.evaluators.program.activity import Activity
from dse.space.array_math import maximum
from dse.space.chip import Chip


def timeline_with_read_ahead(
    blocks: Sequence[CallBlock], machine: HardwareModel, reader: CostModel, chip: Chip, policy: str, budget: Any
) -> list[TimedBlock]:
    """Every block of a step on the timeline, with the idle window that its predecessor leaves.

    Args:
        blocks, machine, reader: calls, machine and cost model.
        chip: of tiles.
        policy: an option of `space.mapping.PREFETCH`.
        budget: bytes that have room on the chip. [B]
    """
    byte = read_ahead_seconds_per_byte(chip)

    def overlap_call(call: KernelCall, cost: CallCost) -> TimedCall:
        """A call that takes less time the more of its bytes are there."""
        moved = jobs.job_cost("analytical", call.job).activity  # of all of the chip, whatever part of it is simulated

        def duration(bytes_ahead: Any) -> Any:
            return cost.engines - _share(call.job, bytes_ahead) * (cost.engines - reader.job(call.job.there).seconds)

        def idle(seconds: Any, bytes_ahead: Any) -> Any:
            return seconds - _busy(moved, 0.0 if bytes_ahead is None else bytes_ahead, byte, chip)

        return TimedCall(call.job.nbytes if isinstance(call.job, CachedJob) else None, duration, idle)

    timed = overlapped_timeline(block_timeline(blocks, machine, reader), overlap_call, ReadAhead(policy, budget, byte))
    return [block._replace(resident=_resident_shares(block)) for block in timed]


def _resident_shares(block: TimedBlock) -> list[Any]:
    """Of what each call of a block reads, the share that was there; None for calls that read nothing ahead. [1]"""
    return [
        None if bytes_ahead is None else _share(call.job, bytes_ahead)
        for call, bytes_ahead in zip(block.block.calls, block.resident, strict=True)
    ]


def _share(job: CachedJob, bytes_ahead: Any) -> Any:
    """Share of a job's bytes. [1]"""
    return bytes_ahead / maximum(job.nbytes, 1.0)


def _busy(moved: Activity, bytes_ahead: Any, byte: Any, chip: Chip) -> Any:
    """Time in which nothing can be read ahead: that of main memory and, where there is no cache, of links on average. [s]"""
    memory = (moved.memory_bytes - bytes_ahead) * byte
    if chip.l2 is not None:
        return memory
    rows, cols = chip.mesh.rows, chip.mesh.cols
    links = maximum(2 * (rows * (cols - 1) + cols * (rows - 1)), 1.0)
    return memory + moved.hop_bytes / links * (chip.noc.word_cycles / (chip.noc.word_bytes * chip.clock))
