"""Record arrays that the compiled simulation reads and writes, made anew for each run."""

from collections.abc import Sequence
from math import inf
from typing import Any, NamedTuple

import numpy as np

from dse.space.array_math import Array, minimum


def _fields(whole: str = "", real: str = "", flags: str = "", counts: type[np.integer[Any]] = np.int64) -> np.dtype[Any]:
    kinds = ((real, np.float64), (whole, counts), (flags, np.bool_))
    return np.dtype([(name, kind) for names, kind in kinds for name in names.split()], align=True)


REQUEST = _fields(
    "prompt output target done begun made part room blocks spilled follower instance source left left_paged preempted hit "
    "queued first_hash hashed span matched spared shared entered rank then fetch",
    "arrival scheduled first completed ready sending think gone last",
    "parked remote turn",
    counts=np.int32,  # millions of requests are records of 192 bytes, not of 304
)
"""Lengths; positions to compute before the next token, computed, and known when taken up; tokens made; tokens in the
iteration that runs; steps of positions that there is room for, blocks held, and blocks that have overflowed; the next in a
queue; where it is; where its cache still is, and its blocks there, those of the second memory apart; preemptions; tokens
reused when first scheduled; requests in queues when it came; its hashes, and tokens that these stand for; hash blocks that
it could share, and blocks of them that others hold; blocks that it shares, and hash blocks that were offered to others; its
rank, of which the least is served first; the next turn of its session, -1 for none; positions that it could share, or
shares, from the host. Instants: as `measures` names them, that of its last token, and when its cache is where it is sent;
how long a channel has it, how long its user thinks before, and when a channel that was free before would have sent what is
computed of it, layer by layer. Whether its cache is on the host, or in another instance, and whether it waits for an answer
before it comes. [token], [s]"""

INSTANCE = _fields(
    "number pool stages first_lane next_lane head queued held most used paged buffers peak cached hosted why",
    "area busy since ends by_batch by_memory carried",
    "due",
)
"""Its queue; requests held, and the most at a time; blocks used, those of the second memory apart, and buffers; the most
blocks of both; hash blocks cached, or blocks of those that nobody holds where they are in the same pool; blocks of those
that are on the host; why the first in its queue was not taken up (0, or as `BATCH` says). Block-seconds, up to when, busy
seconds, when the first of its lanes ends, seconds in which somebody waits for each of these, and what has gone to the host
and come back, in positions of a block. Whether something has happened."""

BATCH, MEMORY = 1, 2
"""Why the first queued request was not admitted after all lanes have tried: batch size, or memory."""

LANE = _fields("number instance count", "end start", "prompts")
"""How many requests, and when its iteration ends and began; infinite where it is idle. Whether that one has prompts."""

POOL = _fields(
    "number first instances turn tokens unit chunk batch block blocks spare fixed each pages buffers "
    "prefix prefix_block entry snapshot every hosted copies guesses seed",
    "host acceptance",
    "mixed chunked static lifetime swap by_chunk gated shared_budget hands_over pooled",
)
"""Fields of `SchedulingPolicy`, `KvMemory` and `InstancePool`; number, first instance, and next instance in rotation."""

WINDOW = _fields("positions steps blocks")
"""What a request has of windows: blocks each step, up to so many positions and steps; 0 where another pool has more windows."""

STEP = _fields(real="prompt pairs requests positions past far moved cells moves")
"""What an iteration is made of: prompt tokens, pairs of query and key in prompts, decoding requests, positions that these read,
earlier positions that prompts read, how many of both have overflowed, positions that come from the host or go there, how
many of a block that is with all that a request has, and how many requests they are of."""

TOTAL = _fields(
    "served in_system queued iterations prefilled decoded reused lost preempted swapped sent remote logged coming work "
    "late slow guessed thinking fetched carried again",
    "system_area queue_area now",
)
"""Requests done, in the system, in queues; iterations; prompt tokens and decodes computed, positions taken from the prefix
cache, computed positions thrown away; preemptions; positions moved to or from the host, and sent; caches that wait to be
sent; iterations kept; requests that have come; work that is left before a pause; requests whose first token, and whose mean
time per token, was beyond the bounds of `StopBounds`; tokens made of guesses that were right; turns that users think about;
positions of prefixes that came back from the host; positions of a block of caches and prefixes that went there or came back;
instances to be looked at again at the next instant; request-seconds; the last instant."""

