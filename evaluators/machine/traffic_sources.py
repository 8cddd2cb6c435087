"""Compiled open-loop sources that give packets to routers at random times."""

# mypy: disable-error-code="no-untyped-def,assignment"

from typing import NamedTuple

import numpy as np

from dse.evaluators.machine.compile_cache import compiled_loop, inlined_function
from dse.evaluators.machine.router_simulator import advance_routers, choose_channel, inject_flit, local_channel
from dse.evaluators.machine.router_state import CORE, HEAD, HERE, TAIL, RouterTables
from dse.space.array_math import Array


class TrafficSources(NamedTuple):
    """Sources that make packets at random times; packets wait in their source until they can leave.

    Attributes:
        chance: that a packet is made in a cycle; `decay`: the logarithm of that none is.
        flits: of a packet.
        targets: nodes that each source sends to, each as likely, shape (sources, choices), or (1, choices) where all have the
            same; any node where there are no choices.
        due: when each source's next packet is made; `left`: flits that it has still to send of the one before it.
        packet, vc: of that one; `last`: the channel used last.
        random: state of the generator.
        born, measured, hops: of each packet in flight; `unused`: numbers of packets, a stack, its height in `tally`.
        latencies: packets by latency, shape (cycles,), the last for all longer ones.
        tally: integers, see the places below.
    """

    chance: float
    decay: float
    flits: int
    targets: Array
    due: Array
    left: Array
    packet: Array
    vc: Array
    last: Array
    random: Array
    born: Array
    measured: Array
    hops: Array
    unused: Array
    latencies: Array
    tally: Array


UNUSED, MEASURED, RETIRED, LATENCY, HOPS, ACCEPTED, FLYING, FLYING_BORN, MADE = range(9)
"""Places of `TrafficSources.tally`: numbers left; measured packets in flight; packets that arrived, sum of their latencies and
of routers passed; flits that arrived; flits made and not arrived, and the sum of when they were made; packets made."""


def make_sources(
    net: RouterTables, chance: float, flits: int, targets: Array, seed: int, longest: int = 8192
) -> TrafficSources:
    """Sources of a mesh before the first packet."""
    n, packets = net.routers, len(net.target)
    tally = np.zeros(9, np.int64)
    tally[UNUSED] = packets
    random = np.array([np.random.SeedSequence(seed).generate_state(1, np.uint64)[0]], np.uint64)
    decay = float(np.log1p(-chance)) if chance < 1 else -np.inf
    made = TrafficSources(
        chance, decay, flits, targets.astype(np.int32), np.zeros(n, np.int64), np.zeros(n, np.int32), np.zeros(n, np.int32),
        np.zeros(n, np.int32), np.full(n, -1, np.int32), random, np.zeros(packets, np.int64), np.zeros(packets, np.uint8),
        np.zeros(packets, np.int32), np.arange(packets, dtype=np.int32), np.zeros(longest, np.int64), tally,
    )  # fmt: skip
    _first_packets(made)
    return made


@inlined_function
def _draw(state):
    """A number of 64 bits: SplitMix64 [steele2014]."""
    state[0] += np.uint64(0x9E3779B97F4A7C15)
    z = state[0]
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


@inlined_function
def _gap(source):
    """Cycles until the next packet is made, at least 1: trials until the first success."""
    if source.chance >= 1.0:
        return 1
    u = (np.float64(_draw(source.random) >> np.uint64(11)) + 1.0) * 2.0**-53
    return 1 + int(min(np.log(u) / source.decay, 2.0**40))


@compiled_loop
def _first_packets(source):
    for node in range(len(source.due)):
        source.due[node] = _gap(source) - 1


@inlined_function
def _far(net, r, to):
    """Links of the way from a router to another."""
    if len(net.table) == 0:
        return abs(net.router[to].col - net.router[r].col) + abs(net.router[to].row - net.router[r].row)
    far = 0
    while r != to:
        r = np.int64(net.router_of[net.port[r * net.ports + net.table[r, to]].onward >> net.shift])
        far += 1
    return far


