"""Acquisition of designs by expected hypervolume gain, under Gaussian processes.

The processes are of the objectives, or of the parts that these are composed of.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np
from scipy.special import ndtr
from threadpoolctl import ThreadpoolController

from dse.search.composed_objectives import CONSTANT, PartResults, SummedParts, Targets, choose_parts, make_targets
from dse.search.design_encoding import DesignEncoder
from dse.search.gaussian_process import LengthScales, expected_scales, fit_scales, predict
from dse.search.pareto import front_mask
from dse.space.array_math import Array

LEARN = 256
"""Results that a model is made of: three quarters are the best ones, the others a sample of the rest."""

FIT = 96
"""Results that its length scales are fitted on."""

FEW = 4
"""Results that weigh as much as the assumption that both fidelities differ by a factor."""

RAYS = 48
"""Directions along which a gain in hypervolume is measured."""

BEYOND = (0.1, 1.0)
"""Of its extent that the expected front's hypervolume counts beyond its worst values, so that its ends count: from, and to."""

DRAWS = np.array([0.0, -1.3, -0.4, 0.4, 1.3])
"""Standard deviations from the mean at which a prediction is looked at; the first stands for the design once it is chosen."""

VARIANCE_SCALES = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0)
"""Times that standard deviations count, more and more until a design is worth being asked for. A model without anything left to
gain is wrong elsewhere: knobs that do not matter near the front may matter farther off."""

MIN_GAIN = 1e-3
"""What the best of designs is expected to gain for that, as a share of the hypervolume held."""


THREADS = ThreadpoolController()
"""With one thread, sums have one order whatever the machine, and matrices as small as these take less time than with more."""


@dataclass(frozen=True)
class KnownResults:
    """Results of a search so far, in the order of asks.

    Attributes:
        rows: places, shape (designs, knobs).
        objectives: to be made small, shape (designs, objectives).
        excess: by how much limits and constraints are broken in sum, 0 where all hold; shape (designs,).
        front: places in these arrays of the designs that no other beats.
        out, beyond: rows of designs that break limits and have no objectives, shape (others, knobs), and by how much.
        out_after: how many results were known when each of these was told, shape (others,).
    """

    rows: Array
    objectives: Array
    excess: Array
    front: Sequence[int]
    out: Array = field(default_factory=lambda: np.zeros((0, 0)))
    beyond: Array = field(default_factory=lambda: np.zeros(0))
    out_after: Array = field(default_factory=lambda: np.zeros(0))

    def take_first(self, count: int) -> "KnownResults":
        """The same after the first results, with the front that they had."""
        y, excess = self.objectives[:count], self.excess[:count]
        least = np.flatnonzero(excess == excess.min())
        front = least[front_mask(y[least], ["min"] * y.shape[1])].tolist()
        before = self.out_after <= count if len(self.out_after) else np.ones(len(self.out), dtype=bool)
        return KnownResults(self.rows[:count], y, excess, front, self.out[before], self.beyond[before])


@dataclass(frozen=True)
class LowFidelityResults:
    """Low-fidelity results of some designs.

    Attributes:
        objectives: to be made small, shape (designs, objectives).
        excess: as of `Known`, shape (designs,).
    """

    objectives: Array
    excess: Array

    def take_first(self, count: int) -> "LowFidelityResults":
        """The same of the first designs alone."""
        return LowFidelityResults(self.objectives[:count], self.excess[:count])


@dataclass(frozen=True)
class LowFidelityPredictions:
    """Low-fidelity results of the known designs, and of the candidates.

    Results of the higher fidelity are then modelled as a multiple of the lower one's and a discrepancy, on the scale of
    `shape`: y = rho y' + d [kennedy2000], where d is a Gaussian process on the knobs and on y' ([perdikaris2017] has y' among
    its inputs). Designs at which the two agree leave nothing to learn, and little doubt.
    """

    known: LowFidelityResults
    at: LowFidelityResults


