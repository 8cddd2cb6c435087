"""Expert loads: which experts tokens go to, how many are touched, and the load of the fullest core.

Experts are chosen by Zipf's law: the r-th most popular one in proportion to r ** -skew, but at most once per token.
Tokens choose independently.
"""

from collections.abc import Callable
from functools import lru_cache, partial
from itertools import combinations, pairwise
from typing import Any

import numpy as np

from dse.space.array_math import Array, ceil_div, minimum
from dse.space.model import ExpertLayers

Moments = tuple[tuple[float, float, int], ...]
"""Rows of a token on a core, their variance, and how many cores have these."""


@lru_cache(maxsize=256)
def expert_probabilities(experts: ExpertLayers) -> Array:
    """Share of tokens that go to each expert, most popular first, shape (count,); the sum is `top_k`.

    >>> expert_probabilities(ExpertLayers(count=4, top_k=2, intermediate=1)).tolist()
    [0.5, 0.5, 0.5, 0.5]
    >>> expert_probabilities(ExpertLayers(count=3, top_k=2, intermediate=1, skew=2.0)).round(3).tolist()
    [1.0, 0.692, 0.308]
    """
    weights = np.arange(1, experts.count + 1, dtype=float) ** -experts.skew
    probabilities = np.zeros(experts.count)
    for sure in range(experts.top_k + 1):
        # the first ones would be chosen more than once a token: they always are, and the others share the rest
        probabilities[:sure] = 1.0
        probabilities[sure:] = (experts.top_k - sure) * weights[sure:] / max(weights[sure:].sum(), 1e-300)
        if sure == experts.count or probabilities[sure] <= 1:
            break
    return probabilities


def experts_touched(experts: ExpertLayers, tokens: Any) -> Any:
    """Expected number of experts of a layer that at least one of `tokens` tokens goes to.

    `experts.load` gives the distribution. An expert that receives a share q of the tokens is missed by one token
    with probability 1 - q, so

        sum over experts of 1 - (1 - q) ** tokens

    and with even routing, where q is k / E for all, E (1 - (1 - k / E) ** tokens).

    Source:
        linearity of expectation; the same count as the classical occupancy problem [feller1968] IV.2 with k drawn
        without replacement at a time.

    >>> mixtral = ExpertLayers(count=8, top_k=2, intermediate=14336)
    >>> experts_touched(mixtral, 1.0), round(experts_touched(mixtral, 8.0), 2)
    (2.0, 7.2)
    """
    if experts.load == "even":
        return minimum(tokens * experts.top_k, float(experts.count))
    if experts.load == "sampled":
        return map_values(lambda tokens: float(np.count_nonzero(sampled_rows(experts, tokens))), tokens)
    if experts.load == "file":
        return sum(_touched(np.array(layer), tokens) for layer in experts.shares) / len(experts.shares)
    if not experts.skew:
        return experts.count * (1 - (1 - experts.top_k / experts.count) ** tokens)
    return _touched(expert_probabilities(experts), tokens)


def expert_read_shares(experts: ExpertLayers, tokens: Any, shares: tuple[Any, ...]) -> tuple[Any, ...]:
    """Shares of the experts that `tokens` tokens go to, by the memory that they are in.

    The most popular experts are in the first memory, the next ones in the second, and so on. With C(h) the expected number of
    the h most popular experts that some token goes to, memory i has the share

        (C(E (s_0 + ... + s_i)) - C(E (s_0 + ... + s_i-1))) / C(E)

    of the reads, E being all experts and s the shares of their bytes; straight between whole numbers of experts. Even loads
    read all experts alike, so that these are the shares of the bytes.

    Args:
        experts: of a layer.
        tokens: of a step; broadcasts with the shares.
        shares: of the bytes of all experts, by memory. [1]

    Source:
        `experts_touched`, summed over the most popular experts only.

    >>> skewed = ExpertLayers(count=4, top_k=1, intermediate=1, skew=1.0)
    >>> [round(share, 3) for share in expert_read_shares(skewed, 1.0, (0.5, 0.5))]
    [0.72, 0.28]
    >>> expert_read_shares(ExpertLayers(count=4, top_k=1, intermediate=1), 1.0, (0.75, 0.25))
    (0.75, 0.25)
    """
    if experts.load != "file" and (experts.load == "even" or not experts.skew):
        return shares

    def cumulative(tokens: float) -> Array:
        if experts.load == "sampled":
            touched = [(np.sort(sampled_rows(experts, tokens))[::-1] > 0) * 1.0]
        else:
            layers = experts.shares if experts.load == "file" else [expert_probabilities(experts)]
            touched = [1 - (1 - np.sort(np.asarray(layer, float))[::-1]) ** tokens for layer in layers]
        return np.append(0.0, np.mean([np.cumsum(each) for each in touched], axis=0))

    bounds, reached = [0.0], list[Any]()
    for share in shares:
        bounds.append(bounds[-1] + share)
    for bound in bounds:
        at = np.clip(bound, 0.0, 1.0) * experts.count
        reached.append(
            _each_tokens(lambda tokens, at: np.interp(at, np.arange(experts.count + 1), cumulative(tokens)), tokens, at)
        )
    return tuple((after - before) / reached[-1] for before, after in pairwise(reached))


