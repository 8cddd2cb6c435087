"""A block of a screen: rows of a space that become one Parquet file, in any process.

What is on disk of a block is not evaluated again: the block, or of one that was not finished the pieces that are stored every
few seconds. Two who make the same block write the same file.
"""

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import numpy as np
import pandas as pd
import pyarrow as pa

from dse.config.metric_expressions import evaluate_with_derived
from dse.config.question import Question
from dse.evaluators.accounting.metrics import METRICS
from dse.evaluators.accounting.outcomes import SILICON_LIMITS, Outcomes
from dse.execution.bound_pruning import FIRST, MORE, RemainingRows, bound_rows
from dse.execution.screen_workers import ScreenWorkers
from dse.execution.study import Study
from dse.execution.study_settings import FRONT
from dse.search.pareto import front_mask
from dse.search.samplers import generate_sobol_points
from dse.space.array_math import Array
from dse.space.column_parts import split_columns
from dse.space.duplicate_rows import first_equal_rows
from dse.space.errors import DesignError
from dse.space.former_words import current_metric
from dse.space.knobs import ChoiceKnob, Columns
from dse.space.multi_chip_space import CHIP_KNOB
from dse.space.workload import ServingLoad
from dse.store import block_files
from dse.store.block_files import StoredBlock
from dse.store.renamed_columns import current_column
from dse.store.storage_folders import StorageFolder, StoredFile

R = TypeVar("R")

SAVE_PERIOD_S = 5.0
"""Seconds of work after which what is done of a block is stored: what a screen that is killed loses, and one part. [s]"""

LEFT = b"left"
"""In what a Parquet file says of itself, metrics that there would be, and that nobody asked for."""

FEASIBLE = b"feasible"
"""In what a file with some rows of a block says of itself, how many of all keep every limit and constraint."""

PRUNED = b"pruned"

REFUSED = b"refused"
"""In what it says of itself, how many designs were left out without being evaluated, by why, as JSON."""

EVEN_SAMPLE = 256
"""Rows of a block, evenly over those that were evaluated, that are kept beside its front where no others are."""

MIN_ROWS = 16
"""Designs that serve requests evaluated at once: each takes a fraction of a second."""

BATCH_ROWS = 16_384
"""Designs that serve requests evaluated at once in the steady state, where those of one structure are priced together. A part
is one of several kinds of chips: with fewer designs of each, calls of NumPy would take longer than what they do."""

CACHE_ROWS = 8_192
"""Rows evaluated at once, over the steps of the largest case list: arrays of this size stay in a core's cache."""


SCREEN_ROWS = 20_000
"""Screened designs that a report shows beside the front; of more, an even sample."""


@dataclass(frozen=True, slots=True)
class BlockRows:
    """Rows of a screen that one block has.

    Attributes:
        number: of the block.
        start, stop: rows of the screen.
        exact: whether they are of the whole space, or of a quasi-random sample of it.
        place: the folder of the screen's files.
        shown: whether a report shows all designs of the screen, so that all of their metrics are worked out at once.
    """

    number: int
    start: int
    stop: int
    exact: bool
    place: StorageFolder
    shown: bool = False


@dataclass(frozen=True, slots=True)
class BlockSummary:
    """Summary of one file of a screen: front, feasible count and refusals.

    Attributes:
        number: of its block.
        file: where it is.
        rows, feasible: designs that were looked at, and those of them that are known to keep every limit and constraint.
        kept: rows in the file.
        evaluated: rows that were not stored before.
        left: whether the file lacks metrics that were not requested.
        front: the designs that no other of its rows beats, by their row in the screen: knobs, metrics and limits in columns.
        pruned: designs that were left out without being evaluated, by why.
        refused: designs that were evaluated and are left out, by the limit or the constraint that they break.
    """

    number: int
    file: StoredFile
    rows: int
    feasible: int
    kept: int
    evaluated: int
    left: bool
    front: pd.DataFrame
    pruned: dict[str, int]
    refused: dict[str, int]


