"""Who works on the parts of a screen: this process, and workers once they repay their start, who then stay until it ends."""

import time
from collections.abc import Callable, Iterator, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, TypeVar

from dse.running.workers import Crew, cpus
from dse.terminal.progress import say

if TYPE_CHECKING:
    from dse.running.cluster import Cluster

T = TypeVar("T")
R = TypeVar("R")


class Hands:
    """Whoever works: the process itself, and what a crew has.

    Args:
        crew: which workers are wanted.
        at_once: whether they are hired for any part, where the crew is of Ray's.
    """

    def __init__(self, crew: Crew, *, at_once: bool) -> None:
        self._crew, self._at_once, self._warm = crew, at_once and crew.kind == "ray", False
        self._cluster: Cluster | None = None

    def __enter__(self) -> "Hands":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None) -> None:
        if self._cluster is not None:
            self._cluster.close()
            self._cluster = None

    def mapped(self, work: Callable[[T], R], items: Sequence[T], what: str = "parts") -> Iterator[tuple[int, R]]:
        """What a function makes of each of many things, here or on workers: (which, what), as they are done.

        Args:
            work: may be pickled, and changes nothing.
            items: likewise.
            what: they are, for people.

        Raises:
            DesignError: as of `Cluster`, or what `work` raises.
        """
        spent, timed, count = 0.0, 0, self._crew.count or cpus()
        for place, item in enumerate(items):
            # the first of all pays for imports and compilation, and tells nothing of those to come
            saves = spent / timed * (len(items) - place) * (1 - 1 / count) if timed else 0.0
            if self._cluster or self._at_once or (self._crew.kind != "serial" and saves > self._crew.start):
                yield from ((place + more, found) for more, found in self._hired(work, items[place:], what))
                return
            start = time.monotonic()
            found = work(item)
            if self._warm:
                spent, timed = spent + time.monotonic() - start, timed + 1
            self._warm = True
            yield place, found

    def _hired(self, work: Callable[[T], R], items: Sequence[T], what: str) -> Iterator[tuple[int, R]]:
        if self._cluster is None:
            from dse.running.cluster import Cluster

            say(f"  workers: ray, {self._crew.count or cpus()} for {len(items):,} {what} of the screen")
            self._cluster = Cluster(self._crew)
        return self._cluster.mapped(work, items, self._crew.count)
