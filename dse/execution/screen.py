"""Screen of a space: evaluate the whole grid, or a quasi-random sample; store blocks, keep the front.

No sampler and no store: the same grid gives the same rows, so stored rows are not evaluated again: whole blocks, and of an
unfinished block the pieces that are stored every few seconds. For a grid that fits, the front is exact. If blocks are many and
take long, workers evaluate them, here or on a cluster, and each stores its own in a place that all of them reach.
"""

import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np
import pandas as pd

from dse.config.metric_expressions import evaluate_with_derived
from dse.evaluators import PHYSICS_VERSION
from dse.evaluators.accounting.metrics import METRICS
from dse.execution.bound_pruning import BEATEN
from dse.execution.pool.choice import map_on_workers
from dse.execution.pool.dispatch import repays_start
from dse.execution.pool.worker_kind import PoolNotStartedError, go_on_alone
from dse.execution.screen_block import (
    BATCH_ROWS,
    SCREEN_ROWS,
    BlockRows,
    BlockSummary,
    evaluate_block,
    is_serving_study,
    merge_fronts,
    requested_metrics,
    summarise_block,
    summarise_stored_block,
)
from dse.execution.screen_workers import ScreenWorkers
from dse.execution.study import Study, stored_location
from dse.execution.study_settings import FRONT
from dse.space.array_math import Array
from dse.space.design import key_of_leaves
from dse.space.errors import DesignError
from dse.space.former_words import stored_fidelity, stored_metric, stored_metric_text
from dse.space.knobs import ChoiceKnob, Columns, Space
from dse.space.multi_chip_space import MultiChipSpace
from dse.store import block_files
from dse.store.database import is_same_store
from dse.store.storage_folders import StorageFolder, StoredFile
from dse.terminal.progress import say

BLOCK_ROWS = 131_072
"""Rows of one Parquet file."""

MIN_BLOCKS = 2
"""Blocks a worker, from which on workers make blocks, and not parts of one: the last of them then cost little."""


@dataclass(frozen=True)
class ScreenResult:
    """Result of a screen: its front, its block files, and counts of designs.

    Attributes:
        rows, feasible: designs, and those of them that are known to keep every limit and constraint.
        exact: whether every design of the space was looked at.
        front: the designs that no other beats: knobs, metrics and limits in columns.
        blocks: the Parquet files.
        kept: designs that are in the files, fewer than were looked at with screen.keep=front.
        evaluated: rows that were not stored before.
        left: whether the files lack metrics that were not requested.
        pruned: designs that were left out without being evaluated, by why (screen.prune).
        refused: designs that were evaluated and are left out, by the limit or the constraint that they break.
    """

    rows: int
    feasible: int
    exact: bool
    front: pd.DataFrame
    blocks: tuple[StoredFile, ...]
    kept: int
    evaluated: int
    left: bool = False
    pruned: dict[str, int] = field(default_factory=dict)
    refused: dict[str, int] = field(default_factory=dict)


def run_screen(study: Study, progress: Callable[[int, int, int], None], hands: ScreenWorkers | None = None) -> ScreenResult:
    """Screen the space of a study, and return its front and files.

    Args:
        study: whose space, workload, objectives and constraints count.
        progress: called with (rows done, rows in all, front size).
        hands: who evaluate; None for those of the study's crew, who go when it ends.
    """
    if hands is None:
        with screen_workers(study) as own:
            return run_screen(study, progress, own)
    plan = _screen_plan(study)
    files = plan.place.list_files()
    state = _Found(study, plan, progress)
    left = []
    for span in plan.spans:
        summary = summarise_stored_block(study, span, files)
        if summary is None:
            left.append(span)
        else:
            state.take(summary)
    for summary in _make_blocks(study, left, files, hands, state.say):
        state.take(summary)
    return state.finish_screen(hands)


def screen_workers(study: Study) -> ScreenWorkers:
    """Workers of a study's settings for a screen."""
    return ScreenWorkers(study.crew, "dse.execution.screen_block", at_once=is_serving_study(study))


def load_stored_screen(study: Study) -> ScreenResult | None:
    """Stored blocks of a screen, perhaps not all yet; None if there are none.

    They belong to the results of the same run folder, and are none of those of another store.
    """
    if not _belongs_to_store(study):
        return None
    plan = _screen_plan(study)
    files = plan.place.list_files()
    state = _Found(study, plan, lambda done, total, size: None)
    for span in plan.spans if files else ():
        block = block_files.read_block(files, span.number)
        for piece in block_files.read_pieces(files, span.number) if block is None else [block]:
            state.take(summarise_block(study, span, piece, 0))
        state.whole &= block is not None
    return state.finish_screen() if state.files else None


def list_stored_block_files(study: Study) -> list[StoredFile]:
    """Stored files of a screen: whole blocks and pieces."""
    return _screen_plan(study).place.list_files() if _belongs_to_store(study) else []