@inlined_function
def _make(net, source, node, measured):
    """The packet of a source that is due."""
    source.tally[UNUSED] -= 1
    packet = source.unused[source.tally[UNUSED]]
    choices = source.targets.shape[1]
    k = np.int64(_draw(source.random) >> np.uint64(32)) * (choices if choices else net.routers) >> 32
    to = np.int64(source.targets[node if len(source.targets) > 1 else 0, k]) if choices else k
    net.target[packet] = to << 3 | CORE
    source.born[packet] = source.due[node]
    source.measured[packet] = measured
    source.hops[packet] = _far(net, node, to) + 1
    source.tally[MEASURED] += measured
    source.tally[FLYING] += source.flits
    source.tally[FLYING_BORN] += source.flits * source.due[node]
    source.tally[MADE] += 1
    source.packet[node] = packet
    source.left[node] = source.flits
    source.due[node] += _gap(source)


@inlined_function
def _offer(net, source, node, now):
    """A source sends a flit of its packet if its router has room."""
    at = local_channel(net, node, CORE)
    head = source.left[node] == source.flits
    if head:
        vc = choose_channel(net, at, source.last[node])
        if vc < 0:
            return
        source.vc[node] = source.last[node] = vc
    vc = source.vc[node]
    if net.out[at + vc].credits > 0:
        tail = source.left[node] == 1
        source.left[node] -= 1
        inject_flit(net, node, CORE, vc, source.packet[node] << 2 | (TAIL if tail else 0) | (HEAD if head else 0), now)


WARMING, RUNNING, DRAINING = range(3)
"""What counts: all that arrives; flits that arrive, and packets made meanwhile; what is left of these."""


@compiled_loop
def run_traffic(net, source, now, until, phase, measured_before):
    """Run cycles from `now` to `until`, or to the end of draining; returns the next cycle.

    Draining ends when all measured packets have arrived and sources have made all that were due before `measured_before`.
    Cycles in which nothing is on its way, credits included, are jumped over.
    """
    wake, still = now, 0
    while now < until:
        still = still + 1 if source.tally[FLYING] == 0 else 0
        if still > net.slots + 1:
            soonest = source.due[0]
            for node in range(net.routers):
                soonest = min(soonest, source.due[node])
            now, still = max(now, min(soonest, until)), 0
            if now == until:
                break
        if now >= wake:
            wake = now + (1 << 60)
            for node in range(net.routers):
                if source.left[node] == 0 and source.due[node] <= now:
                    measured = phase == RUNNING or (phase == DRAINING and source.due[node] < measured_before)
                    _make(net, source, node, 1 if measured else 0)
                if source.left[node]:
                    _offer(net, source, node, now)
                wake = min(wake, now + 1 if source.left[node] else max(source.due[node], now + 1))
        advance_routers(net, now)
        for k in range(net.sums[HERE]):
            flit = np.int64(net.ejected[k].flit)
            packet = flit >> 2
            source.tally[FLYING] -= 1
            source.tally[FLYING_BORN] -= source.born[packet]
            source.tally[ACCEPTED] += phase != DRAINING
            if flit & TAIL:
                source.unused[source.tally[UNUSED]] = packet
                source.tally[UNUSED] += 1
                source.tally[MEASURED] -= source.measured[packet]
                if phase == WARMING or source.measured[packet]:
                    latency = now - source.born[packet]
                    source.tally[RETIRED] += 1
                    source.tally[LATENCY] += latency
                    source.tally[HOPS] += source.hops[packet]
                    source.latencies[min(latency, len(source.latencies) - 1)] += 1
        now += 1
        if phase == DRAINING and source.tally[MEASURED] == 0:
            waiting = 0
            for node in range(net.routers):
                waiting += source.due[node] < measured_before
            if waiting == 0:
                break
    return now
