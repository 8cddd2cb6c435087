"""What a chip of tiles is asked for as a whole: products, attention, or rows from its memory, by each reader."""

from functools import cache
from typing import Any, NamedTuple

from dse.evaluators.kernels.cost import Cost
from dse.evaluators.program.activity import COUNTS, Activity
from dse.evaluators.readers.cached import Cached
from dse.evaluators.readers.in_turn import InTurn
from dse.space.elementwise import column
from dse.space.remember import remembered


class Several(NamedTuple):
    """A job for each entry of a step."""

    jobs: tuple[Any, ...]


@remembered
def price(fidelity: str, job: Any) -> Cost:
    """Time and activity of a job; columns of several."""
    if isinstance(job, Several):
        costs = [price(fidelity, one) for one in job.jobs]
        counts = (column([float(getattr(cost.activity, name)) for cost in costs]) for name in COUNTS)
        return Cost(column([float(cost.seconds) for cost in costs]), Activity(*counts))
    if isinstance(job, InTurn):
        several = [(times, price(fidelity, one)) for times, one in job.counted]
        whole = sum((of.activity * times for times, of in several), Activity())
        return Cost(sum(of.seconds * times for times, of in several), whole)
    if isinstance(job, Cached):
        of = price(fidelity, job.job)
        nbytes = of.activity.memory_bytes
        through = 0.0 if job.job.chip.l2 is None else nbytes
        return Cost(of.seconds, of.activity._replace(memory_bytes=nbytes * job.share, cache_bytes=through))
    found: Cost = _readers(fidelity)[type(job)].price(job)
    return found


@remembered
def split(fidelity: str, job: Any) -> dict[str, Any]:
    """Its time by what it goes into; columns of several. It is kept: nobody writes to it. [s]"""
    if isinstance(job, Several):
        parts = [split(fidelity, one) for one in job.jobs]
        return {name: column([float(part[name]) for part in parts]) for name in parts[0]}
    if isinstance(job, InTurn):
        each = [(times, split(fidelity, one)) for times, one in job.counted]
        names = dict.fromkeys(name for _, part in each for name in part)
        return {name: sum(times * part.get(name, 0.0) for times, part in each) for name in names}
    if isinstance(job, Cached):
        into = split(fidelity, job.job)
        return {**into, "hbm": into["hbm"] * (1 - job.cache), "l2": into["hbm"] * job.cache}
    found: dict[str, Any] = _readers(fidelity)[type(job)].split(job)
    return found


def communication(fidelity: str, job: Any, seconds: Any) -> Any:
    """Of the time of attention, what falls away where tiles exchange for nothing. [s]"""
    return _readers(fidelity)[type(job)].communication(job, seconds)


@cache
def _readers(fidelity: str) -> dict[type, Any]:
    """Who prices a kind of job, and splits its time by what it goes into; imported when first asked."""
    from dse.evaluators.readers import closed_attention as attention
    from dse.evaluators.readers import closed_streamed as streamed
    from dse.evaluators.readers import closed_summa as summa
    from dse.evaluators.readers import closed_walked as walked
    from dse.evaluators.readers import crossings

    found: dict[type, Any]
    if fidelity == "closed":
        found = {module.Job: module for module in (summa, attention, streamed, walked)}
        return found | {crossings.Job: crossings}
    from dse.evaluators.readers import events_attention, events_crossings, events_streamed, events_summa, events_walked

    modules = ((summa, events_summa), (attention, events_attention), (streamed, events_streamed), (walked, events_walked))
    played = [(closed.Job, module) for closed, module in modules]
    found = {kind: {"events": module.EVENTS, "cycles": module.CYCLES}[fidelity] for kind, module in played}
    return found | {crossings.Job: {"events": events_crossings.EVENTS, "cycles": events_crossings.CYCLES}[fidelity]}
