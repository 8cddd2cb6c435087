"""Which of many designs promise most: the gain in hypervolume that Gaussian processes of the objectives expect of each."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import ndtr
from threadpoolctl import ThreadpoolController

from dse.encoding import Places
from dse.space.elementwise import Array
from dse.surrogate import Scales, fitted, predicted

LEARN = 256
"""Results that a model is made of: three quarters are the best ones, the others a sample of the rest."""

FIT = 96
"""Results that its length scales are fitted on."""

RAYS = 48
"""Directions along which a gain in hypervolume is measured."""

DRAWS = np.array([0.0, -1.3, -0.4, 0.4, 1.3])
"""Standard deviations from the mean at which a prediction is looked at; the first stands for the design once it is chosen."""


THREADS = ThreadpoolController()
"""With one thread, sums have one order whatever the machine, and matrices as small as these take less time than with more."""


@dataclass(frozen=True)
class Known:
    """Results so far, in the order in which they were told.

    Attributes:
        rows: places, shape (designs, knobs).
        objectives: to be made small, shape (designs, objectives).
        excess: by how much limits and constraints are broken in sum, 0 where all hold; shape (designs,).
        front: places in these arrays of the designs that no other beats.
    """

    rows: Array
    objectives: Array
    excess: Array
    front: Sequence[int]


class Promise:
    """Gaussian processes of the objectives, and of how much limits are broken, fitted anew twice a doubling of the results.

    Args:
        places: of the space.
    """

    def __init__(self, places: Places) -> None:
        self._places = places
        self._level = 0
        self._scales: list[Scales] = []

    def best(self, near: Array, waiting: Array, known: Known, count: int, rng: np.random.Generator) -> Array:
        """The rows that promise most, each as if those before it had come out as predicted.

        The hypervolume of a set is the mean over rays from a reference point of (length of the ray within it) to the power of
        the number of objectives, up to a factor [deng2019]; a gain is thus a few maxima.

        Args:
            near: rows to choose from.
            waiting: rows whose results are under way.
            known: results.
            count: how many to choose.
            rng: of this ask.
        """
        at = self._places.features(np.concatenate([near, waiting]))
        with THREADS.limit(limits=1, user_api="blas"):
            means, spreads = self._predicted(known, at)
        objectives = known.objectives.shape[1]
        likely = ndtr(-means[:, objectives] / spreads[:, objectives]) if means.shape[1] > objectives else np.ones(len(at))
        if known.excess.min() > 0:
            return near[np.argsort(-likely[: len(near)], kind="stable")[:count]]
        likely = np.where(likely > 0.5, likely, 1e-9 * likely)  # many that will hardly do are together no good bet
        held = known.objectives[known.front]
        low, extent = _box(known)
        reach = low + extent * (1 + 10 ** rng.uniform(-1, 0))
        rays = np.abs(rng.normal(size=(RAYS, objectives)))
        rays *= (reach - low) / np.linalg.norm(rays, axis=1, keepdims=True)

        def within(points: Array) -> Array:
            lengths = ((reach - points)[..., None, :] / rays).min(axis=-1)
            return np.asarray(np.maximum(lengths, 0.0) ** objectives)

        outward = [shape(column)[1] for column in known.objectives.T]
        seen = means[:, :objectives] + DRAWS[:, None, None] * spreads[:, :objectives]
        volumes = within(np.stack([back(seen[..., j]) for j, back in enumerate(outward)], axis=-1))  # (draws, designs, rays)
        top = within(held).max(axis=0)
        sure = likely[len(near) :] > 0.5
        if sure.any():
            top = np.maximum(top, volumes[0, len(near) :][sure].max(axis=0))
        volumes, likely = volumes[:, : len(near)], likely[: len(near)].copy()
        chosen: list[int] = []
        for _ in range(min(count, len(near))):
            gain = np.maximum(volumes[1:] - top, 0.0).mean(axis=(0, 2)) * likely
            gain[chosen] = -1.0
            chosen.append(int(gain.argmax()))
            top = np.maximum(top, volumes[0, chosen[-1]])
        return near[chosen]

    def _predicted(self, known: Known, at: Array) -> tuple[Array, Array]:
        """Means and standard deviations of each target, shape (designs, targets)."""
        doubtful = bool(known.excess.any())
        level = _level(len(known.rows))
        if (level, len(self._scales)) != (self._level, known.objectives.shape[1] + doubtful):
            x, targets = self._learned(known, level, FIT, doubtful)
            self._level = level
            self._scales = [fitted(x, self._places.groups, _even(target)[0]) for target in targets.T]
        x, targets = self._learned(known, len(known.rows), LEARN, doubtful)
        found = []
        for scales, target in zip(self._scales, targets.T, strict=True):
            even, centre, width = _even(target)
            mean, spread = predicted(scales, x, self._places.groups, even, at)
            found.append((mean * width + centre, spread * width))
        return np.stack([mean for mean, _ in found], axis=1), np.stack([spread for _, spread in found], axis=1)

    def _learned(self, known: Known, told: int, most: int, doubtful: bool) -> tuple[Array, Array]:
        """Features and targets of the first results that were told, at most so many of them."""
        y, excess = known.objectives[:told], known.excess[:told]
        low, extent = _box(known)
        scaled = (y - low) / extent
        # how much better in all objectives a design would have to be for none of the front to beat it
        lag = np.min([(scaled - one).max(axis=1) for one in (known.objectives[known.front] - low) / extent], axis=0)
        order = np.argsort(lag + np.where(excess > 0, 1 + excess, 0.0), kind="stable")
        best, rest = np.split(order, [most * 3 // 4])
        rows = np.concatenate([best, rest[:: max(1, -(-len(rest) // (most // 4)))]])
        targets = [shape(column)[0][rows] for column in y.T]
        if doubtful:  # a step, as where all holds nothing says how nearly
            targets.append(np.where(excess > 0, 0.6 + np.log1p(excess), -0.5)[rows])
        return self._places.features(known.rows[rows]), np.stack(targets, axis=1)


def shape(column: Array) -> tuple[Array, Callable[[Array], Array]]:
    """An objective on a scale on which it is more even, logs where all have one sign; and the way back."""
    if (column > 0).all():
        return np.log(column), np.exp
    if (column < 0).all():
        return -np.log(-column), lambda z: -np.exp(-z)
    return column, lambda z: z


def _box(known: Known) -> tuple[Array, Array]:
    """Best value of each objective on the front, and how far the front reaches from there; all results where it does not."""
    held = known.objectives[known.front]
    low, high = held.min(axis=0), held.max(axis=0)
    high = np.where(high > low, high, known.objectives.max(axis=0))
    return low, np.where(high > low, high - low, np.maximum(np.abs(low), 1e-300))


def _level(told: int) -> int:
    """The largest of 2, 3, 4, 6, 8, 12, 16, ... that is not above a number."""
    power = 1 << (told.bit_length() - 1)
    return power * 3 // 2 if told >= power * 3 // 2 else power


def _even(target: Array) -> tuple[Array, float, float]:
    centre, width = float(target.mean()), float(target.std()) or 1.0
    return (target - centre) / width, centre, width
