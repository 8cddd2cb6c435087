"""Steady state of a serving load in closed form: throughput, TTFT, TPOT and offered load.

No token is simulated: pools are balanced (`pool_balance`), requests that cannot start at once wait (`queueing`), and
requests differ by their prompts only. First token times of loads with few requests are replayed over the arrivals on
demand (`steady_state_solver`). The result is approximate where the simulation is exact; it needs some hundred iteration
times instead of all iterations of a trace.
"""

# mypy: disable-error-code="no-untyped-def"

import math
from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from dse.evaluators.machine.compile_cache import compiled_without_gil
from dse.evaluators.serving.disaggregated_decode import exposed_transfer_seconds
from dse.evaluators.serving.pool_balance import STATION, RequestMix, balance_pool, token_gap_quantile
from dse.evaluators.serving.prefill_chunks import (
    chunk_count,
    chunks_per_iteration,
    longest_chunk,
    spilled_share,
    summarise_prompts,
)
from dse.evaluators.serving.prefill_replay import with_pool_table
from dse.evaluators.serving.queueing import delay_probability, mean_wait, response_quantile, response_share
from dse.evaluators.serving.simulator import InstancePool
from dse.evaluators.serving.simulator_state import KvTransfer
from dse.space.array_math import Array
from dse.space.requests import Requests

PROMPT_KINDS = 24
"""Lengths of prompts that stand for all."""

FIELDS = (
    "saturated", "period", "decodes", "prefill", "decode_busy_share", "prefill_busy_share", "ttft", "ttft_p50", "ttft_p90",
    "ttft_p99", "tpot", "tbt_p99", "latency", "wait", "span", "within", "chunks", "tokens", "past", "beside", "together",
    "spilled",
)  # fmt: skip
STEADY_STATE_RECORD = np.dtype([(name, "f8") for name in FIELDS])
"""The rate at which some always wait [1/s]; an iteration of decodes [s], and requests in it; a prompt from its first chunk to
its first token [s]; shares of time that instances are busy; time to first token, per output token, between two tokens, and to
the last one [s]; until the first chunk [s]; from the first arrival to the last token [s]; the share of the requests that keep
the bounds on the times to first token and per output token; of a request, chunks of its prompt, and of a chunk tokens and
positions before it; decodes beside a chunk, and chunks in an iteration that has some; and the share of what is read that is not
in SRAM."""

MAIN_FIELDS = ("ttft", "ttft_p50", "ttft_p90", "ttft_p99", "wait", "within", "tpot", "tbt_p99", "latency")
"""Fields for which prompts are replayed on demand."""

RANKED = ("ttft_p50", "ttft_p90", "ttft_p99")
"""Percentiles of TTFT, each computed on demand."""

REPLAYED_FIELDS = (*RANKED, "tbt_p99")
"""Fields that need extra work in a replay; token gaps are counted for the last one only."""


def explain_no_steady_state(pools: Sequence[InstancePool], requests: Requests) -> str:
    """Why a load has no steady state in this model, as one line; empty string if it has one."""
    if not np.isfinite(requests.rate):
        return "requests that arrive at once have no steady state"
    if any(pool.policy.static for pool in pools):
        return "static batches have no steady state; choose another mapping.serving.policy"
    if len(requests.before):
        return "session turns need a simulation; set workload.sessions=null"
    if len(requests.starts) and any(pool.prefix or pool.pooled for pool in pools):
        return "prefix reuse needs a simulation; set mapping.serving.prefix_cache_share=0"
    if any(pool.guesses for pool in pools):
        return "speculative decoding needs a simulation; set workload.speculation=none"
    return ""


