"""Workers of a screen: this process, and helpers from the time when they repay their start.

Helpers stay until the screen ends.
"""

import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, TypeVar

from dse.execution.work_pieces import cut_pieces, relative_cost
from dse.execution.workers import WorkerSettings, cpu_count
from dse.space.array_math import Array
from dse.space.column_parts import split_columns
from dse.space.knobs import Columns
from dse.space.multi_chip_space import CHIP_KNOB
from dse.terminal.progress import say

if TYPE_CHECKING:
    from dse.execution.affinity_pool import AffinityPool, WorkerInterval
    from dse.execution.ray_cluster import RayCluster

R = TypeVar("R")


class ScreenWorkers:
    """Workers of a screen: this process, and helper processes once they repay their start.

    Args:
        crew: which workers are wanted.
        at_once: whether they are hired for any part, where the crew is of Ray's.

    Attributes:
        turns: what workers took, in the order of their answers.
    """

    def __init__(self, crew: WorkerSettings, *, at_once: bool) -> None:
        self._crew, self._at_once, self._warm = crew, at_once and crew.kind == "ray", False
        self._cluster: RayCluster | None = None
        self._bench: AffinityPool | None = None
        self._pace = defaultdict[str, dict[int, float]](dict)  # by what is done and kind of chip, seconds for each of `shares`
        self.turns = list["WorkerInterval"]()

    def __enter__(self) -> "ScreenWorkers":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None) -> None:
        self.close()

    @property
    def has_workers(self) -> bool:
        """Whether there are helper processes."""
        return self._bench is not None

    def hire(self) -> None:
        """Start helper processes, which run when this returns."""
        self._hire_bench().wait()

    def close(self) -> None:
        """End the helper processes and leave the cluster."""
        if self._bench is not None:
            self._bench.close()
        if self._cluster is not None:
            self._cluster.close()
        self._cluster = self._bench = None

    def map_rows(
        self,
        work: Callable[[Columns], R],
        columns: Columns,
        parts: Sequence[Array],
        what: str = "parts",
        *,
        known: bool = False,
    ) -> Iterator[tuple[Array, R]]:
        """Map a function over rows of columns, here or on helpers; yields (rows, result).

        Args:
            work: may be pickled, changes nothing, and says of a row the same whatever rows it comes with.
            columns: knobs of designs.
            parts: rows that belong together; workers may get a part in pieces.
            what: they are, for people.
            known: whether a worker that had other rows of a kind has computed most of it.

        Raises:
            DesignError: as of `Bench`, or what `work` raises.
        """
        spent, timed, count = 0.0, 0, self._crew.count or cpu_count()
        for place, (rows, item) in enumerate(zip(parts, split_columns(columns, parts), strict=True)):
            # the first of all pays for imports and compilation, and tells nothing of those to come
            saves = spent / timed * (len(parts) - place) * (1 - 1 / count) if timed else 0.0
            if self._bench or self._at_once or (self._crew.kind != "serial" and saves > self._crew.start_time):
                yield from self._map_shared(work, columns, parts[place:], what, known=known)
                return
            start = time.monotonic()
            found_work = work(item)
            if self._warm:
                spent, timed = spent + time.monotonic() - start, timed + 1
            self._warm = True
            yield rows, found_work

    def _map_shared(
        self, work: Callable[[Columns], R], columns: Columns, parts: Sequence[Array], what: str, *, known: bool
    ) -> Iterator[tuple[Array, R]]:
        """By workers."""
        if self._bench is None:
            say(f"  workers: ray, {self._crew.count or cpu_count()} for {len(parts):,} {what} of the screen")
        bench, pace = self._hire_bench(), self._pace[what]
        kinds = [int(columns[CHIP_KNOB][rows[0]]) if CHIP_KNOB in columns else 0 for rows in parts]
        pieces = cut_pieces(parts, kinds, pace, self._crew.count or cpu_count())
        items = split_columns(columns, [piece.rows for piece in pieces])
        takes, kinds = [piece.takes for piece in pieces], [piece.kind for piece in pieces]
        for place, outcomes, turn in bench.map_items(work, items, kinds, takes, apart=known):
            self.turns.append(turn)
            pace[kinds[place]] = turn.cpu / relative_cost(len(pieces[place].rows))
            yield pieces[place].rows, outcomes

    def _hire_bench(self) -> "AffinityPool":
        if self._bench is None:
            from dse.execution.affinity_pool import AffinityPool
            from dse.execution.ray_cluster import RayCluster

            self._cluster = RayCluster(self._crew)
            self._bench = AffinityPool(self._cluster, self._crew.count)
        return self._bench
