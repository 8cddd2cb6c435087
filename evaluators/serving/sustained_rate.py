"""Sustained rate of instances in closed form, from iteration times and Little's law.

Requests are taken as equal, of mean lengths. An iteration in which `d` requests decode takes `t(d)`. A request is
decoded in as many iterations as it has further tokens, fewer with speculative decoding, and each of them also prefills
its share of the prompts that arrive meanwhile. Waiting prompts go together, as many as an iteration has room for: the
rate is the largest one, at which some always wait.
"""

from collections.abc import Sequence
from math import ceil
from typing import Generic, NamedTuple, TypeVar

import numpy as np

from dse.evaluators.serving.iteration_time_lookup import iteration_seconds
from dse.evaluators.serving.scheduling_policy import max_prompt_tokens
from dse.evaluators.serving.simulator import Deployment, InstancePool
from dse.space.array_math import Array
from dse.space.requests import Requests

STEPS = 48
"""Numbers of decoding requests that are tried, from one to the most, in equal ratios."""


FEWER = 6
"""Halvings of the number of decoding requests below one that are tried."""

TINY = 1e-9
"""Rounding tolerance of the room in an iteration."""


Value = TypeVar("Value", float, Array)


class SustainedRate(NamedTuple, Generic[Value]):
    """Steady state at the sustained rate of a deployment, or of several deployments.

    Attributes:
        rate: of requests. [1/s]
        ttft: of a prompt that finds no queue. [s]
        tpot: time per output token. [s]
        decodes: requests that decode at a time, of an instance.
    """

    rate: Value
    ttft: Value
    tpot: Value
    decodes: Value


class PoolPaces(NamedTuple):
    """Times of an instance of each pool for requests of mean length, independent of the instance count.

    Attributes:
        prompt: of a prompt that finds no queue. [s]
        together: time of a prompt when others wait and are computed with it, or of a lone prompt if that is faster. [s]
        full: of a prompt's share of iterations that have nothing but prompts, and are full. [s]
        decodes: requests that decode at a time, as they are tried.
        each: of an iteration in which so many decode, shape of `decodes`. [s]
        further: iterations that a request decodes in.
    """

    prompt: float
    together: float
    full: float
    decodes: Array
    each: Array
    further: float


def pool_paces(pools: Sequence[InstancePool], requests: Requests) -> PoolPaces:
    """Times of an instance for requests of mean length, for one pool or for prefill and decode pools."""
    prompt, output = float(requests.prompt.mean()), float(requests.output.mean())
    first, last = pools[0], pools[-1]
    further, context = max(output - 1.0, 1e-9) / last.expected_tokens, prompt + output / 2
    alone, full = _prompt(first, prompt), _full(first, requests)
    together, decodes = min(alone, full), _counts(last, context)
    if len(pools) == 1:
        decodes = _sustained(last, prompt, further, decodes)
    # while a request makes its tokens, as many prompts come as requests decode: one in the mean for each
    each = [
        _decode(last, count, context) if len(pools) == 2 else _mixed(last, count, prompt, further, context, together)
        for count in decodes
    ]
    return PoolPaces(alone, together, full, np.array(decodes), _crowd(last) * np.array(each), further)


def sustained_rate(deployment: Deployment, requests: Requests, *, tpot: float) -> SustainedRate[float]:
    """Sustained rate with TPOT within a bound, without regard to queues. [1/s]

    Args:
        deployment: pools.
        requests: requests, whose mean lengths are used.
        tpot: the bound. [s]

    Returns:
        A rate of 0 if a single request takes longer than the bound.
    """
    return sustained_rate_of_paces(deployment.pools, pool_paces(deployment.pools, requests), tpot=tpot)


