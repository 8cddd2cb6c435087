"""The closed form over a whole grid, or over a quasi-random sample of a larger space; blocks to Parquet, front kept.

No sampler and no store: the same grid gives the same rows, so what is on disk is not evaluated again: whole blocks, and of one
that was not finished the pieces that are stored every few seconds. For a grid that fits, the front is exact.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from dse.config.build import Question
from dse.config.expressions import evaluate
from dse.evaluators import PHYSICS
from dse.evaluators.account.metrics import LIMITS, METRICS, Outcomes
from dse.running.study import Study, stored_at
from dse.running.workers import cpus
from dse.search.pareto import front
from dse.search.samplers import sobol
from dse.space.chips import CHIP, Chips
from dse.space.design import digest
from dse.space.elementwise import Array
from dse.space.errors import DesignError
from dse.space.knobs import Choice, Columns, Space
from dse.space.workload import Load
from dse.store import block_files
from dse.store.database import same
from dse.terminal.progress import say

BLOCK = 131_072
"""Rows of one Parquet file."""

KEPT_EVERY = 5.0
"""Seconds of work after which what is done of a block is stored: what a screen that is killed loses, and one part. [s]"""

LEFT = b"left"
"""In what a Parquet file says of itself, metrics that there would be, and that nobody asked for."""

FEW = 16
"""Designs that serve requests evaluated at once: each takes a fraction of a second."""

TOGETHER = 4_096
"""Designs that serve requests evaluated at once in the steady state, where those of one structure are priced together."""

CACHE_ROWS = 8_192
"""Rows evaluated at once, over the steps of the largest case list: arrays of this size stay in a core's cache."""


@dataclass(frozen=True)
class Screened:
    """What a screen found.

    Attributes:
        rows, feasible: designs, and those of them that keep every limit and constraint.
        exact: whether every design of the space was looked at.
        front: the designs that no other beats: knobs, metrics and limits in columns.
        blocks: the Parquet files.
        evaluated: rows that were not on disk before.
        left: whether the files are without metrics that nobody asked for.
    """

    rows: int
    feasible: int
    exact: bool
    front: pd.DataFrame
    blocks: tuple[Path, ...]
    evaluated: int
    left: bool = False


def screen(study: Study, progress: Callable[[int, int, int], None]) -> Screened:
    """Screens a study's space.

    Args:
        study: whose space, workload, objectives and constraints count.
        progress: called with (rows done, rows in all, front size).
    """
    found = _screened(study, progress, evaluating=True)
    assert found is not None
    return found


def stored(study: Study) -> Screened | None:
    """The blocks of a screen that are on disk, perhaps not yet all; None where there are none.

    They belong to the results of the same run folder, and are none of those of another store.
    """
    return _screened(study, lambda done, total, size: None, evaluating=False) if _belongs(study) else None


def blocks(study: Study) -> list[Path]:
    """The files of a screen that are on disk, of whole blocks and of pieces."""
    return sorted(_plan(study)[2].glob("*.parquet")) if _belongs(study) else []


def _belongs(study: Study) -> bool:
    """Whether the run folder of a study is that of its store."""
    return same(study.store, stored_at(study.run_dir) or str(study.run_dir / "results.sqlite"))


def _plan(study: Study) -> tuple[int, bool, Path]:
    """How many rows a screen has, whether they are the whole space, and where their blocks are."""
    space = study.question.space
    grid = space.combinations
    exact = grid is not None and grid <= study.screen["limit"]
    total = grid if grid is not None and exact else _sample_size(study)
    content = [("key", space.key), ("workload", study.context.workload), ("physics", PHYSICS), ("rows", total)]
    content.append(("metrics", ", ".join(asked(study))))
    content += [(name, of.text) for name, of in study.question.defined.items() if name in asked(study)]
    content += [("fidelity", study.screening)] if study.screening != "closed" else []
    return total, exact, study.run_dir / "screen" / digest([*content, ("seed", "" if exact else study.seed)])


def _screened(study: Study, progress: Callable[[int, int, int], None], *, evaluating: bool) -> Screened | None:
    space = study.question.space
    total, exact, folder = _plan(study)
    if evaluating:
        folder.mkdir(parents=True, exist_ok=True)
    best: pd.DataFrame | None = None
    rows = feasible = evaluated = 0
    paths, left, whole = list[Path](), False, True
    for number, start in enumerate(range(0, total, BLOCK)):
        stop = min(start + BLOCK, total)
        block = block_files.read(folder, number)
        whole &= block is not None or evaluating
        some = [block] if block is not None else []
        if block is None and evaluating:
            columns = space.grid(start, stop) if exact else space.sample(sobol(len(space.knobs), start, stop, study.seed))
            size = len(best) if best is not None else 0
            of = _Block(study, columns, folder, number)
            evaluated += of.left
            of.evaluate(lambda done, start=start, size=size: progress(start + done, total, size))  # type: ignore[misc]
            table = of.table()
            some = [(block_files.write(table, folder, number), table)]
        elif block is None:
            some = [(path, table) for path, _, table in block_files.pieces(folder, number)]
        for path, table in some:
            left |= LEFT in (table.schema.metadata or {})
            paths.append(path)
            rows += table.num_rows
            good, found = _front(study, table)
            feasible += good
            best = found if best is None else _merge(study, best, found)
        progress(stop, total, len(best) if best is not None else 0)
    if best is None:
        return None
    front_rows = completed(study, best.reset_index(drop=True), left)
    return Screened(rows, feasible, exact and whole, front_rows, tuple(paths), evaluated, left)


