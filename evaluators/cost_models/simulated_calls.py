"""Simulated cost of products on groups and of reads from banks, by events or cycles.

Equal products run once.
"""

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import lru_cache
from math import ceil, inf
from typing import Any

import numpy as np

from dse.evaluators.calls.algorithm_candidates import group_with_partition, select_values
from dse.evaluators.calls.call import NOTHING, CallProduct, CoreGroupSplit, GroupExchange
from dse.evaluators.cost_models import fastest_algorithm as rivals
from dse.evaluators.cost_models.simulation_timing import SimulationResult
from dse.evaluators.kernels.gemm.tiling import GemmShape
from dse.evaluators.kernels.partition import find_partition, ring_attention
from dse.evaluators.kernels.partition import ring_collectives as ring
from dse.evaluators.kernels.partition import stage_transfer as stages
from dse.evaluators.kernels.partition.stage_transfer import PipelinePlacement, StageTransferTime
from dse.evaluators.machine.channel_layout import MemoryRequest
from dse.evaluators.machine.compute_engines import TileEngines
from dse.evaluators.machine.machine import CoreMemoryChannel, HardwareModel
from dse.evaluators.machine.mesh_fabric import MeshFabric
from dse.evaluators.machine.shared_cache_die import RatedMemory
from dse.evaluators.program.kernel_ir import DTYPES
from dse.space.chip import MatrixEngine, VectorEngine
from dse.space.dram import pseudo_channels_for_bandwidth
from dse.space.fields import iterate_leaves, replace_leaves
from dse.space.main_memory import MainMemory
from dse.space.mapping import AUTO, TILE_SUMS

ProgramSimulator = Callable[..., SimulationResult]
"""Simulator of a program on a network and engines."""


def simulate_product(
    play: ProgramSimulator,
    price: rivals.GroupProductCost,
    group: CoreGroupSplit,
    product: CallProduct,
    machine: HardwareModel,
    nbytes: float,
) -> tuple[Any, Any]:
    """Time of a simulated product on a group and of its engines; `price` chooses open sums. [s], [s]"""
    splits, best = _ways(price, group, product, machine, nbytes)
    cores, phases = group.cores, group.phases
    fabric, given_engines = machine.fabric, machine.engines
    assert fabric is not None
    assert isinstance(given_engines, TileEngines)
    leaves = (
        best, product.m, product.k, product.n, cores, phases, *fabric, given_engines.clock, given_engines.sram_bandwidth,
        *_numbers(given_engines.matrix), *_numbers(given_engines.vector),
    )  # fmt: skip
    if not any(isinstance(leaf, np.ndarray) for leaf in leaves):
        split = splits[int(best)]._replace(cores=int(cores), phases=int(phases))
        return _played(play, split, tuple(ceil(size) for size in leaves[1:4]), fabric, given_engines, nbytes)
    spread = np.broadcast_arrays(*leaves)
    costs = np.empty((2, *spread[0].shape))
    for place in np.ndindex(spread[0].shape):
        which, *leaf_values = [column[place].item() for column in spread]
        split, rest = splits[which]._replace(cores=int(leaf_values[3]), phases=int(leaf_values[4])), leaf_values[5:]
        sizes = tuple(ceil(size) for size in leaf_values[:3])
        given_fabric, rest = MeshFabric(*rest[: len(fabric)]), rest[len(fabric) :]
        matrix = _with(given_engines.matrix, rest[2 : 2 + len(_numbers(given_engines.matrix))])
        vector = _with(given_engines.vector, rest[2 + len(_numbers(given_engines.matrix)) :])
        engines = TileEngines(rest[0], matrix, vector, rest[1], given_engines.products)
        costs[(slice(None), *place)] = _played(play, split, sizes, given_fabric, engines, nbytes)
    return costs[0], costs[1]


def _ways(
    price: rivals.GroupProductCost, group: CoreGroupSplit, product: CallProduct, machine: HardwareModel, nbytes: float
) -> tuple[list[CoreGroupSplit], Any]:
    """The group by every way and sums that an entry may have, and the place of those that each has."""
    if group.partition == AUTO:
        group_splits: list[CoreGroupSplit] = []
        places = []
        for word in group.ways:
            splits, best = _ways(price, group_with_partition(group, word), product, machine, nbytes)
            places.append(best + len(group_splits))
            group_splits += splits
        return group_splits, select_values(places, group.which)
    if group.sums == AUTO:
        return [group._replace(sums=word) for word in TILE_SUMS], rivals.find_fastest_reduction_index(
            group, product, machine, nbytes, price
        )
    return [group], 0