def _each_tokens(function: Callable[[float, Any], Any], tokens: Any, values: Any) -> Any:
    """Function of each distinct number of tokens, and of the values beside it; broadcasts, and numbers give a number."""
    if not isinstance(tokens, np.ndarray) and not isinstance(values, np.ndarray):
        return float(function(float(tokens), values))
    counts, at = np.broadcast_arrays(np.asarray(tokens, float), np.asarray(values, float))
    results = np.empty(counts.shape)
    for count in np.unique(counts):
        mask = counts == count
        results[mask] = function(float(count), at[mask])
    return results


def experts_per_token(experts: ExpertLayers, shared: int) -> int:
    """Experts that a token is sent to: routed ones, and shared ones if they are placed as experts."""
    return experts.top_k + (experts.shared if shared else 0)


def busiest_core_load(
    experts: ExpertLayers, tokens: Any, cores: Any, redundant: int = 0, shared: int = 0, *, excess: Any = None
) -> tuple[Any, Any]:
    """Rows, and experts touched, on the core with most rows; leaves broadcast.

    Experts are dealt to cores from the most popular one on, up and down in turn. What is expected is the mean of the largest of
    all cores' rows, each with its own mean and variance (`_largest`), not that of the core with most of them on average.

    Even loads have no busiest core; of a draw, it is the one that got most; of loads by layer, the mean of each layer's.

    Args:
        experts: of a layer.
        tokens: that each go to `top_k` of them.
        cores: that have whole experts.
        redundant: redundant copies of the most loaded experts, which share their rows.
        shared: copies of each shared expert, which are dealt like others: each has as many of all tokens.
        excess: x of 1 + x (1 - 1/n), the rows of the busiest of n cores over their mean, where a workload gives no expert load
            of its own: neither a skew nor another load than what is expected; None for what such choices lead to.
    """
    if isinstance(cores, np.ndarray):
        loads = np.zeros((2, *np.broadcast_shapes(cores.shape, np.shape(tokens))))
        for count in np.unique(cores):
            mask = np.broadcast_to(cores == count, loads.shape[1:])
            of_count = busiest_core_load(experts, tokens, float(count), redundant, shared, excess=excess)
            for values, result in zip(loads, of_count, strict=True):
                values[mask] = np.broadcast_to(result, mask.shape)[mask]
        return loads[0], loads[1]
    if experts.load == "even" and not shared:
        rows = tokens * (experts.top_k / int(cores))
        return rows, minimum(ceil_div(experts.count + redundant, int(cores)) * 1.0, rows)
    if experts.load == "even":
        share, most = _most_even(experts, int(cores), redundant, shared)
        return share * tokens, minimum(most, share * tokens)
    if experts.load == "sampled":
        rows = map_values(lambda count: _most(experts, count, int(cores), redundant, shared)[0], tokens)
        return rows, map_values(lambda count: _most(experts, count, int(cores), redundant, shared)[1], tokens)
    if experts.load == "file":
        beside = _beside(experts, shared)
        each_layer = [_most_of(layer, tokens, int(cores), redundant, beside) for layer in experts.shares]
        rows, read = zip(*each_layer, strict=True)
        return sum(rows) / len(rows), sum(read) / len(read)
    own, moments = _fullest(experts, int(cores), redundant, shared)
    if excess is None or experts.skew:
        rows = map_values(lambda count: _rows(moments, count), tokens)
    else:
        rows = tokens * (experts_per_token(experts, shared) / int(cores) * (1 + excess * (1 - 1 / int(cores))))
    return np.minimum(rows, tokens * min(experts_per_token(experts, shared), len(own))), _touched(own, tokens)


