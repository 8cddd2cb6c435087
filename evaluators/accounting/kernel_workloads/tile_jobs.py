"""Results that kernels from main memory on a chip of tiles have in common."""

from typing import Any

from dse.evaluators.accounting import memory_contents as contents
from dse.evaluators.accounting.breakdown import BreakdownRow, excess_by_cause
from dse.evaluators.accounting.kernel_workloads import KernelOutcome, TimelineSpans, merge_items, mesh_outcome, sequential_bars
from dse.evaluators.accounting.memory_contents import core_memory_contents, main_memory_contents
from dse.evaluators.cost_models import jobs
from dse.evaluators.cost_models.analytical_attention import AttentionJob as Attention
from dse.evaluators.cost_models.analytical_summa import SummaJob as Summa
from dse.space.limits import Limit
from dse.space.main_memory import main_memory

TileJob = Attention | Summa


def memory_limits(job: TileJob, slots: list[tuple[str, Any]], stored: dict[str, Any]) -> list[Limit]:
    """Limits of a tile's local memory and of main memory.

    Args:
        job: the job.
        slots: of a tile, by what they are for. [B]
        stored: in main memory, likewise. [B]
    """
    local = core_memory_contents(job.chip, tuple(merge_items(slots).items()))
    return contents.memory_limits([local, main_memory_contents(job.chip, tuple(stored.items()))])


def job_outcome(job: TileJob, fidelity: str, own: dict[str, Any]) -> KernelOutcome:
    """Time and energy of a job, and its main-memory traffic. [s], [J], [B]"""
    chip, cost = job.chip, jobs.job_cost(fidelity, job)
    moved = cost.activity.memory_bytes
    share = moved / (cost.seconds * main_memory(chip).bandwidth)
    return mesh_outcome(chip, cost, own | {"hbm_bytes": moved, "hbm_utilisation": share}, job.itemsize)


def job_breakdown(
    job: TileJob, fidelity: str, phase: str, segment: str, shape: str, useful: float, masked: float = 0.0
) -> tuple[list[BreakdownRow], TimelineSpans]:
    """Breakdown rows of a job: time saved by free exchanges, memory and vector work, in that order.

    Args:
        job, fidelity: job of a scalar design, and the fidelity.
        phase, segment, shape: of rows.
        useful: operations. [op]
        masked: share of what is executed beyond them that a mask hides; the rest is padding.
    """
    parts = {name: float(value) for name, value in reversed(jobs.time_by_resource(fidelity, job).items())}
    activity = jobs.job_cost(fidelity, job).activity
    executed = 2.0 * float(activity.macs)
    work = {"matrix": (useful, 0.0), "hbm": (0.0, float(activity.memory_bytes))}
    excess = {"matrix": excess_by_cause(executed, useful, masked=(executed - useful) * masked)}
    rows = [
        BreakdownRow(
            phase, segment, name, shape, *work.get(name, (0.0, 0.0)), 0.0, name, seconds, {name: seconds},
            excess=excess.get(name, {}),
        )
        for name, seconds in parts.items()
        if seconds
    ]  # fmt: skip
    return rows, sequential_bars(rows, [row.operator for row in rows])
