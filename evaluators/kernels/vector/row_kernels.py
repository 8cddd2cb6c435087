"""Row kernels on a mesh of tiles: rotations, norms, activations and routing.

Every tile loads rows of its own from memory and stores the results.

A tile loads a block of rows, computes, and stores; the next block comes meanwhile. Nothing is exchanged between tiles, since a
row is on one of them; rows of what needs no whole row may be pieces of rows. Blocks are dealt to as few rows of tiles as do in
as many turns, those next to the memory; tiles of the other rows are idle.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, NamedTuple, TypeVar

import numpy as np

from dse.evaluators.kernels.gemm.tiling import CoreMesh
from dse.evaluators.kernels.kernel_cost import KernelCost
from dse.evaluators.machine.compute_engines import TileEngines
from dse.evaluators.machine.memory_channels import ColumnMemory
from dse.evaluators.machine.mesh_fabric import MeshFabric
from dse.evaluators.program.activity import Activity
from dse.evaluators.program.kernel_ir import (
    DEQUANTIZE_FUNCTIONS,
    FUNCTIONS,
    Buffer,
    CoreIndex,
    Instruction,
    LoadInstruction,
    Loop,
    Program,
    Round,
    SendInstruction,
    StoreInstruction,
    VectorInstruction,
)
from dse.space.array_math import Array, ceil_div, floor_div, maximum, minimum, remainder
from dse.space.number_formats import CONVERT

WorkType = TypeVar("WorkType")

WIDE, ONCE = 0, -1
"""Entries along the first axis of a slot: all columns of a row; the same where all rows share one."""


def columns_with_history(rows: int) -> int:
    """Size code of a buffer with all columns of a row block, and of `rows` rows before it. [-]"""
    return ONCE - rows if rows else WIDE


class RowInstruction(NamedTuple):
    """A vector instruction of a row kernel; `to` is the row of `out` that the result becomes, if any."""

    function: str
    inputs: tuple[str, ...]
    out: str
    given: float | tuple[int, int] | None = None
    to: int | None = None


@dataclass(frozen=True, slots=True)
class RowKernel:
    """Loads, instructions and stores of one block of rows.

    Attributes:
        groups: what is loaded, and the instructions that then run, one group after the other.
        stored: slots that go back to memory.
        slots: by name, entries along the first axis, or `WIDE`, `ONCE` or `behind`; or those along all axes but the last, of a
            row that is a matrix.
        pieces: whether rows may be cut.
        wide: slots in FP32, whatever the format of others.
        slices: into how many rows a row is cut that is tried, each of a share of its columns.
        whole: whether a tile has all its rows at once, as it must where they stay with it.
        packed: bytes of a value of slots that have a format of their own. [B]
    """

    groups: tuple[tuple[tuple[str, ...], tuple[RowInstruction, ...]], ...]
    stored: tuple[str, ...]
    slots: tuple[tuple[str, int | tuple[int, ...]], ...]
    pieces: bool
    wide: tuple[str, ...] = ()
    slices: tuple[int, ...] = (1,)
    whole: bool = False
    packed: tuple[tuple[str, float], ...] = ()

    @property
    def loads(self) -> tuple[str, ...]:
        """Buffers that are loaded, one after the other."""
        return tuple(name for loaded, _ in self.groups for name in loaded)

    @property
    def calls(self) -> tuple[RowInstruction, ...]:
        """All vector instructions of the kernel, in order."""
        return tuple(call for _, calls in self.groups for call in calls)


def build_norm_kernel() -> RowKernel:
    """RMSNorm: columns over the root of the mean of their squares, times a weight per column."""
    calls = (
        RowInstruction("squares", ("x",), "y"),
        RowInstruction("roots", ("y",), "root"),
        RowInstruction("scale", ("x", "root"), "out"),
        RowInstruction("scale", ("out", "weight"), "out"),
    )
    return RowKernel(((("x",), calls),), ("out",), (("x", WIDE), ("y", 1), ("root", 1), ("weight", ONCE), ("out", WIDE)), False)


def build_rotary_kernel(*, normed: bool) -> RowKernel:
    """Rotary embedding of both halves of heads, optionally after a norm of each head."""
    calls: tuple[RowInstruction, ...] = ()
    left, right = ("a", "b") if normed else ("x", "y")
    if normed:
        calls = (
            RowInstruction("squares", ("x",), "one"),
            RowInstruction("squares", ("y",), "other"),
            RowInstruction("add", ("one", "other"), "one"),
            RowInstruction("roots", ("one",), "root"),
            *(RowInstruction("scale", (half, "root"), to) for half, to in (("x", "a"), ("y", "b"))),
            *(RowInstruction("scale", (half, "weight"), half) for half in "ab"),
        )
    calls += (
        RowInstruction("rotate", (left, right, "cos", "minus"), "left"),
        RowInstruction("rotate", (right, left, "cos", "sin"), "right"),
    )
    wide = ("x", "y", "cos", "sin", "minus", "left", "right", *("ab" if normed else ""))
    thin = (*((name, 1) for name in ("one", "other", "root")), ("weight", ONCE)) if normed else ()
    slots = (*((name, WIDE) for name in wide), *thin)
    return RowKernel(((("x", "y"), calls),), ("left", "right"), slots, not normed)


def build_gate_kernel() -> RowKernel:
    """Gated activation: SiLU of one input times another one."""
    slots = (("x", WIDE), ("y", WIDE), ("out", WIDE))
    return RowKernel(((("x", "y"), (RowInstruction("gate", ("x", "y"), "out"),)),), ("out",), slots, True)


def copy_kernel() -> RowKernel:
    """Copy of the rows of a table."""
    return RowKernel(((("x",), ()),), ("x",), (("x", WIDE),), True)


def build_embedding_kernel(nbytes: float, operations: float) -> RowKernel:
    """Copy of the rows of a table in another number format, dequantised.

    Args:
        nbytes: of a value of the table with its share of scales. [B]
        operations: that make a wide value of it, where one is needed to multiply it.
    """
    functions = DEQUANTIZE_FUNCTIONS[int(max(operations, CONVERT))]
    calls = tuple(RowInstruction(function, ("out" if place else "x",), "out") for place, function in enumerate(functions))
    return RowKernel(((("x",), calls),), ("out",), (("x", WIDE), ("out", WIDE)), True, packed=(("x", nbytes),))


def build_convolution_kernel(taps: int, *, alone: bool) -> RowKernel:
    """Causal convolution of columns over rows, with weights of their own per tap, and SiLU.

    Args:
        taps: rows that each sees, itself included.
        alone: whether rows are of sequences of their own, which keep their earlier rows in memory; else they are one after the
            other, and a block reads the rows before it once more.
    """
    slots = (*((f"w{tap}", ONCE) for tap in range(taps)), ("s", WIDE), ("out", WIDE))
    if alone:
        groups = tuple(
            ((f"x{tap}",), (RowInstruction("scale", (f"x{tap}", f"w{tap}"), "s" if tap else "out"), *_added(tap, taps)))
            for tap in range(taps)
        )
        return RowKernel(groups, ("out", f"x{taps - 1}"), (*((f"x{tap}", WIDE) for tap in range(taps)), *slots), True)
    calls = [
        call
        for tap in range(taps)
        for call in (
            RowInstruction("tap", ("x", f"w{tap}"), "s" if tap else "out", given=(tap, taps - 1 - tap)),
            *_added(tap, taps),
        )
    ]
    return RowKernel(((("x",), tuple(calls)),), ("out",), (("x", columns_with_history(taps - 1)), *slots), True)


def _added(tap: int, taps: int) -> tuple[RowInstruction, ...]:
    last = (RowInstruction("silu", ("out",), "out"),) if tap == taps - 1 else ()
    return ((RowInstruction("add", ("out", "s"), "out"),) if tap else ()) + last


def build_softcap_kernel() -> RowKernel:
    """Softcap of scores: tanh of each score, scaled before and after."""
    return RowKernel(((("x",), (RowInstruction("cap", ("x",), "out"),)),), ("out",), (("x", WIDE), ("out", WIDE)), True)


def build_expert_choice_kernel(top: int) -> RowKernel:
    """Choice of each token's `top` experts: exponentials, then as often the largest score."""
    picks = tuple(
        call
        for turn in range(top)
        for call in (
            RowInstruction("largest", ("s",), "y"),
            RowInstruction("keep", ("y",), "chosen", to=turn),
            RowInstruction("without", ("s", "y"), "s"),
        )
    )
    slots = (("x", WIDE), ("s", WIDE), ("y", 1), ("chosen", top))
    return RowKernel(((("x",), (RowInstruction("exponentials", ("x",), "s", given=0.0), *picks)),), ("chosen",), slots, False)