@lru_cache(maxsize=8)
def request_mix(requests: Requests) -> RequestMix:
    """Statistics of requests that the steady state uses.

    >>> some = Requests(np.arange(4.0), np.array([10, 10, 30, 30]), np.array([1, 3, 3, 1]))
    >>> found = request_mix(some)
    >>> found.rate, found.gaps, found.further, found.context, found.prompts.tolist()
    (1.0, 0.0, 1.0, 21.5, [10.0, 30.0])
    """
    prompt, further = requests.prompt, requests.output - 1
    gaps = np.diff(requests.arrival)
    spread = float(gaps.var() / gaps.mean() ** 2) if gaps.any() else 0.0  # of requests that come at once
    del gaps  # of a million requests some megabytes
    lengths, counts = np.unique(prompt, return_counts=True)
    if len(lengths) > PROMPT_KINDS:
        bins = np.array_split(np.sort(prompt), PROMPT_KINDS)
        lengths, counts = np.array([bin.mean() for bin in bins]), np.array([len(bin) for bin in bins])
    tokens, few = float(further.sum(dtype=float)), max(float(further.mean()), 1e-9)
    read = float(further @ (prompt + requests.output / 2)) / tokens if tokens else float(prompt.mean())
    each = np.bincount(further)[1:]
    several = each.sum()
    last = _last(prompt, further)
    return RequestMix(
        float(requests.rate), spread, float(len(requests)), float(further.mean()), float(further.var() / few**2),
        float((each / np.arange(1, len(each) + 1)).sum() / several) if several else 0.0, read, lengths.astype(float),
        counts / counts.sum(), requests.arrival[last] - requests.arrival[0], prompt[last].astype(float),
        further[last].astype(float),
    )  # fmt: skip


def _last(prompt: Array, further: Array) -> Array:
    """Requests that may be the last to end, last first: no later request is as long in both lengths."""
    kept = np.zeros(len(prompt), bool)
    for lengths in (prompt[::-1], further[::-1]):
        kept |= np.concatenate([[True], lengths[1:] > np.maximum.accumulate(lengths)[:-1]])
    return np.flatnonzero(kept[::-1])[::-1]


@lru_cache(maxsize=8)
def _lengths(requests: Requests) -> tuple[float, float, float]:
    """Of the mean request: all of it, its prompt and its output. [token]"""
    return float(requests.total.mean()), float(requests.prompt.mean()), float(requests.output.mean())


def make_pool_records(pools: Sequence[InstancePool], requests: Requests, *, prefills: bool, decodes: bool) -> Array:
    """Pools as records of `pool_balance`, with memory counted for the mean request."""
    total, prompt, output = _lengths(requests)
    rows = []
    for pool in pools:
        memory, rule = pool.memory, pool.policy
        positions = total - 1 if rule.lifetime else prompt + (output / 2 if decodes else 0)
        need = max(1, memory.blocks_needed(math.ceil(max(positions, 1.0))))
        room = memory.buffers or (1 - memory.spare) * (memory.blocks + memory.pages) / need
        near = memory.blocks / need if memory.pages or memory.buffers else math.inf
        batch, rule_fields = max(1.0, min(float(pool.batch), room) / pool.stages), (rule.tokens, rule.unit, rule.chunk)
        pool_fields = pool.instances, pool.stages, max(pool.shares), batch, near, rule.mixed, rule.chunked
        rows.append((*pool_fields, *rule_fields, prefills, decodes))  # in the order of the record's fields
    return np.array(rows, STATION)


def transfer_constants(transfer: KvTransfer | None, load: RequestMix) -> tuple[float, float, float, float]:
    """Mean transfer time per KV cache [s], latency [s], channels [1], and layers sent one by one [1]."""
    if transfer is None:
        return 0.0, 0.0, 1.0, 0.0
    taken = float((load.weights * transfer.seconds(load.prompts)).sum())
    return taken, transfer.latency, float(transfer.channels), float(transfer.layers)


@compiled_without_gil
def solve_pools(linear, far, tables, apart, first, last, sent, load, rates, bound, queued, room, records):
    """Solve pools one after the other whose iteration times share the linear part and table points.

    Args:
        linear, far: iteration times of the first and of the last pool; their tables are ignored.
        tables: of each of these two: those that differ, and which of them each pool has.
        apart, load, bound: whether pools are separate, statistics of the requests, and SLO bounds.
        rates: of each pool's requests, in place of that of `load`. [1/s]
        queued: whether percentiles of times to first tokens are those of a queue, and gaps between tokens those of the balance;
            else they are left out.
        first, last, sent: a record, or a row, of each.
        room: work arrays.
        records: what is found, a record of each.
    """
    for row in range(len(records)):
        solve_row(
            linear, far, tables, apart, first, last, sent, load, rates[row], bound, queued, room, row, records[row]
        )  # fmt: skip


