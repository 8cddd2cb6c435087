"""Virtual-channel wormhole routers on a 2-D mesh, cycle by cycle, compiled.

A flit that comes to an empty input channel of its router waits for its route, asks for a virtual channel of the link that
it takes, asks for the switch, and is on the next router's input `forward` cycles later; what it leaves behind is a credit,
which counts where it came from `credit` cycles later. Both allocators are separable and round-robin, iSLIP with one
iteration [mckeown1999]: every output grants to the first asker at or after its pointer, every asker accepts the first grant
at or after its own, and pointers move past what was accepted. An input channel routes a packet when the one before it has
left: packets of one input channel are not pipelined. With speculation, heads ask for a channel and for the switch in one
cycle, and a turn of the switch is lost where no channel was got [becker2009].

A packet goes to one port of one router, along a tree (routers copy its flits to the branches, each as it is free), or is one of
the addends of a sum (routers wait until the flits of all that meet are there, and send one). A router that holds nothing is not
looked at. Links have a number of cycles a flit, ports one flit a turn.
"""

# mypy: disable-error-code="no-untyped-def,assignment"

import numpy as np

from evaluators.machine.kept import part, piece
from evaluators.machine.net import ALIVE, ARRIVED, CORE, CROSSED, HAS, HERE, SENT, TAIL, WAITS


@piece
def _wake(net, r):
    if net.router[r].living == 0:
        net.router[r].living = 1
        net.alive[net.sums[ALIVE]] = r
        net.sums[ALIVE] += 1


@piece
def towards(net, r, packet):
    """Ports that a packet takes from a router."""
    to = net.target[packet]
    if to < 0:
        return np.int64(net.tree_out[-1 - to, r])
    there = to >> 3
    if len(net.table) and there != r:
        return 1 << np.int64(net.table[r, there])
    across, down = net.router[there].col - net.router[r].col, net.router[there].row - net.router[r].row
    if across != 0 and (down == 0 or net.row_first == 0):
        return 1 if across > 0 else 2
    if down != 0:
        return 4 if down > 0 else 8
    return 1 << (to & 7)


@piece
def _wants(net, r, entry):
    """A branch wants the switch."""
    net.turns[r * net.most + net.router[r].turning] = entry
    net.router[r].turning += 1


@piece
def _ask(net, r, channel, ports):
    """The packet in front of an input channel asks for channels of the links that it takes."""
    net.channel[channel].mask = ports
    here = (channel - r * net.ports * net.vcs) << 3
    while ports:
        port = net.first[ports << 3]
        ports &= ports - 1
        net.branch[(channel << 3) + port] = WAITS
        net.asks[r * net.most + net.router[r].asking] = here + port
        net.router[r].asking += 1
        if net.speculative:
            _wants(net, r, here + port)
    _wake(net, r)


@part
def _add(net, r, channel, packet, tree):
    """An addend has come to a router; whether all that meet there have, and so the chain of them can go on."""
    port = net.place[channel - r * net.ports * net.vcs].port
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
    net.channel[channel].member = net.adding[r, place, 2]
    net.adding[r, place, 2] = channel
    if net.adding[r, place, 1] != needed:
        return False
    net.adding[r, place, 0] = -1
    return True


@piece
def _begin(net, channel):
    """The head in front of an input channel has its route."""
    r = np.int64(net.router_of[channel])
    packet = np.int64(net.buffer[channel * net.depth + net.channel[channel].front]) >> 2
    to = net.target[packet]
    if to >= 0 or net.tree_in[-1 - to, r] == 0 or _add(net, r, channel, packet, -1 - to):
        _ask(net, r, channel, towards(net, r, packet))


@piece
def _later(net, channel, cycle):
    """The packet in front of an input channel has its route at a cycle."""
    slot = cycle & net.slots
    net.routing[slot * net.channels + net.slot[slot].routings] = channel
    net.slot[slot].routings += 1


@piece
def _arrive(net, channel, flit, now):
    """A flit comes to an input channel."""
    count = np.int64(net.channel[channel].count)
    at = net.channel[channel].front + count
    if at >= net.depth:
        at -= net.depth
    net.buffer[channel * net.depth + at] = flit
    net.channel[channel].count = count + 1
    if net.channel[channel].busy == 0:
        net.channel[channel].busy = 1
        _later(net, channel, now + net.route)
    elif count == 0:
        r = np.int64(net.router_of[channel])
        here = (channel - r * net.ports * net.vcs) << 3
        ports = np.int64(net.channel[channel].mask)
        while ports:
            port = net.first[ports << 3]
            ports &= ports - 1
            if net.branch[(channel << 3) + port] >= HAS:
                _wants(net, r, here + port)
                _wake(net, r)