def build_expert_combine_kernel(top: int) -> RowKernel:
    """Sum of `top` experts' outputs of each token, each times its score."""
    first = RowInstruction("scale", ("x", "score"), "out")
    more = (RowInstruction("scale", ("x", "score"), "s"), RowInstruction("add", ("out", "s"), "out"))
    groups = tuple((("x", "score"), more if turn else (first,)) for turn in range(top))
    return RowKernel(groups, ("out",), (("x", WIDE), ("score", 1), ("s", WIDE), ("out", WIDE)), False)


class RowBlock(NamedTuple):
    """Rows that a tile takes at a time, and their columns; leaves broadcast over designs."""

    rows: Any
    width: Any


class RowWaves(NamedTuple):
    """Numbers of row blocks and of waves in which tiles take one each; leaves broadcast over designs. [-]"""

    blocks: Any
    waves: Any


PIECE = 1024
"""Columns of the widest piece of a row that is cut."""

WAVES = (1, 2, 4, 8, 16)
"""Turns that are tried; more of them hide more behind each other, and start more often."""


def row_pieces(recipe: RowKernel, rows: Any, width: Any) -> tuple[Any, Any]:
    """Rows and columns that tiles take, with rows in equal pieces where they may be cut. [-]

    >>> row_pieces(build_gate_kernel(), 16, 12288), row_pieces(build_norm_kernel(), 16, 4096)
    ((192, 1024), (16, 4096))
    """
    if not recipe.pieces:
        return rows, width
    many = ceil_div(width, PIECE)
    return rows * many, ceil_div(width, many)


