"""What kernels of a chip of tiles from main memory have in common, which the chip is asked for as a whole."""

from typing import Any

from dse.evaluators.account.alone import Spans, Spent, in_turn, itemised, on_mesh
from dse.evaluators.account.breakdown import Row, beyond
from dse.evaluators.readers import jobs
from dse.evaluators.readers.closed_attention import Job as Attention
from dse.evaluators.readers.closed_summa import Job as Summa
from dse.space.chip import memory_channels, memory_of
from dse.space.limits import Limit

Job = Attention | Summa


def memories(job: Job, slots: list[tuple[str, Any]], stored: dict[str, Any]) -> list[Limit]:
    """Of a tile, and main memory.

    Args:
        job: what is asked.
        slots: of a tile, by what they are for. [B]
        stored: in main memory, likewise. [B]
    """
    chip, held = job.chip, itemised(slots)
    return [
        Limit("chip.tile.sram", sum(held.values()), chip.tile.sram, "B", tuple(held.items())),
        Limit("chip.hbm.capacity", sum(stored.values()), memory_of(chip), "B", tuple(stored.items())),
    ]


def taken(job: Job, fidelity: str, own: dict[str, Any]) -> Spent:
    """Time, energy and what goes between memory and tiles."""
    chip, cost = job.chip, jobs.price(fidelity, job)
    moved = cost.activity.memory_bytes
    share = moved / (cost.seconds * memory_channels(chip) * chip.hbm.channel_bandwidth)
    return on_mesh(chip, cost, own | {"hbm_bytes": moved, "hbm_utilisation": share}, job.itemsize)


def told(
    job: Job, fidelity: str, phase: str, segment: str, shape: str, useful: float, masked: float = 0.0
) -> tuple[list[Row], Spans]:
    """Where the time goes: what falls away when exchanges, memory and vectors are free, one after the other.

    Args:
        job, fidelity: what is asked, of numbers, and who answers.
        phase, segment, shape: of rows.
        useful: operations. [op]
        masked: share of what is executed beyond them that a mask hides; the rest is padding.
    """
    parts = {name: float(value) for name, value in reversed(jobs.split(fidelity, job).items())}
    activity = jobs.price(fidelity, job).activity
    executed = 2.0 * float(activity.macs)
    work = {"matrix": (useful, 0.0), "hbm": (0.0, float(activity.memory_bytes))}
    excess = {"matrix": beyond(executed, useful, masked=(executed - useful) * masked)}
    rows = [
        Row(
            phase, segment, name, shape, *work.get(name, (0.0, 0.0)), 0.0, name, seconds, {name: seconds},
            excess=excess.get(name, {}),
        )
        for name, seconds in parts.items()
        if seconds
    ]  # fmt: skip
    return rows, in_turn(rows, [row.operator for row in rows])
