"""Merge of attention with split keys: partial outputs come back from main memory and are added up.

As FlashDecoding and FlashMLA do on a GPU, the first pass leaves what each part of the keys gives in main memory, in FP32:
outputs that are not divided yet, and of every row its maximum m_p and its sum l_p (on a GPU divided, and one number,
m_p + log l_p). When all is stored, a kernel of its own reads the parts of each row,

    m = max_p m_p,   w_p = exp(m_p - m),   O = sum_p w_p O_p / sum_p w_p l_p

Rows of all heads are shared out evenly, so that every tile has some; nothing goes from tile to tile. A tile has two partial
outputs at a time, of which one comes while the other one is added.
"""

from typing import Any, NamedTuple

import numpy as np

from dse.evaluators.kernels.attention.attention_shape import STATISTIC, AttentionShape, AttentionTiling, block_counts
from dse.evaluators.kernels.gemm.tiling import CoreMesh
from dse.evaluators.machine.compute_engines import TileEngines
from dse.evaluators.machine.memory_channels import ColumnMemory
from dse.evaluators.machine.mesh_fabric import MeshFabric
from dse.evaluators.program.activity import Activity
from dse.evaluators.program.kernel_ir import (
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
from dse.space.array_math import Array, ceil_div, maximum

WIDE = 4.0
"""Bytes of a value of partial outputs, maxima and sums."""

SHARE = 4
"""Of the rows of a slice of queries, a tile has at most one in so many at a time: what it needs then, it mostly had before."""


class MergePlan(NamedTuple):
    """Division of the rows of a merge over tiles; leaves broadcast over designs.

    Attributes:
        rows: of all heads.
        parts: of each row.
        columns: of outputs.
        each: rows of a tile at a time.
        items: such slices.
        waves: turns in which tiles work on them.
    """

    rows: Any
    parts: Any
    columns: Any
    each: Any
    items: Any
    waves: Any


def plan_merge(shape: AttentionShape, tiling: AttentionTiling, mesh: CoreMesh) -> MergePlan:
    """Merge of an attention with split keys; whole numbers, or arrays over designs.

    >>> plan_merge(
    ...     AttentionShape(4, 128, 1, 2, 4096, 576, 512, latent=True), AttentionTiling(1, 1, 64, 64, 16), CoreMesh(32, 32)
    ... )
    MergePlan(rows=1024, parts=16, columns=512, each=1, items=1024, waves=1)
    """
    rows, tiles = shape.problems * shape.rows, mesh.rows * mesh.cols
    waves = ceil_div(rows, tiles * ceil_div(tiling.queries, SHARE))
    each = ceil_div(rows, tiles * waves)
    items = ceil_div(rows, each)
    return MergePlan(rows, block_counts(shape, tiling, mesh).parts, shape.v, each, items, ceil_div(items, tiles))


def merge_buffers(parts: Any, columns: Any, each: Any, dtype: str) -> tuple[Buffer, ...]:
    """Buffers of a tile in a merge: statistics, two partial outputs, their sum, and outputs."""
    return (
        Buffer("tops", (parts, each), STATISTIC, depth=2),
        Buffer("totals", (parts, each), STATISTIC, depth=2),
        Buffer("part", (columns, each), STATISTIC, depth=2),
        Buffer("sum", (columns, each), STATISTIC),
        Buffer("out", (columns, each), dtype),
        *(Buffer(name, (1, each), STATISTIC) for name in ("m", "l", "w")),
    )


def merge_bytes(shape: AttentionShape, tiling: AttentionTiling, dtype: str) -> Any:
    """Largest local memory of a tile in a merge, on any mesh; 0 where keys are not split. [B]"""
    parts = block_counts(shape, tiling, CoreMesh(tiling.rows, tiling.cols)).parts
    need = sum(slot.nbytes for slot in merge_buffers(parts, shape.v, ceil_div(tiling.queries, SHARE), dtype))
    return (parts > 1) * need


def merge_program(plan: MergePlan, mesh: CoreMesh, dtype: str = "float16", *, channels: int) -> Program:
    """Program of a merge on all tiles of a mesh.

    Args:
        plan: whole numbers.
        mesh: mesh of tiles.
        dtype: of outputs.
        channels: memory channels, at most one a column; a tile loads from that of its own.
    """
    tiles = mesh.rows * mesh.cols
    last = plan.items - (plan.waves - 1) * tiles
    first = _opening(tiles if plan.waves > 1 else last, mesh, channels)
    strand: list[Round | Loop] = [*first]
    if plan.waves > 2:
        strand.append(Loop(_wave(plan, tiles, tiles, mesh, channels), plan.waves - 2))
    if plan.waves > 1:
        strand += _wave(plan, tiles, last, mesh, channels)
    return Program(
        mesh.rows,
        mesh.cols,
        merge_buffers(plan.parts, plan.columns, plan.each, dtype),
        ((*strand, *_wave(plan, last, 0, mesh, channels)),),
    )


def _opening(active: int, mesh: CoreMesh, channels: int) -> tuple[Round, ...]:
    """What some rows begin with: their statistics and their first partial outputs."""
    return tuple(_alone(_load(slot, active, mesh, channels)) for slot in ("tops", "totals", "part"))


def _wave(plan: MergePlan, active: int, after: int, mesh: CoreMesh, channels: int) -> tuple[Round, ...]:
    """Rows of as many tiles as are active; those of the tiles `after` begin to come before outputs are stored."""
    turns = [
        _alone(VectorInstruction("largest", ("tops",), "m")),
        _alone(VectorInstruction("exponentials", ("tops", "m"), "tops", joined=True)),
        _alone(VectorInstruction("scale", ("totals", "tops"), "totals", joined=True)),
        _alone(VectorInstruction("total", ("totals",), "l", joined=True)),
    ]
    for part in range(plan.parts):
        turns += [_alone(_load("part", active, mesh, channels))] if part else []
        turns.append(_alone(_weight(part, mesh)))
        instruction = (
            VectorInstruction("scale", ("part", "w"), "sum")
            if part == 0
            else VectorInstruction("decayed", ("part", "w", "sum"), "sum")
        )
        turns.append(_alone(instruction))
    turns += _opening(after, mesh, channels) if after else ()
    turns.append(_alone(VectorInstruction("divide", ("sum", "l"), "out")))
    return (*turns, _alone(StoreInstruction(stream_name("out", active, mesh), "out", *_tiles(active, mesh, channels))))


def _alone(step: Instruction) -> Round:
    return Round((step,))


def _weight(part: int, mesh: CoreMesh) -> SendInstruction:
    """The weights of a part of the keys, which a tile has with those of the others."""
    everyone = CoreIndex(*np.indices((mesh.rows, mesh.cols)))
    return SendInstruction("tops", everyone, everyone, np.array(part), np.array(part + 1), at=np.array(0), into="w")


def _load(slot: str, active: int, mesh: CoreMesh, channels: int) -> LoadInstruction:
    return LoadInstruction(stream_name(slot, active, mesh), slot, *_tiles(active, mesh, channels))


def _tiles(active: int, mesh: CoreMesh, channels: int) -> tuple[CoreIndex, Array]:
    """Tiles that have rows, row by row, and the channels of their columns."""
    row, col = np.divmod(np.arange(active), mesh.cols)
    return CoreIndex(row, col), col * channels // mesh.cols


def stream_name(slot: str, active: int, mesh: CoreMesh) -> str:
    """Name of a buffer's block stream; tiles with fewer blocks at the end have one of their own."""
    return slot if active == mesh.rows * mesh.cols else f"{slot}/part"


def scatter_partials(partial: dict[str, Array], plan: MergePlan, mesh: CoreMesh) -> dict[str, Array]:
    """Blocks of partial outputs and statistics by stream, in loading order.

    Args:
        partial: by slot of the first pass, what is stored: ``o`` of shape (parts, rows, columns), ``m`` and ``l`` of
            (parts, rows, 1).
        of, mesh: as of the program.
    """
    operands: dict[str, list[Array]] = {}
    for first, active in _turns(plan, mesh):
        tops, totals, parts = (
            np.stack(
                [
                    _padded(partial[name], plan)[:, item * plan.each : (item + 1) * plan.each]
                    for item in range(first, first + active)
                ]
            )
            for name in ("m", "l", "o")
        )
        operands.setdefault(stream_name("tops", active, mesh), []).append(tops[..., 0])
        operands.setdefault(stream_name("totals", active, mesh), []).append(totals[..., 0])
        operands.setdefault(stream_name("part", active, mesh), []).extend(
            parts[:, part].swapaxes(1, 2) for part in range(plan.parts)
        )
    return {name: np.stack(blocks) for name, blocks in operands.items()}


def gather_merged(stored: dict[str, Array], plan: MergePlan, mesh: CoreMesh) -> Array:
    """Merged outputs of the rows of all heads, shape (rows, columns), from the stored blocks."""
    left = {key: iter(blocks) for key, blocks in stored.items()}
    blocks = [next(left[stream_name("out", active, mesh)]) for _, active in _turns(plan, mesh)]
    return np.concatenate([block.swapaxes(1, 2).reshape(-1, plan.columns) for block in blocks])[: plan.rows]


def _turns(plan: MergePlan, mesh: CoreMesh) -> list[tuple[int, int]]:
    """First slice, and tiles that have one, of each turn."""
    tiles = mesh.rows * mesh.cols
    return [(first, min(tiles, plan.items - first)) for first in range(0, plan.items, tiles)]


def _padded(rows: Array, plan: MergePlan) -> Array:
    """With rows of zeros to the end of the last slice; their sums are one, since they are divided by."""
    return np.pad(rows, ((0, 0), (0, plan.items * plan.each - plan.rows), (0, 0)), constant_values=1.0)


def merge_seconds(
    plan: MergePlan, mesh: CoreMesh, fabric: MeshFabric, engines: TileEngines, memory: ColumnMemory | None, itemsize: float
) -> Any:
    """Time of a merge from its first request to its last stored output; leaves broadcast over designs. [s]

    The longest of what a tile's vector engine does after its first blocks have come, what the busiest channel moves before the
    last partial output is added, and what a tile waits for blocks of which two are on their way at a time:

        t = max(opening + vectors, channel + last addition, waits) + divide + store

    Args:
        plan: how rows are shared out.
        mesh: mesh of tiles.
        fabric, engines, memory: what it costs; without memory, what is left where that takes no time.
        itemsize: bytes of a value of outputs.
    """
    statistics, block, output = _nbytes(plan, itemsize)
    weigh, add, divide = _vectors(plan, engines, itemsize)
    vectors = plan.waves * (weigh + plan.parts * add + divide)
    if memory is None:
        return vectors
    columns = maximum(ceil_div(mesh.cols, memory.count) * plan.items / plan.waves / mesh.cols, 1.0)
    way = fabric.ramp + fabric.edge_seconds(mesh.rows)
    latency = 2 * way + memory.latency + fabric.post

    def time_load(nbytes: Any) -> Any:
        return latency + columns * nbytes * memory.crowded - nbytes * (memory.crowded - memory.byte)

    moved = plan.waves * (2 * statistics + plan.parts * block + output) - output
    channel = latency + columns * moved * memory.crowded + add + divide
    waits = plan.waves * plan.parts * (time_load(block) + add) / 2 + divide
    worked = time_load(2 * statistics + block) + vectors
    return maximum(maximum(worked, channel), waits) + fabric.post + way + columns * output * memory.byte


def merge_activity(plan: MergePlan, mesh: CoreMesh, itemsize: float) -> Activity:
    """Activity of a merge program: bytes from and to memory, bytes times hops, vector elements."""
    statistics, block, output = _nbytes(plan, itemsize)
    moved = plan.items * (2 * statistics + plan.parts * block + output)
    elements = plan.waves * plan.each * (4 * plan.parts + (plan.parts + 1) * plan.columns)
    hops = moved * (mesh.rows - 1 - (ceil_div(plan.items / plan.waves, mesh.cols) - 1) / 2)
    return Activity(memory_bytes=1.0 * moved, hop_bytes=hops, elements=1.0 * mesh.rows * mesh.cols * elements)


def _nbytes(plan: MergePlan, itemsize: float) -> tuple[Any, Any, Any]:
    """Of a tile's maxima, or sums, of all parts; of a partial output; of outputs. [B]"""
    return plan.parts * plan.each * WIDE, plan.columns * plan.each * WIDE, plan.columns * plan.each * itemsize


def _vectors(plan: MergePlan, engines: TileEngines, itemsize: float) -> tuple[Any, Any, Any]:
    """Time of a tile's weights, of adding a partial output, and of the division."""
    rows, all_parts, outputs = plan.each, plan.parts * plan.each, plan.columns * plan.each

    def time_vector(function: str, elements: Any, moved: Any) -> Any:
        what = FUNCTIONS[function]
        return engines.instruction(elements * what.operations, elements * what.specials, moved)

    start = engines.vector.start / engines.clock
    weigh = (
        start
        + time_vector("largest", all_parts, (all_parts + rows) * WIDE)
        + time_vector("exponentials", all_parts, (2 * all_parts + rows) * WIDE)
        + time_vector("scale", all_parts, 3 * all_parts * WIDE)
        + time_vector("total", all_parts, (all_parts + rows) * WIDE)
    )
    add = start + time_vector("decayed", outputs, (3 * outputs + rows) * WIDE)
    return weigh, add, start + time_vector("divide", outputs, outputs * (WIDE + itemsize) + rows * WIDE)
