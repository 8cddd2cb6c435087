"""Machine of a chip: its engines, memories and links as resources of calls."""

from dataclasses import replace
from typing import Any, NamedTuple, Protocol

from dse.evaluators.machine.channel_layout import MemoryRequest, layout_slowdown
from dse.evaluators.machine.compute_engines import tile_engines
from dse.evaluators.machine.device_links import CollectiveLibrary, DiePorts
from dse.evaluators.machine.library_die import DieLibraries, die_libraries
from dse.evaluators.machine.memory_side_cache import MemorySideCache, memory_side_cache
from dse.evaluators.machine.mesh_fabric import MeshFabric, mesh_fabric, tile_fabric, with_vector_reduction
from dse.evaluators.machine.shared_cache_die import (
    DieCache,
    ResultBlocks,
    power_limited_seconds,
    refuse_unknown_power,
    shared_cache_parts,
)
from dse.evaluators.machine.tiered_reads import TieredReads
from dse.space.chip import Chip, DeviceLinks, NodeNetwork
from dse.space.dram import pseudo_channels_for_bandwidth
from dse.space.main_memory import MainMemory, main_memory
from dse.space.mapping import Mapping
from dse.space.memoize import memoize_by_identity
from dse.space.stack import Stack


class ComputeEngine(Protocol):
    """Interface of engines that compute for a call; times in seconds, over steps and designs."""

    def product_with_start(self, m: Any, k: Any, n: Any, nbytes: float) -> Any:
        """Time of a product [m, k] x [k, n] with `nbytes` per value, with its start. [s]"""

    def vectors(self, operations: Any, specials: Any, streamed: Any, starts: Any) -> Any:
        """Time of vector operations, special ones, elements of K and V, and starts of sequences. [s]"""

    def call_seconds(self, matrix: Any, vector: Any) -> Any:
        """Time of a product and a vector instruction of one call. [s]"""

    def shares(self, matrix: Any, vector: Any) -> tuple[Any, Any]:
        """Time of each engine in a call; both add up to the call's time. [s], [s]"""


class MainMemoryView(Protocol):
    """Interface of main memory as one core of a call sees it."""

    @property
    def byte(self) -> Any:
        """Time per byte of a contiguous read. [s/B]"""

    def read(self, request: MemoryRequest) -> tuple[Any, Any]:
        """Time of a call's memory request [s], and of one more byte [s/B]."""


class CoreMemoryChannel(NamedTuple):
    """Main memory channel of one core: its rate, first-word latency, and banks."""

    byte: Any
    latency: Any
    main: MainMemory

    def read(self, request: MemoryRequest) -> tuple[Any, Any]:
        """Time of a memory request with the effect of its layout on banks [s], and of one more byte [s/B]."""
        byte = self.byte
        banks = self.main.banks
        if banks is not None:
            byte = byte * layout_slowdown(banks, cached_channel_count(banks, self.main.channel_bandwidth), request)
        return request.nbytes * byte + self.latency * (request.nbytes > 0), byte


cached_channel_count = memoize_by_identity(pseudo_channels_for_bandwidth)
"""Pseudo-channels behind a core, which all reads have in common."""


class HardwareModel(NamedTuple):
    """Resources that calls run on; parts that a chip lacks are None.

    Attributes:
        engines: of a core, or of all that a cache pools.
        memory: main memory.
        cache: that activations go through, and that data can be prefetched into.
        saved: what a contiguous byte costs less from there than from main memory. [s/B]
        fabric: the network between cores.
        network: links to other dies.
        overhead: of launching a call. [s]
        shared: the cache in front of main memory, of which a core has a share.
        library: library kernels for which the software stack has parts.
        power_limited: by which a board's power limit lengthens an operation of a product; None without one. [s]
        overlap: p of a product's time with its weights, (compute^p + memory^p)^(1/p); None for the longer of both.
        tiers: memories that share the contents with main memory; None where all are in main memory.
        blocks: squares of results of products with weights; None where cores share all products evenly.
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
    power_limited: Any = None
    overlap: Any = None
    tiers: TieredReads | None = None
    blocks: ResultBlocks | None = None


def shared_cache_machine(chip: Chip, mapping: Mapping) -> HardwareModel:
    """Machine of a shared-cache die: pooled cores and links to other dies, under a software stack."""
    matrix, cache, memory = shared_cache_parts(chip, mapping)
    stack, ports = mapping.stack, None
    refuse_unknown_power(chip, stack)
    if chip.network is not None:
        library = CollectiveLibrary(
            stack.ring_collectives,
            stack.all_to_all,
            stack.one_shot_allreduce,
            stack.moe_all_to_all,
            main_memory(chip).bandwidth,
        )
        ports = DiePorts(
            _network(chip, stack),
            stack.network_efficiency,
            stack.collective_launch,
            library,
            stack.network_half_size,
            stack.inter_node_launch,
        )
    return HardwareModel(
        matrix,
        memory,
        cache,
        memory.byte - cache.byte,
        None,
        ports,
        stack.operator_launch,
        library=die_libraries(chip, stack),
        power_limited=power_limited_seconds(chip, stack),
        overlap=stack.roofline_exponent,
        blocks=None if stack.product_block is None else ResultBlocks(stack.product_block, chip.cores),
    )


def _network(chip: Chip, stack: Stack) -> DeviceLinks:
    """Network of a die, with the share of the bandwidth between nodes that software uses."""
    network: DeviceLinks = chip.network
    nodes = network.nodes
    if nodes is None:
        return network
    return replace(network, nodes=replace(nodes, bandwidth=inter_node_bandwidth(nodes, stack)))


def inter_node_bandwidth(nodes: NodeNetwork, stack: Stack) -> Any:
    """Bandwidth of a node to other nodes that software reaches, in one direction. [B/s]"""
    return nodes.bandwidth if stack.inter_node_efficiency is None else nodes.bandwidth * stack.inter_node_efficiency


@memoize_by_identity
def tile_core_machine(chip: Chip) -> HardwareModel:
    """Machine of one core of a mesh, with its channel of main memory."""
    main = main_memory(chip)
    byte = 1 / (main.channel_bandwidth * main.stream_efficiency)
    memory = CoreMemoryChannel(byte, main.latency, main)
    return HardwareModel(tile_engines(chip), memory, None, byte, tile_fabric(chip), None, 0.0, memory_side_cache(chip))


def mesh_program_machine(chip: Chip) -> HardwareModel:
    """Machine of a mesh of cores that runs programs; its network gives times of engines and messages."""
    return HardwareModel(None, None, None, 0.0, mesh_fabric(chip), None, 0.0)


def tile_network_machine(chip: Chip) -> HardwareModel:
    """Network of a mesh of tiles whose vector engines add up what arrives."""
    return HardwareModel(None, None, None, 0.0, with_vector_reduction(chip), None, 0.0)
