"""Which experts tokens go to, how many of them are touched, and what the core that has most to do gets of them.

Experts are chosen by Zipf's law: the r-th most popular one as often as r ** -skew, but never more often than once a token.
Tokens choose independently.
"""

from functools import lru_cache
from math import log, sqrt
from typing import Any

import numpy as np

from dse.space.elementwise import Array
from dse.space.model import Experts


@lru_cache(maxsize=256)
def chosen(experts: Experts) -> Array:
    """The share of tokens that go to each expert, most popular first; they add up to `top_k`. Shape (count,).

    >>> chosen(Experts(count=4, top_k=2, intermediate=1)).tolist()
    [0.5, 0.5, 0.5, 0.5]
    >>> chosen(Experts(count=3, top_k=2, intermediate=1, skew=2.0)).round(3).tolist()
    [1.0, 0.692, 0.308]
    """
    weights = np.arange(1, experts.count + 1, dtype=float) ** -experts.skew
    found = np.zeros(experts.count)
    for sure in range(experts.top_k + 1):
        # the first ones would be chosen more than once a token: they always are, and the others share the rest
        found[:sure] = 1.0
        found[sure:] = (experts.top_k - sure) * weights[sure:] / max(weights[sure:].sum(), 1e-300)
        if sure == experts.count or found[sure] <= 1:
            break
    return found


def touched(experts: Experts, tokens: Any) -> Any:
    """Experts of a layer that at least one of `tokens` tokens goes to, expected.

    An expert that a share q of the tokens go to is missed by one token with probability 1 - q, so

        sum over experts of 1 - (1 - q) ** tokens

    and with even routing, where q is k / E for all, E (1 - (1 - k / E) ** tokens).

    Source:
        linearity of expectation; the same count as the classical occupancy problem [feller1968] IV.2 with k drawn
        without replacement at a time.

    >>> mixtral = Experts(count=8, top_k=2, intermediate=14336)
    >>> touched(mixtral, 1.0), round(touched(mixtral, 8.0), 2)
    (2.0, 7.2)
    """
    if not experts.skew:
        return experts.count * (1 - (1 - experts.top_k / experts.count) ** tokens)
    return _touched(chosen(experts), tokens)


def busiest(experts: Experts, tokens: Any, cores: Any) -> tuple[Any, Any]:
    """Rows, and experts touched, on the core that has most rows; leaves broadcast.

    Experts are dealt to cores from the most popular one on, up and down in turn. The most of several sums that scatter about
    their means is estimated by mean + deviation x sqrt(2 ln cores), which it does not exceed on average for normal ones.

    Args:
        experts: of a layer.
        tokens: that each go to `top_k` of them.
        cores: that have whole experts.
    """
    if isinstance(cores, np.ndarray):
        found = np.zeros((2, *np.broadcast_shapes(cores.shape, np.shape(tokens))))
        for count in np.unique(cores):
            here = np.broadcast_to(cores == count, found.shape[1:])
            for values, result in zip(found, busiest(experts, tokens, float(count)), strict=True):
                values[here] = np.broadcast_to(result, here.shape)[here]
        return found[0], found[1]
    share, spread, own = _fullest(experts, int(cores))
    rows = share * tokens + spread * (2 * log(max(int(cores), 1)) * tokens) ** 0.5
    return np.minimum(rows, tokens * min(experts.top_k, len(own))), _touched(own, tokens)


@lru_cache(maxsize=1024)
def _fullest(experts: Experts, cores: int) -> tuple[float, float, Array]:
    """Of the core with most rows: rows of a token, their deviation, and the shares of its experts."""
    shares, turns = chosen(experts), np.arange(experts.count) // cores
    places = np.arange(experts.count) % cores
    of_core = np.where(turns % 2 == 0, places, cores - 1 - places)
    sums = np.bincount(of_core, shares, cores)
    own = shares[of_core == int(sums.argmax())]
    return float(own.sum()), sqrt(float((own * (1 - own)).sum())), own


def _touched(shares: Array, tokens: Any) -> Any:
    total: Any = 0.0
    for share in np.unique(shares):
        total = total + np.count_nonzero(shares == share) * (1 - (1 - share) ** tokens)
    return total
