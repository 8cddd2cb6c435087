"""What is due at a later cycle of routers, in lists of a circle of cycles, compiled: routes of packets, and credits."""

# mypy: disable-error-code="no-untyped-def,assignment"

import numpy as np

from dse.evaluators.machine.compile_cache import index, piece
from dse.evaluators.machine.net import CORE


@piece
def port_at(net, at):
    """A record of `net.PORT`."""
    return net.port[index(at)]


@piece
def channel_at(net, at):
    """A record of `net.CHANNEL`."""
    return net.channel[index(at)]


@piece
def slot_at(net, at):
    """A record of `net.SLOT`."""
    return net.slot[index(at)]


@piece
def number_of(net, at):
    """Of a port, in its router."""
    return np.int64(net.number[index(at)])


@piece
def later(net, channel, cycle):
    """The packet in front of an input channel has its route at a cycle."""
    k = slot_at(net, cycle & net.slots).routings
    net.routing[index(k)] = channel
    slot_at(net, cycle & net.slots).routings = k + 1


@piece
def give_back(net, channel, now):
    """A credit for a flit of an input channel goes to where that came from."""
    at = channel >> net.shift
    slot = now + (net.credit if number_of(net, at) < CORE else net.local) & net.slots
    k = slot_at(net, slot).returning
    net.credits_back[index(k)] = port_at(net, at).back + (channel & net.within)
    slot_at(net, slot).returning = k + 1
