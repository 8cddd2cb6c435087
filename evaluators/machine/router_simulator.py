"""Compiled cycle-level simulator of virtual-channel wormhole routers on a 2-D mesh.

A flit that comes to an empty input channel of its router waits for its route, asks for a virtual channel of the link that
it takes, asks for the switch, and is on the next router's input `forward` cycles later; what it leaves behind is a credit,
which counts where it came from `credit` cycles later. Both allocators are separable and round-robin, iSLIP with one
iteration [mckeown1999]: every output grants to the first asker at or after its pointer, every asker accepts the first grant
at or after its own, and pointers move past what was accepted. An input channel routes a packet when the one before it has
left: packets of one input channel are not pipelined. With speculation, heads ask for a channel and for the switch in one
cycle, and a turn of the switch is lost where no channel was got [becker2009].

A packet goes to one port of one router, along a tree (routers copy its flits to the branches, each as it is free), or is one of
the addends of a sum (routers wait until the flits of all that meet are there, and send one). Links have a number of cycles a
flit, ports one flit a turn.

A cycle is a walk over lists, one kind of work after the other and over all routers: credits, flits that come, heads that have
their route, channels, turns of the switch, flits that go. Only ports at which something can happen are on them: who waits for
a credit, a flit or a free channel costs nothing until it comes. Ports, and channels of a port, are bits of sets.
"""

# mypy: disable-error-code="no-untyped-def,assignment"

import numpy as np

from dse.evaluators.machine.compile_cache import compiled_part, index, inlined_function, lowest, next_set_bit
from dse.evaluators.machine.router_state import ARRIVED, BITS, CORE, CROSSED, FRACTION, HAS, HERE, MASK, SENT, TAIL, WAITS
from dse.evaluators.machine.timing_wheel import (
    channel_record,
    port_number,
    port_record,
    return_credit,
    schedule_route,
    wheel_slot_record,
)


@inlined_function
def _out(net, at):
    return net.out[index(at)]


@inlined_function
def _chain(net, at):
    return net.chain[index(at)]


@inlined_function
def _set(words, place):
    words[index(place >> 6)] |= np.int64(1) << (place & 63)


@inlined_function
def _clear(words, place):
    words[index(place >> 6)] &= ~(np.int64(1) << (place & 63))


@inlined_function
def route_ports(net, r, packet):
    """Ports that a packet takes from a router."""
    to = np.int64(net.target[index(packet)])
    if to < 0:
        return np.int64(net.tree_out[-1 - to, r])
    target_router = to >> 3
    if len(net.table) and target_router != r:
        return 1 << np.int64(net.table[r, target_router])
    across, down = (
        net.router[index(target_router)].col - net.router[index(r)].col,
        net.router[index(target_router)].row - net.router[index(r)].row,
    )
    way = 3 * ((down > 0) - (down < 0)) + (across > 0) - (across < 0) + 4
    return net.ways >> (way << 2) & 15 | (1 if way == 4 else 0) << (to & 7)


@inlined_function
def _branch(net, channel, port):
    """What a packet's branch to a port has."""
    return np.int64(channel_record(net, channel).branches >> port * BITS & MASK)


@inlined_function
def _mark(net, channel, at):
    """A branch that has a channel wants the switch, if it could use it: flits, their addends and room for them are there."""
    port = port_number(net, at)
    branch = _branch(net, channel, port)
    if branch < HAS or port_record(net, at).room >> (branch - HAS) & 1 == 0:
        return
    if channel_record(net, channel).count == 0 or channel_record(net, channel).done >> port & 1:
        return
    if len(net.chain):
        other = np.int64(_chain(net, channel).member)
        while other >= 0:
            if channel_record(net, other).count == 0:
                return
            other = np.int64(_chain(net, other).member)
    _want(net, channel, at)


@inlined_function
def _want(net, channel, at):
    """A channel wants the switch to a port."""
    i = port_number(net, channel >> net.shift)
    port_record(net, at).wants[index(i)] |= 1 << (channel & net.within)
    port_record(net, at).wanted |= 1 << i
    _set(net.turning, at)


