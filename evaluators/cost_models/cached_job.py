"""What a chip of tiles is asked for as a whole, a part of whose bytes is in a cache in front of main memory."""

from typing import Any, NamedTuple

THROUGH = ("hbm.channel_bandwidth", "hbm.contended_efficiency")
"""Leaves of a chip that say how blocks reach its memory through a cache."""


class CachedJob(NamedTuple):
    """A job, and where its bytes are; leaves broadcast over designs.

    Attributes:
        job: on the chip as blocks reach its memory.
        share: of the bytes between memory and tiles that main memory moves; all of them go through the cache.
        cache: whether the cache is what takes the time of blocks.
        there: the job with all that can be read ahead there when it starts.
        nbytes: that can be read ahead: weights, and keys and values of earlier steps, which main memory moves. [B]
    """

    job: Any
    share: Any
    cache: Any
    there: Any
    nbytes: Any


def uncached_job(job: Any) -> Any:
    """The job itself, wherever its bytes are."""
    return job.job if isinstance(job, CachedJob) else job
