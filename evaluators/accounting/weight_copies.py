"""Choice of the weights that every core of a group keeps a copy of, within its memory.

This is a knapsack with layouts: the saving of a product depends on how its neighbours are divided, so no product has a
value of its own. Every choice that fits copies a subset of some maximal set that fits. The partitions of least time are
found for each maximal set, copying all or part of it; the least of these is the optimum.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from dse.evaluators.layouts.operator_partitions import Name, PartitionChoice
from dse.space.array_math import Array
from dse.space.mapping import DIVISIONS

COPIED = DIVISIONS.index("input_only")
"""The partition of which each core has all weights."""

MAX_GROUPS_ALONE = 10
"""Largest products, each copied or not separately; smaller ones are copied together."""

TOGETHER = 4_096
"""Sets that are solved at once."""

MAX_BISECTIONS = 50
"""Bisection steps for the most bytes that fit: the rest is less than a byte of a petabyte."""

Seconds = Mapping[Name, Mapping[int, Any]]
"""Of each operator by partition, or what it leaves by what a core has of it."""


def choose_copies(
    solved: Callable[[Seconds, Seconds], tuple[PartitionChoice, Any]], seconds: Seconds, gather: Seconds,
    weights: Mapping[Name, Any], fits: Callable[[Any], Any], where: Array,
) -> PartitionChoice:  # fmt: skip
    """Partitions of least time among those whose weight copies fit.

    Args:
        solved: partitions of least time and their time, from times of operators and of collecting results on all cores.
        seconds: of each operator, by place in `DIVISIONS`; leaves broadcast to the shape of `where`.
        gather: of what it leaves to all cores, likewise.
        weights: of each product, the largest of the model first; leaves likewise. [B]
        fits: whether a number of copied bytes fits, for every case and design; fewer bytes fit where more do.
        where: cases and designs to solve, at least one; they fit without copies.

    Returns:
        Partitions of the solved cases and designs, in one axis.
    """
    units = _units(tuple(weights))
    copy_sets = (np.arange(2 ** len(units))[:, None] >> np.arange(len(units))) % 2 == 1
    each = [np.broadcast_to(sum(weights[name] for name in unit), where.shape)[where] for unit in units]
    room = _room(sum(weights.values()), fits, where)
    which, sets = _full(copy_sets, np.stack(each, axis=-1), room)
    pieces = np.array_split(np.arange(len(which)), -(-len(which) // TOGETHER))
    found_sets = [_of_sets(solved, seconds, gather, units, copy_sets[sets[part]], where, which[part]) for part in pieces]
    taken = np.concatenate([kept_rows for _, kept_rows in found_sets])
    order = np.lexsort((np.arange(len(which)), taken, which))
    first = order[np.searchsorted(which[order], np.arange(len(room)))]
    return PartitionChoice(
        *(
            {
                name: np.concatenate([solution[kind][name] for solution, _ in found_sets])[first]
                for name in found_sets[0][0][kind]
            }
            for kind in range(len(PartitionChoice._fields))
        )
    )


def _units(names: tuple[Name, ...]) -> list[tuple[Name, ...]]:
    """Groups of products by size: the largest separately, smaller ones together."""
    apart = len(names) if len(names) <= MAX_GROUPS_ALONE else MAX_GROUPS_ALONE - 1
    return [*((name,) for name in names[:apart]), *((names[apart:],) if names[apart:] else ())]


def _room(every: Any, fits: Callable[[Any], Any], where: Array) -> Array:
    """Most copied bytes that fit, for each case and design. [B]"""
    low, high = np.zeros(where.shape), np.broadcast_to(every, where.shape)
    for _ in range(MAX_BISECTIONS):
        middle = (low + high) / 2
        able = np.broadcast_to(fits(middle), where.shape)
        low, high = np.where(able, middle, low), np.where(able, high, middle)
    return np.asarray(low[where])


def _full(copy_sets: Array, sizes: Array, room: Array) -> tuple[Array, Array]:
    """Maximal sets of units that fit, entry by entry: the place of each entry in `room`, and that of its set."""
    distinct, which = np.unique(sizes, axis=0, return_inverse=True)
    entries, sets = [], []
    for number, unit_sizes in enumerate(distinct):
        nbytes = copy_sets @ unit_sizes
        with_another = nbytes + np.where(copy_sets, np.inf, unit_sizes).min(axis=1)
        places = np.flatnonzero(which.ravel() == number)
        for part in np.array_split(places, -(-len(places) // TOGETHER)):
            most = room[part, None]
            place, full = np.nonzero((nbytes <= most) & (with_another > most))
            entries.append(part[place])
            sets.append(full)
    order = np.argsort(np.concatenate(entries), kind="stable")
    return np.concatenate(entries)[order], np.concatenate(sets)[order]


def _of_sets(
    solved: Callable[[Seconds, Seconds], tuple[PartitionChoice, Any]], seconds: Seconds, gather: Seconds,
    units: Sequence[Sequence[Name]], copy_sets: Array, where: Array, which: Array,
) -> tuple[PartitionChoice, Array]:  # fmt: skip
    """Partitions of least time that copy only products of a set, shape (sets,), and their time."""

    def select(value: Any) -> Any:
        return np.broadcast_to(value, where.shape)[where][which]

    current_seconds = {name: {place: select(value) for place, value in by.items()} for name, by in seconds.items()}
    for place, unit in enumerate(units):
        for name in unit:
            current_seconds[name][COPIED] = np.where(copy_sets[:, place], current_seconds[name][COPIED], np.inf)
    words, taken = solved(
        current_seconds, {name: {place: select(value) for place, value in by.items()} for name, by in gather.items()}
    )
    shape = which.shape
    return PartitionChoice(*({name: np.broadcast_to(value, shape) for name, value in kind.items()} for kind in words)), taken
