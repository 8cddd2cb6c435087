"""Sample of designs off the front, spread over all screened designs.

On a front alone designs differ little in their objectives: ranks there depend on small gaps, and say little about two
fidelities.
"""

from collections.abc import Sequence

import numpy as np

from dse.search.pareto import convert_to_minimisation
from dse.space.array_math import Array


def dominated_share(values: Array, directions: Sequence[str]) -> Array:
    """Share of objective space that each row dominates, with objectives as ranks. [-]

    Near 1 for the best of all and near 0 for the worst. With one objective it is the rank alone. A row that is at least as good
    in all objectives has at least as much.

    Args:
        values: shape (designs, objectives), finite.
        directions: "max" or "min" for each objective.

    Returns:
        Shares, shape (designs,).

    >>> dominated_share(np.array([[1.0], [3.0], [2.0], [2.0]]), ["max"]).tolist()
    [0.25, 1.0, 0.75, 0.75]
    """
    small = convert_to_minimisation(values, directions)
    worse = [len(small) - np.searchsorted(np.sort(column), column) for column in small.T]
    return np.asarray(np.prod([count / len(small) for count in worse], axis=0))


def stratified_sample(scores: Array, many: int, strata: int, seed: int) -> tuple[Array, Array]:
    """Rows from all parts of a ranking: equally many from each of equally large strata.

    Args:
        scores: of the rows, best last; shape (designs,).
        many: rows to draw; all of them where there are no more.
        strata: how many, the best the first.
        seed: of the draws.

    Returns:
        Row numbers, best stratum first, and the stratum of each, from 1.

    >>> rows, stratum = stratified_sample(np.arange(100.0), 4, 2, seed=0)
    >>> stratum.tolist(), bool((rows[:2] >= 50).all() and (rows[2:] < 50).all())
    ([1, 1, 2, 2], True)
    """
    order = np.argsort(-scores, kind="stable")
    parts = np.array_split(order, min(strata, max(many, 1)))
    draws, left, sampled, strata_of = np.random.default_rng(seed), min(many, len(order)), [], []
    for place, part in enumerate(parts):
        # what a small stratum cannot give, the others do
        wanted = min(len(part), -(-left // (len(parts) - place)))
        sampled.append(np.sort(draws.permutation(len(part))[:wanted]))
        sampled[-1] = part[sampled[-1]]
        strata_of.append(np.full(wanted, place + 1))
        left -= wanted
    return np.concatenate(sampled).astype(int), np.concatenate(strata_of).astype(int)
