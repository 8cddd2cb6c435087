"""Compiled timing wheel of router events: routes of packets, and credits."""

# mypy: disable-error-code="no-untyped-def,assignment"

import numpy as np

from dse.evaluators.machine.compile_cache import index, inlined_function
from dse.evaluators.machine.router_state import CORE


@inlined_function
def port_record(net, at):
    """Record of `RouterTables.port` at a place."""
    return net.port[index(at)]


@inlined_function
def channel_record(net, at):
    """Record of `RouterTables.channel` at a place."""
    return net.channel[index(at)]


@inlined_function
def wheel_slot_record(net, at):
    """Record of `RouterTables.slot` at a place."""
    return net.slot[index(at)]


@inlined_function
def port_number(net, at):
    """Number of a port within its router."""
    return np.int64(net.number[index(at)])


@inlined_function
def schedule_route(net, channel, cycle):
    """Schedule the cycle at which the first packet of an input channel has its route."""
    k = wheel_slot_record(net, cycle & net.slots).routings
    net.routing[index(k)] = channel
    wheel_slot_record(net, cycle & net.slots).routings = k + 1


@inlined_function
def return_credit(net, channel, now):
    """Return a credit for a flit of an input channel to the sender of the flit."""
    at = channel >> net.shift
    slot = now + (net.credit if port_number(net, at) < CORE else net.local) & net.slots
    k = wheel_slot_record(net, slot).returning
    net.credits_back[index(k)] = port_record(net, at).back + (channel & net.within)
    wheel_slot_record(net, slot).returning = k + 1
