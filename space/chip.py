"""One accelerator die: cores, L2 cache, HBM and the ports that join it to others.

A chip is a list of sourced constants; what they mean for time is in ``evaluators/machine``.
"""

from space.elementwise import Number
from space.fields import quantity, record, whole, word
from space.technology import Technology


@record
class Core:
    """One compute core."""

    matrix: Number = quantity("op/s", "peak of the matrix engine on 8-bit values; halves on 16-bit ones", positive=True)
    vector: Number = quantity("op/s", "peak of the vector engine, one operation an element", positive=True)
    attention_passes: Number = quantity(
        "1", "vector passes over each K and V element in decode attention; 0 where the matrix engine does it"
    )


@record
class Cache:
    """The on-die cache all cores share."""

    size: Number = quantity("B", "capacity")
    bandwidth: Number = quantity("B/s", "bandwidth to all cores together", positive=True)


@record
class Hbm:
    """The off-die memory of one die."""

    capacity: Number = quantity("B", "capacity", positive=True)
    bandwidth: Number = quantity("B/s", "bandwidth of a contiguous stream", positive=True)
    gap: Number = quantity("s", "time lost on each row of a strided read; 0 where strides are free")
    waste: Number = quantity("1", "share of the bytes skipped by a strided read that is fetched all the same", high=1.0)


@record
class Network:
    """The ports of one die towards its peers."""

    ports: Number = whole("links to other dies: 2 make a ring, peers - 1 a full mesh")
    bandwidth: Number = quantity("B/s", "one port, one direction", positive=True)
    latency: Number = quantity("s", "start-up time, charged as `latency_per` says")
    latency_per: str = word("what one latency is charged for", ("collective", "hop"))


@record
class Chip:
    """An accelerator die."""

    cores: Number = whole("cores on the die")
    core: Core
    l2: Cache
    hbm: Hbm
    network: Network
    operator_overhead: Number = quantity("s", "launch and synchronisation of one operator")
    technology: Technology