@inlined_function
def _rest(net, channel, at):
    """It does no longer."""
    i = port_number(net, channel >> net.shift)
    left = port_record(net, at).wants[index(i)] & ~(1 << (channel & net.within))
    port_record(net, at).wants[index(i)] = left
    if left == 0:
        inputs = port_record(net, at).wanted & ~(1 << i)
        port_record(net, at).wanted = inputs
        if inputs == 0:
            _clear(net.turning, at)


@inlined_function
def _ask(net, first, channel, ports):
    """Request channels of the next links for the packet in front of an input channel."""
    channel_record(net, channel).mask = ports
    i, vc = port_number(net, channel >> net.shift), channel & net.within
    branches = 0
    while ports:
        port = lowest(ports)
        ports &= ports - 1
        branches |= WAITS << port * BITS
        at = first + port
        port_record(net, at).asks[index(i)] |= 1 << vc
        port_record(net, at).askers |= 1 << i
        if port_record(net, at).unused:
            _set(net.asking, at)
    channel_record(net, channel).branches = branches


@compiled_part
def _add(net, r, channel, packet, tree):
    """An addend has come to a router; whether all that meet there have, and so the chain of them can go on."""
    port = port_number(net, channel >> net.shift)
    needed = net.tree_in[tree, r]
    place = -1
    for at in range(net.adding.shape[1]):
        if net.adding[r, at, 0] == packet:
            place = at
            break
        if net.adding[r, at, 0] < 0 and place < 0:
            place = at
    if net.adding[r, place, 0] != packet:
        net.adding[r, place, 0], net.adding[r, place, 1], net.adding[r, place, 2] = packet, 0, -1
    net.adding[r, place, 1] |= 1 << port
    _chain(net, channel).member = net.adding[r, place, 2]
    net.adding[r, place, 2] = channel
    if net.adding[r, place, 1] != needed:
        return False
    net.adding[r, place, 0] = -1
    other = np.int64(channel)
    while other >= 0:
        _chain(net, other).chief = channel
        other = np.int64(_chain(net, other).member)
    return True


@inlined_function
def _begin(net, channel):
    """The head in front of an input channel has its route."""
    r = np.int64(net.router_of[index(channel >> net.shift)])
    packet = np.int64(channel_record(net, channel).flit) >> 2
    to = np.int64(net.target[index(packet)])
    if to >= 0 or net.tree_in[-1 - to, r] == 0 or _add(net, r, channel, packet, -1 - to):
        _ask(net, r * net.ports, channel, route_ports(net, r, packet))


@inlined_function
def _arrive(net, channel, flit, now):
    """A flit comes to an input channel."""
    count = np.int64(channel_record(net, channel).count)
    if count:
        at = channel_record(net, channel).front + count
        net.buffer[index(channel * net.depth + (at if at < net.depth else at - net.depth))] = flit
    else:
        channel_record(net, channel).flit = flit
    channel_record(net, channel).count = count + 1
    if channel_record(net, channel).busy == 0:
        channel_record(net, channel).busy = 1
        schedule_route(net, channel, now + net.route)
    elif count == 0:
        chief = np.int64(_chain(net, channel).chief) if len(net.chain) else channel
        ports = np.int64(channel_record(net, chief).mask)
        first = (chief >> net.shift) - port_number(net, chief >> net.shift)
        while ports:
            _mark(net, chief, first + lowest(ports))
            ports &= ports - 1


@inlined_function
def _leave(net, channel, flit, now):
    """The flit in front of an input channel is gone, a credit may go back, and the next packet is routed; how many are left."""
    count = np.int64(channel_record(net, channel).count) - 1
    channel_record(net, channel).count = count
    if count:
        front = np.int64(channel_record(net, channel).front) + 1
        front = 0 if front == net.depth else front
        channel_record(net, channel).front = front
        channel_record(net, channel).flit = net.buffer[index(channel * net.depth + front)]
    return_credit(net, channel, now)
    if flit & TAIL:
        channel_record(net, channel).mask = 0
        if count:
            schedule_route(net, channel, now + 1 + net.route)
        else:
            channel_record(net, channel).busy = 0
    return count


