"""Counts that depend on a few whole numbers, for one design or for each of many: every combination is worked out once."""

from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np

SPAN = 1 << 20
"""Combinations, present or not, up to which they are counted rather than sorted."""


def looked_up(function: Callable[..., float], *keys: Any) -> Any:
    """`function` of one whole number or of several, none negative; arrays broadcast, and equal keys are worked out once.

    >>> looked_up(lambda a, b: a + b, np.array([1.0, 2.0, 1.0]), 3).tolist(), looked_up(lambda a: 2 * a, 4)
    ([4.0, 5.0, 4.0], 8)
    """
    if not any(isinstance(key, np.ndarray) for key in keys):
        return function(*(int(key) for key in keys))
    columns = [np.asarray(key).astype(np.int64) for key in np.broadcast_arrays(*keys)]
    spans = [int(column.max()) + 1 for column in columns]
    if prod(spans) >= 1 << 62:
        rows, which = np.unique(np.stack([column.ravel() for column in columns], axis=1), axis=0, return_inverse=True)
        found = np.array([function(*map(int, row)) for row in rows], dtype=float)
        return found[which.ravel()].reshape(columns[0].shape)
    code = columns[0]
    for column, span in zip(columns[1:], spans[1:], strict=True):
        code = code * span + column
    if prod(spans) <= SPAN:
        present = np.flatnonzero(np.bincount(code.ravel()))
        table = np.zeros(present[-1] + 1)
        table[present] = _values(function, present, spans)
        return table[code]
    present, which = np.unique(code.ravel(), return_inverse=True)
    return _values(function, present, spans)[which].reshape(code.shape)


def _values(function: Callable[..., float], codes: Any, spans: list[int]) -> Any:
    return np.array([function(*map(int, row)) for row in zip(*np.unravel_index(codes, spans), strict=True)], dtype=float)