def asked(study: Study) -> tuple[str, ...]:
    """Metrics that a study asks for by name, of every design that it looks at."""
    bounds = (bound.metric for bound in study.bounds)
    drawn = (str(line["y"]) for line in study.report["lines"])
    return tuple(sorted({*study.objectives, *bounds, *drawn}))


def coded(space: Space | Chips, rows: pd.DataFrame) -> Columns:
    """Knobs of a table as a space has them: numbers, and of words their codes."""
    columns: Columns = {}
    for knob in space.knobs:
        cells = rows[knob.address]
        if isinstance(knob, Choice) and knob.words:
            codes = {value: code for code, value in enumerate(knob.values)}
            columns[knob.address] = np.array([codes.get(cell, -1) for cell in cells], dtype=np.int16)
        else:
            columns[knob.address] = cells.to_numpy(dtype=float)
    return columns


def completed(study: Study, rows: pd.DataFrame, left: bool) -> pd.DataFrame:
    """Designs of a screen with the metrics that it has left out as well, where it has left out any."""
    if not left or not len(rows):
        return rows
    of = study.question
    found = evaluate(of.space.stack(coded(of.space, rows)), of.workload, of.defined, fidelity=study.screening)
    absent = {name: column for name, column in found.columns.items() if name not in rows and not np.isnan(column).all()}
    return rows.assign(**absent)


def _sample_size(study: Study) -> int:
    return 1 << (int(study.screen["limit"]).bit_length() - 1)