@inlined_function
def _next_frame(net, now):
    """When a link from die to die takes its next flit: at the first frame after this cycle, frames being no whole cycles."""
    return (((now << FRACTION) // net.frame + 1) * net.frame + (1 << FRACTION) - 1) >> FRACTION


@inlined_function
def _send(net, channel, at, now):
    """A branch that has won the switch sends its flit, unless it has no channel or no room there after all."""
    port = port_number(net, at)
    vc = _branch(net, channel, port) - HAS
    if vc < 0 or port_record(net, at).room >> vc & 1 == 0:
        return
    out = (at << net.shift) + vc
    flit, mask = np.int64(channel_record(net, channel).flit), np.int64(channel_record(net, channel).mask)
    credits = _out(net, out).credits - 1
    _out(net, out).credits = credits
    if credits == 0:
        port_record(net, at).room &= ~(1 << vc)
    width = port_record(net, at).width
    port_record(net, at).free = now + width if width else _next_frame(net, now)
    net.sums[CROSSED] += 1
    if port < CORE:
        slot = now + net.forward + port_record(net, at).far & net.slots
        k = wheel_slot_record(net, slot).comings
        net.coming[index(k)].at, net.coming[index(k)].flit = port_record(net, at).onward + vc, flit
        wheel_slot_record(net, slot).comings = k + 1
    else:
        slot = now + (net.eject if port == CORE else 1) & net.slots  # a memory channel is at its router
        k = wheel_slot_record(net, slot).leavings
        net.leaving[index(k)].at, net.leaving[index(k)].flit = out, flit
        wheel_slot_record(net, slot).leavings = k + 1
    if flit & TAIL:
        port_record(net, at).unused |= 1 << vc
        channel_record(net, channel).branches &= ~(MASK << port * BITS)
        if port_record(net, at).askers:
            _set(net.asking, at)
    if mask == 1 << port and len(net.chain) == 0:
        left = _leave(net, channel, flit, now)
        if flit & TAIL or credits == 0 or left == 0:
            _rest(net, channel, at)
        return
    _rest(net, channel, at)
    done = channel_record(net, channel).done | 1 << port
    channel_record(net, channel).done = done if done != mask else 0
    if done == mask:
        _leave_together(net, channel, flit, now)
        while mask:
            _mark(net, channel, at - port + lowest(mask))
            mask &= mask - 1


@compiled_part
def _leave_together(net, channel, flit, now):
    """A flit that has been sent to all its ports is gone, with those that were added to it."""
    while channel >= 0:
        after = np.int64(-1)
        if len(net.chain):
            after = np.int64(_chain(net, channel).member)
            if flit & TAIL:
                _chain(net, channel).member, _chain(net, channel).chief = -1, channel
        _leave(net, channel, flit, now)
        channel = after


@inlined_function
def _accept(net, channel, at, free):
    """Of channels of a port granted to an asker, it takes the first at or after its pointer, and has it."""
    number, i, mine = port_number(net, at), port_number(net, channel >> net.shift), channel & net.within
    holder, port, accept = (i << net.shift) + mine, number << net.shift, np.int64(channel_record(net, channel).accept)
    vc = next_set_bit(free, (accept - port) * (1 if (accept - 1) >> net.shift == number else 0))
    out = (at << net.shift) + vc
    _out(net, out).grant, _out(net, out).holder = holder + 1, holder
    channel_record(net, channel).accept = port + vc + 1
    channel_record(net, channel).branches += (HAS + vc - WAITS) << number * BITS
    unused = port_record(net, at).unused & ~(1 << vc)
    port_record(net, at).unused = unused
    left = port_record(net, at).asks[index(i)] & ~(1 << mine)
    port_record(net, at).asks[index(i)] = left
    if left == 0:
        port_record(net, at).askers &= ~(1 << i)
    if unused == 0 or port_record(net, at).askers == 0:
        _clear(net.asking, at)
    if port_record(net, at).room >> vc & 1:
        _want(net, channel, at)


@inlined_function
def _asker(net, at, first, place):
    """First request for a port, at or after a place among the router's input channels, cyclically."""
    i = place >> net.shift
    left = np.int64(port_record(net, at).asks[index(i)]) >> (place & net.within) << (place & net.within)
    if left == 0:
        i = next_set_bit(np.int64(port_record(net, at).askers), i + 1)
        left = np.int64(port_record(net, at).asks[index(i)])
    return (first + i << net.shift) + lowest(left)


@inlined_function
def _goes_round(net, channel):
    """Whether the packet in front of an input channel goes round what is broken."""
    to = np.int64(net.target[index(np.int64(channel_record(net, channel).flit) >> 2)])
    return net.tree_around[-1 - to] if to < 0 else net.around[np.int64(net.router_of[channel >> net.shift]), to >> 3]


@compiled_part
def _offer_apart(net, at):
    """The same where packets that go round have channels of their own: each channel is for one kind of them."""
    free, count = np.int64(port_record(net, at).unused), net.ports << net.shift
    first = at - port_number(net, at)
    while free:
        vc = lowest(free)
        free &= free - 1
        place = np.int64(_out(net, (at << net.shift) + vc).grant)
        for k in range(count):
            current_place = place + k if place + k < count else place + k - count
            i, mine = current_place >> net.shift, current_place & net.within
            if np.int64(port_record(net, at).asks[index(i)]) >> mine & 1:
                channel = (first + i << net.shift) + mine
                if _goes_round(net, channel) == (vc < net.apart):
                    _accept(net, channel, at, np.int64(1) << vc)
                    break


@inlined_function
def _offer(net, at):
    """Offer a port's unused channels to its requests."""
    if net.apart:
        _offer_apart(net, at)
        return
    free, askers = np.int64(port_record(net, at).unused), np.int64(port_record(net, at).askers)
    first = at - port_number(net, at)
    asks = np.int64(port_record(net, at).asks[index(lowest(askers))])
    if askers & (askers - 1) == 0 and asks & (asks - 1) == 0:
        _accept(net, (first + lowest(askers) << net.shift) + lowest(asks), at, free)
        return
    left = free
    while left:
        vc = lowest(left)
        left &= left - 1
        net.offers[index(vc)] = _asker(net, at, first, np.int64(_out(net, (at << net.shift) + vc).grant))
    while free:
        channel, offered, left = np.int64(net.offers[index(lowest(free))]), 0, free
        while left:
            vc = lowest(left)
            left &= left - 1
            if net.offers[index(vc)] == channel:
                offered |= 1 << vc
        free &= ~offered
        _accept(net, channel, at, offered)


@inlined_function
def _propose(net, at, count, now):
    """A port offers a turn of the switch to one of the inputs that want it, in `proposals`; how many inputs have offers."""
    wanted = np.int64(port_record(net, at).wanted)
    if net.speculative and port_record(net, at).unused & port_record(net, at).room:
        wanted |= np.int64(port_record(net, at).askers)
    if wanted == 0 or port_record(net, at).free > now:
        return count
    port = port_number(net, at)
    place = at - port + next_set_bit(wanted, np.int64(port_record(net, at).grant))
    offers = net.offered[index(place)]
    net.offered[index(place)] = offers | 1 << port
    net.proposals[index(count)] = place
    return count + (1 if offers == 0 else 0)


@inlined_function
def _candidate(net, at, i, turn):
    """Of the channels of an input that want the switch to a port, the next one; those that have no channel yet come last."""
    wants = np.int64(port_record(net, at).wants[index(i)])
    return next_set_bit(wants if wants else np.int64(port_record(net, at).asks[index(i)]), turn)


@inlined_function
def _choose(net, place, count):
    """An input takes one of the turns that it is offered, in `won`; how many have one."""
    offers, i, turn = np.int64(net.offered[index(place)]), port_number(net, place), np.int64(port_record(net, place).turn)
    net.offered[index(place)] = 0
    port, first = next_set_bit(offers, np.int64(port_record(net, place).accept)), place - i
    vc = _candidate(net, first + port, i, turn)
    port_record(net, place).accept, port_record(net, place).turn, port_record(net, first + port).grant = port + 1, vc + 1, i + 1
    channel = (place << net.shift) + vc
    net.won[index(count)].channel, net.won[index(count)].at = channel, first + port
    count += 1
    offers &= ~(1 << port)
    if offers == 0:
        return count
    offers &= np.int64(channel_record(net, channel).mask)
    while offers:  # copies of a flit leave together
        other = first + lowest(offers)
        offers &= offers - 1
        if _candidate(net, other, i, turn) == vc:
            port_record(net, other).grant = i + 1
            net.won[index(count)].channel, net.won[index(count)].at = channel, other
            count += 1
    return count


@inlined_function
def _credit(net, out):
    """A credit comes back to an output channel, or to a core's."""
    credits = _out(net, out).credits
    _out(net, out).credits = credits + 1
    if credits == 0 and out < net.channels:
        at, vc = out >> net.shift, out & net.within
        port_record(net, at).room |= 1 << vc
        if port_record(net, at).unused >> vc & 1 == 0:
            _mark(net, (at - port_number(net, at) << net.shift) + _out(net, out).holder, at)


@inlined_function
def _come(net, slot, now):
    """Flits come to input channels and to cores, whose credits go back."""
    k, last = slot * net.at_once, np.int64(wheel_slot_record(net, slot).comings)
    wheel_slot_record(net, slot).comings = k
    while k < last:
        _arrive(net, np.int64(net.coming[index(k)].at), np.int64(net.coming[index(k)].flit), now)
        k += 1
    k, last = slot * net.at_most, np.int64(wheel_slot_record(net, slot).leavings)
    wheel_slot_record(net, slot).leavings = k
    back = now + net.credit & net.slots
    first, credit_count = np.int64(wheel_slot_record(net, back).returning), 0
    while k < last:
        net.ejected[index(credit_count)].at, net.ejected[index(credit_count)].flit = (
            net.leaving[index(k)].at,
            net.leaving[index(k)].flit,
        )
        net.credits_back[index(first + credit_count)] = net.leaving[index(k)].at
        credit_count += 1
        k += 1
    wheel_slot_record(net, back).returning = first + credit_count
    net.sums[HERE] = credit_count
    net.sums[ARRIVED] += credit_count


@inlined_function
def _allocate(net):
    """Allocate channels to the requests for them."""
    word = 0
    while word < len(net.asking):
        left = net.asking[index(word)]
        while left:
            _offer(net, (word << 6) + lowest(left))
            left &= left - 1
        word += 1


@inlined_function
def _switch(net, now):
    """Allocate turns of the switch, into `won`; returns their number."""
    count, word = 0, 0
    while word < len(net.turning):
        left = net.turning[index(word)]
        if net.speculative:
            left |= net.asking[index(word)]
        while left:
            count = _propose(net, (word << 6) + lowest(left), count, now)
            left &= left - 1
        word += 1
    won, k = 0, 0
    while k < count:
        won = _choose(net, np.int64(net.proposals[index(k)]), won)
        k += 1
    return won


@compiled_part
def advance_routers(net, now):
    """Advance all routers by a cycle; flits that reach cores and channels are in `ejected`."""
    slot = now & net.slots
    k, last = slot * net.at_once, np.int64(wheel_slot_record(net, slot).returning)
    wheel_slot_record(net, slot).returning = k
    while k < last:
        _credit(net, np.int64(net.credits_back[index(k)]))
        k += 1
    _come(net, slot, now)
    k, last = slot * net.channels, np.int64(wheel_slot_record(net, slot).routings)
    wheel_slot_record(net, slot).routings = k
    while k < last:
        _begin(net, np.int64(net.routing[index(k)]))
        k += 1
    won = _switch(net, now)  # sees who had a channel before, and what is sent frees none before they are allocated
    _allocate(net)
    k = 0
    while k < won:
        _send(net, np.int64(net.won[index(k)].channel), np.int64(net.won[index(k)].at), now)
        k += 1


@inlined_function
def inject_flit(net, r, port, vc, flit, now):
    """Send a flit from a core or memory channel into its router."""
    source = local_channel(net, r, port) + vc
    _out(net, source).credits -= 1
    _out(net, source).used = 0 if flit & TAIL else 1
    slot = now + (net.inject if port == CORE else 0) & net.slots
    k = wheel_slot_record(net, slot).comings
    net.coming[index(k)].at = (r * net.ports + port << net.shift) + vc
    net.coming[index(k)].flit = flit
    wheel_slot_record(net, slot).comings = k + 1
    net.sums[SENT] += 1


@inlined_function
def local_channel(net, r, port):
    """First of the channels in which a core or memory channel tracks its router's channels."""
    return net.channels + (r * (net.ports - CORE) + port - CORE << net.shift)


@inlined_function
def choose_channel(net, source, last):
    """Next free channel with room after the one that a source used last; -1 if there is none."""
    k = 1
    while k <= net.vcs:
        vc = last + k
        vc -= net.vcs if vc >= net.vcs else 0
        if _out(net, source + vc).used == 0 and _out(net, source + vc).credits > 0:
            return vc
        k += 1
    return -1
