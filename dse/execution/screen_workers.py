"""Workers of a screen: this process, and others from the time when they repay their start.

These stay until the screen ends, and get the kinds of chips that they know.
"""

import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from importlib import import_module
from types import TracebackType
from typing import Self, TypeVar

from dse.execution.pool.choice import make_worker_kind
from dse.execution.pool.dispatch import Pool, WorkerInterval, repays_start
from dse.execution.pool.worker_calls import OneByOne
from dse.execution.pool.worker_kind import PoolNotStartedError, go_on_alone
from dse.execution.pool.worker_settings import WorkerSettings
from dse.execution.work_pieces import cut_pieces, relative_cost
from dse.space.array_math import Array
from dse.space.column_parts import split_columns
from dse.space.knobs import Columns
from dse.space.multi_chip_space import CHIP_KNOB
from dse.terminal.progress import say

R = TypeVar("R")


class ScreenWorkers:
    """Workers of a screen: this process, and a pool once it repays its start.

    Args:
        settings: which workers are wanted.
        imports: module that a new worker imports before it counts as ready.
        at_once: whether they are started for any part, where `settings` name their kind.

    Attributes:
        turns: what workers took, in the order of their answers.
    """

    def __init__(self, settings: WorkerSettings, imports: str, *, at_once: bool) -> None:
        self._settings, self._at_once, self._warm = settings, at_once and settings.kind not in ("auto", "serial"), False
        self._imports = imports
        self._pool: Pool | None = None
        self._pace = defaultdict[str, dict[int, float]](dict)  # by what is done and kind of chip, seconds for each of `shares`
        self.turns = list[WorkerInterval]()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None) -> None:
        self.close()

    @property
    def has_workers(self) -> bool:
        """Whether there are other processes."""
        return self._pool is not None

    def hire(self) -> None:
        """Start other processes, which run when this returns."""
        self._start_pool().wait()

    def close(self) -> None:
        """End the other processes of the screen."""
        if self._pool is not None:
            self._pool.close()
        self._pool = None

    def map_rows(
        self,
        work: Callable[[Columns], R],
        columns: Columns,
        parts: Sequence[Array],
        what: str = "parts",
        *,
        known: bool = False,
    ) -> Iterator[tuple[Array, R]]:
        """Map a function over rows of columns, here or on others; yields (rows, result).

        Args:
            work: may be pickled, changes nothing, and says of a row the same whatever rows it comes with.
            columns: knobs of designs.
            parts: rows that belong together; workers may get a part in pieces.
            what: they are, for people.
            known: whether a worker that had other rows of a kind has computed most of it.

        Raises:
            DesignError: as of `Pool.map`, or what `work` raises.
        """
        spent, timed = 0.0, 0
        for place, (rows, item) in enumerate(zip(parts, split_columns(columns, parts), strict=True)):
            # the first of all pays for imports and compilation, and tells nothing of those to come
            left = spent / timed * (len(parts) - place) if timed else 0.0
            repays = repays_start(left, self._settings.expected_count, self._settings.start_time)
            if self._pool or self._at_once or repays:
                shared = self._map_shared(work, columns, parts[place:], what, known=known)
                try:
                    yield next(shared)
                except PoolNotStartedError as error:
                    self._go_on_alone(error)
                else:
                    yield from shared
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
        count = self._settings.expected_count
        if self._pool is None:
            say(f"  workers: {self._settings.parallel_kind}, {count} for {len(parts):,} {what} of the screen")
        pool, pace = self._start_pool(), self._pace[what]
        kinds = [int(columns[CHIP_KNOB][rows[0]]) if CHIP_KNOB in columns else 0 for rows in parts]
        pieces = cut_pieces(parts, kinds, pace, count)
        items = split_columns(columns, [piece.rows for piece in pieces])
        takes, kinds = [piece.takes for piece in pieces], [piece.kind for piece in pieces]
        for place, outcomes, _, turn in pool.map(work, items, kinds, takes, apart=known):
            self.turns.append(turn)
            pace[kinds[place]] = turn.cpu / relative_cost(len(pieces[place].rows))
            yield pieces[place].rows, outcomes

    def _go_on_alone(self, error: PoolNotStartedError) -> None:
        """Work here where others that nobody asked for do not start."""
        go_on_alone(self._settings.kind, error, lambda text: say(f"  {text}"))
        self.close()
        self._settings = replace(self._settings, kind="serial")

    def _start_pool(self) -> Pool:
        if self._pool is None:
            self._pool = Pool(make_worker_kind(self._settings), example=(OneByOne(import_module), [self._imports]))
        return self._pool
