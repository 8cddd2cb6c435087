"""Job of a chip of tiles some of whose bytes are in a memory-side cache."""

from typing import Any, NamedTuple

THROUGH = ("channel_bandwidth", "contended_efficiency")
"""Leaves of main memory with its bandwidth through a cache."""


class CachedJob(NamedTuple):
    """A job, and the shares of its bytes in cache and main memory; leaves broadcast over designs.

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
    """Return the job itself, without the cached shares of its bytes."""
    return job.job if isinstance(job, CachedJob) else job
