"""Compiled simulation of tasks of engines and of messages that may lock their routes.

A task begins when all before it have finished.

What moves flit by flit, and banks of memory, is for `evaluators.machine.task_simulator`.
"""

# mypy: disable-error-code="no-untyped-def,assignment"

from typing import NamedTuple

import numpy as np

from dse.evaluators.machine.compile_cache import compiled_loop, compiled_part, inlined_function
from dse.evaluators.machine.event_heap import HEAP, pop_event, push_event
from dse.evaluators.machine.router_state import CORE
from dse.evaluators.machine.task_kinds import BLOCK, NOTE, PACKET
from dse.space.array_math import Array


class Tasks(NamedTuple):
    """Tasks of a program, with their dependencies; a task is ready when all before it have finished.

    Attributes:
        kind: an option of `NOTE`, `WORK`, `BLOCK`, `PACKET`.
        on: the engine or memory channel of a task, or its packet.
        busy: that it takes its engine, or bytes of a block.
        after: from its start until what waits for it may start; of a block, what its words stream, less than 0 of one stored.
        needs: tasks before it that are not done.
        ready: when they are.
        first, then: tasks after it, `then[first[i]:first[i + 1]]`.
        queued: the next task that waits for the same engine.
        done: when it was.
    """

    kind: Array
    on: Array
    busy: Array
    after: Array
    needs: Array
    ready: Array
    first: Array
    then: Array
    queued: Array
    done: Array


class Packets(NamedTuple):
    """Packets of the tasks of a program.

    Attributes:
        router, port: where it comes from: a core, or a memory channel.
        number: of it in the network: addends of one sum have the same.
        flits: of it; `pace`: cycles from one to the next; `sent` and `came`: how many did; `due`: when the next may go.
        feeder: a packet whose flits these continue, -1 for none.
        left, head, tail: tasks that are done when it has left, when its first flit arrives and when its last does; -1 for none.
            Those of a tree begin at `tail`, in the order of `place`.
        line: the next packet that waits at the same place.
        far: links from end to end, for circuits.
        owed: flits of it that are to arrive, all together; an addend's are those of the first one.
        asked: in which of the moments at which circuits are given it asked for one.
        circuit: number of the circuit that it takes, -1 for none.
    """

    router: Array
    port: Array
    number: Array
    flits: Array
    pace: Array
    sent: Array
    came: Array
    due: Array
    feeder: Array
    left: Array
    head: Array
    tail: Array
    line: Array
    far: Array
    owed: Array
    asked: Array
    circuit: Array


class Circuits(NamedTuple):
    """Channels that packets lock, a list for each circuit.

    A message locks all of its channels at once, for a handshake and its words. A multicast or a sum has no handshake, and its
    words come to each channel of its tree as late as it is far away.

    Attributes:
        first: where the channels of each circuit begin in the lists below, shape (circuits + 1,).
        channel: channels.
        begins: from when a packet needs each one, after it has its circuit; before that of a sum's far members. [cycle]
        ends: until when, beside its words. [cycle]
        task: which task of its packet is done then: -1 for none, 0 for `Packets.left`, and so many places behind
            `Packets.tail` and one.
    """

    first: Array
    channel: Array
    begins: Array
    ends: Array
    task: Array


class Floor(NamedTuple):
    """Engines, channels and places that run tasks, and a heap of coming events.

    Attributes:
        free: until when each engine or channel is busy; `queue`: first and last task that waits for it, -1 for none.
        waiting: first and last packet at each place that sends, -1; `vc`, `last`: channels there; `sending`, `place_sends`:
            places with packets.
        latency, byte, crowded: of memory channels, in cycles.
        of: packet by its number in the network.
        place: of each tree and router, which of the tree's members it is.
        when, what: a heap of times and of what happens: a task << 2 is done, or its packet has `COME`, or an engine << 2 is
            `FREE`; or less than 0, a packet that asks for its circuit again.
        stack: tasks that have just become ready.
        locks: until when each channel of circuits is locked.
        asking: packets that look now whether all channels of theirs are free.
        trip: cycles between cores and their routers, out and in; `hop`: from router to router.
        ports: places that send at each router.
        counts: places below.
    """

    free: Array
    queue: Array
    waiting: Array
    vc: Array
    last: Array
    sending: Array
    place_sends: Array
    latency: float
    byte: float
    crowded: float
    of: Array
    place: Array
    when: Array
    what: Array
    stack: Array
    locks: Array
    asking: Array
    trip: float
    hop: float
    ports: int
    counts: Array


