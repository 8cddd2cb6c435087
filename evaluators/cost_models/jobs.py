"""Cost of jobs of a chip of tiles (products, attention, rows) at each fidelity."""

from functools import cache
from typing import Any, NamedTuple

from dse.evaluators.cost_models.cached_job import CachedJob
from dse.evaluators.cost_models.job_sequence import JobSequence
from dse.evaluators.kernels.kernel_cost import KernelCost
from dse.evaluators.program.activity import COUNTS, Activity
from dse.space.array_math import as_column
from dse.space.memoize import memoize


class JobColumns(NamedTuple):
    """Jobs of a step, one for each entry."""

    jobs: tuple[Any, ...]


@memoize
def job_cost(fidelity: str, job: Any) -> KernelCost:
    """Time [s] and activity of a job; columns for several."""
    if isinstance(job, JobColumns):
        costs = [job_cost(fidelity, job) for job in job.jobs]
        counts = (as_column([float(getattr(cost.activity, name)) for cost in costs]) for name in COUNTS)
        return KernelCost(as_column([float(cost.seconds) for cost in costs]), Activity(*counts))
    if isinstance(job, JobSequence):
        several = [(times, job_cost(fidelity, index)) for times, index in job.counted_jobs]
        whole = sum((cost.activity * times for times, cost in several), Activity())
        return KernelCost(sum(cost.seconds * times for times, cost in several), whole)
    if isinstance(job, CachedJob):
        cost = job_cost(fidelity, job.job)
        nbytes = cost.activity.memory_bytes
        through = 0.0 if job.job.chip.l2 is None else nbytes
        return KernelCost(cost.seconds, cost.activity._replace(memory_bytes=nbytes * job.share, cache_bytes=through))
    found_cost: KernelCost = _readers(fidelity)[type(job)].job_cost(job)
    return found_cost


@memoize
def time_by_resource(fidelity: str, job: Any) -> dict[str, Any]:
    """Time of a job by resource; columns for several. The result is cached: do not change it. [s]"""
    if isinstance(job, JobColumns):
        parts = [time_by_resource(fidelity, job) for job in job.jobs]
        return {name: as_column([float(part[name]) for part in parts]) for name in parts[0]}
    if isinstance(job, JobSequence):
        each = [(times, time_by_resource(fidelity, job)) for times, job in job.counted_jobs]
        names = dict.fromkeys(name for _, part in each for name in part)
        return {name: sum(times * part.get(name, 0.0) for times, part in each) for name in names}
    if isinstance(job, CachedJob):
        into = time_by_resource(fidelity, job.job)
        return {**into, "hbm": into["hbm"] * (1 - job.cache), "l2": into["hbm"] * job.cache}
    seconds: dict[str, Any] = _readers(fidelity)[type(job)].time_by_resource(job)
    return seconds


def communication_seconds(fidelity: str, job: Any, seconds: Any) -> Any:
    """Time of attention saved if tiles exchanged data in no time. [s]"""
    return _readers(fidelity)[type(job)].communication_seconds(job, seconds)


def find_job_simulator(fidelity: str, job: Any) -> Any:
    """Simulator of a job at a fidelity, a `simulated_job.JobSimulator`, or its analytical model."""
    return _readers(fidelity)[type(job)]


@cache
def _readers(fidelity: str) -> dict[type, Any]:
    """Cost models of a kind of job by fidelity, imported on first use."""
    from dse.evaluators.cost_models import analytical_attention as attention
    from dse.evaluators.cost_models import analytical_block_loop as walked
    from dse.evaluators.cost_models import analytical_rows as streamed
    from dse.evaluators.cost_models import analytical_summa as summa
    from dse.evaluators.cost_models import die_exchange_jobs as crossings

    if fidelity == "analytical":
        return {
            summa.SummaJob: summa,
            attention.AttentionJob: attention,
            streamed.RowJob: streamed,
            walked.BlockLoopJob: walked,
            crossings.DieExchangeJob: crossings,
        }
    from dse.evaluators.cost_models import simulated_attention as events_attention
    from dse.evaluators.cost_models import simulated_block_loop as events_walked
    from dse.evaluators.cost_models import simulated_die_exchange as events_crossings
    from dse.evaluators.cost_models import simulated_rows as events_streamed
    from dse.evaluators.cost_models import simulated_summa as events_summa

    modules: dict[type, Any] = {
        summa.SummaJob: events_summa,
        attention.AttentionJob: events_attention,
        streamed.RowJob: events_streamed,
        walked.BlockLoopJob: events_walked,
        crossings.DieExchangeJob: events_crossings,
    }
    return {kind: {"events": module.EVENTS, "cycles": module.CYCLES}[fidelity] for kind, module in modules.items()}
