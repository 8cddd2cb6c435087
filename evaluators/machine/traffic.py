"""Open-loop traffic on routers: where packets go, and how latency and throughput are measured.

A run warms up, then takes samples until three in a row move mean latency and accepted rate by less than 5 % and packets are
enough, then drains: sources go on, until all packets made meanwhile have arrived. Latency counts from when a packet is
made, so that the wait in its source is part of it. It is over when the mean, packets on their way included, is above a
bound: then queues grow [dally2004].
"""

from typing import Any, NamedTuple

import numpy as np

from evaluators.machine import net as routers
from evaluators.machine import sources
from evaluators.machine.detour import detours
from evaluators.machine.net import Net
from evaluators.machine.sources import DRAINING, RUNNING, WARMING
from space.elementwise import Array
from space.network import NO_FAULTS, Faults, Router, stages
from space.workload import Traffic

NEVER = 1 << 60

STABLE, UNSETTLED, SATURATED = range(3)
"""Verdicts."""

WARM, MOST, ALIKE = 3, 10, 3
"""Samples: to warm up; at most, these included; in a row that agree."""

ENOUGH = 20_000
"""Packets after which agreement is believed: the mean of as many is known to half a per cent."""

SETTLED = 0.05
"""By which share two samples may differ and agree."""

BOUND = 500.0
"""Mean latency from which on a network counts as saturated. [cycle]"""

BEHIND = 0.01
"""By which share of the time sources may be behind, on average, when samples end, and count as keeping up."""


class Measured(NamedTuple):
    """What came out; latencies in cycles, rates in flits a node and cycle.

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


def targets(case: Traffic, rows: int, cols: int) -> Array:
    """Nodes that each node sends to, each as likely, shape (nodes, choices); no choices where any node may be.

    Nodes are numbered row after row. A transpose needs as many rows as columns, and spots have to be on the mesh.

    >>> at = lambda pattern: Traffic("", pattern, (), 4, 0.1, 1, 1000, 1, 0)
    >>> targets(at("tornado"), 4, 4)[:4].ravel().tolist(), targets(at("hotspot"), 8, 8)[0].tolist()
    ([5, 6, 7, 4], [27, 28, 35, 36])
    """
    nodes = np.arange(rows * cols)
    row, col = np.divmod(nodes, cols)
    if case.pattern == "uniform":
        return np.zeros((len(nodes), 0), np.int32)
    if case.pattern == "hotspot":
        at = (rows - 1) // 2 * cols + (cols - 1) // 2
        middle = {0: case.spots, 1: (at,), 4: (at, at + 1, at + cols, at + cols + 1)}[case.middle]
        return np.tile(np.array(middle, np.int32), (len(nodes), 1))
    one = {
        "transpose": col * cols + row,
        "bit_complement": len(nodes) - 1 - nodes,
        "tornado": (row + (rows + 1) // 2 - 1) % rows * cols + (col + (cols + 1) // 2 - 1) % cols,
        "neighbour": (row + 1) % rows * cols + (col + 1) % cols,
    }[case.pattern]
    return np.asarray(one, np.int32)[:, None]


def healthy(to: Array, nodes: int, faults: Faults) -> tuple[Array, Array]:
    """Targets that work, shape (nodes, choices), and which nodes send."""
    works = np.ones(nodes, bool)
    works[list(faults.routers)] = False
    if not faults.routers:
        return to, works
    if not to.shape[1]:
        return np.tile(np.flatnonzero(works), (nodes, 1)), works
    if to.shape[1] > 1:
        to = to[:, works[to[0]]]  # spots, the same of all nodes
    return to, works & (works[to].all(axis=1) if to.shape[1] else False)


def network(of: Router, rows: int, cols: int, order: str, faults: Faults = NO_FAULTS) -> Net:
    """Empty routers for packets of one target each."""
    t = stages(of)
    width = np.ones((rows * cols, routers.CORE + 1), np.int32)
    width[:, :2], width[:, 2:4] = of.flit_x, of.flit_y
    made = routers.network(
        rows, cols, int(of.vcs), int(of.depth), route=int(t.before - (not of.speculative)), forward=int(t.after),
        credit=int(t.back), inject=int(1 + of.link), local=max(1, int(of.link)), speculative=of.speculative,
        row_first=order == "yx", width=width,
    )  # fmt: skip
    return made._replace(table=detours(rows, cols, faults).table) if faults else made


def measure(of: Router, rows: int, cols: int, order: str, case: Traffic, faults: Faults = NO_FAULTS) -> Measured:
    """Latency and throughput of a mesh under a load: a function of its arguments, seed included.

    Routers that are broken make no packets and get none; those of others that were to go there are not made.
    """
    net = network(of, rows, cols, order, faults)
    nodes, chance = rows * cols, case.rate / case.flits
    to, sends = healthy(targets(case, rows, cols), nodes, faults)
    source = sources.load(net, chance, case.flits, to, case.seed)
    source.due[~sends] = NEVER
    nodes = max(int(sends.sum()), 1)
    period = max(case.period, int(np.ceil(case.packets / (nodes * chance))))
    now = since = alike = samples = 0
    before: Any = (0.0, 0.0)
    state, verdict = WARMING, STABLE
    while samples < MOST and (alike < ALIKE or source.tally[sources.RETIRED] < ENOUGH) and verdict == STABLE:
        if samples == WARM or (samples < WARM and samples % 2 == 0):
            state = RUNNING if samples == WARM else WARMING
            source.latencies[:] = 0
            source.tally[[sources.RETIRED, sources.LATENCY, sources.HOPS, sources.ACCEPTED]] = 0
            since = now
        now = int(sources.run(net, source, now, now + period, state, 0))
        sample = np.array([_mean(source, sources.LATENCY), source.tally[sources.ACCEPTED] / (now - since)])
        agrees = state == RUNNING and (np.abs(sample - before) < SETTLED * sample).all()
        alike = alike + 1 if agrees else 0
        before, samples = sample, samples + 1
        verdict = SATURATED if _with_waiting(source, now) > BOUND else STABLE
    accepted = float(source.tally[sources.ACCEPTED] / (now - since) / nodes)
    behind = float(np.maximum(now - source.due, 0).mean()) / now
    ended = now
    while verdict == STABLE:
        until = now + 1000
        now = int(sources.run(net, source, now, until, DRAINING, ended))
        if now < until or not source.tally[sources.MEASURED]:
            break
        verdict = SATURATED if _with_waiting(source, now) > BOUND else STABLE
    if verdict == STABLE:
        verdict = SATURATED if behind > BEHIND else UNSETTLED if alike < ALIKE else STABLE
    p50, p99 = (_quantile(source.latencies, share) for share in (0.5, 0.99))
    crossed = int(net.sums[routers.CROSSED])
    return Measured(_mean(source, sources.LATENCY), p50, p99, _mean(source, sources.HOPS), accepted, verdict, now, crossed)


def _mean(source: Any, of: int) -> float:
    return float(source.tally[of] / max(source.tally[sources.RETIRED], 1))


def _with_waiting(source: Any, now: int) -> float:
    """Mean latency, with the age of flits that have not arrived."""
    tally = source.tally
    total = tally[sources.LATENCY] + tally[sources.FLYING] * now - tally[sources.FLYING_BORN]
    return float(total / max(tally[sources.RETIRED] + tally[sources.FLYING], 1))


def _quantile(counts: Array, share: float) -> float:
    total = np.cumsum(counts)
    return float(np.searchsorted(total, share * total[-1])) if total[-1] else float("nan")
