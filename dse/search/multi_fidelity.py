"""Multi-fidelity search: designs of a lower fidelity are promoted by their expected gain.

The gain is the expected hypervolume of a design, by the low-fidelity result and a model of the discrepancy
(`dse/search/acquisition.py`). The first promotions, before the discrepancy is known, are members of the low-fidelity front that
together dominate most of its hypervolume. Candidates are a pool, the best of a screen or of a sample, and neighbours of both
fronts, which the lower fidelity evaluates first. Asks are of the high fidelity only.
"""

from collections.abc import Sequence

import numpy as np

from dse.search.acquisition import HypervolumeAcquisition, LowFidelityPredictions, LowFidelityResults, front_distance
from dse.search.local_search import LocalSearch
from dse.search.pareto import convert_to_minimisation, front_mask, nondominated_layers, select_hypervolume_subset
from dse.search.samplers import Feedback, LowFidelitySource, PossibleFilter, allow_all
from dse.space.array_math import Array
from dse.space.multi_chip_space import AnySpace

POOL_SIZE = 4_000
"""Designs of a screen, the best by the lower fidelity, among which the model chooses at every ask."""

SAMPLE = 16
"""Without a screen, designs of a Sobol sequence that the lower fidelity prices first, for each of the first asks."""

BLIND = 0.05
"""Share of plans that take any candidate, whatever the lower fidelity says of it."""

ROUNDS = ((96, 100), (2_048, 0))
"""Directions for a gain of all candidates, and how many of them go on to many more: a late gain is a thousandth of the whole,
and candidates are near one another."""

BEYOND = 0.1
"""Of its extent that the expected front's hypervolume counts beyond its worst values; more would favour its ends."""


class MultiFidelitySearch(LocalSearch):
    """A Pareto local search with two fidelities.

    Args:
        space, directions, seed, start, possible: as of `Local`; the first asks are of the lower fidelity's front, until one
            more than there are objectives is known.
        cheaper: the lower fidelity.
    """

    _blind = BLIND

    def __init__(
        self,
        space: AnySpace,
        directions: Sequence[str],
        seed: int,
        start: int,
        cheaper: LowFidelitySource,
        possible: PossibleFilter = allow_all,
    ) -> None:
        self._cheaper = cheaper
        self._lower: dict[bytes, tuple[Array, float]] = {}
        self._pool = np.zeros((0, len(space.knobs)))
        self._held: list[int] = []
        super().__init__(space, directions, seed, start, possible)
        self._promise = HypervolumeAcquisition(self._places, ROUNDS, (BEYOND, BEYOND))
        self._order = self._possible_first(self._knobs, min(start, 2 * self._knobs + 2))  # with the pool that all asks look at
        self._start_worker = 0

    def _plan_rows(self, number: int) -> Array:
        """By the lower fidelity alone while few results are known: a discrepancy takes fewer of them to model than a space."""
        if self._has_few_results():
            for row in self._order:
                if row.tobytes() not in self._asked:
                    return np.asarray(row[None])
        return super()._plan_rows(number)

    def _has_few_results(self) -> bool:
        return len(self._rows) <= len(self._directions)

    def _predict_below(self, known: Array, at: Array) -> LowFidelityPredictions:
        return LowFidelityPredictions(self._low_fidelity_results(known), self._low_fidelity_results(at))

    def _possible_first(self, knobs: int, start: int) -> Array:
        """Of the front of the pool those that hold most of its volume together, and what is next to it."""
        pool = self._cheaper.pool
        if pool:
            rows = np.array([self._places.encode_design(values) for values, _ in pool])
            self._learn_results(rows, [feedback for _, feedback in pool])
        else:
            rows = self._places.clear_inactive(super()._possible_first(knobs, start * SAMPLE))
            self._learn_results(rows, self._cheaper.feedback_on([self._places.decode_row(row) for row in rows]))
        lower = self._low_fidelity_results(rows)
        good = np.flatnonzero(lower.excess == lower.excess.min())
        directions = ["min"] * lower.objectives.shape[1]
        next_to = good[nondominated_layers(lower.objectives[good], directions, start)]
        front = good[front_mask(lower.objectives[good], directions)]
        held = lower.objectives[front]
        low, reach = held.min(axis=0), np.where(np.ptp(held, axis=0) > 0, np.ptp(held, axis=0), 1.0)
        behind = front_distance(lower.objectives, lower.excess, held, low, reach)
        keep = np.sort(np.argsort(behind, kind="stable")[:POOL_SIZE])
        self._pool = rows[keep]
        self._held = np.flatnonzero(np.isin(keep, front)).tolist()
        return np.asarray(rows[np.concatenate([front[select_hypervolume_subset(held, start)], next_to])])

    def _parent_rows(self) -> Array:
        return np.concatenate([super()._parent_rows(), self._pool[self._held]])

    def _neighbour_rows(self, rng: np.random.Generator) -> Array:
        """Designs of the pool that were not asked, and neighbours of both fronts that the lower fidelity does not rule out."""
        pool = np.array([row for row in self._pool if row.tobytes() not in self._asked]).reshape(-1, self._pool.shape[1])
        if self._cheaper.all and len(pool):
            return pool
        near = super()._neighbour_rows(rng)
        excess = self._low_fidelity_results(near).excess
        near = near[excess <= 0] if (excess <= 0).any() else near
        known = {row.tobytes() for row in pool}
        return np.concatenate([np.array([row for row in near if row.tobytes() not in known]).reshape(-1, near.shape[1]), pool])

    def _low_fidelity_results(self, rows: Array) -> LowFidelityResults:
        """What the lower fidelity says of rows; those that it has no objectives of are as bad as any of the others."""
        new = {row.tobytes(): row for row in rows if row.tobytes() not in self._lower}
        if new:
            selected_rows = np.array(list(new.values()))
            self._learn_results(
                selected_rows, self._cheaper.feedback_on([self._places.decode_row(row) for row in selected_rows])
            )
        known = [self._lower[row.tobytes()] for row in rows]
        objectives = np.array([values for values, _ in known]).reshape(len(rows), -1)
        worst = np.nanmax(objectives, axis=0, initial=-np.inf)
        worst = np.where(np.isfinite(worst), worst, 1.0)
        return LowFidelityResults(np.where(np.isnan(objectives), worst, objectives), np.array([excess for _, excess in known]))

    def _learn_results(self, rows: Array, feedback: Sequence[Feedback]) -> None:
        for row, single_feedback in zip(rows, feedback, strict=True):
            values = (
                np.full(len(self._directions), np.nan)
                if single_feedback.objectives is None
                else np.array(single_feedback.objectives)
            )
            excess = sum(max(0.0, value) for value in single_feedback.constraints.values()) + (
                1.0 if np.isnan(values).any() else 0.0
            )
            self._lower[row.tobytes()] = convert_to_minimisation(values[None], self._directions)[0], excess
