"""Sequence of jobs of a chip of tiles that form one operator."""

from typing import Any, NamedTuple


class JobSequence(NamedTuple):
    """Jobs in sequence; each begins when the one before has stored everything.

    Attributes:
        jobs: of one kind or several.
        times: how often each counts, where a part of it is simulated for all, or where some of many designs have it: leaves
            broadcast over designs.
    """

    jobs: tuple[Any, ...]
    times: tuple[Any, ...] = ()

    @property
    def counted_jobs(self) -> tuple[tuple[Any, Any], ...]:
        """Each job with its number of repetitions."""
        return tuple(zip(self.times or (1.0,) * len(self.jobs), self.jobs, strict=True))

    @property
    def chip(self) -> Any:
        """Chip on which all jobs run."""
        return self.jobs[0].chip
