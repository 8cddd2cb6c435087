"""Exact minimisation of a sum of factors over discrete variables, by variable elimination.

The result equals that of trying every combination; the cost is that of the largest intermediate table, which is small
where few variables meet (R. Dechter, "Bucket elimination: a unifying framework for reasoning", Artificial Intelligence
113, 1999).
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from dse.space.array_math import Array


class CostFactor(NamedTuple):
    """A factor of a sum: cost of the joint values of some variables.

    Attributes:
        of: their names, each once.
        cost: one axis for the values of each variable, then axes of entries, which broadcast; infinite for impossible
            values.
        possible: whether joint values cost less than infinity at some entry, without axes of entries; None for all of them.
    """

    of: tuple[str, ...]
    cost: Array
    possible: Array | None = None


def minimise_factors(factors: Sequence[CostFactor]) -> dict[str, Array]:
    """Index of the value of each variable in the least-cost assignment, the lowest index among equals.

    Each result has the shape of the entries. Values that no possible assignment has are left out of all tables.

    >>> apart = CostFactor(("x", "y"), np.array([[np.inf, 0.0], [0.0, np.inf]]))
    >>> {name: int(word) for name, word in minimise_factors([apart, CostFactor(("x",), np.array([2.0, 1.0]))]).items()}
    {'x': 1, 'y': 0}
    """
    entries = np.broadcast_shapes(*(factor.cost.shape[len(factor.of) :] for factor in factors))
    values, selections = _possible_values(
        tuple(
            (variables, cost.shape[: len(variables)], None if possible is None else possible.tobytes())
            for variables, cost, possible in factors
        )
    )
    costs = [
        _spread(factor.cost if selection is None else factor.cost[selection], len(factor.of), len(entries))
        for factor, selection in zip(factors, selections, strict=True)
    ]
    steps = _elimination(tuple(factor.of for factor in factors))
    decided: list[Array] = []
    for step in steps:
        table = step.met[0].expand_axes(costs)
        for other in step.met[1:]:
            table = table + other.expand_axes(costs)
        word, lowest = _lowest(table, len(step.others))
        decided.append(word)
        costs.append(lowest)
    choices: dict[str, Array] = {}
    places = np.indices(entries, sparse=True)
    for step, best in zip(reversed(steps), reversed(decided), strict=True):
        whole = np.broadcast_to(best, (*best.shape[: len(step.others)], *entries))
        choices[step.name] = np.asarray(whole[(*(choices[other] for other in step.others), *places)])
    return {name: values[name][word] if name in values else word for name, word in reversed(choices.items())}


Pattern = tuple[tuple[str, ...], tuple[int, ...], bytes | None]
"""Variables of a factor, how many values each has, and which joint values are possible; None for all."""


@lru_cache(maxsize=512)
def _possible_values(patterns: tuple[Pattern, ...]) -> tuple[dict[str, Array], tuple[tuple[Array, ...] | None, ...]]:
    """Values that variables may have, and what is left of each factor.

    Returns:
        Of each variable that loses values, the remaining ones, ascending. Of each factor the index that selects them, None
        for the whole factor.
    """
    kept: dict[str, Array] = {}
    tables = []
    for variables, shape, possible in patterns:
        kept |= {name: np.ones(count, bool) for name, count in zip(variables, shape, strict=True)}
        if possible is not None:
            tables.append((variables, np.frombuffer(possible, bool).reshape(shape)))
    is_settled = False
    while not is_settled:
        is_settled = True
        for variables, table in tables:
            joint = table[np.ix_(*(kept[name] for name in variables))]
            for axis, name in enumerate(variables):
                others = tuple(other for other in range(len(variables)) if other != axis)
                lasting = joint.any(axis=others)
                if not lasting.all():
                    is_settled = False
                    kept[name][np.flatnonzero(kept[name])[~lasting]] = False
                    joint = joint.compress(lasting, axis=axis)
    if not all(mask.any() for mask in kept.values()):  # nothing is possible
        return {}, (None,) * len(patterns)
    values = {name: np.flatnonzero(mask) for name, mask in kept.items() if not mask.all()}
    selections = tuple(
        np.ix_(*(np.flatnonzero(kept[name]) for name in variables)) if values.keys() & set(variables) else None
        for variables, _, _ in patterns
    )
    return values, selections


class _Met(NamedTuple):
    """A factor that an elimination adds up: its place among all, the order of its axes, and where those of a table are."""

    place: int
    axes: tuple[int, ...]
    spread: tuple[slice | None, ...]

    def expand_axes(self, costs: Sequence[Array]) -> Array:
        """Its costs with an axis for each variable of a table, in their order."""
        cost = costs[self.place]
        if self.axes:
            cost = cost.transpose(*self.axes, *range(len(self.axes), cost.ndim))
        aligned: Array = cost[self.spread]
        return aligned


class _Step(NamedTuple):
    """A variable that is eliminated, others that it meets, and factors that it is in."""

    name: str
    others: tuple[str, ...]
    met: tuple[_Met, ...]


@lru_cache(maxsize=512)
def _elimination(factors: tuple[tuple[str, ...], ...]) -> tuple[_Step, ...]:
    """Elimination order of variables, from the factors' variables: the variable with fewest neighbours goes first."""
    left, count, steps = list(enumerate(factors)), len(factors), []
    while any(variables for _, variables in left):
        every = [variables for _, variables in left]
        name = min(_names(every), key=lambda candidate: len(_beside(every, candidate)))
        others = tuple(_beside(every, name))
        steps.append(
            _Step(
                name, others, tuple(_met(place, variables, (*others, name)) for place, variables in left if name in variables)
            )
        )
        left = [(place, variables) for place, variables in left if name not in variables]
        left.append((count, others))
        count += 1
    return tuple(steps)


def _met(place: int, variables: tuple[str, ...], names: tuple[str, ...]) -> _Met:
    """How a factor of some variables is added to a table of others."""
    order = tuple(sorted(range(len(variables)), key=lambda axis: names.index(variables[axis])))
    spread = tuple(slice(None) if name in variables else None for name in names)
    return _Met(place, () if order == tuple(range(len(variables))) else order, spread)


FEW = 4_096
"""Table size up to which NumPy's search along an axis is faster than a loop over values."""


def _lowest(table: Array, axis: int) -> tuple[Array, Array]:
    """The first place of the least cost along an axis, and that cost."""
    if table.size <= FEW:
        return table.argmin(axis=axis), table.min(axis=axis)
    along = np.moveaxis(table, axis, 0)
    lowest, word = along[0], np.zeros(along.shape[1:], np.int8)
    for place in range(1, len(along)):
        np.copyto(word, place, where=along[place] < lowest)
        lowest = np.minimum(lowest, along[place])
    return word, lowest


def _spread(cost: Array, words: int, entries: int) -> Array:
    """With as many axes of entries as others have."""
    missing = entries - (cost.ndim - words)
    return cost.reshape(*cost.shape[:words], *(1,) * missing, *cost.shape[words:]) if missing else cost


def _names(factors: Sequence[tuple[str, ...]]) -> list[str]:
    return list(dict.fromkeys(name for factor in factors for name in factor))


def _beside(factors: Sequence[tuple[str, ...]], name: str) -> list[str]:
    """Variables that meet one."""
    return [other for other in _names([factor for factor in factors if name in factor]) if other != name]
