"""Words of variables that meet each other in factors, so that the sum of all factors is least: elimination, one by one.

Exact, like trying every combination; as cheap as the largest table on the way, which is small where few meet at a time
(R. Dechter, "Bucket elimination: a unifying framework for reasoning", Artificial Intelligence 113, 1999).
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from dse.space.elementwise import Array


class Factor(NamedTuple):
    """What some variables cost together.

    Attributes:
        of: their names, each once.
        cost: an axis for the words of each, then axes of entries, which broadcast; infinite for what cannot be.
    """

    of: tuple[str, ...]
    cost: Array


def least(factors: Sequence[Factor]) -> dict[str, Array]:
    """The word of each variable, by its place, of the assignment whose sum is least; of equal ones, the first word.

    Shape of each: entries.

    >>> apart = Factor(("x", "y"), np.array([[np.inf, 0.0], [0.0, np.inf]]))
    >>> {name: int(word) for name, word in least([apart, Factor(("x",), np.array([2.0, 1.0]))]).items()}
    {'x': 1, 'y': 0}
    """
    entries = np.broadcast_shapes(*(factor.cost.shape[len(factor.of) :] for factor in factors))
    left = [Factor(of, _spread(cost, len(of), len(entries))) for of, cost in factors]
    decided: list[tuple[str, tuple[str, ...], Array]] = []
    while any(factor.of for factor in left):
        name = min(_names(left), key=lambda one: len(_beside(left, one)))  # who meets the fewest
        others = tuple(_beside(left, name))
        table = sum(_aligned(factor, (*others, name)) for factor in left if name in factor.of)
        assert isinstance(table, np.ndarray)
        decided.append((name, others, table.argmin(axis=len(others))))
        left = [factor for factor in left if name not in factor.of]
        left.append(Factor(others, table.min(axis=len(others))))
    found: dict[str, Array] = {}
    places = np.indices(entries, sparse=True)
    for name, others, best in reversed(decided):
        whole = np.broadcast_to(best, (*best.shape[: len(others)], *entries))
        found[name] = np.asarray(whole[(*(found[other] for other in others), *places)])
    return dict(reversed(found.items()))


def _spread(cost: Array, words: int, entries: int) -> Array:
    """With as many axes of entries as others have."""
    missing = entries - (cost.ndim - words)
    return cost.reshape(*cost.shape[:words], *(1,) * missing, *cost.shape[words:])


def _names(factors: Sequence[Factor]) -> list[str]:
    return list(dict.fromkeys(name for factor in factors for name in factor.of))


def _beside(factors: Sequence[Factor], name: str) -> list[str]:
    """Variables that meet one."""
    return [other for other in _names([factor for factor in factors if name in factor.of]) if other != name]


def _aligned(factor: Factor, names: tuple[str, ...]) -> Array:
    """A factor's costs with an axis for each of some variables, in their order."""
    words = len(factor.of)
    order = sorted(range(words), key=lambda axis: names.index(factor.of[axis]))
    moved = factor.cost.transpose(*order, *range(words, factor.cost.ndim))
    sizes = iter(moved.shape[:words])
    shape = [next(sizes) if name in factor.of else 1 for name in names]
    return moved.reshape(*shape, *factor.cost.shape[words:])
