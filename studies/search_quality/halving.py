"""Successive halving over two fidelities, as a multi-fidelity baseline for comparison.

Brackets of designs are evaluated at the lower fidelity; of each bracket, the non-dominated share is promoted. Half of a
bracket is drawn from the whole space, half are neighbours of the best designs found at the higher fidelity, as a
learning sampler would draw them.
"""

from collections.abc import Mapping

import numpy as np

from dse.search.design_encoding import DesignEncoder
from dse.search.pareto import front_mask, nondominated_layers
from dse.search.samplers import Feedback
from dse.space.array_math import Array
from dse.studies.search_quality.replay import Grid

BRACKET, RUNGS = 27, 2
"""Designs of a bracket, and times that a third of it survives: three of 27 are evaluated at the dear fidelity."""

KEEP = 3


def halve_rows(grid: Grid, rows: Mapping[tuple[object, ...], int], lower: list[Feedback], seed: int, budget: int) -> Array:
    """Rows evaluated at the higher fidelity by successive halving, in order.

    Args:
        grid: to search.
        rows: of its designs.
        lower: results of the lower fidelity for each row.
        seed: of the draws.
        budget: evaluations at the dear fidelity.
    """
    rng, space, directions = np.random.default_rng(seed), grid.study.question.space, grid.study.directions
    places, out = DesignEncoder(space), grid.ruled_out
    order: list[int] = []
    seen = set(np.flatnonzero(out).tolist())
    free = np.array([feedback.objectives is not None and max(feedback.constraints.values()) <= 0 for feedback in lower])
    cheap = np.array(
        [feedback.objectives if feedback.objectives is not None else (np.nan,) * len(directions) for feedback in lower]
    )
    while len(order) < budget and len(seen) < grid.size:
        selected_rows = _drawn(grid, rows, places, order, rng)
        selected_rows = np.array([row for row in dict.fromkeys(selected_rows.tolist()) if row not in seen][:BRACKET], dtype=int)
        if not len(selected_rows):
            selected_rows = rng.permutation([row for row in range(grid.size) if row not in seen])[:BRACKET]
        good = selected_rows[free[selected_rows]] if free[selected_rows].any() else selected_rows
        kept = (
            good[nondominated_layers(cheap[good], directions, max(1, len(selected_rows) // KEEP**RUNGS))]
            if free[good].all()
            else good[:1]
        )
        seen |= set(selected_rows.tolist())
        order += kept.tolist()
    return np.array(order[:budget])


def _drawn(
    grid: Grid, rows: Mapping[tuple[object, ...], int], places: DesignEncoder, order: list[int], rng: np.random.Generator
) -> Array:
    """Rows of a bracket: drawn from the whole grid, and near the best so far."""
    anywhere = rng.integers(grid.size, size=2 * BRACKET)
    good = np.array([row for row in order if grid.limit[row] < 0], dtype=int)
    if not len(good):
        return anywhere
    space = grid.study.question.space
    best = good[front_mask(grid.objectives[good], grid.study.directions)]
    members = np.array([places.encode_design(space.row(grid.columns, int(row))) for row in rng.choice(best, BRACKET)])
    whole = np.where(np.isnan(members), places.rows_at(rng.random(members.shape)), members)
    near = places.clear_inactive(places.mutated_rows(whole, np.full(len(whole), 1 / members.shape[1]), rng))
    beside = np.array([rows[tuple(places.decode_row(row).items())] for row in near])
    return np.stack([beside, anywhere[:BRACKET]], axis=1).ravel()
