"""Iteration costs at token or request counts: evaluated once per count, or interpolated."""

from collections.abc import Callable, Sequence

import numpy as np

from dse.space.array_math import Array


def interpolate_counts(known: Array, spent: Callable[[int], Array], counts: Array) -> Array:
    """Costs at counts, interpolated linearly between known counts.

    Beyond the last known count, time continues with the last slope, and work grows in proportion.
    """
    costs = np.array([spent(int(count)) for count in known])
    place = np.clip(np.searchsorted(known, counts, side="right") - 1, 0, len(known) - 2)
    slope = np.diff(costs, axis=0) / np.diff(known)[:, None, None]
    slope = np.concatenate([slope, costs[-1:] / known[-1]])  # other tilings move less: a difference may be negative
    slope[-1, 0] = slope[-2, 0]
    place = np.where(counts > known[-1], len(known) - 1, place)
    # what is less than the first one is asked for where there is nothing, and is left out
    found_counts = costs[place] + slope[place] * np.maximum(counts - known[place], 0.0)[..., None, None]
    return np.asarray(found_counts)


def evaluate_counts(spent: Callable[..., Array], *counts: Array) -> Array:
    """Costs at broadcast whole counts of at least 1, each combination once; shape (..., SPENT, designs)."""
    together = np.broadcast_arrays(*(np.maximum(count, 1.0) for count in counts))
    compositions, place = np.unique(np.stack([np.ravel(count) for count in together], 1), axis=0, return_inverse=True)
    costs = np.array([spent(*(int(count) for count in row)) for row in compositions])
    return costs[np.ravel(place)].reshape(*together[0].shape, *costs.shape[1:])


def sampled_counts(axes: Sequence[Array]) -> Array:
    """Token and request counts at which products and rows are evaluated, from the points of a table."""
    return np.unique(np.concatenate([axes[0], axes[2]]))[1:]


def fastest_per_design(costs: Sequence[Array]) -> Array:
    """Costs of the fastest alternative for each design; shapes (SPENT, designs)."""
    if len(costs) == 1:
        return costs[0]
    least = np.array([cost[0] for cost in costs]).argmin(axis=0)
    return np.asarray(np.take_along_axis(np.array(costs), least[None, None, :], axis=0)[0])


def min_per_token(known: Array, spent: Callable[[int], Array], most: float) -> Array:
    """Least time per token over the known counts and the largest requested count. [s]"""
    counts = np.concatenate([known, [most]])
    return np.asarray((interpolate_counts(known, spent, counts)[:, 0] / counts[:, None]).min(axis=0))
