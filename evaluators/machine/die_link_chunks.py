"""Compiled simulation of messages between dies, chunk by chunk on links with credits.

A chunk leaves its die's port at the port's pace, goes on over a link as soon as its head is there (cut-through), and takes each
link for its bytes over the rate. A link takes turns between what comes through, by virtual channel, and what its own die sends;
each queue is first come, first served. A chunk needs credits, which are back a round trip after it went, as the memory of each
die takes what comes; or, where they are room in buffers (`held`), a latency after its tail has left those. On closed lines a
chunk changes to a second channel where the line closes, so that nobody waits in a circle ([dally2004] section 14.2.3). What has
arrived leaves through the port of its target.
"""

# mypy: disable-error-code="no-untyped-def"

from typing import NamedTuple

import numpy as np

from dse.evaluators.machine.compile_cache import compiled_loop, compiled_part, inlined_function
from dse.evaluators.machine.event_heap import pop_event, push_event
from dse.space.array_math import Array

INJECT, ARRIVE, FREE, CREDIT, DONE = range(5)
"""What happens: a port may send, the head of a chunk is at a link, a link is free, room is back, a message is complete."""

OWN_PORTS = 2
"""Queue of a link for chunks of its own die, after one queue per virtual channel."""


class LinkTables(NamedTuple):
    """Links and ports of a network of dies, and the chunks that wait at them.

    Attributes:
        first, over: ways of pairs of ends, as of `machine.die_network.DieRoutes`.
        line, closes: which line of dies a link is of, along rows or columns; whether it closes that; shape (links,).
        byte: what a byte takes on each link. [s/B], shape (links,)
        ported: what it takes at the port of each die. [s/B], shape (dies,)
        latency: of a hop over each link. [s], shape (links,)
        held: whether a chunk has its room until it has gone on from the die, or until it is there.
        room: bytes that each channel of a link still takes, shape (links, 2).
        free, pending, turn: when a link is free; whether that is in the heap; the queue whose turn it is; shape (links,).
        queue: first and last chunk of each queue of a link, -1 for none, shape (links, 3, 2).
        port: below 0 where a die's port has nothing to send, and when it is free to receive, shape (dies, 2).
        sending: first and last message of a die, -1 for none, shape (dies, 2).
        when, what: a heap of events.
        counts: events in the heap, shape (1,).
    """

    first: Array
    over: Array
    line: Array
    closes: Array
    byte: Array
    ported: Array
    latency: Array
    held: bool
    room: Array
    free: Array
    pending: Array
    turn: Array
    queue: Array
    port: Array
    sending: Array
    when: Array
    what: Array
    counts: Array


class ChunkedMessages(NamedTuple):
    """Messages cut into chunks, and their progress; shape (messages,) except arrays of chunks.

    Attributes:
        source, pair: die, and number of the pair of dies.
        target: die.
        size: bytes of each of its chunks. [B]
        chunks: of each message; `begin`: number of its first one.
        sent, left: chunks that left the source; chunks that have not arrived.
        then: message of the target that may go when this one has come, -1 for none.
        waits: whether it waits for another one.
        behind: the next message of a die's queue.
        done: when it was complete. [s]
        message, at, vc, next: of each chunk: its message, place in `over`, channel of the link behind it, who waits after it.
    """

    source: Array
    target: Array
    pair: Array
    size: Array
    chunks: Array
    begin: Array
    sent: Array
    left: Array
    then: Array
    waits: Array
    behind: Array
    done: Array
    message: Array
    at: Array
    vc: Array
    next: Array


@inlined_function
def _enqueue(floor, sent, message):
    """A message joins its die's queue."""
    die = sent.source[message]
    sent.behind[message] = -1
    if floor.sending[die, 0] < 0:
        floor.sending[die, 0] = message
    else:
        sent.behind[floor.sending[die, 1]] = message
    floor.sending[die, 1] = message


@inlined_function
def _awake(floor, die, now):
    """A port that stood still begins."""
    if floor.port[die, 0] < 0:
        floor.port[die, 0] = now
        push_event(floor, now, np.int64(die) << 3 | INJECT)


@inlined_function
def _inject(floor, sent, die, now, interleave):
    """A port sends a chunk of the message in front, which goes to the end of the queue where messages take turns."""
    message = floor.sending[die, 0]
    if message < 0:
        floor.port[die, 0] = -1.0
        return
    chunk = np.int64(sent.begin[message] + sent.sent[message])
    sent.sent[message] += 1
    size = sent.size[message]
    ends = now + size * floor.ported[die]
    sent.message[chunk], sent.at[chunk] = message, floor.first[sent.pair[message]]
    push_event(floor, max(now, ends - size * floor.byte[floor.over[sent.at[chunk]]]), chunk << 3 | ARRIVE)
    push_event(floor, ends, die << 3 | INJECT)
    last = sent.sent[message] == sent.chunks[message]
    if last or interleave:
        floor.sending[die, 0] = sent.behind[message]
        if not last:
            _enqueue(floor, sent, message)