def row_waves(rows: Any, block: RowBlock, mesh: CoreMesh) -> RowWaves:
    """Blocks of rows on a mesh, and their waves; the last one is padded. [-]"""
    blocks = ceil_div(rows, block.rows)
    return RowWaves(blocks, ceil_div(blocks, mesh.rows * mesh.cols))


def busy_mesh(turns: RowWaves, mesh: CoreMesh) -> CoreMesh:
    """Tiles that have work: the fewest rows that take the blocks in as many waves.

    >>> busy_mesh(RowWaves(40, 1), CoreMesh(32, 16))
    CoreMesh(rows=3, cols=16)
    """
    return CoreMesh(ceil_div(ceil_div(turns.blocks, turns.waves), mesh.cols), mesh.cols)


def buffers(recipe: RowKernel, block: RowBlock, dtype: str) -> tuple[Buffer, ...]:
    """Buffers of a tile: two blocks of each loaded or stored buffer; leaves broadcast over designs."""
    moving, packed = {*recipe.loads, *recipe.stored}, dict(recipe.packed)
    return tuple(
        Buffer(
            name, _sides(high, block), "float32" if name in recipe.wide else dtype, depth=2 if name in moving else 1,
            packed=packed.get(name, 0.0),
        )
        for name, high in recipe.slots
    )  # fmt: skip


def cost(
    recipe: RowKernel,
    rows: Any,
    block: RowBlock,
    mesh: CoreMesh,
    fabric: MeshFabric,
    engines: TileEngines,
    memory: ColumnMemory,
    dtype: str,
) -> KernelCost:
    """Time [s] and activity of a row kernel: tiles compute while channels move; the slower decides.

        t = way + loads of the first group + (waves - 1) x max(instructions, loads and stores of a channel)
            + max(instructions and a store, other loads and stores of a channel)

    or, where blocks are few and small, the way to memory and back for every other load.

    Args:
        recipe: row kernel.
        rows, block, mesh: what to, and how it is cut; leaves broadcast over designs.
        fabric, engines, memory: of the machine.
        dtype: of values.
    """
    taken = seconds(recipe, rows, block, mesh, fabric, engines, memory, dtype)
    return KernelCost(taken, activity(recipe, rows, block, mesh, dtype))