def simulate_exchange(play: ProgramSimulator, exchange: GroupExchange, machine: HardwareModel, work: Any = 0.0) -> Any:
    """Time of simulated slices that go around a group, beyond any work of cores on them. [s]

    Slices have whole bytes.
    """
    assert machine.fabric is not None

    def exchange_time(times: Any, cores: Any, nbytes: Any, work: Any, *fabric_values: Any) -> tuple[float]:
        if times <= 0 or cores <= 1 or nbytes <= 0:
            return (0.0,)
        if exchange.attended:
            return (
                times * _attended(play, exchange.placement, int(cores), ceil(nbytes), float(work), MeshFabric(*fabric_values)),
            )
        return (_around(play, exchange.placement, int(cores), ceil(nbytes), ceil(times), MeshFabric(*fabric_values)),)

    return _each(exchange_time, (exchange.times, exchange.cores, exchange.nbytes, work, *machine.fabric))[0]


def simulate_stage_transfer(
    play: ProgramSimulator, way: PipelinePlacement, nbytes: Any, machine: HardwareModel
) -> StageTransferTime:
    """Time of a simulated message from stage to stage; a core's part has whole bytes. [s]"""
    assert machine.fabric is not None

    def transfer_time(
        cores: Any, stages: Any, pipelines: Any, high: Any, whole: Any, *fabric_values: Any
    ) -> tuple[float, float]:
        if stages < 2 or whole <= 0:
            return 0.0, 0.0
        at = PipelinePlacement(way.placement, int(cores), int(stages), int(pipelines), int(high))
        return _sent_on(play, at, ceil(whole / cores), MeshFabric(*fabric_values))

    return StageTransferTime(*_each(transfer_time, (way.cores, way.stages, way.pipelines, way.high, nbytes, *machine.fabric)))


def _each(simulate: Callable[..., tuple[float, ...]], leaves: tuple[Any, ...]) -> tuple[Any, ...]:
    """Several numbers of some leaves, each of their elements by itself."""
    if not any(isinstance(leaf, np.ndarray) for leaf in leaves):
        return simulate(*leaves)
    spread = np.broadcast_arrays(*leaves)
    times = [simulate(*(column[place].item() for column in spread)) for place in np.ndindex(spread[0].shape)]
    return tuple(np.reshape(column, spread[0].shape) for column in zip(*times, strict=True))


@lru_cache(maxsize=16384)
def _around(play: ProgramSimulator, placement: str, cores: int, nbytes: int, times: int, fabric: MeshFabric) -> float:
    return float(play(ring.ring_program(placement, cores, nbytes, times), fabric).seconds)


@lru_cache(maxsize=16384)
def _attended(play: ProgramSimulator, placement: str, cores: int, nbytes: int, work: float, fabric: MeshFabric) -> float:
    program, turn = ring_attention.single_instruction_program(placement, cores, nbytes), work / cores
    return max(float(play(program, fabric, engines=engines_lasting(turn, nbytes)).seconds) - work, 0.0)


@lru_cache(maxsize=16384)
def _sent_on(play: ProgramSimulator, way: PipelinePlacement, nbytes: int, fabric: MeshFabric) -> StageTransferTime:
    return stages.stage_arrivals(way, play(stages.stage_transfer_program(way, nbytes), fabric).ready["x"])


@lru_cache(maxsize=16384)
def _played(
    play: ProgramSimulator,
    group: CoreGroupSplit,
    sizes: tuple[int, ...],
    fabric: MeshFabric,
    engines: TileEngines,
    nbytes: float,
) -> tuple[float, float]:
    way = find_partition(group.partition)
    program = way.build_program(GemmShape(*sizes), group.placement, group.cores, DTYPES[nbytes], **group.options)
    timing = play(program, fabric, engines=engines)
    return timing.seconds, timing.engine_seconds


