"""Kernels on a mesh of tiles whose items each go through blocks from memory.

An item keeps a state from one block to the next.

A tile has an item: it loads what the item begins with, takes in its blocks, whose next one comes meanwhile, stores what each
leaves, and in the end what the item does. Nothing is exchanged between tiles. What is done to a block is products and vector
instructions, which overlap where they do not need each other. Items are dealt to as few rows of tiles as do in as many waves.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any, NamedTuple

import numpy as np

from dse.evaluators.kernels.gemm.tiling import CoreMesh
from dse.evaluators.kernels.kernel_cost import KernelCost
from dse.evaluators.kernels.vector.row_kernels import RowInstruction, instruction_sequences, stream_name
from dse.evaluators.machine.compute_engines import TileEngines
from dse.evaluators.machine.memory_channels import ColumnMemory
from dse.evaluators.machine.mesh_fabric import MeshFabric
from dse.evaluators.program.activity import Activity
from dse.evaluators.program.activity_counts import count_macs, matrix_products
from dse.evaluators.program.kernel_ir import (
    FUNCTIONS,
    Buffer,
    CoreIndex,
    Instruction,
    LoadInstruction,
    Loop,
    MultiplyInstruction,
    Program,
    Round,
    StoreInstruction,
    VectorInstruction,
)
from dse.space.array_math import Array, ceil_div, maximum, minimum, where


class ProductInstruction(NamedTuple):
    """A product of a block loop kernel; fields as in `MultiplyInstruction`."""

    a: str
    b: str
    out: str
    subscripts: str
    combine: str = "set"


LoopInstruction = RowInstruction | ProductInstruction


@dataclass(frozen=True, slots=True)
class BlockLoopKernel:
    """Loads, instructions and stores of one item and of each of its blocks.

    Attributes:
        opening, start: what it begins with: slots that are loaded, and what is done then.
        loads, body, stored: of each block: slots that are loaded, what is done, and slots that go back.
        closing, final: after the last block: what is done, and slots that go back.
        slots: what a tile holds; whole numbers, or arrays over designs for the analytical model.
    """

    opening: tuple[str, ...]
    start: tuple[LoopInstruction, ...]
    loads: tuple[str, ...]
    body: tuple[LoopInstruction, ...]
    stored: tuple[str, ...]
    closing: tuple[LoopInstruction, ...]
    final: tuple[str, ...]
    slots: tuple[Buffer, ...]

    @property
    def nbytes(self) -> Any:
        """Local memory of a tile in use. [B]"""
        return sum(slot.nbytes for slot in self.slots) * 1.0

    def bytes_of(self, names: tuple[str, ...]) -> Any:
        """Bytes of one version of some buffers. [B]"""
        held = {slot.name: slot.shape[0] * slot.row_bytes for slot in self.slots}
        return sum(held[name] for name in names) * 1.0


def block_buffers(
    sides: dict[str, tuple[Any, ...]], dtype: str, wide: tuple[str, ...], moving: tuple[str, ...]
) -> tuple[Buffer, ...]:
    """Buffers by name and shape: those in `wide` in FP32, and double buffers of those in `moving`."""
    return tuple(
        Buffer(name, shape, "float32" if name in wide else dtype, depth=2 if name in moving else 1)
        for name, shape in sides.items()
    )


def remove_vector_instructions(walk: BlockLoopKernel) -> BlockLoopKernel:
    """The same kernel without its vector instructions."""
    start, body, closing = (
        tuple(work for work in part if isinstance(work, ProductInstruction)) for part in (walk.start, walk.body, walk.closing)
    )
    return replace(walk, start=start, body=body, closing=closing)


def busy_mesh(items: Any, mesh: CoreMesh) -> CoreMesh:
    """Tiles that have work: the fewest rows that take the items in as many waves, nearest to memory.

    >>> busy_mesh(40, CoreMesh(32, 16))
    CoreMesh(rows=3, cols=16)
    """
    waves = maximum(ceil_div(items, mesh.rows * mesh.cols), 1)
    return CoreMesh(maximum(ceil_div(ceil_div(items, waves), mesh.cols), 1), mesh.cols)


def cost(
    walk: BlockLoopKernel,
    items: Any,
    blocks: Any,
    mesh: CoreMesh,
    fabric: MeshFabric,
    engines: TileEngines,
    memory: ColumnMemory,
    loaded: Any,
) -> KernelCost:
    """Time [s] and activity of a block loop: tiles compute while channels move; the slower decides.

        t = way + first loads + max(waves x (start + blocks x period + closing), all other blocks of a channel) + last store

    The period is what a block takes on a tile after another one, engines being busy or waiting for each other, or a load's way.

    Args:
        walk: block loop kernel.
        items, blocks: how many, and blocks of each, of which the mean over waves where these differ; broadcast over designs.
        mesh, fabric, engines, memory: of the machine.
        loaded: blocks of all items.
    """
    waves = ceil_div(items, mesh.rows * mesh.cols)
    mesh = busy_mesh(items, mesh)
    tiles = mesh.rows * mesh.cols
    opened, first_block, period, closed = _chain(walk, engines)
    way = fabric.ramp + fabric.edge_seconds(mesh.rows)
    latency = 2 * way + memory.latency + fabric.post
    begins, loads, stores, ends = (walk.bytes_of(names) for names in (walk.opening, walk.loads, walk.stored, walk.final))
    period = maximum(period, latency + loads * memory.byte)
    alone = opened + first_block + (blocks - 1) * period + closed
    # items of the busiest channel, in a turn of all tiles and all together
    count = minimum(memory.count, mesh.cols)
    turn = ceil_div(minimum(items, tiles), count)
    first = turn * (begins + loads) * memory.crowded
    moved = ceil_div(items, count) * (begins + loaded / items * (loads + stores) + ends) * memory.crowded
    last = maximum(stores, ends) * memory.byte
    seconds = latency + first + maximum(waves * alone, moved - first) + last + fabric.post + way
    return KernelCost(seconds, _activity(walk, items, blocks, loaded, waves, mesh))


def build_program(walk: BlockLoopKernel, items: int, blocks: tuple[int, ...], mesh: CoreMesh, *, channels: int) -> Program:
    """Program of the busy tiles of a block loop kernel.

    Args:
        walk, items: as of `cost`, whole numbers.
        blocks: of the items of each wave.
        mesh: all tiles; the program's are those of `busy_mesh`.
        channels: memory channels, at most one a column; a tile's are those of its column.
    """
    mesh = busy_mesh(items, mesh)
    tiles = mesh.rows * mesh.cols
    everyone = CoreIndex(*np.indices((mesh.rows, mesh.cols)))
    left = np.arange(items - (len(blocks) - 1) * tiles)
    fewer = CoreIndex(left // mesh.cols, left % mesh.cols)

    def list_transfers(
        kind: type[LoadInstruction] | type[StoreInstruction], names: tuple[str, ...], *, last: bool
    ) -> dict[str, Instruction]:
        cores = fewer if last else everyone
        return {name: kind(stream_name(name, last=last), name, cores, cores.col * channels // mesh.cols) for name in names}

    def build_wave(count: int, *, last: bool, after: dict[str, Instruction]) -> Iterator[Round | Loop]:
        """An item of every tile; `after` is what comes for the next one."""
        own, stores = (
            list_transfers(LoadInstruction, walk.loads, last=last),
            list_transfers(StoreInstruction, walk.stored, last=last),
        )
        yield from (Round((_step(work, joined),)) for work, joined in instruction_sequences(walk.start))
        if count > 1:
            yield Loop(_block(walk, own, stores), count - 1)
        yield from _block(walk, after, stores)
        yield from (Round((_step(work, joined),)) for work, joined in instruction_sequences(walk.closing))
        if walk.final:
            yield Round(tuple(list_transfers(StoreInstruction, walk.final, last=last).values()))

    both, strand = walk.opening + walk.loads, list[Round | Loop]()
    strand += [
        Round(tuple(list_transfers(LoadInstruction, names, last=len(blocks) == 1).values()))
        for names in (walk.opening, walk.loads)
        if names
    ]
    ends = [place == len(blocks) - 1 for place in range(len(blocks))]
    keys = [(count, last, place + 2 == len(blocks)) for place, (count, last) in enumerate(zip(blocks, ends, strict=True))]
    for (count, last, before), alike in groupby(keys):
        times = len(list(alike))
        parts = tuple(build_wave(count, last=last, after={} if last else list_transfers(LoadInstruction, both, last=before)))
        whole = tuple(turn for part in parts for turn in (part.body * part.times if isinstance(part, Loop) else (part,)))
        strand += [Loop(whole, times)] if count <= times else parts * times
    return Program(mesh.rows, mesh.cols, walk.slots, (tuple(strand),))


def scatter_operands(
    values: dict[str, Array], walk: BlockLoopKernel, blocks: tuple[int, ...], mesh: CoreMesh
) -> dict[str, Array]:
    """Blocks by stream, in loading order.

    Args:
        values: by slot, shape (items, blocks of the longest, ...); of what an item begins with, one block.
        walk, blocks, mesh: as of the program.
    """
    mesh, operands = busy_mesh(len(next(iter(values.values()))), mesh), {}
    tiles = mesh.rows * mesh.cols
    for name, given in values.items():
        times = [1 if name in walk.opening else count for count in blocks]
        full = [given[wave * tiles :][:tiles, turn] for wave, count in enumerate(times[:-1]) for turn in range(count)]
        operands[stream_name(name, last=False)] = np.reshape(full, (-1, mesh.rows, mesh.cols, *given.shape[2:]))
        operands[stream_name(name, last=True)] = np.moveaxis(given[(len(times) - 1) * tiles :, : times[-1]], 1, 0)
    return operands


def gather_result(stored: dict[str, Array], name: str, walk: BlockLoopKernel, blocks: tuple[int, ...]) -> Array:
    """Stored values of a buffer, shape (items, blocks of the longest, ...); 0 for missing blocks."""
    times = [1 if name in walk.final else count for count in blocks]
    rows: list[Array] = []
    full = iter(stored[stream_name(name, last=False)]) if len(blocks) > 1 else iter(())
    for count in times[:-1]:
        turns = np.stack([next(full) for _ in range(count)])
        rows += list(np.moveaxis(turns.reshape(count, -1, *turns.shape[3:]), 1, 0))
    rows += list(np.moveaxis(stored[stream_name(name, last=True)], 1, 0))
    padded = np.zeros((len(rows), max(times), *rows[0].shape[1:]))
    for place, row in enumerate(rows):
        padded[place, : len(row)] = row
    return padded


def _block(walk: BlockLoopKernel, loads: dict[str, Instruction], stores: dict[str, Instruction]) -> tuple[Round, ...]:
    """Instructions of a block; the next one is loaded after the last work on the buffers that it replaces."""
    single = {slot.name for slot in walk.slots if slot.depth == 1}
    turns: list[list[Instruction]] = [[_step(work, joined)] for work, joined in instruction_sequences(walk.body)]
    for name, load in loads.items():
        readers = [place for place, work in enumerate(walk.body) if name in _inputs(work)]
        turns[readers[-1] + (name in single) if readers else 0].append(load)
    return (*(Round(tuple(turn)) for turn in turns), *((Round(tuple(stores.values())),) if stores else ()))


def _chain(walk: BlockLoopKernel, engines: TileEngines) -> tuple[Any, Any, Any, Any]:
    """Seconds of a tile that waits for no memory: start, first block, each one after it, and what comes after the last."""
    slots = {slot.name: slot for slot in walk.slots}
    ready: dict[str, Any] = dict.fromkeys(slots, 0.0)
    read: dict[str, Any] = dict.fromkeys(slots, 0.0)
    free: dict[bool, Any] = {True: 0.0, False: 0.0}
    ends: list[Any] = []
    # a block depends on the one before in the same way from the second on
    for part in (walk.start, *[walk.body] * 4, walk.closing):
        for work, joined in instruction_sequences(part):
            engine = isinstance(work, ProductInstruction)
            begin = maximum(free[engine], read[work.out])
            needed = (
                (*_inputs(work), work.out) if isinstance(work, ProductInstruction) and work.combine == "sum" else _inputs(work)
            )
            for name in needed:
                begin = maximum(begin, ready[name])
            end = begin + _seconds(work, slots, engines, joined)
            free[engine] = ready[work.out] = end
            for name in _inputs(work):
                read[name] = maximum(read[name], end)
        ends.append(maximum(free[True], free[False]))
    start, first_end, _, before, last, closed = ends
    return start, first_end - start, last - before, closed - last


def _seconds(work: LoopInstruction, slots: dict[str, Buffer], engines: TileEngines, joined: bool) -> Any:
    if isinstance(work, ProductInstruction):
        copies, m, k, n = matrix_products(MultiplyInstruction(*work), slots)
        return copies * engines.product(m, k, n, slots[work.a].itemsize) + engines.matrix.start / engines.clock
    what, count = FUNCTIONS[work.function], _elements(work, slots)
    moved = sum(slots[name].shape[0] * slots[name].row_bytes for name in (*work.inputs, work.out))
    busy = engines.instruction(count * what.operations, count * what.specials, moved)
    return busy if joined else busy + engines.vector.start / engines.clock


def _elements(call: RowInstruction, slots: dict[str, Buffer]) -> Any:
    most: Any = 0
    for name in (*call.inputs, call.out):
        slot = slots[name]
        most = maximum(most, slot.shape[0] * slot.row_bytes / slot.itemsize)
    return most


def _activity(walk: BlockLoopKernel, items: Any, blocks: Any, loaded: Any, waves: Any, mesh: CoreMesh) -> Activity:
    """What the steps count: tiles without an item compute as well, but load nothing."""
    slots, tiles = {slot.name: slot for slot in walk.slots}, mesh.rows * mesh.cols
    macs: Any = 0.0
    elements: Any = 0.0
    for part, times in ((walk.start, waves), (walk.body, waves * blocks), (walk.closing, waves)):
        for work in part:
            if isinstance(work, ProductInstruction):
                macs = macs + tiles * times * count_macs(MultiplyInstruction(*work), slots)
            else:
                elements = elements + tiles * times * _elements(work, slots)
    moved = items * walk.bytes_of(walk.opening + walk.final) + loaded * walk.bytes_of(walk.loads + walk.stored)
    return Activity(macs=macs, elements=elements, memory_bytes=moved, hop_bytes=moved * _links(items, waves, mesh))


def _links(items: Any, waves: Any, mesh: CoreMesh) -> Any:
    """Between the south edge and an item's tile, on average; the last wave's are in the first rows."""
    tiles = mesh.rows * mesh.cols
    left = items - (waves - 1) * tiles
    rows, rest = left // mesh.cols, left % mesh.cols
    last = mesh.cols * (rows * (mesh.rows - 1) - rows * (rows - 1) / 2) + rest * (mesh.rows - 1 - rows)
    return where(items > 0, ((waves - 1) * tiles * (mesh.rows - 1) / 2 + last) / maximum(items, 1), 0.0)


def _inputs(work: LoopInstruction) -> tuple[str, ...]:
    return (work.a, work.b) if isinstance(work, ProductInstruction) else work.inputs


def _step(work: LoopInstruction, joined: bool) -> Instruction:
    if isinstance(work, ProductInstruction):
        return MultiplyInstruction(*work)
    given = None if work.given is None else np.array(work.given)
    return VectorInstruction(work.function, work.inputs, work.out, given=given, joined=joined)