def seconds(
    recipe: RowKernel,
    rows: Any,
    block: RowBlock,
    mesh: CoreMesh,
    fabric: MeshFabric,
    engines: TileEngines,
    memory: ColumnMemory,
    dtype: str,
) -> Any:
    """Time of a row kernel; arguments as in `cost`. [s]"""
    work = block_work(recipe, rows, block, mesh, fabric, engines, memory, dtype)
    return row_seconds(len(recipe.groups), work, mesh, fabric, memory)


def block_work(
    recipe: RowKernel,
    rows: Any,
    block: RowBlock,
    mesh: CoreMesh,
    fabric: MeshFabric,
    engines: TileEngines,
    memory: ColumnMemory,
    dtype: str,
) -> "RowWork":
    """Parts of a row kernel's time that do not depend on its memory; arguments as in `cost`."""
    slots_, each = buffers_and_bytes(recipe, block, dtype)
    vector: Any = 0.0
    for call, joined in vector_instructions(recipe):
        what, count = FUNCTIONS[call.function], _count(call, slots_)
        moved = sum(each[name] for name in (*call.inputs, call.out))
        busy = engines.instruction(count * what.operations, count * what.specials, moved)
        vector = vector + busy + (0.0 if joined else engines.vector.start / engines.clock)
    loaded, stored, first = (sum(each[name] for name in names) for names in (recipe.loads, recipe.stored, recipe.groups[0][0]))
    return RowWork(row_waves(rows, block, mesh), vector, loaded, stored, first)


def activity(recipe: RowKernel, rows: Any, block: RowBlock, mesh: CoreMesh, dtype: str) -> Activity:
    """Activity of a row kernel's program; arguments as in `cost`."""
    (slots_, each), turns = buffers_and_bytes(recipe, block, dtype), row_waves(rows, block, mesh)
    mesh = busy_mesh(turns, mesh)
    tiles = mesh.rows * mesh.cols
    up = _links(turns.blocks - (turns.waves - 1) * tiles, mesh)
    whole = mesh.cols * mesh.rows * (mesh.rows - 1) / 2
    moved = sum(each[name] for name in recipe.loads) + sum(each[name] for name in recipe.stored)
    elements: Any = 0.0
    for call, _ in vector_instructions(recipe):
        elements = elements + _count(call, slots_)
    return Activity(
        elements=turns.waves * tiles * elements,
        memory_bytes=turns.blocks * moved,
        hop_bytes=moved * ((turns.waves - 1) * whole + up),
    )


class RowWork(NamedTuple):
    """Parts of a row kernel's time that do not depend on its memory; leaves broadcast over designs.

    Attributes:
        turns: numbers of blocks and waves.
        vector: of a block: instructions. [s]
        loaded, stored, first: of a block: what is loaded and stored, and what the first group loads. [B]
    """

    turns: RowWaves
    vector: Any
    loaded: Any
    stored: Any
    first: Any


def buffers_and_bytes(recipe: RowKernel, block: RowBlock, dtype: str) -> tuple[dict[str, Buffer], dict[str, Any]]:
    """Buffers by name, and bytes of one buffer of each. [B]"""
    slots = {slot.name: slot for slot in buffers(recipe, block, dtype)}
    return slots, {name: slot.shape[0] * slot.row_bytes for name, slot in slots.items()}


def vector_instructions(recipe: RowKernel) -> Iterator[tuple[RowInstruction, bool]]:
    """Vector instructions of a row kernel, grouped as in `instruction_sequences`."""
    for _, calls in recipe.groups:
        yield from ((call, joined) for call, joined in instruction_sequences(calls) if call.to is None)


