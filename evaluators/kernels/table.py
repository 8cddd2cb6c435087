"""Counts that depend on a few whole numbers, for one design or for each of many: every combination is worked out once."""

from collections.abc import Callable
from typing import Any

import numpy as np


def looked_up(function: Callable[..., float], *keys: Any) -> Any:
    """`function` of one whole number or of several; arrays broadcast, and equal keys are worked out once.

    >>> looked_up(lambda a, b: a + b, np.array([1.0, 2.0, 1.0]), 3).tolist(), looked_up(lambda a: 2 * a, 4)
    ([4.0, 5.0, 4.0], 8)
    """
    if not any(isinstance(key, np.ndarray) for key in keys):
        return function(*(int(key) for key in keys))
    columns = [np.asarray(key).astype(np.intp) for key in np.broadcast_arrays(*keys)]
    first = columns[0]
    if all((column == first).all() for column in columns[1:]):
        present = np.flatnonzero(np.bincount(first.ravel()))
        table = np.zeros(present[-1] + 1)
        table[present] = [function(*(int(key),) * len(columns)) for key in present]
        return table[first]
    rows, which = np.unique(np.stack([column.ravel() for column in columns], axis=1), axis=0, return_inverse=True)
    return np.array([function(*map(int, row)) for row in rows], dtype=float)[which.ravel()].reshape(first.shape)