WORK = _fields("iterations", "prompt pairs requests positions past far")
"""Sums over iterations of the counts in `STEP`."""

SPANS = 64
"""Half octaves, of prompt tokens or of decodes alone, over which iterations are summed separately."""

BUSIEST = 16
"""Octaves of decoding requests of which the busiest iterations are kept; more than 2^15 are in the last one."""

AT_ONCE = _fields("prompts decodes most_prompts most_decodes most")
"""Iterations under way, of all lanes of a pool: with prompts and of decodes alone, the most of each, and of both together."""

LOG = _fields("instance lane prompt requests positions queued pairs past far", "start end step")
GAP = _fields("count", "seconds")
CACHED = _fields("older newer held steps", flags="there state host")
"""A ring by age round a last entry that is no block, and one round the last but one of those on the host; how many requests
hold it, in one pool, and its steps; whether it is there, with a snapshot of states, too, or on the host."""


SLICE = 1 << 20
"""Iterations skipped, or instants of several each, in about a tenth of a second."""


class StopBounds(NamedTuple):
    """Bounds at which a simulation is stopped early.

    Attributes:
        seconds: simulated time. [s]
        waiting: requests in queues.
        work: after which it pauses.
        ttft, tpot: SLO bounds on TTFT and TPOT. [s]
        misses: requests that may miss each of the bounds.
    """

    seconds: float = inf
    waiting: int = 1 << 40
    work: int = SLICE
    ttft: float = inf
    tpot: float = inf
    misses: int = 1 << 40


class KvTransfer(NamedTuple):
    """KV transfer from prefill to decode instances: times per request, channels and routing.

    Attributes:
        per_token: on a channel, which carries one cache at a time; of layers that keep all positions. [s]
        latency: after a cache's last byte has left, until it is there. [s]
        channels: that carry caches side by side.
        nearest: whether a cache goes to the instance with fewest requests, else to the next in rotation; likewise arrivals.
        blocks: of which each has an equal part of the instances of both pools, and sends no cache to another.
        fixed: of a request, whatever its length. [s]
        windows: of layers that keep the last positions: how many, and a channel's time for one. [token], [s]
        aware: whether an arrival goes to the instance with the longest matching prefix; `nearest` then gives the fallback.
        matched: share of a prompt that must be there for that. [-]
        apart, times: where the most requests of an instance are more than so many above, and more than so many times, the
            fewest of one, the arrival goes to that one. [request], [-]
        layers: that are sent each as soon as it is computed, behind the iterations that prefill; 0 where a cache goes whole
            when these are done. What a channel then has to do after the last of them is its last layer, or what it has not
            caught up with. A cache that finds no room when its prompt is done goes whole, when there is some.

    Source:
        [smg2025] cache-aware routing: its three thresholds. Departures: what is matched are the caches themselves, not the
        router's tree of what it sent; a short match goes to the fewest requests, not to the smallest tree.
    """

    per_token: float
    latency: float
    channels: int
    nearest: bool
    blocks: int = 1
    fixed: float = 0.0
    windows: tuple[tuple[int, float], ...] = ()
    aware: bool = False
    matched: float = 0.3
    apart: int = 64
    times: float = 1.5
    layers: int = 0

    def seconds(self, positions: Any) -> Any:
        """Time that a request's KV cache occupies a channel, from its prompt length. [s]"""
        found_seconds = positions * self.per_token + self.fixed
        for window, seconds in self.windows:
            found_seconds = found_seconds + minimum(positions, window) * seconds
        return found_seconds


