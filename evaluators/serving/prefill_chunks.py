"""Prompt chunks and decodes of steady-state iterations, compiled: number, length and spread.

A prompt that is not cut is one chunk. `price` is an `IterationTime`, `of` a pool record (`steady_state.make_pool_records`),
`load` a `RequestMix`.
"""

# mypy: disable-error-code="no-untyped-def"

import math
from typing import NamedTuple

from dse.evaluators.machine.compile_cache import compiled_part
from dse.evaluators.serving.iteration_time_lookup import iteration_seconds
from dse.space.array_math import Array

POINTS = 32
"""Of an integral over how long iterations are."""

FEW_CHUNKS = 8
"""Chunks of a prompt that are evaluated singly; of longer prompts the first, middle and last represent all."""


class PrefillSummary(NamedTuple):
    """Mean statistics of a load's prompts when each is computed alone.

    Attributes:
        seconds: of a prompt, chunk after chunk. [s]
        chunks: of a prompt.
        tokens: of a chunk.
        past: positions of its prompt before it.
        pairs: of one of its tokens and a position that this sees.
        base: time of a prompt of one token, where prompts share iterations with decodes, else 0. [s]
        uneven: E c^2 / (E c)^2 of chunk times c above `base`: ratio of the chunk under way at a random moment to the mean
            chunk.
        each: seconds of each kind of prompt, shape (kinds,). [s]
        full: iterations of a prompt when others wait, so that each iteration is full.
        ends: seconds of such an iteration, of a kind's first tokens of prompts and of their last ones; shape (2, kinds). [s]

    The last two are of pools that only prefill.
    """

    seconds: float
    chunks: float
    tokens: float
    past: float
    pairs: float
    base: float
    uneven: float
    each: Array
    full: float
    ends: Array


@compiled_part
def spilled_share(pool, held):
    """Share of the positions read that are not in SRAM, with `held` requests in each lane."""
    return max(0.0, 1 - pool.near / max(held * pool.stages, 1.0)) if pool.near < math.inf else 0.0


@compiled_part
def longest_chunk(pool, decodes):
    """Longest chunk of a prompt next to some decodes. [token]"""
    if not pool.chunked:
        return math.inf
    if pool.unit > 0:
        return pool.chunk
    left = max(1.0, pool.tokens - decodes)
    return min(left, pool.chunk) if pool.chunk > 0 else left