def sustained_rate_of_paces(pools: Sequence[InstancePool], paces: PoolPaces, *, tpot: float) -> SustainedRate[float]:
    """Sustained rate from known instance times; arguments as of `sustained_rate`. [1/s]"""
    every = sustained_rates_of_counts(pools, paces, np.array([[pool.instances for pool in pools]]), tpot=tpot)
    return SustainedRate(*(float(values[0]) for values in every))


def sustained_rates_of_counts(
    pools: Sequence[InstancePool], paces: PoolPaces, counts: Array, *, tpot: float
) -> SustainedRate[Array]:
    """Sustained rates by numbers of instances, each of shape (deployments,). [1/s]

    Args:
        pools: whose own numbers of instances do not count.
        paces: instance times, which do not depend on the number of instances.
        counts: instances of each pool, shape (deployments, pools).
        tpot: as of `sustained_rate`. [s]
    """
    first, last = pools[0], pools[-1]
    token = paces.each / last.expected_tokens
    decoded = counts[:, -1:] * last.stages * paces.decodes / (paces.further * paces.each)
    prefilled = counts[:, :1] * first.stages / (paces.together * _crowd(first))
    rates = np.minimum(np.where(token <= tpot, decoded, 0.0), prefilled)
    best = np.argmax(rates, axis=1)
    rate = rates[np.arange(len(counts)), best]
    serves = rate > 0
    return SustainedRate(
        np.where(serves, rate, 0.0),
        np.full(len(counts), paces.prompt),
        np.where(serves, token[best], np.inf),
        np.where(serves, paces.decodes[best], 0.0),
    )


def _crowd(pool: InstancePool) -> float:
    """Slowdown of an iteration if every stage is busy: the slowest stage delays the others."""
    return max(1.0, max(pool.shares) * pool.stages)


def _far(pool: InstancePool, decodes: float, context: float) -> float:
    """Share of positions read that are not in SRAM, with some requests in each lane."""
    memory = pool.memory
    if not (memory.pages or memory.buffers):
        return 0.0
    near = memory.blocks / max(1, memory.blocks_needed(ceil(max(context, 1.0))))
    return max(0.0, 1 - near / max(decodes * pool.stages, 1.0))


def _full(pool: InstancePool, requests: Requests) -> float:
    """Seconds of a prompt's share of full iterations, which have nothing else. [s]"""
    lengths = requests.prompt.astype(float)
    mean, context = lengths.mean(), (lengths * (lengths + 1) / 2).sum() / lengths.sum()
    full = {float(max_prompt_tokens(pool.policy, pool.batch, int(lengths.max())))}
    if not pool.policy.chunked:
        full.add(mean)
    each = min(float(iteration_seconds(pool.price, tokens, tokens * context, 0.0, 0.0, 0.0, 0.0)) / tokens for tokens in full)
    return float(each * mean)