@compiled_without_gil
def solve_row(linear, far, tables, apart, first, last, sent, load, rate, bound, queued, room, row, record):
    """Solve one row of pools at a rate; arguments as of `solve_pools`."""
    balance, full, (taken, services) = room[0], room[1], (room[2][0], room[2][1])
    load = RequestMix(
        rate, load.gaps, load.requests, load.further, load.outputs, load.each, load.context, load.prompts, load.weights,
        load.arrival, load.prompt, load.left,
    )  # fmt: skip
    price = with_pool_table(linear, tables[0], row)
    later = with_pool_table(far, tables[1], row)
    given_pool = first[row]
    prompts = summarise_prompts(price, given_pool, load, taken, room[2][2:])
    balance_pool(price, given_pool, load, prompts, 0.0, full[0])
    most = full[0].rate
    if apart:
        balance_pool(later, last[row], load, prompts, 0.0, full[1])
        most = min(most, full[1].rate)
        if sent[row, 0] > 0:
            most = min(most, sent[row, 2] / sent[row, 0])
    for place in range(1 + apart):
        pool, its = (first[row], price) if place == 0 else (last[row], later)
        if rate < full[place].rate:
            balance_pool(its, pool, load, prompts, rate, balance[place])
        if rate >= full[place].rate or balance[place].period > full[place].period:
            balance[place] = full[place]  # as long as where some always wait, and no longer
    alone = full[0].rate
    _told(
        apart,
        first[row],
        last[row],
        sent[row],
        load,
        bound,
        queued,
        prompts,
        taken,
        services,
        most,
        alone,
        balance,
        record,
    )
    if queued:
        pool, its, end = (last[row], later, balance[1]) if apart else (first[row], price, balance[0])
        record.tbt_p99 = token_gap_quantile(its, pool, load, prompts, min(rate, most), 0.99, end)


@compiled_without_gil
def _told(apart, first, last, sent, load, bound, queued, prompts, taken, services, most, alone, balance, record):
    """What a balance means for requests."""
    rate, end = min(load.rate, most), balance[1 if apart else 0]
    late = load.requests * max(0.0, 1 / most - 1 / load.rate)  # the last request waits
    waiting, mean = _waits(apart, first, load, prompts, taken, most, alone, balance[0])
    residual = 0.0 if apart else _residual(first, end)
    more, times = max(0.0, balance[0].prefill - prompts.seconds) + residual, 1.0
    if apart:  # every chunk takes longer beside those of other lanes
        more, times = 0.0, balance[0].prefill / prompts.seconds
    for kind in range(len(taken)):  # and every chunk beside decodes by as much
        own = chunk_count(load.prompts[kind], longest_chunk(first, 0.0)) / prompts.chunks
        services[kind] = taken[kind] * times + max(0.0, more - residual) * own + residual
    before = prompts.seconds * times + more
    record.saturated, record.prefill, record.period, record.decodes = most, balance[0].prefill, end.period, end.decodes
    record.chunks, record.tokens, record.past = prompts.chunks, prompts.tokens, prompts.past
    lane = rate / (first.instances * first.stages)
    if not apart and first.mixed:
        record.beside = min(lane * load.further * end.period, first.batch)
        record.together = max(1.0, lane * record.chunks * end.period)
    else:
        record.beside, record.together = 0.0, 1.0
    record.spilled = spilled_share(last, max(end.held, end.decodes))
    if late > 0:  # waits grow evenly
        waiting, mean = 1.0, max(mean, late / 2)
    record.ttft, record.wait = before + waiting * mean, waiting * mean + residual
    if queued:
        record.ttft_p50 = response_quantile(0.5, services, load.weights, waiting, mean)
        record.ttft_p90 = response_quantile(0.9, services, load.weights, waiting, mean)
        record.ttft_p99 = response_quantile(0.99, services, load.weights, waiting, mean)
        record.within = response_share(bound, services, load.weights, waiting, mean)
    moved = 0.0
    if apart:
        moved = exposed_transfer_seconds(sent[0], sent[3], record.chunks, balance[0].prefill)
        moved += sent[1] + _residual(last, end) + _slots(last, load, end, load.further * end.period, load.outputs)
        if sent[0] > 0 and load.rate * sent[0] < sent[2]:  # beyond, the last request waits as it is late
            moved += mean_wait(min(load.rate * sent[0] / sent[2], 0.999), sent[2], sent[0], load.gaps, 0.0)
    record.tpot = end.period + moved * load.each
    record.latency = record.ttft + load.further * record.tpot
    lanes = first.instances * first.stages
    record.prefill_busy_share = min(1.0, rate * balance[0].prefill / lanes) if apart else min(1.0, end.held)
    record.decode_busy_share = min(1.0, end.held) if apart else record.prefill_busy_share
    span, slope = 0.0, (taken[-1] - taken[0]) / max(load.prompts[-1] - load.prompts[0], 1.0)
    for place in range(len(load.arrival)):
        own = (taken[0] + slope * (load.prompt[place] - load.prompts[0])) * times
        further = load.left[place]
        begun = load.arrival[place] + own + more + waiting * mean * (0.0 if late > 0 else 1.0) + (moved if further > 0 else 0.0)
        # while others come, and after the last of them
        before = min(further, max(0.0, load.arrival[0] - begun) / end.period) if end.period > 0 else 0.0
        span = max(span, begun + before * end.period + (further - before) * end.drain)
    record.span = span + late


