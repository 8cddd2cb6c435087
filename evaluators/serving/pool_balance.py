"""Steady-state balance of a pool, compiled: iteration time at which completions equal arrivals.

A lane is a micro-batch of a pipeline of instances; a pool has L = instances x stages lanes. By Little's law a lane has
d = rate g t / L decoding requests, where each has g further tokens and an iteration takes t; and t is a function of d.
The least consistent t is found by bisection.

Throughout: price is an `IterationTime`, of a pool record (`steady_state.make_pool_records`), load a `RequestMix`.
"""

# mypy: disable-error-code="no-untyped-def"

import math
from typing import NamedTuple

import numpy as np

from dse.evaluators.machine.compile_cache import compiled_part, compiled_without_gil
from dse.evaluators.serving.prefill_chunks import (
    PrefillSummary,
    chunk_extra_seconds,
    chunks_per_iteration,
    decode_iteration_seconds,
    longest_chunk,
    longest_full_iteration,
    mean_chunk_seconds,
    slowest_lane_pass,
    spilled_share,
)
from dse.evaluators.serving.queueing import others_in_lane
from dse.space.array_math import Array

DOUBLINGS, STEPS, EXACT = 40, 60, 1e-13
"""Of the length of an iteration, until it is long enough; and steps at most that narrow the bracket between too short and long
enough, to such a share of it."""

STATION = np.dtype(
    [
        ("instances", "f8"),  # of the pool
        ("stages", "f8"),  # of an instance: lanes
        ("share", "f8"),  # of an iteration's time, in the slowest stage
        ("batch", "f8"),  # most requests of a lane, by batch and memory
        ("near", "f8"),  # requests of an instance that SRAM has room for, before HBM; infinite for one memory
        ("mixed", "?"),
        ("chunked", "?"),
        ("tokens", "f8"),
        ("unit", "f8"),
        ("chunk", "f8"),
        ("prefills", "?"),
        ("decodes", "?"),
    ]
)  # fmt: skip
"""A pool in the balance; policy fields as in `scheduling_policy.SchedulingPolicy`."""

BALANCE = np.dtype([(name, "f8") for name in ("period", "decodes", "prefill", "held", "rate", "drain")])
"""What balances: an iteration of decodes with its share of prompts [s], requests that decode in the lane of one of them, itself
included; a prompt from its first chunk to its first token, the mean [s]; requests of a lane; the pool's rate [1/s]; and an
iteration after the last arrival, until the last token [s]."""

NINETY_NINE = 2.326
"""Standard deviations above the mean that 99 % of a normal distribution are below."""

MANY_REQUESTS = 64.0
"""Requests of an instance above which rotation does not matter, and above which their number is taken as normal."""

MAX_ITERATIONS = 4
"""Times that the length of a round with chunks is worked out from how many it has."""

NONE = 1e-9
"""Share that is none."""

TINY = 1e-12
"""Of the likeliest term of a sum, what is left out."""


class RequestMix(NamedTuple):
    """Statistics of a load's requests that the steady state uses.

    Attributes:
        rate: of requests. [1/s]
        gaps: squared coefficient of variation of the times between arrivals. [1]
        requests: how many.
        further: tokens after the first one, the mean over requests. [token]
        outputs: squared coefficient of variation of these. [1]
        each: mean of 1 / further, of requests with two tokens or more. [1]
        context: positions that a decoding request reads, the mean over tokens. [token]
        prompts, weights: lengths that stand for all prompts, and their shares; shape (kinds,). [token], [1]
        arrival, prompt, left: of the requests that may be the last to end: when they come, counted from the first one, their
            prompt and their further tokens; shape (few,). [s], [token], [token]
    """

    rate: float
    gaps: float
    requests: float
    further: float
    outputs: float
    each: float
    context: float
    prompts: Array
    weights: Array
    arrival: Array
    prompt: Array
    left: Array


@compiled_part
def prefill_residence(price, pool, load, prompts, lane, period, decodes, share):
    """Mean time of a prompt from its first chunk to its first token, with decodes and other prompts. [s]"""
    mean, count = prompts.seconds, prompts.chunks
    if not pool.prefills:
        return 0.0
    if pool.mixed and decodes > 0:
        both = mean_chunk_seconds(price, prompts, decodes, load.context, share)
        mean += count * max(0.0, both - mean_chunk_seconds(price, prompts, 0.0, 0.0, share))
    several = chunks_per_iteration(pool, decodes)
    if pool.mixed and several > 1:
        mean += (
            count
            * min(lane * count * period, several - 1)
            * chunk_extra_seconds(price, pool, load, prompts, max(decodes, 1.0), share)
        )
    return mean


