"""Verification: evaluate the best designs and a sample at a higher fidelity, and compare both.

The best and the second best of each objective come first, then the front, then layer by layer what is next to it, since the
best at one fidelity may be second at another. Designs off the front are drawn from all over the others
(`dse.execution.stratified_sample`): ranks among the best alone say little about the two fidelities. Results are stored like any
others, under their own fidelity; a stored design is not evaluated again. Meshes that are too large for cycle-level simulation
are compared on a submesh, at both fidelities.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from dse.evaluators import FIDELITIES
from dse.evaluators.accounting.metrics import METRICS
from dse.evaluators.calls.submesh import SUBMESH_MARK
from dse.evaluators.cost_models.fidelity_parts import compare_fidelities
from dse.execution.provenance import RunClock
from dse.execution.rank_agreement import RankAgreement, rank_agreement
from dse.execution.result_frame import (
    DESIGN,
    KEY,
    SEARCH_ORDER,
    knob_values,
    mark_feasibility_and_front,
    round_significant,
    search_frame,
)
from dse.execution.stratified_sample import dominated_share, stratified_sample
from dse.execution.study import Study
from dse.execution.verify_order import (
    format_remaining_time,
    has_estimate_changed,
    order_for_verification,
    seconds_per_design,
    unknown_time_text,
)
from dse.execution.verify_streams import (
    StreamVerdict,
    load_stream_verdicts,
    other_streams,
    stream_context,
    summarise_verdicts,
)
from dse.execution.winner_lead import WinnerLead, winner_lead
from dse.execution.workers import make_evaluator, make_workers
from dse.search.pareto import nondominated_layers
from dse.search.samplers import Ask
from dse.space.array_math import Array
from dse.space.multi_chip_space import CHIP_KNOB
from dse.space.software import software_of
from dse.space.workload import Workload
from dse.store.store import DesignResult, ResultContext, Store

DIGITS = 9
"""Digits of a metric that count where designs are ranked: what differs beyond is the rounding of sums."""


@dataclass(frozen=True)
class Verification:
    """Designs that were evaluated at both fidelities, with their metrics.

    Attributes:
        low, high: the fidelities.
        part: on which part of their meshes designs are compared, and what becomes of the workload; "" where on all of it.
        wanted: designs to verify; those of `before` and `after` are the ones that are stored.
        before: their rows of the study's frame, with ``front`` as it is among them; the study's front comes first.
        after: the same rows as they are at the higher fidelity.
        front: of each of them, whether it is on the study's front.
        off: designs off the front.
        ranks: how alike the two rank by each objective that they have.
        decisions: by how much the best design by each leads the next best, at full size and by the two.
        shared, own: parts of an answer that the two give alike, and that each gives in its own way.
        verdicts: in how many streams of requests each of the best keeps its constraints, with `verify.seeds`; empty for one.
        streams: that are wanted.
    """

    low: str
    high: str
    part: str
    wanted: int
    before: pd.DataFrame
    after: pd.DataFrame
    front: Array
    off: "OffFrontSample"
    ranks: tuple[RankAgreement, ...]
    decisions: tuple[WinnerLead, ...]
    shared: tuple[str, ...]
    own: tuple[str, ...]
    verdicts: tuple[StreamVerdict, ...] = ()
    streams: int = 1

    def moves(self) -> pd.Series:
        """Move of each design: "stays" on the front, "falls off", "comes on", or is "behind" at both.

        On a submesh designs are "compared": a front there is not that of the designs.
        """
        if self.part:
            return pd.Series("compared", self.before.index, dtype=object)
        names = {(True, True): "stays", (True, False): "falls off", (False, True): "comes on", (False, False): "behind"}
        pairs = zip(self.before["front"], self.after["front"], strict=True)
        return pd.Series([names[bool(was), bool(now)] for was, now in pairs], self.before.index, dtype=object)

    def shown_places(self, count: int) -> list[int]:
        """Rows of the designs to show: those that enter or leave the front; on a submesh, the first ones."""
        moves = self.moves()
        return list(np.flatnonzero(moves.isin(("falls off", "comes on", "compared")))[:count])

    @property
    def verdict_text(self) -> str:
        """How many of the best keep their constraints in all streams; empty string for one stream."""
        return summarise_verdicts(self.verdicts, self.streams, self.high)

    @property
    def broken_verdicts(self) -> list[StreamVerdict]:
        """Verdicts of verified designs that break a constraint in some stream of requests."""
        return [verdict for verdict in self.verdicts if verdict.kept < verdict.simulated and verdict.row in self.before.index]

    def shifts(self) -> "list[MetricShift]":
        """Shift of every metric that both fidelities have."""
        shifts = [_metric_shift(name, self.before[name], self.after[name]) for name in METRICS if name in self.before]
        return [shift for shift in shifts if shift.designs]


@dataclass(frozen=True)
class OffFrontSample:
    """Designs off the front that were evaluated at both fidelities, apart from the best.

    Attributes:
        wanted: designs that were drawn; those of `before` and `after` are the ones that are stored.
        before, after: as of `Verified`.
        strata: of each, from 1: that of designs which dominate most.
        better: of each, whether no verified design beats it at the higher fidelity, the best among them.
    """

    wanted: int
    before: pd.DataFrame
    after: pd.DataFrame
    strata: Array
    better: Array


@dataclass(frozen=True, slots=True)
class MetricShift:
    """Shift of one metric from a fidelity to a higher one.

    Attributes:
        designs: that have it at both.
        correlation: Kendall's tau-b of the two rankings: 1 where they agree, -1 where one is the other reversed; None where
            fewer than three designs, or all alike, leave nothing to rank.
        median, worst: of high / low - 1; the worst is the one that is largest in size.
        row: of the worst, in the study's frame.
    """

    metric: str
    designs: int
    correlation: float | None
    median: float
    worst: float
    row: int


class VerifiedPart(NamedTuple):
    """Designs that are evaluated in one context.

    Attributes:
        context, workload: of the results.
        designs: keys and values.
        label: after what is said of them.
    """

    context: ResultContext
    workload: Workload
    designs: Sequence[tuple[str, dict[str, Any]]]
    label: str = ""


def run_verification(
    study: Study,
    store: Store,
    base: tuple[str, str],
    frame: pd.DataFrame,
    progress: Callable[[int, int], None],
    say: Any,
    elapsed: RunClock,
) -> Verification:
    """Evaluate a study's best designs at the fidelities of `Study.compared`, unless stored.

    Args:
        study: the study.
        store: where results go.
        base: key and text of the design that values change.
        frame: as `dse.execution.result_frame.combine_with_front` has it.
        progress: called with designs done and designs in all, of those that were not stored.
        say: tells the user what workers do.
        elapsed: counts what their processes take.
    """
    wanted = _best_designs(study, frame)
    off = _off_front_designs(study, frame, wanted)
    best = list(_decisive_first(study, frame, wanted).values())
    workload = study.question.workload
    every = [*best, *((key, values) for key, values, _ in off.values())]
    high, streams = study.compared_fidelities[1], other_streams(study)
    parts = [VerifiedPart(study.context_at(fidelity), workload, every) for fidelity in _played_fidelities(study)]
    parts += [
        VerifiedPart(stream_context(stream, high), stream, best, f" (stream {number} of {len(streams) + 1})")
        for number, stream in enumerate(streams, 2)
    ]
    for part in parts:
        _evaluate_left(study, store, base, part, progress, lambda text, label=part.label: say(f"{text}{label}"), elapsed)
    return _compare_fidelities(study, store, frame, wanted, off)


def _evaluate_left(
    study: Study,
    store: Store,
    base: tuple[str, str],
    part: VerifiedPart,
    progress: Callable[[int, int], None],
    say: Any,
    elapsed: RunClock,
) -> None:
    """Evaluate designs of a part that are not stored yet; the other arguments are those of `run_verification`."""
    space, context, fidelity = study.question.space, part.context, part.context.fidelity
    known = store.results(context)
    left = [(design, values, space.design_at(values)) for design, values in dict(part.designs).items() if design not in known]
    if not left:
        return
    evaluate = make_evaluator(part.workload, fidelity)
    # to play an example in every process may take longer than all it warms
    crew = make_workers(study.crew, evaluate, window=study.search.window, designs=len(left), example=[], say=say)
    each = seconds_per_design((known or store.results(study.context_at(fidelity))).values())
    played = list[DesignResult]()
    # where nobody knows what a design takes, the first ones tell, one for each worker, before the others begin
    begin = len(left) if each else min(_at_once(study), len(left))
    say(
        format_remaining_time(study.crew, fidelity, each, len(left), len(left))
        if each
        else unknown_time_text(fidelity, begin, len(left))
    )
    waiting = left[begin:]
    with elapsed.closing_workers(crew) as workers:
        workers.submit(left[:begin])
        while len(played) < len(left):
            progress(len(played), len(left))
            fresh = workers.collect()
            store.append(study.name, context, base, [], fresh)
            played.extend(fresh)
            now, rest = seconds_per_design(played), len(left) - len(played)
            if now and (waiting or has_estimate_changed(study.crew, each, now, rest)):
                each = now
                say(format_remaining_time(study.crew, fidelity, each, rest, len(left)))
            if waiting:
                workers.submit(waiting)
                waiting = []


def load_stored_verification(study: Study, store: Store, frame: pd.DataFrame) -> Verification | None:
    """Stored verification; None if the study verifies nothing, or nothing is stored."""
    if not study.higher or not len(frame):
        return None
    wanted = _best_designs(study, frame)
    verification = _compare_fidelities(study, store, frame, wanted, _off_front_designs(study, frame, wanted))
    return verification if len(verification.after) else None


def _played_fidelities(study: Study) -> tuple[str, ...]:
    """Fidelities at which designs are evaluated: the higher one, and on a part of each mesh both."""
    low, high = study.compared_fidelities
    return (high,) if low == study.fidelity else (low, high)


Chosen = dict[int, tuple[str, dict[str, Any]]]
"""Designs to evaluate once more: by row of the frame, key and values."""


def _at_once(study: Study) -> int:
    """Designs that are evaluated side by side."""
    return 1 if study.crew.kind == "auto" else study.crew.expected_count


def _decisive_first(study: Study, frame: pd.DataFrame, wanted: Chosen) -> Chosen:
    """Those first on which it depends which design is best."""
    rows = list(wanted)
    places = order_for_verification(frame.loc[rows, list(study.objectives)].to_numpy(dtype=float), study.directions)
    return {rows[place]: wanted[rows[place]] for place in places}


def _best_designs(study: Study, frame: pd.DataFrame) -> Chosen:
    """The best designs, best layer first."""
    good = _feasible_rows(study, frame)
    places = nondominated_layers(good[list(study.objectives)].to_numpy(dtype=float), study.directions, study.verify.designs)
    return _chosen_rows(study, good, places)


def _off_front_designs(study: Study, frame: pd.DataFrame, wanted: Chosen) -> dict[int, tuple[str, dict[str, Any], int]]:
    """Designs from all over what is neither on the front nor among the best that are wanted, each with its stratum."""
    good = _feasible_rows(study, frame)
    others = good[~good["front"] & ~good.index.isin(list(wanted))]
    many, strata = study.verify.off_front, study.verify.strata
    scores = dominated_share(good[list(study.objectives)].to_numpy(dtype=float), study.directions)[
        good.index.isin(others.index)
    ]
    places, strata_of = stratified_sample(scores, many, strata, study.seed)
    known = {key for key, _ in wanted.values()}
    designs = zip(_chosen_rows(study, others, places).items(), strata_of, strict=True)
    return {row: (*design, int(stratum)) for (row, design), stratum in designs if design[0] not in known}


def _feasible_rows(study: Study, frame: pd.DataFrame) -> pd.DataFrame:
    """Feasible designs of chips that have the higher fidelity."""
    good = frame[frame["feasible"]].sort_values(list(study.objectives), kind="stable")
    verified = [
        chosen[CHIP_KNOB] for chosen, space in study.question.space.base_spaces if chosen and space.base in study.verified_bases
    ]
    return good[good[CHIP_KNOB].isin(verified)] if CHIP_KNOB in good else good


def _chosen_rows(study: Study, good: pd.DataFrame, places: Array) -> Chosen:
    space, choice = study.question.space, {}
    for row, record in zip(good.index[places], good.iloc[places].to_dict("records"), strict=True):
        values = knob_values(study, record)
        choice[int(row)] = space.key_at(values), values
    return choice


def _compare_fidelities(
    study: Study, store: Store, frame: pd.DataFrame, wanted: Chosen, off: dict[int, tuple[str, dict[str, Any], int]]
) -> Verification:
    low, high = study.compared_fidelities
    played = {fidelity: store.results(study.context_at(fidelity)) for fidelity in _played_fidelities(study)}
    before, after = _rows_at_both(study, played, frame, wanted)
    off_before, off_after = _rows_at_both(study, played, frame, {row: (key, values) for row, (key, values, _) in off.items()})
    every = pd.concat([part for part in (after, off_after) if len(part)]) if len(after) + len(off_after) else after
    best = (
        mark_feasibility_and_front(study, every, DIGITS)["front"].to_numpy(dtype=bool)[len(after) :]
        if len(every)
        else np.zeros(0, dtype=bool)
    )
    strata = np.array([off[int(row)][2] for row in off_before.index], dtype=int)
    front = frame["front"].reindex(before.index).to_numpy(dtype=bool)
    aside = OffFrontSample(len(off), off_before, off_after, strata, best)
    return Verification(
        low,
        high,
        study.part,
        len(wanted),
        before,
        after,
        front,
        aside,
        *_rank_agreements(study, frame, before, after, front, aside),
        load_stream_verdicts(study, store, high, {row: key for row, (key, _) in wanted.items()}),
        study.verify.seeds,
    )


def _rows_at_both(
    study: Study, played: dict[str, dict[str, DesignResult]], frame: pd.DataFrame, wanted: Chosen
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Rows of the designs that are stored at every fidelity that is played, at the lower and at the higher one."""
    low, high = study.compared_fidelities
    first = {design: (row, values) for row, (design, values) in reversed(wanted.items())}
    both = [
        (*first[design], design)
        for design in dict.fromkeys(design for design, _ in wanted.values())
        if all(design in known for known in played.values())
    ]
    rows = pd.Index([row for row, _, _ in both], dtype=int)

    def build_frame_at(fidelity: str) -> pd.DataFrame:
        if fidelity not in played:
            return mark_feasibility_and_front(study, frame.loc[rows], DIGITS)
        answered = {place: (Ask(place, values), played[fidelity][design]) for place, (_, values, design) in enumerate(both)}
        found_frame = search_frame(study, answered)
        found_frame = found_frame.set_index(rows[found_frame[SEARCH_ORDER].to_numpy(dtype=int)]).drop(
            columns=[KEY, SEARCH_ORDER]
        )
        found_frame.insert(0, DESIGN, frame.loc[found_frame.index, DESIGN])
        return mark_feasibility_and_front(study, found_frame, DIGITS)

    return build_frame_at(low), build_frame_at(high)


