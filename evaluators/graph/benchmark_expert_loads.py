"""Rows per expert as benchmarks of kernels distribute them: balanced, or by a power law.

These are the inputs of measured kernels. A model's router is in `expert_loads`.
"""

from functools import lru_cache
from math import ceil

import numpy as np

from dse.space.array_math import Array

EXPONENT_RANGE = (0.01, 2.0)
"""Shares are drawn between these where there are no more rows than experts, else between 1 and `MOST` of the tokens."""

MOST = 0.8

SAMPLE_DRAWS = 12
"""Number of draws in the mean."""


def balanced_rows(tokens: int, experts: int, top_k: int) -> Array:
    """Rows per expert when token i goes to experts i, i + s, i + 2 s ..., s = ceil(experts / top_k).

    Shape (experts,). Fewer tokens than s start as far apart as they can.

    Source:
        [aiconfigurator2025] collector of experts, balanced distribution.

    >>> balanced_rows(2, 8, 2).tolist(), balanced_rows(8, 4, 2).tolist()
    ([1, 0, 1, 0, 1, 0, 1, 0], [4, 4, 4, 4])
    """
    stride = ceil(experts / top_k)
    first = np.arange(tokens) if tokens >= stride else np.arange(tokens) * stride // tokens
    places = (first[:, None] + np.arange(top_k) * stride) % experts
    return np.bincount(places.ravel(), minlength=experts)


def power_law_rows(tokens: int, experts: int, top_k: int, exponent: float, random: np.random.Generator) -> Array:
    """Rows per expert in one draw from a power law, apportioned by largest remainders, shape (experts,).

    Shares have the density x^-exponent. No expert gets more rows than there are tokens: the excess goes to experts
    with room, the emptiest first.

    Args:
        tokens: that each go to `top_k` experts.
        experts: of the layer.
        top_k: at most as many as experts.
        exponent: of the density, above 1.
        random: which draws.

    Source:
        [aiconfigurator2025] collector of experts, power law; its rounding is read off the measured rows: with few tokens they
        touch as many experts as largest remainders do, more than nearest integers would.
    """
    low, high = (1.0, tokens * MOST) if tokens * top_k > experts else EXPONENT_RANGE
    power = 1 - exponent
    shares = ((high**power - low**power) * random.random(experts) + low**power) ** (1 / power)
    exact = shares / shares.sum() * (tokens * top_k)
    rows: Array = np.floor(exact).astype(int)
    rows[np.argsort(rows - exact, kind="stable")[: tokens * top_k - rows.sum()]] += 1
    over = int(np.maximum(rows - tokens, 0).sum())
    rows = np.asarray(np.minimum(rows, tokens))
    for place in np.argsort(rows, kind="stable"):
        more = min(over, tokens - int(rows[place]), max(1, over // experts))
        rows[place], over = rows[place] + more, over - more
    while over:  # the emptiest have taken their parts, and there is still room
        place = int(rows.argmin())
        more = min(over, tokens - int(rows[place]))
        rows[place], over = rows[place] + more, over - more
    return rows


@lru_cache(maxsize=4096)
def busiest_device_share(
    tokens: int, experts: int, top_k: int, parts: int, distribution: str, exponent: float, seed: int
) -> tuple[float, float]:
    """Rows, and experts with rows, on the fullest of `parts` devices with equally many experts each.

    Balanced rows are those of the first device, as they were measured; drawn rows are the mean of `SAMPLE_DRAWS`
    draws.

    >>> busiest_device_share(4096, 256, 8, 8, "balanced", 0.0, 0), busiest_device_share(1, 8, 2, 1, "balanced", 0.0, 0)
    ((4096.0, 32.0), (2.0, 2.0))
    """
    if distribution == "balanced":
        own = balanced_rows(tokens, experts, top_k)[: experts // parts]
        return float(own.sum()), float(np.count_nonzero(own))
    random = np.random.default_rng(seed)
    composition = []
    for _ in range(SAMPLE_DRAWS):
        groups = power_law_rows(tokens, experts, top_k, exponent, random).reshape(parts, -1)
        most = groups[groups.sum(axis=1).argmax()]
        composition.append((most.sum(), np.count_nonzero(most)))
    rows, touched = np.mean(composition, axis=0)
    return float(rows), float(touched)
