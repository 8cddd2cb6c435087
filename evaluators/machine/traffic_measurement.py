"""Measurement of latency and throughput of open-loop traffic on routers.

A run warms up, then takes samples until three in a row move mean latency and accepted rate by less than 5 % and packets are
enough, then drains: sources go on, until all packets made meanwhile have arrived. Latency counts from when a packet is
made, so that the wait in its source is part of it. It is over when the mean, packets on their way included, is above a
bound: then queues grow [dally2004].
"""

from typing import Any, NamedTuple

import numpy as np

from dse.evaluators.machine import router_state as routers
from dse.evaluators.machine import traffic_sources as sources
from dse.evaluators.machine.fault_routing import FaultRoutes, add_fault_routes, fault_routes
from dse.evaluators.machine.router_state import RouterTables
from dse.evaluators.machine.traffic_flows import TrafficFlows, traffic_flows, traffic_targets, working_targets
from dse.evaluators.machine.traffic_sources import DRAINING, RUNNING, WARMING
from dse.space.array_math import Array
from dse.space.chip import Router
from dse.space.errors import DesignError
from dse.space.noc_router import NO_FAULTS, MeshFaults, router_cycles
from dse.space.workload import NocTrafficCase

NEVER = 1 << 60

STABLE, UNSETTLED, SATURATED = range(3)
"""Verdicts."""

WARM, MOST_SAMPLES, ALIKE = 3, 10, 3
"""Samples: to warm up; at most, these included; in a row that agree."""

MIN_PACKETS = 20_000
"""Packets after which agreement is believed: the mean of as many is known to half a per cent."""

SETTLED_CHANGE = 0.05
"""By which share two samples may differ and agree."""

MAX_LATENCY_RATIO = 15.0
"""Mean latency from which on a network counts as saturated, over that without contention. [-]"""

STEADY, DOUBLINGS = 0.02, 6
"""By which share what a saturated network accepts in two windows in a row may differ; windows at most, each as long as all
before it."""

MAX_CYCLES = 5_000_000_000
"""Flits times routers that they cross in a run: half an hour."""

BACKLOG_SHARE = 0.01
"""By which share of the time sources may be behind, on average, when samples end, and count as keeping up."""


class TrafficResult(NamedTuple):
    """Measured traffic: latencies in cycles, rates in flits per node and cycle.

    Attributes:
        latency, p50, p99: of packets: the mean, that of half and of 99 % of them.
        hops: routers that a packet passes, both ends included: the mean.
        accepted: flits that arrive.
        verdict: `STABLE`, `UNSETTLED` or `SATURATED`.
        cycles: of the whole run.
        crossed: flits times routers that they crossed.
    """

    latency: float
    p50: float
    p99: float
    hops: float
    accepted: float
    verdict: int
    cycles: int
    crossed: int


def make_traffic_routers(router: Router, rows: int, cols: int, order: str, ways: FaultRoutes | None = None) -> RouterTables:
    """Empty routers for packets with one target each."""
    t = router_cycles(router)
    width = np.array([[router.flit_x, router.flit_x, router.flit_y, router.flit_y, 1]], np.int64)
    made = routers.make_router_tables(
        rows, cols, int(router.vcs), int(router.vc_depth), route=int(t.before - (not router.speculative)), forward=int(t.after),
        credit=int(t.back), inject=int(1 + router.link), local=max(1, int(router.link)), speculative=router.speculative,
        row_first=order == "yx", width=width,
    )  # fmt: skip
    return add_fault_routes(made, ways) if ways else made