@compiled_part
def chunks_per_iteration(pool, decodes):
    """Chunks for which an iteration has room next to some decodes."""
    if not pool.chunked:
        return math.inf
    if pool.unit > 0:
        return max(1.0, (pool.tokens - decodes) // pool.unit)
    return max(1.0, (pool.tokens - decodes) // pool.chunk) if pool.chunk > 0 else 1.0


@compiled_part
def chunk_count(prompt, chunk):
    """Number of chunks of a prompt; 1 if it is not cut."""
    return math.ceil(prompt / chunk) if chunk < math.inf else 1.0


@compiled_part
def chunk_iteration_seconds(price, tokens, past, decodes, context, share):
    """Time of an iteration with one chunk of a partly computed prompt and some decodes. [s]"""
    pairs, positions = tokens * past + tokens * (tokens + 1) / 2, decodes * context
    return iteration_seconds(price, tokens, pairs, decodes, positions, past, share * (past + positions))


@compiled_part
def decode_iteration_seconds(price, pool, load, decodes, share):
    """Time of a decode-only iteration. [s]"""
    positions = decodes * load.context
    return iteration_seconds(price, 0.0, 0.0, decodes, positions, 0.0, share * positions)


@compiled_part
def lone_prompt_seconds(price, pool, prompt, base):
    """Prefill time of a lone prompt [s], and the sum of squared chunk times above `base` [s2]."""
    chunk = longest_chunk(pool, 0.0)
    count = chunk_count(prompt, chunk)
    last = prompt - (count - 1) * chunk if count > 1 else prompt
    total = chunk_iteration_seconds(price, last, prompt - last, 0.0, 0.0, 0.0)
    squares, places = max(0.0, total - base) ** 2, min(count - 1, FEW_CHUNKS - 1)
    if count > FEW_CHUNKS:  # the first, the middle and the last of the others, by Simpson's rule
        places = 3
    for place in range(places):
        done, weight = place * chunk, 1.0
        if count > FEW_CHUNKS:
            done, weight = place * (count - 2) * chunk / 2, (count - 1) * (4 if place == 1 else 1) / 6
        iteration_seconds = chunk_iteration_seconds(price, chunk, done, 0.0, 0.0, 0.0)
        total += weight * iteration_seconds
        squares += weight * max(0.0, iteration_seconds - base) ** 2
    return total, squares


@compiled_part
def summarise_prompts(price, pool, load, taken, ends):
    """Mean statistics of prompts computed alone; fills `taken` with the seconds of each kind."""
    full = 0.0
    if not pool.decodes:
        for kind in range(len(load.prompts)):
            full += load.weights[kind] * full_iterations_of_prompt(price, pool, load.prompts[kind], kind, taken, ends)
    mean = count = past = tokens = pairs = squares = 0.0
    chunk, base = (
        longest_chunk(pool, 0.0),
        chunk_iteration_seconds(price, 1.0, 0.0, 0.0, 0.0, 0.0) if pool.mixed and pool.decodes else 0.0,
    )
    for kind in range(len(load.prompts)):
        prompt, weight = load.prompts[kind], load.weights[kind]
        current_count = chunk_count(prompt, chunk)
        taken[kind], of_chunks = lone_prompt_seconds(price, pool, prompt, base)
        mean += weight * taken[kind]
        count += weight * current_count
        tokens += weight * prompt
        pairs += weight * prompt * (prompt + 1) / 2
        past += weight * (current_count * (current_count - 1) / 2 * chunk if current_count > 1 else 0.0)
        squares += weight * of_chunks
    more = max(0.0, mean - count * base)
    uneven = max(1.0, squares * count / more**2) if more > 0 else 1.0
    if not pool.decodes and not pool.chunked:
        for kind in range(len(taken)):
            ends[0, kind] = ends[1, kind] = taken[kind]
    return PrefillSummary(mean, count, tokens / count, past / count, pairs / count, base, uneven, taken, full, ends)


@compiled_part
def full_iterations_of_prompt(price, pool, prompt, kind, taken, ends):
    """Iterations that a prompt takes when all are full; fills `ends`. Whole prompts take one each."""
    if not pool.chunked:
        return 1.0
    chunk = pool.tokens // pool.unit * pool.chunk if pool.unit > 0 else pool.tokens
    own = min(prompt, chunk)  # of one prompt; several that are shorter see no more than themselves
    for place in range(2):
        past = (prompt - own) * place
        pairs = chunk * (past + (own + 1) / 2)
        ends[place, kind] = iteration_seconds(price, chunk, pairs, 0.0, 0.0, past, 0.0)
    return prompt / chunk


@compiled_part
def longest_full_iteration(pool, load, prompts, lanes):
    """Mean of the longest full iteration over some lanes, one in each. [s]

        E max = x0 + integral of 1 - F(x)^L over x,  F(x) = sum of w_k clip((x - a_k) / (b_k - a_k), 0, 1)

    Iteration times of one kind of prompts are uniform between the first and the last of a prompt, since the
    positions that tokens see grow evenly. Stages of a pipeline pass iterations on in turn: those behind the longest
    iteration go at its pace, and so do those that follow the ones before it.

    Args:
        of, load, prompts: as in `balance`.
        lanes: L, that are at work. [1]
    """
    least, most, mean = math.inf, 0.0, prompts.tokens * prompts.chunks
    for kind in range(len(load.prompts)):
        a, b = prompts.ends[0, kind], prompts.ends[1, kind]
        least, most = min(least, a, b), max(most, a, b)
    full_iteration, width = least, (most - least) / POINTS
    for point in range(POINTS):
        x, below = least + (point + 0.5) * width, 0.0
        for kind in range(len(load.prompts)):
            a, b = prompts.ends[0, kind], prompts.ends[1, kind]
            part = 1.0 if x >= max(a, b) else (x - min(a, b)) / abs(b - a) if x > min(a, b) else 0.0
            below += load.weights[kind] * part * (load.prompts[kind] / mean if pool.chunked else 1.0)
        full_iteration += width * (1 - min(1.0, below) ** lanes)
    return full_iteration


@compiled_part
def mean_chunk_seconds(price, prompts, decodes, context, share):
    """Time of an iteration with the mean prompt chunk and some decodes. [s]"""
    past, positions = prompts.past, decodes * context
    return iteration_seconds(price, prompts.tokens, prompts.pairs, decodes, positions, past, share * (past + positions))


@compiled_part
def chunk_extra_seconds(price, pool, load, prompts, decodes, share):
    """Time that a chunk adds to an iteration with decodes; its whole time if prompts run alone. [s]"""
    if not pool.mixed:
        return mean_chunk_seconds(price, prompts, 0.0, 0.0, share)
    both = mean_chunk_seconds(price, prompts, decodes, load.context, share)
    return max(0.0, both - decode_iteration_seconds(price, pool, load, decodes, share))


@compiled_part
def slowest_lane_pass(pool, load, prompts, chunk_share, decode):
    """Mean over rounds of the longest iteration in a pipeline's lanes, which delays the ones behind. [s]

        E max = integral of 1 - F(x)^L over x,  F(x) = (1 - q) [d <= x] + q P(chunk <= x)

    All chunks of one kind of prompts take their mean time.

    Args:
        of, load: as in `balance`; L stages.
        prompts: of `prefilling`.
        chunk_share: q, share of a lane's iterations with a chunk. [1]
        decode: d, time of an iteration without a chunk. [s]
    """
    chunk, without = longest_chunk(pool, 0.0), 1 - chunk_share
    expectation = at = below = 0.0
    for kind in range(len(load.prompts)):
        count = chunk_count(load.prompts[kind], chunk)
        chunk_seconds = max(at, prompts.each[kind] / count)
        if without > 0 and decode <= chunk_seconds:
            expectation += max(0.0, decode - at) * (1 - below**pool.stages)
            at, below, without = max(at, decode), below + without, 0.0
        expectation += (chunk_seconds - at) * (1 - below**pool.stages)
        at, below = chunk_seconds, min(1.0, below + chunk_share * load.weights[kind] * count / prompts.chunks)
    return expectation + max(0.0, decode - at) * (1 - below**pool.stages)
