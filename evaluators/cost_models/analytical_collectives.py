"""Formulas of collectives between dies, which all fidelities share."""

from typing import Any, NamedTuple

import numpy as np

from dse.evaluators.calls.call import LeadingCollective
from dse.evaluators.kernels.collective import LIBRARY_OPTION, allreduce_bytes, find_allreduce
from dse.evaluators.kernels.collective import allreduce_seconds as allreduced
from dse.evaluators.kernels.library.node_collectives import (
    NodeGroup,
    all_to_all_seconds,
    expert_exchange_seconds,
    one_shot_seconds,
    ring_seconds,
)
from dse.evaluators.machine.device_links import DeviceGroupLinks, split_into_nodes, transfer_seconds
from dse.evaluators.machine.machine import HardwareModel
from dse.space.array_math import minimum, where
from dse.space.chip import DeviceLinks
from dse.space.limits import IncompatibleOptionsError
from dse.space.workload import EXPERT_EXCHANGES

LIBRARY_PARTS = {"all_to_all": "all_to_all", **dict.fromkeys(EXPERT_EXCHANGES, "moe_all_to_all")}
"""Parts of a stack with the library constants of a pattern; ring_collectives for all others."""

EXAMPLE_STACKS = {"moe_all_to_all": "deepep_h100"}
"""Stacks that have a part; trtllm_h100 has the others."""


def refuse_library_allreduce(algorithm: str, peers: Any, machine: HardwareModel) -> None:
    """Refuse library allreduces that the stack lacks, and other allreduces if the stack has its own.

    Args:
        algorithm: of the plan.
        peers: dies that take part, shape () or (designs,); one by itself exchanges nothing.
        machine: machine with these dies.

    Raises:
        ClashError: likewise, of these designs.
    """
    assert machine.network is not None
    library = machine.network[3]
    if algorithm == LIBRARY_OPTION:
        _refuse_absent("ring_collectives", library)
    elif library.ring_collectives is not None and np.any(several := np.asarray(peers) > 1):
        raise IncompatibleOptionsError(
            f"mapping.stack.ring_collectives: has no effect with allreduce={algorithm}; set mapping.both.allreduce=library, or "
            "mapping.stack.ring_collectives=null mapping.stack.one_shot_allreduce=null",
            *("allreduce", "ring_collectives", "tp"),
            some=several,
        )


def die_allreduce_seconds(collective: LeadingCollective, machine: HardwareModel) -> Any:
    """Time of an allreduce between dies, across nodes if one node does not hold them all. [s]

    Between nodes each die has an equal share of its node's bandwidth, as one port: with an adapter for each die that is the
    die's own, and with one for the node its slices take turns. Algorithms that send two ways at once, or to several nodes, get
    no more: of DGX A100, whose eight adapters have 200 GB/s together in one direction, a maintainer of NCCL reports a bus
    bandwidth of 192 GB/s in allreduces (github.com/NVIDIA/nccl/issues/812, 2023-03-31).

    If the stack has a size h that reaches half of the bandwidth b, a message of s bytes has b s / (s + h): it takes as long as
    s + h bytes take otherwise. The size is that of links inside a node: over several nodes a message starts as much later as it
    would inside one (`die_exchange_jobs.ramp_seconds` does the same).

    Raises:
        ClashError: the library's, of a stack that has none; another, where the stack has the library's.
    """
    assert machine.network is not None
    network, achieved, call, _, half_size, far = machine.network
    refuse_library_allreduce(collective.algorithm, collective.peers, machine)
    if collective.algorithm == LIBRARY_OPTION:
        return library_seconds("allreduce", collective.nbytes, collective.peers, machine, recorded=collective.recorded)
    bandwidth, nbytes = network.bandwidth * achieved, collective.nbytes

    def inside_seconds(nbytes: Any) -> Any:
        links = DeviceGroupLinks(collective.peers, bandwidth, network.latency, network.latency_per)
        return find_allreduce(collective.algorithm, collective.phases).cost(nbytes, links).seconds

    if network.nodes is None:
        seconds = inside_seconds(nbytes if half_size is None else nbytes + half_size)
    else:
        nodes, members = split_into_nodes(collective.peers, network.nodes.size)
        within = DeviceGroupLinks(members, bandwidth, network.latency, network.latency_per)
        outside = network.nodes.bandwidth / members * achieved
        between = DeviceGroupLinks(nodes, outside, network.nodes.latency + far, network.latency_per, ports=1)
        seconds = allreduced(collective.algorithm, nbytes, within, between, collective.phases)
        if half_size is not None:
            seconds = seconds + inside_seconds(nbytes + half_size) - inside_seconds(nbytes)
    return seconds if collective.recorded else seconds + where(collective.peers > 1, call, 0.0)


