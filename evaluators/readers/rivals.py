"""Which of its rivals a kernel has, and which sums a group: the quickest that the chip can run, whoever prices it.

The closed form says which is quickest, for readers that play too.
"""

from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

from dse.evaluators.kernels.cost import Cost
from dse.evaluators.machine.machine import Machine
from dse.evaluators.passes.call import Group, Kernel, Product
from dse.evaluators.passes.rivals import named, picked, way, word_of
from dse.space.elementwise import where
from dse.space.mapping import AUTO, TILE_SUMS

T = TypeVar("T")

Divided = Callable[[Group, Product, Machine, float], tuple[Any, Any]]
"""A closed form of a product on a group: its seconds, and those of its engines."""


Price = Callable[[Kernel, Machine], Cost]
"""A closed form."""


def quickest(of: Kernel, machine: Machine, price: Price) -> Cost:
    """Of the quickest rival of each entry."""
    costs = _costs(of, machine, price)
    found: Cost = picked(costs, _place(of, costs))
    return found


def place(of: Kernel, machine: Machine, price: Price) -> Any:
    """Place of the quickest rival, the first of equals: a number, or an array where times of the kernel are one.

    Where none fits, which a limit says, the first one stands for all.
    """
    return _place(of, _costs(of, machine, price))


def _place(of: Kernel, costs: list[Cost]) -> Any:
    seconds, fits = [cost.seconds for cost in costs], [rival.fits for rival in of.rivals]
    return _least([where(fit, value, np.inf) for value, fit in zip(seconds, fits, strict=True)])


def _least(seconds: list[Any]) -> Any:
    if not any(isinstance(value, np.ndarray) for value in seconds):
        return seconds.index(min(seconds))
    return np.stack(np.broadcast_arrays(*seconds)).argmin(axis=0)


def _costs(of: Kernel, machine: Machine, price: Price) -> list[Cost]:
    return [price(named(of, rival.word), machine) for rival in of.rivals]


def settled(of: Kernel, machine: Machine, price: Price) -> tuple[Kernel, ...]:
    """A kernel by the algorithms that its entries have, each once, in the order of rivals; itself where no word is open."""
    if not of.rivals:
        return (of,)
    return tuple(named(of, of.rivals[number].word) for number in np.unique(place(of, machine, price)))


def shown(of: Kernel, ways: tuple[Kernel, ...]) -> str:
    """The algorithms that a kernel has chosen, for people; nothing where it had no choice."""
    return f" by {' or '.join(word_of(of, one) for one in ways)}" if of.rivals else ""


def each(of: Kernel, machine: Machine, price: Price, value: Callable[[Kernel], T]) -> T:
    """What something is of a kernel, each entry by its own algorithm.

    Args:
        of, machine, price: who chooses where, and by what.
        value: of a kernel without rivals: numbers, arrays, dataclasses or tables of them.
    """
    if not of.rivals:
        return value(of)
    best = place(of, machine, price)
    if not isinstance(best, np.ndarray):
        return value(named(of, of.rivals[best].word))
    used = np.unique(best)
    found: T = picked([value(named(of, of.rivals[number].word)) for number in used], np.searchsorted(used, best))
    return found


def each_way(group: Group, value: Callable[[Group], T]) -> T:
    """What something is of a group whose entries have several ways, each entry by its own."""
    found: T = picked([value(way(group, word)) for word in group.ways], group.which)
    return found


def sums(group: Group, of: Product, machine: Machine, width: float, price: Divided) -> Any:
    """Places of the quickest sums of a group among `TILE_SUMS`, the first of equals: a number, or an array."""
    return _least([seconds for seconds, _ in _sums(group, of, machine, width, price)])


def quickest_sums(group: Group, of: Product, machine: Machine, width: float, price: Divided) -> tuple[Any, Any]:
    """A product on a group with the quickest sums of each entry."""
    costs = _sums(group, of, machine, width, price)
    found: tuple[Any, Any] = picked(costs, _least([seconds for seconds, _ in costs]))
    return found


def shown_sums(group: Group, of: Product, machine: Machine, width: float, price: Divided) -> str:
    """The partition and sums that a product on a group has chosen, for people; nothing where it had no choice."""
    ways = f" by {' or '.join(group.ways)}" if group.ways else ""
    if group.sums != AUTO:
        return ways
    if group.partition == AUTO:
        group = way(group, "k")
    return f"{ways}{shown_added_up(group, of, machine, width, price)}"


def shown_added_up(group: Group, of: Product, machine: Machine, width: float, price: Divided) -> str:
    """The sums that a product whose inner dimension is divided has chosen, for people."""
    return f" by {' or '.join(TILE_SUMS[number] for number in np.unique(sums(group, of, machine, width, price)))}"


def _sums(group: Group, of: Product, machine: Machine, width: float, price: Divided) -> list[tuple[Any, Any]]:
    return [price(group._replace(sums=word), of, machine, width) for word in TILE_SUMS]
