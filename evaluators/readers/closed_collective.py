"""Collectives between dies by their formulas, which all readers share."""

from typing import Any

from dse.evaluators.kernels.collective import allreduce, two_level
from dse.evaluators.machine.link import Links, spread
from dse.evaluators.machine.machine import Machine
from dse.evaluators.passes.call import Opener
from dse.space.elementwise import where


def collective(of: Opener, machine: Machine) -> Any:
    """Seconds of an allreduce between dies, across nodes where one does not hold them all."""
    assert machine.network is not None
    network, achieved, call = machine.network
    algorithm, bandwidth = allreduce(of.algorithm), network.bandwidth * achieved
    if network.nodes is None:
        seconds = algorithm.cost(of.nbytes, Links(of.peers, bandwidth, network.latency, network.latency_per)).seconds
    else:
        nodes, members = spread(of.peers, network.nodes.size)
        within = Links(members, bandwidth, network.latency, network.latency_per)
        between = Links(nodes, network.nodes.bandwidth / members, network.nodes.latency, network.latency_per)
        seconds = two_level.cost(algorithm, of.nbytes, within, between).seconds
    return seconds if of.recorded else seconds + where(of.peers > 1, call, 0.0)
