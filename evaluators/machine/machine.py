"""A chip as things that can be busy: engines, memories, links; built from a chip here and nowhere else."""

from dataclasses import replace
from typing import Any, NamedTuple, Protocol

from dse.evaluators.machine.engine import engines
from dse.evaluators.machine.fabric import Fabric, mesh_fabric, summing, tile_fabric
from dse.evaluators.machine.laid import Asked, pace
from dse.evaluators.machine.library import Libraries, libraries
from dse.evaluators.machine.link import Library, Ports
from dse.evaluators.machine.pooled import Cache, pooled
from dse.evaluators.machine.shared import Shared, shared
from dse.space.chip import Chip, MainMemory, Network, Nodes
from dse.space.mapping import Mapping
from dse.space.memory import behind
from dse.space.remember import same
from dse.space.stack import Stack


class Engine(Protocol):
    """What computes for a call. Times in seconds; leaves broadcast over steps and designs."""

    def started(self, m: Any, k: Any, n: Any, nbytes: float) -> Any:
        """A product [m, k] x [k, n] of operands of some bytes a value, and its start."""

    def vectors(self, operations: Any, specials: Any, streamed: Any, starts: Any) -> Any:
        """Operations on elements, special ones, elements of K and V that a vector engine passes over; in so many sequences."""

    def together(self, matrix: Any, vector: Any) -> Any:
        """What a product and a vector instruction of one call take."""

    def shares(self, matrix: Any, vector: Any) -> tuple[Any, Any]:
        """How that divides between them."""


class Store(Protocol):
    """Main memory as one core of a call sees it."""

    @property
    def byte(self) -> Any:
        """Of a contiguous read. [s/B]"""

    def read(self, asked: Asked) -> tuple[Any, Any]:
        """Of what a call asks for [s]; and of one more byte of it [s/B]."""


class Channel(NamedTuple):
    """One core's channel of main memory: a rate, the latency of the first word, and what blocks of its banks cost."""

    byte: Any
    latency: Any
    hbm: MainMemory

    def read(self, asked: Asked) -> tuple[Any, Any]:
        """Of so many bytes in blocks, by what their layout makes of the banks [s]; and of one more [s/B]."""
        byte = self.byte
        if self.hbm.banks is not None:
            byte = byte * pace(self.hbm.banks, channels_behind(self.hbm.banks, self.hbm.channel_bandwidth), asked)
        return asked.nbytes * byte + self.latency * (asked.nbytes > 0), byte


channels_behind = same(behind)
"""Pseudo-channels behind a core, which all reads have in common."""


class Machine(NamedTuple):
    """What calls run on; what a chip lacks is None.

    Attributes:
        engines: of a core, or of all that a cache pools.
        memory: main memory.
        cache: that activations go through, and that data can be prefetched into.
        saved: what a contiguous byte costs less from there than from main memory. [s/B]
        fabric: the network between cores.
        network: links to other dies.
        overhead: of launching a call. [s]
        shared: the cache in front of main memory, of which a core has a share.
        library: kernels that a library prices, where the stack of software has parts for them.
    """

    engines: Engine | None
    memory: Store | None
    cache: Cache | None
    saved: Any
    fabric: Fabric | None
    network: Ports | None
    overhead: Any
    shared: Shared | None = None
    library: Libraries | None = None


def of_die(chip: Chip, mapping: Mapping) -> Machine:
    """Cores pooled behind a cache, with links to other dies, as the mapping's stack of software finds them."""
    matrix, cache, memory = pooled(chip, mapping)
    stack, ports = mapping.stack, None
    if chip.network is not None:
        found = Library(stack.rings, stack.exchanges, stack.short, stack.dispatch, chip.hbm.bandwidth)
        ports = Ports(_network(chip, stack), stack.network_achieved, stack.collective_call, found)
    priced = libraries(chip, stack)
    return Machine(matrix, memory, cache, memory.byte - cache.byte, None, ports, stack.operator_overhead, library=priced)


def _network(chip: Chip, stack: Stack) -> Network:
    """The network of a die as collectives find it: beyond a node they start later, on what of its ports software uses."""
    network: Network = chip.network
    nodes = network.nodes
    if nodes is None:
        return network
    found = replace(nodes, bandwidth=between_nodes(nodes, stack), latency=nodes.latency + stack.nodes_call)
    return replace(network, nodes=found)


def between_nodes(nodes: Nodes, stack: Stack) -> Any:
    """Bandwidth of one node towards the others that software uses, one direction. [B/s], broadcasts over designs."""
    return nodes.bandwidth if stack.nodes_achieved is None else nodes.bandwidth * stack.nodes_achieved


@same
def of_tiles(chip: Chip) -> Machine:
    """One core of a mesh, with its channel of main memory."""
    byte = 1 / (chip.hbm.channel_bandwidth * chip.hbm.achieved)
    memory = Channel(byte, chip.hbm.latency, chip.hbm)
    return Machine(engines(chip), memory, None, byte, tile_fabric(chip), None, 0.0, shared(chip))


def of_mesh(chip: Chip) -> Machine:
    """A mesh of cores whose engines and messages are one program: its fabric says what both take."""
    return Machine(None, None, None, 0.0, mesh_fabric(chip), None, 0.0)


def of_links(chip: Chip) -> Machine:
    """The network of a mesh of tiles, whose vector engines sum what comes by."""
    return Machine(None, None, None, 0.0, summing(chip), None, 0.0)