@inlined_function
def _wait(floor, sent, chunk):
    """A chunk joins the queue of its next link, by the channel that it will have there."""
    at = sent.at[chunk]
    link, queue = floor.over[at], OWN_PORTS
    if at > floor.first[sent.pair[sent.message[chunk]]]:
        before = floor.over[at - 1]
        turns = floor.line[before] != floor.line[link]
        queue = 0 if turns else max(sent.vc[chunk], floor.closes[before])
    sent.next[chunk] = -1
    if floor.queue[link, queue, 0] < 0:
        floor.queue[link, queue, 0] = chunk
    else:
        sent.next[floor.queue[link, queue, 1]] = chunk
    floor.queue[link, queue, 1] = chunk
    return link


@inlined_function
def _give_back(floor, sent, chunk, when):
    """Room for the chunk on the link that it came over last is back at a time; if rooms are limited."""
    at = np.int64(sent.at[chunk] - 1)
    if floor.room[floor.over[at], 0] < np.inf:
        message = np.int64(sent.message[chunk])
        push_event(floor, when, at << 30 | message << 4 | np.int64(sent.vc[chunk]) << 3 | CREDIT)


@compiled_part
def _go_on(floor, sent, link, now):
    """A link that is free takes the next chunk for which there is room; if it is busy it looks again when it is free."""
    if floor.free[link] <= now:
        for k in range(3):
            queue = floor.turn[link] + k
            queue = queue - 3 if queue >= 3 else queue
            chunk = floor.queue[link, queue, 0]
            if chunk < 0:
                continue
            size, vc = sent.size[sent.message[chunk]], 0 if queue == OWN_PORTS else queue
            if floor.room[link, vc] < size * (1 - 1e-9):
                continue
            floor.turn[link] = queue + 1 if queue < 2 else 0
            floor.queue[link, queue, 0] = sent.next[chunk]
            floor.room[link, vc] -= size
            floor.free[link] = now + size * floor.byte[link]
            if queue != OWN_PORTS and floor.held:
                _give_back(floor, sent, chunk, floor.free[link] + floor.latency[floor.over[sent.at[chunk] - 1]])
            sent.vc[chunk] = vc
            sent.at[chunk] += 1
            if not floor.held:  # bytes come back as they went, one after the other: from the first one's round trip on
                _give_back(floor, sent, chunk, now + 2 * floor.latency[link])
            push_event(floor, now + floor.latency[link], np.int64(chunk) << 3 | ARRIVE)
            break
    waiting = floor.queue[link, 0, 0] >= 0 or floor.queue[link, 1, 0] >= 0 or floor.queue[link, 2, 0] >= 0
    if waiting and floor.free[link] > now and not floor.pending[link]:
        floor.pending[link] = 1
        push_event(floor, floor.free[link], np.int64(link) << 3 | FREE)


@inlined_function
def _receive(floor, sent, chunk, now):
    """Receive a chunk at its target's port; messages that wait for a complete one go on."""
    message = np.int64(sent.message[chunk])
    die, size = sent.target[message], sent.size[message]
    last = floor.over[sent.at[chunk] - 1]
    ends = max(max(now, floor.port[die, 1]) + size * floor.ported[die], now + size * floor.byte[last])
    floor.port[die, 1] = ends
    if floor.held:
        _give_back(floor, sent, chunk, ends + floor.latency[last])
    sent.left[message] -= 1
    if sent.left[message] == 0:
        sent.done[message] = ends
        if sent.then[message] >= 0:
            push_event(floor, ends, message << 3 | DONE)


@compiled_loop
def send_chunks(floor, sent, interleave):
    """Send all messages; returns the number of chunks that have not arrived when nothing can move. [-]"""
    for message in range(len(sent.source)):
        if not sent.waits[message]:
            _enqueue(floor, sent, message)
            _awake(floor, sent.source[message], 0.0)
    while floor.counts[0]:
        now, what = floor.when[0], floor.what[0]
        pop_event(floor)
        kind, place = what & 7, what >> 3
        if kind == ARRIVE:
            if sent.at[place] == floor.first[sent.pair[sent.message[place]] + 1]:
                _receive(floor, sent, place, now)
            else:
                _go_on(floor, sent, _wait(floor, sent, place), now)
        elif kind == FREE:
            floor.pending[place] = 0
            _go_on(floor, sent, place, now)
        elif kind == CREDIT:
            link = floor.over[what >> 30]
            floor.room[link, place & 1] += sent.size[place >> 1 & 0x3FFFFFF]
            _go_on(floor, sent, link, now)
        elif kind == INJECT:
            _inject(floor, sent, place, now, interleave)
        else:
            after = sent.then[place]
            _enqueue(floor, sent, after)
            _awake(floor, sent.source[after], now)
    return np.sum(sent.left)
