"""Serving simulation: deployments, and results of a run.

Iteration times come from `iteration_time`, requests are arrays (`space.requests`), and scheduling is a
`scheduling_policy`. Nothing here depends on a chip.
"""

from collections.abc import Sequence
from concurrent.futures import CancelledError
from contextvars import ContextVar
from dataclasses import dataclass, fields, replace
from threading import Event
from typing import NamedTuple

import numpy as np

from dse.evaluators.serving.event_loop import ENDED, PAUSED, STOPPED, UNPRICED, run_event_loop
from dse.evaluators.serving.iteration_time import IterationTime
from dse.evaluators.serving.kv_memory import KvMemory
from dse.evaluators.serving.scheduling_policy import SchedulingPolicy
from dse.evaluators.serving.simulator_state import (
    POOL,
    REQUEST,
    TOTAL,
    WINDOW,
    KvTransfer,
    ServingState,
    StopBounds,
    make_initial_state,
    make_records,
)
from dse.evaluators.serving.token_gap_histogram import OCTAVES, PER_OCTAVE
from dse.space.array_math import Array
from dse.space.errors import DesignError, suggest_nearest
from dse.space.requests import Requests
from dse.space.serving_plan import ROUTING
from dse.space.workload import Speculation

NO_STOP = StopBounds()

CALLED_OFF: ContextVar[Event | None] = ContextVar("CALLED_OFF", default=None)
"""Event of a thread that cancels its simulation within a tenth of a second."""


@dataclass(frozen=True, eq=False)
class InstancePool:
    """A pool of equal instances: iteration time, policy, KV memory, batch size and number.

    Attributes:
        price: iteration time through all stages.
        policy: how an instance forms one.
        memory: of an instance.
        instances: each with the whole model, its own queue and its own memory (data parallelism).
        shares: of the time of an iteration, by stage of an instance's pipeline, 1 in all; as many micro-batches are in flight.
        batch: the most requests of an instance, over all its micro-batches.
        prefix: hash blocks of the prefix cache, besides the memory of running requests; 0 for no reuse.
        entry: units of `prefix` per hash block; 0 where layers have states only, and `prefix` counts snapshots.
        snapshot: likewise a snapshot of states, at which alone a prefix can then be reused; 0 where layers have none.
        every: hash blocks from snapshot to snapshot, besides the last whole one of a prompt; 0 for only that one.
        pooled: prefixes stay in blocks that running requests do not need, and requests share them (`prefixes`).
        hosted: blocks on the host for prefixes evicted from the pool; the memory gives the time of their return.
        copies: copies of attention, to which requests of an iteration are dealt in rotation, each with its own link to the
            host.
        guesses: drafted tokens per decoding request and iteration, for which the iteration time has rows.
        acceptance: chance that a guess is right where those before it are.
        seed: of which guesses are.
    """

    price: IterationTime
    policy: SchedulingPolicy
    memory: KvMemory
    instances: int = 1
    shares: tuple[float, ...] = (1.0,)
    batch: int = 128
    prefix: int = 0
    entry: int = 1
    snapshot: int = 0
    every: int = 0
    pooled: bool = False
    hosted: int = 0
    copies: int = 1
    guesses: int = 0
    acceptance: float = 0.0
    seed: int = 0

    def __post_init__(self) -> None:
        if min(self.instances, self.stages, self.batch, self.copies) < 1 or min(self.prefix, self.snapshot, self.every) < 0:
            raise DesignError(
                f"pool: {self.instances} instances, {self.stages} stages, batch {self.batch}, {self.copies} "
                "copies; each must be at least 1"
            )
        if self.hosted < 0 or (self.hosted and not self.pooled):
            raise DesignError(f"pool: {self.hosted} blocks on the host need prefixes in one shared pool of blocks")
        if min(self.guesses, self.seed) < 0 or not 0 <= self.acceptance <= 1:
            raise DesignError(
                f"pool: {self.guesses} drafted tokens, acceptance {self.acceptance}, seed {self.seed}; "
                "expected counts and a share"
            )
        if self.policy.chunked and self.policy.tokens < 1 + self.guesses:
            raise DesignError(
                f"pool: {self.guesses} drafted tokens, and a budget of {self.policy.tokens}; no request could decode"
            )
        if self.policy.by_chunk and (self.memory.pages or (self.stages > 1 and not self.memory.buffers)):
            # prompts of two lanes could make each other leave for ever
            raise DesignError("pool: memory by chunks needs one stage and one memory, or a second memory that is never full")
        beside = self.prefix or self.memory.pages or self.memory.buffers or self.memory.fixed or self.memory.windows
        if self.pooled and (beside or not self.memory.each):
            raise DesignError(
                "pool: shared prefix blocks need one memory whose layers keep all positions, and no separate prefix cache"
            )
        if min(self.shares) < 0 or abs(sum(self.shares) - 1) > 1e-9:
            raise DesignError(f"pool: stages take {self.shares} of an iteration; the shares must add up to 1")

    @property
    def stages(self) -> int:
        """Number of pipeline stages of an instance."""
        return len(self.shares)

    @property
    def expected_tokens(self) -> float:
        """Expected tokens per decoding request and iteration; see `space.workload.Speculation.expected`."""
        return Speculation(self.guesses, self.acceptance).expected_tokens


