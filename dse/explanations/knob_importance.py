"""Importance of each knob for each metric, from evaluated designs."""

import numpy as np

from dse.space.array_math import Array

MAX_LEVELS = 16
"""Groups into which a knob with more values than this is cut, equally full."""


def estimate_sobol_index(values: Array, knob: Array) -> float:
    """First-order Sobol index of one knob: the share of a metric's variance it explains, on ranks. [-]

    With the designs grouped by the knob's value, n designs in k groups and y the rank of the metric:

        S = 1 - (n - 1) / (n - k) * sum_groups (y - mean of its group)^2 / sum (y - mean)^2

    which is the correlation ratio, less what k groups of noise would explain. Ranks make it the same for a metric and its
    logarithm. What is missing to 1 over all knobs is what knobs do together. It is a Sobol index where knobs were drawn
    independently, as a screen draws them; a search draws good designs more often, and its shares are about those.

    Args:
        values: of the metric, shape (designs,), finite.
        knob: of the knob, numbers or codes of words; NaN where it does not count, which is a group too. Shape (designs,).

    Returns:
        From 0 to 1; 0 where nothing varies.

    Source:
        [saltelli2008] for the index; the adjustment is that of the adjusted R2.

    >>> grid = np.stack(np.meshgrid(np.arange(10.0), np.arange(10.0)), -1).reshape(-1, 2)
    >>> metric = np.exp(grid[:, 0])
    >>> round(estimate_sobol_index(metric, grid[:, 0]), 3), round(estimate_sobol_index(metric, grid[:, 1]), 3)
    (1.0, 0.0)
    """
    groups = _value_groups(knob)
    n, k = len(values), int(groups.max()) + 1 if len(values) else 0
    ranks = _value_ranks(values)
    spread = float(np.sum((ranks - ranks.mean()) ** 2)) if n else 0.0
    if spread == 0.0 or k < 2 or n <= k:
        return 0.0
    means = np.bincount(groups, ranks) / np.maximum(np.bincount(groups), 1)
    within = float(np.sum((ranks - means[groups]) ** 2))
    return float(np.clip(1 - (n - 1) / (n - k) * within / spread, 0.0, 1.0))


def _value_groups(knob: Array) -> Array:
    levels, groups = np.unique(knob, return_inverse=True)
    if len(levels) <= MAX_LEVELS:
        return np.asarray(groups)
    order = np.argsort(knob, kind="stable")
    cut = np.empty(len(knob), dtype=np.intp)
    cut[order] = np.arange(len(knob)) * MAX_LEVELS // len(knob)
    return cut


def _value_ranks(values: Array) -> Array:
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    ends = np.cumsum(counts)
    return np.asarray((ends - (counts - 1) / 2.0)[inverse])