STACK, SENDING, DONE, STILL, OWED, ASKING, GIVEN = range(HEAP + 1, HEAP + 8)
"""Places of `Floor.counts` after that of events: of the stack, of places that send; tasks done; cycles in which nothing moved;
flits that are to arrive of all packets sent; packets that look for channels; times when circuits were given."""

FREE, COME = 1, 2
"""Kinds of events other than the end of a task."""

MOMENT = 1e-6
"""What happens within so many cycles happens at once, as times are rounded sums; circuits are given when all of it is known."""


@compiled_part
def _start(floor, tasks, task, time):
    """An engine begins with a task, or a channel with a block."""
    engine = tasks.on[task]
    busy, after = tasks.busy[task], tasks.after[task]
    if tasks.kind[task] == BLOCK:
        busy *= floor.crowded if time > tasks.ready[task] else floor.byte
        after = busy if after < 0 else max(floor.latency, busy + floor.latency - after)
    floor.free[engine] = time + busy
    push_event(floor, time + after, task << 2)
    push_event(floor, time + busy, engine << 2 | FREE)


@inlined_function
def _ask(floor, packet):
    """A packet is among those that look for their channels."""
    floor.asking[floor.counts[ASKING]] = packet
    floor.counts[ASKING] += 1


@compiled_part
def _when_free(floor, circuits, circuit):
    """From when on a packet may have a circuit, as long as nobody else takes channels of it."""
    place, when = circuits.first[circuit], -np.inf
    while place < circuits.first[circuit + 1]:
        when = max(when, floor.locks[circuits.channel[place]] - circuits.begins[place])
        place += 1
    return when


@compiled_part
def _take(floor, packets, circuits, packet, time):
    """Lock the channels of a packet's circuit, each until the packet's words have left it."""
    circuit = packets.circuit[packet]
    words = packets.flits[packet] * packets.pace[packet]
    place = circuits.first[circuit]
    while place < circuits.first[circuit + 1]:
        until = time + circuits.ends[place] + words
        floor.locks[circuits.channel[place]] = until
        which = circuits.task[place]
        task = packets.left[packet] if which == 0 else packets.tail[packet] + which - 1
        if which >= 0 and task >= 0:
            push_event(floor, max(time, until), task << 2 | COME)
        place += 1


@compiled_part
def _give(floor, packets, circuits, time):
    """All who look have their circuits where all channels are free, who asked first before others.

    A request crosses the way, a grant comes back, and flits follow. Nobody keeps a channel while it waits for others, which is
    what keeps circuits from waiting for one another; who waits looks again when all channels that are locked now are free.
    """
    for i in range(floor.counts[ASKING]):
        single_packet, k = floor.asking[i], i
        while k > 0 and _before(packets, single_packet, floor.asking[k - 1]):
            floor.asking[k] = floor.asking[k - 1]
            k -= 1
        floor.asking[k] = single_packet
    for i in range(floor.counts[ASKING]):
        packet = floor.asking[i]
        when = _when_free(floor, circuits, packets.circuit[packet])
        if when > time + MOMENT:
            push_event(floor, when, -1 - packet)
            continue
        _take(floor, packets, circuits, packet, time)
        if packets.head[packet] >= 0:
            trips = 3 * (floor.trip + packets.far[packet] * floor.hop)
            push_event(floor, time + trips + 1.0, packets.head[packet] << 2 | COME)
    floor.counts[ASKING] = 0
    floor.counts[GIVEN] += 1


