"""What is due at a later cycle of routers, in lists of a circle of cycles, compiled: routes of packets, and credits."""

# mypy: disable-error-code="no-untyped-def,assignment"

import numpy as np

from dse.evaluators.machine.compile_cache import index, inlined_function
from dse.evaluators.machine.router_state import CORE


@inlined_function
def port_record(net, at):
    """A record of `net.PORT`."""
    return net.port[index(at)]


@inlined_function
def channel_record(net, at):
    """A record of `net.CHANNEL`."""
    return net.channel[index(at)]


@inlined_function
def wheel_slot_record(net, at):
    """A record of `net.SLOT`."""
    return net.slot[index(at)]


@inlined_function
def port_number(net, at):
    """Of a port, in its router."""
    return np.int64(net.number[index(at)])


@inlined_function
def schedule_route(net, channel, cycle):
    """The packet in front of an input channel has its route at a cycle."""
    k = wheel_slot_record(net, cycle & net.slots).routings
    net.routing[index(k)] = channel
    wheel_slot_record(net, cycle & net.slots).routings = k + 1


@inlined_function
def return_credit(net, channel, now):
    """A credit for a flit of an input channel goes to where that came from."""
    at = channel >> net.shift
    slot = now + (net.credit if port_number(net, at) < CORE else net.local) & net.slots
    k = wheel_slot_record(net, slot).returning
    net.credits_back[index(k)] = port_record(net, at).back + (channel & net.within)
    wheel_slot_record(net, slot).returning = k + 1
