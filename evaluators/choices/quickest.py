"""What is left to choose takes the least time among what fits; candidates are the same whatever the memory of a core.

Chips that differ in local memory and in the rate of main memory alone have their candidates looked at once, at some rates
around theirs: a candidate stays that is faster than all that need less memory. Each design then times the last of these that
fit it, as it is itself. So what more memory brings is more to choose from.

Such chips are a structure. Structures whose candidates are alike are looked at together, and designs time theirs together,
whatever their structures: what an array costs is paid once. No choice depends on what else is looked at.
"""

from collections.abc import Hashable, Iterator
from functools import lru_cache
from itertools import islice
from typing import Any, NamedTuple, Protocol

import numpy as np

from dse.evaluators.choices.structures import Structures, structures
from dse.space.chip import Chip
from dse.space.elementwise import Array, lowest
from dse.space.fields import leaves, replaced

RATES = (1e8, 4e9, 2.5e10, 1.6e11, 1e12, 1e14)
"""Of a channel of main memory: between one and the next, candidates are compared together. [B/s]"""

COMPARED = 5
"""Rates at which they are."""

BETWEEN = np.array([np.geomspace(RATES[at], RATES[min(at + 1, len(RATES) - 1)], COMPARED) for at in range(len(RATES))])
"""These rates, shape (steps, rates). [B/s]"""

ROOMS = (0.0, 2.0**20, 2.0**21, 2.0**24, 2.0**40)
"""Of local memory: candidates that need more than the next one are left out. [B]"""

WORTH = 0.995
"""What a candidate takes at most of the time of another one that needs less memory."""

TIMED = 6
"""Candidates of each rate that a design times."""

KEPT = 4096
"""Structures whose candidates are kept."""

TOGETHER = 2**17
"""Times that are looked at together: arrays that a core's cache holds."""

NEVER = 2**62
"""Turn of what is not looked at."""

ROOM, RATE = "tile.sram", "hbm.channel_bandwidth"

STEPS = {ROOM: ROOMS, RATE: RATES}
"""Of what may differ within a structure."""

DESIGNS = 2048
"""Designs that are timed together, likewise."""

Sizes = tuple[Any, ...]


class Kernel(Hashable, Protocol):
    """What is to be chosen for; equal for equal questions."""

    def options(self, chip: Chip, said: Any) -> Sizes:
        """Sizes of candidates, shape (candidates,), on chips whose mesh is the same."""

    def near(self, said: Any, sizes: Sizes) -> Sizes:
        """Sizes of candidates beside each, shape (beside, candidates)."""

    def held(self, sizes: Sizes) -> Any:
        """Local memory of candidates. [B]"""

    def work(self, chip: Chip, sizes: Sizes) -> Any:
        """Of candidates, what does not depend on main memory: a tuple, which may hold tuples; leaves broadcast."""

    def seconds(self, chip: Chip, sizes: Sizes, work: Any) -> Any:
        """Time of candidates, with that work; leaves broadcast."""


class Worth(NamedTuple):
    """Candidates that some memory would choose on chips of a structure, those that need less first.

    Attributes:
        table: leaves of their sizes, local memory and work, shape (leaves, candidates).
        form: (sizes, memory, work), with the place of each leaf in the table.
        places, needs: for each rate, which candidates are faster than all that need less, and their memory [B]; shape
            (rates, as many as any has), beyond the last of which they need more than there is.
    """

    table: Array
    form: Any
    places: Array
    needs: Array


_known: dict[Hashable, Worth] = {}
"""What is worth its memory, by kernel and structure."""


def quickest(kernel: Kernel, chip: Chip, said: Any) -> Sizes:
    """Sizes of what takes the least time and fits, or needs the least memory; shape (designs,), or numbers for one.

    Args:
        kernel: what is computed.
        chip: where; leaves are numbers or of shape (designs,).
        said: what is chosen already, likewise; 0 for what is not.
    """
    on = structures(chip, said, STEPS)
    sizes = _timed(kernel, chip if on.many else on.chip, _worths(kernel, on), on)
    return tuple(sizes) if on.many else tuple(size.item() for size in sizes)


@lru_cache(maxsize=KEPT)
def _token(kernel: Kernel, common: Hashable) -> object:
    """One for equal ones, whose hash is worked out once for all structures."""
    return object()


