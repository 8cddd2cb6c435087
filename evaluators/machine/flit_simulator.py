"""Compiled flit-level simulator of packets on the links of any network.

Crossbars join as many links as meet; routes are given.

A packet goes over the links of its message's way, from the port of its source to that of its target, which are links too. It
asks for a virtual channel of each, is given one that is free as its turn comes, and has it until its last flit has gone;
of a port that sends, until that has left the port, so that there nobody is behind another. A link takes turns between its
channels, packet after packet as long as there is a flit and a credit; an end of a link gives one flit a cycle to the links that
meet there, whatever number they are. Where what is there has memory for all that comes, a flit's credit goes back as it comes,
and no packet waits behind another; else as it goes on, and packets wait in their channel.

Time is in cycles: all that happens in one comes before any link chooses.
"""

# mypy: disable-error-code="no-untyped-def"

from typing import NamedTuple

import numpy as np

from dse.evaluators.machine.compile_cache import compiled_loop, compiled_part, inlined_function
from dse.evaluators.machine.event_heap import pop_event, push_event
from dse.space.array_math import Array

VCS = 16
"""Virtual channels of a link, at most."""

FLITS_PER_WORD = 4
"""Flits of a packet, at most."""

ENDLESS = 1 << 60
"""Credits of a channel without a limit."""

COME, CREDIT, FREE = range(3)
"""What happens: a flit is at the end of a link, a credit is back, a link may send again."""


class FlitLinks(NamedTuple):
    """State of links: those of the network first, then a sending and a receiving port of each die.

    Attributes:
        width: cycles that a flit takes, shape (links,).
        hop: cycles until it is at the end, shape (links,).
        channels: of each kind of packet that a link has: those that have not crossed where a line is joined, and the others.
        credits: flits that each channel may still send, shape (links x VCS,).
        begins, ends: whether it is a port that sends, or one that receives, shape (links,).
        held: whether a credit goes back as a flit goes on, not as it comes.
        free, turn, pending: when a link may send, the channel whose turn it is, and whether it will look again, shape (links,).
        used: cycle in which the end of a link gave a flit last, shape (links,).
        holder: of each channel of a link, where the packet that has it comes from; -1 for none, shape (links x VCS,).
        given: channel of each kind that is given away next, shape (links, 2).
        waiting: first and last that wait for a channel, by kind, shape (links, 2, 2).
        marked, touched: cycle in which a link was to choose last, and the links that do now.
        when, what: a heap of events.
        counts: events in the heap, links that choose, shape (2,).
    """

    width: Array
    hop: Array
    channels: Array
    credits: Array
    begins: Array
    ends: Array
    held: bool
    free: Array
    turn: Array
    pending: Array
    used: Array
    holder: Array
    given: Array
    waiting: Array
    marked: Array
    touched: Array
    when: Array
    what: Array
    counts: Array


class FlitPackets(NamedTuple):
    """Packets, and the places of their flits on links.

    Attributes:
        first, over, kind: where the way of each message begins, its links, and the kind of channel that it has on each.
        message, size, own: of each packet; first of the places that it has for itself: where it begins and after each link.
        begin, packets: where the packets of each message begin in a list of them, shape (messages + 1,).
        left, then, done: packets of each message that have not come, who goes after it, and when it was complete.
        waits: whether a message waits for another one.
        at, channel: links of its way that a flit has crossed, and the channel of the last of them, shape (packets x PACKED,).
        next: who is behind a flit.
        front, back: flits of each place, -1 for none.
        behind: who waits after each place.
        onward: channel that the packet in front of a place has; -1 for none.
    """

    first: Array
    over: Array
    kind: Array
    message: Array
    size: Array
    own: Array
    begin: Array
    packets: Array
    left: Array
    then: Array
    done: Array
    waits: Array
    at: Array
    channel: Array
    next: Array
    front: Array
    back: Array
    behind: Array
    onward: Array


@inlined_function
def _give_back(links, channel, now):
    """The credit of a flit comes back over its link, where they are counted."""
    link = channel // VCS
    if links.credits[channel] < ENDLESS // 2:
        push_event(links, now + links.hop[link], channel << 2 | CREDIT)


@inlined_function
def _touch(links, link, now):
    """A link is to choose in this cycle."""
    if links.marked[link] != now:
        links.marked[link] = now
        links.touched[links.counts[1]] = link
        links.counts[1] += 1


