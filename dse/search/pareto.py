"""Pareto fronts and hypervolume of designs."""

from collections.abc import Sequence

import numpy as np

from dse.space.array_math import Array


def front_mask(values: Array, directions: Sequence[str]) -> Array:
    """Mask of nondominated rows; of rows that are equal in all objectives, the first.

    Args:
        values: shape (designs, objectives), finite.
        directions: "max" or "min" for each objective.

    Returns:
        A mask, shape (designs,).

    >>> front_mask(np.array([[1.0, 5.0], [2.0, 4.0], [1.0, 4.0]]), ["max", "min"]).tolist()
    [False, True, False]
    """
    import moocore

    if not len(values):
        return np.zeros(0, dtype=bool)
    return np.asarray(moocore.is_nondominated(convert_to_minimisation(values, directions), keep_weakly=False))


def nondominated_layers(values: Array, directions: Sequence[str], many: int) -> Array:
    """Row numbers by nondominated layers, with an even part of the last layer that fits.

    The first layer is the front, the next the front of the rest, and so on.

    Args:
        values: shape (designs, objectives), finite.
        directions: "max" or "min" for each objective.
        many: rows at most.

    Returns:
        Row numbers, shape (at most `many`,).

    >>> nondominated_layers(np.array([[3.0], [1.0], [2.0]]), ["max"], 2).tolist()
    [0, 2]
    """
    import moocore

    layers = [np.zeros(0, dtype=int)]
    if not len(values) or many <= 0:
        return layers[0]
    # rows that are equal are in layers one after the other, and of those that differ none is before its rank
    kinds, which, copies = np.unique(
        convert_to_minimisation(values, directions), axis=0, return_inverse=True, return_counts=True
    )
    order, begin = np.argsort(which.reshape(-1), kind="stable"), np.cumsum(copies) - copies
    rank, taken, left, number = moocore.pareto_rank(kinds), np.zeros_like(copies), np.arange(len(kinds)), 0
    while len(left) and many > 0:
        near = left[rank[left] <= number]
        front = near[moocore.is_nondominated(kinds[near])]
        layer = np.sort(order[begin[front] + taken[front]])
        layers.append(layer[np.unique(np.linspace(0, len(layer) - 1, min(many, len(layer))).round().astype(int))])
        many -= len(layers[-1])
        taken[front] += 1
        left = left[taken[left] < copies[left]]
        number += 1
    return np.concatenate(layers)


def select_hypervolume_subset(values: Array, many: int) -> Array:
    """Members of a front with most hypervolume together, each the best addition to those before.

    The gain of a member shrinks as others are chosen, so that only those that may yet add most are measured again [minoux1978].

    Args:
        values: to be made small, shape (members, objectives), finite.
        many: members at most.

    Returns:
        Row numbers in the order in which they are chosen, shape (at most `many`,).

    >>> select_hypervolume_subset(np.array([[0.0, 1.0], [0.14, 0.11], [0.15, 0.1], [1.0, 0.0]]), 3).tolist()
    [1, 0, 3]
    """
    low, high = values.min(axis=0), values.max(axis=0)
    reach = high + 0.1 * np.where(high > low, high - low, 1.0)
    directions = ["min"] * values.shape[1]
    adds = np.prod((reach - values) / (reach - low), axis=1)
    chosen: list[int] = []
    held = 0.0
    while len(chosen) < min(many, len(values)):
        measured: set[int] = set()
        while (best := int(adds.argmax())) not in measured:
            adds[best] = hypervolume(values[[*chosen, best]], directions, low, reach) - held
            measured.add(best)
        held += adds[best]
        adds[best] = -np.inf
        chosen.append(best)
    return np.array(chosen, dtype=int)


def hypervolume(values: Array, directions: Sequence[str], low: Array, high: Array) -> float:
    """Share of the box from `low` (best corner) to `high` (worst) that rows dominate. [-]

    Corners are in the form of `convert_to_minimisation`.
    """
    import moocore

    if not len(values):
        return 0.0
    scaled = (convert_to_minimisation(values, directions) - low) / np.where(high > low, high - low, 1.0)
    inside = scaled[np.all(scaled < 1, axis=1)]
    return (
        float(moocore.hypervolume(np.ascontiguousarray(np.maximum(inside, 0.0)), ref=np.ones(values.shape[1])))
        if len(inside)
        else 0.0
    )


def convert_to_minimisation(values: Array, directions: Sequence[str]) -> Array:
    """The same rows with the sign of maximised objectives changed, so that less is better."""
    signs = np.array([-1.0 if direction == "max" else 1.0 for direction in directions])
    return np.ascontiguousarray(values * signs)
