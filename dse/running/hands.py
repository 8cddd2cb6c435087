"""Who works on the parts of a screen: this process, and workers once they repay their start, who then stay until it ends."""

import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, TypeVar

from dse.running.pieces import cut, shares
from dse.running.workers import Crew, cpus
from dse.space.chips import CHIP
from dse.space.elementwise import Array
from dse.space.in_parts import in_parts
from dse.space.knobs import Columns
from dse.terminal.progress import say

if TYPE_CHECKING:
    from dse.running.bench import Bench, Turn
    from dse.running.cluster import Cluster

R = TypeVar("R")


class Hands:
    """Whoever works: the process itself, and what a crew has.

    Args:
        crew: which workers are wanted.
        at_once: whether they are hired for any part, where the crew is of Ray's.

    Attributes:
        turns: what workers took, in the order of their answers.
    """

    def __init__(self, crew: Crew, *, at_once: bool) -> None:
        self._crew, self._at_once, self._warm = crew, at_once and crew.kind == "ray", False
        self._cluster: Cluster | None = None
        self._bench: Bench | None = None
        self._pace = defaultdict[str, dict[int, float]](dict)  # by what is done and kind of chip, seconds for each of `shares`
        self.turns = list["Turn"]()

    def __enter__(self) -> "Hands":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None) -> None:
        self.close()

    @property
    def hired(self) -> bool:
        """Whether there are workers."""
        return self._bench is not None

    def hire(self) -> None:
        """Has workers, who run when this returns."""
        self._hired().wait()

    def close(self) -> None:
        """Lets go of workers."""
        if self._bench is not None:
            self._bench.close()
        if self._cluster is not None:
            self._cluster.close()
        self._cluster = self._bench = None

    def mapped(
        self,
        work: Callable[[Columns], R],
        columns: Columns,
        parts: Sequence[Array],
        what: str = "parts",
        *,
        known: bool = False,
    ) -> Iterator[tuple[Array, R]]:
        """What a function makes of some rows of columns, here or on workers: (rows, what), as they are done.

        Args:
            work: may be pickled, changes nothing, and says of a row the same whatever rows it comes with.
            columns: knobs of designs.
            parts: rows that belong together; workers may get a part in pieces.
            what: they are, for people.
            known: whether whoever had other rows of a kind has worked out most of it.

        Raises:
            DesignError: as of `Bench`, or what `work` raises.
        """
        spent, timed, count = 0.0, 0, self._crew.count or cpus()
        for place, (rows, item) in enumerate(zip(parts, in_parts(columns, parts), strict=True)):
            # the first of all pays for imports and compilation, and tells nothing of those to come
            saves = spent / timed * (len(parts) - place) * (1 - 1 / count) if timed else 0.0
            if self._bench or self._at_once or (self._crew.kind != "serial" and saves > self._crew.start):
                yield from self._shared(work, columns, parts[place:], what, known=known)
                return
            start = time.monotonic()
            found = work(item)
            if self._warm:
                spent, timed = spent + time.monotonic() - start, timed + 1
            self._warm = True
            yield rows, found

    def _shared(
        self, work: Callable[[Columns], R], columns: Columns, parts: Sequence[Array], what: str, *, known: bool
    ) -> Iterator[tuple[Array, R]]:
        """By workers."""
        if self._bench is None:
            say(f"  workers: ray, {self._crew.count or cpus()} for {len(parts):,} {what} of the screen")
        bench, pace = self._hired(), self._pace[what]
        kinds = [int(columns[CHIP][rows[0]]) if CHIP in columns else 0 for rows in parts]
        pieces = cut(parts, kinds, pace, self._crew.count or cpus())
        items = in_parts(columns, [piece.rows for piece in pieces])
        takes, kinds = [of.takes for of in pieces], [of.kind for of in pieces]
        for place, found, turn in bench.mapped(work, items, kinds, takes, apart=known):
            self.turns.append(turn)
            pace[kinds[place]] = turn.cpu / shares(len(pieces[place].rows))
            yield pieces[place].rows, found

    def _hired(self) -> "Bench":
        if self._bench is None:
            from dse.running.bench import Bench
            from dse.running.cluster import Cluster

            self._cluster = Cluster(self._crew)
            self._bench = Bench(self._cluster, self._crew.count)
        return self._bench