def requested_metrics(study: Study) -> tuple[str, ...]:
    """Metrics that a study requests by name for every design."""
    bounds = (bound.metric for bound in study.bounds)
    drawn = (line.y for line in study.report.lines)
    return tuple(sorted({*study.objectives, *bounds, *drawn}))


def is_serving_study(study: Study) -> bool:
    """Whether designs serve requests: each takes so long that few of them are worth a message."""
    return any(isinstance(case, ServingLoad) for case in study.question.workload.cases)


def evaluate_block(
    study: Study,
    span: BlockRows,
    files: Sequence[StoredFile],
    hands: ScreenWorkers,
    progress: Callable[[int], None] = lambda done: None,
) -> BlockSummary:
    """Evaluate a block, or read it from its file.

    Args:
        study: whose space, workload, objectives and constraints count.
        span: its rows.
        files: what there is of the screen.
        hands: who evaluate.
        progress: called with the rows that are done.
    """
    summary = summarise_stored_block(study, span, files)
    if summary is not None:
        return summary
    space = study.question.space
    unit = None if span.exact else generate_sobol_points(len(space.knobs), span.start, span.stop, study.seed)
    columns = space.grid(span.start, span.stop) if unit is None else space.sample(unit)
    block = _Block(study, columns, span, files)
    before = block.left
    block.evaluate(progress, hands)
    table = block.build_table()
    if study.screen.keep != FRONT:
        return summarise_block(study, span, block_files.write_block(table, span.place, span.number), before)
    feasible, best = _best_rows(study, table)
    even = np.linspace(0, table.num_rows - 1, min(EVEN_SAMPLE, table.num_rows)).round().astype(int)
    places = np.union1d(best, even).astype(int)
    few = table.take(pa.array(places))
    metadata = {**(table.schema.metadata or {}), FEASIBLE: str(feasible), REFUSED: json.dumps(_refused_counts(study, table))}
    metadata |= {PRUNED: json.dumps(block.pruned)} if block.pruned else {}
    few = few.replace_schema_metadata(metadata)
    return summarise_block(
        study, span, block_files.write_block(few, span.place, span.number, block.rows[places]), before - block.left
    )


def summarise_stored_block(study: Study, span: BlockRows, files: Sequence[StoredFile]) -> BlockSummary | None:
    """Summary of a block that is stored; None if it is not. Its table is let go of, as a screen has many."""
    stored = block_files.read_block(files, span.number)
    return None if stored is None else summarise_block(study, span, stored, 0)


def summarise_block(study: Study, span: BlockRows, stored: StoredBlock, evaluated: int) -> BlockSummary:
    """Summary of a block or a piece, from its file."""
    table, metadata = stored.table, stored.table.schema.metadata or {}
    feasible, rows = _best_rows(study, table)
    best = table.take(pa.array(rows)).to_pandas().set_index(span.start + stored.rows[rows])
    looked, feasible = (span.stop - span.start, int(metadata[FEASIBLE])) if FEASIBLE in metadata else (table.num_rows, feasible)
    pruned = _present_counts(json.loads(metadata.get(PRUNED, b"{}")))
    refused = _present_counts(json.loads(metadata[REFUSED])) if REFUSED in metadata else _refused_counts(study, table)
    refused = {current_column(name): count for name, count in refused.items()}
    return BlockSummary(
        span.number, stored.file, looked, feasible, table.num_rows, evaluated, LEFT in metadata, best, pruned, refused
    )


def _present_counts(counts: dict[str, int]) -> dict[str, int]:
    """Counts by limit or constraint of a file, whose metrics have their present names."""
    parts = ((words.partition(" "), count) for words, count in counts.items())
    return {f"{current_metric(first)}{mark}{rest}": count for (first, mark, rest), count in parts}