def _count(call: RowInstruction, buffers: dict[str, Buffer]) -> Any:
    """Elements that an instruction computes. [-]"""
    return maximum(_size(buffers[call.inputs[0]]), _size(buffers[call.out]))


def row_seconds(groups: int, work: RowWork, mesh: Any, fabric: Any, memory: Any) -> Any:
    """Time of a row kernel whose loads come in `groups` groups; other arguments as in `cost`. [s]"""
    waves, vector, loaded, stored, first = work
    # tiles that have the same channel and a block each, in a turn of all tiles and in the last one
    rows = ceil_div(ceil_div(waves.blocks, waves.waves), mesh.cols)  # as `busy_mesh`; loops compile this function alone
    full = ceil_div(mesh.cols, memory.count) * rows
    last = ceil_div(waves.blocks - (waves.waves - 1) * (rows * mesh.cols), minimum(memory.count, mesh.cols))
    way = fabric.ramp + (rows - 1) * fabric.hop + (ceil_div(rows, fabric.die_rows) - 1) * fabric.crossing  # `edge_seconds`
    latency = 2 * way + memory.latency + fabric.post
    opening = latency + (last * (waves.waves == 1) + full * (waves.waves > 1)) * first * memory.crowded
    later = maximum(vector, full * (loaded + stored) * memory.crowded) * (waves.waves - 1)
    # while the last tile computes others store
    final = maximum(vector + stored * memory.byte, last * (loaded - first + stored) * memory.crowded)
    # a load is ahead of another one: two of them wait for memory side by side
    turns = waves.waves * groups
    waiting = (ceil_div(turns, 2) - 1) * latency + vector / groups + stored * memory.byte
    return opening + maximum(later + final, waiting) + fabric.post + way