@compiled_without_gil
def _residual(pool, balance):
    """Until a lane ends its iteration, where all are at work. [s]"""
    held = balance.held * pool.stages
    lanes = pool.instances * pool.stages
    held = balance.held * lanes
    if held == 0:
        return 0.0
    all_busy = 0.5 * math.erfc((lanes - 0.5 - held) / math.sqrt(2 * held)) if lanes > 1 else min(1.0, held)
    return all_busy * balance.period / (2 * lanes if pool.stages == 1 else 2 * pool.stages)


@compiled_without_gil
def _slots(pool, load, balance, service, spread):
    """For a place in a batch. [s]"""
    lanes = pool.instances * pool.stages
    busy = min(balance.held / pool.batch, 0.999)
    return mean_wait(busy, max(1.0, lanes * pool.batch), service, load.gaps, spread)


@compiled_without_gil
def _waits(apart, pool, load, prompts, taken, most, alone, balance):
    """Share of the requests that wait for a place or for prompts before theirs, and how long these do.

    With a separate prefill pool, `alone` is the rate of that pool. [1/s]
    """
    lanes = pool.instances * pool.stages
    service = balance.prefill
    square = 0.0
    for kind in range(len(taken)):
        square += load.weights[kind] * taken[kind] ** 2
    spread = max(0.0, square / prompts.seconds**2 - 1)
    servers = lanes * (min(chunks_per_iteration(pool, balance.decodes), pool.batch) if pool.mixed else 1.0)
    # chunks that are not full alone are, where others wait
    busy = min(load.rate, most) / alone if apart else min(load.rate, most) * service / servers
    busy = min(busy, 0.999)
    longer, share = mean_wait(busy, servers, service, load.gaps, spread), delay_probability(busy, servers)
    if not apart:
        whole = service + load.further * balance.period
        cv = (service**2 * spread + (load.further * balance.period) ** 2 * load.outputs) / whole**2
        longer += _slots(pool, load, balance, whole, cv)
        share = 1 - (1 - share) * (1 - delay_probability(min(balance.held / pool.batch, 0.999), max(1.0, lanes * pool.batch)))
    # no queue of a trace is longer than what its chance leaves of its requests
    chance = math.sqrt(load.requests * (load.gaps + spread)) / most
    longer = min(longer, chance)
    return share, longer / share if share > 0 else 0.0
