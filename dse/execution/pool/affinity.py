"""Which item a worker takes: kinds of items that it has worked on first, the longest first.

What a worker has computed for one item of a kind, such as a kind of chip, serves other items of that kind. An idle worker takes
items of a kind that others know, if they would begin them too late.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

UNFAMILIAR_FACTOR = 1.4
"""Time of a worker new to a kind over that of one that knows it: of mesh_llm, two halves of one kind take so much more."""


class Item(NamedTuple):
    """An item of work, as a pool gets it.

    Attributes:
        key: tells it from all others that are not answered yet.
        value: argument of the work.
        kind: of it; None where it does not matter who takes it.
        cost: expected time, in any unit, the same for all.
    """

    key: Any
    value: Any
    kind: Any = None
    cost: float = 0.0


class Affinity:
    """Which workers have worked on which kinds."""

    def __init__(self) -> None:
        self._known: dict[Any, list[int]] = {}  # by kind, workers that have had some of it, the last one at the end

    def choose(self, who: int, loads: Mapping[int, float], waiting: Sequence[Item], *, apart: bool) -> int | None:
        """Place of the item that a worker takes, as if all were given out now; None if it takes none.

        It takes the first of kinds that it is the last to know, or that nobody knows and that fall to it; else the first that
        another worker will not have begun when this one is done with it.

        Args:
            who: number of the worker.
            loads: by number of each worker, cost of what it is at.
            waiting: items of kinds, those of most cost first.
            apart: whether it never takes a kind that another worker knows.
        """
        ends = dict(loads)
        total: dict[Any, float] = {}
        for item in waiting:
            total[item.kind] = total.get(item.kind, 0.0) + item.cost
        known = {kind: [number for number in self._known.get(kind, ()) if number in ends] for kind in total}
        falls: dict[Any, int] = {}
        for kind in sorted(known, key=lambda kind: (not known[kind], -total[kind])):
            idlest = min(ends, key=lambda number: (ends[number], number != who))
            falls[kind] = known[kind][-1] if known[kind] else idlest
            ends[falls[kind]] += total[kind]

        def can_take(item: Item) -> bool:
            """From another worker."""
            strange = bool(known[item.kind]) and who not in known[item.kind]
            allowed = not (apart and known[item.kind])
            return allowed and item.cost * (UNFAMILIAR_FACTOR if strange else 1) <= ends[falls[item.kind]]

        mine = (place for place, item in enumerate(waiting) if falls[item.kind] == who)
        place = next(mine, next((place for place, item in enumerate(waiting) if can_take(item)), None))
        if place is not None:
            knows = self._known.setdefault(waiting[place].kind, [])
            knows[:] = [*(number for number in knows if number != who), who]
        return place
