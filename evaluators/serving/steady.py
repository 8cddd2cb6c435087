"""A served load in closed form: what instances sustain in the steady state, from prices of iterations and Little's law.

Requests are taken as equal, of mean lengths. An iteration that `d` requests decode in takes `t(d)`; a request is decoded in as
many iterations as it has further tokens, fewer where tokens are guessed, and each of them also prefills its share of the
prompts that come meanwhile. Prompts that wait go together, as many as an iteration has room for: the rate is the largest, at
which some always wait.
"""

from typing import NamedTuple

import numpy as np

from dse.evaluators.serving.loop import Deployment, Pool
from dse.evaluators.serving.policy import most_prompts
from dse.evaluators.serving.priced import seconds
from dse.space.requests import Requests

STEPS = 48
"""Numbers of decoding requests that are tried, from one to the most, in equal ratios."""


class Steady(NamedTuple):
    """The steady state of the largest rate.

    Attributes:
        rate: of requests. [1/s]
        ttft: of a prompt that finds no queue. [s]
        tpot: time per output token. [s]
        decodes: requests that decode at a time, of an instance.
    """

    rate: float
    ttft: float
    tpot: float
    decodes: float


def steady(of: Deployment, requests: Requests, *, tpot: float) -> Steady:
    """The largest rate whose time per output token is within a bound, with no regard to queues.

    Args:
        of: pools.
        requests: whose mean lengths count.
        tpot: the bound. [s]

    Returns:
        A rate of 0 where one request alone takes longer.
    """
    prompt, output = float(requests.prompt.mean()), float(requests.output.mean())
    first, last = of.pools[0], of.pools[-1]
    # iterations that a request decodes in
    further, context = max(output - 1.0, 1e-9) / last.expected, prompt + output / 2
    apart = len(of.pools) == 2
    prefill, together = _prompt(first, prompt), _together(first, requests)
    best = Steady(0.0, prefill, np.inf, 0.0)
    for decodes in _counts(last, context):
        # while a request makes its tokens, as many prompts come as requests decode: one in the mean for each
        each = _decode(last, decodes, context) if apart else _mixed(last, decodes, prompt, further, context, together)
        if each / last.expected > tpot:
            continue
        rate = last.instances * last.stages * decodes / (further * each)
        if apart:
            rate = min(rate, first.instances * first.stages / together)
        if rate > best.rate:
            best = Steady(rate, prefill, each / last.expected, decodes)
    return best


def prompts(pool: Pool, asked: Requests) -> float:
    """Prompts of which nothing is decoded, computed by all instances in full iterations. [1/s]

    Args:
        pool: of instances.
        asked: whose prompts count; each token attends to as many positions as it does in the mean over all.
    """
    return float(pool.instances * pool.stages / _full(pool, asked))


def _full(pool: Pool, asked: Requests) -> float:
    """Seconds of a prompt's share of full iterations, which have nothing else. [s]"""
    lengths = asked.prompt.astype(float)
    mean, context = lengths.mean(), (lengths * (lengths + 1) / 2).sum() / lengths.sum()
    full = {float(most_prompts(pool.policy, pool.batch, int(lengths.max())))}
    if not pool.policy.chunked:
        full.add(mean)
    each = min(float(seconds(pool.price, tokens, tokens * context, 0.0, 0.0, 0.0, 0.0)) / tokens for tokens in full)
    return float(each * mean)


def _together(pool: Pool, asked: Requests) -> float:
    """Seconds of a prompt where others wait that are computed with it, or by itself where that is quicker. [s]"""
    return min(_prompt(pool, float(asked.prompt.mean())), _full(pool, asked))


def _counts(pool: Pool, context: float) -> list[float]:
    """Requests that decode together, as many as memory and batch have room for."""
    memory = pool.memory
    blocks = -(-context // memory.block)
    whole = memory.blocks + memory.pages
    room = max(1.0, whole / max(blocks, 1.0)) if whole < 1 << 40 else pool.batch
    most = max(1.0, min(float(pool.batch), float(room)) / pool.stages)
    return sorted({*np.round(np.geomspace(1.0, most, STEPS)).tolist(), float(int(most))})


def _decode(pool: Pool, decodes: float, context: float) -> float:
    return float(seconds(pool.price, 0.0, 0.0, decodes, decodes * context, 0.0, 0.0))


def _prompt(pool: Pool, prompt: float) -> float:
    """Seconds of a prompt by itself, in chunks where they are cut. [s]"""
    chunk = min(prompt, float(pool.policy.tokens)) if pool.policy.chunked else prompt
    if pool.policy.unit:
        chunk = min(prompt, float(pool.policy.chunk))
    done, total = 0.0, 0.0
    whole = prompt / max(chunk, 1.0)
    if whole > 64:  # the mean chunk, as often
        return whole * float(seconds(pool.price, chunk, chunk * prompt / 2, 0.0, 0.0, prompt / 2, 0.0))
    while done < prompt:
        here = min(chunk, prompt - done)
        total += float(seconds(pool.price, here, here * done + here * (here + 1) / 2, 0.0, 0.0, done, 0.0))
        done += here
    return total


def _mixed(pool: Pool, decodes: float, prompt: float, further: float, context: float, together: float) -> float:
    """Time of an iteration where the same instances prefill, a prompt by itself in `together`. [s]"""
    rule, each = pool.policy, decodes * prompt / further  # prompt tokens an iteration
    if not rule.mixed:
        # a prompt stops all decodes of its instance; of as many prompts as requests decode
        return _decode(pool, decodes, context) + decodes * together / further
    if not rule.chunked:  # whole prompts: as many as come, or those that waited until an iteration was full
        room = min(float(most_prompts(rule, pool.batch, int(prompt))) / prompt, decodes)
        return min(_whole(pool, prompts, decodes, prompt, further, context) for prompts in {decodes / further, room})
    rows = decodes * (1 + pool.guesses)
    budget = float(rule.tokens) - rows
    if rule.unit:
        budget = (rule.tokens - rows) // rule.unit * float(rule.chunk)
    if budget <= 0:
        return np.inf
    # iterations with prompts are full, the others have none
    full = each / budget
    if full > 1:
        return np.inf
    chunk = min(budget, prompt)
    past = max(0.0, (prompt - chunk) / 2)
    pairs = budget * (past + chunk / 2)
    with_prompts = float(seconds(pool.price, budget, pairs, decodes, decodes * context, past, 0.0))
    return full * with_prompts + (1 - full) * _decode(pool, decodes, context)


def _whole(pool: Pool, prompts: float, decodes: float, prompt: float, further: float, context: float) -> float:
    """Time of an iteration in the mean, where some have so many whole prompts, one at least, beside the decodes. [s]"""
    prompts = max(1.0, prompts)
    pairs = prompts * prompt * (prompt + 1) / 2
    with_prompts = float(seconds(pool.price, prompts * prompt, pairs, decodes, decodes * context, 0.0, 0.0))
    share = min(1.0, decodes / further / prompts)
    return share * with_prompts + (1 - share) * _decode(pool, decodes, context)
