"""Jobs of a chip of tiles that an operator is made of, one after the other."""

from typing import Any, NamedTuple


class JobSequence(NamedTuple):
    """Jobs, the next of which begins when the one before has stored all.

    Attributes:
        jobs: of one kind or several.
        times: how often each counts, where a part of it is played for all, or where some of many designs have it: leaves
            broadcast over designs.
    """

    jobs: tuple[Any, ...]
    times: tuple[Any, ...] = ()

    @property
    def counted(self) -> tuple[tuple[Any, Any], ...]:
        """How often, and what."""
        return tuple(zip(self.times or (1.0,) * len(self.jobs), self.jobs, strict=True))

    @property
    def chip(self) -> Any:
        """Where all of them are."""
        return self.jobs[0].chip
