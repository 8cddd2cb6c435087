"""What dies exchange, played by `events_dies` or `cycles_dies`: time is theirs, bytes and ways are as of the closed form."""

from functools import lru_cache
from typing import Any

from dse.evaluators.kernels.cost import Cost
from dse.evaluators.readers import crossings, cycles_dies, events_dies
from dse.evaluators.readers.crossings import PARTS, Job
from dse.evaluators.readers.events_dies import CHUNK

MESSAGE = 32
"""Chunks that a message is cut into at most: those of long ones are longer."""


class Events:
    """Prices exchanges by playing their messages, one design at a time.

    Attributes:
        play: who plays them.
    """

    def __init__(self, play: events_dies.Player) -> None:
        self.play = play

    def price(self, job: Job) -> Cost:
        """Time, and bytes times the links that they cross, of each die that works."""
        return Cost(_seconds(job, self.play), crossings.price(job).activity)

    def split(self, job: Job) -> dict[str, Any]:
        """Its time by what it goes into: what is neither the longest way nor the barrier is links and ports."""
        known, seconds = crossings.closed(job), _seconds(job, self.play)
        barrier = min(float(known.barrier), seconds)
        way = min(float(known.latency), seconds - barrier)
        return dict(zip(PARTS, (seconds - way - barrier, way, barrier), strict=True))


EVENTS, CYCLES = Events(events_dies.messages), Events(cycles_dies.messages)


def _seconds(job: Job, play: events_dies.Player) -> float:
    to, shares = (None if value is None else (value.shape, value.tobytes()) for value in (job.to, job.shares))
    said = (
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
    return _played(_Key(job, said), play)


class _Key:
    """A job that is equal to others by what it says."""

    def __init__(self, job: Job, said: tuple[Any, ...]) -> None:
        self.job, self.said = job, said

    def __hash__(self) -> int:
        return hash(self.said)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Key) and self.said == other.said


@lru_cache(maxsize=256)
def _played(key: _Key, play: events_dies.Player) -> float:
    job = key.job
    chunk = max(CHUNK, float(job.nbytes) / job.at.shape[-1] / MESSAGE)
    if job.pattern == "hand_over":
        return events_dies.hand_over(job.on, job.at, job.to, float(job.nbytes), chunk=chunk, play=play).seconds
    how: dict[str, Any] = {"chunk": chunk, "play": play}
    on, ended = (job.on, 0.0) if job.ended is None else (job.on._replace(barrier=0.0), float(job.ended))
    if job.boxed is not None:
        size, copies = job.boxed
        some = (on, job.at, float(job.nbytes), size, copies, 1.0, job.shares)
        return events_dies.by_node(*some, back=job.back, **how).seconds + ended
    if job.pattern == "all_to_all":
        return events_dies.all_to_all(on, job.at, float(job.nbytes), job.shares, **how).seconds + ended
    return events_dies.collective(job.pattern, job.on, job.at, float(job.nbytes), job.sums, chunk=chunk, play=play).seconds