class ServingState(NamedTuple):
    """Record arrays of a serving simulation.

    Attributes:
        requests, instances, lanes, pools: one record each.
        windows: of pools, shape (pools, most windows).
        step, total: one record.
        gaps: histogram of the gaps between tokens.
        work: sums of each pool over iterations without prompts and with prompts, by `busiest_iterations.span_index`;
            shape (pools, 2, SPANS).
        busiest: iterations that `busiest_iterations.keep_busiest` keeps, records of `STEP`; shape (pools, 2, BUSIEST).
        at_once: records of `AT_ONCE`, one a pool.
        cache: of prefix blocks, shape (instances, hashes + 2).
        log: the first iterations.
        hashes: of all prompts.
        running: of each lane, by rank, and of one rank in the order of admission; shape (lanes, most requests).
        shares: stage shares of an iteration's time; shape (pools, most stages).
        stage_free: when each stage of an instance is free; shape (instances, most stages). [s]
        channels: when each channel is free. [s]
        transit: the first cache on its way, shape (1,).
        scratch: one number for each position of a block.
        holds: whether a request shares each of its hash blocks, shape of `hashes`.
        lasts: the last of each rank in the queue of an instance, -1 for none; shape (instances, ranks).
        coming: heap of pending turns by arrival time; shape (sessions,), 0 where no request is a turn.
        wakes: tree of the times at which instances wake, of `wake_times`; shape (2 * leaves,). [s]
        loads: requests held and in the queue, of each instance.
    """

    requests: Array
    instances: Array
    lanes: Array
    pools: Array
    windows: Array
    step: Array
    total: Array
    gaps: Array
    work: Array
    busiest: Array
    at_once: Array
    cache: Array
    log: Array
    hashes: Array
    running: Array
    shares: Array
    stage_free: Array
    channels: Array
    transit: Array
    scratch: Array
    holds: Array
    lasts: Array
    coming: Array
    wakes: Array
    loads: Array


def make_records(kind: np.dtype[Any], count: int, **columns: Any) -> Array:
    """Record array of a kind, 0 in all columns but the given ones."""
    records = np.zeros(count, kind)
    for name, values in columns.items():
        records[name] = values
    return records


def make_initial_state(
    requests: Array, hashes: Array, pools: Array, windows: Array, shares: Sequence[Sequence[float]], channels: int, bins: int,
    log: int,
) -> ServingState:  # fmt: skip
    """Simulation state before the first request.

    Args:
        requests: records with arrival, lengths and hashes.
        hashes: of all prompts.
        pools, windows: records.
        shares: stage shares of an iteration's time, for the instances of each pool.
        channels: between pools.
        bins: of the histogram of gaps.
        log: iterations to keep.
    """
    for name in ("last", "scheduled", "first", "completed", "ready"):
        requests[name] = np.nan
    requests["target"], requests["gone"] = requests["prompt"], -np.inf
    pool_of = np.repeat(np.arange(len(pools)), pools["instances"])
    stages = np.array([len(share) for share in shares])
    depth = np.repeat(stages, pools["instances"])
    numbers = np.arange(len(pool_of))
    instances = make_records(INSTANCE, len(pool_of), number=numbers, pool=pool_of, stages=depth, head=-1, ends=np.inf)
    instances["first_lane"] = np.cumsum(depth) - depth
    of_lane = np.repeat(numbers, depth)
    lanes = make_records(LANE, len(of_lane), number=np.arange(len(of_lane)), instance=of_lane, end=np.inf)
    blocks = int(hashes.max()) + 1 if len(hashes) and (pools["prefix"] + pools["pooled"]).any() else 0
    cache = np.zeros((len(pool_of), blocks + 2), CACHED)
    for end in (blocks, blocks + 1):
        cache["older"][:, end] = cache["newer"][:, end] = end
    of_stage = np.zeros((len(pools), int(stages.max())))
    for row, share in zip(of_stage, shares, strict=True):
        row[: len(share)] = share
    widest = int((-(-np.minimum(pools["batch"][pool_of], len(requests)) // depth)).max())
    return ServingState(
        requests,
        instances,
        lanes,
        pools,
        windows,
        make_records(STEP, 1),
        make_records(TOTAL, 1),
        make_records(GAP, bins),
        np.zeros((len(pools), 2, SPANS), WORK),
        np.zeros((len(pools), 2, BUSIEST), STEP),
        make_records(AT_ONCE, len(pools)),
        cache,
        make_records(LOG, log),
        hashes,
        np.zeros((len(of_lane), widest), np.int64),
        of_stage,
        np.zeros((len(pool_of), int(depth.max()))),
        np.zeros(channels),
        np.full(1, -1, np.int64),
        np.zeros(int(pools["block"].max()), np.int64),
        np.zeros(len(hashes), np.bool_),
        np.full((len(pool_of), int(requests["rank"].max()) + 1), -1, np.int64),
        np.zeros(int((~requests["turn"]).sum()) if requests["turn"].any() else 0, np.int64),
        np.full(2 << (len(pool_of) - 1).bit_length(), np.inf),
        np.zeros(len(pool_of), np.int64),
    )
