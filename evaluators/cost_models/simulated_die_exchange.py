"""Simulated cost of exchanges between dies, by events or cycles.

Bytes and routes are those of the analytical model.
"""

from functools import lru_cache
from typing import Any

from dse.evaluators.cost_models import cycle_die_network as cycles_dies
from dse.evaluators.cost_models import die_exchange_jobs as crossings
from dse.evaluators.cost_models import event_die_network as events_dies
from dse.evaluators.cost_models.die_exchange_jobs import TIME_PARTS, DieExchangeJob
from dse.evaluators.cost_models.event_die_network import CHUNK_BYTES
from dse.evaluators.kernels.kernel_cost import KernelCost

MAX_MESSAGES = 32
"""Chunks that a message is cut into at most: those of long ones are longer."""


class ExchangeSimulator:
    """Simulator of exchanges between dies at one fidelity, one design at a time.

    Attributes:
        play: simulator of their messages.
    """

    def __init__(self, play: events_dies.MessageSimulator) -> None:
        self.play = play

    def job_cost(self, job: DieExchangeJob) -> KernelCost:
        """Time [s] of an exchange, and bytes times links crossed per working die."""
        return KernelCost(_seconds(job, self.play), crossings.job_cost(job).activity)

    def time_by_resource(self, job: DieExchangeJob) -> dict[str, Any]:
        """Time of an exchange by resource: route latency, barrier, and the rest as links and ports. [s]"""
        known, seconds = crossings.analytical_exchange(job), _seconds(job, self.play)
        barrier = min(float(known.barrier), seconds)
        way = min(float(known.latency), seconds - barrier)
        return dict(zip(TIME_PARTS, (seconds - way - barrier, way, barrier), strict=True))


EVENTS, CYCLES = ExchangeSimulator(events_dies.simulate_messages), ExchangeSimulator(cycles_dies.simulate_messages)


def _seconds(job: DieExchangeJob, play: events_dies.MessageSimulator) -> float:
    if job.half is not None and job.leaves_nodes:
        return _seconds(job._replace(half=None), play) + float(crossings.ramp_seconds(job))
    job = job.full_rate_job
    to, shares = (None if value is None else (value.shape, value.tobytes()) for value in (job.to, job.shares))
    key_values = (
        job.pattern,
        job.on,
        job.at.shape,
        job.at.tobytes(),
        to,
        float(job.nbytes),
        shares,
        job.boxed,
        job.back,
        job.ended,
        job.sums,
    )
    return _played(_Key(job, key_values), play)


class _Key:
    """Exchange job as a dictionary key, equal for jobs with equal content."""

    def __init__(self, job: DieExchangeJob, settings: tuple[Any, ...]) -> None:
        self.job, self.said = job, settings

    def __hash__(self) -> int:
        return hash(self.said)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Key) and self.said == other.said


@lru_cache(maxsize=256)
def _played(key: _Key, play: events_dies.MessageSimulator) -> float:
    job = key.job
    chunk = max(CHUNK_BYTES, float(job.nbytes) / job.at.shape[-1] / MAX_MESSAGES)
    if job.pattern == "hand_over":
        return events_dies.simulate_stage_transfer(job.on, job.at, job.to, float(job.nbytes), chunk=chunk, play=play).seconds
    how: dict[str, Any] = {"chunk": chunk, "play": play}
    level, ended = (job.on, 0.0) if job.ended is None else (job.on._replace(barrier=0.0), float(job.ended))
    if job.boxed is not None:
        size, copies = job.boxed
        arguments = (level, job.at, float(job.nbytes), size, copies, 1.0, job.shares)
        return events_dies.simulate_hierarchical(*arguments, back=job.back, **how).seconds + ended
    if job.pattern == "all_to_all":
        return events_dies.simulate_all_to_all(level, job.at, float(job.nbytes), job.shares, **how).seconds + ended
    return events_dies.simulate_reduction(
        job.pattern, job.on, job.at, float(job.nbytes), job.sums, chunk=chunk, play=play
    ).seconds
