"""Compiled simulator of programs on routers: tasks of engines, memory channels and packets."""

# mypy: disable-error-code="no-untyped-def,assignment"

import numpy as np

from dse.evaluators.machine.bank_simulator import advance_banks, next_bank_event
from dse.evaluators.machine.compile_cache import compiled_loop, inlined_function
from dse.evaluators.machine.event_heap import HEAP, push_event
from dse.evaluators.machine.router_simulator import advance_routers, choose_channel, inject_flit, local_channel
from dse.evaluators.machine.router_state import ARRIVED, CROSSED, HEAD, HERE, SENT, TAIL
from dse.evaluators.machine.task_events import COME, DONE, OWED, SENDING, STILL, begin_ready, happen_until

MAX_IDLE_CYCLES = 4096
"""Cycles in which flits are there and none moves, and nothing else is going to happen, until it is called a deadlock."""


@inlined_function
def _hand_over(net, floor, packets, at, now):
    """A place that sends gives its router a flit, if it may; whether it has no packets left."""
    packet = np.int64(floor.waiting[at, 0])
    port = np.int64(packets.port[packet])
    r = np.int64(packets.router[packet])
    source = local_channel(net, r, port)
    sent = packets.sent[packet]
    feeder = packets.feeder[packet]
    if packets.due[packet] > now or (feeder >= 0 and packets.came[feeder] <= sent):
        return False
    if sent == 0:
        vc = choose_channel(net, source, floor.last[at])
        if vc < 0:
            return False
        floor.vc[at] = floor.last[at] = vc
    vc = floor.vc[at]
    if net.out[source + vc].credits <= 0:
        return False
    tail = sent + 1 == packets.flits[packet]
    inject_flit(net, r, port, vc, packets.number[packet] << 2 | (TAIL if tail else 0) | (HEAD if sent == 0 else 0), now)
    packets.sent[packet] = sent + 1
    packets.due[packet] = max(packets.due[packet], now - 1.0) + packets.pace[packet]
    if not tail:
        return False
    if packets.left[packet] >= 0:
        push_event(floor, now + packets.pace[packet], packets.left[packet] << 2 | COME)
    floor.counts[OWED] += packets.owed[packet]
    floor.waiting[at, 0] = packets.line[packet]
    return floor.waiting[at, 0] < 0


@inlined_function
def _following(floor, banks):
    """Time of the next event other than flits; negative if there is none."""
    then = -1.0
    if banks is not None:
        then = next_bank_event(banks)
    if floor.counts[HEAP] > 0 and (then < 0 or floor.when[0] < then):
        return floor.when[0]
    return then


@compiled_loop
def run_tasks(net, floor, tasks, packets, circuits, banks):
    """Run all tasks of a program; returns whether all finished, or some wait forever.

    Without banks nothing of them is compiled, as their type says.
    """
    now = np.int64(0)
    banked = banks is not None
    begin_ready(floor, tasks, packets, banked)
    while True:
        happen_until(floor, tasks, packets, circuits, banked, float(now), now)
        if banks is not None:
            advance_banks(banks, floor, tasks, now)
        quiet = floor.counts[SENDING] == 0 and floor.counts[OWED] == net.sums[ARRIVED]
        if quiet and floor.counts[STILL] > net.slots:
            following = _following(floor, banks)
            if following < 0:
                return floor.counts[DONE] == len(tasks.kind)
            now = max(now, np.int64(np.ceil(following)))
            continue
        k, left, moved = 0, 0, net.sums[CROSSED] + net.sums[SENT]
        while k < floor.counts[SENDING]:
            at = np.int64(floor.place_sends[k])
            if _hand_over(net, floor, packets, at, now):
                floor.sending[at] = 0
            else:
                floor.place_sends[left] = at
                left += 1
            k += 1
        floor.counts[SENDING] = left
        advance_routers(net, now)
        k = 0
        while k < net.sums[HERE]:
            at, flit = np.int64(net.ejected[k].at), np.int64(net.ejected[k].flit)
            k += 1
            packet = np.int64(floor.of[flit >> 2])
            packets.came[packet] += 1
            task = np.int64(packets.tail[packet])
            to = net.target[flit >> 2]
            if to < 0:
                task += floor.place[-1 - to, net.router_of[at >> net.shift]]
            if flit & TAIL:
                push_event(floor, now + packets.pace[packet], task << 2 | COME)
            if flit & HEAD and packets.head[packet] >= 0:
                push_event(floor, now + 1.0, packets.head[packet] << 2 | COME)
        floor.counts[STILL] = 0 if net.sums[CROSSED] + net.sums[SENT] > moved or net.sums[HERE] else floor.counts[STILL] + 1
        if floor.counts[STILL] > MAX_IDLE_CYCLES and not quiet:
            following = _following(floor, banks)
            if following < 0:
                return False
            now = max(now, np.int64(np.ceil(following)) - 1)
        now += 1