@inlined_function
def _ask(links, flits, place, now):
    """Request a channel of the next link for the packet in front of a place."""
    flit = flits.front[place]
    crossing = flits.first[flits.message[flit // FLITS_PER_WORD]] + flits.at[flit]
    link, kind = flits.over[crossing], flits.kind[crossing]
    flits.behind[place] = -1
    if links.waiting[link, kind, 0] < 0:
        links.waiting[link, kind, 0] = place
    else:
        flits.behind[links.waiting[link, kind, 1]] = place
    links.waiting[link, kind, 1] = place
    _touch(links, link, now)


@inlined_function
def _start(links, flits, packet, now):
    """All flits of a packet are where it begins."""
    place, flit = flits.own[packet], packet * FLITS_PER_WORD
    flits.front[place], flits.back[place] = flit, flit + flits.size[packet] - 1
    for k in range(flit, flit + flits.size[packet]):
        flits.next[k] = k + 1 if k < flits.back[place] else -1
    _ask(links, flits, place, now)


@inlined_function
def _come(links, flits, flit, now):
    """A flit is at the end of a link: of its target's port, or before the next link."""
    channel, packet = flits.channel[flit], flit // FLITS_PER_WORD
    link = channel // VCS
    if links.ends[link]:
        message = flits.message[packet]
        if flit % FLITS_PER_WORD == flits.size[packet] - 1:
            flits.left[message] -= 1
            if flits.left[message] == 0:
                flits.done[message] = now
                after = flits.then[message]
                if after >= 0:
                    for k in range(flits.begin[after], flits.begin[after + 1]):
                        _start(links, flits, flits.packets[k], now)
        return
    if not links.held:
        _give_back(links, channel, now)
    place = channel if links.held else flits.own[packet] + flits.at[flit]
    flits.next[flit] = -1
    if flits.front[place] >= 0:
        flits.next[flits.back[place]] = flit
        flits.back[place] = flit
        return
    flits.front[place], flits.back[place] = flit, flit
    if flit % FLITS_PER_WORD == 0:
        _ask(links, flits, place, now)
    elif flits.onward[place] >= 0:
        _touch(links, flits.onward[place] // VCS, now)


@inlined_function
def _give(links, flits, link):
    """Give free channels of a link to waiting packets, first come first served."""
    first = 0
    for kind in range(2):
        many, vc = links.channels[link, kind], links.given[link, kind]
        for _ in range(many):
            place, channel = links.waiting[link, kind, 0], link * VCS + first + vc
            if place < 0:
                break
            vc = vc + 1 if vc + 1 < many else 0
            if links.holder[channel] < 0:
                links.holder[channel], flits.onward[place] = place, channel
                links.waiting[link, kind, 0] = flits.behind[place]
                links.given[link, kind] = vc
        first += many


@compiled_part
def _go(links, flits, link, now):
    """A link gives its channels away, and sends a flit if it may; it looks again when it can."""
    _give(links, flits, link)
    if links.free[link] > now:
        if not links.pending[link]:
            links.pending[link] = 1
            push_event(links, links.free[link], link << 2 | FREE)
        return
    soon, count = False, links.channels[link, 0] + links.channels[link, 1]
    for k in range(count):
        vc = links.turn[link] + k
        vc = vc - count if vc >= count else vc
        channel = link * VCS + vc
        place = links.holder[channel]
        if place < 0 or flits.front[place] < 0 or links.credits[channel] == 0:
            continue
        flit = flits.front[place]
        before, inside = flits.channel[flit], flits.at[flit] > 0
        if inside and links.used[before // VCS] == now:
            soon = True
            continue
        flits.front[place] = flits.next[flit]
        packet = flit // FLITS_PER_WORD
        tail = flit % FLITS_PER_WORD == flits.size[packet] - 1
        links.turn[link] = vc if not tail else vc + 1 if vc + 1 < count else 0
        links.credits[channel] -= 1
        links.free[link] = now + links.width[link]
        flits.channel[flit] = channel
        flits.at[flit] += 1
        push_event(links, now + links.hop[link], flit << 2 | COME)
        if inside:
            links.used[before // VCS] = now
            if links.held:
                _give_back(links, before, now)
        if tail:
            flits.onward[place] = -1
            if not links.begins[link]:
                links.holder[channel] = -1
            if inside and links.begins[before // VCS]:
                links.holder[before] = -1
                _touch(links, before // VCS, now)
            if flits.front[place] >= 0:
                _ask(links, flits, place, now)
        if not links.pending[link]:
            links.pending[link] = 1
            push_event(links, links.free[link], link << 2 | FREE)
        return
    if soon and not links.pending[link]:
        links.pending[link] = 1
        push_event(links, now + 1, link << 2 | FREE)


@compiled_loop
def send_packets(links, flits):
    """Send packets until nothing can move; messages that wait for one another keep a rest in `left`."""
    now = np.int64(0)
    for packet in range(len(flits.message)):
        if not flits.waits[flits.message[packet]]:
            _start(links, flits, packet, now)
    while True:
        k = 0
        while k < links.counts[1]:
            link = links.touched[k]
            links.marked[link] = -1  # who is touched again in this cycle chooses again
            _go(links, flits, link, now)
            k += 1
        links.counts[1] = 0
        if links.counts[0] == 0:
            break
        now = links.when[0]
        while links.counts[0] and links.when[0] == now:
            what = links.what[0]
            pop_event(links)
            kind, given_link = what & 3, what >> 2
            if kind == COME:
                _come(links, flits, given_link, now)
            elif kind == CREDIT:
                links.credits[given_link] += 1
                _touch(links, given_link // VCS, now)
            else:
                links.pending[given_link] = 0
                _touch(links, given_link, now)
