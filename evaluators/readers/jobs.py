"""What a chip of tiles is asked for as a whole: products, attention, or rows from its memory, by each reader."""

from functools import cache
from typing import Any

from dse.evaluators.kernels.cost import Cost


def price(fidelity: str, job: Any) -> Cost:
    """Time and activity of a job."""
    found: Cost = _readers(fidelity)[type(job)].price(job)
    return found


def split(fidelity: str, job: Any) -> dict[str, Any]:
    """Its time by what it goes into. [s]"""
    found: dict[str, Any] = _readers(fidelity)[type(job)].split(job)
    return found


@cache
def _readers(fidelity: str) -> dict[type, Any]:
    """Who prices a kind of job, and splits its time by what it goes into; imported when first asked."""
    from dse.evaluators.readers import closed_attention as attention
    from dse.evaluators.readers import closed_streamed as streamed
    from dse.evaluators.readers import closed_summa as summa

    if fidelity == "closed":
        return {summa.Job: summa, attention.Job: attention, streamed.Job: streamed}
    from dse.evaluators.readers import events_attention, events_streamed, events_summa

    played = ((summa.Job, events_summa), (attention.Job, events_attention), (streamed.Job, events_streamed))
    return {kind: {"events": module.EVENTS, "cycles": module.CYCLES}[fidelity] for kind, module in played}