class _Block:
    """Rows of a screen that become one file, and what is done of them: stored every few seconds, and taken up again."""

    def __init__(self, study: Study, columns: Columns, folder: Path, number: int) -> None:
        self._study, self._columns, self._folder, self._number = study, columns, folder, number
        self._size = len(next(iter(columns.values())))
        self._metrics: dict[str, Array] = {}  # those that this kind of chip and workload has
        self._limit = np.full(self._size, -1, dtype=np.int8)
        self._excess = np.zeros(self._size)
        self._left: set[str] = set()
        self._done = np.zeros(self._size, dtype=bool)
        for _, rows, table in block_files.pieces(folder, number):
            self._take_up(rows, table)

    @property
    def left(self) -> int:
        """Rows that are to be evaluated."""
        return self._size - int(self._done.sum())

    def evaluate(self, progress: Callable[[int], None]) -> None:
        """Evaluates what is not done; what is done when something ends this is stored."""
        pending, since = list[Array](), time.monotonic()
        parts = [rest for part in self._parts() if len(rest := part[~self._done[part]])]
        each = [{address: column[part] for address, column in self._columns.items()} for part in parts]
        try:
            for part, outcomes in _each(self._study, each, parts):
                self._note(part, outcomes)
                pending.append(part)
                progress(self._size - self.left)
                if time.monotonic() - since > KEPT_EVERY:
                    self._keep(pending)
                    pending, since = [], time.monotonic()
        except BaseException:
            self._keep(pending)
            raise

    def table(self) -> pa.Table:
        """The block, all of it done.

        Raises:
            DesignError: an objective or the metric of a constraint is none of these chips and workloads.
        """
        self._refuse_absent()
        return self._of(np.arange(self._size))

    def _parts(self) -> list[Array]:
        """Rows that are evaluated together."""
        subjects = [case.subject for case in self._study.question.workload.cases]
        rows = max(256, CACHE_ROWS // max(subjects.count(subject) for subject in subjects))
        few = TOGETHER if self._study.screening == "steady" else FEW
        return self._study.question.space.parts(self._columns, few if _served(self._study) else rows)

    def _note(self, part: Array, outcomes: Outcomes) -> None:
        for name, column in outcomes.columns.items():
            if column[0] == column[0] or not np.isnan(column).all():
                self._metric(name)[part] = column
        self._left |= outcomes.left
        self._limit[part] = outcomes.limit
        self._excess[part] = outcomes.excess
        self._done[part] = True

    def _metric(self, name: str) -> Array:
        return self._metrics.setdefault(name, np.full(self._size, np.nan))

    def _keep(self, parts: Sequence[Array]) -> None:
        """Stores rows that are done."""
        if parts:
            rows = np.concatenate(parts)
            block_files.write_piece(self._of(rows), rows, self._folder, self._number)

    def _take_up(self, rows: Array, table: pa.Table) -> None:
        """What a piece has."""
        knobs = {knob.address for knob in self._study.question.space.knobs}
        for name in (name for name in table.column_names if name not in (*knobs, "limit", "excess")):
            self._metric(name)[rows] = table[name].to_numpy()
        codes = {None: -1} | {word: code for code, word in enumerate(LIMITS)}
        self._limit[rows] = [codes[word] for word in table["limit"].to_pylist()]
        self._excess[rows] = table["excess"].to_numpy()
        said = (table.schema.metadata or {}).get(LEFT, b"").decode()
        self._left |= set(said.split(", ")) - {""}
        self._done[rows] = True

    def _refuse_absent(self) -> None:
        study, metrics, limit, columns = self._study, self._metrics, self._limit, self._columns
        for group, names in (("objectives", study.objectives), ("constraints", [bound.metric for bound in study.bounds])):
            for name in names:
                if name not in metrics and (limit < 0).any():  # what is not evaluated has no metrics
                    raise DesignError(
                        f"{group}.{name}: this kind of chip or workload has no {name}; it has {', '.join(metrics)}"
                    )
        for name in study.objectives if CHIP in columns else ():
            absent = np.unique(columns[CHIP][(limit < 0) & np.isnan(metrics[name])]) if name in metrics else ()
            if len(absent):
                chips = ", ".join(str(study.question.space.knob(CHIP).values[code]) for code in absent)  # type: ignore[union-attr]
                raise DesignError(
                    f"objectives.{name}: {chips} has no {name}; choose one that all chips have, or leave it out of chips"
                )

    def _of(self, rows: Array) -> pa.Table:
        """Knobs, metrics and limits of some rows."""
        arrays: dict[str, Any] = {}
        for knob in self._study.question.space.knobs:
            column = self._columns[knob.address][rows]
            if isinstance(knob, Choice) and knob.words:
                arrays[knob.address] = pa.DictionaryArray.from_arrays(
                    pa.array(column, mask=column < 0), pa.array(list(knob.values))
                )
            else:
                arrays[knob.address] = pa.array(column, from_pandas=True)
        # in one order, whoever was done first
        arrays |= {name: pa.array(self._metrics[name][rows]) for name in sorted(self._metrics, key=list(METRICS).index)}
        limit = self._limit[rows]
        binding = pa.DictionaryArray.from_arrays(pa.array(limit, mask=limit < 0), pa.array(list(LIMITS)))
        table = pa.table(arrays | {"limit": binding, "excess": pa.array(self._excess[rows])})
        return table.replace_schema_metadata({LEFT: ", ".join(sorted(self._left))}) if self._left else table


def _served(study: Study) -> bool:
    """Whether a design takes so long that few of them are worth a message: those that serve requests."""
    return any(isinstance(case, Load) for case in study.question.workload.cases)


def _each(study: Study, columns: Sequence[Columns], parts: Sequence[Array]) -> Iterator[tuple[Array, Outcomes]]:
    """The outcomes of parts of a block, here or on workers, as they are done."""
    found, left = partial(_outcomes, study.question, study.screening, asked(study)), len(parts)
    crew, hires, count = study.crew, study.crew.kind == "ray", study.crew.count or cpus()
    if not _served(study):
        yield from ((part, found(some)) for part, some in zip(parts, columns, strict=True))
        return
    done, spent = 0, 0.0
    while done < left and not hires:
        start = time.monotonic()
        yield parts[done], found(columns[done])
        done, spent = done + 1, spent + (time.monotonic() - start if done else 0.0)
        # the first part pays for imports and compilation, and tells nothing of those to come
        saves = spent / max(done - 1, 1) * (left - done) * (1 - 1 / count)
        hires = crew.kind == "auto" and done > 1 and saves > crew.start
    if done < left:
        from dse.running.cluster import mapped

        say(f"  workers: ray, {count} for {left - done:,} parts of the screen")
        for place, outcomes in mapped(crew, found, columns[done:]):
            yield parts[done + place], outcomes


def _outcomes(question: Question, fidelity: str, metrics: tuple[str, ...], columns: Columns) -> Outcomes:
    return evaluate(question.space.stack(columns), question.workload, question.defined, fidelity=fidelity, metrics=metrics)


def _front(study: Study, table: pa.Table) -> tuple[int, pd.DataFrame]:
    keep = table["limit"].combine_chunks().is_null().to_numpy(zero_copy_only=False)
    absent = np.full(table.num_rows, np.nan)  # of a metric that no row has

    def column(name: str) -> Array:
        return np.asarray(table[name].to_numpy()) if name in table.column_names else absent

    for bound in study.bounds:
        keep &= bound.excess(column(bound.metric)) <= 0
    rows = np.flatnonzero(keep)
    values = np.column_stack([column(name)[rows] for name in study.objectives])
    rows = rows[front(values, study.directions)] if len(rows) else rows
    return int(keep.sum()), table.take(pa.array(rows)).to_pandas()


def _merge(study: Study, a: pd.DataFrame, b: pd.DataFrame) -> pd.DataFrame:
    both = pd.concat([a, b], ignore_index=True) if len(a) and len(b) else (a if len(a) else b)
    return both[front(both[list(study.objectives)].to_numpy(), study.directions)]
