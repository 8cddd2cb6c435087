"""A chip as things that can be busy: engines, memories, links; built from a chip here and nowhere else."""

from dataclasses import replace
from typing import Any, NamedTuple, Protocol

from dse.evaluators.machine.channel_layout import MemoryRequest, layout_slowdown
from dse.evaluators.machine.compute_engines import tile_engines
from dse.evaluators.machine.device_links import CollectiveLibrary, DiePorts
from dse.evaluators.machine.library_die import DieLibraries, die_libraries
from dse.evaluators.machine.memory_side_cache import MemorySideCache, memory_side_cache
from dse.evaluators.machine.mesh_fabric import MeshFabric, mesh_fabric, tile_fabric, with_vector_reduction
from dse.evaluators.machine.shared_cache_die import DieCache, shared_cache_parts
from dse.space.chip import Chip, DeviceLinks, NodeNetwork, TileMemory
from dse.space.dram import pseudo_channels_for_bandwidth
from dse.space.mapping import Mapping
from dse.space.memoize import memoize_by_identity
from dse.space.stack import Stack


class ComputeEngine(Protocol):
    """What computes for a call. Times in seconds; leaves broadcast over steps and designs."""

    def started(self, m: Any, k: Any, n: Any, nbytes: float) -> Any:
        """A product [m, k] x [k, n] of operands of some bytes a value, and its start."""

    def vectors(self, operations: Any, specials: Any, streamed: Any, starts: Any) -> Any:
        """Operations on elements, special ones, elements of K and V that a vector engine passes over; in so many sequences."""

    def together(self, matrix: Any, vector: Any) -> Any:
        """What a product and a vector instruction of one call take."""

    def shares(self, matrix: Any, vector: Any) -> tuple[Any, Any]:
        """How that divides between them."""


class MainMemoryView(Protocol):
    """Main memory as one core of a call sees it."""

    @property
    def byte(self) -> Any:
        """Of a contiguous read. [s/B]"""

    def read(self, asked: MemoryRequest) -> tuple[Any, Any]:
        """Of what a call asks for [s]; and of one more byte of it [s/B]."""


class CoreMemoryChannel(NamedTuple):
    """One core's channel of main memory: a rate, the latency of the first word, and what blocks of its banks cost."""

    byte: Any
    latency: Any
    hbm: TileMemory

    def read(self, asked: MemoryRequest) -> tuple[Any, Any]:
        """Of so many bytes in blocks, by what their layout makes of the banks [s]; and of one more [s/B]."""
        byte = self.byte
        if self.hbm.banks is not None:
            byte = byte * layout_slowdown(
                self.hbm.banks, cached_channel_count(self.hbm.banks, self.hbm.channel_bandwidth), asked
            )
        return asked.nbytes * byte + self.latency * (asked.nbytes > 0), byte


cached_channel_count = memoize_by_identity(pseudo_channels_for_bandwidth)
"""Pseudo-channels behind a core, which all reads have in common."""


class HardwareModel(NamedTuple):
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

    engines: ComputeEngine | None
    memory: MainMemoryView | None
    cache: DieCache | None
    saved: Any
    fabric: MeshFabric | None
    network: DiePorts | None
    overhead: Any
    shared: MemorySideCache | None = None
    library: DieLibraries | None = None


def shared_cache_machine(chip: Chip, mapping: Mapping) -> HardwareModel:
    """Cores pooled behind a cache, with links to other dies, as the mapping's stack of software finds them."""
    matrix, cache, memory = shared_cache_parts(chip, mapping)
    stack, ports = mapping.stack, None
    if chip.network is not None:
        found = CollectiveLibrary(
            stack.ring_collectives, stack.all_to_all, stack.one_shot_allreduce, stack.moe_all_to_all, chip.hbm.bandwidth
        )
        ports = DiePorts(_network(chip, stack), stack.network_efficiency, stack.collective_launch, found)
    priced = die_libraries(chip, stack)
    return HardwareModel(matrix, memory, cache, memory.byte - cache.byte, None, ports, stack.operator_launch, library=priced)


def _network(chip: Chip, stack: Stack) -> DeviceLinks:
    """The network of a die as collectives find it: beyond a node they start later, on what of its ports software uses."""
    network: DeviceLinks = chip.network
    nodes = network.nodes
    if nodes is None:
        return network
    found = replace(nodes, bandwidth=inter_node_bandwidth(nodes, stack), latency=nodes.latency + stack.inter_node_launch)
    return replace(network, nodes=found)


def inter_node_bandwidth(nodes: NodeNetwork, stack: Stack) -> Any:
    """Bandwidth of one node towards the others that software uses, one direction. [B/s], broadcasts over designs."""
    return nodes.bandwidth if stack.inter_node_efficiency is None else nodes.bandwidth * stack.inter_node_efficiency


@memoize_by_identity
def tile_core_machine(chip: Chip) -> HardwareModel:
    """One core of a mesh, with its channel of main memory."""
    byte = 1 / (chip.hbm.channel_bandwidth * chip.hbm.achieved)
    memory = CoreMemoryChannel(byte, chip.hbm.latency, chip.hbm)
    return HardwareModel(tile_engines(chip), memory, None, byte, tile_fabric(chip), None, 0.0, memory_side_cache(chip))


def mesh_program_machine(chip: Chip) -> HardwareModel:
    """A mesh of cores whose engines and messages are one program: its fabric says what both take."""
    return HardwareModel(None, None, None, 0.0, mesh_fabric(chip), None, 0.0)


def tile_network_machine(chip: Chip) -> HardwareModel:
    """The network of a mesh of tiles, whose vector engines sum what comes by."""
    return HardwareModel(None, None, None, 0.0, with_vector_reduction(chip), None, 0.0)