class Deployment(NamedTuple):
    """Pools that serve a load, with KV transfer between them and routing.

    Attributes:
        pools: one, or one that prefills and one that decodes.
        transfer: of caches between two pools; None for one.
        routing: routing of requests, of `space.serving_plan.ROUTING`.
    """

    pools: tuple[InstancePool, ...]
    transfer: KvTransfer | None
    routing: str

    def serve(self, requests: Requests, *, stop: StopBounds = NO_STOP, log: int = 0) -> "ServingRun":
        """Simulate requests on the deployment; see `simulate_serving`."""
        return simulate_serving(requests, self.pools, transfer=self.transfer, routing=self.routing, stop=stop, log=log)


@dataclass(frozen=True, eq=False)
class ServingRun:
    """Result of a serving simulation. Instants are NaN for events that did not happen.

    Attributes:
        requests: that were asked; turns of sessions with the times at which they have come.
        pools: that served them.
        state: the arrays of the loop, at the end.
        transfer: of caches between two pools.
        stopped: whether it was ended at the caller's bound.
        never: why the load can never be served, in one line; empty where it can.
        routing: of requests to instances.
        rate: the maximum rate, rounded, if it was searched. [1/s]
    """

    requests: Requests
    pools: tuple[InstancePool, ...]
    state: ServingState
    transfer: KvTransfer
    stopped: bool = False
    never: str = ""
    routing: str = "least_loaded"
    rate: float = 0.0

    @property
    def deployment(self) -> Deployment:
        """The deployment that served the run."""
        return Deployment(self.pools, self.transfer if len(self.pools) == 2 else None, self.routing)

    @property
    def total(self) -> dict[str, float]:
        """Counts and time sums by name, as in `simulator_state.TOTAL`."""
        return {name: self.state.total[name][0].item() for name in TOTAL.names or ()}

    @property
    def log(self) -> Array:
        """The first iterations, as records of `simulator_state.LOG`."""
        return self.state.log[: int(self.state.total["logged"][0])]

    def __getitem__(self, name: str) -> Array:
        """A column of the requests, with the names of `simulator_state.REQUEST`; shape (requests,)."""
        return self.state.requests[name]


def simulate_serving(
    requests: Requests,
    pools: Sequence[InstancePool],
    *,
    transfer: KvTransfer | None = None,
    routing: str = "least_loaded",
    stop: StopBounds = NO_STOP,
    log: int = 0,
) -> ServingRun:
    """Simulate requests on one pool, or on a prefill pool and a decode pool.

    A prefill instance makes a request's first token. Its KV cache is then queued at a decode instance, sent when
    that instance has room, and holds its blocks at the source until it has arrived.

    Args:
        requests: with times.
        pools: one, or prefill and decode.
        transfer: of caches between two pools; `nearest` and `aware` are set by `routing`. None is at once.
        routing: routing of requests, of `space.serving_plan.ROUTING`.
        stop: bounds on simulated time and on queues.
        log: how many iterations to keep.

    Raises:
        DesignError: no arrival times, an unknown option, or an iteration without a positive time.
        CancelledError: the event in `CALLED_OFF` was set.
    """
    if routing not in ROUTING:
        raise DesignError(f"routing: no option {routing!r}; {suggest_nearest(routing, ROUTING)}")
    if not 1 <= len(pools) <= 2:
        raise DesignError(f"pools: expected one pool, or one for prefill and one for decode; got {len(pools)}")
    if not len(requests) or not requests.has_times:
        raise DesignError("workload.arrivals: the requests have no arrival times; choose an arrival process, as poisson")
    sent = (transfer or KvTransfer(0.0, 0.0, 1, True))._replace(
        nearest=routing != "round_robin", aware=routing == "cache_aware"
    )
    times = [sent.per_token, sent.latency, sent.fixed, *(seconds for _, seconds in sent.windows)]
    if sent.channels < 1 or not all(0 <= seconds < np.inf for seconds in times):
        raise DesignError(
            f"transfer: {sent.per_token} s per token, {sent.latency} s, {sent.channels} channels; none may be negative"
        )
    if sent.layers < 0:
        raise DesignError(f"transfer: {sent.layers} layers; set the model's layers, or 0 for whole-cache transfer")
    if not 1 <= sent.blocks <= min(pool.instances for pool in pools):
        raise DesignError(f"transfer: {sent.blocks} blocks of instances; each needs an instance of every pool")
    for pool in pools:
        if pool.pooled and len(requests.hashes) and requests.block % pool.memory.block:
            raise DesignError(
                f"mapping.serving.block_size: blocks of {pool.memory.block} tokens do not divide the "
                f"{requests.block} tokens of a hash"
            )
    wanted_requests = _asked(requests, sent, pooled=any(pool.pooled for pool in pools))
    state = make_initial_state(
        wanted_requests, requests.hashes.astype(np.int64), _pools(pools, requests), _windows(pools),
        [pool.shares for pool in pools], sent.channels, OCTAVES * PER_OCTAVE, log,
    )  # fmt: skip
    never = _never(requests, pools)
    if never:
        return ServingRun(requests, tuple(pools), state, sent, never=never, routing=routing)
    # a price has room to work in: several runs may go on at a time
    prices = tuple(pool.price._replace(places=pool.price.places.copy(), weights=pool.price.weights.copy()) for pool in pools)
    ended, called_off = PAUSED, CALLED_OFF.get()
    while ended == PAUSED:  # compiled code hears of no Ctrl-C: it comes back for it every tenth of a second
        if called_off is not None and called_off.is_set():
            raise CancelledError("the run is cancelled")
        ended = run_event_loop(state, (prices[0], prices[-1]), sent._replace(windows=()), stop)
    if ended == UNPRICED:
        raise DesignError(f"iteration time: an iteration of {_composition(state)} has no time above 0")
    assert ended in (ENDED, STOPPED), "requests are left, and no further event happens"
    if len(requests.before):
        requests = replace(requests, arrival=state.requests["arrival"].copy())
    return ServingRun(requests, tuple(pools), state, sent, ended == STOPPED, routing=routing)