def engines_lasting(seconds: float, elements: int) -> TileEngines:
    """Engines on which an instruction over some elements, of one operation each, takes a given time."""
    none = MatrixEngine(dataflow="ce", rows=1, cols=1, depth=0, reload="tile", fill=0.0, start=0.0)
    return TileEngines(1 / seconds if seconds else inf, none, VectorEngine(lanes=elements, special=1.0, start=0.0), inf)


def _numbers(matrix: Any) -> tuple[Any, ...]:
    return tuple(value for value in (getattr(matrix, name) for name in type(matrix).__slots__) if not isinstance(value, str))


def _with(vector: Any, numbers: list[Any]) -> Any:
    names = [name for name in type(vector).__slots__ if not isinstance(getattr(vector, name), str)]
    return replace(vector, **dict(zip(names, numbers, strict=True)))


def simulate_memory_read(word: str, request: MemoryRequest, machine: HardwareModel) -> tuple[Any, Any]:
    """Simulated time of a core's memory request with its route, and of one more byte. [s], [s/B]

    Under `events` blocks cost what tables of their memory's banks say, under `cycles` what they take where they lie.
    """
    main = machine.memory.main if isinstance(machine.memory, CoreMemoryChannel) else None
    if main is None or main.banks is None:
        assert machine.memory is not None
        return machine.memory.read(request)
    from dse.evaluators.machine import bank_tables as bank_state
    from dse.evaluators.machine import burst_simulator as bursts  # which compile, or load what was
    from dse.evaluators.machine.memory_system import first_data_seconds

    wide = [np.size(value) for _, value, _ in iterate_leaves(main.banks) if isinstance(value, np.ndarray)]
    if wide:  # banks are simulated memory by memory
        each = [
            simulate_memory_read(
                word, MemoryRequest(*(_of(leaf, place) for leaf in request)), _with_memory(machine, _at(main, place))
            )
            for place in range(max(wide))
        ]
        seconds, per_byte = (np.stack(np.broadcast_arrays(*values), axis=-1) for values in zip(*each, strict=True))
        return seconds, per_byte
    slowdown = {"events": bank_state.request_slowdown, "cycles": bursts.simulate_slowdown}[word]
    behind = pseudo_channels_for_bandwidth(main.banks, main.channel_bandwidth)
    per_byte = slowdown(main.banks, behind, request) / main.channel_bandwidth
    return request.nbytes * per_byte + (main.latency + first_data_seconds(main.banks)[0]) * (request.nbytes > 0), per_byte


def simulate_bank_seconds(word: str, request: MemoryRequest, machine: HardwareModel) -> Any:
    """Lower bound on the time per byte of reads that the cores of a die issue together. [s/B]

    0 if the memory has no simulated banks.

    Software reaches a share of the bandwidth, whatever banks do: the slower one of both sets the pace.
    """
    memory = machine.memory
    if not isinstance(memory, RatedMemory) or memory.banks is None:
        return NOTHING
    from dse.evaluators.machine import bank_tables as bank_state
    from dse.evaluators.machine import parallel_reads as streams

    slowdown = {"events": bank_state.parallel_read_slowdown, "cycles": streams.simulate_parallel_slowdown}[word]
    return slowdown(memory.banks, pseudo_channels_for_bandwidth(memory.banks, memory.peak), memory.cores, request) / memory.peak


def _of(value: Any, place: int) -> Any:
    """What one design has of a value; designs are the last axis."""
    return value[..., place if value.shape[-1] > 1 else 0] if isinstance(value, np.ndarray) else value


def _with_memory(machine: HardwareModel, main: MainMemory) -> HardwareModel:
    byte = 1 / (main.channel_bandwidth * main.stream_efficiency)
    return machine._replace(memory=CoreMemoryChannel(byte, main.latency, main))


def _at(memory: MainMemory, place: int) -> MainMemory:
    """The memory of one design, with its channels and banks."""

    def numbers(leaves: Iterable[tuple[str, Any]]) -> dict[str, Any]:
        return {name: np.ravel(value)[place].item() for name, value in leaves if isinstance(value, np.ndarray)}

    banks = replace_leaves(memory.banks, numbers((address, value) for address, value, _ in iterate_leaves(memory.banks)))
    return memory._replace(**numbers(memory._asdict().items()), banks=banks)