def mean_core_load(experts: ExpertLayers, tokens: Any, cores: int, redundant: int = 0, shared: int = 0) -> tuple[Any, Any]:
    """Rows, and experts touched, of the mean core; arguments as of `busiest_core_load`.

    >>> mean_core_load(ExpertLayers(count=64, top_k=6, intermediate=1408), 8.0, 8)[0]
    6.0
    """
    rows, beside = tokens * (experts_per_token(experts, shared) / cores), _beside(experts, shared)
    if experts.load == "even":
        return rows, minimum(placed_experts(experts, redundant, shared) / cores, rows)
    if experts.load == "sampled":
        draws = partial(_drawn_loads, experts, redundant, shared)
        return rows, map_values(lambda count: float(np.count_nonzero(draws(count))), tokens) / cores
    layers = [np.array(layer) for layer in experts.shares] if experts.load == "file" else [expert_probabilities(experts)]
    touched = [_touched(np.concatenate([loads_with_copies(layer, redundant), beside]), tokens) for layer in layers]
    return rows, sum(touched) / (len(touched) * cores)


def placed_experts(experts: ExpertLayers, redundant: int, shared: int) -> int:
    """Experts that cores share out: routed ones, redundant copies, and placed copies of shared ones. [-]"""
    return int(experts.count + redundant + experts.shared * shared)


def rows_per_core(experts: ExpertLayers, tokens: float, cores: int, redundant: int = 0, shared: int = 0) -> Array | None:
    """Share of the rows that each core gets, shape (cores,); None if all cores get equal shares."""
    if not shared and (experts.load == "even" or (experts.load == "expected" and not experts.skew)):
        return None
    if experts.load == "sampled":
        loads = _drawn_loads(experts, redundant, shared, tokens)
        rows_by_core = [np.bincount(core_of_expert(len(loads), cores), loads, cores)]
    else:
        layers = [np.array(layer) for layer in experts.shares] if experts.load == "file" else [expert_probabilities(experts)]
        if experts.load == "even":
            layers, redundant = [_evenly(experts, redundant)], 0
        rows_by_core = [np.sort(_ranked(layer, cores, redundant, _beside(experts, shared))[2])[::-1] for layer in layers]
    mean: Array = np.sum([rows / rows.sum() for rows in rows_by_core], axis=0) / len(rows_by_core)
    return mean


def _beside(experts: ExpertLayers, shared: int) -> Array:
    """The share of tokens that go to each copy of shared experts, shape (copies,)."""
    return np.full(experts.shared * shared, 1 / max(shared, 1))


def _evenly(experts: ExpertLayers, redundant: int) -> Array:
    """Likewise to each routed expert and copy, where all get as many."""
    count = experts.count + redundant
    return np.full(count, experts.top_k / count)


def _with(loads: Array, beside: Array) -> Array:
    """Loads of experts and of others, most popular first; as they are where there are no others."""
    return np.sort(np.concatenate([loads, beside]))[::-1] if len(beside) else loads


def _ranked(loads: Array, cores: int, redundant: int, beside: Array) -> tuple[Array, Array, Array]:
    """Loads of experts and copies, most popular first, the core of each, and what each core has of them."""
    loads = np.sort(np.concatenate([loads_with_copies(loads, redundant), beside]))[::-1]
    of_core = core_of_expert(len(loads), cores)
    return loads, of_core, np.bincount(of_core, loads, cores)


def _most_even(experts: ExpertLayers, cores: int, redundant: int, shared: int) -> tuple[float, float]:
    """Rows of a token, and experts, of the core that has most rows where routed experts have as many each."""
    _, of_core, sums = _ranked(_evenly(experts, redundant), cores, 0, _beside(experts, shared))
    return float(sums.max()), float(np.count_nonzero(of_core == int(sums.argmax())))


def _most_of(layer: tuple[float, ...], tokens: Any, cores: int, redundant: int, beside: Array) -> tuple[Any, Any]:
    """Rows, and experts touched, on the core with most rows, for one layer's frequencies of experts."""
    shares, of_core, sums = _ranked(np.array(layer), cores, redundant, beside)
    return float(sums.max()) * tokens, _touched(shares[of_core == int(sums.argmax())], tokens)