def _worths(kernel: Kernel, on: Structures) -> list[Worth]:
    """What is worth its memory, of each structure."""
    common, own = on.keys
    token = _token(kernel, common)
    keys = [(token, *row) for row in own]
    found = {number: _known[key] for number, key in enumerate(keys) if key in _known}
    missing = np.array([number for number in range(len(keys)) if number not in found], int)
    for alike in on.together(missing):
        sizes = kernel.options(on.chips(alike), on.asked(alike))
        each = max(TOGETHER // (COMPARED * len(sizes[0])), 1)
        for rows in (alike[start : start + each] for start in range(0, len(alike), each)):
            found.update(zip(rows.tolist(), _searched(kernel, on, rows, sizes), strict=True))
    _known.update((keys[number], found[number]) for number in missing.tolist())
    for key in list(islice(_known, max(len(_known) - KEPT, 0))):
        del _known[key]
    return [found[number] for number in range(len(keys))]


def _searched(kernel: Kernel, on: Structures, rows: Array, sizes: Sizes) -> Iterator[Worth]:
    """Of all candidates, and then of those beside what is worth its memory, what is worth its memory, of structures in turn."""
    chip, said = on.chips(rows), on.asked(rows)
    room = np.array(ROOMS)[np.minimum(on.places[ROOM][rows] + 1, len(ROOMS) - 1)][:, None]
    rates = BETWEEN[on.places[RATE][rows]].T[:, :, None]
    rates = rates[:, :1] if (rates == rates[:, :1]).all() else rates  # what depends on nothing else is worked out once
    chip = replaced(chip, {RATE: rates})
    sizes, _, _, better = _compared(kernel, chip, room, sizes, np.zeros((len(rows), len(sizes[0])), int))
    # those that any structure keeps, and what is beside them: each structure looks at what it keeps itself
    mine = np.asarray(better.any(axis=0))
    keep = np.flatnonzero(mine.any(axis=0))
    some = tuple(size[keep] for size in sizes)
    beside = [(size, *more) for size, more in zip(some, kernel.near(said, some), strict=True)]
    both, which = _distinct(np.stack([np.concatenate(size) for size in beside]))
    # in the order in which a structure by itself comes by them
    turns = np.where(np.tile(mine[:, keep], len(beside[0])), np.arange(len(which)), NEVER)
    order = np.argsort(which, kind="stable")
    turn = np.minimum.reduceat(turns[:, order], np.searchsorted(which[order], np.arange(both.shape[1])), axis=1)
    sizes, held, work, better = _compared(kernel, chip, room, tuple(both), turn)
    columns: list[Any] = []
    form = _taken_apart((sizes, held, work), columns)
    mine = np.asarray(better.any(axis=0))
    tables = np.stack([np.broadcast_to(np.asarray(column, float), mine.shape) for column in columns], axis=1)
    for row in range(len(rows)):
        keep = np.flatnonzero(mine[row])
        of, table = better[:, row, keep], tables[row][:, keep]
        # those of each rate before the others
        places = np.argsort(~of, axis=1, kind="stable")[:, : int(of.sum(axis=1).max())]
        there = np.take_along_axis(of, places, axis=1)
        yield Worth(table, form, np.where(there, places, 0), np.where(there, table[form[1]][places], np.inf))


def _distinct(sizes: Array) -> tuple[Array, Array]:
    """Columns that differ, in an order of their own, and which of them each is."""
    key = np.zeros(sizes.shape[1], np.int64)
    for size in sizes.astype(np.int64):
        key = key * (size.max() + 1) + size
    _, first, which = np.unique(key, return_index=True, return_inverse=True)
    return sizes[:, first], which


def _compared(kernel: Kernel, chip: Chip, room: Array, sizes: Sizes, turn: Array) -> tuple[Sizes, Array, Any, Array]:
    """Candidates by memory: sizes, memory, work, and at each rate which are faster than all that need less.

    Args:
        kernel, chip: as of `Kernel`; leaves of structures have the shape (structures, 1), rates (rates, structures or 1, 1).
        room: shape (structures, 1).
        sizes: shape (candidates,).
        turn: of those that need as much memory, which comes first on a structure, shape (structures, candidates); `NEVER` for
            what it does not look at.
    """
    held = np.asarray(kernel.held(sizes))
    order = np.argsort(held, kind="stable")
    order = order[: max(int(np.sum(held <= room.max())), 1)] if (held <= room.max()).any() else order
    held, sizes, turn = held[order], tuple(size[order] for size in sizes), turn[:, order]
    work = kernel.work(chip, sizes)
    seconds = kernel.seconds(chip, sizes, work)
    mine = turn < NEVER
    fit = mine & (held <= room)
    # where none fits, what needs the least
    fit[np.arange(len(fit)), mine.argmax(axis=1)] = True
    seconds = np.where(fit, seconds, np.inf)
    place = np.lexsort((turn, np.broadcast_to(held, turn.shape)))[None] if turn.any() else None
    better = _faster(seconds) if place is None else np.empty(seconds.shape, bool)
    if place is not None:
        place = np.broadcast_to(place, seconds.shape)
        np.put_along_axis(better, place, _faster(np.take_along_axis(seconds, place, axis=-1)), axis=-1)
    return sizes, held, work, better


def _faster(seconds: Array) -> Array:
    """Which are faster than all before, along the last axis; infinity is not."""
    better = np.empty(seconds.shape, bool)
    better[..., 0] = seconds[..., 0] < np.inf
    better[..., 1:] = seconds[..., 1:] < np.minimum.accumulate(seconds, axis=-1)[..., :-1] * WORTH
    return better


def _timed(kernel: Kernel, chip: Chip, worth: list[Worth], on: Structures) -> Array:
    """Sizes of the quickest, shape (sizes, designs), of what is worth its memory to the structure of each."""
    table, form = np.concatenate([one.table for one in worth], axis=1), worth[0].form
    start = np.cumsum([0, *(one.table.shape[1] for one in worth)])
    longest = max(one.places.shape[1] for one in worth)
    places, needs = np.zeros((len(worth), COMPARED, longest), int), np.full((len(worth), COMPARED, longest), np.inf)
    for number, one in enumerate(worth):
        places[number, :, : one.places.shape[1]] = one.places + start[number]
        needs[number, :, : one.places.shape[1]] = one.needs
    wide = [(address, value) for address, value, _ in leaves(chip) if isinstance(value, np.ndarray)]
    found = np.empty((len(form[0]), len(on.which)))
    for first in range(0, len(on.which), DESIGNS):
        some = slice(first, first + DESIGNS)
        here = replaced(chip, {address: value[some] for address, value in wide})
        found[:, some] = _chosen(kernel, here, (table, form), (places, needs), on, some)
    return found


def _chosen(
    kernel: Kernel, chip: Chip, of: tuple[Array, Any], chains: tuple[Array, Array], on: Structures, some: slice
) -> Array:
    """Of some designs: of the two rates beside its own, a design times the last candidates that fit, or the first one."""
    (table, form), (places, needs), which = of, chains, on.which[some]
    room, rate = (
        np.broadcast_to(np.asarray(value, float), which.shape) for value in (chip.tile.sram, chip.hbm.channel_bandwidth)
    )
    between = BETWEEN[on.places[RATE][which]]
    beside = np.minimum(np.maximum((between <= rate[:, None]).sum(axis=1) - 1, 0), COMPARED - 2)
    tried = []
    for at in (beside, beside + 1):
        end = (needs[which, at] <= room[:, None]).sum(axis=1)
        tried.append(places[which, at, np.maximum(end - 1 - np.arange(TIMED)[:, None], 0)])
    pick = np.concatenate(tried)
    sizes, held, work = _put_together(form, [leaf[pick] for leaf in table])
    best = lowest([np.maximum(held / room - 1, 0.0), kernel.seconds(chip, sizes, work)])
    return np.stack([np.take_along_axis(size, best, axis=0)[0] for size in sizes])


def _taken_apart(value: Any, leaves_: list[Any]) -> Any:
    """The same tuple with the places of its leaves, which are put there."""
    if isinstance(value, tuple):
        return _like(value, [_taken_apart(part, leaves_) for part in value])
    leaves_.append(value)
    return len(leaves_) - 1


def _put_together(form: Any, leaves_: list[Any]) -> Any:
    """The tuple that was taken apart, with other leaves."""
    return _like(form, [_put_together(part, leaves_) for part in form]) if isinstance(form, tuple) else leaves_[form]


def _like(value: tuple[Any, ...], parts: list[Any]) -> Any:
    return type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)