class HypervolumeAcquisition:
    """Acquisition by hypervolume gain, from Gaussian processes that are refitted as results double.

    Each objective, or each part that objectives are composed of, has a process, and the excess over limits has one. They are
    fitted twice a doubling of the results.

    Args:
        places: of the space.
        rounds: directions along which a gain is measured, and how many designs beside those that are asked go on to the next.
        beyond: as `BEYOND`; each ask takes another share, even in its log.
    """

    def __init__(
        self, places: DesignEncoder, rounds: Sequence[tuple[int, int]] = ((RAYS, 0),), beyond: tuple[float, float] = BEYOND
    ) -> None:
        self._places = places
        self._rounds = rounds
        self._beyond = np.log10(beyond)
        self._level = 0
        self._fitted: list[str] = []
        self._scales: list[LengthScales | None] = []

    def choose_best(
        self,
        near: Array,
        waiting: Array,
        known: KnownResults,
        count: int,
        rng: np.random.Generator,
        below: LowFidelityPredictions | None = None,
        parts: PartResults | None = None,
    ) -> Array:
        """Candidate rows that promise most, each as if those before it came out as predicted.

        The hypervolume of a set is the mean over rays from a reference point of (length of the ray within it) to the power of
        the number of objectives, up to a factor [deng2019]; a gain is thus a few maxima.

        Args:
            near: rows to choose from.
            waiting: rows whose results are under way.
            known: results.
            count: how many to choose.
            rng: of this ask.
            below: of a lower fidelity, where there is one: what it says of known designs, and of `near` and `waiting`.
            parts: what objectives are composed of, where that is known; with `below`, the lower fidelity takes their place.
        """
        at = np.concatenate([near, waiting])
        with THREADS.limit(limits=1, user_api="blas"):
            means, spreads = self._predict_targets(known, at, below, parts)
        objectives = known.objectives.shape[1]
        likely = ndtr(-means[:, objectives] / spreads[:, objectives]) if means.shape[1] > objectives else np.ones(len(at))
        if known.excess.min() > 0:
            return near[np.argsort(-likely[: len(near)], kind="stable")[:count]]
        likely = np.where(likely > 0.5, likely, 1e-9 * likely)  # many that will hardly do are together no good bet
        held = known.objectives[known.front]
        outward = [even_scale(column)[1] for column in known.objectives.T]

        def draw_objectives(doubt: float) -> Array:
            """What designs may be worth, shape (draws, designs, objectives)."""
            seen = means[:, :objectives] + DRAWS[:, None, None] * doubt * spreads[:, :objectives]
            return np.stack([back(seen[..., j]) for j, back in enumerate(outward)], axis=-1)

        points = draw_objectives(1.0)
        low, reach = _volume_corners(known, points[0, likely > 0.5], 10 ** rng.uniform(*self._beyond))
        sure = points[0, len(near) :][likely[len(near) :] > 0.5]
        count = min(count, len(near))
        for doubt in VARIANCE_SCALES if below is None else VARIANCE_SCALES[:1]:  # a lower fidelity says where to look
            points = draw_objectives(doubt)
            luckiest = points[DRAWS.argmin(), : len(near)]  # what gains nothing even so gains nothing
            may = np.flatnonzero((luckiest < reach).all(axis=1) & ~(held[:, None] <= luckiest).all(axis=-1).any(axis=0))
            for many, keep in self._rounds:
                rays = np.abs(rng.normal(size=(many, objectives)))
                rays *= (reach - low) / np.linalg.norm(rays, axis=1, keepdims=True)
                within = partial(_ray_lengths, reach, rays)
                top = np.maximum(within(held).max(axis=0), within(sure).max(axis=0, initial=0.0))
                volumes, gain = within(points[:, may]), np.zeros(len(near))  # (draws, designs, rays)
                gain[may] = np.maximum(volumes[1:] - top, 0.0).mean(axis=(0, 2)) * likely[may]
                if keep:
                    may = np.sort(may[np.argsort(-gain[may], kind="stable")[: keep + count]])
            if gain.max() >= MIN_GAIN * top.mean():
                break
        chosen: list[int] = []
        while len(chosen) < count:
            chosen.append(int(gain.argmax()))
            top = np.maximum(top, within(points[0, chosen[-1]]))
            gain[may] = np.maximum(volumes[1:] - top, 0.0).mean(axis=(0, 2)) * likely[may]
            gain[chosen] = -1.0
        return near[chosen]

    def _predict_targets(
        self, known: KnownResults, at: Array, below: LowFidelityPredictions | None, parts: PartResults | None = None
    ) -> tuple[Array, Array]:
        """Means and standard deviations of the objectives, and of the excess over limits where any is in doubt.

        Shape (designs, objectives or one more).
        """
        doubtful = bool(known.excess.any() or len(known.out)) or (below is not None and bool(below.known.excess.any()))
        level, parts = _level_below(len(known.rows)), parts if below is None else None
        chosen = choose_parts(None if parts is None else parts.take_first(level))
        made, targets = self._make_targets(known, doubtful, parts, chosen)
        names, numbers = [*made.names, *(["limits"] if doubtful else [])], self._places.numbers if below is None else None
        if (level, names) != (self._level, self._fitted):
            # of the results so far those that a search which is resumed later has as well
            first, low = known.take_first(level), None if below is None else replace(below, known=below.known.take_first(level))
            _, early = self._make_targets(first, doubtful, None if parts is None else parts.take_first(level), chosen)
            if early.shape[1] != targets.shape[1]:  # something is known of the first results alone
                return self._predict_targets(known, at, below)
            _, x, learned, _ = self._learn_targets(first, early, FIT, low)
            groups = self._feature_groups(x)
            self._level, self._fitted = level, names
            self._scales = [
                fit_scales(x, groups, _standardise(target)[0], numbers) if np.ptp(target) > CONSTANT else None
                for target in learned.T[: len(made.names)]
            ]
            if doubtful:
                features, steps = self._doubtful_rows(first, x, learned[:, -1], FIT)
                self._scales.append(fit_scales(features, groups, _standardise(steps)[0]))
        scaled, x, learned, rho = self._learn_targets(known, targets, LEARN, below)
        features, groups = self._places.compute_features(at), self._feature_groups(x)
        trend = np.zeros((len(at), learned.shape[1]))
        if below is not None:
            features = np.hstack([features, scaled(below.at.objectives)])
            trend = rho * _process_targets(known, below.at.objectives, below.at.excess, doubtful)
        means, spreads = np.zeros_like(trend), np.zeros_like(trend)
        for place, (scales, target) in enumerate(zip(self._scales, learned.T, strict=True)):
            limits = doubtful and place == len(made.names)
            points, values = self._doubtful_rows(known, x, target, LEARN) if limits else (x, target)
            even, centre, width = _standardise(values)
            if np.ptp(values) <= CONSTANT:
                means[:, place], spreads[:, place] = centre, CONSTANT
                continue
            scales = scales or expected_scales(groups, numbers)  # of a target that was the same for all of the first results
            mean, spread = predict(scales, points, groups, even, features, None if limits else numbers)
            means[:, place], spreads[:, place] = mean * width + centre, spread * width
        means += trend
        own = len(made.names)
        composed, doubts = made.compose(means[:, :own], spreads[:, :own])
        return np.hstack([composed, means[:, own:]]), np.hstack([doubts, spreads[:, own:]])

    def _make_targets(
        self, known: KnownResults, doubtful: bool, parts: PartResults | None, chosen: Sequence[SummedParts | None]
    ) -> tuple[Targets, Array]:
        """Targets of results, and their values with the step at limits; shape (designs, targets)."""
        shaped, objectives = _process_targets(known, known.objectives, known.excess, doubtful), known.objectives.shape[1]
        made = make_targets(list(shaped.T[:objectives]), known.objectives, parts, chosen)
        return made, np.column_stack([*made.columns, *shaped.T[objectives:]])

    def _doubtful_rows(self, known: KnownResults, x: Array, steps: Array, most: int) -> tuple[Array, Array]:
        """Features and steps of designs that were evaluated, and of the last that broke limits and have no objectives."""
        out, beyond = known.out[-most // 2 :], known.beyond[-most // 2 :]
        if not len(out) or x.shape[1] > len(self._places.groups):
            return x, steps
        return np.vstack([x, self._places.compute_features(out)]), np.append(steps, _violation_step(beyond))

    def _feature_groups(self, x: Array) -> Array:
        """The knob that a feature is of; objectives of a lower fidelity are counted on."""
        groups = self._places.groups
        return np.append(groups, groups.max() + 1 + np.arange(x.shape[1] - len(groups)))

    def _learn_targets(
        self, known: KnownResults, targets: Array, most: int, below: LowFidelityPredictions | None
    ) -> tuple[Callable[[Array], Array], Array, Array, Array]:
        """Features and targets of results, at most so many of them.

        Returns:
            How a lower fidelity's objectives become features, features, targets less what follows from the lower fidelity, and
            the multiple of each target that does.
        """
        y, excess = known.objectives, known.excess
        order = np.argsort(front_distance(y, excess, known.objectives[known.front], *_front_box(known)), kind="stable")
        best, rest = np.split(order, [most * 3 // 4])
        rows = np.concatenate([best, rest[:: max(1, -(-len(rest) // (most // 4)))]])
        x, targets = self._places.compute_features(known.rows[rows]), targets[rows]
        rho = np.ones(targets.shape[1])
        if below is None:
            return np.zeros_like, x, targets, rho
        doubtful = targets.shape[1] > known.objectives.shape[1]
        lower = _process_targets(known, below.known.objectives[rows], below.known.excess[rows], doubtful)
        middle, reach = lower.mean(axis=0), np.where(np.ptp(lower, axis=0) > 0, np.ptp(lower, axis=0), 1.0)
        objectives = known.objectives.shape[1]

        def scale_targets(values: Array) -> Array:
            shaped = _process_targets(known, values, np.zeros(len(values)), doubtful=False)
            return np.asarray((shaped - middle[:objectives]) / reach[:objectives])

        rho[:objectives] = _fidelity_multiple(targets, lower)[:objectives]
        return (
            scale_targets,
            np.hstack([x, scale_targets(below.known.objectives[rows])]),
            targets - rho * lower,
            rho,
        )


def _ray_lengths(reach: Array, rays: Array, values: Array) -> Array:
    """Lengths of rays from a corner that some values are within, to the power of the objectives; shape (..., rays)."""
    lengths = ((reach - values)[..., None, :] / rays).min(axis=-1)
    return np.asarray(np.maximum(lengths, 0.0) ** values.shape[-1])


def front_distance(y: Array, excess: Array, held: Array, low: Array, extent: Array) -> Array:
    """Improvement in all objectives that designs need to be nondominated; more beyond limits. [-]

    Args:
        y: objectives, to be made small, shape (designs, objectives).
        excess: by how much limits are broken, shape (designs,).
        held: the front, shape (members, objectives).
        low, extent: its best values, and how far it reaches from there.
    """
    scaled = (y - low) / extent
    behind = np.min([(scaled - point).max(axis=1) for point in (held - low) / extent], axis=0)
    return np.asarray(behind + np.where(excess > 0, 1 + excess, 0.0))


def _process_targets(known: KnownResults, y: Array, excess: Array, doubtful: bool) -> Array:
    """What processes are of, shape (designs, targets): objectives on the scale of those that are known, and a step."""
    columns = [_shape_column(objective, column) for objective, column in zip(known.objectives.T, y.T, strict=True)]
    if doubtful:  # a step, as where all holds nothing says how nearly
        columns.append(_violation_step(excess))
    return np.stack(columns, axis=1)


def _violation_step(excess: Array) -> Array:
    return np.where(excess > 0, 0.6 + np.log1p(excess), -0.5)


def _fidelity_multiple(high: Array, low: Array) -> Array:
    """Of the lower fidelity's values that those of the higher one have, by least squares; near 1 while designs are few."""
    apart = low - low.mean(axis=0)
    variance = (apart * apart).mean(axis=0)
    prior = FEW * np.where(variance > 0, variance, 1.0) / len(low)
    return np.asarray(((apart * (high - high.mean(axis=0))).mean(axis=0) + prior) / (variance + prior))


def _shape_column(objective: Array, column: Array) -> Array:
    """A column on the scale that `shape` chooses for another."""
    if (objective > 0).all():
        return np.asarray(np.log(np.maximum(column, 1e-300)))
    if (objective < 0).all():
        return np.asarray(-np.log(np.maximum(-column, 1e-300)))
    return column


def even_scale(column: Array) -> tuple[Array, Callable[[Array], Array]]:
    """Transform that makes an objective more even (logarithm if all have one sign), and its inverse."""
    if (column > 0).all():
        return np.log(column), np.exp
    if (column < 0).all():
        return -np.log(-column), lambda z: -np.exp(-z)
    return column, lambda z: z


def _volume_corners(known: KnownResults, expected: Array, beyond: float) -> tuple[Array, Array]:
    """The corners between which hypervolume counts, best and worst, each of shape (objectives,).

    Few results say little of where a front ends. A design that is the cheapest of all, or the fastest, lies beyond the worst of
    those that are known in some other objective, and would gain nothing there. So it is the front that is known and expected
    which reaches from one corner to the other, but for a share of its extent.

    Args:
        known: results.
        expected: objectives of the designs that are looked at and will likely do, as predicted, shape (designs, objectives).
        beyond: the share of its extent by which the worst corner lies beyond the front.
    """
    both = np.concatenate([known.objectives[known.front], expected])
    held = both[front_mask(both, ["min"] * both.shape[1])]
    low, high = held.min(axis=0), held.max(axis=0)
    extent = np.where(high > low, high - low, _front_box(known)[1])
    return low, low + extent * (1 + beyond)


def _front_box(known: KnownResults) -> tuple[Array, Array]:
    """Best value of each objective on the front, and how far the front reaches from there; all results where it does not."""
    held = known.objectives[known.front]
    low, high = held.min(axis=0), held.max(axis=0)
    high = np.where(high > low, high, known.objectives.max(axis=0))
    return low, np.where(high > low, high - low, np.maximum(np.abs(low), 1e-300))


def _level_below(row_count: int) -> int:
    """The largest of 2, 3, 4, 6, 8, 12, 16, ... that is not above a number."""
    power = 1 << (row_count.bit_length() - 1)
    return power * 3 // 2 if row_count >= power * 3 // 2 else power


def _standardise(target: Array) -> tuple[Array, float, float]:
    centre, width = float(target.mean()), float(target.std()) or 1.0
    return (target - centre) / width, centre, width