def build_program(
    recipe: RowKernel, rows: int, block: RowBlock, mesh: CoreMesh, dtype: str = "float16", *, channels: int
) -> Program:
    """Program of the busy tiles; arguments as in `cost`, whole numbers.

    Args:
        recipe, rows, block, mesh: as of `cost`; the program's mesh is that of `busy_mesh`.
        dtype: of values.
        channels: memory channels, at most one a column; a tile's are those of its column.
    """
    waves = row_waves(rows, block, mesh)
    mesh = busy_mesh(waves, mesh)
    tiles = mesh.rows * mesh.cols
    everyone = CoreIndex(*np.indices((mesh.rows, mesh.cols)))
    left = np.arange(waves.blocks - (waves.waves - 1) * tiles)
    fewer = CoreIndex(left // mesh.cols, left % mesh.cols)

    def list_transfers(
        kind: type[LoadInstruction] | type[StoreInstruction], names: tuple[str, ...], *, last: bool
    ) -> tuple[Instruction, ...]:
        cores = fewer if last else everyone
        return tuple(kind(stream_name(name, last=last), name, cores, cores.col * channels // mesh.cols) for name in names)

    def build_wave(*, last: bool, then: tuple[Instruction, ...]) -> tuple[Round, ...]:
        """A block of every tile; what comes next is loaded beside the last instruction that reads what it replaces."""
        ahead = [*(list_transfers(LoadInstruction, loaded, last=last) for loaded, _ in recipe.groups[1:]), then]
        steps: list[tuple[Instruction, ...]] = []
        for (loaded, calls), load in zip(recipe.groups, ahead, strict=True):
            steps += [(_step(call, everyone, joined),) for call, joined in instruction_sequences(calls)]
            readers = [place for place, call in enumerate(calls) if set(call.inputs) & set(loaded)]
            if readers:
                steps[len(steps) - len(calls) + readers[-1]] += load
        stores = list_transfers(StoreInstruction, recipe.stored, last=last)
        steps.append(stores if recipe.calls else (*stores, *then))
        return tuple(map(Round, steps))

    first = recipe.groups[0][0]
    full = build_wave(last=False, then=list_transfers(LoadInstruction, first, last=False))
    strand: list[Round | Loop] = [Round(list_transfers(LoadInstruction, first, last=waves.waves == 1))]
    strand += [Loop(full, waves.waves - 2)] if waves.waves > 2 else []
    strand += build_wave(last=False, then=list_transfers(LoadInstruction, first, last=True)) if waves.waves > 1 else ()
    strand += build_wave(last=True, then=())
    return Program(mesh.rows, mesh.cols, buffers(recipe, block, dtype), (tuple(strand),))


def stream_name(slot: str, *, last: bool) -> str:
    """Name of a buffer's block stream; the last wave has one of its own, with fewer blocks."""
    return f"{slot}/last" if last else slot


def scatter_operands(values: dict[str, Array], recipe: RowKernel, block: RowBlock, mesh: CoreMesh) -> dict[str, Array]:
    """Blocks by stream, in loading order.

    Args:
        values: by slot, shape (times that it is loaded for a block, rows, columns), or more axes as its slot has them.
        recipe, block, mesh: as of the program.
    """
    operands = {}
    for name, given in values.items():
        waves = row_waves(given.shape[1], block, mesh)
        current_mesh = busy_mesh(waves, mesh)
        padded = np.ones((len(given), waves.blocks * block.rows, *given.shape[2:]), given.dtype)
        padded[:, : given.shape[1]] = given
        blocks = np.moveaxis(padded.reshape(len(given), waves.blocks, block.rows, *given.shape[2:]), (1, 2), (0, -1))
        full = (waves.waves - 1) * current_mesh.rows * current_mesh.cols
        shape = (waves.waves - 1, current_mesh.rows, current_mesh.cols, *blocks.shape[1:])
        operands[stream_name(name, last=False)] = np.moveaxis(blocks[:full].reshape(shape), 3, 1).reshape(
            -1, *shape[1:3], *shape[4:]
        )
        operands[stream_name(name, last=True)] = np.moveaxis(blocks[full:], 1, 0)
    return operands


def gather_result(stored: dict[str, Array], slot: str, rows: int) -> Array:
    """Rows of a buffer from its stored blocks, shape (rows, columns) or with the buffer's axes."""
    parts = []
    for name, cores in ((stream_name(slot, last=False), 3), (stream_name(slot, last=True), 2)):
        if name in stored:
            sides = stored[name].shape[cores:]
            parts.append(np.moveaxis(stored[name].reshape(-1, *sides), -1, 1).reshape(-1, *sides[:-1]))
    return np.concatenate(parts)[:rows]


def _step(call: RowInstruction, everyone: CoreIndex, joined: bool) -> Instruction:
    if call.to is not None:
        ends = np.array(0), np.array(1)
        return SendInstruction(call.inputs[0], everyone, everyone, *ends, at=np.array(call.to), into=call.out)
    given = None if call.given is None else np.array(call.given)
    return VectorInstruction(call.function, call.inputs, call.out, given=given, joined=joined)


def instruction_sequences(works: Sequence[WorkType]) -> Iterator[tuple[WorkType, bool]]:
    """Each item with whether it is a vector instruction that directly follows another one.

    >>> [
    ...     joined
    ...     for _, joined in instruction_sequences(
    ...         (RowInstruction("squares", ("x",), "y"), RowInstruction("roots", ("y",), "y"))
    ...     )
    ... ]
    [False, True]
    """
    before = False
    for work in works:
        vector = isinstance(work, RowInstruction) and work.to is None
        yield work, before and vector
        before = vector


def _sides(high: int | tuple[int, ...], block: RowBlock) -> tuple[Any, ...]:
    if isinstance(high, tuple):
        return (*(block.width if side == WIDE else side for side in high), block.rows)
    return (high if high > 0 else block.width), (1 if high == ONCE else block.rows + maximum(ONCE - high, 0))


def _size(slot: Buffer) -> Any:
    return prod(slot.shape)


def _links(blocks: Any, mesh: CoreMesh) -> Any:
    """Links between the south edge and the first tiles, row by row."""
    rows, rest = floor_div(blocks, mesh.cols), remainder(blocks, mesh.cols)
    return mesh.cols * (rows * (mesh.rows - 1) - rows * (rows - 1) / 2) + rest * (mesh.rows - 1 - rows)