def stage_message_seconds(nbytes: Any, tp: Any, machine: HardwareModel) -> tuple[Any, Any]:
    """Time of the messages from one pipeline stage to the next, inside a node and between nodes. [s]

    Each device of a stage sends to its peer of the next one.

    Inside a node a message has one port. Between nodes the devices of a stage that are in one node send at the same time, and
    have equal shares of its bandwidth, at most that of a port. A message is one transfer and pays one latency. The host starts
    it, since engines send outside recorded graphs.

    Args:
        nbytes: that each device sends. [B]
        tp: devices of a stage.
        machine: machine with these devices.

    Returns:
        Both times, equal where one node has all devices.

    Source:
        [vllmpp2025] sends between replays of recorded graphs.
    """
    assert machine.network is not None
    network, achieved, call, _, half_size, _ = machine.network
    start = call if half_size is None else call + half_size / (network.bandwidth * achieved)

    def message(bandwidth: Any, latency: Any) -> Any:
        return transfer_seconds(DeviceGroupLinks(2, bandwidth * achieved, latency, network.latency_per), 1, nbytes) + start

    inside = message(network.bandwidth, network.latency)
    if network.nodes is None:
        return inside, inside
    _, members = split_into_nodes(tp, network.nodes.size)
    return inside, message(minimum(network.bandwidth, network.nodes.bandwidth / members), network.nodes.latency)


INTER_NODE_HOPS = 2.0
"""Links that a message from node to node crosses: to a switch, and from it. [1]"""


class LinkEnergyInputs(NamedTuple):
    """Properties of the links between dies that their energy depends on.

    Attributes:
        hops: that a message inside a node crosses.
        size: dies of a node; None where one has all.
    """

    hops: Any
    size: Any


def link_energy_inputs(network: DeviceLinks) -> LinkEnergyInputs:
    """Energy inputs of the device links of a chip."""
    return LinkEnergyInputs(network.hops, None if network.nodes is None else network.nodes.size)


def allreduce_hop_bytes(collective: LeadingCollective, inputs: LinkEnergyInputs) -> Any:
    """Bytes times links crossed that a die sends in an allreduce, mean over its members. [B]

    >>> two = LeadingCollective("ring", 2.0, 8.0, True, None)
    >>> (
    ...     allreduce_hop_bytes(two, LinkEnergyInputs(1.0, None)),
    ...     allreduce_hop_bytes(two, LinkEnergyInputs(2.0, 8.0)),
    ...     allreduce_hop_bytes(two, LinkEnergyInputs(1.0, 1.0)),
    ... )
    (8.0, 16.0, 16.0)
    """
    nodes, members = (1.0, collective.peers) if inputs.size is None else split_into_nodes(collective.peers, inputs.size)
    inside, between = allreduce_bytes(collective.algorithm, collective.nbytes, members, nodes, collective.phases)
    return (inside * inputs.hops + between * INTER_NODE_HOPS) / collective.peers


def library_seconds(pattern: str, nbytes: Any, peers: Any, machine: HardwareModel, *, recorded: bool, each: Any = 0.0) -> Any:
    """Time of a library's collective between dies. [s]

    Only allreduces go across nodes; between nodes they are rings of the slices.

    Args:
        pattern: allreduce, allgather, reduce_scatter, all_to_all, dispatch or combine.
        nbytes: of the vector on each die, of all slices together, or of what a die has for all. [B]
        peers: dies that take part.
        machine: machine with these dies.
        recorded: whether a recorded graph of launches holds it; else the host starts it.
        each: of a copy of a token, of dispatch and combine. [B]

    Raises:
        ClashError: the stack has no such collective, or none of its own across nodes.
    """
    assert machine.network is not None
    network, achieved, call, library, _, far = machine.network
    _refuse_absent(LIBRARY_PARTS.get(pattern, "ring_collectives"), library)
    members, between = peers, 0.0
    if network.nodes is not None:
        nodes, members = split_into_nodes(peers, network.nodes.size)
        if pattern != "allreduce" and np.any(np.asarray(nodes) > 1):
            raise IncompatibleOptionsError(
                f"mapping.decode.tp: the library has no {pattern} across nodes; use at most {_few(network.nodes.size)} devices",
                "tp",
                some=np.asarray(nodes) > 1,
                need=peers,
                have=network.nodes.size,
            )
        bandwidth = network.nodes.bandwidth / members * achieved
        links = DeviceGroupLinks(nodes, bandwidth, network.nodes.latency + far, network.latency_per)
        between = find_allreduce("ring").cost(nbytes / members, links).seconds
    group = NodeGroup(members, network.ports * network.bandwidth, library.memory)
    if library.moe_all_to_all is not None and pattern in EXPERT_EXCHANGES:
        return expert_exchange_seconds(pattern, nbytes, each, group, library.moe_all_to_all)
    if library.all_to_all is not None and pattern == "all_to_all":
        seconds = all_to_all_seconds(nbytes, group, library.all_to_all)
    else:
        assert library.ring_collectives is not None
        seconds = ring_seconds(pattern, nbytes, group, library.ring_collectives)
    if library.one_shot_allreduce is not None and pattern == "allreduce":
        return one_shot_seconds(nbytes, group, library.one_shot_allreduce, seconds, recorded=recorded) + between
    return seconds + between + (0.0 if recorded else where(peers > 1, call, 0.0))


def _refuse_absent(part: str, library: Any) -> None:
    """Refuses what a library of the stack would do, where it does not."""
    if getattr(library, part) is None:
        raise IncompatibleOptionsError(
            f"mapping.both.allreduce: library needs mapping.stack.{part}, which the stack lacks; choose another stack, such as "
            f"stack={EXAMPLE_STACKS.get(part, 'trtllm_h100')}, or another allreduce",
            *("allreduce", part),
        )


def _few(size: Any) -> str:
    """The size of a node, of the smallest of several, in digits."""
    return f"{np.min(size):.0f}"