@inlined_function
def _before(packets, packet, other):
    """Whether a packet requested its circuit before another one; at equal times by program order."""
    return packets.asked[packet] < packets.asked[other] or (packets.asked[packet] == packets.asked[other] and packet < other)


@compiled_part
def begin_ready(floor, tasks, packets, banked):
    """Begin every ready task, and those that become ready by tasks that finish at once."""
    while floor.counts[STACK]:
        floor.counts[STACK] -= 1
        task = floor.stack[floor.counts[STACK]]
        time, kind, resource = tasks.ready[task], tasks.kind[task], tasks.on[task]
        if kind == PACKET:
            packets.due[resource] = time
            floor.counts[DONE] += 1
            if packets.circuit[resource] >= 0:
                packets.asked[resource] = floor.counts[GIVEN]
                _ask(floor, resource)
                continue
            at = packets.router[resource] * floor.ports + packets.port[resource] - CORE
            packets.line[resource] = -1
            if floor.waiting[at, 0] < 0:
                floor.waiting[at, 0] = resource
            else:
                packets.line[floor.waiting[at, 1]] = resource
            floor.waiting[at, 1] = resource
            if floor.sending[at] == 0:
                floor.sending[at] = 1
                floor.place_sends[floor.counts[SENDING]] = at
                floor.counts[SENDING] += 1
        elif kind == NOTE:
            if tasks.after[task] > 0:
                push_event(floor, time + tasks.after[task], task << 2)
            else:
                _finish(floor, tasks, task, time)
        else:
            first = floor.queue[resource, 0] < 0
            tasks.queued[task] = -1
            if first:
                floor.queue[resource, 0] = task
            else:
                tasks.queued[floor.queue[resource, 1]] = task
            floor.queue[resource, 1] = task
            if first and floor.free[resource] <= time and (not banked or kind != BLOCK):
                _start(floor, tasks, task, time)


@inlined_function
def _finish(floor, tasks, task, time):
    """A task is done; those that waited for it alone are ready."""
    tasks.done[task] = time
    floor.counts[DONE] += 1
    k = tasks.first[task]
    while k < tasks.first[task + 1]:
        after = tasks.then[k]
        k += 1
        tasks.ready[after] = max(tasks.ready[after], time)
        tasks.needs[after] -= 1
        if tasks.needs[after] == 0:
            floor.stack[floor.counts[STACK]] = after
            floor.counts[STACK] += 1


@compiled_part
def happen_until(floor, tasks, packets, circuits, banked, time, until):
    """Run all events from one time until another one."""
    while True:
        if floor.counts[ASKING] and (floor.counts[HEAP] == 0 or floor.when[0] > time + MOMENT):
            _give(floor, packets, circuits, time)
        if floor.counts[HEAP] == 0 or floor.when[0] > until:
            return
        time, what = floor.when[0], floor.what[0]
        pop_event(floor)
        if what < 0:
            _ask(floor, -1 - what)
        elif what & 3 == COME:
            task = what >> 2
            tasks.ready[task] = time
            floor.stack[floor.counts[STACK]] = task
            floor.counts[STACK] += 1
        elif what & 3 == FREE:
            engine = what >> 2
            task = tasks.queued[floor.queue[engine, 0]]
            floor.queue[engine, 0] = task
            if task >= 0:
                _start(floor, tasks, task, time)
        else:
            _finish(floor, tasks, what >> 2, time)
        if floor.counts[STACK]:
            begin_ready(floor, tasks, packets, banked)


@compiled_loop
def perform_messages(floor, tasks, packets, circuits):
    """Run all tasks of a program whose packets lock their routes; returns whether all finished."""
    begin_ready(floor, tasks, packets, False)
    happen_until(floor, tasks, packets, circuits, False, 0.0, np.inf)
    return floor.counts[DONE] == len(tasks.kind)