def merge_fronts(study: Study, parts: Sequence[pd.DataFrame]) -> pd.DataFrame:
    """Front of several fronts, by row of the screen; the first of designs equal in all objectives."""
    selected_parts = [part for part in parts if len(part)] or list(parts[:1])
    both = pd.concat(selected_parts).sort_index()
    return both[front_mask(both[list(study.objectives)].to_numpy(), study.directions)]


def _best_rows(study: Study, table: pa.Table) -> tuple[int, Array]:
    """How many rows keep every limit and constraint, and which of them no other beats."""
    keep = table["limit"].combine_chunks().is_null().to_numpy(zero_copy_only=False)
    for bound in study.bounds:
        keep &= bound.excess(_metric_column(table, bound.metric)) <= 0
    rows = np.flatnonzero(keep)
    values = np.column_stack([_metric_column(table, name)[rows] for name in study.objectives])
    return len(rows), rows[front_mask(values, study.directions)] if len(rows) else rows


def _refused_counts(study: Study, table: pa.Table) -> dict[str, int]:
    """How many rows each limit and each constraint rules out, as `refusals` has it."""
    limit = table["limit"].combine_chunks()
    limit = limit if pa.types.is_dictionary(limit.type) else limit.dictionary_encode()
    codes = limit.indices.fill_null(-1).to_numpy(zero_copy_only=False)
    return refusals(
        study,
        codes,
        limit.dictionary.to_pylist(),
        {bound.metric: _metric_column(table, bound.metric) for bound in study.bounds},
    )


def refusals(study: Study, codes: Array, names: Sequence[str], columns: Mapping[str, Array]) -> dict[str, int]:
    """Number of designs that each limit and each constraint rules out, each counted once.

    A design that violates several constraints counts for the first.

    Args:
        study: whose constraints count.
        codes: of the limit that each design breaks most, -1 where all hold; shape (designs,).
        names: of limits, by code.
        columns: metrics of the constraints, shape (designs,).
    """
    left = codes < 0
    counts = np.bincount(codes[~left], minlength=len(names)).tolist()
    refusals = {name: count for name, count in zip(names, counts, strict=True) if count}
    for bound in study.bounds:
        kept = bound.excess(columns[bound.metric]) <= 0
        if broken := int((left & ~kept).sum()):
            refusals[str(bound)] = broken
        left = left & kept
    return refusals


def _metric_column(table: pa.Table, name: str) -> Array:
    """Of a metric; not a number where no row has it."""
    return np.asarray(table[name].to_numpy()) if name in table.column_names else np.full(table.num_rows, np.nan)