@compiled_part
def decode_iteration_update(price, pool, load, prompts, lane, period, full, balance):
    """Update of a decode iteration's time in the fixed point; results are left in `balance`. [s]

    Args:
        price, of, load: as in the module's docstring.
        prompts: of `prefilling`.
        lane: arrival rate of requests at a lane. [1/s]
        period: of iterations. [s]
        full: whether lanes are as full as can be, so that requests wait.
        balance: a record of `BALANCE`.
    """
    count, lanes = prompts.chunks, pool.instances * pool.stages
    busy = load.further * period
    mean = min(lane * busy, pool.batch)
    share = spilled_share(pool, min(pool.batch, mean + 1))
    prefill = prefill_residence(price, pool, load, prompts, lane, period, mean, share)
    held = pool.batch if full else min(lane * (busy + prefill), pool.batch)
    decoding = busy / (busy + prefill) if prefill > 0 else 1.0
    decodes = max(1.0, held * decoding) if full else min(1 + others_in_lane(held * lanes, lanes) * decoding, pool.batch)
    share = spilled_share(pool, max(held, decodes))
    own = min(lane * count * period, chunks_per_iteration(pool, decodes)) if pool.prefills else 0.0
    crowd = max(1.0, pool.share * min(pool.stages, held * pool.stages))
    balance.decodes, balance.prefill, balance.held = decodes, prefill, held
    step = decode = crowd * decode_iteration_seconds(price, pool, load, decodes, share)
    if own > 0:
        chunk = chunk_extra_seconds(price, pool, load, prompts, decodes, share)
        if pool.mixed:
            step = (
                step + own * chunk
                if pool.stages == 1
                else mean_pipeline_round(pool, load, prompts, lane * count, step, chunk, decodes)
            )
        else:
            step += crowd * own * chunk
            if pool.stages > 1:  # passes of decodes, and its own of prompts; all lanes end theirs when the longest one ends
                step = max(step, (1 + own) * slowest_lane_pass(pool, load, prompts, own / (1 + own), decode))
    return step


@compiled_part
def mean_pipeline_round(pool, load, prompts, chunks, step, chunk, decodes):
    """Mean round of a pipeline whose lanes advance together: all take as long as the longest. [s]

    Chunks arrive at random while rounds have some, which are longer: a round has none for q(c u)^L of the time,
    with c chunks per second in each of L lanes, u such a round, and q the probability of `no_chunk_probability`. A
    round takes as long as the lane with most chunks takes through all stages, and as all lanes take in the slowest
    stage:

        u = max(step / crowd + E max chunk, step + share L c u chunk)

    Where chunks differ, the largest sum of a lane is that of proportionally fewer, longer chunks with the same mean
    and variance; or the longest chunk alone, if that is more.

    Args:
        pool: a record of `STATION`.
        load, prompts: as in `decode_iteration_update`.
        chunks: arrival rate of chunks at a lane. [1/s]
        step: a round of decodes alone. [s]
        chunk: what a chunk adds to a lane's iteration. [s]
        decodes: decodes of a lane next to chunks.
    """
    most, crowd = chunks_per_iteration(pool, decodes), max(1.0, pool.share * pool.stages)
    chunk_share, round_ = 1.0, max(step, step / crowd + chunk)
    more = prompts.seconds / prompts.chunks - prompts.base
    for _ in range(MAX_ITERATIONS):
        own = min(chunks * round_, most)
        chunk_share = 1 - no_chunk_probability(own, most) ** pool.stages
        if chunk_share <= 0:
            return step
        each = prompts.uneven * expected_maximum(own / prompts.uneven, pool.stages, most)
        if more > 0:
            longest = slowest_lane_pass(pool, load, prompts, 1 - no_chunk_probability(own, most), prompts.base)
            each = max(each, (longest - prompts.base) / more)
        each /= chunk_share
        round_ = max(step / crowd + each * chunk, step + pool.share * pool.stages * own * chunk)
    return 1 / (chunk_share / round_ + (1 - chunk_share) / step)


@compiled_without_gil
def no_chunk_probability(mean, most):
    """Probability that a lane has no chunk in a round, given the mean and maximum number.

    Binomial: a lane whose rounds are all full always has some; Poisson where a round has room for any number.

    >>> no_chunk_probability(0.5, 1.0), no_chunk_probability(1.0, 1.0), no_chunk_probability(0.5, math.inf) == math.exp(-0.5)
    (0.5, 0.0, True)
    """
    return math.exp(-mean) if most == math.inf else max(0.0, 1 - mean / most) ** most


