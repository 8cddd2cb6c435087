"""Balance of whole units over pipeline stages, so that the slowest stage takes the least time."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from dse.space.array_math import Array


def cut_stages(seconds: Sequence[Any], counts: Sequence[int], stages: int) -> Array:
    """Units of each kind on each stage, shape (stages, kinds, designs) or (stages, kinds, 1). [-]

    Each stage takes as many of the units that are left as stay below a bound, which is as low as lets the last stage take the
    rest: no other way to cut has a faster slowest stage.

    Args:
        seconds: of a unit of each kind, in order; leaves broadcast over designs.
        counts: of each kind.
        stages: as many as units at most.

    >>> cut_stages([1.0, 2.0], [4, 2], 2)[:, :, 0].tolist()
    [[4.0, 0.0], [0.0, 2.0]]
    """
    kinds = np.repeat(np.arange(len(counts)), counts)
    each = np.stack(np.broadcast_arrays(*(np.atleast_1d(np.asarray(value, float)) for value in seconds)))[kinds]
    ends = np.concatenate([np.zeros((1, each.shape[1])), np.cumsum(each, axis=0)]) / each.sum(axis=0)
    number = np.concatenate([np.zeros((1, len(counts))), np.cumsum(np.eye(len(counts))[kinds], axis=0)])
    bound = np.maximum(1.0 / stages, np.diff(ends, axis=0).max(axis=0))
    places, columns = _filled(ends, bound, stages), np.arange(ends.shape[1])
    while (short := places[-1] < len(kinds)).any():
        # nothing changes before one of the stages has room for one unit more
        more = ends[np.minimum(places[1:] + 1, len(kinds)), columns] - ends[places[:-1], columns]
        bound = np.where(short, more.min(axis=0, where=places[1:] < len(kinds), initial=np.inf), bound)
        places = _filled(ends, bound, stages)
    return np.asarray(np.moveaxis(number[places[1:]] - number[places[:-1]], -1, 1))


ROUNDING = 1e-12


def _filled(ends: Array, bound: Array, stages: int) -> Array:
    """Places between units at which stages begin that take as much as a bound allows, and the last end."""
    units, designs = len(ends) - 1, ends.shape[1]
    line = (ends + 2.0 * np.arange(designs)).T.ravel()  # one design after the other, in order
    offset, columns = np.arange(designs) * (units + 1), np.arange(designs)
    places = np.zeros((stages + 1, designs), int)
    for stage in range(stages):
        reach = ends[places[stage], columns] + bound + ROUNDING + 2.0 * columns
        places[stage + 1] = np.minimum(np.searchsorted(line, reach, side="right") - 1 - offset, units)
    return places
