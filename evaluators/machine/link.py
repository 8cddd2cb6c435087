"""The links between dies, as a collective sees them."""

from math import inf
from typing import Any, NamedTuple

from dse.space.chip import Network
from dse.space.elementwise import Number, ceil_div, where
from dse.space.libraries.collectives import Exchanges, Rings, Short
from dse.space.libraries.dispatch import Dispatch


class Library(NamedTuple):
    """Collectives that a stack of software has, for mappings with allreduce=library.

    Attributes:
        rings, exchanges, short, dispatch: parts of the stack; None for those that it has not.
        memory: bandwidth of a die's main memory. [B/s]
    """

    rings: Rings | None
    exchanges: Exchanges | None
    short: Short | None
    dispatch: Dispatch | None
    memory: Number


class Ports(NamedTuple):
    """The ports of a die, and what the stack of software makes of them.

    Attributes:
        of: the chip's.
        achieved: share of their bandwidth that a collective reaches. [-]
        call: start of a collective by the host. [s]
        library: collectives that it has.
    """

    of: Network
    achieved: Number
    call: Number
    library: Library


class Links(NamedTuple):
    """Equal links between `peers` dies.

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


def seconds(links: Links, rounds: Number, nbytes: Number) -> Any:
    """Time of `rounds` dependent transfers that bring `nbytes` in all through every busy link; 0 for one peer."""
    starts = rounds if links.latency_per == "hop" else 1.0
    return where(links.peers > 1, starts * links.latency + nbytes / links.bandwidth, 0.0)


def spread(dies: Number, size: Number) -> tuple[Any, Any]:
    """Nodes, and dies in each of them: as few nodes of `size` dies as hold them all, filled evenly.

    >>> spread(16, 8), spread(4, 8), spread(12, 8)
    ((2, 8), (1, 4), (2, 6))
    """
    nodes = ceil_div(dies, size)
    return nodes, ceil_div(dies, nodes)