def _asked(requests: Requests, sent: KvTransfer, *, pooled: bool) -> Array:
    records = make_records(REQUEST, len(requests), arrival=requests.arrival, prompt=requests.prompt, output=requests.output)
    records["sending"] = sent.seconds(requests.prompt)
    if len(requests.ranks):
        records["rank"] = requests.ranks
    records["then"] = -1
    if len(requests.before):
        records["turn"], records["think"] = requests.before >= 0, requests.think
        records["then"][requests.before[records["turn"]]] = np.flatnonzero(records["turn"])
        records["arrival"][records["turn"]] = np.inf  # until it is known
    if len(requests.starts):
        records["first_hash"], records["hashed"] = requests.starts[:-1], np.diff(requests.starts)
        if not pooled:  # a part of the memory keeps prompts alone
            whole = np.minimum(records["hashed"], records["prompt"] // requests.block)
            records["hashed"] = np.where(requests.spans == records["prompt"], records["hashed"], whole)
        records["span"] = requests.spans
    return records


def _never(requests: Requests, pools: Sequence[InstancePool]) -> str:
    """Why a load can never be served: a request that does not fit in memory; empty string if all fit."""
    whole = requests.prompt.astype(np.int64) + requests.output - 1
    for number, pool in enumerate(pools):
        positions = requests.prompt if len(pools) == 2 and number == 0 else whole
        worst = int(np.argmax(positions))
        if positions[worst] > pool.memory.longest:
            return f"request {worst} needs {positions[worst]} tokens of KV memory, an instance has {pool.memory.longest}"
    return ""


def _pools(pools: Sequence[InstancePool], requests: Requests) -> Array:
    found_pools, first = make_records(POOL, len(pools)), 0
    for number, (row, pool) in enumerate(zip(found_pools, pools, strict=True)):
        for part in (pool.policy, pool.memory, pool):
            for name in set(POOL.names or ()) & {spec.name for spec in fields(part)}:
                row[name] = getattr(part, name)
        row["spare"] = int(pool.memory.spare * (pool.memory.blocks + pool.memory.pages))
        row["number"], row["first"], row["prefix_block"] = number, first, requests.block
        row["hands_over"] = len(pools) == 2 and number == 0
        first += pool.instances
    return found_pools


def _windows(pools: Sequence[InstancePool]) -> Array:
    windows = make_records(WINDOW, len(pools) * max(len(pool.memory.windows) for pool in pools)).reshape(len(pools), -1)
    for row, pool in zip(windows, pools, strict=True):
        for entry, (positions, blocks) in zip(row, pool.memory.windows, strict=False):
            entry["positions"], entry["steps"], entry["blocks"] = positions, -(-positions // pool.memory.block), blocks
    return windows


def _composition(state: ServingState) -> str:
    step = state.step[0]
    return f"{step['prompt']:.0f} prompt tokens and {step['requests']:.0f} decodes at {step['positions']:.0f} positions"