@piece
def _leave(net, r, base, channel, flit, now):
    """The flit in front of an input channel, and those added to it, are gone: credits go back, the next packets are routed."""
    while channel >= 0:
        front = net.channel[channel].front + 1
        net.channel[channel].front = 0 if front == net.depth else front
        count = net.channel[channel].count - 1
        net.channel[channel].count = count
        port = net.place[channel - base].port
        slot = (now + (net.credit if port < CORE else net.local)) & net.slots
        net.credits_back[slot * net.at_once + net.slot[slot].returning] = (
            net.port[(r << 3) + port].back + net.place[channel - base].vc
        )
        net.slot[slot].returning += 1
        after = np.int64(net.channel[channel].member)
        if flit & TAIL:
            net.channel[channel].mask = 0
            net.channel[channel].member = -1
            if count:
                _later(net, channel, now + 1 + net.route)
            else:
                net.channel[channel].busy = 0
        channel = after


@piece
def _send(net, r, base, here, port, now):
    """The branch that has won the switch sends its flit; whether it wants the switch no longer."""
    channel = base + here
    place = (channel << 3) + port
    vc = np.int64(net.branch[place]) - HAS
    out = base + port * net.vcs + vc
    flit = np.int64(net.buffer[channel * net.depth + net.channel[channel].front])
    net.out[out].credits -= 1
    net.port[(r << 3) + port].free = now + net.port[(r << 3) + port].width
    net.sums[CROSSED] += 1
    onward = np.int64(net.port[(r << 3) + port].onward) + vc
    slot = (now + (net.forward if port < CORE else net.eject)) & net.slots
    k = slot * net.at_once + net.slot[slot].comings
    net.coming[k].at = onward
    net.coming[k].flit = flit
    net.slot[slot].comings += 1
    if flit & TAIL:
        net.out[out].used = 0
        net.branch[place] = 0
    done = net.channel[channel].done | 1 << port
    if done == net.channel[channel].mask:
        done = 0
        _leave(net, r, base, channel, flit, now)
    net.channel[channel].done = done
    return flit & TAIL != 0 or net.channel[channel].count == 0


@piece
def _accept(net, base, here, port, j, got, single):
    """Of the channels granted to an asker, the first at or after its pointer; how many have got one."""
    offset = net.channel[base + here].accept - port * net.vcs
    vc = offset if 0 <= offset < net.vcs else 0
    left = net.vcs
    while left:
        out = base + port * net.vcs + vc
        if (net.out[out].used == 0) if single else (net.offers[vc] == j):
            everyone = net.ports * net.vcs
            net.out[out].grant = here + 1 if here + 1 < everyone else 0
            after = port * net.vcs + vc + 1
            net.channel[base + here].accept = after if after < everyone else 0
            net.granted[got].place, net.granted[got].vc = j, vc
            return got + 1
        vc = vc + 1 if vc + 1 < net.vcs else 0
        left -= 1
    return got


@piece
def _allocate(net, r, base):
    """Channels to those who ask for one: pairs of an entry's place and a channel, in `granted`; how many."""
    count, asks = np.int64(net.router[r].asking), r * net.most
    if count == 1:
        entry = np.int64(net.asks[asks])
        return _accept(net, base, entry >> 3, entry & 7, 0, 0, True)
    ports, got, j = 0, 0, 0
    while j < count:
        ports |= 1 << np.int64(net.asks[asks + j] & 7)
        j += 1
    while ports:
        port = np.int64(net.first[ports << 3])
        ports &= ports - 1
        vc = 0
        while vc < net.vcs:
            out = base + port * net.vcs + vc
            net.offers[vc] = -1
            nearest = 0 if net.out[out].used else net.ports * net.vcs
            j = 0
            while j < count:
                entry = np.int64(net.asks[asks + j])
                if entry & 7 == port:
                    far = (entry >> 3) - net.out[out].grant
                    far += net.ports * net.vcs if far < 0 else 0
                    if far < nearest:
                        nearest = far
                        net.offers[vc] = j
                j += 1
            vc += 1
        j = 0
        while j < count:
            entry = np.int64(net.asks[asks + j])
            if entry & 7 == port:
                got = _accept(net, base, entry >> 3, port, j, got, False)
            j += 1
    return got


