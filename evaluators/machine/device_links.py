"""Links between devices, as collectives use them."""

from math import inf
from typing import Any, NamedTuple

from dse.space.array_math import Number, ceil_div, where
from dse.space.chip import DeviceLinks
from dse.space.libraries.moe_all_to_all import MoeAllToAllConstants
from dse.space.libraries.node_collectives import AllToAll, OneShotAllreduce, RingCollectives


class CollectiveLibrary(NamedTuple):
    """Collectives that a software stack has, for mappings with allreduce=library.

    Attributes:
        ring_collectives, all_to_all, one_shot_allreduce, moe_all_to_all: parts of the stack; None for those that it has not.
        memory: bandwidth of a die's main memory. [B/s]
    """

    ring_collectives: RingCollectives | None
    all_to_all: AllToAll | None
    one_shot_allreduce: OneShotAllreduce | None
    moe_all_to_all: MoeAllToAllConstants | None
    memory: Number


class DiePorts(NamedTuple):
    """Ports of a die, with what the software stack reaches of them.

    Attributes:
        of: the chip's.
        achieved: share of their bandwidth that a collective reaches. [-]
        call: start of a collective by the host. [s]
        library: collectives that it has.
        half_size: message of a collective that reaches half of that share; None where all sizes reach it. [B]
        inter_node_call: by how much later a collective starts that leaves a node; messages to one peer do not. [s]
    """

    of: DeviceLinks
    achieved: Number
    call: Number
    library: CollectiveLibrary
    half_size: Any = None
    inter_node_call: Number = 0.0


class DeviceGroupLinks(NamedTuple):
    """Equal links between the `peers` dies of a group.

    Attributes:
        peers: dies that take part. [-]
        bandwidth: one link, one direction. [B/s]
        latency: start-up time. [s]
        latency_per: "hop": paid by every dependent transfer; "collective": paid once, as in PRESERVE section 5
            ("the summation of a constant initial latency and the data size divided by the bandwidth").
        ports: messages that a peer sends, or takes, at a time at this bandwidth; more share it. All have a link of their own
            where it is not said, as inside a node; a node has one on the network between nodes. [-]
    """

    peers: Number
    bandwidth: Number
    latency: Number
    latency_per: str
    ports: Number = inf


def transfer_seconds(links: DeviceGroupLinks, rounds: Number, nbytes: Number) -> Any:
    """Time of `rounds` dependent transfers of `nbytes` in all over every busy link; 0 for one peer. [s]"""
    starts = rounds if links.latency_per == "hop" else 1.0
    return where(links.peers > 1, starts * links.latency + nbytes / links.bandwidth, 0.0)


def split_into_nodes(dies: Number, size: Number) -> tuple[Any, Any]:
    """Fewest nodes of at most `size` dies that hold all dies, and the dies in each. [-]

    >>> split_into_nodes(16, 8), split_into_nodes(4, 8), split_into_nodes(12, 8)
    ((2, 8), (1, 4), (2, 6))
    """
    nodes = ceil_div(dies, size)
    return nodes, ceil_div(dies, nodes)