class _Block:
    """Rows of a screen that become one file, and what is done of them: stored every few seconds, and taken up again."""

    def __init__(self, study: Study, columns: Columns, span: BlockRows, files: Sequence[StoredFile]) -> None:
        self._study, self._columns, self._span = study, columns, span
        self._size = len(next(iter(columns.values()))) if columns else 1  # a space without a knob is one design
        # a grid has no row twice, and what is not served takes no longer than looking
        self._first = None if span.exact or not is_serving_study(study) else first_equal_rows(columns)
        self._metrics: dict[str, Array] = {}  # those that this kind of chip and workload has
        self._limit = np.full(self._size, -1, dtype=np.int16)
        self._excess = np.zeros(self._size)
        self._left: set[str] = set()
        self._done = np.zeros(self._size, dtype=bool)
        self._pending, self._since = list[Array](), time.monotonic()
        self.pruned: dict[str, int] = {}
        for piece in block_files.read_pieces(files, span.number):
            self._take_up(piece.rows, piece.table)

    @property
    def left(self) -> int:
        """Rows that are to be evaluated."""
        return self._size - int(self._done.sum())

    @property
    def rows(self) -> Array:
        """Rows that are done."""
        return np.flatnonzero(self._done)

    def evaluate(self, progress: Callable[[int], None], hands: ScreenWorkers) -> None:
        """Evaluate what is not done, or of it what may be on the front; what is done when something ends this is stored."""
        self._since = time.monotonic()
        try:
            if self._study.screen.prune:
                self._evaluate_promising(progress, hands)
            else:
                self._all_of(np.flatnonzero(~self._done), progress, hands)
        except BaseException:
            self._store_done()
            raise

    def build_table(self) -> pa.Table:
        """The rows that are done.

        Raises:
            DesignError: an objective or the metric of a constraint is none of these chips and workloads.
        """
        self._refuse_absent()
        return self._rows_table(self.rows)

    def _evaluate_promising(self, progress: Callable[[int], None], hands: ScreenWorkers) -> None:
        """Evaluate what bounds say most of, as long as anything is left that may be on the front."""
        left, study = RemainingRows.of_block(self._study, self._size), self._study.sent_copy
        self._learn_bounds(left, self.rows)

        def report_progress(done: int) -> None:
            progress(done + int((left.why > 0).sum()))

        every = np.flatnonzero(~self._done & (left.why == 0))
        for rows, which, (why, values) in self._map_rows(partial(bound_rows, study), every, hands, "parts of the bounds"):
            left.take(rows, (why[which], values[which]))
            report_progress(self._size - self.left)
        most = FIRST
        while len(rows := left.drop_dominated(np.flatnonzero(~self._done & (left.why == 0)))):
            chosen_rows, most = left.most_promising(rows, most), most * MORE
            self._all_of(chosen_rows, report_progress, hands)
            self._learn_bounds(left, chosen_rows)
        left.why[self._done] = 0
        self.pruned = left.counts

    def _learn_bounds(self, left: RemainingRows, rows: Array) -> None:
        """Tell of rows that are done who beats others."""
        if len(rows):
            table = self._rows_table(rows)
            _, best = _best_rows(self._study, table)
            left.learn(np.column_stack([_metric_column(table, name)[best] for name in self._study.objectives]))

    def _all_of(self, rows: Array, progress: Callable[[int], None], hands: ScreenWorkers) -> None:
        """Evaluate some rows, and stores what is done every few seconds."""
        study = self._study
        metrics = None if self._span.shown else requested_metrics(study)
        work = partial(_evaluate_columns, study.question, study.screen_fidelity, metrics)
        for chosen_rows, which, outcomes in self._map_rows(work, rows, hands):
            self._note_outcomes(chosen_rows, which, outcomes)
            self._pending.append(chosen_rows)
            progress(self._size - self.left)
            if time.monotonic() - self._since > SAVE_PERIOD_S:
                self._store_done()

    def _map_rows(
        self, work: Callable[[Columns], R], rows: Array, hands: ScreenWorkers, what: str = "parts"
    ) -> Iterator[tuple[Array, Array | slice, R]]:
        """What a function makes of some rows, as `Hands.mapped` has it, of those that are equal once: which of them each is."""
        if self._first is None:
            for part_rows, outcomes in hands.map_rows(work, self._columns, self._row_parts(rows), what):
                yield part_rows, slice(None), outcomes
            return
        first = self._first[rows]
        for part_rows, outcomes in hands.map_rows(work, self._columns, self._row_parts(np.unique(first)), what):
            place = np.full(self._size, -1)
            place[part_rows] = np.arange(len(part_rows))
            mine = place[first] >= 0
            yield rows[mine], place[first[mine]], outcomes

    def _row_parts(self, selected_rows: Array) -> list[Array]:
        """Of some rows, those that are evaluated together."""
        subjects = [case.subject for case in self._study.question.workload.cases]
        rows = max(256, CACHE_ROWS // max(subjects.count(subject) for subject in subjects))
        few = BATCH_ROWS if self._study.screen_fidelity == "steady_state" else MIN_ROWS
        most = few if is_serving_study(self._study) else rows
        if not len(selected_rows):
            return []
        (columns,) = split_columns(self._columns, [selected_rows])
        return [selected_rows[part] for part in self._study.question.space.parts(columns, most)]

    def _note_outcomes(self, rows: Array, which: Array | slice, outcomes: Outcomes) -> None:
        """Of rows, each of which is one of some outcomes."""
        for name, column in outcomes.columns.items():
            if column[0] == column[0] or not np.isnan(column).all():
                self._metric_array(name)[rows] = column[which]
        self._left |= outcomes.left
        self._limit[rows] = outcomes.limit[which]
        self._excess[rows] = outcomes.excess[which]
        self._done[rows] = True

    def _metric_array(self, name: str) -> Array:
        return self._metrics.setdefault(name, np.full(self._size, np.nan))

    def _store_done(self) -> None:
        """Store rows that are done, and were not stored."""
        if self._pending:
            rows = np.concatenate(self._pending)
            block_files.write_piece(self._rows_table(rows), rows, self._span.place, self._span.number)
        self._pending, self._since = [], time.monotonic()

    def _take_up(self, rows: Array, table: pa.Table) -> None:
        """What a piece has."""
        knobs = {knob.address for knob in self._study.question.space.knobs}
        for name in (name for name in table.column_names if name not in (*knobs, "limit", "excess")):
            self._metric_array(name)[rows] = table[name].to_numpy()
        codes = {None: -1} | {word: code for code, word in enumerate(SILICON_LIMITS)}
        self._limit[rows] = [codes[word] for word in table["limit"].to_pylist()]
        self._excess[rows] = table["excess"].to_numpy()
        left_text = (table.schema.metadata or {}).get(LEFT, b"").decode()
        self._left |= set(left_text.split(", ")) - {""}
        self._done[rows] = True

    def _refuse_absent(self) -> None:
        study, metrics, columns = self._study, self._metrics, self._columns
        limit = np.where(self._done, self._limit, np.int16(0))  # what is not evaluated has no metrics
        for group, names in (("objectives", study.objectives), ("constraints", [bound.metric for bound in study.bounds])):
            for name in names:
                if name not in metrics and (limit < 0).any():
                    raise DesignError(
                        f"{group}.{name}: this kind of chip or workload has no {name}; it has {', '.join(metrics)}"
                    )
        for name in study.objectives if CHIP_KNOB in columns else ():
            absent = np.unique(columns[CHIP_KNOB][(limit < 0) & np.isnan(metrics[name])]) if name in metrics else ()
            if len(absent):
                chips = ", ".join(str(study.question.space.knob(CHIP_KNOB).values[code]) for code in absent)  # type: ignore[union-attr]
                raise DesignError(
                    f"objectives.{name}: {chips} has no {name}; choose one that all chips have, or leave it out of chips"
                )

    def _rows_table(self, rows: Array) -> pa.Table:
        """Knobs, metrics and limits of some rows."""
        arrays: dict[str, Any] = {}
        for knob in self._study.question.space.knobs:
            column = self._columns[knob.address][rows]
            if isinstance(knob, ChoiceKnob) and knob.words:
                arrays[knob.address] = pa.DictionaryArray.from_arrays(
                    pa.array(column, mask=column < 0), pa.array(list(knob.values))
                )
            else:
                arrays[knob.address] = pa.array(column, from_pandas=True)
        # in one order, whoever was done first
        arrays |= {name: pa.array(self._metrics[name][rows]) for name in sorted(self._metrics, key=list(METRICS).index)}
        limit = self._limit[rows]
        binding = pa.DictionaryArray.from_arrays(pa.array(limit, mask=limit < 0), pa.array(list(SILICON_LIMITS)))
        table = pa.table(arrays | {"limit": binding, "excess": pa.array(self._excess[rows])})
        return table.replace_schema_metadata({LEFT: ", ".join(sorted(self._left))}) if self._left else table


def _evaluate_columns(question: Question, fidelity: str, metrics: tuple[str, ...] | None, columns: Columns) -> Outcomes:
    return evaluate_with_derived(
        question.space.stack(columns), question.workload, question.defined, fidelity=fidelity, metrics=metrics
    )