@piece
def _may_turn(net, r, base, here, port, now):
    """Whether a branch may ask for the switch: 2 with a channel, 1 without one yet, 0 not at all."""
    if net.port[(r << 3) + port].free > now:
        return 0
    channel = base + here
    branch = np.int64(net.branch[(channel << 3) + port])
    if branch >= HAS:
        if net.out[base + port * net.vcs + branch - HAS].credits <= 0 or net.channel[channel].done >> port & 1:
            return 0
        other = net.channel[channel].member
        while other >= 0:
            if net.channel[other].count == 0:
                return 0
            other = net.channel[other].member
        return 2
    out = base + port * net.vcs
    while out < base + port * net.vcs + net.vcs:
        if net.out[out].used == 0 and net.out[out].credits > 0:
            return 1
        out += 1
    return 0


@piece
def _turn(net, r, i, here, port):
    """An input port has its turn: pointers move past it, past its channel and past the port that it goes to."""
    net.port[(r << 3) + i].accept = port + 1 if port + 1 < net.ports else 0
    vc = net.place[here].vc + 1
    net.port[(r << 3) + i].turn = vc if vc < net.vcs else 0
    net.port[(r << 3) + port].grant = i + 1 if i + 1 < net.ports else 0


@piece
def _switch(net, r, base, now):
    """Turns of the switch to those who want one: their entries in `won`; how many."""
    count, turns = np.int64(net.router[r].turning), r * net.most
    if count == 1:
        entry = np.int64(net.turns[turns])
        here, port = entry >> 3, entry & 7
        if _may_turn(net, r, base, here, port, now) == 0:
            return 0
        _turn(net, r, np.int64(net.place[here].port), here, port)
        net.won[0] = entry
        return 1
    outs, got, j = 0, 0, 0
    while j < count:
        entry = np.int64(net.turns[turns + j])
        j += 1
        here, port = entry >> 3, entry & 7
        may = _may_turn(net, r, base, here, port, now)
        if may == 0:
            continue
        i = np.int64(net.place[here].port)
        if outs >> port & 1 == 0:
            outs |= 1 << port
            net.wanted[port] = 0
        best = (i << 3) + port
        if net.wanted[port] >> i & 1:
            other = np.int64(net.best[best])
            sure = (other & 1) + 1
            if may < sure:
                continue
            if may == sure:
                turn = net.port[(r << 3) + i].turn
                mine, theirs = net.place[here].vc - turn, net.place[other >> 4].vc - turn
                if mine + (net.vcs if mine < 0 else 0) > theirs + (net.vcs if theirs < 0 else 0):
                    continue
        net.wanted[port] |= 1 << i
        net.best[best] = entry << 1 | (may - 1)
    ins = 0
    while outs:
        port = np.int64(net.first[outs << 3])
        outs &= outs - 1
        i = np.int64(net.first[(np.int64(net.wanted[port]) << 3) + net.port[(r << 3) + port].grant])
        if ins >> i & 1 == 0:
            ins |= 1 << i
            net.offered[i] = 0
        net.offered[i] |= 1 << port
    while ins:
        i = np.int64(net.first[ins << 3])
        ins &= ins - 1
        offered = np.int64(net.offered[i])
        port = np.int64(net.first[(offered << 3) + net.port[(r << 3) + i].accept])
        chosen = np.int64(net.best[(i << 3) + port]) >> 1
        _turn(net, r, i, chosen >> 3, port)
        net.won[got] = chosen
        got += 1
        offered &= np.int64(net.channel[base + (chosen >> 3)].mask) & ~(1 << port)
        while offered:  # copies of a flit leave together
            other = np.int64(net.first[offered << 3])
            offered &= offered - 1
            if np.int64(net.best[(i << 3) + other]) >> 4 == chosen >> 3:
                net.port[(r << 3) + other].grant = i + 1 if i + 1 < net.ports else 0
                net.won[got] = np.int64(net.best[(i << 3) + other]) >> 1
                got += 1
    return got