@lru_cache(maxsize=1024)
def parts_reached(experts: ExpertLayers, parts: int) -> float:
    """Mean number of parts, of equally many consecutive experts each, that the experts of a token are in.

    A router with groups keeps g of G of them, any with equal probability, and chooses k of the K = E g / G experts
    in these without replacement. A part that has o of these K is missed with probability C(K - o, k) / C(K, k), so

        sum over parts of 1 - mean over choices of groups of prod (K - o - i) / (K - i), i = 0 .. k - 1

    Parts that cut experts or groups have fractions of them. Where a group is in one part, no token reaches more
    than g parts. A router that keeps the groups with the best experts spreads tokens wider over these: with
    identically drawn scores, the sum of the best two of a group deciding, a token of DeepSeek-V3 reaches 3.95 of 8
    parts, where this formula gives 3.63 (sampled in tests/evaluators/test_pooled_dies.py). A skew of experts is not
    included.

    Source:
        occupancy as in `touched` [feller1968] IV.2, k drawn without replacement; groups as of [deepseek2024] section 2.1.2.

    >>> deepseek = ExpertLayers(count=256, top_k=8, intermediate=2048, groups=8, groups_kept=4)
    >>> round(parts_reached(deepseek, 8), 3), round(parts_reached(deepseek, 16), 3), parts_reached(deepseek, 1)
    (3.629, 5.339, 1.0)
    """
    group, kept = experts.count / experts.groups, experts.count / experts.groups * experts.groups_kept
    edges = np.arange(parts + 1) * (experts.count / parts)
    starts = np.arange(experts.groups) * group
    own = np.clip(np.minimum(edges[1:, None], starts + group) - np.maximum(edges[:-1, None], starts), 0.0, None)
    choices = np.array(list(combinations(range(experts.groups), experts.groups_kept)))
    total = own[:, choices].sum(axis=2)  # experts of a part among those that are kept, shape (parts, choices)
    taken = np.arange(experts.top_k)
    missed = np.prod(np.clip(kept - total[..., None] - taken, 0.0, None) / (kept - taken), axis=-1)
    return float((1 - missed.mean(axis=1)).sum())


@lru_cache(maxsize=1024)
def _fullest(experts: ExpertLayers, cores: int, redundant: int, shared: int) -> tuple[Array, Moments]:
    """The shares of the experts of the core with most rows on average, and of all cores their rows of a token."""
    shares, of_core, sums = _ranked(expert_probabilities(experts), cores, redundant, _beside(experts, shared))
    scatter = np.bincount(of_core, shares * (1 - shares), cores)
    kinds, counts = np.unique(np.stack([sums, scatter], axis=1).round(12), axis=0, return_counts=True)
    moments = tuple((float(mean), float(variance), int(n)) for (mean, variance), n in zip(kinds, counts, strict=True))
    return shares[of_core == int(sums.argmax())], moments


def _rows(moments: Moments, tokens: float) -> float:
    """Expected rows of the core that has most; straight between numbers of tokens that are worked out, half an octave apart.

    Some core has a row of one token, and of a mean below one it is in proportion.
    """
    if tokens <= 1:
        return tokens * max(_largest(moments, 0), 1.0)
    place = int(np.floor(2 * np.log2(tokens)))
    low, high = 2 ** (place / 2), 2 ** ((place + 1) / 2)
    ends = [max(_largest(moments, at), 1.0) for at in (place, place + 1)]
    return float(ends[0] + (ends[1] - ends[0]) * (tokens - low) / (high - low))


MAX_POINTS = 256
"""At which the distribution of the largest rows is asked; where it is wider they are as many rows apart."""

TAIL = 9.0
"""Deviations about a mean in which rows are looked for."""