def screen_left_out_text(result: ScreenResult) -> str:
    """Number of designs left out without evaluation, by reason, as text."""
    by = "; ".join(
        f"{count:,} {'dominated by a known design' if why == BEATEN else f'by {why}'}" for why, count in result.pruned.items()
    )
    unknown = result.pruned.get(BEATEN, 0)
    more = f", of which {unknown:,} may be feasible or not" if unknown else ""
    return f"bounds leave out {sum(result.pruned.values()):,}{more}: {by}"


def _belongs_to_store(study: Study) -> bool:
    """Whether the run folder of a study is that of its store."""
    return is_same_store(study.store, stored_location(study.run_dir) or str(study.run_dir / "results.sqlite"))


@dataclass(frozen=True)
class _Plan:
    """What a screen has to look at.

    Attributes:
        total: designs.
        exact: whether they are the whole space.
        place: of its files.
        shown: whether all of them are shown, with all metrics.
    """

    total: int
    exact: bool
    place: StorageFolder
    shown: bool

    @property
    def spans(self) -> Iterator[BlockRows]:
        """Its blocks."""
        for number, start in enumerate(range(0, self.total, BLOCK_ROWS)):
            yield BlockRows(number, start, min(start + BLOCK_ROWS, self.total), self.exact, self.place, self.shown)


def _screen_plan(study: Study) -> _Plan:
    space = study.question.space
    grid = space.combinations
    exact = grid is not None and grid <= study.screen.limit
    total = grid if grid is not None and exact else 1 << (study.screen.limit.bit_length() - 1)
    content = [("key", space.key), ("workload", study.context.workload), ("physics", PHYSICS_VERSION), ("rows", total)]
    content.append(("metrics", ", ".join(sorted(map(stored_metric, requested_metrics(study))))))
    defined = [(name, metric.text) for name, metric in study.question.defined.items() if name in requested_metrics(study)]
    content += [(name, stored_metric_text(text)) for name, text in defined]
    content += [("fidelity", stored_fidelity(study.screen_fidelity))] if study.screen_fidelity != "analytical" else []
    content += [("prune", "by bounds")] if study.screen.prune else []
    if study.screen.keep == FRONT:  # which rows are kept depends on what is wanted
        wanted = [*(f"{name} {way}" for name, way in study.objectives.items()), *map(str, study.bounds)]
        content.append((FRONT, ", ".join(map(_stored_words, wanted))))
    folder = study.screen.folder or str(study.run_dir / "screen")
    place = StorageFolder(folder).open_subfolder(key_of_leaves([*content, ("seed", "" if exact else study.seed)]))
    return _Plan(total, exact, place, total <= SCREEN_ROWS and study.screen.keep != FRONT)


def _stored_words(wanted: str) -> str:
    """An objective or a constraint, which begins with its metric, as content keys have it."""
    metric, mark, rest = wanted.partition(" ")
    return f"{stored_metric(metric)}{mark}{rest}"


class _Found:
    """What is known of a screen, block by block as they come."""

    def __init__(self, study: Study, plan: _Plan, progress: Callable[[int, int, int], None]) -> None:
        self._study, self._plan, self._progress = study, plan, progress
        self._rows = self._feasible = self._kept = self._evaluated = 0
        self._front: pd.DataFrame | None = None
        self._left, self._pruned, self._refused = False, Counter[str](), Counter[str]()
        self.whole = True
        self.files: dict[tuple[int, str], StoredFile] = {}

    def take(self, summary: BlockSummary) -> None:
        """Add the summary of a block, or of a part of one, to the whole screen."""
        self.files[summary.number, summary.file.name] = summary.file
        self._rows += summary.rows
        self._feasible += summary.feasible
        self._kept += summary.kept
        self._evaluated += summary.evaluated
        self._left |= summary.left
        self._pruned.update(summary.pruned)
        self._refused.update(summary.refused)
        self._front = summary.front if self._front is None else merge_fronts(self._study, [self._front, summary.front])
        self.say(0)

    def say(self, more: int) -> None:
        """Tell how far it is: rows of blocks that are done, and more."""
        self._progress(self._rows + more, self._plan.total, 0 if self._front is None else len(self._front))

    def finish_screen(self, hands: ScreenWorkers | None = None) -> ScreenResult:
        """All of it; workers that are hired complete the front."""
        assert self._front is not None
        front = complete_metrics(
            self._study, self._front.reset_index(drop=True), self._left, hands if hands and hands.has_workers else None
        )
        files = tuple(file for _, file in sorted(self.files.items()))
        exact = self._plan.exact and self.whole
        counts = self._kept, self._evaluated, self._left, dict(self._pruned), dict(self._refused)
        if front.empty:  # limits that refuse every design leave no metrics
            front = front.reindex(columns=list(dict.fromkeys([*front.columns, *self._study.objectives])))
        return ScreenResult(self._rows, self._feasible, exact, front, files, *counts)