@piece
def _router(net, r, now):
    """A cycle of one router that holds something."""
    base, asks = r * net.ports * net.vcs, r * net.most
    granted = _allocate(net, r, base) if net.router[r].asking else 0
    won = _switch(net, r, base, now) if net.router[r].turning else 0
    k = 0
    while k < granted:
        entry, vc = np.int64(net.asks[asks + net.granted[k].place]), np.int64(net.granted[k].vc)
        port = entry & 7
        net.out[base + port * net.vcs + vc].used = 1
        net.branch[((base + (entry >> 3)) << 3) + port] = HAS + vc
        k += 1
    k, gone = 0, False
    while k < won:
        entry = np.int64(net.won[k])
        here, port = entry >> 3, entry & 7
        branch = np.int64(net.branch[((base + here) << 3) + port])
        if branch >= HAS and net.out[base + port * net.vcs + branch - HAS].credits > 0:
            gone |= _send(net, r, base, here, port, now)
        k += 1
    if gone:
        j, left, turning = 0, 0, np.int64(net.router[r].turning)
        while j < turning:
            entry = np.int64(net.turns[asks + j])
            channel = base + (entry >> 3)
            if net.branch[(channel << 3) + (entry & 7)] and net.channel[channel].count:
                net.turns[asks + left] = entry
                left += 1
            j += 1
        net.router[r].turning = left
    if granted:
        j, left, asking = 0, 0, np.int64(net.router[r].asking)
        while j < asking:
            entry = np.int64(net.asks[asks + j])
            if net.branch[((base + (entry >> 3)) << 3) + (entry & 7)] == WAITS:
                net.asks[asks + left] = entry
                left += 1
            elif net.speculative == 0:
                _wants(net, r, entry)
            j += 1
        net.router[r].asking = left


@part
def step(net, now):
    """A cycle of all routers; what comes to cores and channels is in `ejected`."""
    slot = now & net.slots
    first, k, count = slot * net.at_once, 0, np.int64(net.slot[slot].returning)
    while k < count:
        net.out[net.credits_back[first + k]].credits += 1
        k += 1
    net.slot[slot].returning = 0
    here, k, count = 0, 0, np.int64(net.slot[slot].comings)
    while k < count:
        at, flit = np.int64(net.coming[first + k].at), np.int64(net.coming[first + k].flit)
        k += 1
        if at < net.channels:
            _arrive(net, at, flit, now)
            continue
        net.ejected[here].at, net.ejected[here].flit = at - net.channels, flit
        here += 1
        back = (now + net.credit) & net.slots
        net.credits_back[back * net.at_once + net.slot[back].returning] = at - net.channels
        net.slot[back].returning += 1
    net.slot[slot].comings = 0
    net.sums[HERE] = here
    net.sums[ARRIVED] += here
    k, count = 0, np.int64(net.slot[slot].routings)
    while k < count:
        _begin(net, np.int64(net.routing[slot * net.channels + k]))
        k += 1
    net.slot[slot].routings = 0
    left, k, count = 0, 0, net.sums[ALIVE]
    while k < count:
        r = np.int64(net.alive[k])
        _router(net, r, now)
        if net.router[r].asking or net.router[r].turning:
            net.alive[left] = r
            left += 1
        else:
            net.router[r].living = 0
        k += 1
    net.sums[ALIVE] = left


@piece
def inject(net, r, port, vc, flit, now):
    """A core or memory channel sends a flit."""
    source = own(net, r, port) + vc
    net.out[source].credits -= 1
    net.out[source].used = 0 if flit & TAIL else 1
    slot = (now + (net.inject if port == CORE else 0)) & net.slots
    k = slot * net.at_once + net.slot[slot].comings
    net.coming[k].at = (r * net.ports + port) * net.vcs + vc
    net.coming[k].flit = flit
    net.slot[slot].comings += 1
    net.sums[SENT] += 1


@piece
def own(net, r, port):
    """The first of the channels in which a core or memory channel keeps what it knows of its router's."""
    return net.channels + (r * (net.ports - CORE) + port - CORE) * net.vcs


@piece
def choose(net, source, last):
    """The next free channel after the one that a source used last, with room; -1 where there is none."""
    k = 1
    while k <= net.vcs:
        vc = last + k
        vc -= net.vcs if vc >= net.vcs else 0
        if net.out[source + vc].used == 0 and net.out[source + vc].credits > 0:
            return vc
        k += 1
    return -1