@lru_cache(maxsize=65536)
def _largest(moments: Moments, place: int) -> float:
    """Expected rows of the core that has most, of 2 ** (place / 2) tokens.

    Rows X of a core are a sum of binomial numbers, of mean M and variance V; as one binomial number with these two, of M / p
    trials with p = 1 - V / M, whose distribution F is a regularised incomplete beta function, and independent of other cores':

        E max X = sum over x >= 0 of 1 - prod over cores of F(x)

    That all rows together are `top_k` a token makes both scatter less and the mean of all the same: of equal cores neither
    changes the mean of the largest to first order, and one core has exactly all. Shape ().

    Source:
        expectation as the sum of a distribution's tail [feller1968] XI.1; binomial numbers as beta functions, VI.10.
    """
    from scipy.special import betainc  # takes a while: only where experts are placed

    tokens = 2 ** (place / 2)
    mean, variance, count = np.array([moment for moment in moments if moment[0] > 0]).T
    chance = np.clip(1 - variance / mean, 1e-9, 1 - 1e-12)
    mean, deviation = tokens * mean, (tokens * variance) ** 0.5
    least = max(float(np.floor((mean - TAIL * deviation).max())), 0.0)
    most = float(np.ceil((mean + TAIL * deviation).max())) + TAIL
    apart = max((most - least) / MAX_POINTS, 1.0)
    at = least + apart * (np.arange(int(np.ceil((most - least) / apart))) + 0.5) - 0.5
    left = (mean / chance)[:, None] - at
    below = np.where(left > 0, betainc(np.maximum(left, 1e-9), at + 1, 1 - chance[:, None]), 1.0)
    return float(least + apart * (1 - np.exp(count @ np.log(np.maximum(below, 1e-300)))).sum())


def core_of_expert(count: int, cores: int) -> Array:
    """Core of each expert, most popular first: ascending and descending in alternation, shape (count,).

    >>> core_of_expert(7, 3).tolist()
    [0, 1, 2, 2, 1, 0, 0]
    """
    turns, places = np.divmod(np.arange(count), cores)
    return np.where(turns % 2 == 0, places, cores - 1 - places)


def loads_with_copies(loads: Array, redundant: int) -> Array:
    """Loads of experts and redundant copies, shape (copies,); each copy goes to the most loaded expert.

    >>> loads_with_copies(np.array([6.0, 4.0, 1.0]), 2).tolist()
    [3.0, 3.0, 2.0, 2.0, 1.0]
    """
    copies = np.ones(len(loads), int)
    for _ in range(redundant):
        copies[np.argmax(loads / copies)] += 1
    return np.repeat(loads / copies, copies)


MAX_SAMPLED_TOKENS = 4096
"""Tokens that are drawn one by one: what more of them choose is in proportion."""


@lru_cache(maxsize=256)
def sampled_rows(experts: ExpertLayers, tokens: float) -> Array:
    """Rows per expert in one draw without replacement of tokens' choices, shape (count,).

    Experts are ordered from the most popular and chosen about as often as `expert_probabilities` gives: Pareto
    sampling keeps the `top_k` largest of the log-odds of these shares plus logistic noise [rosen1997]. Weighted
    sequential drawing would spread tokens wider.
    """
    count = max(int(min(tokens, MAX_SAMPLED_TOKENS)), 1)
    noise = np.exp(-np.random.default_rng(experts.seed).gumbel(size=(count, experts.count)))
    shares = expert_probabilities(experts)
    with np.errstate(divide="ignore"):  # what is always chosen
        keys = -noise - np.log(-np.expm1(-noise)) + np.log(shares) - np.log1p(-shares)
    picked = np.argpartition(-keys, experts.top_k - 1, axis=1)[:, : experts.top_k]
    return np.bincount(picked.ravel(), minlength=experts.count) * (max(tokens, 1.0) / count)


def _most(experts: ExpertLayers, tokens: float, cores: int, redundant: int, shared: int) -> tuple[float, float]:
    """Rows, and experts touched, on the core that got most of a draw; experts are where their popularity puts them."""
    loads = _drawn_loads(experts, redundant, shared, tokens)
    of_core = core_of_expert(len(loads), cores)
    sums = np.bincount(of_core, loads, cores)
    return float(sums.max()), float(np.count_nonzero(loads[of_core == int(sums.argmax())]))


def _drawn_loads(experts: ExpertLayers, redundant: int, shared: int, tokens: float) -> Array:
    """Rows of each expert and copy in a draw, most popular first."""
    return _with(loads_with_copies(sampled_rows(experts, tokens), redundant), _beside(experts, shared) * tokens)


def map_values(function: Callable[[float], float], values: Any) -> Any:
    """Function applied to each distinct value of an array; a number gives a number."""
    if not isinstance(values, np.ndarray):
        return function(float(values))
    distinct, which = np.unique(values, return_inverse=True)
    return np.array([function(float(value)) for value in distinct])[which].reshape(values.shape)


def _touched(shares: Array, tokens: Any) -> Any:
    total: Any = 0.0
    for share in np.unique(shares):
        total = total + np.count_nonzero(shares == share) * (1 - (1 - share) ** tokens)
    return total