def _counts(pool: InstancePool, context: float) -> list[float]:
    """Numbers of concurrently decoding requests to try, as memory and batch size allow."""
    memory = pool.memory
    blocks = -(-context // memory.block)
    whole = memory.blocks + memory.pages
    room = max(1.0, whole / max(blocks, 1.0)) if whole < 1 << 40 else pool.batch
    most = max(1.0, min(float(pool.batch), float(room)) / pool.stages)
    return sorted({*np.round(np.geomspace(1.0, most, STEPS)).tolist(), float(int(most))})


def _sustained(pool: InstancePool, prompt: float, further: float, counts: list[float]) -> list[float]:
    """Requests that decode in the mean beside their prompts: as many as there is room for, and as many as fill every iteration.

    That is a fraction where prompts are long, or further tokens few: below one, it is tried down in halves.
    """
    rule = pool.policy
    if not rule.mixed:
        most = 1.0
    elif rule.chunked:
        budget = float(rule.tokens // rule.unit * rule.chunk if rule.unit else rule.tokens)
        of_row = float(rule.chunk) / rule.unit if rule.unit else 1.0
        most = budget / (prompt / further + (1 + pool.guesses) * of_row)
    else:
        most = max(1.0, max_prompt_tokens(rule, pool.batch, int(prompt)) / prompt) * further
    if most > 1:
        counts = sorted({*counts, min(most, counts[-1])})
    return [*(min(most, 1.0) / 2**halves for halves in range(FEWER, -1 if most < 1 else 0, -1)), *counts]


def _decode(pool: InstancePool, decodes: float, context: float) -> float:
    """Of an iteration without prompts, in which one request decodes at least. [s]"""
    decodes = max(decodes, 1.0)
    read = decodes * context
    return float(iteration_seconds(pool.price, 0.0, 0.0, decodes, read, 0.0, _far(pool, decodes, context) * read))


def _prompt(pool: InstancePool, prompt: float) -> float:
    """Prefill time of a lone prompt, in chunks where prompts are cut. [s]"""
    chunk = min(prompt, float(pool.policy.tokens)) if pool.policy.chunked else prompt
    if pool.policy.unit:
        chunk = min(prompt, float(pool.policy.chunk))
    done, total = 0.0, 0.0
    whole = prompt / max(chunk, 1.0)
    if whole > 64:  # the mean chunk, as often
        return whole * float(iteration_seconds(pool.price, chunk, chunk * prompt / 2, 0.0, 0.0, prompt / 2, 0.0))
    while done < prompt:
        current_prompt = min(chunk, prompt - done)
        total += float(
            iteration_seconds(
                pool.price,
                current_prompt,
                current_prompt * done + current_prompt * (current_prompt + 1) / 2,
                0.0,
                0.0,
                done,
                0.0,
            )
        )
        done += current_prompt
    return total


def _mixed(pool: InstancePool, decodes: float, prompt: float, further: float, context: float, together: float) -> float:
    """Iteration time where the same instances prefill, a lone prompt taking `together`. [s]"""
    rule, each = pool.policy, decodes * prompt / further  # prompt tokens an iteration
    if not rule.mixed:
        # a prompt stops all decodes of its instance; of as many prompts as requests decode
        return _decode(pool, decodes, context) + decodes * together / further
    if not rule.chunked:  # whole prompts: as many as come, or those that waited until an iteration was full
        most = float(max_prompt_tokens(rule, pool.batch, int(prompt))) / prompt
        if decodes / further > max(1.0, most) * (1 + TINY):
            return np.inf
        room = min(most, decodes)
        return min(_whole(pool, prompts, decodes, prompt, further, context) for prompts in {decodes / further, room})
    rows = decodes * (1 + pool.guesses)
    budget = float(rule.tokens) - rows
    if rule.unit:
        budget = (rule.tokens - rows) // rule.unit * float(rule.chunk)
    if budget <= 0:
        return np.inf
    # iterations with prompts are full, the others have none
    full = each / budget
    if full > 1 + TINY:
        return np.inf
    full = min(full, 1.0)
    chunk = min(budget, prompt)
    past = max(0.0, (prompt - chunk) / 2)
    pairs = budget * (past + chunk / 2)
    far = _far(pool, decodes, context) * (past + decodes * context)
    with_prompts = float(iteration_seconds(pool.price, budget, pairs, decodes, decodes * context, past, far))
    return full * with_prompts + (1 - full) * _decode(pool, decodes, context)


def _whole(pool: InstancePool, prompts: float, decodes: float, prompt: float, further: float, context: float) -> float:
    """Mean iteration time where some iterations have whole prompts, at least one, besides decodes. [s]"""
    prompts = max(1.0, prompts)
    pairs = prompts * prompt * (prompt + 1) / 2
    far = _far(pool, decodes, context) * decodes * context
    with_prompts = float(iteration_seconds(pool.price, prompts * prompt, pairs, decodes, decodes * context, 0.0, far))
    share = min(1.0, decodes / further / prompts)
    return share * with_prompts + (1 - share) * _decode(pool, decodes, context)
