"""Robustness of a study's front: whether designs stay on it if constants have other values.

All designs are evaluated with the same draws of the constants (`dse.accuracy.constant_ranges`), and each draw has a front of
its own. Beside the front's designs those next to it take part, which a draw may bring to the front. Errors of the model beside
its constants are not in the draws; between kinds of chips `dse.report.kind_order` has them.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from math import inf
from typing import Any

import numpy as np

from dse.accuracy.constant_ranges import UncertainConstant
from dse.config.metric_expressions import evaluate_with_derived
from dse.explanations.neighbours import StudyGoal, is_evaluated_alone
from dse.search.pareto import convert_to_minimisation
from dse.search.samplers import generate_sobol_points
from dse.space.array_math import Array
from dse.space.design import Designs
from dse.space.fields import iterate_leaves, replace_leaves

TIE = 1e-9
"""Relative difference of two values up to which they are the same: what rounding leaves."""

ROWS_AT_ONCE = 2048
"""Designs times draws that are evaluated together."""

NEAR = 0.01
"""Share by which all objectives of another design may be better, and a constraint violated, of a design near the front."""

CANDIDATES, MAX_SUSPECTS = 4, 32
"""Constants for each design, those that go most with its margin over the draws, that are then moved alone; and most in all."""

DRAWS_TIME = 0.7
"""Share of the time that draws may take; the rest is for constants that are moved alone."""

NAMED = 3
"""Constants that are named for each design."""

OUT_OF_REACH = -1.0
"""Margin of a design that has no value: it violates a limit or a constraint by its whole size, or cannot be evaluated."""


@dataclass(frozen=True)
class ContestedDesigns:
    """Designs that compete for a front: those of the front first, then those next to it.

    Attributes:
        designs: stacked, in this order.
        chips: name of the chip of each; an empty string in a study of one chip.
        front: how many are of the front.
    """

    designs: Designs
    chips: tuple[str, ...]
    front: int


@dataclass(frozen=True, slots=True)
class TurningConstant:
    """Effect of one constant on one design's place on the front, moved alone to both ends of its range.

    Attributes:
        constant: with its range.
        drop: most that the design's margin falls at an end, of objectives. [-]
        turns_at: factors of the value, of the ends at which the design is off the front; empty if it takes others too.
    """

    constant: UncertainConstant
    drop: float
    turns_at: tuple[float, ...]


@dataclass(frozen=True)
class Robustness:
    """Robustness of the designs of a front over draws of constants.

    Attributes:
        shares: of the draws in which each is on the front, shape (front,). [-]
        near_shares: likewise, in which it is on the front or within `NEAR` of it. [-]
        margins: by how much each would have to be worse in all objectives to leave the front, at the constants as they are,
            shape (front,); 0 or below where another one beats or equals it. [-]
        turning: of each the constants that turn it most, at most `NAMED`, largest effect first.
        draws: that were evaluated.
        left: constants that were not moved alone, for lack of time.
        constants: that were moved.
        fidelity: of the evaluations.
        rivals: designs next to the front that took part.
    """

    shares: Array
    near_shares: Array
    margins: Array
    turning: tuple[tuple[TurningConstant, ...], ...]
    draws: int
    left: int
    constants: tuple[UncertainConstant, ...]
    fidelity: str
    rivals: int


Scores = Array
"""Objectives made small, and last the least slack of limits and constraints; shape (draws, designs, objectives + 1)."""

ScoreKeeper = Callable[[Array, Callable[[], Scores]], Scores]
"""Gives the scores at some factors: kept ones, or those that the function computes."""


def evaluate_always(factors: Array, compute: Callable[[], Scores]) -> Scores:
    """Scores that nobody keeps."""
    return compute()


def draw_factors(constants: Sequence[UncertainConstant], draws: int, seed: int) -> Array:
    """Factors of constants in each draw, of one Sobol sequence, log-uniform in each range.

    Shape (draws, constants).
    """
    if not constants:
        return np.ones((draws, 0))
    even = 1 << max(draws - 1, 0).bit_length()  # a power of two, at which the sequence is balanced
    unit = generate_sobol_points(len(constants), 0, even, seed)[:draws]
    return np.stack([constant.factor_at(unit[:, place]) for place, constant in enumerate(constants)], axis=1)


def measure_robustness(
    contest: ContestedDesigns,
    constants: Sequence[UncertainConstant],
    goal: StudyGoal,
    *,
    draws: int,
    seed: int,
    seconds: float = inf,
    keep: ScoreKeeper = evaluate_always,
    report_progress: Callable[[int, int], None] = lambda done, total: None,
) -> Robustness:
    """Share of draws in which designs stay on the front, and the constants that turn each.

    A constant's effect is that of moving it alone to each end of its range. Moved alone are those that go most with the
    margin of a design over the draws, by the correlation of ranks.

    Args:
        contest: the front and the designs next to it.
        constants: with their ranges; a constant moves for all chips that share it.
        goal: objectives and constraints, and the fidelity of evaluations.
        draws: of all constants together.
        seed: of the draws.
        seconds: of CPU time that evaluations may take; what has begun ends.
        keep: where scores may be known already.
        report_progress: takes rows that are evaluated, and of how many.
    """
    began, size = time.process_time(), len(contest.designs)
    nominal = evaluate_scores(contest, constants, np.ones((1, len(constants))), goal, keep=keep)
    report_progress(size, (1 + draws) * size)
    scores = evaluate_scores(
        contest,
        constants,
        draw_factors(constants, draws, seed),
        goal,
        until=began + DRAWS_TIME * seconds,
        keep=keep,
        report_rows=lambda done: report_progress(size + done, (1 + draws) * size),
    )
    on_front = np.array([front_members(score)[: contest.front] for score in scores])
    margins = np.array([front_margins(score, contest.front) for score in scores])
    suspects = _suspected_constants(draw_factors(constants, draws, seed)[: len(scores)], margins)
    effects: list[tuple[int, Scores]] = []
    groups, rows = _suspects_by_chips(contest, constants, suspects), (1 + len(scores)) * size
    total = rows + sum(2 * len(places) * len(members) for members, places in groups)
    for members, places in groups:
        part, ends = _part_of(contest, members), np.concatenate([_alone_at_ends(constants, place) for place in places])
        alone = evaluate_scores(part, constants, ends, goal, until=began + seconds, keep=keep)
        for number, place in enumerate(places[: len(alone) // 2]):
            moved = np.repeat(nominal, 2, axis=0)
            moved[:, members] = alone[2 * number : 2 * number + 2]
            effects.append((place, moved))
        rows += len(alone) * len(members)
        report_progress(rows, total)
    base_margins = front_margins(nominal[0], contest.front)
    return Robustness(
        on_front.mean(axis=0),
        (on_front | (margins >= -NEAR)).mean(axis=0),
        base_margins,
        _turning_constants(constants, effects, base_margins),
        len(scores),
        sum(len(places) for _, places in groups) - len(effects),
        tuple(constants),
        goal.fidelity,
        size - contest.front,
    )


def evaluate_scores(
    contest: ContestedDesigns,
    constants: Sequence[UncertainConstant],
    factors: Array,
    goal: StudyGoal,
    *,
    until: float = inf,
    keep: ScoreKeeper = evaluate_always,
    report_rows: Callable[[int], None] = lambda done: None,
) -> Scores:
    """Scores of designs with constants at some factors, batch after batch.

    Args:
        contest: the designs.
        constants, factors: of each draw, shape (draws, constants).
        goal: of the evaluation.
        until: CPU time of this process after which no batch but the first begins. [s]
        keep: where scores may be known already.
        report_rows: takes how many rows are evaluated.
    """
    size = len(contest.designs)
    alone = any(is_evaluated_alone(design, goal) for _, design in contest.designs.groups[:1])
    step = 1 if alone else max(1, ROWS_AT_ONCE // max(size, 1))
    parts = [np.zeros((0, size, len(goal.objectives) + 1))]
    for start in range(0, len(factors), step):
        if start and time.process_time() > until:
            break
        batch = factors[start : start + step]
        parts.append(keep(batch, partial(_evaluate_batch, contest, constants, batch, goal)))
        report_rows(min(start + step, len(factors)) * size)
    return np.concatenate(parts)


def _evaluate_batch(
    contest: ContestedDesigns, constants: Sequence[UncertainConstant], factors: Array, goal: StudyGoal
) -> Scores:
    """Scores of all designs at all of some factors, shape (draws, designs, objectives + 1)."""
    draws, size = len(factors), len(contest.designs)
    stacked = apply_factors(contest, constants, factors)
    outcomes = evaluate_with_derived(stacked, goal.workload, goal.defined, fidelity=goal.fidelity, metrics=goal.metrics)
    rows = draws * size
    names = list(goal.objectives)
    columns = {name: np.asarray(outcomes.columns[name], dtype=float) for name in names if name in outcomes.columns}
    values = np.stack([columns.get(name, np.full(rows, np.nan)) for name in names], axis=-1)
    slack = np.where(outcomes.feasible, np.inf, -outcomes.excess)
    for bound in goal.bounds:
        metric = np.asarray(outcomes.columns[bound.metric], dtype=float) if bound.metric in outcomes.columns else None
        if metric is not None:  # a case that lacks the metric keeps the bound, as in a study
            slack = np.minimum(slack, np.nan_to_num(-np.asarray(bound.excess(metric), dtype=float), nan=np.inf))
    slack[list(outcomes.refused)] = -np.inf
    small = convert_to_minimisation(values, list(goal.objectives.values()))
    return np.concatenate([small, slack[:, None]], axis=-1).reshape(draws, size, -1)


def apply_factors(contest: ContestedDesigns, constants: Sequence[UncertainConstant], factors: Array) -> Designs:
    """All designs in every draw, as one stack: row ``draw * designs + design``.

    Args:
        contest: the designs.
        constants, factors: shape (draws, constants).
    """
    draws, size = len(factors), len(contest.designs)
    groups = []
    for rows, design in contest.designs.groups:
        chips, count = np.array([contest.chips[row] for row in rows]), len(rows)
        every = (np.arange(draws)[:, None] * size + np.asarray(rows)[None, :]).reshape(-1)
        leaves = {address: value for address, value, _ in iterate_leaves(design)}
        changes: dict[str, Any] = {
            address: np.tile(value, draws) for address, value in leaves.items() if isinstance(value, np.ndarray)
        }
        for place, constant in enumerate(constants):
            if constant.address in leaves and (shares := np.isin(chips, constant.chips)).any():
                value = np.broadcast_to(leaves[constant.address], count)
                factor = np.where(shares[None, :], factors[:, place, None], 1.0)
                changes[constant.address] = (value * factor).reshape(-1)
        groups.append((every, replace_leaves(design, _without_constant_columns(changes))))
    return Designs(draws * size, tuple(groups))


def _without_constant_columns(changes: dict[str, Any]) -> dict[str, Any]:
    """Columns of which all rows are equal as one number, as `dse.space.design.stack_designs` has them."""
    return {
        address: float(column[0]) if len(column) and (column == column[0]).all() else column
        for address, column in changes.items()
    }


def front_members(score: Array) -> Array:
    """Mask of designs that keep all limits and constraints, and that no other such design dominates.

    Values within `TIE` of each other are equal; equal designs share the front. Shape (designs,).

    Args:
        score: of one draw, shape (designs, objectives + 1).

    >>> front_members(np.array([[1.0, 2.0, 0.1], [1.0, 2.0, 0.1], [2.0, 2.0, 0.1], [0.5, 0.5, -0.1]])).tolist()
    [True, True, False, False]
    """
    good = _usable(score)
    rows = np.flatnonzero(good)
    leads = _leads(score[rows, :-1], score[rows, :-1])
    dominated = np.asarray((leads <= TIE).all(axis=-1) & (leads < -TIE).any(axis=-1))
    beaten = dominated.any(axis=1)
    good[rows] = ~beaten
    return good


def front_margins(score: Array, front: int) -> Array:
    """Margin of the first designs: how much worse each may get before another one beats it.

    Worse in all objectives at once. The slack of its limits and constraints, relative to them, counts too, where it is less.
    Differences of two values are relative to the larger one.

    Args:
        score: of one draw, shape (designs, objectives + 1).
        front: designs that are asked about.

    Returns:
        Shape (front,); below 0 where a design beats it, or a constraint is violated. [-]

    >>> front_margins(np.array([[1.0, 4.0, 0.5], [2.0, 1.0, 0.5], [2.0, 2.0, 0.5]]), 3).tolist()
    [0.5, 0.5, 0.0]
    """
    others = np.flatnonzero(_usable(score))
    leads = _leads(score[:front, :-1], score[others, :-1]).max(axis=-1, initial=-np.inf)
    leads[np.arange(front)[:, None] == others[None, :]] = np.inf
    margins = np.minimum(leads.min(axis=1, initial=np.inf), score[:front, -1])
    return np.asarray(np.clip(np.nan_to_num(margins, nan=OUT_OF_REACH), OUT_OF_REACH, -OUT_OF_REACH))


def _usable(score: Array) -> Array:
    return np.asarray(np.isfinite(score[:, :-1]).all(axis=1) & (score[:, -1] >= 0))


def _leads(mine: Array, others: Array) -> Array:
    """By how much each of some designs is better than each other one, relative; shape (designs, others, objectives)."""
    own, theirs = mine[:, None, :], others[None, :, :]
    scale = np.maximum(np.maximum(np.abs(own), np.abs(theirs)), 1e-300)
    return np.asarray((theirs - own) / scale)


def _suspected_constants(factors: Array, margins: Array) -> list[int]:
    """Constants that go most with the margin of some design over the draws, by place."""
    if len(factors) < 3 or not factors.shape[1]:
        return list(range(factors.shape[1]))
    moved, moving = _standard_ranks(factors), _standard_ranks(margins)
    strength = np.abs(moved.T @ moving)
    best = np.argsort(-strength, axis=0, kind="stable")[:CANDIDATES]
    suspects = {int(place) for place in best[:, moving.any(axis=0)].ravel()}
    return sorted(sorted(suspects, key=lambda place: -float(strength[place].max()))[:MAX_SUSPECTS])


def _suspects_by_chips(
    contest: ContestedDesigns, constants: Sequence[UncertainConstant], suspects: Sequence[int]
) -> list[tuple[Array, list[int]]]:
    """Constants by the designs that they move: rows of these, and places of the constants."""
    groups: dict[bytes, tuple[Array, list[int]]] = {}
    for place in suspects:
        members = np.flatnonzero(np.isin(np.array(contest.chips), constants[place].chips))
        if len(members):
            groups.setdefault(members.tobytes(), (members, []))[1].append(place)
    return list(groups.values())


def _part_of(contest: ContestedDesigns, members: Array) -> ContestedDesigns:
    """Some designs of a contest, by themselves."""
    groups = []
    for rows, design in contest.designs.groups:
        kept = np.flatnonzero(np.isin(rows, members))
        if not len(kept):
            continue
        columns = {
            address: value[kept] for address, value, _ in iterate_leaves(design) if isinstance(value, np.ndarray) and value.ndim
        }
        groups.append((np.searchsorted(members, np.asarray(rows)[kept]), replace_leaves(design, columns)))
    chips = tuple(contest.chips[row] for row in members)
    return ContestedDesigns(Designs(len(members), tuple(groups)), chips, int((members < contest.front).sum()))


def _standard_ranks(columns: Array) -> Array:
    """Ranks in each column, of mean 0 and length 1; zeros where all are equal."""
    ranks = np.argsort(np.argsort(columns, axis=0, kind="stable"), axis=0, kind="stable").astype(float)
    ranks[:, np.ptp(columns, axis=0) <= TIE] = 0.0
    ranks -= ranks.mean(axis=0)
    return np.asarray(ranks / np.maximum(np.linalg.norm(ranks, axis=0), 1e-300))


def _alone_at_ends(constants: Sequence[UncertainConstant], place: int) -> Array:
    """Factors with one constant at the low and the high end of its range, all others as they are; shape (2, constants)."""
    alone = np.ones((2, len(constants)))
    alone[:, place] = constants[place].low, constants[place].high
    return alone


def _turning_constants(
    constants: Sequence[UncertainConstant], effects: Sequence[tuple[int, Scores]], base_margins: Array
) -> tuple[tuple[TurningConstant, ...], ...]:
    """Of each design of the front the constants whose ends lower its margin most, those first that turn it alone.

    Args:
        constants: all.
        effects: places of constants, with the scores at the low and the high end of each.
        base_margins: of the front with the constants as they are.
    """
    front = len(base_margins)
    turning: list[list[TurningConstant]] = [[] for _ in range(front)]
    for place, scores in effects:
        constant = constants[place]
        stays = [front_members(score)[:front] for score in scores]
        drops = base_margins - np.min([front_margins(score, front) for score in scores], axis=0)
        for row in range(front):
            ends = tuple(end for end, stay in zip((constant.low, constant.high), stays, strict=True) if not stay[row])
            if ends or drops[row] > TIE:
                turning[row].append(TurningConstant(constant, max(float(drops[row]), 0.0), ends))
    return tuple(tuple(sorted(several, key=lambda turns: (not turns.turns_at, -turns.drop))[:NAMED]) for several in turning)