def measure_traffic(
    router: Router, rows: int, cols: int, order: str, case: NocTrafficCase, faults: MeshFaults = NO_FAULTS
) -> TrafficResult:
    """Measure latency and throughput of a mesh under a load; the arguments, seed included, decide them.

    Routers that are broken make no packets and get none; those of others that were to go there are not made.

    Raises:
        DesignError: `MAX_CYCLES` is not enough for the packets that are asked for.
    """
    ways = fault_routes(rows, cols, faults, order, vcs=int(router.vcs)) if faults else None
    net = make_traffic_routers(router, rows, cols, order, ways)
    flows = traffic_flows(case, rows, cols, order, faults, ways)
    chance = case.rate / case.flits
    to, sends = working_targets(traffic_targets(case, rows, cols), rows * cols, faults)
    source = sources.make_sources(net, chance, case.flits, to, case.seed)
    source.due[~sends] = NEVER
    nodes = int(sends.sum())
    period = max(case.period, int(np.ceil(case.packets / (nodes * chance))))
    _refuse(case, flows, period * nodes * chance)
    bound = MAX_LATENCY_RATIO * float(zero_load_latency(router, case, flows.hops))
    now = since = alike = samples = 0
    before: Any = (0.0, 0.0)
    state, verdict = WARMING, STABLE
    while samples < MOST_SAMPLES and (alike < ALIKE or source.tally[sources.RETIRED] < MIN_PACKETS) and verdict == STABLE:
        if samples == WARM or (samples < WARM and samples % 2 == 0):
            state = RUNNING if samples == WARM else WARMING
            _forget(source)
            since = now
        now = int(sources.run_traffic(net, source, now, now + period, state, 0))
        sample = np.array([_mean(source, sources.LATENCY), source.tally[sources.ACCEPTED] / (now - since)])
        agrees = state == RUNNING and (np.abs(sample - before) < SETTLED_CHANGE * sample).all()
        alike = alike + 1 if agrees else 0
        before, samples = sample, samples + 1
        verdict = SATURATED if _with_waiting(source, now) > bound else STABLE
    accepted = float(source.tally[sources.ACCEPTED] / (now - since) / nodes)
    behind = float(np.maximum(now - source.due, 0).mean()) / now
    ended = now
    while verdict == STABLE:
        until = now + 1000
        now = int(sources.run_traffic(net, source, now, until, DRAINING, ended))
        if now < until or not source.tally[sources.MEASURED]:
            break
        verdict = SATURATED if _with_waiting(source, now) > bound else STABLE
    if verdict == STABLE:
        verdict = SATURATED if behind > BACKLOG_SHARE else UNSETTLED if alike < ALIKE else STABLE
    p50, p99 = (_quantile(source.latencies, share) for share in (0.5, 0.99))
    latency, hops = _mean(source, sources.LATENCY), _mean(source, sources.HOPS)
    if verdict == SATURATED:
        now, accepted = _filled(net, source, now, nodes)
    crossed = int(net.sums[routers.CROSSED])
    return TrafficResult(latency, p50, p99, hops, accepted, verdict, now, crossed)


def zero_load_latency(router: Router, case: NocTrafficCase, hops: Any) -> Any:
    """Latency of packets without contention: stages of `hops` routers, and the other flits. [cycle]

    A link that is narrow paces flits, or credits that come too late.
    """
    t = router_cycles(router)
    turn = t.after + t.back
    bursts = -(-case.flits // router.vc_depth) - 1
    late = bursts * (turn - router.vc_depth) if router.vc_depth < turn else 0.0
    return hops * t.hop + 1 + router.link + late + (case.flits - 1) * max(router.flit_x, router.flit_y)


def _refuse(case: NocTrafficCase, flows: TrafficFlows, packets: float) -> None:
    """Refuse traffic that takes too long to simulate."""
    crossings = MOST_SAMPLES * packets * case.flits * flows.hops
    if crossings > MAX_CYCLES:
        have = f"{MOST_SAMPLES} samples of {packets:,.0f} packets of {case.flits:,} flits over {flows.hops:.1f} routers"
        raise DesignError(
            f"workload.packets: {have} are {crossings:,.0f} flit hops, at most {MAX_CYCLES:,} can be simulated; reduce "
            "the packets or the sampling period"
        )


def _filled(net: RouterTables, source: Any, now: int, nodes: int) -> tuple[int, float]:
    """The cycle in which it is known what a saturated network accepts, and how much a node."""
    before, throughput = -1.0, 0.0
    for _ in range(DOUBLINGS):
        _forget(source)
        now, since = int(sources.run_traffic(net, source, now, 2 * now, RUNNING, 0)), now
        before, throughput = throughput, float(source.tally[sources.ACCEPTED] / (now - since) / nodes)
        if abs(throughput - before) < STEADY * throughput:
            break
    return now, throughput


def _forget(source: Any) -> None:
    """What was counted; what is on its way stays."""
    source.latencies[:] = 0
    source.tally[[sources.RETIRED, sources.LATENCY, sources.HOPS, sources.ACCEPTED]] = 0


def _mean(source: Any, kind: int) -> float:
    return float(source.tally[kind] / max(source.tally[sources.RETIRED], 1))


def _with_waiting(source: Any, now: int) -> float:
    """Mean latency, with the age of flits that have not arrived."""
    tally = source.tally
    total = tally[sources.LATENCY] + tally[sources.FLYING] * now - tally[sources.FLYING_BORN]
    return float(total / max(tally[sources.RETIRED] + tally[sources.FLYING], 1))


def _quantile(counts: Array, share: float) -> float:
    total = np.cumsum(counts)
    return float(np.searchsorted(total, share * total[-1])) if total[-1] else float("nan")