@compiled_without_gil
def expected_maximum(mean, lanes, most):
    """Mean of the largest of several lanes' chunk counts, distributed as in `no_chunk_probability`.

    >>> (
    ...     expected_maximum(0.5, 1.0, 1.0),
    ...     round(expected_maximum(0.5, 1.0, math.inf), 6),
    ...     round(expected_maximum(0.5, 16.0, 4.0), 2),
    ... )
    (0.5, 0.5, 1.84)
    """
    if mean >= most:
        return most
    if mean > MANY_REQUESTS:  # as of normal variables
        return min(mean + math.sqrt(2 * mean * math.log(lanes)), most)
    expectation, number, term, below = 0.0, 0.0, no_chunk_probability(mean, most), 0.0
    while number < most:
        below += term
        more = 1 - min(below, 1.0) ** lanes
        if not more >= NONE:  # not a number ends it too
            break
        expectation += more
        term *= mean if most == math.inf else (most - number) * mean / (most - mean)
        number += 1
        term /= number
    return expectation


@compiled_without_gil
def requests_met_ratio(instances, held):
    """Requests that a prompt finds decoding at its instance, relative to the mean: E floor(N / n) / held.

    With rotation, each of n instances gets every n-th request: of N that are still there, Poisson of mean n held,
    it has the n-th before, the 2n-th and so on. Routing to the fewest requests gives about as many: prompts go
    where they interrupt least.

    Args:
        instances: n.
        held: decoding requests of an instance. [1]

    >>> requests_met_ratio(1, 0.5), round(requests_met_ratio(2, 0.117), 2), round(requests_met_ratio(3, 1.23), 2)
    (1.0, 0.2, 0.73)
    """
    if instances <= 1 or held <= 0:
        return 1.0
    if held > MANY_REQUESTS:  # as many over each multiple
        return 1 - (1 - 1 / instances) / (2 * held)
    mean = instances * held
    # from the likeliest number on, so that no term is lost: the sums over all are divided by each other
    first = int(mean)
    ratio, whole = 0.0, 0.0
    for way in range(2):
        number, term = first, 1.0
        while number >= 0 and term > TINY:
            if way == 0 or number < first:
                ratio += term * (number // instances)
                whole += term
            if way == 0:
                number += 1
                term *= mean / number
            else:
                term *= number / mean
                number -= 1
    return ratio / whole / held


@compiled_part
def token_gap_quantile(price, pool, load, prompts, rate, share, balance):
    """Token gap of a request that a share of all gaps does not exceed. [s]

    An iteration has as many chunks of prompts as come in a period (Poisson), and as many decodes as are in the lane; the
    longest of the chunks that this share leaves is as long as prompts are at it.

    Args:
        price, of, load, prompts: as in the module's docstring.
        rate: of the pool's requests. [1/s]
        share: of the times. [1]
        balance: the balance of the pool.
    """
    lanes = pool.instances * pool.stages
    held = max(balance.held, balance.decodes)
    most = min(pool.batch, balance.decodes + NINETY_NINE * math.sqrt(max(balance.decodes - 1, 0.0)))
    far, crowd = spilled_share(pool, held), max(1.0, pool.share * min(pool.stages, balance.held * pool.stages))
    step = crowd * decode_iteration_seconds(price, pool, load, most, far)
    if not pool.prefills:
        return step
    own = min(rate / lanes * prompts.chunks * balance.period, chunks_per_iteration(pool, balance.decodes))
    own *= requests_met_ratio(pool.instances, rate / pool.instances * load.further * balance.period)
    chunk_share = 1 - math.exp(-max(own, pool.stages * own))
    if chunk_share <= 1 - share:
        return step
    count, chance, term = 1.0, math.exp(-own) * (1 + own), math.exp(-own) * own
    if own > MANY_REQUESTS:  # as of a normal variable
        count = min(own + NINETY_NINE * math.sqrt(own), chunks_per_iteration(pool, balance.decodes))
    else:
        while chance < share and count < chunks_per_iteration(pool, balance.decodes):
            count += 1
            term *= own / count
            chance += term
    kind, below = 0, load.weights[0]
    while below < 1 - (1 - share) / chunk_share and kind < len(load.prompts) - 1:
        kind += 1
        below += load.weights[kind]
    longest = min(load.prompts[kind], longest_chunk(pool, balance.decodes))
    longest = max(longest, prompts.tokens)
    pairs = longest * prompts.past + longest * (longest + 1) / 2
    base, uneven, each = prompts.base, prompts.uneven, prompts.each
    full, ends = prompts.full, prompts.ends
    long = PrefillSummary(prompts.seconds, prompts.chunks, longest, prompts.past, pairs, base, uneven, each, full, ends)
    step += chunk_extra_seconds(price, pool, load, long, most, far)
    return step + (count - 1) * chunk_extra_seconds(price, pool, load, prompts, most, far)


@compiled_part
def saturated_lane_rate(price, pool, load, prompts, period):
    """Rate of a lane that is always full, given its iteration time. [1/s]"""
    busy = load.further * period
    first = pool.batch / (busy + prompts.seconds)
    decodes = min(first * busy, pool.batch)
    prefill = prefill_residence(price, pool, load, prompts, first, period, decodes, spilled_share(pool, pool.batch))
    lane = pool.batch / (busy + prefill)
    return min(lane, chunks_per_iteration(pool, decodes) / (prompts.chunks * period)) if pool.prefills else lane


@compiled_part
def period_excess(price, pool, load, prompts, rate, period, balance):
    """Excess of the iteration time over an assumed period; rate 0 means full lanes. [s]"""
    lane = rate / (pool.instances * pool.stages) if rate > 0 else saturated_lane_rate(price, pool, load, prompts, period)
    return decode_iteration_update(price, pool, load, prompts, lane, period, rate == 0, balance) - period


@compiled_part
def balance_period(price, pool, load, prompts, rate, balance):
    """Least period that equals its iteration time, by bisection. [s]

    Doubled until it is long enough; then between too short and long enough by inverse quadratic interpolation through the
    last three points where these lie on a curve that allows it, else by halving ([chandrupatla1997]).
    """
    low = decode_iteration_seconds(price, pool, load, 1.0, spilled_share(pool, 1.0))
    over = period_excess(price, pool, load, prompts, rate, low, balance)
    if over <= 0:
        return low
    high, under = low, over
    for _ in range(DOUBLINGS):
        low, over = high, under
        high = 2 * low
        under = period_excess(price, pool, load, prompts, rate, high, balance)
        if under <= 0:
            break
    # a is the newest point, b is on the other side, c was a's or b's place before
    a, fa, b, fb, share = high, under, low, over, 0.5
    for _ in range(STEPS):
        middle = a + share * (b - a)
        fm = period_excess(price, pool, load, prompts, rate, middle, balance)
        if (fm > 0) == (fa > 0):
            c, fc = a, fa
        else:
            c, fc, b, fb = b, fb, a, fa
        a, fa = middle, fm
        width = abs(b - a)
        if fm == 0 or width <= EXACT * max(a, b):
            break
        share = 0.5
        if fb != fc and fa != fb and fa != fc:
            xi, phi = (a - b) / (c - b), (fa - fb) / (fc - fb)
            if phi * phi < xi and (1 - phi) * (1 - phi) < 1 - xi:
                share = fa / (fb - fa) * fc / (fb - fc) + (c - a) / (b - a) * fa / (fc - fa) * fb / (fc - fb)
        least = EXACT / 2 * max(a, b) / width
        share = min(max(share, least), 1 - least)
    return a if fa <= 0 else b


@compiled_part
def prefill_slowdown(pool, load, prompts, lanes):
    """Slowdown of prompts in a prefill-only pool with several busy lanes.

    All lanes go at the pace of the longest iteration, and of the slowest stage.
    """
    if lanes <= 1:
        return 1.0
    return max(
        longest_full_iteration(pool, load, prompts, lanes) / longest_full_iteration(pool, load, prompts, 1.0),
        pool.share * lanes,
    )


@compiled_part
def balance_pool(price, pool, load, prompts, rate, balance):
    """Balance a pool into `balance`: at a rate below saturation or, for rate 0, with some always waiting."""
    lanes = pool.instances * pool.stages
    if not pool.decodes:
        balance.period, balance.decodes, balance.drain = 0.0, 0.0, 0.0
        times = prefill_slowdown(pool, load, prompts, 1.0 * pool.stages)
        balance.prefill, balance.held = prompts.seconds * times, 1.0
        balance.rate = lanes / (prompts.full * times * longest_full_iteration(pool, load, prompts, 1.0))
        if rate > 0:
            balance.rate, balance.prefill = rate, prompts.seconds
            for _ in range(MAX_ITERATIONS):
                balance.held = min(1.0, rate / lanes * balance.prefill)
                balance.prefill = prompts.seconds * prefill_slowdown(pool, load, prompts, 1 + (pool.stages - 1) * balance.held)
        return
    high = balance_period(price, pool, load, prompts, rate, balance)
    period_excess(price, pool, load, prompts, rate, high, balance)
    balance.period = high
    # nobody prefills any more, and half of those that were there still decode, in the mean until the last token
    left, held = max(1.0, balance.decodes / 2), balance.held / 2
    crowd = max(1.0, pool.share * min(pool.stages, held * pool.stages))
    balance.drain = min(high, crowd * decode_iteration_seconds(price, pool, load, left, spilled_share(pool, max(held, left))))
    balance.rate = rate if rate > 0 else lanes * saturated_lane_rate(price, pool, load, prompts, high)
