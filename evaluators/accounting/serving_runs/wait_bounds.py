"""Lower bounds on waits in the steady state: for overload, and for prompts between tokens.

An instance whose decodes wait for prompts serves at most 1 / (prompt + g iteration / b) requests per second, each of
which has g further tokens and shares iterations with at most b - 1 others; where chunks run with decodes, at most 1 /
prompt. Requests beyond that rate wait, the last one until all others are served.

An iteration of decodes has c chunks of prompts on average, Poisson distributed (`serving/pool_balance.py`). Where 1 -
exp(-c) exceeds a hundredth, the 99th percentile of TBT is that of an iteration with a chunk, the longest of those below
the percentile. The mean is at least

    c = min(rate x n x least iteration, n (b - r) / (g + 2 n r), 1)

below saturation and where requests wait: of at most b concurrent requests each has n chunks, and r bounds the ratio of
the mean chunk time to the time of the mean chunk, if times grow at most with the square of tokens. In loads of few
requests, whose prompts are simulated, arrivals may come in bursts, so that chunks coincide or run without decodes; only
a part of the effect is then counted.
"""

import math
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from dse.evaluators.accounting.serving_instances.lower_bounds import WorkLowerBounds
from dse.evaluators.serving.prefill_replay import MAX_REQUESTS
from dse.evaluators.serving.scheduling_policy import SchedulingPolicy, pool_policies
from dse.evaluators.serving.steady_state import request_mix
from dse.space.array_math import Array, maximum, minimum
from dse.space.requests import Requests
from dse.space.serving_plan import ServingPlan
from dse.space.workload import ServingLoad

TAIL_SHARE = 0.01
"""Of the times between tokens, those that are longer."""


CERTAIN_SHARE = 0.25
"""Of the iterations that have a chunk in the mean, those that are taken to have one whatever comes together in a played load.

A margin that was judged: no bound of random designs was above its value with it (tests/dse/test_pruned.py). That is no proof.
"""


class _Chunks(NamedTuple):
    """Prompts in iterations without decodes: time of one, chunks and tokens of the mean one, and r of the module's
    docstring.
    """

    chunks: float
    tokens: float
    uneven: float


def overload_delay(load: ServingLoad, serving: ServingPlan, bounds: WorkLowerBounds) -> Any:
    """Delay of the last request because requests arrive too fast; broadcasts over designs. [s]"""
    if not np.any(bounds.lanes):
        return 0.0
    (rule,), mixed = pool_policies(serving), request_mix(load.requests)
    if rule.mixed and not (rule.chunked and not rule.unit and not rule.chunk):
        return 0.0  # several chunks an iteration take as long as one that is as long as all, which is not known
    prompt = float(mixed.weights @ mixed.prompts) * bounds.prompt
    each = prompt + (0.0 if rule.mixed else mixed.further * bounds.decode / serving.max_batch_size)
    return mixed.requests * maximum(each / maximum(bounds.lanes, 1.0) - 1 / mixed.rate, 0.0)


def token_gap_bound(load: ServingLoad, serving: ServingPlan, bounds: WorkLowerBounds) -> Any:
    """Lower bound on the 99th percentile of TBT; broadcasts over designs. [s]"""
    if not np.any(bounds.room) or np.any(bounds.lanes != 1):
        return bounds.decode
    (rule,), mixed = pool_policies(serving), request_mix(load.requests)
    few = _chunks(load.requests, _longest(rule, 0.0))
    many = minimum(bounds.room, serving.max_batch_size)
    full = few.chunks * (many - few.uneven) / (mixed.further + 2 * few.chunks * few.uneven)
    count = minimum(minimum(mixed.rate * few.chunks * bounds.decode, full), 1.0)
    probability = 1 - np.exp(-maximum(count, 0.0) * (CERTAIN_SHARE if len(load.requests) <= MAX_REQUESTS else 1.0))
    whole = mixed.prompts[_kind(mixed.weights, probability)]
    own = bounds.prompt * maximum(minimum(whole, _longest(rule, serving.max_batch_size)), few.tokens)
    beside = maximum(bounds.decode, own) if rule.mixed else bounds.decode + own
    return np.where(probability > TAIL_SHARE, beside, bounds.decode)


def _longest(rule: SchedulingPolicy, decodes: Any) -> Any:
    """The longest chunk next to some decodes, as in `serving/prefill_chunks.py`. [token]"""
    if not rule.chunked:
        return math.inf
    if rule.unit:
        return float(rule.chunk)
    left = maximum(1.0, rule.tokens - decodes * 1.0)
    return minimum(left, float(rule.chunk)) if rule.chunk else left


@lru_cache(maxsize=16)
def _chunks(requests: Requests, longest: float) -> _Chunks:
    mixed = request_mix(requests)
    each = np.ceil(mixed.prompts / longest) if longest < math.inf else np.ones(len(mixed.prompts))
    count = float(mixed.weights @ each)
    mean = float(mixed.weights @ mixed.prompts) / count
    squares = float(mixed.weights @ np.minimum(mixed.prompts**2, mixed.prompts * longest)) / count
    return _Chunks(count, mean, 1 + squares / mean**2)


def _kind(weights: Array, probability: Any) -> Array:
    """The kind of prompts that the longest iterations have, of those shares of iterations that have one."""
    share = 1 - TAIL_SHARE / np.maximum(probability, TAIL_SHARE)
    return np.asarray(np.minimum(np.searchsorted(np.cumsum(weights), share, side="left"), len(weights) - 1))
