"""A study's best designs evaluated once more, at a higher fidelity, and how far the two agree.

The front comes first, then layer by layer what is next to it, as the best at one fidelity may be second at another. Results
are stored as any others, under their own fidelity; a design that is stored is not evaluated again. Meshes that are too large
to be played flit by flit are compared on a part: both readers play the same part there.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from dse.actors import hired
from dse.evaluators.account.metrics import METRICS
from dse.frame import judged, rounded, search_frame, values_of
from dse.pareto import layers
from dse.provenance import Clock
from dse.samplers import Ask
from dse.space.chips import CHIP
from dse.space.elementwise import Array
from dse.store import Store
from dse.study import Study
from dse.workers import evaluator

DIGITS = 9
"""Digits of a metric that count where designs are ranked: what differs beyond is the rounding of sums."""


@dataclass(frozen=True)
class Verified:
    """What was evaluated at both fidelities.

    Attributes:
        low, high: the fidelities.
        part: on which part of their meshes designs are compared, and what becomes of the workload; "" where on all of it.
        wanted: designs to verify; those of `before` and `after` are the ones that are stored.
        before: their rows of the study's frame, with ``front`` as it is among them; the study's front comes first.
        after: the same rows as they are at the higher fidelity.
    """

    low: str
    high: str
    part: str
    wanted: int
    before: pd.DataFrame
    after: pd.DataFrame

    def moves(self) -> pd.Series:
        """Of each design: "stays" on the front, "falls off" it, "comes on" to it, or is "behind" at both fidelities.

        On a part of their meshes designs are "compared": a front there is none of theirs.
        """
        if self.part:
            return pd.Series("compared", self.before.index, dtype=object)
        names = {(True, True): "stays", (True, False): "falls off", (False, True): "comes on", (False, False): "behind"}
        pairs = zip(self.before["front"], self.after["front"], strict=True)
        return pd.Series([names[bool(was), bool(now)] for was, now in pairs], self.before.index, dtype=object)

    def shown(self, count: int) -> list[int]:
        """Places of the designs to tell people of: those that move; on a part of their meshes, the first ones."""
        moves = self.moves()
        return list(np.flatnonzero(moves.isin(("falls off", "comes on", "compared")))[:count])

    def shifts(self) -> "list[Shift]":
        """Of every metric that both have, how far it moves."""
        found = [_shift(name, self.before[name], self.after[name]) for name in METRICS if name in self.before]
        return [shift for shift in found if shift.designs]


@dataclass(frozen=True, slots=True)
class Shift:
    """How far a metric moves from one fidelity to a higher one.

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


def verify(
    asked: Study,
    store: Store,
    base: tuple[str, str],
    frame: pd.DataFrame,
    progress: Callable[[int, int], None],
    say: Any,
    elapsed: Clock,
) -> Verified:
    """Evaluates what is not stored yet of a study's best designs, at the fidelities of `Study.compared`.

    Args:
        asked: the study.
        store: where results go.
        base: key and text of the design that values change.
        frame: as `dse.frame.with_front` has it.
        progress: called with designs done and designs in all, of those that were not stored.
        say: tells the user what workers do.
        elapsed: counts what their processes take.
    """
    space, wanted = asked.question.space, _wanted(asked, frame)
    for fidelity in _played(asked):
        context = asked.context_at(fidelity)
        known = store.results(context)
        left = [(design, values, space.at(values)) for design, values in wanted.values() if design not in known]
        if not left:
            continue
        evaluate = evaluator(asked.question.workload, fidelity)
        # to play an example in every process may take longer than all it warms
        crew = hired(asked.crew, evaluate, window=asked.search["window"], designs=len(left), example=[], say=say)
        with elapsed.hired(crew) as workers:
            workers.submit(left)
            done = 0
            while done < len(left):
                progress(done, len(left))
                fresh = workers.collect()
                store.append(asked.name, context, base, [], fresh)
                done += len(fresh)
    return _compared(asked, store, frame, wanted)


def verified(asked: Study, store: Store, frame: pd.DataFrame) -> Verified | None:
    """What is stored of it; None where the study verifies nothing, or nothing is stored."""
    if not asked.higher or not len(frame):
        return None
    found = _compared(asked, store, frame, _wanted(asked, frame))
    return found if len(found.after) else None


def _played(asked: Study) -> tuple[str, ...]:
    """Fidelities at which designs are evaluated: the higher one, and on a part of each mesh both."""
    low, high = asked.compared
    return (high,) if low == asked.fidelity else (low, high)


def _wanted(asked: Study, frame: pd.DataFrame) -> dict[int, tuple[str, dict[str, Any]]]:
    """By row of the frame, key and values of the designs to verify, best layer first."""
    names = list(asked.objectives)
    good = frame[frame["feasible"]].sort_values(names, kind="stable")
    verified = [chosen[CHIP] for chosen, space in asked.question.space.each if chosen and space.base in asked.verified_bases]
    good = good[good[CHIP].isin(verified)] if CHIP in good else good
    places = layers(good[names].to_numpy(dtype=float), asked.directions, asked.verify["designs"])
    space, wanted = asked.question.space, {}
    for row, record in zip(good.index[places], good.iloc[places].to_dict("records"), strict=True):
        values = values_of(asked, record)
        wanted[int(row)] = space.key_at(values), values
    return wanted


def _compared(asked: Study, store: Store, frame: pd.DataFrame, wanted: dict[int, tuple[str, dict[str, Any]]]) -> Verified:
    low, high = asked.compared
    played = {fidelity: store.results(asked.context_at(fidelity)) for fidelity in _played(asked)}
    first = {design: (row, values) for row, (design, values) in reversed(wanted.items())}
    both = [
        (*first[design], design)
        for design in dict.fromkeys(design for design, _ in wanted.values())
        if all(design in known for known in played.values())
    ]
    rows = pd.Index([row for row, _, _ in both], dtype=int)

    def at(fidelity: str) -> pd.DataFrame:
        if fidelity not in played:
            return judged(asked, frame.loc[rows], DIGITS)
        answered = {place: (Ask(place, values), played[fidelity][design]) for place, (_, values, design) in enumerate(both)}
        found = search_frame(asked, answered)
        return judged(asked, found.drop(columns="number").set_index(rows[found["number"].to_numpy(dtype=int)]), DIGITS)

    return Verified(low, high, asked.part, len(wanted), at(low), at(high))


def _shift(metric: str, before: pd.Series, after: pd.Series) -> Shift:
    from scipy.stats import kendalltau

    low, high = before.to_numpy(dtype=float), after.to_numpy(dtype=float)
    both = np.flatnonzero(np.isfinite(low) & np.isfinite(high) & (low != 0))
    if not len(both):
        return Shift(metric, 0, None, 0.0, 0.0, -1)
    low, high = rounded(low[both], DIGITS), rounded(high[both], DIGITS)
    change = high / low - 1
    worst = int(np.abs(change).argmax())
    ranked = len(both) > 2 and _varies(low) and _varies(high)
    correlation = float(kendalltau(low, high).statistic) if ranked else None
    row = int(before.index[both[worst]])
    return Shift(metric, len(both), correlation, float(np.median(change)), float(change[worst]), row)


def _varies(values: Array) -> bool:
    return bool((values != values[0]).any())