def _make_blocks(
    study: Study, spans: Sequence[BlockRows], files: Sequence[StoredFile], hands: ScreenWorkers, progress: Callable[[int], None]
) -> Iterator[BlockSummary]:
    """Blocks that are not stored, made here or by workers, as they are done."""
    crew, count = study.crew, study.crew.expected_count
    many = len(spans) >= MIN_BLOCKS * count
    hires, done, spent = many and crew.kind not in ("auto", "serial") and is_serving_study(study), 0, 0.0
    while done < len(spans) and not hires:
        start = time.monotonic()
        yield evaluate_block(study, spans[done], files, hands, progress)
        done, spent = done + 1, spent + time.monotonic() - start
        left = len(spans) - done
        hires = left >= MIN_BLOCKS * count and repays_start(spent / done * left, count, crew.start_time)
    if done == len(spans):
        return
    hands.close()  # whose workers hold the CPUs that those of blocks need
    say(f"  workers: {crew.parallel_kind}, {count} for {len(spans) - done:,} blocks of the screen")
    left_spans = dict(enumerate(spans[done:]))
    try:
        yield from _blocks_of_workers(study, left_spans, files)
    except PoolNotStartedError as error:
        go_on_alone(crew.kind, error, lambda text: say(f"  {text}"))
        for span in left_spans.values():
            yield evaluate_block(study, span, span.place.list_files(), hands, progress)


def _blocks_of_workers(study: Study, spans: dict[int, BlockRows], files: Sequence[StoredFile]) -> Iterator[BlockSummary]:
    """Blocks that workers make; those that are done are taken out of the spans."""
    for place, summary in map_on_workers(study.crew, partial(_evaluate_alone, study.sent_copy), list(spans.values())):
        path = summary.file.local_path()
        if path is not None and not path.is_file():
            raise DesignError(
                f"screen.folder: a worker has stored {path}, which does not exist on this machine: workers on several machines "
                "need a folder that all of them reach, as screen.folder=s3://BUCKET/FOLDER or one of a network"
            )
        # what a worker stored before it died is not evaluated again, and was evaluated by this run all the same
        span = spans.pop(place)
        before = {row for piece in block_files.read_pieces(files, span.number) for row in piece.rows.tolist()}
        yield replace(summary, evaluated=span.stop - span.start - sum(summary.pruned.values()) - len(before))


def _evaluate_alone(study: Study, span: BlockRows) -> BlockSummary:
    """A block, by a worker: what one that died has stored of it is taken up."""
    with screen_workers(study) as hands:
        return evaluate_block(study, span, span.place.list_files(), hands)


def encode_rows(space: Space | MultiChipSpace, rows: pd.DataFrame) -> Columns:
    """Knobs of a table as numbers of a space: values, and codes of options."""
    columns: Columns = {}
    for knob in space.knobs:
        cells = rows[knob.address]
        if isinstance(knob, ChoiceKnob) and knob.words:
            codes = {value: code for code, value in enumerate(knob.values)}
            columns[knob.address] = np.array([codes.get(cell, -1) for cell in cells], dtype=np.int16)
        else:
            columns[knob.address] = cells.to_numpy(dtype=float)
    return columns


def complete_metrics(study: Study, rows: pd.DataFrame, left: bool, hands: ScreenWorkers | None = None) -> pd.DataFrame:
    """Screened designs with all metrics, evaluated again if the files hold only requested ones.

    Args:
        study: that was screened.
        rows: knobs and metrics of designs.
        left: whether any are left out.
        hands: who evaluate, in parts of one kind of chip each; None for all at once, here.
    """
    if not left or not len(rows):
        return rows
    question = study.question
    columns, work = encode_rows(question.space, rows), partial(_every_metric, study.sent_copy)
    parts = question.space.parts(columns, BATCH_ROWS) if hands else [np.arange(len(rows))]
    found_columns: dict[str, Array] = {}
    every = hands.map_rows(work, columns, parts, "parts of the front", known=True) if hands else [(parts[0], work(columns))]
    for rows_of_part, metrics in every:
        for name, column in metrics.items():
            found_columns.setdefault(name, np.full(len(rows), np.nan))[rows_of_part] = column
    order = [name for name in (*METRICS, *found_columns) if name in found_columns and name not in rows]
    return rows.assign(
        **{name: found_columns[name] for name in dict.fromkeys(order) if not np.isnan(found_columns[name]).all()}
    )


def _every_metric(study: Study, columns: Columns) -> dict[str, Array]:
    """Every metric of some designs."""
    question = study.question
    return dict(
        evaluate_with_derived(
            question.space.stack(columns), question.workload, question.defined, fidelity=study.screen_fidelity
        ).columns
    )