def _rank_agreements(
    study: Study, frame: pd.DataFrame, before: pd.DataFrame, after: pd.DataFrame, front: Array, off: OffFrontSample
) -> tuple[tuple[RankAgreement, ...], tuple[WinnerLead, ...], tuple[str, ...], tuple[str, ...]]:
    """How alike the two rank by each objective, who leads by how much, what they share, and what each gives in its own way."""
    rows = np.array([*before.index, *off.before.index], dtype=int)
    is_front = np.concatenate([front, np.zeros(len(off.before), dtype=bool)])
    aside = np.concatenate([np.zeros(len(before), dtype=bool), np.ones(len(off.before), dtype=bool)])
    agreements, decided = [], []
    for name, direction in study.objectives.items():
        whole = frame.loc[rows, name].to_numpy(dtype=float)
        low, high = (
            np.concatenate([part[name].to_numpy(dtype=float) for part in parts])
            for parts in ((before, off.before), (after, off.after))
        )
        both = np.isfinite(low) & np.isfinite(high) & (low != 0) & (high != 0)
        if both.any():
            values = round_significant(low[both], DIGITS), round_significant(high[both], DIGITS)
            agreements.append(rank_agreement(name, *values, rows[both], is_front[both], aside[both]))
        both &= np.isfinite(whole) & (whole > 0) & (low > 0) & (high > 0)
        full, below, above = (round_significant(values[both], DIGITS) for values in (whole, low, high))
        spread = agreements[-1].spread if agreements and agreements[-1].metric == name else 0.0
        lead = winner_lead(name, direction, full, below, above, rows[both].tolist(), spread)
        if lead and (below != above).any():  # what the two share decides nothing
            decided.append(lead)
    readers = tuple(word.partition(SUBMESH_MARK)[0] for word in study.compared_fidelities)
    # what a package gives in its own way it does not say
    parts = [
        compare_fidelities(software_of(base.mapping), *readers) for base in study.verified_bases if {*readers} <= {*FIDELITIES}
    ]
    shared, own = (list(dict.fromkeys(part for both in parts for part in both[place])) for place in (0, 1))
    return tuple(agreements), tuple(decided), tuple(part for part in shared if part not in own), tuple(own)


def _metric_shift(metric: str, before: pd.Series, after: pd.Series) -> MetricShift:
    from scipy.stats import kendalltau

    low, high = before.to_numpy(dtype=float), after.to_numpy(dtype=float)
    both = np.flatnonzero(np.isfinite(low) & np.isfinite(high) & (low != 0))
    if not len(both):
        return MetricShift(metric, 0, None, 0.0, 0.0, -1)
    low, high = round_significant(low[both], DIGITS), round_significant(high[both], DIGITS)
    change = high / low - 1
    worst = int(np.abs(change).argmax())
    ranked = len(both) > 2 and _has_variation(low) and _has_variation(high)
    correlation = float(kendalltau(low, high).statistic) if ranked else None
    row = int(before.index[both[worst]])
    return MetricShift(metric, len(both), correlation, float(np.median(change)), float(change[worst]), row)


def _has_variation(values: Array) -> bool:
    return bool((values != values[0]).any())
